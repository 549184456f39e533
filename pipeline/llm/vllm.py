"""Plain vLLM servers on this machine: what tests and benchmarks hold everything else against.

A server binds to 127.0.0.1, is a process group of its own, and ends with the thread that started it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pipeline.errors import UserError

_HOST = "127.0.0.1"
_START_SECONDS = 600
_STOP_SECONDS = 30
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)", re.MULTILINE)


@dataclass(slots=True)
class VllmServer:
    """One server of one model; a context manager that starts and stops it.

    A stopped server can be started again and keeps its address.
    """

    model: str
    """A Hugging Face name, or the folder of a checkpoint."""
    log: Path
    """The file that the server writes its log to."""
    arguments: tuple[str, ...] = ()
    """Further words of vLLM's command line, such as `--dtype=float32`."""
    name: str = "llama"
    """What the model is served as."""
    resettable: bool = False
    """Whether `POST /reset_prefix_cache` empties the prefix cache; vLLM calls that its development mode."""
    port: int = 0
    """Chosen from the free ports at the first start."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """The address, as `llm.base_urls` takes it."""
        return f"http://{_HOST}:{self.port}/v1"

    @property
    def metrics_url(self) -> str:
        """Where its Prometheus metrics are."""
        return f"http://{_HOST}:{self.port}/metrics"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and return once it answers. Raises UserError without vLLM, or with the log's end."""
        if importlib.util.find_spec("vllm") is None:
            raise UserError("a vLLM server needs vLLM: pip install kgqa-pipeline[gpu], or [cpu-server] without a GPU")
        self.port = self.port or free_port()
        self._launch()
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_healthy():
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                end = " ".join(self.log.read_text(encoding="utf-8", errors="replace").split())[-600:]
                raise UserError(f"vLLM did not start; the end of {self.log}: {end}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop the server; one that does not end in time is killed."""
        if self.process is None:
            return
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the server and its engine at once, as a fault would."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _launch(self) -> None:
        words = [f"--model={self.model}", f"--served-model-name={self.name}", f"--host={_HOST}", f"--port={self.port}"]
        # Not `vllm serve`: that script asks for a distribution named vllm, and the one for CPUs has another name.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words, *self.arguments]
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "TERM", *command]
        # On CPUs, vLLM's own choice of room for keys and values is half of the memory.
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", **os.environ, "VLLM_SERVER_DEV_MODE": str(int(self.resettable))}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 — our own words
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{self.port}/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as one:
        one.bind((_HOST, 0))
        return int(one.getsockname()[1])


def read_metrics(url: str) -> Mapping[str, float]:
    """The samples of a Prometheus endpoint by name, summed over their labels; 0 for names that are not there."""
    with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 — http
        text = response.read().decode()
    sums: defaultdict[str, float] = defaultdict(float)
    for name, value in _SAMPLE.findall(text):
        sums[name] += float(value)
    return sums
