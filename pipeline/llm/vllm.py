"""Starts vLLM's own servers on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pipeline.errors import UserError
from pipeline.extras import require
from pipeline.net.subprocess_server import LOOPBACK, SubprocessServer, answers, fetch, free_ports, is_free

_ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception): \S.*|error: \S.*)")
_STARTS = 5
"""How often a server is started at most if another process has taken its port, or a port of its engine."""
_IN_USE = re.compile("address already in use", re.IGNORECASE)
# Not `vllm serve`: that script requires a distribution named vllm, and the one for CPUs has another name.
_COMMAND = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")


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
    """0, and one that is in use, stand for a free one, which is chosen at the first start."""
    process: subprocess.Popen[bytes] | None = None
    command: tuple[str, ...] = _COMMAND
    """Starts vLLM's server with the arguments that follow it."""
    host: str = LOOPBACK
    """The address that the server listens on."""
    reached_at: str = LOOPBACK
    """The address at which clients reach it."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    start_timeout_s: float = 600

    @property
    def base_url(self) -> str:
        """The base URL, as in `llm.base_urls`."""
        return f"{self._root}/v1"

    @property
    def metrics_url(self) -> str:
        """The URL of its Prometheus metrics."""
        return f"{self._root}/metrics"

    @property
    def load_url(self) -> str:
        """The URL of the number of calls that it has, which it counts with `--enable-server-load-tracking`."""
        return f"{self._root}/load"

    @property
    def _root(self) -> str:
        return f"http://{self.reached_at}:{self.port}"

    def start(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Start the server and return once it answers.

        Raises UserError if vLLM is missing, or does not start, or `is_cancelled` returns True.
        """
        require("gpu", "a vLLM server")
        for _ in range(_STARTS):
            if self.process is None and not (self.port and is_free(self.host, self.port)):
                self.port = free_ports(1)[0]
            self._serve()
            problem = self._wait_until_healthy(is_cancelled)
            if problem is None:
                return
            self.kill()
            if not _IN_USE.search(problem):
                break
        raise UserError(f"vLLM did not start: {problem}")

    def _wait_until_healthy(self, is_cancelled: Callable[[], bool]) -> str | None:
        """Return None once the server answers, or else why it does not."""
        deadline = time.monotonic() + self.start_timeout_s
        while not answers(f"{self._root}/health"):
            if not self.running:
                return self._reason()
            if is_cancelled() or time.monotonic() > deadline:
                return "no answer in time"
            time.sleep(0.2)
        return None

    def _serve(self) -> None:
        model = [f"--model={self.model}", f"--served-model-name={self.name}"]
        address = [f"--host={self.host}", f"--port={self.port}"]
        # On CPUs, vLLM reserves half of the memory for the KV cache by default.
        own = {"VLLM_CPU_KVCACHE_SPACE": "1", **self.environment, "VLLM_SERVER_DEV_MODE": str(int(self.resettable))}
        self._launch([*self.command, *model, *address, *self.arguments], self.log, environment=own, has_children=True)

    def _reason(self) -> str:
        """Return the last error in the log, or else its end."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        errors = _ERROR.findall("\n".join(line.rstrip() for line in text.splitlines()[-300:]))
        shown = errors[-1] if errors else " ".join(text.split())[-600:]
        return f"{shown} (see {self.log})"


def read_samples(url: str, *, timeout_s: float = 5) -> list[Sample]:
    """Return the samples of a Prometheus endpoint. Raises OSError if the server does not answer."""
    families = text_string_to_metric_families(fetch(url, timeout_s=timeout_s).decode())
    return [sample for family in families for sample in family.samples]


def sums(samples: Iterable[Sample]) -> Mapping[str, float]:
    """Return samples by name, summed over their labels; 0 for unknown names."""
    found: defaultdict[str, float] = defaultdict(float)
    for sample in samples:
        found[sample.name] += sample.value
    return found


def read_metrics(url: str) -> Mapping[str, float]:
    """Return the samples of a Prometheus endpoint by name, summed over their labels; 0 for unknown names."""
    return sums(read_samples(url, timeout_s=30))
