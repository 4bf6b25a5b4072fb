"""The README's table of methods, from the summary that ``foveate bench page`` wrote: ``python -m
examples.methods_table``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = {
    "dominoes-full, dominoes: minority": "dominoes",
    "dominoes-full, baselines: minority": "dominoes",
    "dar, critters-four: minority": "critters-four",
    "pets-dar, mobilenet: worst group": "photographs, MobileNetV2, 224 px",
    "pets-stage, mobilenet: worst group": "photographs, MobileNetV2, 224 px, last stage fine-tuned",
    "pets-heads, resnet50: worst group": "photographs, ResNet-50, 224 px",
    "pets-a2, resnet50: worst group": "photographs, ResNet-50, 224 px",
    "pets-a2, mobilenet: worst group": "photographs, MobileNetV2, 128 px",
    "pets-a2, vit-s: worst group": "photographs, ViT-S, 112 px",
    "pets-glimpse, vit-s-224: worst group": "photographs, ViT-S, 224 px",
    "ifam-trained, pets-scenes: worst group": "photographs, ViT-S trained, 140 px",
}
"""Columns of the summary, and what the README calls them."""
SAME = {
    "base": "ERM, or a linear head", "full image": "ERM, or a linear head", "ERM": "ERM with the target images",
    "A2": "A²", "A2 two crops": "A², two crops", "DFR+A2": "DFR + A²", "S2": "S²", "DFR+Glimpse": "DFR + Glimpse",
    "ViT": "ERM, or a linear head", "PDiscoFormer K=4": "PDiscoFormer", "IFAM K=4": "iFAM",
    "early mask, truth": "early mask, the true one given", "late mask, truth": "late mask, the true one given",
}  # fmt: skip
"""Methods as the README calls them; two studies have the same one under two names."""
LEFT_TO_THE_PAGE = (
    "DAR layer norm", "DAR 1 query", "DAR 1 head", "DAR 1 layer", "DAR positional", "IFAM K=1", "IFAM K=8",
    "IFAM K=4, no shaping",
)  # fmt: skip
"""Rows of an ablation."""
MARK = re.compile(r"(?<=<!-- methods -->\n).*?(?=<!-- /methods -->)", flags=re.S)


def summary() -> list[dict[str, str]]:
    """The rows of the summary on the page of results, by column."""
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^\| learns \|.*?\n\n", page, flags=re.M | re.S)
    head, _, *rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in found.strip().splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows]


def table() -> str:
    """What methods reach with its intervals, by what they are given, as Markdown."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    hours: dict[tuple[str, str], float] = {}
    for row in summary():
        there = {name: row[column] for column, name in COLUMNS.items() if row.get(column, "–") != "–"}
        if there and row["method"] not in LEFT_TO_THE_PAGE:
            at = row["learns"], SAME.get(row["method"], row["method"])
            found.setdefault(at, {}).update(there)
            hours[at] = hours.get(at, 0.0) + float(row["hours"])
    names = list(dict.fromkeys(COLUMNS.values()))
    lines = [f"| given | method | {' | '.join(names)} | hours |", "|---|---|" + "---|" * (len(names) + 1)]
    said = ""
    for at, figures in found.items():
        given, method = at
        cells = " | ".join(figures.get(name, "–") for name in names)
        lines.append(f"| {'' if given == said else f'**{given}**'} | {method} | {cells} | {hours[at]:.1f} |")
        said = given
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table between its marks."""
    readme = ROOT / "README.md"
    readme.write_text(MARK.sub(lambda _: table(), readme.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
