"""Ways to spoil bytes, text and values; every one takes its randomness from the generator it is given."""

from __future__ import annotations

import random
from typing import Any

ODD_TEXT = (
    "", " ", "nan", "inf", "-inf", "1e400", "-1", "0", "99999999999999999999", "null", "true", "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07", "\u202egnp.exe", "=1+1", "@SUM(A1)", "+1", "-x", "a" * 400, "../../../etc/passwd", "/dev/zero",
    "{}", "{0}", "%s%n", "[bold]x[/bold]", "\\x00", "é", "日本", "a,b", 'a"b', "a;b", "'", "\t", "~", "$HOME", "*",
    "NaN", "1.5", "0x10", "1_000", "١٢٣", "\u2028", "\x85", "\x9b31m", "con", "..", ".",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1.5, 1e300, float("nan"), float("inf"), 10**30, "", "x", "\x1b[2J", [], [[]], [1, [2]],
    {}, {"a": 1}, {"": {"": {}}}, "../x", "/dev/zero", "a" * 300, [None], ["x"] * 50, -(10**9),
)  # fmt: skip


def spoil_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, cut, double, insert or zero a piece."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data)) if data else 0
        how = rng.randrange(7)
        if how == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1 and data:
            data[at] = rng.choice((0, 255, 127, 128))
        elif how == 2:
            del data[at : at + rng.choice((1, 4, 64, 4096))]
        elif how == 3:
            data[at:at] = rng.randbytes(rng.choice((1, 4, 64)))
        elif how == 4:
            data[at:at] = data[at : at + rng.choice((4, 64))]
        elif how == 5:
            del data[at:]
        elif data:
            data[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff"))
    return bytes(data)


def spoil_text(text: str, rng: random.Random) -> str:
    """Replace, repeat, drop or insert a word or a line."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        how = rng.randrange(6)
        if how == 0:
            del lines[at]
        elif how == 1:
            lines.insert(at, lines[at])
        elif how == 2:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif how == 3:
            words = lines[at].split(" ")
            words[rng.randrange(len(words))] = rng.choice(ODD_TEXT)
            lines[at] = " ".join(words)
        elif how == 4:
            lines.insert(at, rng.choice(ODD_TEXT))
        else:
            cut = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + rng.choice(ODD_TEXT) + lines[at][cut:]
        lines = lines or [""]
    return "\n".join(lines)


def spoil_value(value: Any, rng: random.Random) -> Any:
    """A copy of nested lists and dictionaries with one place in it replaced, removed or added to."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        how = rng.random()
        if how < 0.12:
            return {k: v for k, v in value.items() if k != key}
        if how < 0.2:
            return {**value, rng.choice(ODD_TEXT): rng.choice(ODD_VALUES)}
        return {**value, key: spoil_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:at] + value[at + 1 :]
        return [*value[:at], spoil_value(value[at], rng), *value[at + 1 :]]
    return rng.choice(ODD_VALUES)
