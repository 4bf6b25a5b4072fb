"""Notebooks as pages: text, code, and the outputs that were saved with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "notebooks"


def pages() -> Iterator[tuple[str, str]]:
    """``(address, Markdown)`` of every notebook."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        yield f"notebooks/{path.stem}.md", page(json.loads(path.read_text(encoding="utf-8")), path.name)


def page(notebook: dict[str, Any], name: str) -> str:
    """One notebook.

    >>> cell = {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]}
    >>> "<pre>2</pre>" in page({"cells": [cell]}, "sum.ipynb")
    True
    """
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif text.strip():
            parts.append(f"```py\n{text}\n```")
            shown = "".join(_output(output) for output in cell.get("outputs", []))
            if shown:
                parts.append(f'<div class="notebook-output">{shown}</div>')
    return "\n\n".join(parts) + f"\n\n*The notebook is `notebooks/{name}`; a test runs it.*\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="what the cell drew" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    if "text/html" in data:
        return "".join(data["text/html"]).replace("\n", " ")
    text = "".join(data.get("text/plain", output.get("text", [])))
    return f"<pre>{escape(text).rstrip()}</pre>".replace("\n", "&#10;") if text.strip() else ""
