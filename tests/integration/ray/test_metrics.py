"""What Ray's own metrics page and a real Prometheus tell of a run, against its summary and traces."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pipeline.cli.benchmarks.server import MODEL, serving
from pipeline.config import default
from pipeline.engine.metrics import METRICS
from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.llm.vllm import VllmServer
from pipeline.simulation.world.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from tests.infra.support import MONITORING, OF_VLLM, dashboards, expressions

pytestmark = pytest.mark.exhaustive

WORDS = [
    *("sweep", "method=srp", "method.retries=0,1", "dataset.triples=1000", "dataset.questions=24"),
    *("engine=ray", "engine.workers=2", "engine.shard_size=4", "engine.log=json"),
]


@dataclass
class Observed:
    """A finished run, and the Ray node that it ran on."""

    run: RunFolder
    ray: Path
    """The folder of the node."""
    port: int
    model: str
    graphs: list[str]

    @property
    def steps(self) -> pl.DataFrame:
        return pl.read_parquet(self.run.traces).select("point", "steps").explode("steps").unnest("steps")

    def page(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """The samples of the node's page by name, those of all workers added up, with the labels that we give."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as response:
            text = response.read().decode()
        ours = {"run", *(label for metric in METRICS for label in metric.labels), "le"}
        samples: defaultdict[str, Counter[tuple[tuple[str, str], ...]]] = defaultdict(Counter)
        for family in text_string_to_metric_families(text):
            for name, labels, value, *_ in family.samples:
                if name.startswith("ray_kgqa_"):
                    kept = tuple(sorted(label for label in labels.items() if label[0] in ours))
                    samples[name.removeprefix("ray_")][kept] += value
        return {name: dict(values) for name, values in samples.items()}


@pytest.fixture(scope="module")
def observed(
    tmp_path_factory: pytest.TempPathFactory, virtuoso_factory: Callable[..., list[VirtuosoServer]]
) -> Iterator[Observed]:
    run = tmp_path_factory.mktemp("observed") / "run"
    graphs = [
        server.endpoint for server in virtuoso_factory(default(SyntheticWorld, triples=1000).triples(), replicas=2)
    ]
    ray = Path(tempfile.mkdtemp(prefix="ray-"))  # the paths of Ray's sockets must be short
    with serving(latency_s=0.01) as model:
        words = [*WORDS, "llm=endpoint", f"llm.base_urls=[{model}]", f"llm.model={MODEL}", f"run.dir={run}"]
        words += ["kg=sparql", f"kg.endpoints=[{','.join(graphs)}]"]
        command = [sys.executable, str(Path(__file__).with_name("observed_ray.py")), str(ray), *words]
        with (
            (ray / "driver.err").open("w") as said,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, env=environment()
            ) as node,
        ):
            assert node.stdin
            assert node.stdout
            try:
                port = next(int(line) for line in node.stdout if line.strip().isdigit())
                yield Observed(RunFolder(run), ray, port, model, graphs)
            finally:
                node.stdin.close()
                node.wait(timeout=60)
                shutil.rmtree(ray, ignore_errors=True)


def records(file: Path) -> list[dict[str, Any]]:
    """The JSON lines among what Ray has to say."""
    return [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}


def eventually(read: Callable[[], Any], expected: Any) -> Any:
    """What is read at last: Ray and Prometheus tell what they know a moment later."""
    until = time.monotonic() + 60
    while (found := read()) != expected and time.monotonic() < until:
        time.sleep(0.2)
    return found


def total(samples: dict[tuple[tuple[str, str], ...], float], **labels: str) -> float:
    return sum(value for found, value in samples.items() if labels.items() <= dict(found).items())


def counted(observed: Observed) -> dict[str, float]:
    page = observed.page()
    calls, tokens = page["kgqa_model_calls_total"], page["kgqa_tokens_total"]
    return {
        "questions": total(page["kgqa_questions_total"]),
        "failed": total(page["kgqa_questions_total"], status="failed"),
        "logical_llm_calls": total(calls),
        "physical_llm_calls": total(calls, shared="false"),
        "timed calls": total(page["kgqa_model_call_seconds_count"]),
        "prompt_tokens": total(tokens, kind="prompt"),
        "completion_tokens": total(tokens, kind="completion"),
        "parse_failures": total(page["kgqa_parse_failures_total"]),
        "kg_lookups": total(page["kgqa_graph_lookups_total"]),
        "physical_kg_queries": total(page["kgqa_graph_queries_total"]),
        "in flight": total(page["kgqa_questions_in_flight"]),
        "queued": total(page["kgqa_questions_queued"]),
    }


def test_the_page_of_a_ray_node_counts_what_the_summary_counts(observed: Observed) -> None:
    summary = json.loads((observed.run.path / "summary.json").read_text())
    rows = pl.read_parquet(observed.run.traces)
    expected = {
        "questions": len(rows),
        "failed": rows.filter(pl.col("status") == "failed").height,
        **{name: summary[name] for name in ("logical_llm_calls", "physical_llm_calls", "physical_kg_queries")},
        "timed calls": summary["physical_llm_calls"],
        **{name: rows[name].sum() for name in ("prompt_tokens", "completion_tokens", "parse_failures", "kg_lookups")},
        "in flight": 0,
        "queued": 0,
    }
    assert eventually(lambda: counted(observed), expected) == expected
    assert len(rows) == 48
    assert expected["logical_llm_calls"] > expected["physical_llm_calls"] > 0
    assert expected["parse_failures"] > 0
    assert expected["physical_kg_queries"] > 0


def test_ray_serves_both_replicas_and_the_model_to_the_page(observed: Observed) -> None:
    page = observed.page()
    for server in observed.graphs:
        assert total(page["kgqa_server_seconds_count"], kind="graph", server=server) > 0
    assert total(page["kgqa_server_seconds_count"], kind="model", server=observed.model) >= total(
        page["kgqa_model_calls_total"], shared="false"
    )
    within = total(page["kgqa_server_seconds_bucket"], kind="model", le="0.005")
    assert within == 0, "the server takes twice as long as that"
    assert all(dict(labels)["run"] == "run" for values in page.values() for labels in values)


def test_the_logs_are_json_lines_of_driver_and_workers(observed: Observed) -> None:
    said = [record["message"] for record in records(observed.ray / "driver.err")]
    assert f"run folder: {observed.run.path}" in said
    assert said[-1].startswith("questions × configurations 48/48 · ")
    logs = (observed.ray / "session_latest" / "logs").glob("worker-*.err")
    written = [record | {"file": file.name} for file in logs for record in records(file)]
    committed = [record for record in written if record["message"] == "shard committed"]
    assert sorted(record["shard"] for record in committed) == list(range(6))
    assert {record["rows"] for record in committed} == {8}
    assert {record["run"] for record in committed} == {"run"}
    assert all(record["worker"] in record["file"] for record in committed), "a worker is called what Ray calls it"


@contextmanager
def prometheus(observed: Observed, folder: Path) -> Iterator[Callable[[str], Any]]:
    """The Prometheus of the containers beside the node: gives what asks its API."""
    listed = observed.ray / "prom_metrics_service_discovery.json"
    assert eventually(listed.exists, True)
    nodes = json.loads(listed.read_text())
    here = [
        {**node, "targets": [f"127.0.0.1:{target.rpartition(':')[2]}" for target in node["targets"]]} for node in nodes
    ]
    (folder / "nodes.json").write_text(json.dumps(here))
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] == "ray"]
    config["scrape_configs"][0]["file_sd_configs"][0]["files"] = [str(folder / "nodes.json")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(MONITORING / "rules.yml", folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*free.getsockname())
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--web.listen-address={address}"]
    with subprocess.Popen([*command, f"--storage.tsdb.path={folder / 'data'}", "--log.level=error"]) as server:

        def ask(path: str) -> Any:
            try:
                with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=30) as response:
                    return json.loads(response.read())["data"]
            except urllib.error.HTTPError as error:
                if error.code == 503:  # not ready yet
                    return None
                pytest.fail(f"{path}: {error.read().decode()}")
            except OSError:  # not up yet
                assert server.poll() is None
                return None

        try:
            yield ask
        finally:
            server.terminate()


QUIET = {"Share that failed", "Failures", "Workers that treat it as unhealthy"}
"""Panels that show nothing while all is well."""

OF_RUNNING_WORKERS = {"In flight and waiting", "Event loop delay"}
"""Panels of gauges: Ray exports them only while a worker is running, and the run may have ended."""


def test_a_model_server_has_the_metrics_that_dashboards_and_rules_ask_for(vllm_server: VllmServer) -> None:
    with urllib.request.urlopen(vllm_server.metrics_url, timeout=30) as response:
        families = text_string_to_metric_families(response.read().decode())
    labels = {sample.name: sample.labels for family in families for sample in family.samples}
    assert labels.keys() >= OF_VLLM
    assert all("model_name" in labels[name] for name in OF_VLLM)
    assert "finished_reason" in labels["vllm:request_success_total"]


def test_the_dashboards_show_the_run_in_a_real_prometheus(observed: Observed, tmp_path: Path) -> None:
    panels = {
        panel["title"]: expression
        for panel in dashboards()["runs.json"]["panels"]
        for expression in expressions({"panels": [panel]})
    }
    with prometheus(observed, tmp_path) as ask:

        def value(expression: str) -> list[float]:
            answer = ask(f"query?{urllib.parse.urlencode({'query': expression})}")
            return [float(series["value"][1]) for series in answer["result"]] if answer else []

        assert eventually(lambda: value("sum(kgqa_questions_total)"), [48.0]) == [48.0]
        counters = {title: asked for title, asked in panels.items() if title not in OF_RUNNING_WORKERS}
        assert len(counters) == len(panels) - len(OF_RUNNING_WORKERS)
        empty = eventually(lambda: {title for title, asked in counters.items() if not value(asked)}, QUIET)
        assert empty == QUIET
        assert {group["name"] for group in ask("rules")["groups"]} == {"kgqa", "serving"}
        assert {target["health"] for target in ask("targets")["activeTargets"]} == {"up"}
