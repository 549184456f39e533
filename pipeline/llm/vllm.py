"""Plain vLLM servers on this machine: what tests and benchmarks hold everything else against."""

from __future__ import annotations

import importlib.util
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
from pipeline.local_server import LOOPBACK, LocalServer, answers, free_ports

_START_SECONDS = 600
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)", re.MULTILINE)


@dataclass(slots=True)
class VllmServer(LocalServer):
    """One server of one model."""

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
        return f"http://{LOOPBACK}:{self.port}/v1"

    @property
    def metrics_url(self) -> str:
        """Where its Prometheus metrics are."""
        return f"http://{LOOPBACK}:{self.port}/metrics"

    def start(self) -> None:
        """Start the server and return once it answers. Raises UserError without vLLM, or with the log's end."""
        if importlib.util.find_spec("vllm") is None:
            raise UserError("a vLLM server needs vLLM: pip install kgqa-pipeline[gpu], or [cpu-server] without a GPU")
        self.port = self.port or free_ports(1)[0]
        self._serve()
        deadline = time.monotonic() + _START_SECONDS
        while not answers(f"http://{LOOPBACK}:{self.port}/health"):
            if not self.running or time.monotonic() > deadline:
                self.kill()
                end = " ".join(self.log.read_text(encoding="utf-8", errors="replace").split())[-600:]
                raise UserError(f"vLLM did not start; the end of {self.log}: {end}")
            time.sleep(0.2)

    def _serve(self) -> None:
        place = [f"--host={LOOPBACK}", f"--port={self.port}"]
        words = [f"--model={self.model}", f"--served-model-name={self.name}", *place]
        # Not `vllm serve`: that script asks for a distribution named vllm, and the one for CPUs has another name.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words, *self.arguments]
        # On CPUs, vLLM's own choice of room for keys and values is half of the memory.
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", **os.environ, "VLLM_SERVER_DEV_MODE": str(int(self.resettable))}
        self._launch(command, self.log, environment=environment)


def read_metrics(url: str) -> Mapping[str, float]:
    """The samples of a Prometheus endpoint by name, summed over their labels; 0 for names that are not there."""
    with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 — http
        text = response.read().decode()
    sums: defaultdict[str, float] = defaultdict(float)
    for name, value in _SAMPLE.findall(text):
        sums[name] += float(value)
    return sums
