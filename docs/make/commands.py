"""The command reference: every command with its arguments and options, read off the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, in the order of ``foveate --help``; groups come before what is in them.

    >>> names = [name for name, _ in commands()]
    >>> names[0], "foveate data check" in names
    ('foveate', True)
    """
    import typer.main

    from foveate.cli.main import app

    yield from _walk("foveate", typer.main.get_command(app))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _walk(f"{name} {word}", below)


def page() -> str:
    """The page, as Markdown."""
    parts = [
        "# Commands\n",
        "Made from the command line itself; `foveate COMMAND --help` prints the same. What the exit codes mean is "
        "told in [errors](../errors.md), which variables are read in [the environment](environment.md).\n",
    ]
    for name, command in commands():
        parts.append(_section(name, command))
    return "\n".join(parts)


def _section(name: str, command: Any) -> str:
    given = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    words = [_usage(p) for p in given if p.param_type_name == "argument"]
    options = [p for p in given if p.param_type_name == "option"]
    below = "COMMAND [ARGS]…" if getattr(command, "commands", None) else ""
    usage = " ".join([name, *words, *(["[OPTIONS]"] if options else []), *([below] if below else [])])
    lines = [f"## {name}\n", f"{_text(command.help)}\n", f"```\n{usage}\n```\n"]
    if given:
        lines += ["| | | default |", "|---|---|---|"]
        lines += [f"| {_names(p)} | {_cell(getattr(p, 'help', '') or '')} | {_default(p)} |" for p in given]
        lines.append("")
    return "\n".join(lines)


def _text(help_text: str | None) -> str:
    """What a docstring says; paragraphs that are set as code in the terminal are set as code here."""
    paragraphs = (help_text or "").replace("\b", "").replace("\f", "").strip().split("\n\n")
    shown = []
    for paragraph in paragraphs:
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if lines and all(line.startswith(("foveate ", "$ ")) for line in lines):
            shown.append("```\n" + "\n".join(lines) + "\n```")
        else:
            shown.append(_cell("\n".join(lines), "\n"))
    return "\n\n".join(shown)


def _cell(text: str, line: str = " ") -> str:
    return text.replace("|", r"\|").replace("\n", line).replace("[", r"\[").replace("*", r"\*").replace("<", "&lt;")


def _usage(parameter: Any) -> str:
    word = (parameter.metavar or parameter.name).upper().strip("[]")
    word = f"{word}…" if parameter.nargs == -1 else word
    return word if parameter.required else f"[{word}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_usage(parameter)}`"
    return ", ".join(f"`{word}`" for word in [*parameter.opts, *parameter.secondary_opts])


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    if value is None or callable(value) or value in ((), [], "") or "Sentinel" in repr(value) or "UNSET" in repr(value):
        return ""
    if isinstance(value, bool):
        return "on" if value else ""
    return f"`{value}`"
