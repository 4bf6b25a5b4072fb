"""Orders claimed in running text: each names what supports it, and the records say so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
claims = pytest.importorskip("docs.make.claims", reason="specs need the extra [bench]")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMPARES = re.compile(
    r"\b(above|below|better|worse|beats?|best|strongest|superior|outperforms?|told apart|(?:be|is) told from)\b"
)
"""Words that put one method over another."""


def paragraphs(text: str) -> list[str]:
    return [p for p in re.split(r"\n\s*\n|\n(?=- )", text) if p.strip()]


def where_methods_are_compared() -> list[tuple[str, str]]:
    """What pages say of methods in words of their own: ``When it helps`` of every method, and what A² reached."""
    told = []
    for page in sorted((ROOT / "docs" / "methods").glob("*.md")):
        text = page.read_text(encoding="utf-8").partition("## When it helps")[2].partition("\n<!-- measured")[0]
        told += [(page.name, p) for p in paragraphs(text)]
    a2 = (ROOT / "docs" / "a2.md").read_text(encoding="utf-8").partition("## What was measured")[2]
    return told + [("a2.md", p) for p in paragraphs(a2)]


def test_the_records_support_every_claim() -> None:
    found = [(page, claim) for page in PAGES for claim in claims.claims(page.read_text(encoding="utf-8"))]
    wrong = [
        f"{page.name}: {claim.order} in {claim.study}/{claim.dataset} is said to be '{claim.verdict}'; it is "
        f"'{claim.found().verdict}'"
        for page, claim in found
        if claim.found().verdict != claim.verdict
    ]
    assert not wrong, "\n".join(wrong)
    assert len(found) > 80
    assert {claim.verdict for _, claim in found} == {*claims.VERDICTS.values()}


def test_no_comparison_stands_without_a_claim() -> None:
    pages = where_methods_are_compared()
    assert len({name for name, _ in pages}) > 20
    bare = [
        f"{name}: {' '.join(text.split())[:120]}"
        for name, text in pages
        if COMPARES.search(re.sub(r"`[^`]*`|\]\([^)]*\)", "", claims.CLAIM.sub("", text)))
        and not claims.CLAIM.search(text)
    ]
    assert not bare, "say which records support it (docs/make/claims.py):\n" + "\n".join(bare)


def test_every_mark_is_read() -> None:
    """A comment that begins like a claim and is none would be neither shown nor checked."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- order ") == len(claims.CLAIM.findall(text)), page


def test_a_claim_becomes_its_figures() -> None:
    text = (
        "A² is above<!-- order pets-a2/vit-s: A2 >\n  full image: holds --> it, parts are not<!-- order "
        "ifam-trained/pets-scenes: IFAM K=4 > PDiscoFormer K=4, untrained by miou: not decided -->."
    )
    first, second = claims.claims(text)
    assert first == claims.Claim("pets-a2", "vit-s", "A2 > full image", None, "holds")
    assert (second.order, second.metric) == ("IFAM K=4 > PDiscoFormer K=4, untrained", "miou")
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    row = re.search(
        r"^\| A2 > full image \| A² \| (\S+ \[[^]]+\]) \|.*$", results.partition("### vit-s")[2], flags=re.M
    )
    assert row is not None
    figures = row[1].replace("[", r"\[").replace("]", r"\]")
    shown = claims.shown(text, "../")
    assert shown.startswith(f"A² is above ([{figures}](../results.md#pets-a2)) it, parts are not ([")
    assert "<!--" not in shown
