"""What the README says of the demo, from what ``foveate demo`` left: ``python -m examples.demo_table foveate-demo``.

Takes the figures that the demo wrote (``figures.json``) into ``benchmarks/results/demo.csv``, and writes the table and
the lines on the cure between their marks in the README. Without a folder it only writes both again from the CSV file.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import textwrap
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
CURE = "cure"
"""The row of the model that ``foveate cure`` made of the ERM."""
MARKS = {name: re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", flags=re.S) for name in ("demo", CURE)}


def rows() -> dict[str, dict[str, str]]:
    """The figures in percent, as they are written, by system."""
    with FIGURES.open(encoding="utf-8") as file:
        return {row["system"]: row for row in csv.DictReader(file)}


def table() -> str:
    """The table, as Markdown: by what a method is given, the best in its worst group first."""
    found = rows()
    lines = ["| given | system | worst group | average | minority | labels used besides those of training |"]
    lines.append("|---|---|---|---|---|---|")
    for given, names in QUESTIONS.items():
        for i, row in enumerate(sorted((found[n] for n in names), key=lambda r: -float(r["worst_group"]))):
            cells = [row["worst_group"], row["average"], row["minority"], row["labels"]]
            lines.append(f"| {f'**{given}**' if i == 0 else ''} | {row['system']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cure() -> str:
    """What the cure at the end of the demo reached, as Markdown."""
    before, after = rows()["ERM"], rows()[CURE]
    text = (
        "The demo ends with `foveate cure` of the ERM model, which is given neither habitats nor balanced images: its "
        f"worst group went from {before['worst_group']} to {after['worst_group']} in this run, its average from "
        f"{before['average']} to {after['average']}. It trains on images it makes itself; "
        "[what it reached so far, and where it failed](docs/cure.md#what-it-reaches)."
    )
    return textwrap.fill(text, 140, break_on_hyphens=False) + "\n"


def texts() -> dict[str, str]:
    """What stands between the marks, by their name."""
    return {"demo": table(), CURE: cure()}


def measured(folder: Path) -> None:
    """Take over the figures of the demo in ``folder``; what labels were used stays as it was written."""
    told = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    if (told["seed"], told["strength"]) != (0, 0.95):
        sys.exit(f"the README shows seed 0 and strength 0.95; {folder} has {told['seed']} and {told['strength']}.")
    found = rows()
    for system, row in found.items():
        row.update({name: f"{100 * told['test'][system][name]:.1f}" for name in COLUMNS})
    with FIGURES.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["system", *COLUMNS, "labels"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found.values())


def main() -> None:
    """Take over the figures, when a folder is given, and write the README's parts."""
    if len(sys.argv) > 1:
        measured(Path(sys.argv[1]))
    readme = ROOT / "README.md"
    page = readme.read_text(encoding="utf-8")
    for name, text in texts().items():
        page = MARKS[name].sub(lambda _, text=text: text, page)
    readme.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
