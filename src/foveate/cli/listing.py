"""``foveate list``: what there is of each kind, of this package and of others."""

from __future__ import annotations

import typer
from rich.text import Text

from foveate.cli.screen import console, echo_json, plain_table
from foveate.errors import FoveateError, suggest
from foveate.registries import KINDS


def list_things(
    kind: str | None = typer.Argument(None, help=f"{', '.join(KINDS)}; without it, the kinds themselves."),
    as_json: bool = typer.Option(False, "--json", help="Print the list for programs."),
) -> None:
    """What can be named: looks, restrictions, extractors, pools, decisions, systems, datasets, metrics."""
    if kind is None:
        counts = {plural: len(registry) for plural, registry in KINDS.items()}
        if as_json:
            echo_json(counts)
            return
        table = plain_table("kind", "how many", right=("how many",))
        for plural, count in counts.items():
            table.add_row(plural, str(count))
        console.print(table)
        console.print("What there is of one kind: foveate list KIND.")
        return
    if kind.lower() not in KINDS:
        raise FoveateError(f"there is no list of '{kind}'.{suggest(kind, list(KINDS))} Known: {', '.join(KINDS)}.")
    summaries = KINDS[kind.lower()].summaries()
    if as_json:
        rows = [{"name": name, "summary": summary} for name, summary in summaries.items()]
        echo_json(rows)
        return
    table = plain_table("name", "what it is")
    for name, summary in summaries.items():
        table.add_row(Text(name), Text(summary))  # as it is: a name from elsewhere may hold square brackets
    console.print(table)
