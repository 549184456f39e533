"""What a recorder makes of rows and servers, and the page of a single process."""

from __future__ import annotations

import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.engine import metrics
from pipeline.engine.metrics import METRICS, Metric, Recorder, on_port
from pipeline.errors import UserError
from pipeline.traces.schema import Counters, Step, TraceRow
from pipeline.traffic import Traffic
from pipeline.types import Answer, Example, Gold, Question, Scores


def row(*steps: Step, status: Any = "ok") -> TraceRow:
    example = Example(Question("q", "sample", "test", "?"), Gold())
    return TraceRow(0, "srp", example, Answer(status=status), Scores(), Counters(wall_s=2.0), list(steps))


def call(role: str = "judge", *, tokens: tuple[int, int] = (10, 2), **fields: Any) -> Step:
    prompt, completion = tokens
    known = {"duration_s": 0.5, "completion": "", "prompt_tokens": prompt, "completion_tokens": completion}
    return Step(0, "llm", role, 0.0, **(known | fields))


class Told:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.sums: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.observed: list[tuple[str, float, tuple[str, ...]]] = []
        self.gauges: dict[tuple[str, tuple[str, ...]], float] = {}

    def __call__(self, metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        assert len(labels) == len(metric.labels)
        match metric.kind:
            case "counter":
                assert value > 0, "Ray refuses to add nothing"
                self.sums[metric.name, labels] += value
            case "gauge":
                self.gauges[metric.name, labels] = value
            case "histogram":
                self.observed.append((metric.name, value, labels))


def test_a_row_is_counted_once_and_calls_by_whether_they_were_shared() -> None:
    told = Told()
    recorder = Recorder(told)
    lookup = Step(0, "kg", "relations", 0.0, queries=3)
    recorder.add(row(call(), call(shared=True, tokens=(7, 1)), call("answer", error="no list"), lookup))
    recorder.add(row(call(completion=None, error="ServiceError: gone"), status="failed"))
    for _ in range(2):
        recorder.tell([], 0.25)
    assert told.sums == {
        ("kgqa_questions_total", ("srp", "ok")): 1,
        ("kgqa_questions_total", ("srp", "failed")): 1,
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
    seconds = Counter((name, labels) for name, _, labels in told.observed)
    assert seconds["kgqa_model_call_seconds", ("judge",)] == 2
    assert seconds["kgqa_question_seconds", ("srp",)] == 2
    assert told.gauges["kgqa_loop_lag_seconds", ()] == 0.25


def test_questions_wait_until_they_are_begun() -> None:
    told = Told()
    recorder = Recorder(told)
    recorder.queued += 3
    recorder.begin()
    recorder.tell([], 0.0)
    assert (told.gauges["kgqa_questions_queued", ()], told.gauges["kgqa_questions_in_flight", ()]) == (2, 1)


def test_servers_of_one_address_are_added_up_and_each_answer_is_told_once() -> None:
    told = Told()
    recorder = Recorder(told)
    servers = [Traffic("model", "http://a"), Traffic("model", "http://a"), Traffic("graph", "http://b")]
    servers[0].latencies.extend([0.1, 0.2])
    servers[0].failures = 2
    servers[1].failures = 1
    servers[2].usable = False
    recorder.tell(servers, 0.0)
    servers[1].failures = 4
    recorder.tell(servers, 0.0)
    assert told.sums == {("kgqa_server_failures_total", ("model", "http://a")): 6}
    assert [(value, labels) for _, value, labels in told.observed] == [
        (0.1, ("model", "http://a")),
        (0.2, ("model", "http://a")),
    ]
    assert told.gauges["kgqa_server_usable", ("graph", "http://b")] == 0
    assert told.gauges["kgqa_server_usable", ("model", "http://a")] == 1


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_the_page_of_a_single_process_has_every_metric(port: int) -> None:
    with on_port(port, "runs/x") as tell:
        for metric in METRICS:
            tell(metric, 1.0, tuple(f"a {label}" for label in metric.labels))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
            families = list(text_string_to_metric_families(response.read().decode()))
    samples = {sample.name: sample.labels for family in families for sample in family.samples}
    for metric in METRICS:
        name = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
        assert samples[name] == {"run": "runs/x", **{label: f"a {label}" for label in metric.labels}}
    with on_port(port, "the port is free again"):
        pass


def test_a_port_that_is_taken_is_told(port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(UserError, match=f"engine.metrics_port={port} cannot be used"), on_port(port, "x"):
            pass


def test_names_say_what_is_counted() -> None:
    """As Prometheus wants them: counters end in _total, times are in seconds."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert set(METRICS) == {each for each in vars(metrics).values() if isinstance(each, Metric)}
    for metric in METRICS:
        assert metric.name.startswith("kgqa_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.kind != "histogram" or metric.name.endswith("_seconds")
