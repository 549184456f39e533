"""A network that has nothing but loopback, so that only this machine reaches a server that listens on all addresses."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = ("unshare", "nsenter", "ip")


@contextmanager
def loopback_network() -> Iterator[tuple[str, ...]]:
    """Make a network namespace, which needs root. Yields the words before a command that run it inside.

    All processes that are left inside at the end are killed, as those of a container are.
    """
    # An address other than 127.0.0.1 makes the resolver return addresses at all.
    network = "ip link set lo up && ip addr add 127.0.0.2/8 dev lo && echo ready && exec sleep infinity"
    space = subprocess.Popen(["unshare", "--net", "sh", "-c", network], stdout=subprocess.PIPE, text=True)
    try:
        assert space.stdout is not None
        assert space.stdout.readline() == "ready\n"
        yield ("nsenter", f"--net=/proc/{space.pid}/ns/net")
    finally:
        network_id = os.readlink(f"/proc/{space.pid}/ns/net")
        while inside := list(_processes(network_id)):  # one that is killed may just have started another
            for process in inside:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            space.poll()
            time.sleep(0.1)
        space.wait()


def _processes(network_id: str) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just gone
            if os.readlink(process / "ns" / "net") == network_id:
                yield int(process.name)


def wait_for(holds: Callable[[], bool], seconds: float) -> None:
    """Return once a condition holds. Raises AssertionError if it does not in time."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.2)


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Terminate a process, and kill it if it does not end."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
