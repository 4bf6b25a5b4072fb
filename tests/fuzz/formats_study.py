"""Studies: spec files and records."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.corrupt import ODD_TEXT, ODD_VALUES, spoil_bytes, spoil_text, spoil_value
from tests.fuzz.formats import case
from tests.fuzz.harness import Case
from tests.fuzz.world import SPEC, World

# -- YAML ---------------------------------------------------------------------------------

YAML_TRAPS = (
    "",
    "a",
    "- 1",
    "&a [*a]",
    "name: &a {b: *a}",
    "a: &a\n  b: *a\n",
    "x: &x [*x, *x]",
    "? {}\n: 1",
    "? [1]\n: 2",
    "name: !!python/object/apply:os.system [id]",
    "!!binary x",
    "name: 2024-01-01",
    "{a: 1, a: 2}",
    "\t",
    "a: b: c",
    "%YAML 9",
    "[" * 3000,
    "{a: " * 500,
    "- " * 2000,
    "a: &a x\n" + "b: *a\n" * 3,
    "<<: 1",
    "<<: [1, 2]",
    "<<: {a: 1}\nname: x",
    "--- 1\n--- 2",
    "name: tiny\nmethods: null",
    "name: \x1b[31m",
    "\x00",
    "name: tiny\nseeds: [-1]\nmethods: {base: {system: ERM}}",
    "a: [&l1 [x,x,x,x,x,x,x,x,x], &l2 [*l1,*l1,*l1,*l1,*l1,*l1,*l1,*l1,*l1], &l3 [*l2,*l2,*l2,*l2,*l2,*l2,*l2,*l2], "
    "&l4 [*l3,*l3,*l3,*l3,*l3,*l3,*l3,*l3], &l5 [*l4,*l4,*l4,*l4,*l4,*l4,*l4,*l4], "
    "&l6 [*l5,*l5,*l5,*l5,*l5,*l5,*l5,*l5], "
    "&l7 [*l6,*l6,*l6,*l6,*l6,*l6,*l6,*l6]]",
    "name: tiny\ndata: &d {name: critters, options: *d}\nmethods: {base: {system: ERM}}",
    "1: 2\n1.5: 3\nnull: 4\n? true\n: 5",
    "name: tiny\n1: {}\n",
    "name: 1e999999999",
    "x: 0o8\ny: 1:60:60\n",
    "x: 99999999999999999999-01-01",
    "d: 2001-99-99",
    "!<x> y",
    "- !!set {a, b}",
    "!!omap [a: 1]",
    "!!timestamp x",
    "!!int x",
    "!!float x",
)


def specs(world: World, rng: random.Random, count: int = 330) -> Iterator[Case]:
    """Spec files: traps of YAML, spoiled fields, spoiled text."""
    import yaml

    good = yaml.safe_load(SPEC)
    contents: list[str] = list(YAML_TRAPS)
    while len(contents) < count:
        if rng.random() < 0.5:
            contents.append(yaml.safe_dump(spoil_value(good, rng), allow_unicode=True))
        else:
            contents.append(spoil_text(SPEC, rng))
    for number, text in enumerate(contents):

        def build(folder: Path, text: str = text, number: int = number) -> list[str]:
            spec = folder / "spec.yaml"
            spec.write_text(text, encoding="utf-8", errors="surrogatepass")
            verb = (["bench", "status"], ["bench", "table"], ["bench", "page"])[number % 3]
            more = (
                ["-o", str(folder / "page.md"), "--records", str(folder)]
                if verb[1] == "page"
                else ["--runs", str(folder / "r")]
            )
            return [*verb, str(spec), *more]

        yield case("yaml", number, build)
    for number, content in enumerate((b"\xff\xfe\x00", b"name: \xff", b"\x00" * 99, b"\xef\xbb\xbf" + SPEC.encode())):

        def raw(folder: Path, content: bytes = content) -> list[str]:
            (folder / "spec.yaml").write_bytes(content)
            return [
                "bench",
                "run",
                str(folder / "spec.yaml"),
                "--runs",
                str(folder / "r"),
                "--workers",
                "0",
                "-m",
                "nope",
            ]

        yield case("yaml", f"bytes {number}", raw)


# -- records ------------------------------------------------------------------------------


def records(world: World, rng: random.Random, count: int = 200) -> Iterator[Case]:
    """Records as CSV and as a database."""
    text = world.records.read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO(text)))
    for number in range(count):
        if number % 3 == 0:
            content = spoil_bytes(text.encode(), rng)
        else:
            table = [list(row) for row in rows]
            row = rng.choice(table)
            value = rng.choice(ODD_VALUES)
            row[rng.randrange(len(row))] = rng.choice((rng.choice(ODD_TEXT), json.dumps(value), str(value)))
            buffer = io.StringIO()
            csv.writer(buffer).writerows(table)
            content = buffer.getvalue().encode("utf-8", "surrogatepass")

        def build(folder: Path, content: bytes = content, number: int = number) -> list[str]:
            file = folder / ("tiny.db" if number % 20 == 19 else "tiny.csv")
            file.write_bytes(content)
            if number % 5 == 4 and file.suffix == ".csv":
                (folder / "spec.yaml").write_text(SPEC)
                return [
                    "bench",
                    "page",
                    str(folder / "spec.yaml"),
                    "--records",
                    str(folder),
                    "-o",
                    str(folder / "p.md"),
                ]
            if number % 5 == 3:
                kind = ("bars", "scaling", "matrix", "layers")[number // 5 % 4]
                words = ["bench", "plot", str(file), "-o", str(folder / "p.png"), "--kind", kind]
                return [*words, "--x", "refits", "--y", "method"]
            if number % 5 == 2:
                return ["reproduce", "--records", str(file), "--page", str(folder / "p.md")]
            return ["bench", "table", str(file), "--format", ("markdown", "latex", "csv")[number % 3]]

        yield case("records", number, build)
