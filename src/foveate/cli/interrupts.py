"""What happens before the commands are read: Ctrl-C is one line and exit code 130, the version is told at once."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

STOPPED = 130
_asked = False


def asked_to_stop() -> bool:
    """Whether Ctrl-C was pressed, whatever became of the exception (some libraries turn it into another)."""
    return _asked


def guard_imports() -> None:
    """End at once on Ctrl-C: while modules are read there is nothing to clean up.

    Only in the program itself: whoever imports these modules keeps their own ways.
    """
    if _is_the_program():
        _on_interrupt(_end_at_once)


def answer_version() -> None:
    """``foveate --version`` and nothing else needs no parser, and is answered before there is one."""
    if _is_the_program() and sys.argv[1:] == ["--version"]:
        from foveate import __version__

        os.write(1, f"{__version__}\n".encode())
        sys.exit(0)


def _is_the_program() -> bool:
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return name.removesuffix(".exe").removesuffix(".py").removesuffix("-script") == "foveate"


def guard_command() -> None:
    """Raise ``KeyboardInterrupt`` on Ctrl-C, so that everything is put away; a second one does not wait for that."""
    global _asked
    _asked = False
    if _on_interrupt(_raise):
        sys.unraisablehook = _unraisable


def _on_interrupt(handler: Any) -> bool:
    try:
        signal.signal(signal.SIGINT, handler)
    except ValueError:  # only the main thread may
        return False
    return True


def _raise(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True
    signal.signal(signal.SIGINT, _end_at_once)
    raise KeyboardInterrupt


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os.write(2, b"stopped\n")
    os._exit(STOPPED)


def _unraisable(found: Any) -> None:
    """Where Python cannot pass an exception on (a destructor, a callback), Ctrl-C comes again a moment later."""
    if isinstance(found.exc_value, KeyboardInterrupt):
        signal.signal(signal.SIGINT, _raise)
        signal.raise_signal(signal.SIGINT)
        return
    sys.__unraisablehook__(found)
