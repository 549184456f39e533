"""Servers of other makers that a job runs on this machine: one process each, on the loopback interface."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

LOOPBACK = "127.0.0.1"

_STOP_SECONDS = 30


class LocalServer(ABC):
    """A context manager that starts and stops a process group of its own, which ends with the thread that started it.

    A stopped server can be started again and keeps its address.
    """

    process: subprocess.Popen[bytes] | None

    @abstractmethod
    def start(self) -> None:
        """Start the server and return once it answers. Raises UserError when it does not."""

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server; one that does not end in time is killed."""
        if self.process is None:
            return
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the server and its children at once, as a fault would."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _launch(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        words = ["setpriv", "--pdeathsig", "TERM", *command] if shutil.which("setpriv") else command
        with log.open("wb") as said:
            # A session of its own: Ctrl-C in a terminal must reach the command, which stops its servers in order.
            self.process = subprocess.Popen(  # noqa: S603 — our own words
                words,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )


def answers(url: str, body: bytes | None = None, *, timeout_s: float = 5) -> bool:
    """Whether a server answers a request, a POST where there is a body, with success."""
    try:
        with urllib.request.urlopen(url, data=body, timeout=timeout_s) as response:  # noqa: S310 — http
            return bool(response.status == 200)
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Different ports of this machine that nothing listens on."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]
