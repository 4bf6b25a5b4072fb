"""Entry point: puts the commands together and turns a user's mistake into one sentence and exit code 2."""

from __future__ import annotations

import errno
import logging
import sys

import typer

from foveate.cli.app import app as app_command
from foveate.cli.auditing import audit
from foveate.cli.bench import bench_app, reproduce
from foveate.cli.data import assets_command, data_app
from foveate.cli.demo import demo
from foveate.cli.exporting import card, export
from foveate.cli.intervening import intervene, verify
from foveate.cli.listing import list_things
from foveate.cli.looking import look
from foveate.cli.models import evaluate, fit, predict, systems
from foveate.errors import FoveateError

app = typer.Typer(
    name="foveate",
    help="Finds the shortcut an image classifier takes, and makes it look at the object instead.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")
app.command()(reproduce)
app.command()(fit)
app.command("eval")(evaluate)
app.command()(predict)
app.command()(look)
app.command()(audit)
app.command()(intervene)
app.command()(verify)
app.command("app")(app_command)
app.command()(export)
app.command()(card)
app.command()(systems)
app.command("list")(list_things)
app.command("assets")(assets_command)


@app.callback(invoke_without_command=True)
def options(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Say more about what is happening."),
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    """What goes before a command: how much to say, or the version and nothing else."""
    if version:
        from foveate import __version__

        typer.echo(__version__)
        raise typer.Exit
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s")
    # the engine's own reports are enough; Fabric's banner about devices is noise here
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except FoveateError as error:
        _refuse(str(error))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        _refuse(f"{error.strerror}: {error.filename or ''}. Free some space or choose another folder.")
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        sys.exit(130)


def _refuse(sentence: str) -> None:
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(sentence, err=True)
    sys.exit(2)
