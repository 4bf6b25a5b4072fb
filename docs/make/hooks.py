"""What MkDocs calls while it builds the site."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
for place in (ROOT, ROOT / "src"):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))

from docs.make import api, claims, commands, gallery_page, mathml, notebook_page, settings, strip  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402
from mkdocs.structure.pages import Page  # noqa: E402

BESIDE = ("benchmarks/specs",)
"""Folders beside ``docs/`` whose files pages link to; they come along."""
MARK = re.compile(r"^<!-- (strip|settings|labels|example|measured) (\w+) -->$", flags=re.M)
MAKERS = {
    "strip": lambda name: f'<div class="strip">{strip.svg(name)}</div>',
    "settings": settings.settings,
    "labels": settings.labels,
    "example": settings.example,
    "measured": settings.measured,
}
"""What may stand in a page as ``<!-- settings A2 -->``, and what takes its place."""
OUTSIDE = re.compile(r"\]\((?:\.\./)+(" + "|".join(BESIDE) + r")/")


def on_config(config: Any) -> Any:
    """The offline search must not fetch anything; the theme's own loud logger is quietened."""
    logging.getLogger("mkdocs.plugins.griffe").setLevel(logging.ERROR)
    return config


def generated() -> dict[str, str]:
    """The pages that are made from the code: address and Markdown."""
    made = {"reference/commands.md": commands.page(), "gallery.md": gallery_page.page()}
    return {**made, **dict(api.pages()), **dict(notebook_page.pages())}


def on_files(files: Files, config: Any) -> Files:
    """Add what is made from the code, and the files beside the pages."""
    for address, text in generated().items():
        files.append(File.generated(config, address, content=text))
    for folder in BESIDE:
        for path in sorted((ROOT / folder).glob("*.*")):
            address = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, address, abs_src_path=str(path)))
    return files


def expanded(markdown: str, up: str = "../") -> str:
    """``markdown`` with every mark replaced by what it names, and every claim by its figures."""
    return claims.shown(MARK.sub(lambda found: MAKERS[found[1]](found[2]), markdown), up)


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Marks are replaced by what they name; links to files beside ``docs/`` lead to their copies."""
    depth = page.file.src_uri.count("/")
    markdown = expanded(markdown, "../" * depth)
    return OUTSIDE.sub(lambda found: f"]({'../' * depth}{found[1]}/", markdown)


def on_page_content(html: str, page: Page, config: Any, files: Files) -> str:
    """Equations become MathML, which browsers set without a script."""
    return mathml.replaced(html)
