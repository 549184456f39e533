"""Real servers for the integration tests, on free loopback ports, stopped at the end of the session."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pipeline.config import default
from pipeline.kg import virtuoso
from pipeline.kg.virtuoso import VirtuosoConfig, VirtuosoServer
from pipeline.llm.vllm import VllmServer
from pipeline.net.subprocess_server import free_ports
from pipeline.rdf_terms import Terms
from pipeline.training.llama import LlamaShape
from pipeline.types import Triple
from tests.integration.processes import MARK
from tests.integration.ray_nodes import LOOPBACK, cluster_of_head
from tests.support import KGQA

# vLLM computes in its engine's process: it starts one process less that imports it, which takes ten seconds. Then vLLM
# no longer counts its threads itself, and two that wait actively for each other need both cores.
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
# Ray lowers the priority of its workers, which then wait for the other test processes.
os.environ |= {"RAY_worker_niceness": "0"}

VirtuosoFactory = Callable[..., list[VirtuosoServer]]

CONTEXT = 8192
"""Tokens of prompt and reply that the model servers take."""

VLLM_WORDS = (
    *("--dtype=float32", "--enforce-eager", "--no-enable-chunked-prefill", f"--max-model-len={CONTEXT}"),
    "--kv-cache-memory-bytes=100000000",
)
"""Of vLLM on a CPU, where a seed and a temperature kill it if it reads prompts in parts."""


@dataclass
class KillMatrix:
    """What was done to runs, and what became of them; printed at the end of the session."""

    rows: dict[str, tuple[str, int, int | None, bool]] = field(default_factory=dict)

    def add(self, what: str, done: str, *, questions: int, repeated: int | None, equal: bool) -> None:
        """Enter a run; of several under one name the worst is shown. `repeated` is None where nobody counts calls."""
        _, fewest, most, all_equal = self.rows.get(what, (done, questions, repeated, equal))
        worst = None if most is None or repeated is None else max(most, repeated)
        self.rows[what] = (done, min(fewest, questions), worst, all_equal and equal)

    def lines(self) -> Iterator[str]:
        """As a table in Markdown."""
        yield "| failed part | fault | questions | repeated calls | same results |"
        yield "| --- | --- | ---: | ---: | --- |"
        for what, (done, questions, repeated, equal) in self.rows.items():
            counted = "–" if repeated is None else repeated
            yield f"| {what} | {done} | {questions} | {counted} | {'yes' if equal else 'NO'} |"


_KILL_MATRIX = pytest.StashKey[KillMatrix]()


@pytest.fixture(scope="session")
def kill_matrix(pytestconfig: pytest.Config) -> KillMatrix:
    return pytestconfig.stash.setdefault(_KILL_MATRIX, KillMatrix())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the kill matrix if rows of it were run."""
    matrix = config.stash.get(_KILL_MATRIX, KillMatrix())
    if matrix.rows:
        terminalreporter.section("kill matrix")
        for line in matrix.lines():
            terminalreporter.write_line(line)


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path], None]]:
    """`small_disk(folder)` makes the folder a file system of its own with little room; mounting one takes root."""
    with contextlib.ExitStack() as mounted:

        def mount(folder: Path) -> None:
            folder.mkdir()
            words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                message = f"no file system can be mounted here: {done.stderr.strip()}"
                if os.environ.get("CI"):
                    pytest.fail(message)
                pytest.skip(message)
            mounted.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)

        yield mount


@pytest.fixture(scope="session")
def virtuoso_installed() -> None:
    """Virtuoso 7 on this machine; its absence is a failure in CI."""
    if not shutil.which("virtuoso-t"):
        message = "virtuoso-t is not installed (Debian package virtuoso-opensource-7)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture(scope="module")
def virtuoso_factory(virtuoso_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtuosoFactory]:
    """`virtuoso_factory(triples, replicas=2, terms=…, config=…)`: running servers that hold exactly these triples.

    They stop with the module: each takes half a gigabyte.
    """
    with contextlib.ExitStack() as running:

        def start(
            triples: Iterable[Triple],
            *,
            replicas: int = 1,
            terms: Terms | None = None,
            config: VirtuosoConfig | None = None,
        ) -> list[VirtuosoServer]:
            folder = tmp_path_factory.mktemp("virtuoso")
            file = _write(triples, folder / "graph.nt", terms or Terms())
            config = config or default(VirtuosoConfig, memory_gb=0.1, threads=8)
            virtuoso.build_database([file], folder / "database", config)
            return running.enter_context(virtuoso.replicas(folder / "database", replicas, folder, config))

        yield start


def _write(triples: Iterable[Triple], file: Path, terms: Terms) -> Path:
    with file.open("w", encoding="utf-8") as stream:
        stream.writelines(map(terms.n_triple, triples))
    return file


@pytest.fixture(scope="session")
def vllm_server(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A plain vLLM server of that Llama. Whoever kills it has to start it again: `kill()`, `start()`."""
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with VllmServer(str(llama), log, VLLM_WORDS, resettable=True) as server:
        yield server


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster of one node."""

    address: str
    metrics_url: str
    """Where Ray exports the metrics of all that runs on it, those of vLLM among them."""
    mark: str
    """In the environment of all its processes."""


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    """A Ray cluster for everything that is to run beside each other; it has CPUs in plenty, which are but numbers.

    It stops with the module: in an hour without work, it uses three minutes of a processor, and a start seven seconds.
    """
    (port,) = free_ports(1)
    often = {"_system_config": {"metrics_report_interval_ms": 1000}}
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as running:
        patch.setenv(MARK, mark := uuid.uuid4().hex)
        cluster = running.enter_context(cluster_of_head(num_cpus=16, metrics_export_port=port, **often))
        patch.undo()
        yield RayCluster(cluster.address, f"http://{LOOPBACK}:{port}/metrics", mark)


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter for the Llama, with random weights that change what it answers."""
    folder = tmp_path_factory.mktemp("adapter") / "lora"
    folder.mkdir()
    generator = torch.Generator().manual_seed(1)
    weights = {}
    for layer in range(default(LlamaShape).layers):
        module = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        for part, shape in (("lora_A", (8, 128)), ("lora_B", (128, 8))):
            weights[f"{module}.{part}.weight"] = 0.3 * torch.randn(shape, generator=generator)
    save_file(weights, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 8, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


@dataclass(frozen=True)
class ServedLlama:
    """What `kgqa llm serve` says of a model that it serves."""

    words: list[str]
    """The overrides that make a job use it."""
    base_url: str
    model: str
    adapted: str
    """The name of the model with the adapter."""
    process: subprocess.Popen[str]


SERVE = ["llm.dtype=float32", "llm.resources={CPU: 1}", f"llm.max_model_len={CONTEXT}"]
SERVE += ["llm.engine_kwargs={enforce_eager: true, kv_cache_memory_bytes: 100000000, enable_chunked_prefill: false}"]
"""On CPUs, vLLM 0.32 dies of a seeded call whose prompt it reads in parts."""


@pytest.fixture(scope="module")
def served_llama(llama: Path, adapter: Path, ray_cluster: RayCluster) -> Iterator[ServedLlama]:
    """The Llama as Ray places it, alone and with the adapter, by `kgqa llm serve`."""
    command = [*KGQA, "llm", "serve", f"llm.model={llama}", *SERVE, f"address={ray_cluster.address}"]
    command += [f"llm.roles={{parog.plan: {{adapter: {adapter}}}}}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, f"kgqa llm serve ended with {process.wait()}"
            words = shlex.split(line)
            (base_url,), (model, adapted) = (
                set(re.findall(r"urls\W+(http[^]]+)", line)),
                re.findall(r"model\W+([^\s,]+)", line),
            )
            yield ServedLlama(words[:3], base_url, model, adapted, process)
        finally:
            process.terminate()
            assert process.wait(60) == 0
