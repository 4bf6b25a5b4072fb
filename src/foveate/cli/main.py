"""Entry point: puts the commands together, and turns whatever goes wrong into one sentence with a number.

Exit codes: 0 all is well; 1 a command found what it was to look for (a problem in the data, a limit missed, a failed
trial); 2 something given is wrong, and the sentence says what; 70 a mistake of foveate itself; 130 Ctrl-C.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import traceback
from collections.abc import Callable

import typer

from foveate.cli.app import app as app_command
from foveate.cli.auditing import audit
from foveate.cli.bench import bench_app, reproduce
from foveate.cli.caching import cache_app
from foveate.cli.curing import cure
from foveate.cli.data import assets_command, data_app
from foveate.cli.demo import demo
from foveate.cli.doctor import doctor
from foveate.cli.examples import add_examples
from foveate.cli.exporting import card, export
from foveate.cli.fitting import fit
from foveate.cli.interrupts import STOPPED, asked_to_stop, guard_command
from foveate.cli.intervening import intervene, verify
from foveate.cli.listing import list_things
from foveate.cli.looking import look
from foveate.cli.models import evaluate, systems
from foveate.cli.predicting import predict
from foveate.cli.screen import echo, settle_logging, settle_screen
from foveate.errors import FoveateError, first_line, visible

INTERNAL = 70
"""Exit code of a mistake that is not the user's (EX_SOFTWARE of ``sysexits.h``)."""

app = typer.Typer(
    name="foveate",
    help="Finds the shortcut an image classifier takes, and makes it look at the object instead.",
    epilog="Start: foveate demo, or foveate audit MODEL PHOTOS. Each command with --help shows examples.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
_PANELS: dict[str, tuple[tuple[str, Callable[..., None]], ...]] = {
    "Start": (("demo", demo), ("audit", audit), ("cure", cure), ("app", app_command), ("doctor", doctor)),
    "Models": (
        ("fit", fit), ("eval", evaluate), ("predict", predict), ("look", look), ("intervene", intervene),
        ("verify", verify), ("export", export), ("card", card), ("reproduce", reproduce),
    ),
    "What there is": (("systems", systems), ("list", list_things), ("assets", assets_command)),
}  # fmt: skip
for _panel, _commands in _PANELS.items():
    for _name, _command in _commands:
        app.command(_name, rich_help_panel=_panel)(_command)
add_examples(app.registered_commands)
for _name, _group in (("data", data_app), ("bench", bench_app), ("cache", cache_app)):
    app.add_typer(_group, name=_name, rich_help_panel="Groups of commands")
    add_examples(_group.registered_commands, _name)


@app.callback(invoke_without_command=True)
def options(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Say more about what is happening."),
    version: bool = typer.Option(False, "--version", help="Print the version."),
    debug: bool = typer.Option(
        False, "--debug", help="Show where an error comes from (the traceback); also after a command."
    ),
) -> None:
    """What goes before a command: how much to say, or the version and nothing else."""
    if version:
        from foveate import __version__

        typer.echo(__version__)
        raise typer.Exit
    settle_logging(verbose)


def main() -> None:
    """Run the command line."""
    guard_command()
    words = sys.argv[1:]
    debug = "--debug" in words or bool(os.environ.get("FOVEATE_DEBUG"))
    if "--debug" in words:  # it may stand anywhere
        words = ["--debug", *(word for word in words if word != "--debug")]
    settle_screen(debug)
    try:
        code = app(words, standalone_mode=False)
        if asked_to_stop() or code == STOPPED:  # what runs commands turns Ctrl-C into a code
            raise KeyboardInterrupt
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            echo("".join(traceback.format_exception(error)), err=True, nl=False)
        code = tell(error)
    sys.exit(code if isinstance(code, int) else 0)


def tell(error: BaseException) -> int:
    """Say what ``error`` means, on the error stream; gives the exit code."""
    if isinstance(error, KeyboardInterrupt) or asked_to_stop():
        echo("stopped", err=True)
        return STOPPED
    if isinstance(error, FoveateError):
        return _refuse(error.number, str(error))
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # the parser's own: a mistyped option
        return _show_usage(error)
    if isinstance(error, OSError) and error.errno is not None:
        return _refuse("F410", _about_file(error))
    if (database := _database_error(error)) is not None:
        return _refuse("F430", f"the database of records cannot be used: {first_line(database)}. Is the disk full?")
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError":
        return _refuse(
            "F420", "there is not enough memory for this. Take smaller images, a smaller batch or a smaller model."
        )
    number = internal_number(error)
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    _say(number, f"something went wrong inside foveate ({reason}).")
    echo(
        "This is a bug in foveate, not your mistake. The same command with --debug shows where it comes from; please "
        f"report that with the number {number}.",
        err=True,
    )
    return INTERNAL


def internal_number(error: BaseException) -> str:
    """A number for a mistake of ours: the same for the same kind of error at the same place in the code.

    >>> try:
    ...     {}["x"]
    ... except KeyError as error:
    ...     internal_number(error)[:2], len(internal_number(error))
    ('F9', 6)
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [f"{os.path.basename(f.filename)} {f.name}" for f in frames if "foveate" in f.filename]
    place = f"{type(error).__name__} {own[-1] if own else ''}"
    return "F9" + hashlib.blake2b(place.encode(errors="replace"), digest_size=2).hexdigest()


def _database_error(error: BaseException | None) -> BaseException | None:
    """The database's own error behind what its libraries made of it."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if type(error).__module__.partition(".")[0] in ("sqlite3", "psycopg"):
            return error
        seen.append(error)
        error = error.__cause__ or error.__context__
    return None


def _about_file(error: OSError) -> str:
    what = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}the disk is full. Free some space or choose another folder."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{what}no permission. Choose another folder, or change the permissions."
    if error.errno == errno.ENAMETOOLONG:
        return f"{what}the name is too long for this disk."
    if error.errno == errno.ELOOP:
        return f"{what}the path is a link that leads to itself."
    return f"{what}{error.strerror or error}."


def _show_usage(error: BaseException) -> int:
    error.message = visible(getattr(error, "message", error))  # type: ignore[attr-defined]
    try:
        from typer.rich_utils import rich_format_error

        rich_format_error(error)  # type: ignore[arg-type]
    except ImportError:
        error.show()  # type: ignore[attr-defined]
    return int(error.exit_code)  # type: ignore[attr-defined]


def _say(number: str, sentence: str) -> None:
    typer.secho(f"error {number}: ", fg="red", bold=True, nl=False, err=True)
    echo(sentence, err=True)


def _refuse(number: str, sentence: str) -> int:
    _say(number, sentence)
    return 2
