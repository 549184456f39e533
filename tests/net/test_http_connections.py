"""HTTP connections of the model client: what a server may send, and when a connection is used again."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from yarl import URL

from pipeline.net import http_connections
from pipeline.net.http_connections import HttpConnections, ReplyTooLarge, Response

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next of some texts; closes a connection where `None` comes next."""

    def __init__(self, answers: Sequence[bytes | None]) -> None:
        self._answers = iter(answers)
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                self.asked.set()
                while (answer := next(self._answers, None)) is not None:
                    writer.write(answer)
                    await writer.drain()
                    if not answer.startswith(b"HTTP/1.1 102"):
                        break
                else:
                    return
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    *answers: bytes | None, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Server, Callable[[], Any]]]:
    """Yield the server, and a function that sends it one request."""
    server = Server(answers)
    async with AsyncExitStack() as stack:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
        stack.callback(listening.close)
        port = listening.sockets[0].getsockname()[1]
        connections = HttpConnections(headers or {}, connect_timeout_s=5, max_reply_mb=0.1)
        stack.callback(connections.close)
        url = URL(f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1/chat?a=b c")
        yield server, lambda: connections.post(url, b"{}")


async def test_a_request_is_written_as_http_and_its_response_is_read() -> None:
    reply = b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n1\r\nc\r\n0\r\n\r\n"
    async with serving(reply, headers={"Authorization": "Bearer x"}) as (server, ask):
        response: Response = await ask()
    assert (response.status, response.body, response.headers["retry-after"]) == (429, b"ab\nc", "7")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert (lines[0], body) == ("POST /v1/chat?a=b+c HTTP/1.1", b"{}")
    assert {"Authorization: Bearer x", "Content-Length: 2", "Accept-Encoding: gzip, deflate"} < set(lines[1:])
    assert lines[1].startswith("Host: 127.0.0.1:")


def test_requests_are_sent_on_the_event_loop_of_ray_workers() -> None:
    async def exchange() -> bytes:
        async with serving(OK) as (_, ask):
            body: bytes = (await ask()).body
            return body

    assert uvloop.run(exchange()) == b"ok"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_time_until_a_busy_process_reads_a_response_does_not_count(run: Callable[..., Any]) -> None:
    """Two threads: the server answers at once, and the event loop of the client does something else meanwhile."""

    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        connection.recv(10_000)
        connection.sendall(OK)

    async def ask(url: URL) -> Response:
        connections = HttpConnections({}, connect_timeout_s=5, max_reply_mb=1)
        asking = asyncio.create_task(connections.post(url, b"{}"))
        while not asking.done():
            await asyncio.sleep(0.01)
            time.sleep(1)  # noqa: ASYNC251 - the loop is to be blocked
        connections.close()
        return asking.result()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=answer, args=(listening,))
        server.start()
        response: Response = run(ask(URL(f"http://127.0.0.1:{listening.getsockname()[1]}/")))
        server.join()
    assert response.seconds is not None
    assert response.seconds < 0.9


async def test_a_connection_is_used_again_and_several_serve_requests_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connections, "_BETWEEN_OPENINGS_S", 0.0)
    async with serving(*[OK] * 8) as (server, ask):
        assert [(await ask()).body for _ in range(4)] == [b"ok"] * 4
        assert server.connections == 1
        await asyncio.gather(ask(), ask(), ask())
        assert server.connections == 3


async def test_a_request_takes_a_connection_that_is_free_before_its_own_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "_BETWEEN_OPENINGS_S", 1.0)
    async with serving(OK, OK) as (server, ask):
        await asyncio.gather(ask(), ask())
        assert server.connections == 1


async def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(OK, OK) as (server, ask):
        await ask()
        monkeypatch.setattr(http_connections, "KEEP_ALIVE_S", 0.0)
        await ask()
        assert server.connections == 2


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nother",
    ],
    ids=["the server asks for it", "HTTP 1.0", "a second response"],
)
async def test_a_connection_is_closed_after_a_response_where_it_must_be(first: bytes) -> None:
    async with serving(first, OK) as (server, ask):
        assert [(await ask()).body for _ in range(2)] == [b"ok", b"ok"]
        assert server.connections == 2


async def test_a_response_may_follow_informational_ones() -> None:
    async with serving(b"HTTP/1.1 102 Processing\r\n\r\n", OK, OK) as (server, ask):
        assert [(await ask()).body for _ in range(2)] == [b"ok", b"ok"]
        assert server.connections == 1


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    class Closing(Server):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"{}")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
            writer.close()

    listening = await asyncio.start_server(Closing([]).serve, "127.0.0.1", 0)
    async with listening:
        url = URL.build(scheme="http", host="127.0.0.1", port=listening.sockets[0].getsockname()[1], path="/")
        connections = HttpConnections({}, connect_timeout_s=5, max_reply_mb=1)
        assert (await connections.post(url, b"{}")).body == b"all of it"


@pytest.mark.parametrize(("name", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_compressed_body_is_decoded_up_to_the_limit(name: str, compress: Callable[[bytes], bytes]) -> None:
    def answer(body: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            name.encode(),
            len(body),
            body,
        )

    whole = compress(b"text" * 1000)
    async with serving(answer(whole), answer(compress(bytes(100_001))), answer(whole[:-9])) as (_, ask):
        assert (await ask()).body == b"text" * 1000
        with pytest.raises(ReplyTooLarge, match=r"its reply is larger than 0\.1 MB"):
            await ask()
        with pytest.raises(aiohttp.ClientPayloadError, match="its compressed reply is not complete"):
            await ask()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, "Server disconnected"),
        (b"220 mail.example.org ESMTP ready\r\n", "no HTTP response"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "no HTTP response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + bytes(200_000), "its reply is larger"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000, "its reply is larger"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "no HTTP response"),
    ],
    ids=["nothing", "another protocol", "an upgrade", "a large body", "endless headers", "two lengths"],
)
async def test_an_unusable_response_is_an_error_and_ends_its_connection(answer: bytes | None, error: str) -> None:
    async with serving(answer, OK) as (server, ask):
        with pytest.raises(aiohttp.ClientError, match=error):
            await ask()
        assert (await ask()).body == b"ok"
        assert server.connections == 2


async def test_a_request_that_is_given_up_ends_its_connection() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", OK) as (server, ask):
        waiting = asyncio.create_task(ask())
        await server.asked.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await ask()).body == b"ok"
        assert server.connections == 2


async def test_a_closed_port_is_an_error() -> None:
    async with serving() as (_, ask):
        pass
    with pytest.raises(ConnectionRefusedError):
        await ask()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file of a certificate for this machine, and the context of a server that shows it."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    request += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*request, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    return certificate, tls


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, tls = certificate
    async with serving(OK, tls=tls) as (_, ask):
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask()
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with serving(OK, tls=tls) as (_, ask):
        assert (await ask()).body == b"ok"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("secured", [False, True])
def test_a_response_that_closes_its_connection_is_read_and_timed(
    secured: bool, run: Callable[..., Any], certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, tls = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    endless = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok"

    async def exchange(answer: bytes) -> Response:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"{}")
            writer.write(answer)
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls if secured else None)
        connections = HttpConnections({}, connect_timeout_s=5, max_reply_mb=1)
        port = listening.sockets[0].getsockname()[1]
        response = await connections.post(URL(f"{'https' if secured else 'http'}://127.0.0.1:{port}/"), b"{}")
        listening.close()
        return response

    closed, ended = run(exchange(closing)), run(exchange(endless))
    assert (closed.body, ended.body) == (b"ok", b"ok")
    assert closed.seconds is not None
    assert ended.seconds is None, "the connection is gone"
