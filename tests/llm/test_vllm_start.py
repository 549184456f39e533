"""The start of a vLLM server, with a small HTTP server in its place."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.llm import vllm
from pipeline.llm.vllm import VllmServer
from pipeline.net.subprocess_server import LOOPBACK, free_ports

HEALTHY = """
import http.server, sys
[port] = [int(word.removeprefix("--port=")) for word in sys.argv if word.startswith("--port=")]
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
class Server(http.server.HTTPServer):
    allow_reuse_address = True
Server(("127.0.0.1", port), Healthy).serve_forever()
"""


def server(tmp_path: Path, script: str) -> VllmServer:
    return VllmServer("model", tmp_path / "server.log", command=(sys.executable, "-c", script))


def choose(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Let the next starts choose these ports, as if another process took them only afterwards."""
    left = iter(ports)
    monkeypatch.setattr(vllm, "free_ports", lambda count: [next(left)])


@contextmanager
def bound(port: int) -> Iterator[None]:
    """Another socket has the port, and refuses connections."""
    with socket.socket() as other:
        other.bind((LOOPBACK, port))
        yield


def test_a_port_that_another_process_takes_first_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taken, free = free_ports(2)
    choose(monkeypatch, taken, free)
    with bound(taken), server(tmp_path, HEALTHY) as started:
        assert started.port == free


def test_a_server_that_fails_for_another_reason_is_started_once(tmp_path: Path) -> None:
    failing = server(tmp_path, "raise RuntimeError('no such device')")
    with pytest.raises(UserError, match=r"vLLM did not start: RuntimeError: no such device"):
        failing.start()
    assert failing.log.read_text().count("Traceback") == 1


def test_after_several_taken_ports_the_start_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    [taken] = free_ports(1)
    choose(monkeypatch, *[taken] * 5)
    with bound(taken), pytest.raises(UserError, match=r"Address already in use"):
        server(tmp_path, HEALTHY).start()
