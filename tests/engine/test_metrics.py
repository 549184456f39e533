"""Metrics: what a recorder computes from rows and servers, and the page of a single process."""

from __future__ import annotations

import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.engine import metrics
from pipeline.engine.metrics import METRICS, Metric, Recorder, serve_metrics
from pipeline.errors import UserError
from pipeline.net.server_stats import ServerStats
from pipeline.traces.schema import OVER_LIMIT, Counters, Step, TraceRow
from pipeline.types import Answer, Example, Gold, Question, Scores


def row(*steps: Step, status: Any = "ok") -> TraceRow:
    example = Example(Question("q", "synthetic", "test", "?"), Gold())
    return TraceRow(0, "srp", example, Answer(status=status), Scores(), Counters(wall_s=2.0), list(steps))


def call(role: str = "judge", *, tokens: tuple[int, int] = (10, 2), **fields: Any) -> Step:
    prompt, completion = tokens
    known = {"duration_s": 0.5, "completion": "", "prompt_tokens": prompt, "completion_tokens": completion}
    return Step(0, "llm", role, 0.0, **(known | fields))


class Emitted:
    """Collects what is emitted."""

    def __init__(self) -> None:
        self.sums: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.observed: list[tuple[str, float, tuple[str, ...]]] = []
        self.gauges: dict[tuple[str, tuple[str, ...]], float] = {}

    def __call__(self, metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        assert len(labels) == len(metric.labels)
        match metric.kind:
            case "counter":
                assert value > 0, "Ray refuses to add 0"
                self.sums[metric.name, labels] += value
            case "gauge":
                self.gauges[metric.name, labels] = value
            case "histogram":
                self.observed.append((metric.name, value, labels))


def test_a_row_is_counted_once_and_calls_by_whether_they_were_shared() -> None:
    emitted = Emitted()
    recorder = Recorder(emitted)
    lookup = Step(0, "kg", "relations", 0.0, queries=3)
    recorder.add(row(call(), call(shared=True, tokens=(7, 1)), call("answer", error="no list"), lookup))
    recorder.add(row(call(completion=None, error="ServiceError: gone"), status="failed"))
    over_limit = call("plan", error=f"{OVER_LIMIT}the plan has 3 sub-goals", tokens=(0, 0))
    recorder.add(row(over_limit))  # the reply was read, so its model or its chat template is not to blame
    for _ in range(2):
        recorder.emit([], 0.25)
    assert emitted.sums == {
        ("kgqa_questions_total", ("srp", "ok")): 2,
        ("kgqa_questions_total", ("srp", "failed")): 1,
        ("kgqa_model_calls_total", ("plan", "false")): 1,
        ("kgqa_model_calls_total", ("judge", "false")): 2,
        ("kgqa_model_calls_total", ("judge", "true")): 1,
        ("kgqa_model_calls_total", ("answer", "false")): 1,
        ("kgqa_tokens_total", ("prompt", "false")): 20,
        ("kgqa_tokens_total", ("completion", "false")): 4,
        ("kgqa_tokens_total", ("prompt", "true")): 7,
        ("kgqa_tokens_total", ("completion", "true")): 1,
        ("kgqa_parse_failures_total", ("answer",)): 1,
        ("kgqa_graph_lookups_total", ("relations",)): 1,
        ("kgqa_graph_queries_total", ("relations",)): 3,
    }
    seconds = Counter((name, labels) for name, _, labels in emitted.observed)
    assert seconds["kgqa_model_call_seconds", ("judge",)] == 2
    assert seconds["kgqa_question_seconds", ("srp",)] == 3
    assert emitted.gauges["kgqa_loop_lag_seconds", ()] == 0.25


def test_a_question_is_queued_until_it_starts() -> None:
    emitted = Emitted()
    recorder = Recorder(emitted)

    def gauges() -> tuple[float, float]:
        recorder.emit([], 0.0)
        return emitted.gauges["kgqa_questions_queued", ()], emitted.gauges["kgqa_questions_in_flight", ()]

    with recorder.shard(3) as running:
        assert gauges() == (3, 0)
        with running():
            assert gauges() == (2, 1)
    assert gauges() == (0, 0), "also of a shard that is given up"


def test_servers_of_one_address_are_added_up_and_each_latency_is_emitted_once() -> None:
    emitted = Emitted()
    recorder = Recorder(emitted)
    servers = [ServerStats("model", "http://a"), ServerStats("model", "http://a"), ServerStats("graph", "http://b")]
    servers[0].latencies.extend([0.1, 0.2])
    servers[0].failures = 2
    servers[1].failures = 1
    servers[2].healthy = False
    recorder.emit(servers, 0.0)
    servers[1].failures = 4
    recorder.emit(servers, 0.0)
    assert emitted.sums == {("kgqa_server_failures_total", ("model", "http://a")): 6}
    assert [(value, labels) for _, value, labels in emitted.observed] == [
        (0.1, ("model", "http://a")),
        (0.2, ("model", "http://a")),
    ]
    assert emitted.gauges["kgqa_server_usable", ("graph", "http://b")] == 0
    assert emitted.gauges["kgqa_server_usable", ("model", "http://a")] == 1


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_the_page_of_a_single_process_has_every_metric(port: int) -> None:
    with serve_metrics(port, "runs/x") as emit:
        for metric in METRICS:
            emit(metric, 1.0, tuple(f"a {label}" for label in metric.labels))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
            families = list(text_string_to_metric_families(response.read().decode()))
    samples = {sample.name: sample.labels for family in families for sample in family.samples}
    for metric in METRICS:
        name = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
        assert samples[name] == {"run": "runs/x", **{label: f"a {label}" for label in metric.labels}}
    with serve_metrics(port, "the port is free again"):
        pass


def test_a_port_in_use_is_a_user_error(port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(UserError, match=f"engine.metrics_port={port} cannot be used"), serve_metrics(port, "x"):
            pass


def test_names_follow_the_conventions_of_prometheus() -> None:
    """Counters end in _total, times are in seconds."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert set(METRICS) == {each for each in vars(metrics).values() if isinstance(each, Metric)}
    for metric in METRICS:
        assert metric.name.startswith("kgqa_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.kind != "histogram" or metric.name.endswith("_seconds")
