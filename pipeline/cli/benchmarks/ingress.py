"""Ray Serve with one ingress in front of model servers, as clusters often serve models.

It runs in a process of its own: the CPU time of this process and its children is what the way to the servers costs. It
passes requests on to servers that are no part of Serve, so that their work is not counted. Start it by `ingress(urls)`,
or by `python -m pipeline.cli.benchmarks.ingress URL …`, which prints its port, and ends when its input ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import aiohttp

from pipeline.engine.cluster import joined
from pipeline.net.subprocess_server import LOOPBACK, free_ports

_AT_ONCE = 100_000
"""Requests that the ingress takes at the same time: more than there are."""


@contextmanager
def ingress(urls: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Run Serve in front of the servers with these base URLs; yields its own base URL and the id of its process."""
    command = [sys.executable, "-m", __name__, *urls]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "Ray Serve did not start"
        yield f"http://{LOOPBACK}:{port}/v1", process.pid


class Ingress:
    """Passes each request on to the next server."""

    def __init__(self, urls: Sequence[str]) -> None:
        """Take the base URLs of the servers."""
        self._urls = cycle(urls)
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, request: Any) -> Any:
        """Return the reply to a request, both as Starlette has them."""
        from starlette.responses import Response  # comes with Ray Serve

        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        url = next(self._urls) + request.url.path.removeprefix("/v1")
        async with self._session.request(request.method, url, data=await request.body()) as reply:
            return Response(await reply.read(), reply.status, media_type=reply.content_type)


def main(urls: Sequence[str]) -> None:
    """Serve until the input ends."""
    from ray import serve

    [port] = free_ports(1)
    with joined({"address": "local"}):
        serve.start(http_options={"host": LOOPBACK, "port": port})
        serve.run(serve.deployment(Ingress, max_ongoing_requests=_AT_ONCE).bind(urls))
        print(port, flush=True)
        sys.stdin.read()
        serve.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
