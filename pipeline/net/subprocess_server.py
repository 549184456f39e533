"""Starts and stops third-party servers on this machine, each in its own process on the loopback interface."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
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

_STOP_TIMEOUT_S = 30
_SERVER_PORTS = range(20_000, 30_000)
"""Above the ports of Ray's workers, below those of Kubernetes' services and of outgoing connections."""
_LEASHED = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) & exec 3<&-; exec "$@"'
"""A script that runs its arguments, and kills their whole process group when the other end of its input is closed."""


class SubprocessServer(ABC):
    """A server in its own process group, as a context manager. It ends with the thread that started it.

    A stopped server can be started again and keeps its URL.
    """

    process: subprocess.Popen[bytes] | None

    @abstractmethod
    def start(self) -> None:
        """Start the server and return once it answers. Raises UserError if it does not start."""

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.process is not None and self.process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server. Kill it if it does not end in time."""
        if self.process is None:
            return
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill the server and its children immediately, as a fault would."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            if self.process.stdin is not None:
                self.process.stdin.close()
            self.process = None

    def _launch(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        has_children: bool = False,
    ) -> None:
        """Start the process and write its output to `log`.

        A server that `has_children`, which would outlive it if it were killed, is killed with them when this process
        ends, however it ends.
        """
        if has_children:
            full_command = ["sh", "-c", _LEASHED, "sh", *command]
        else:
            full_command = [*(["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []), *command]
        with log.open("ab") as output:  # what the server said before it was restarted stays readable
            # In its own session: Ctrl-C in a terminal must reach only our command, which then stops its servers.
            self.process = subprocess.Popen(  # noqa: S603 — the command is not user input
                full_command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.PIPE if has_children else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


def answers(url: str, body: bytes | None = None) -> bool:
    """Return whether a server answers with status 200. Sends a POST request if there is a body, else GET."""
    try:
        with urllib.request.urlopen(url, data=body, timeout=5) as response:  # noqa: S310 — http
            return bool(response.status == 200)
    except OSError:
        return False


def fetch(url: str, *, timeout_s: float = 5) -> bytes:
    """Return the body of a page. Raises OSError if the server does not send it."""
    with urllib.request.urlopen(url, timeout=timeout_s) as response:  # noqa: S310 — http
        return bytes(response.read())


def is_free(host: str, port: int) -> bool:
    """Return whether a server can listen on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: closed connections do not count
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return `count` different ports of this machine that no process uses.

    They lie below those that systems give to outgoing connections. A server may bind its port seconds after it is
    chosen, and thousands of connections begin and end in that time.
    """
    candidates = random.SystemRandom().sample(_SERVER_PORTS, len(_SERVER_PORTS))
    found = list(itertools.islice((port for port in candidates if is_free(LOOPBACK, port)), count))
    if len(found) < count:
        raise OSError(f"fewer than {count} of the ports {_SERVER_PORTS[0]} to {_SERVER_PORTS[-1]} are free")
    return found
