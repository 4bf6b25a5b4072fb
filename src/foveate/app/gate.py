"""Who may talk to the page: whoever has the address that was printed, at the place that was bound, and nobody else.

A page on this machine can be reached by any web site that is open in a browser here. A site may send requests to it
(their ``Origin`` tells), or have its own name point to this machine once its script is loaded and then read the answers
(DNS rebinding; the ``Host`` header tells). And another user of the machine may open its port, which is why a secret in
the printed address becomes a cookie that every request must show.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

log = logging.getLogger("foveate")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
ANYWHERE = frozenset({"0.0.0.0", "::", ""})
BODY_BYTES = 32 * 2**20
"""What is sent as JSON is no larger than this (a painted mask is a file of its own)."""
PUBLIC = frozenset({"/manifest.json", "/favicon.ico"})
"""Browsers ask for these without cookies; there is nothing of the user's in them."""
STARTING = "/gradio_api/startup-events"
_ADDRESS = re.compile(r"^\s*([a-zA-Z][a-zA-Z0-9+.-]+:|//)")


class Gatekeeper:
    """Knows the secret and the names the page goes by.

    Args:
        host: what the page is bound to.

    >>> keeper = Gatekeeper("127.0.0.1")
    >>> keeper.knows("localhost:7860", 7860), keeper.knows("evil.example:7860", 7860)
    (True, False)
    >>> Gatekeeper("0.0.0.0").knows("192.168.1.5:7860", 7860)  # a name can be made to point here, a number cannot
    True
    """

    def __init__(self, host: str):
        self.host = host.strip("[]").lower()
        self.token = secrets.token_urlsafe(24)
        self.shared: set[str] = set()
        self.started = False

    def share(self, address: str) -> None:
        """Answer at a public address as well."""
        self.shared.add(urlsplit(address).netloc.lower())

    def open_at(self, address: str) -> str:
        """``address`` with the secret: what is printed."""
        return f"{address.rstrip('/')}/?{urlencode({'token': self.token})}"

    def cookie(self, port: int) -> str:
        """Name of the cookie; cookies do not know ports, so that two pages need two names."""
        return f"foveate-{port}"

    def knows(self, host: str, port: int) -> bool:
        """Whether a ``Host`` header (or the part of an ``Origin`` after ``//``) names this page."""
        given = host.strip().lower()
        if given in self.shared:
            return True
        try:
            parts = urlsplit(f"//{given}")
            name, at = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if at != port or parts.username is not None or parts.path:
            return False
        if self.host in LOOPBACK:
            return name in LOOPBACK
        if self.host not in ANYWHERE:
            return name == self.host
        return name in LOOPBACK or name in self._own_names() or _is_number(name)

    def _own_names(self) -> set[str]:
        name = socket.gethostname().lower()
        return {name, f"{name}.local", name.partition(".")[0]}

    def holds(self, given: str | None) -> bool:
        """Whether ``given`` is the secret, compared in a time that says nothing about it."""
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())


class Gate:
    """ASGI middleware that lets only requests through that a :class:`Gatekeeper` knows."""

    def __init__(self, app: Any, keeper: Gatekeeper):
        self.app, self.keeper = app, keeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        path = str(scope.get("path", ""))
        refusal = self._refusal(scope, path)
        if refusal is not None:
            await _answer(scope, send, *refusal)
            return
        if scope["type"] == "http" and (token := _query_token(scope)) is not None and self.keeper.holds(token):
            await self._welcome(scope, send, token)
            return
        if scope["type"] == "http" and scope.get("method") == "POST" and "/upload" not in path:
            body = await _body(receive)
            if body is None:
                await _answer(scope, send, 413, "This is too large.")
                return
            if names_an_address(body):
                await _answer(scope, send, 400, "A file is uploaded, not named by its address.")
                return
            receive = _replayed(body, receive)
        await self._pass_on(scope, receive, send)

    def _refusal(self, scope: Scope, path: str) -> tuple[int, str] | None:
        """Status and sentence for a request that does not belong here; None for one that does."""
        keeper, headers = self.keeper, _headers(scope)
        port = int((scope.get("server") or ("", 0))[1] or 0)
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        if len(hosts) != 1 or not keeper.knows(hosts[0], port):
            # while it starts, Gradio asks whether its public address answers and takes a 401 for a yes
            return 403 if keeper.started else 401, "This page answers only at the address it was started with."
        for origin in origins:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or not keeper.knows(parts.netloc, port):
                return 403, "Requests from other sites are not answered."
        if path in PUBLIC or (path == STARTING and not keeper.started):
            return None
        cookies = _cookies(headers)
        if not keeper.holds(cookies.get(keeper.cookie(port))) and not keeper.holds(_query_token(scope)):
            return 401, "Open the whole address that `foveate app` printed; it ends in ?token=…"
        asked = unquote(path)
        if "/proxy=" in asked or any(_ADDRESS.match(rest) for rest in asked.split("/file=")[1:]):
            return 403, "This page fetches nothing from elsewhere."
        return None

    async def _welcome(self, scope: Scope, send: Send, token: str) -> None:
        """Put the secret into a cookie and the plain address into the address bar."""
        port = int((scope.get("server") or ("", 0))[1] or 0)
        secure = "; Secure" if _headers(scope).get("x-forwarded-proto") == ["https"] else ""
        cookie = f"{self.keeper.cookie(port)}={token}; Path=/; HttpOnly; SameSite=Lax{secure}"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store"),
                   (b"referrer-policy", b"no-referrer"), (b"content-length", b"0")]  # fmt: skip
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the page answer; what it cannot make sense of is a refusal, not a traceback on the user's screen."""
        begun = False

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = begun or message["type"] != "websocket.close"
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:
            log.info("the page could not answer %s: %s", scope.get("path"), error)
            if not begun:
                await _answer(scope, send, 400, "This request makes no sense here.")


def names_an_address(body: bytes) -> bool:
    """Whether a request names a file by an address (Gradio would fetch it) instead of one that was uploaded.

    >>> names_an_address(b'{"data": [{"path": "http://somewhere/x.png"}]}'), names_an_address(b'{"data": ["http://x"]}')
    (True, False)
    """
    try:
        told = json.loads(body or b"null")
    except (ValueError, RecursionError):
        return False  # the page refuses it by itself
    return any(_ADDRESS.match(path) for path in _paths(told))


def _paths(told: Any) -> Iterator[str]:
    waiting = [told]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if isinstance(value.get("path"), str):
                yield value["path"]
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope.get("headers") or ():
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _cookies(headers: dict[str, list[str]]) -> dict[str, str]:
    jar: SimpleCookie = SimpleCookie()
    for line in headers.get("cookie", []):
        try:
            jar.load(line)
        except CookieError:
            continue
    return {name: morsel.value for name, morsel in jar.items()}


def _query_token(scope: Scope) -> str | None:
    query = (scope.get("query_string") or b"").decode("latin-1")
    return next(iter(parse_qs(query).get("token", [])), None) if scope.get("path") == "/" else None


async def _body(receive: Receive) -> bytes | None:
    """The whole body of a request; None when there is too much of it."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _answer(scope: Scope, send: Send, status: int, sentence: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = f"{sentence}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()),
               (b"cache-control", b"no-store")]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
