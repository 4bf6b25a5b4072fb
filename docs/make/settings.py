"""Of a system: its settings as a table, the labels it uses, its example, and what was measured of it."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"
BASES = ("base", "full image", "ViT", "ViT, rate 2e-5", "frozen probe", "ViT-S full")
"""What a study calls its plain classifier, the first that it has."""


def settings(system: str) -> str:
    """The settings of ``system``, its own first; those of training are told by name only.

    >>> print(settings("A2").splitlines()[2].split("|")[1].strip())
    `attention`
    """
    kind = _kind(system)
    told = _said(kind)
    rows = sorted(fields(kind), key=lambda f: _home(kind, f.name))
    lines = ["| setting | default | what it is |", "|---|---|---|"]
    for f in rows:
        if f.init and f.name != "training":
            lines.append(f"| `{f.name}` | {_default(f)} | {told.get(f.name, '')} |")
    if any(f.name == "training" for f in rows):
        from foveate.engine import TrainSettings

        usual = kind().usual_training()
        words = [
            f"`{n}` {_plain(getattr(usual, n))}" for n in ("epochs", "lr", "batch_size", "weight_decay", "optimizer")
        ]
        others = [f"`{n}`" for n in TrainSettings.model_fields if not any(w.startswith(f"`{n}`") for w in words)]
        lines += ["", f"And those of the training by name: {', '.join(words)}, {', '.join(others)}."]
    return "\n".join(lines)


def labels(system: str) -> str:
    """Which labels it consumes."""
    return f"`{_kind(system).needs}`. What a fitted model used, selection included: `model.supervision()`."


def example(system: str) -> str:
    """The example of its docstring, which the tests run."""
    text = inspect.getdoc(_kind(system)) or ""
    found = re.search(r"^>>> .*\Z", text, flags=re.M | re.S)
    return "" if found is None else f"```pycon\n{found[0].rstrip()}\n```"


def measured(system: str) -> str:
    """Worst group and average of every row of our studies that it is in, beside the plain classifier of the study."""
    rows = [
        f"| [{spec}](../results.md#{spec}): {line.dataset} | {line.method} | {_share(line, 'worst_group')} | "
        f"{_share(line, 'average')} | {_base(spec, line.dataset, line.method)} | {len(line.seeds)} |"
        for spec, line, of in _lines()
        if of == system and "worst_group" in line.values
    ]
    if not rows:
        return "*Not measured in our studies.*"
    head = "| study | row | worst group | average | worst group of the plain classifier | seeds |"
    note = (
        "Test accuracy in percent, mean ± standard deviation over seeds; made from `benchmarks/records`. Figures in "
        "the text above are paired differences in points, with their 95 % intervals over seeds."
    )
    return "\n".join([head, "|---|---|---|---|---|---|", *rows, "", note])


@lru_cache
def _lines() -> list[tuple[str, Any, str]]:
    from foveate.bench.records import read_csv
    from foveate.bench.table import lines

    found = []
    for path in sorted(RECORDS.glob("*.csv")):
        if path.stem in ("grid", "reproduction"):
            continue
        records = read_csv(path)
        kinds = {(r.dataset, r.method): r.system for r in records}
        found += [(path.stem, line, kinds[line.dataset, line.method]) for line in lines(records)]
    return found


def _base(spec: str, dataset: str, method: str) -> str:
    here = {line.method: line for of, line, _ in _lines() if (of, line.dataset) == (spec, dataset)}
    for name in (f"{method.rpartition(' ')[0]} full", *BASES):  # "ResNet-50 A2" beside "ResNet-50 full"
        if name in here and name != method:
            return f"{_share(here[name], 'worst_group')} ({name})"
    return "–"


def _share(line: Any, metric: str) -> str:
    mean, spread = line.mean(metric), line.std(metric)
    if mean is None:
        return "–"
    return f"{100 * mean:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")


def _kind(system: str) -> Any:
    from foveate.registries import SYSTEMS

    return SYSTEMS.get(system)


def _home(kind: Any, name: str) -> int:
    """How far up the field was declared: 0 for the system's own."""
    return next((i for i, c in enumerate(kind.__mro__) if name in inspect.get_annotations(c)), 99)


def _said(kind: Any) -> dict[str, str]:
    """What the ``Args`` of the class, and of those it is made from, say about each setting."""
    found: dict[str, str] = {}
    entry = re.compile(r"^    ([\w, ]+?)(?: …)?: (.*(?:\n        .*)*)", flags=re.M)
    for place in kind.__mro__:
        text = inspect.cleandoc(place.__dict__.get("__doc__") or "")
        section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", text, flags=re.M)
        for names, words in entry.findall(section[1] if section else ""):
            for name in names.split(", "):
                if not words.startswith("see :class:"):
                    found.setdefault(name.strip(), _cell(words))
    return found


def _cell(words: str) -> str:
    words = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", " ".join(words.split()))
    return words.replace("``", "`").replace("|", r"\|")


def _default(f: Any) -> str:
    if f.default is not MISSING:
        return _plain(f.default)
    return _plain(f.default_factory()) if f.default_factory is not MISSING else "required"


def _plain(value: Any) -> str:
    return "" if value is None else f"`{value!r}`" if isinstance(value, str) else f"`{value}`"
