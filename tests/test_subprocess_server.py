"""Servers in processes of their own, which end with the process that has started them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from pipeline.net.subprocess_server import free_ports, is_free
from tests.integration.processes import MARK, marked
from tests.support import until

STARTER = """
import sys, time
from pathlib import Path
from pipeline.net.subprocess_server import SubprocessServer

class WithChild(SubprocessServer):
    process = None
    def start(self):
        self._launch(["sh", "-c", "sleep 1000 & exec sleep 2000"], Path(sys.argv[1]), has_children=True)

server = WithChild()
server.start()
print("started", flush=True)
sys.stdin.readline()
server.kill()
print("killed", flush=True)
sys.stdin.readline()
"""


def start(tmp_path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: str(tmp_path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def alive(tmp_path: Path) -> int:
    return sum(1 for _ in marked(str(tmp_path)))


async def test_a_server_and_its_children_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        await until(lambda: alive(tmp_path) >= 4)  # this process's child, the server, its child, and what watches
        os.kill(process.pid, signal.SIGKILL)
    await until(lambda: alive(tmp_path) == 0)


async def test_a_server_that_is_killed_takes_its_children_along(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "killed\n"
        await until(lambda: alive(tmp_path) == 1)


def test_a_port_is_free_until_something_listens_on_it(closed_port: int) -> None:
    assert is_free("127.0.0.1", closed_port)
    with socket.create_server(("127.0.0.1", closed_port)):
        assert not is_free("127.0.0.1", closed_port)


def test_free_ports_are_free_different_and_not_those_of_outgoing_connections() -> None:
    chosen = free_ports(50)
    outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(chosen)) == 50
    assert all(port < outgoing and is_free("127.0.0.1", port) for port in chosen)
