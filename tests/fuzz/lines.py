"""Bad command lines: every option of every verb with every kind of value that does not fit it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.corrupt import ODD_TEXT
from tests.fuzz.harness import BAD, CHECKED, MAYBE, Case
from tests.fuzz.world import World

LONG = "x" * 300
NOT_A_NUMBER = ("abc", "", " ", "1,5", "0x1g", "--", "1 2", "nan3", "\x1b[31m")

# Values by kind of option: those that can only be wrong, and those that may be usable.
SHUT: dict[str, tuple[str, ...]] = {
    "seed": (*NOT_A_NUMBER, "-1", "1.5", "99999999999999999999", "-99999999999"),
    "count": (*NOT_A_NUMBER, "-1", "1.5", "-99999999999", "1e3"),
    "whole": (*NOT_A_NUMBER, "1.5", "1e3"),
    "rate": (*NOT_A_NUMBER, "-1", "0", "nan", "inf", "1e300", "-inf"),
    "share": (*NOT_A_NUMBER, "-0.1", "1.1", "nan", "inf", "1e300"),
    "number": NOT_A_NUMBER,
    "data": (
        "no/such/place", "nosuchname", "critters:size=0", "critters:size=abc", "critters:train=-1", "critters:seed=-1",
        "critters:strength=7", "critters:strength=nan", "critters:nonsense=1", "critters:train", "critters:=3",
        "critters:size=1e400", "critters:size=-4", "critters:test=abc", "own", "", "/dev/null", "{d}/fifo",
        "{d}/empty", "{d}/loop", "{d}/socket", f"{{d}}/{LONG}", f"{{d}}/{LONG}.csv", "{d}/device", "{d}/text",
        "{d}/raw\udcff", "waterbirds", "metashift", "dominoes:root={d}/empty", "critters:size=[1,2]",
        "critters:species=7", "critters-cue:size=0", "cmnist:root=1", "{d}/\x1b[31m", "critters:seed=99999999999999999999",
    ),
    "model": (
        "no/such/model", "", "{d}/empty", "{w}/data", "{d}/text", "{d}/fifo", "{d}/loop", "{d}/socket", "/dev/null",
        f"{{d}}/{LONG}", "{d}/raw\udcff", "{d}/\x1b[31m", "resnet18", "{d}/device",
    ),
    "folder": ("{d}/text", "{d}/text/below", f"{{d}}/{LONG}", "{d}/full", "{d}/loop", "/proc/nowhere/x"),
    "place": ("{d}/text", "{d}/text/below", f"{{d}}/{LONG}", "{d}/loop", "/proc/nowhere/x"),
    "file": ("{d}/empty", "{d}/text/below", f"{{d}}/{LONG}", "{d}/loop", "/proc/nowhere/x", "{d}/socket"),
    "split": ("nope", "", "Train!", "0x", "\x1b[31m"),
    "bad": ("explode", "", "RAISE", "1"),
    "metric": ("nope", "", "worst group", "\x1b[2J"),
    "root": ("{d}/text", "no/such/folder", f"{{d}}/{LONG}", "{d}/loop", "{d}/fifo"),
    "setting": (
        "", "=", "=3", "epochs", "seed=-1", "image_size=0", "image_size=abc", "lr=1e300", "lr=nan", "epochs=-1",
        "batch_size=0", "epochs=1.5", "nonsense=1", "epochs=None", "momentum=7", "weight_decay=-1", "optimizer=magic",
        "schedule=7", "precision=abc", "clip=-1", "ema=2", "devices=abc", "accelerator=abc", "patience=0",
        "model_args=3", "model_args={{'width': -1}}", "model_args={{'nope': 1}}", "image_size=-3", "image_size=[0,0]",
        "image_size=1.5", "checkpoint_every=0", "checkpoint={d}/empty", "checkpoint={d}/text", "strategy=abc",
        "augment=7", "backbone=7", "lr=abc", "seed=abc", "model_args={{'width': 10**9}}", "select=7",
        "seed=99999999999999999999", "checkpoint={d}/nothing", "image_size=99999999", "batch_size=abc",
    ),
    "system": ("nope", "", "erm2", "System", "\x1b[31m", "__init__"),
    "backbone": ("nope", "", "resnet18.nope", "micro_resnet@x", "\x1b[31m", "hf-hub:nobody/nothing", "/dev/null"),
    "name": ("nope", "", "CIFAR", "\x1b[31m", "../x", "metashift"),
    "format": ("nope", "", "ONNX ", "\x1b[31m"),
    "host": ("nonsense.invalid", "999.999.1.1", "", "1.2.3", "\x1b[31m", "a b"),
    "port": ("-1", "0.5", "99999", "abc", "", "4294967296"),
    "spec": ("no/such.yaml", "{d}/empty", "{d}/text", "{d}/fifo", "/dev/null", f"{{d}}/{LONG}.yaml", "{d}/loop", "{d}/socket"),
    "notes": ("no/such.md", "{d}/empty", "{d}/fifo", "{d}/loop", "{d}/socket", f"{{d}}/{LONG}"),
    "records": ("no/such.csv", "{d}/text", f"{{d}}/{LONG}.csv", "{d}/text.csv", "{d}/text.db", "{d}/loop", "{d}/fifo.csv", "ftp://x/y"),
    "storage": ("{d}/text", "{d}/empty", "nope://x", "{d}/text/below.db", f"{{d}}/{LONG}", "://"),
    "module": ("no.such.module", "", "..", "\x1b[31m", "1", "a b"),
    "images": (
        "{d}/text", "{d}/fifo", "{d}/empty", "/dev/null", "/dev/zero", "no/such.png", f"{{d}}/{LONG}", "{d}/socket",
        "{d}/eps.png", "{d}/loop", "{d}/fifo.png", "{d}/raw\udcff",
    ),
    "crops": ("abc", "-4", "1.5", ",", "64,", "99999999", "4,x"),
    "triple": ("1", "a,b,c", "1,2", "1,2,3,4", "nan,nan,nan", "", ",,"),
    "positive_triple": ("0,0,0", "-1,1,1", "1,2", "nan,1,1", "inf,1,1"),
    "limit": ("nope=0.5", "worst_group", "worst_group=2", "worst_group=nan", "=", "worst_group=abc", "", "\x1b[31m=1"),
    "parts": ("abc", "-1", "99", "1.5", "0,1,2", "0 x", ","),
    "auto": ("nope", "", "greedy!"),
    "objects": ("nope", "", "\x1b[31m", "/dev/null"),
    "kind": ("nope", "", "Bars", "\x1b[31m"),
    "heads": ("nope", "", "lowest-entropy-0", "lowest-entropy-x", "lowest-entropy-99"),
    "layer": (*NOT_A_NUMBER, "99", "-99", "1.5"),
    "template": ("{{", "}}", "{{nope}}", "{{0}}", "{{path.__class__}}", "{{path!z}}", "{{path:>99999999999}}"),
    "column": ("nope", "", "\x1b[31m"),
    "ray": ("nowhere:1", "", "abc", "ray://127.0.0.1:1"),
}  # fmt: skip
OPEN: dict[str, tuple[str, ...]] = {
    "seed": ("0", "4294967295"),
    "count": ("1", "99999999999"),
    "text": ODD_TEXT,
    "name_of": ODD_TEXT,
    "folder": ("{d}/new", "{d}/link", "{d}/\x1b[31m", "{d}/raw\udcff", "{d}/a b"),
    "file": ("{d}/new", "{d}/device", "{d}/link", "{d}/\x1b[31m.x", "{d}/raw\udcff", "{d}/fifo"),
    "number": ("nan", "inf", "-1", "0", "1e300", "-1e300"),
    "split": ("train", "val"),
    "size": ("0", "-1", "abc", "1", "99999999"),
}


@dataclass(frozen=True)
class Verb:
    """How a verb is called when nothing is wrong, and the kinds of its options.

    Attributes:
        words: the verb and arguments that are good.
        options: kind of every option, by its name.
        arguments: kind of every position in ``words`` that is an argument.
        allowed: codes besides those of a mistake.
        runs: False where a good call would take minutes (or serve for ever): then only what must be refused is tried.
    """

    words: tuple[str, ...]
    options: dict[str, str]
    arguments: dict[int, str] = field(default_factory=dict)
    allowed: frozenset[int] = MAYBE
    runs: bool = True


_READ = {"--root": "root", "--on-bad": "bad", "--split": "split"}
_BENCH = {"--runs": "place", "--storage": "storage", "--import": "module"}
_FIT = (
    "--backbone", "micro_resnet", "--epochs", "1", "--set", "progress=False", "--set",
    "model_args={{'width': 8, 'layers': [1, 1, 1], 'stem_stride': 2}}",
)  # fmt: skip
_SPEC = ("{w}/spec.yaml", "--runs", "{d}/runs")
VERBS: dict[str, Verb] = {
    "demo": Verb(("demo", "-o", "{d}/demo"), {"--out": "place", "--seed": "seed", "--strength": "share"}, runs=False),
    "data list": Verb(("data", "list"), {"--root": "root_any"}),
    "data check": Verb(
        ("data", "check", "{w}/data"), {"--root": "root", "--tiny": "whole"}, {2: "data"}, allowed=CHECKED
    ),
    "data prepare": Verb(("data", "prepare", "critters"), {"--root": "root_any"}, {2: "name"}),
    "data export": Verb(
        ("data", "export", "critters:size=32,train=8,target=8,val=8,test=8", "{d}/out"), {"--root": "root_any"},
        {2: "data", 3: "folder"},
    ),  # fmt: skip
    "data compose": Verb(
        ("data", "compose", "--foregrounds", "{w}/data/benchmark.csv", "--backgrounds", "{w}/data/benchmark.csv", "--out",
         "{d}/out", "--size", "16", "--train", "8", "--target", "4", "--val", "4", "--test", "4"),
        {"--foregrounds": "spec", "--backgrounds": "spec", "--out": "folder", "--fg-path": "template",
         "--fg-mask": "template", "--fg-label": "column", "--bg-path": "template", "--bg-label": "column",
         "--size": "count", "--strength": "share", "--centre-bias": "share", "--train": "count", "--target": "count",
         "--val": "count", "--test": "count", "--mask-threshold": "whole", "--soft-edge": "number",
         "--image-format": "format", "--on-bad": "bad", "--seed": "seed", "--scale": "pair"},
    ),
    "bench run": Verb(
        ("bench", "run", *_SPEC, "--workers", "0"),
        {**_BENCH, "--workers": "count", "--threads": "count", "--ray": "ray", "--method": "column", "--dataset": "column",
         "--log-to": "kind", "--export": "file"}, {2: "spec"}, runs=False,
    ),
    "bench status": Verb(("bench", "status", *_SPEC), dict(_BENCH), {2: "spec"}),
    "bench table": Verb(
        ("bench", "table", "{w}/records.csv"), {**_BENCH, "--format": "format", "--metric": "metric", "--out": "file"},
        {2: "records"},
    ),
    "bench plot": Verb(
        ("bench", "plot", "{w}/records.csv", "-o", "{d}/plot.png"),
        {"--kind": "kind", "--metric": "metric", "--x": "column", "--y": "text", "--out": "file", **_BENCH}, {2: "records"},
    ),
    "bench figures": Verb(
        ("bench", "figures", *_SPEC), {**_BENCH, "--dataset": "column", "--seed": "seed", "--method": "column",
        "--out": "folder"}, {2: "spec"}, runs=False,
    ),
    "bench page": Verb(
        ("bench", "page", "{w}/spec.yaml", "--records", "{w}", "-o", "{d}/page.md"),
        {"--records": "root_any", "--notes": "notes", "--out": "file", "--import": "module"}, {2: "spec"},
    ),
    "bench features": Verb(
        ("bench", "features", "{w}/pets", "--backbone", "micro-vit", "--size", "32", "--store", "{d}/store"),
        {"--backbone": "backbone", "--layer": "column", "--split": "split", "--size": "count", "--batch-size": "count",
         "--on-bad": "bad", "--ray": "ray", "--rows": "count", "--store": "place", "--out": "place", "--root": "root"},
        {2: "data"},
    ),
    "bench grid": Verb(
        ("bench", "grid", "critters:size=32,train=8,target=8,val=8,test=8", "-o", "{d}/grid.png"),
        {"--backbone": "backbone", "--epochs": "count", "--seed": "seed", "--metric": "metric", "--out": "file",
         "--only": "column", "--runs": "place", "--root": "root_any"}, {2: "data"}, runs=False,
    ),
    "reproduce": Verb(
        ("reproduce", "a2/T13", "--dry"), {"--root": "root_any", "--records": "records", "--page": "file"}, {1: "name"}
    ),
    "fit": Verb(
        ("fit", "{w}/data", "-o", "{d}/model", *_FIT),
        {"--out": "folder", "--system": "system", "--backbone": "backbone", "--epochs": "count", "--lr": "rate",
         "--batch-size": "count", "--seed": "seed", "--select": "metric", "--base": "model", "--set": "setting",
         "--val-share": "share", "--target-size": "count", "--root": "root", "--on-bad": "bad"}, {1: "data"},
    ),
    "eval": Verb(
        ("eval", "{w}/erm", "--data", "{w}/data"), {"--data": "data", "--metric": "metric", **_READ}, {1: "model"}
    ),
    "predict": Verb(
        ("predict", "{w}/erm", "{w}/data"), {"--out": "file", **_READ}, {1: "model", 2: "data"}
    ),
    "look": Verb(
        ("look", "{w}/erm", "{w}/image.png", "-o", "{d}/look.png"),
        {"--model": "model", "--out": "file", "--crops": "crops", "--layer": "layer", "--heads": "heads", "--size": "size",
         "--columns": "count", "--on-bad": "bad"}, {2: "images"},
    ),
    "look vit": Verb(
        ("look", "{w}/image.png", "-m", "micro-vit", "-o", "{d}/look.png"),
        {"--model": "model", "--crops": "crops", "--layer": "layer", "--heads": "heads", "--size": "size"}, {1: "images"},
    ),
    "audit": Verb(
        ("audit", "{w}/erm", "-d", "{w}/data", "-o", "{d}/audit.html", "--no-discover"),
        {"--data": "data", "--out": "file", "--fail-under": "limit", "--attribute": "text", "--objects": "objects",
         "--groups-out": "file", "--examples": "whole", "--classes": "text", "--size": "size", "--mean": "triple",
         "--std": "positive_triple", "--seed": "seed", **_READ}, {1: "model"}, allowed=CHECKED,
    ),
    "audit onnx": Verb(
        ("audit", "{w}/model.onnx", "-d", "{w}/data", "-o", "{d}/audit.html", "--no-discover"),
        {"--classes": "text", "--size": "size", "--mean": "triple", "--std": "positive_triple", "--seed": "seed"},
    ),
    "intervene": Verb(
        ("intervene", "{w}/ifam", "{w}/data", "--drop", "0"),
        {"--drop": "parts", "--q": "share", "--auto": "auto", "--metric": "metric_any", "--min-gain": "number",
         "--out": "folder", **_READ}, {1: "model", 2: "data"},
    ),
    "verify": Verb(
        ("verify", "{w}/ifam", "{w}/data", "--images", "2"),
        {"--against": "model", "--images": "count", "--split": "split", "--seed": "seed", "--root": "root"},
        {1: "model", 2: "data"}, allowed=CHECKED,
    ),
    "app": Verb(
        ("app", "{w}/erm", "{w}/data"), {"--host": "host", "--port": "port", "--limit": "count", "--root": "root"},
        {1: "model", 2: "data"}, runs=False,
    ),
    "export": Verb(
        ("export", "{w}/erm", "{d}/out", "--format", "torch-export"),
        {"--format": "format", "--data": "data", "--split": "text", "--images": "count", "--tolerance": "share_up",
         "--root": "root_any"}, {1: "model", 2: "folder"}, runs=False,
    ),
    "card": Verb(("card", "{w}/erm", "{w}/data"), {"--out": "file", **_READ}, {1: "model", 2: "data"}),
    "systems": Verb(("systems",), {}),
    "assets": Verb(("assets",), {"--root": "root_any"}),
}  # fmt: skip
SHUT["pair"] = ("1", "a b")
SHUT["share_up"] = (*NOT_A_NUMBER, "-0.1", "nan")


def furnish(folder: Path, words: list[str]) -> None:
    """Put the odd things that ``words`` name into ``folder``; only those, to be quick."""
    text = "\n".join(words)

    def wanted(name: str) -> bool:
        return f"{folder}/{name}" in text

    if wanted("text"):
        for name in ("text", "text.csv", "text.db"):
            (folder / name).write_text("dear diary\n")
    if wanted("nothing"):
        (folder / "nothing").touch()
    if wanted("empty"):
        (folder / "empty").mkdir()
    if wanted("full"):
        (folder / "full").mkdir()
        (folder / "full" / "mine.txt").write_text("not to be replaced")
    for name in ("fifo", "fifo.png", "fifo.csv"):
        if wanted(name):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(folder / name)
    if wanted("loop"):
        (folder / "loop").symlink_to(folder / "loop")
    if wanted("link"):
        (folder / "target").write_text("old")
        (folder / "link").symlink_to(folder / "target")
    if wanted("device"):
        with contextlib.suppress(PermissionError):
            os.mknod(folder / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    if wanted("socket"):
        with socket.socket(socket.AF_UNIX) as made, contextlib.suppress(OSError):
            made.bind(str(folder / "socket"))
    if wanted("eps.png"):
        (folder / "eps.png").write_bytes(EPS)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n0 0 8 8 rectfill\nshowpage\n%%EOF\n"


def unharmed(folder: Path) -> str | None:
    """What was there and is no file must still be what it was; what was full must still be."""
    device, full, link = folder / "device", folder / "full" / "mine.txt", folder / "link"
    if device.exists() and not stat.S_ISCHR(device.lstat().st_mode):
        return "a device node was replaced"
    if (folder / "full").exists() and not full.exists():
        return "somebody's file is gone"
    if (folder / "target").exists() and not link.is_symlink():
        return "a link was replaced"
    if (folder / "fifo").exists() and not stat.S_ISFIFO((folder / "fifo").lstat().st_mode):
        return "a pipe was replaced"
    litter = [p.name for p in folder.rglob(".*") if p.name.startswith(".") and ".fuzz" not in p.name]
    return f"left behind: {litter[0]}" if litter else None


def line_case(world: World, group: str, name: str, words: list[str], allowed: frozenset[int]) -> Case:
    """A case of one command line; ``{d}`` and ``{w}`` stand for its folder and the good inputs."""

    def build(folder: Path) -> list[str]:
        made = [word.format(d=folder, w=world.root) for word in words]
        furnish(folder, made)
        return made

    return Case(group, name, build, allowed, unharmed)


def command_lines(world: World, rng: random.Random) -> Iterator[Case]:
    """Each option and argument of each verb with each value of its kind; then pairs, and broken syntax."""
    for verb, of in VERBS.items():
        group = f"line:{verb.split(' ')[0]}"
        for option, kind in of.options.items():
            for value in SHUT.get(kind, ()):
                words = [*_without(of.words, option), option, _safe(kind, value)]
                yield line_case(world, group, f"{verb} {option} {value[:40]!a}", words, _codes(of, kind))
            for value in OPEN.get(kind, ()) if of.runs else ():
                words = [*_without(of.words, option), option, _safe(kind, value)]
                yield line_case(world, group, f"{verb} {option} {value[:40]!a}", words, of.allowed)
        for at, kind in of.arguments.items():
            for value in SHUT.get(kind, ()):
                words = [*of.words[:at], _safe(kind, value), *of.words[at + 1 :]]
                yield line_case(world, group, f"{verb} [{at}] {value[:40]!a}", words, _codes(of, kind))
        yield from _syntax(world, group, verb, of)
        pairs = [(o, k) for o, k in of.options.items() if k in SHUT]
        for number in range(4 * len(pairs) if len(pairs) > 1 else 0):
            (one, kind_one), (two, kind_two) = rng.sample(pairs, 2)
            values = [_safe(k, rng.choice(SHUT[k])) for k in (kind_one, kind_two)]
            words = [*_without(_without(of.words, one), two), one, values[0], two, values[1]]
            yield line_case(world, group, f"{verb} pair {number}", words, of.allowed)


ANY = frozenset({"place", "storage", "module", "root", "metric", "objects", "heads", "layer", "column", "size", "folder", "file", "crops", "triple"})
"""Kinds whose values some verbs have no use for, or take (a root that a named dataset does not need)."""


def _codes(of: Verb, kind: str) -> frozenset[int]:
    if of.runs and kind in ANY:
        return of.allowed
    # findings are not mistakes: a folder that can be looked at but holds nothing is a finding of `data check`
    return BAD if of.allowed != CHECKED else frozenset({1, 2})


def _safe(kind: str, value: str) -> str:
    """Option values that look like options are given as the shell would have them; templates keep their braces."""
    return value if kind not in ("text",) else value.replace("{", "{{").replace("}", "}}")


def _without(words: tuple[str, ...] | list[str], option: str) -> list[str]:
    """``words`` without ``option`` and its value, in its long and usual short form."""
    shorts = {"--out": "-o", "--data": "-d", "--model": "-m"}
    kept, skip = [], 0
    for word in words:
        if skip:
            skip -= 1
        elif word == option or word == shorts.get(option):
            skip = 1
        else:
            kept.append(word)
    return kept


def _syntax(world: World, group: str, verb: str, of: Verb) -> Iterator[Case]:
    """What the parser itself refuses."""
    head = len(verb.replace(" vit", "").replace(" onnx", "").split(" "))
    wrong = {
        "unknown option": [*of.words, "--nonsense"], "unknown option with value": [*of.words, "--nonsense=3"],
        "escape": [*of.words, "\x1b[31m--x", "--\x1b[31m"], "too many": [*of.words, *["x"] * 20],
        "option without value": [*of.words, next(iter(of.options), "--nonsense")],
        "not UTF-8": [*of.words, "--\udcff"],
    }  # fmt: skip
    if of.arguments and min(of.arguments) == head and of.runs:
        wrong["nothing"] = list(of.words[:head])
    for name, words in wrong.items():
        # some verbs take any number of arguments and some options are flags: those may find the words usable
        codes = BAD if name.startswith("unknown") else of.allowed
        yield line_case(world, group, f"{verb} {name}", words, codes)
