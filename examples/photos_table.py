"""The README's table of photographs, from the summary that ``foveate bench page`` wrote: ``python -m
examples.photos_table``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = {
    "pets-dar, mobilenet: worst group": "MobileNetV2, 224 px",
    "pets-a2, mobilenet: worst group": "MobileNetV2, 128 px",
    "pets-a2, vit-s: worst group": "ViT-S, 112 px",
}
"""Columns of the summary, and what the README calls them."""
SAME = {
    "base": "linear head", "full image": "linear head", "A2": "A²", "A2 two crops": "A², two crops",
    "DFR+A2": "DFR + A²", "S2": "S²",
}  # fmt: skip
"""Methods as the README calls them; two studies have the same one under two names."""
LEFT_TO_THE_PAGE = ("DAR 1 query", "DAR 1 head", "DAR 1 layer", "DAR positional")
"""Rows of an ablation."""
MARK = re.compile(r"(?<=<!-- photos -->\n).*?(?=<!-- /photos -->)", flags=re.S)


def summary() -> list[dict[str, str]]:
    """The rows of the summary on the page of results, by column."""
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^\| learns \|.*?\n\n", page, flags=re.M | re.S)
    head, _, *rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in found.strip().splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows]


def table() -> str:
    """Worst groups on photographs with their intervals, by what a method is given, as Markdown."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in summary():
        there = {column: row[column] for column in COLUMNS if row[column] != "–"}
        if there and row["method"] not in LEFT_TO_THE_PAGE:
            found.setdefault((row["learns"], SAME.get(row["method"], row["method"])), {}).update(there)
    lines = [f"| given | method | {' | '.join(COLUMNS.values())} |", "|---|---|" + "---|" * len(COLUMNS)]
    said = ""
    for (given, method), figures in found.items():
        cells = " | ".join(figures.get(column, "–") for column in COLUMNS)
        lines.append(f"| {'' if given == said else f'**{given}**'} | {method} | {cells} |")
        said = given
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table between its marks."""
    readme = ROOT / "README.md"
    readme.write_text(MARK.sub(lambda _: table(), readme.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
