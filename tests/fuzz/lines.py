"""Bad command lines: every option of every verb with every kind of value that does not fit it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.harness import BAD, CHECKED, Case
from tests.fuzz.values import OPEN, SHUT
from tests.fuzz.verbs import VERBS, Verb
from tests.fuzz.world import World


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


ANY = frozenset(
    {
        "positive_triple",
        "records_any",
        "place",
        "storage",
        "module",
        "root",
        "metric",
        "objects",
        "heads",
        "layer",
        "column",
        "size",
        "folder",
        "file",
        "crops",
        "triple",
    }
)
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
        "unknown option": [*of.words, "--nonsense"],
        "unknown option with value": [*of.words, "--nonsense=3"],
        "escape": [*of.words, "\x1b[31m--x", "--\x1b[31m"],
        "too many": [*of.words, *["x"] * 20],
        "option without value": [*of.words, next(iter(of.options), "--nonsense")],
        "not UTF-8": [*of.words, "--\udcff"],
    }
    if of.arguments and min(of.arguments) == head and of.runs:
        wrong["nothing"] = list(of.words[:head])
    for name, words in wrong.items():
        # some verbs take any number of arguments and some options are flags: those may find the words usable
        codes = BAD if name.startswith("unknown") else of.allowed
        yield line_case(world, group, f"{verb} {name}", words, codes)
