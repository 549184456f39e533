"""HTTP/1.1 connections for small requests at a high rate, which stay open between requests.

aiohttp's client takes five times the CPU time for such a request (`docs/decisions/3-own-model-client.md`). Only what a
model server needs is here: `POST` with a body, no redirects, no cookies, no proxies.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Mapping
from functools import cached_property, partial
from typing import NamedTuple, cast

import aiohttp
import httptools
from yarl import URL

from pipeline.text import printable

KEEP_ALIVE_S = 4.0
"""Below the 5 s after which uvicorn, and so vLLM, closes an idle connection: no request meets a closing connection."""
KERNEL_TICK_S = 0.01
"""The longest tick in which a kernel counts the times of a connection."""
_BETWEEN_OPENINGS_S = 0.001
"""Connections open one after the other: a server that gets thousands at once would refuse some."""
_COMPRESSED = ("gzip", "deflate")
_TCP_INFO = struct.Struct("=44xI4xI")
"""Of `struct tcp_info` of Linux: the milliseconds since data were sent, and since data were received."""


class Response(NamedTuple):
    """An HTTP response that was read completely."""

    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes
    seconds: float | None = None
    """From the last byte of the request to that of the response, to `KERNEL_TICK_S`; None if it was not measured."""

    @property
    def answered(self) -> str:
        """The status, with the target of a redirection, which is never followed."""
        target = self.headers.get("location") if 300 <= self.status < 400 else None
        return f"{self.status} (a redirection to {printable(target)})" if target else str(self.status)


class ReplyTooLarge(aiohttp.ClientPayloadError):
    """The body of a response is larger than the limit. The rest of it was not read."""

    def __init__(self, max_reply_mb: float) -> None:
        """Name the limit, in millions of bytes."""
        super().__init__(f"its reply is larger than {max_reply_mb:g} MB")


class HttpConnections:
    """Connections to any number of servers. The errors are those of aiohttp, and OSError."""

    def __init__(self, headers: Mapping[str, str], *, connect_timeout_s: float, max_reply_mb: float) -> None:
        """Take the headers of every request. No more than `max_reply_mb` million bytes of a reply are read."""
        self._headers = {"Accept": "*/*", "Accept-Encoding": ", ".join(_COMPRESSED), **headers}
        self._connect_timeout_s = connect_timeout_s
        self._max_reply_mb = max_reply_mb
        self._heads: dict[URL, bytes] = {}
        self._idle: defaultdict[URL, deque[_Connection]] = defaultdict(deque)
        """Least recently used first."""
        self._next_opening = 0.0
        """Before this time of the loop, no connection is opened."""

    async def post(self, url: URL, body: bytes) -> Response:
        """Send one request, and read the response of any status."""
        connection = self._take(url) or await self._open(url)
        try:
            response = await connection.exchange(b"%b%d\r\n\r\n" % (self._head(url), len(body)), body)
        except BaseException:
            connection.close()
            raise
        if connection.stays_open:
            self._put_back(url, connection)
        else:
            connection.close()
        return response

    def close(self) -> None:
        """Close the connections that wait for a request."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    def _head(self, url: URL) -> bytes:
        """Return all of a request that does not depend on its body."""
        if url not in self._heads:
            headers = {"Host": url.host_port_subcomponent, **self._headers}
            named = [f"{name}: {value}" for name, value in headers.items()]
            lines = [f"POST {url.raw_path_qs} HTTP/1.1", *named, "Content-Length: "]
            self._heads[url] = "\r\n".join(lines).encode()
        return self._heads[url]

    def _take(self, url: URL) -> _Connection | None:
        idle = self._idle[url]
        while idle:
            connection = idle.pop()
            if connection.stays_open and time.monotonic() < connection.idle_since + KEEP_ALIVE_S:
                return connection
            connection.close()
        return None

    def _put_back(self, url: URL, connection: _Connection) -> None:
        connection.idle_since = now = time.monotonic()
        idle = self._idle[url]
        idle.append(connection)
        while idle[0].idle_since + KEEP_ALIVE_S < now:
            idle.popleft().close()

    async def _open(self, url: URL) -> _Connection:
        """Open a connection when it is due, unless another request has left one by then."""
        now = asyncio.get_running_loop().time()
        due = max(now, self._next_opening)
        self._next_opening = due + _BETWEEN_OPENINGS_S
        if due > now:
            await asyncio.sleep(due - now)
        return self._take(url) or await self._connect(url)

    async def _connect(self, url: URL) -> _Connection:
        connecting = asyncio.get_running_loop().create_connection(
            partial(_Connection, self._max_reply_mb),
            url.host or "",
            url.port or 0,
            ssl=self._tls if url.scheme == "https" else None,
        )
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                transport, connection = await connecting
        except TimeoutError:
            raise aiohttp.ConnectionTimeoutError from None
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class _Connection(asyncio.Protocol):
    """One connection, and the response that is being read from it."""

    idle_since: float = 0.0

    def __init__(self, max_reply_mb: float) -> None:
        self._max_reply_mb = max_reply_mb
        self._max_bytes = int(max_reply_mb * 1e6)
        self._parser = httptools.HttpResponseParser(self)
        self._response: asyncio.Future[Response] | None = None

    @property
    def stays_open(self) -> bool:
        """Whether another request may be sent."""
        return not self._transport.is_closing()

    async def exchange(self, *request: bytes) -> Response:
        """Send a request and wait for its response."""
        self._response = asyncio.get_running_loop().create_future()
        self._read = 0
        self._ends_with_connection = False
        self._transport.writelines(request)
        return await self._response

    def close(self) -> None:
        """Close the connection at once."""
        self._response = None
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop, which Ray uses, is no subclass

    def data_received(self, data: bytes) -> None:
        if self._response is None:  # nobody has asked
            self.close()
            return
        self._read += len(data)
        if self._read > self._max_bytes:
            self._fail(ReplyTooLarge(self._max_reply_mb))
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(aiohttp.ClientPayloadError(f"no HTTP response: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None and self._ends_with_connection:
            self.on_message_complete()
        self._fail(aiohttp.ServerDisconnectedError())

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._response is None:  # two responses to one request
            self.close()
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._ends_with_connection = not {"content-length", "transfer-encoding"} & self._headers.keys()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._response is None:  # announces another response
            return
        try:
            body = self._decoded(b"".join(self._parts))
        except aiohttp.ClientPayloadError as error:
            self._fail(error)
            return
        # to be read before the connection is closed: over TLS, that sends data
        seconds = None if self._ends_with_connection else self._seconds
        if not self._parser.should_keep_alive():
            self._transport.close()
        if not self._response.done():
            self._response.set_result(Response(status, self._headers, body, seconds))
        self._response = None

    @property
    def _seconds(self) -> float | None:
        """The seconds between request and response by the kernel's clock; None if the system does not tell them.

        The time until this process reads the response is its own: with many questions at once, its event loop is busy.
        """
        if sys.platform != "linux":
            return None
        connection = self._transport.get_extra_info("socket")
        sent: int
        received: int
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            sent, received = _TCP_INFO.unpack(info)
        except (OSError, struct.error):  # the connection is closed, or not that of Linux's own TCP
            return None
        return max(0, sent - received) / 1000

    def _decoded(self, body: bytes) -> bytes:
        if self._headers.get("content-encoding", "").lower() not in _COMPRESSED:
            return body
        decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # with the header of either format
        try:
            decoded = decoder.decompress(body, self._max_bytes)
        except zlib.error as error:
            raise aiohttp.ClientPayloadError(f"its reply cannot be decompressed: {error}") from None
        if decoder.unconsumed_tail:
            raise ReplyTooLarge(self._max_reply_mb)
        if not decoder.eof:
            raise aiohttp.ClientPayloadError("its compressed reply is not complete")
        return decoded

    def _fail(self, error: aiohttp.ClientError) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)
        self.close()
