"""The README's table from what ``foveate demo`` left: ``python -m examples.demo_table foveate-demo``.

Loads the demo's models, measures them on the demo's test images, and writes ``benchmarks/results/demo.csv`` and the
table between the marks in the README. Without a folder it only writes the table again from the CSV file.
"""

from __future__ import annotations

import csv
import re
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "benchmarks" / "results" / "demo.csv"
COLUMNS = ("average", "majority", "minority", "worst_group")
QUESTIONS = {
    "nothing but the class labels": ("ERM", "A2", "IFAM", "Glimpse"),
    "and 240 balanced images": ("JTT", "DAR"),
    "and group labels": ("DFR", "GroupDRO"),
}
"""What a method is given, and the systems of the demo that are given that."""
MARKS = re.compile(r"(?<=<!-- demo -->\n).*?(?=<!-- /demo -->)", flags=re.S)


def table() -> str:
    """The table, as Markdown: by what a method is given, the best in its worst group first."""
    with FIGURES.open(encoding="utf-8") as file:
        rows = {row["system"]: row for row in csv.DictReader(file)}
    lines = ["| given | system | worst group | average | minority | labels used besides those of training |"]
    lines.append("|---|---|---|---|---|---|")
    for given, names in QUESTIONS.items():
        for i, row in enumerate(sorted((rows[n] for n in names), key=lambda r: -float(r["worst_group"]))):
            cells = [row["worst_group"], row["average"], row["minority"], row["labels"]]
            lines.append(f"| {f'**{given}**' if i == 0 else ''} | {row['system']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def measure(folder: Path) -> None:
    """Measure the models of the demo in ``folder``; what labels they used stays as it was written."""
    import foveate as fv

    with FIGURES.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    test = fv.data.critters(seed=0, strength=0.95).test
    for row in rows:
        model = fv.load(folder / row["system"].lower())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = fv.evaluate(model, test)
        row.update({name: f"{100 * report.value(name):.1f}" for name in COLUMNS})
    with FIGURES.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["system", *COLUMNS, "labels"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Measure, when a folder is given, and write the table."""
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
    readme = ROOT / "README.md"
    readme.write_text(MARKS.sub(lambda _: table(), readme.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
