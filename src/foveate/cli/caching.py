"""``foveate cache``: what foveate keeps on this machine, and making room."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.text import Text

from foveate.cli.screen import confirmed, console, echo, echo_json, plain_table

cache_app = typer.Typer(help="What foveate keeps on this machine: show it, make room.", invoke_without_command=True)
DAY = 86_400.0


@dataclass(frozen=True)
class CacheFolder:
    """A folder that foveate keeps things in: how much, and which environment variable moves it."""

    name: str
    folder: Path
    bytes: int
    entries: int
    unit: str
    variable: str


@dataclass(frozen=True)
class Prunable:
    """Something that can be deleted and made or fetched again; ``delete`` gives the bytes set free."""

    name: str
    bytes: int
    days: float
    delete: Callable[[], int]


def caches() -> list[CacheFolder]:
    """The feature store, and the folder of fetched weights and data."""
    from foveate import assets
    from foveate.extract.store import FeatureStore

    store = FeatureStore()
    kept = store.entries()
    fetched = [row for row in assets.status() if row.ready]
    return [
        CacheFolder(
            "features", store.root, sum(e.bytes for e in kept), len(kept), "entries", "FOVEATE_CACHE"
        ),
        CacheFolder("assets", assets.home(), sum(r.size for r in fetched), len(fetched), "assets", "FOVEATE_DATA"),
    ]  # fmt: skip


@cache_app.callback()
def show_by_default(context: typer.Context) -> None:
    """What foveate keeps on this machine: show it, make room."""
    if context.invoked_subcommand is None:
        show(as_json=False)


@cache_app.command("show")
def show(as_json: bool = typer.Option(False, "--json", help="Print the table for programs.")) -> None:
    """Where features, weights and data are kept, and how much room they take."""
    found = caches()
    if as_json:
        echo_json([asdict(place) | {"folder": str(place.folder)} for place in found])
        return
    table = plain_table("what", "size", "where", right=("size",))
    for place in found:
        where = Text(f"{place.folder} ({place.entries} {place.unit})")
        table.add_row(place.name, size_text(place.bytes), where)
    console.print(table)
    console.print("Make room: foveate cache prune. Another place: FOVEATE_CACHE (features), FOVEATE_DATA (assets).")


@cache_app.command("prune")
def prune(
    older_than: float = typer.Option(30.0, min=0.0, help="Delete what was not used for this many days; 0 for all."),
    fetched: bool = typer.Option(False, "--assets", help="Also fetched weights and data, not only features."),
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask."),
    as_json: bool = typer.Option(False, "--json", help="Print what was deleted for programs; needs --yes."),
) -> None:
    """Delete features (with --assets also what was fetched) not used for long; all can be made or fetched again."""
    chosen = [entry for entry in _prunable(fetched) if entry.days >= older_than]
    total = sum(entry.bytes for entry in chosen)
    freed: dict[str, int] = {}
    if chosen:
        if not as_json:
            for entry in chosen:
                echo(f"{size_text(entry.bytes):>10}  {entry.name}, last used {entry.days:.0f} days ago")
        if not confirmed(f"Delete these {len(chosen)} ({size_text(total)})?", yes, "--yes"):
            echo("nothing was deleted")
            return
        freed = {entry.name: entry.delete() for entry in chosen}
    if as_json:
        echo_json({"deleted": [name for name, size in freed.items() if size], "bytes": sum(freed.values())})
    elif not chosen:
        echo(f"nothing there was unused for {older_than:g} days or more")
    else:
        in_use = sum(not size for size in freed.values())
        echo(f"deleted {size_text(sum(freed.values()))}" + (f"; {in_use} are in use and stay" if in_use else ""))


def _prunable(fetched: bool) -> list[Prunable]:
    from foveate import assets
    from foveate.extract.store import FeatureStore

    store, now = FeatureStore(), time.time()
    found = [
        Prunable(f"features {e.key}", e.bytes, (now - e.used) / DAY, lambda key=e.key: store.clear(key))  # type: ignore[misc]
        for e in store.entries()
    ]
    for row in assets.status() if fetched else ():
        if row.ready and row.folder.parent == assets.home():  # not what somebody else put elsewhere
            used = max(path.stat().st_atime for path in row.folder.iterdir())
            found.append(Prunable(f"asset {row.name}", row.size, (now - used) / DAY, lambda r=row: _remove(r.folder)))  # type: ignore[misc]
    return found


def _remove(folder: Path) -> int:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    aside = folder.with_name(f".pruned-{os.getpid()}-{folder.name}")
    os.replace(folder, aside)  # it is gone in one step, also when deleting takes its time
    shutil.rmtree(aside, ignore_errors=True)
    return size


def size_text(size: float) -> str:
    """Bytes for people.

    >>> size_text(0), size_text(1536), size_text(2_500_000_000)
    ('0 B', '1.5 kB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return ""
