"""Starts plain vLLM servers on this machine, as the reference for tests and benchmarks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError
from pipeline.extras import require
from pipeline.net.subprocess_server import LOOPBACK, SubprocessServer, answers, free_ports

_START_TIMEOUT_S = 600
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)", re.MULTILINE)


@dataclass(slots=True)
class VllmServer(SubprocessServer):
    """A vLLM server of one model."""

    model: str
    """A Hugging Face name, or the folder of a checkpoint."""
    log: Path
    """The file that the server writes its log to."""
    arguments: tuple[str, ...] = ()
    """More arguments of vLLM's command line, such as `--dtype=float32`."""
    name: str = "llama"
    """The name under which the model is served."""
    resettable: bool = False
    """Whether `POST /reset_prefix_cache` empties the prefix cache. vLLM calls this its development mode."""
    port: int = 0
    """Chosen from the free ports at the first start."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """The base URL, as in `llm.base_urls`."""
        return f"http://{LOOPBACK}:{self.port}/v1"

    @property
    def metrics_url(self) -> str:
        """The URL of its Prometheus metrics."""
        return f"http://{LOOPBACK}:{self.port}/metrics"

    def start(self) -> None:
        """Start the server and return once it answers. Raises UserError if vLLM is missing or does not start."""
        require("gpu", "a vLLM server")
        self.port = self.port or free_ports(1)[0]
        self._serve()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not answers(f"http://{LOOPBACK}:{self.port}/health"):
            if not self.running or time.monotonic() > deadline:
                self.kill()
                end = " ".join(self.log.read_text(encoding="utf-8", errors="replace").split())[-600:]
                raise UserError(f"vLLM did not start; the end of {self.log}: {end}")
            time.sleep(0.2)

    def _serve(self) -> None:
        # Not `vllm serve`: that script requires a distribution named vllm, and the one for CPUs has another name.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        model = [f"--model={self.model}", f"--served-model-name={self.name}"]
        address = [f"--host={LOOPBACK}", f"--port={self.port}"]
        # On CPUs, vLLM reserves half of the memory for the KV cache by default.
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", **os.environ, "VLLM_SERVER_DEV_MODE": str(int(self.resettable))}
        self._launch([*command, *model, *address, *self.arguments], self.log, environment=environment)


def read_metrics(url: str) -> Mapping[str, float]:
    """Return the samples of a Prometheus endpoint by name, summed over their labels; 0 for unknown names."""
    with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 — http
        text = response.read().decode()
    sums: defaultdict[str, float] = defaultdict(float)
    for name, value in _SAMPLE.findall(text):
        sums[name] += float(value)
    return sums
