"""A fake model server for benchmarks: every chat completion gets the same text after a fixed time.

With a number of slots, it serves so many calls at a time, and the others wait for them, as in the batch of an engine.

It runs in a process of its own, so that its work is not counted as the client's. It does hardly any work, so that the
client limits the benchmark: it reads just enough HTTP to find the end of a request. Start it by
`serving(latency_s=0.5)`, or by `python pipeline/cli/benchmarks/server.py LATENCY_S SLOTS`, which prints its port.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heapreplace

import orjson

MODEL = "fixed-reply"
REPLY = "The answer is {Ada Lovelace}."
TOKENS = 8
"""Of a reply, as the server counts them."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@contextmanager
def serving(*, latency_s: float = 0.0, slots: int = 0) -> Iterator[str]:
    """Run the server; yields its base URL. 0 slots are any number."""
    command = [sys.executable, __file__, str(latency_s), str(slots)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own words
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


def _response(payload: object) -> bytes:
    body = orjson.dumps(payload)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


_MODELS = _response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
_COMPLETION = _response(
    {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": REPLY}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 350, "completion_tokens": TOKENS, "total_tokens": 350 + TOKENS},
    }
)


class Slots:
    """Says when each call is answered."""

    def __init__(self, latency_s: float, slots: int) -> None:
        self._latency_s = latency_s
        self._free_at = [0.0] * slots

    def take(self, now: float) -> float:
        """Return the time at which a call that arrives now is answered."""
        if not self._free_at:
            return now + self._latency_s
        ends = max(now, self._free_at[0]) + self._latency_s
        heapreplace(self._free_at, ends)
        return ends


class _Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank_line, rest = self._received.partition(b"\r\n\r\n")
        length = int(found[1]) if (found := _LENGTH.search(head)) else 0
        if blank_line and len(rest) >= length:
            self._received = rest[length:]
            response = _MODELS if head.startswith(b"GET") else _COMPLETION
            loop = asyncio.get_running_loop()
            loop.call_at(self._slots.take(loop.time()), self._transport.write, response)


async def main(latency_s: float, slots: int) -> None:
    """Serve until terminated."""
    loop = asyncio.get_running_loop()
    shared = Slots(latency_s, slots)
    server = await loop.create_server(lambda: _Connection(shared), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), int(sys.argv[2])))
