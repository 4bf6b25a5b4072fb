"""Around the server: a place that can be served on, an end that cleans up, no tracebacks for strangers' requests."""

from __future__ import annotations

import contextlib
import importlib
import logging
import signal
import socket
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from foveate.errors import FoveateError

log = logging.getLogger("foveate")
TERMINATED = 128 + signal.SIGTERM


def check_place(host: str, port: int | None) -> None:
    """Raise unless the page can be served on ``host`` and ``port`` (None: any that is free).

    >>> check_place("127.0.0.1", 99999)
    Traceback (most recent call last):
    foveate.errors.FoveateError: there is no port 99999; ports are from 1 to 65535.
    """
    if port is not None and not 1 <= port <= 65535:
        raise FoveateError(f"there is no port {port}; ports are from 1 to 65535.")
    name = host.strip("[]")
    try:
        if not name or any(c.isspace() or not c.isprintable() for c in name):
            raise OSError("no such name")
        # any free port shows whether the host is one of this machine's
        kind, _, _, _, place = socket.getaddrinfo(name, port or 0, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise FoveateError(
            f"'{host}' is no address of this machine ({_reason(error)}); try --host 127.0.0.1."
        ) from error
    with socket.socket(kind, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(place)
        except OSError as error:
            where = host if port is None else f"{host}:{port}"
            raise FoveateError(
                f"the page cannot be served on {where} ({_reason(error)}); choose another --host or --port."
            ) from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).lower()


@contextlib.contextmanager
def ending_on_terminate() -> Iterator[None]:
    """SIGTERM ends like Ctrl-C does, with everything put away, and exit code 143."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # only the main thread may
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Quiet:
    """The module ``traceback`` as Gradio sees it: what it would print goes to the log."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self, *given: Any, **options: Any) -> None:
        log.info("the page refused a request: %s", traceback.format_exc(limit=-1).strip().splitlines()[-1])


def quiet_gradio() -> None:
    """Gradio prints a traceback for every request it can make no sense of; strangers must not fill the screen so."""
    for name in ("queueing", "routes", "route_utils"):
        module: Any = importlib.import_module(f"gradio.{name}")
        if getattr(module, "traceback", None) is traceback:
            module.traceback = _Quiet()
    # uvicorn says of broken bytes that they are broken, in a line each
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
