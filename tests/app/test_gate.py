"""Nobody gets in who does not belong: other hosts, other sites, no token, addresses instead of files, junk."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import foveate as fv
from foveate.app.gate import BODY_BYTES, Gate, Gatekeeper, names_an_address
from foveate.app.state import Session
from foveate.data.benchmark import Benchmark

pytest.importorskip("gradio", reason="the page needs the extra 'app'")


# -- the gate alone -------------------------------------------------------------------------


def asked(gate: Gate, path: str = "/", method: str = "GET", body: bytes = b"", query: str = "", **headers: str) -> Any:
    """Status and headers of the gate's answer."""
    sent: list[Any] = []
    scope = {
        "type": "http", "method": method, "path": path, "query_string": query.encode(), "server": ("127.0.0.1", 7860),
        "headers": [(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in headers.items()],
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.fixture
def gate() -> Gate:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/boom":
            raise RuntimeError("boom")
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"the user's images"})

    keeper = Gatekeeper("127.0.0.1")
    keeper.started = True
    return Gate(page, keeper)


def cookie(gate: Gate) -> str:
    return f"foveate-7860={gate.keeper.token}"


def test_the_printed_address_opens_the_page(gate: Gate) -> None:
    query = urlsplit(gate.keeper.open_at("http://127.0.0.1:7860/")).query
    status, headers = asked(gate, query=query, host="127.0.0.1:7860")
    assert status == 303
    assert headers[b"location"] == b"/"  # the secret does not stay in the address bar
    assert b"HttpOnly" in headers[b"set-cookie"]
    jar = headers[b"set-cookie"].decode().partition(";")[0]
    assert asked(gate, host="127.0.0.1:7860", cookie=jar)[0] == 200


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:7860", "[::1]:7860", "LOCALHOST:7860"])
def test_its_own_names(gate: Gate, host: str) -> None:
    assert asked(gate, host=host, cookie=cookie(gate))[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:7860", "127.0.0.1:7861", "127.0.0.1", "127.0.0.1.evil.example:7860", "evil@127.0.0.1:7860", "",
     "127.0.0.1:7860.evil.example", "127.0.0.1:99999999", "[::1:7860", "localhost:7860/x", "0.0.0.0:7860"],
)  # fmt: skip
def test_other_hosts_are_refused_even_with_the_cookie(gate: Gate, host: str) -> None:
    """DNS rebinding: the browser sends the site's own name as Host."""
    assert asked(gate, host=host, cookie=cookie(gate))[0] == 403


def test_two_hosts_are_none(gate: Gate) -> None:
    assert gate._refusal({"headers": [(b"host", b"127.0.0.1:7860")] * 2, "server": ("x", 7860)}, "/") is not None
    assert asked(gate, cookie=cookie(gate))[0] == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "file://", "http://"])
def test_other_sites_are_refused(gate: Gate, origin: str) -> None:
    assert asked(gate, host="127.0.0.1:7860", origin=origin, cookie=cookie(gate))[0] == 403
    assert asked(gate, host="127.0.0.1:7860", origin="http://127.0.0.1:7860", cookie=cookie(gate))[0] == 200


@pytest.mark.parametrize(
    "jar", ["", "foveate-7860=guess", "foveate-7861={}", "foveate-7860=", "\x00=;;,", "a=" + "b" * 9999]
)
def test_without_the_token_nothing_is_shown(gate: Gate, jar: str) -> None:
    assert asked(gate, host="127.0.0.1:7860", cookie=jar.format(gate.keeper.token))[0] == 401
    assert asked(gate, host="127.0.0.1:7860", query="token=guess")[0] == 401


def test_a_wildcard_takes_numbers_and_its_own_name() -> None:
    keeper = Gatekeeper("0.0.0.0")
    assert keeper.knows("10.0.0.7:7860", 7860)
    assert keeper.knows(f"{socket.gethostname()}:7860", 7860)
    assert not keeper.knows("evil.example:7860", 7860)
    assert not Gatekeeper("10.0.0.7").knows("10.0.0.8:7860", 7860)


def test_a_shared_page_answers_at_its_public_address_and_asks_for_the_token(gate: Gate) -> None:
    assert asked(gate, host="abc.share.example", cookie=cookie(gate))[0] == 403
    gate.keeper.share("https://abc.share.example")
    assert asked(gate, host="abc.share.example")[0] == 401
    assert asked(gate, host="abc.share.example", origin="https://abc.share.example", cookie=cookie(gate))[0] == 200


@pytest.mark.parametrize(
    "path", ["http://x.example/a", "HTTPS://x", "//x/a", "ftp://x/a", " http://x", "file:///etc/passwd"]
)
def test_a_file_named_by_an_address_is_refused_unasked(gate: Gate, path: str) -> None:
    body = json.dumps({"data": [[{"deep": {"path": path}}]]}).encode()
    assert asked(gate, "/gradio_api/queue/join", "POST", body, host="127.0.0.1:7860", cookie=cookie(gate))[0] == 400
    for way in (f"/gradio_api/file={path}", f"/gradio_api/proxy={path}"):
        assert asked(gate, way, host="127.0.0.1:7860", cookie=cookie(gate))[0] == 403


def test_uploaded_files_pass() -> None:
    assert not names_an_address(b'{"data": [{"path": "/tmp/x/a.png", "url": "http://127.0.0.1:7860/file=a"}]}')
    assert not names_an_address(b'{"data": [{"path": "C:\\\\x\\\\a.png"}]}')
    assert not names_an_address(b"[" * 100_000)


def test_too_much_is_refused_and_an_error_is_an_answer(gate: Gate) -> None:
    big = b"x" * (BODY_BYTES + 1)
    assert asked(gate, "/gradio_api/queue/join", "POST", big, host="127.0.0.1:7860", cookie=cookie(gate))[0] == 413
    assert asked(gate, "/boom", host="127.0.0.1:7860", cookie=cookie(gate))[0] == 400


# -- a page that is served ------------------------------------------------------------------


class Served:
    def __init__(self, page: Any, address: str):
        self.page = page
        base, _, self.token = address.partition("?token=")
        self.port = int(urlsplit(base).port or 0)
        self.cookie = f"foveate-{self.port}={self.token}"

    def ask(self, path: str = "/", method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read(100_000)
        finally:
            connection.close()


@pytest.fixture(scope="module")
def served(saved_models: Path, critters: Benchmark) -> Iterator[Served]:
    from foveate.app.page import Page

    page = Page(Session({"erm": fv.load(saved_models / "erm")}, critters, folders={"erm": saved_models / "erm"}))
    yield Served(page, page.launch(block=False))
    page.close()


def test_a_rebinding_script_sees_nothing(served: Served) -> None:
    """What such a script would do: ask for the page, its files and its buttons under its own name."""
    evil = {"Host": f"evil.example:{served.port}", "Origin": f"http://evil.example:{served.port}"}
    join = json.dumps({"data": ["erm", {}], "fn_index": 0, "session_hash": "abc"}).encode()
    for cookies in ({}, {"Cookie": served.cookie}):
        for path in (
            "/",
            "/config",
            "/gradio_api/info",
            "/gradio_api/queue/data?session_hash=abc",
            "/gradio_api/file=x",
        ):
            status, told = served.ask(path, **evil, **cookies)
            assert status == 403, path
            assert b"critters" not in told
        for path in ("/gradio_api/queue/join", "/gradio_api/run/predict", "/gradio_api/upload"):
            assert served.ask(path, "POST", join, **evil, Content_Type="application/json", **cookies)[0] == 403


def test_the_token_is_asked_for_on_every_path(served: Served) -> None:
    for path in ("/", "/config", "/gradio_api/info", "/gradio_api/queue/data?session_hash=a", "/theme.css", "/login"):
        assert served.ask(path)[0] == 401, path
    status, told = served.ask("/config", Cookie=served.cookie)
    assert status == 200
    assert b"foveate" in told


def test_an_address_as_upload_is_never_looked_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    before = socket.getaddrinfo

    def watched(host: Any, *given: Any, **options: Any) -> Any:
        looked.append(str(host))
        return before(host, *given, **options)

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    file = {"path": "http://look.me.up.example/x.png", "meta": {"_type": "gradio.FileData"}, "orig_name": "x.png"}
    for number in range(len(served.page.blocks.fns)):
        body = json.dumps({"data": [file, file], "fn_index": number, "session_hash": f"s{number}"}).encode()
        for path in ("/gradio_api/queue/join", "/gradio_api/run/predict"):
            assert served.ask(path, "POST", body, Cookie=served.cookie, Content_Type="application/json")[0] == 400
    for path in ("/gradio_api/file=http://look.me.up.example/x", "/gradio_api/proxy=http://look.me.up.example/x"):
        assert served.ask(path, Cookie=served.cookie)[0] == 403
    time.sleep(0.3)
    assert not [name for name in looked if "look.me.up" in name]


def test_junk_prints_no_traceback(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(0)
    values: list[Any] = [None, [], {}, "x", -1, 1e300, {"path": "nowhere"}, [[[]]], "../..", {"meta": 1}, 10**30]
    for number in range(120):
        junk: Any = {
            "data": [rng.choice(values) for _ in range(rng.randrange(9))], "fn_index": rng.randrange(-2, 25),
            "session_hash": rng.choice(["a", 7, None, "x" * 999]), "event_data": rng.choice(values),
        }  # fmt: skip
        body = json.dumps(junk).encode() if number % 4 else rng.randbytes(60)
        path = rng.choice(("queue/join", "run/predict", "call/x", "reset", "component_server", "upload", "cancel"))
        status, _ = served.ask(
            f"/gradio_api/{path}", "POST", body, Cookie=served.cookie, Content_Type="application/json"
        )
        assert 200 <= status < 600
    for raw in (
        b"\x00\xff\n\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"\x16\x03\x01",
    ):
        with socket.create_connection(("127.0.0.1", served.port), 10) as sent:
            sent.sendall(raw)
            sent.settimeout(5)
            with contextlib.suppress(OSError):
                sent.recv(1000)
    time.sleep(1.5)  # the queue answers in its own time
    told = capfd.readouterr()
    assert "Traceback" not in told.out + told.err
    assert served.ask("/config", Cookie=served.cookie)[0] == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cleans_up(saved_models: Path, tmp_path: Path, number: signal.Signals) -> None:
    data = "critters:train=16,target=16,val=16,test=16,size=32"
    code = "import sys; from foveate.cli import main; sys.argv = ['foveate', *sys.argv[1:]]; main()"
    places = {k: v for k, v in os.environ.items() if k != "GRADIO_TEMP_DIR"} | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "app", str(saved_models / "erm"), data],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=places,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "?token=" in line:
                break
        assert list(tmp_path.glob("foveate-app-*"))
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == (143 if number is signal.SIGTERM else 130), err
    assert out + err in ("", "stopped\n")
    assert not list(tmp_path.glob("foveate-app-*"))
