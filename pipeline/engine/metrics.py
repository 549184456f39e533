"""What a run tells Prometheus: the metrics, where they come from, and the two ways by which they leave a process.

A recorder adds up what finished questions did and tells it about once a second, so that a model call costs the worker
a sum and an append. Methods and ports know nothing of it: all is read off the trace row and off the clients' notes of
their servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import prometheus_client as prometheus

from pipeline.errors import UserError
from pipeline.traces.schema import Step, TraceRow
from pipeline.traffic import Traffic

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of histograms in seconds."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Ray exports it with `ray_` before its name, which `infra/monitoring` takes off again."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    """Besides `run`, the name of the run folder."""


QUESTIONS = Metric("kgqa_questions_total", "counter", "Questions finished.", ("method", "status"))
QUESTION_SECONDS = Metric("kgqa_question_seconds", "histogram", "From the start of a question to its row.", ("method",))
MODEL_CALLS = Metric("kgqa_model_calls_total", "counter", "Model calls of finished questions.", ("role", "shared"))
MODEL_CALL_SECONDS = Metric("kgqa_model_call_seconds", "histogram", "Waiting for calls not shared.", ("role",))
TOKENS = Metric("kgqa_tokens_total", "counter", "Tokens of finished questions.", ("kind", "shared"))
PARSE_FAILURES = Metric("kgqa_parse_failures_total", "counter", "Replies that could not be parsed.", ("role",))
GRAPH_LOOKUPS = Metric("kgqa_graph_lookups_total", "counter", "Batched lookups of finished questions.", ("operation",))
GRAPH_QUERIES = Metric("kgqa_graph_queries_total", "counter", "Physical queries that lookups caused.", ("operation",))
IN_FLIGHT = Metric("kgqa_questions_in_flight", "gauge", "Questions that a worker is busy with.")
QUEUED = Metric("kgqa_questions_queued", "gauge", "Questions that a worker has leased and not begun.")
LOOP_LAG = Metric("kgqa_loop_lag_seconds", "gauge", "The longest that anything kept a worker's event loop.")
SERVER_SECONDS = Metric("kgqa_server_seconds", "histogram", "Answers of a server, each request.", ("kind", "server"))
SERVER_FAILURES = Metric("kgqa_server_failures_total", "counter", "Requests without answer.", ("kind", "server"))
SERVER_USABLE = Metric("kgqa_server_usable", "gauge", "1 while a worker sends requests there.", ("kind", "server"))

METRICS = (
    *(QUESTIONS, QUESTION_SECONDS, MODEL_CALLS, MODEL_CALL_SECONDS, TOKENS, PARSE_FAILURES),
    *(GRAPH_LOOKUPS, GRAPH_QUERIES, IN_FLIGHT, QUEUED, LOOP_LAG, SERVER_SECONDS, SERVER_FAILURES, SERVER_USABLE),
)

Tell = Callable[[Metric, float, tuple[str, ...]], None]
"""Adds to a counter, sets a gauge or observes in a histogram; the last argument are the values of the labels."""


class Recorder:
    """What one worker has done since it last told."""

    def __init__(self, tell: Tell) -> None:
        """`tell` is one of the ways out below."""
        self._tell = tell
        self._sums: Counter[tuple[Metric, tuple[str, ...]]] = Counter()
        self._seconds: list[tuple[Metric, float, tuple[str, ...]]] = []
        self._failures: Counter[int] = Counter()
        self.queued = 0
        self.in_flight = 0

    def begin(self) -> None:
        """Note that a queued question is begun."""
        self.queued -= 1
        self.in_flight += 1

    def add(self, row: TraceRow) -> None:
        """Add a finished question."""
        self._sums[QUESTIONS, (row.method, row.answer.status)] += 1
        self._seconds.append((QUESTION_SECONDS, row.counters.wall_s, (row.method,)))
        for step in row.steps:
            if step.kind == "llm":
                self._add_call(step)
            elif step.kind == "kg":
                self._sums[GRAPH_LOOKUPS, (step.role,)] += 1
                self._sums[GRAPH_QUERIES, (step.role,)] += step.queries or 0

    def _add_call(self, step: Step) -> None:
        shared = "true" if step.shared else "false"
        self._sums[MODEL_CALLS, (step.role, shared)] += 1
        if not step.shared:
            self._seconds.append((MODEL_CALL_SECONDS, step.duration_s, (step.role,)))
        if step.completion is None:
            return
        self._sums[TOKENS, ("prompt", shared)] += step.prompt_tokens or 0
        self._sums[TOKENS, ("completion", shared)] += step.completion_tokens or 0
        if step.error is not None:
            self._sums[PARSE_FAILURES, (step.role,)] += 1

    def tell(self, servers: Sequence[Traffic], loop_lag_s: float) -> None:
        """Tell all that was added, and how things stand."""
        for server in servers:
            self._add_server(server)
        for (metric, labels), count in self._sums.items():
            if count:
                self._tell(metric, count, labels)
        for metric, seconds, labels in self._seconds:
            self._tell(metric, seconds, labels)
        self._sums.clear()
        self._seconds.clear()
        for metric, value in ((QUEUED, self.queued), (IN_FLIGHT, self.in_flight), (LOOP_LAG, loop_lag_s)):
            self._tell(metric, value, ())

    def _add_server(self, server: Traffic) -> None:
        labels = (server.kind, server.url)
        while server.latencies:
            self._seconds.append((SERVER_SECONDS, server.latencies.popleft(), labels))
        self._sums[SERVER_FAILURES, labels] += server.failures - self._failures[id(server)]
        self._failures[id(server)] = server.failures
        self._tell(SERVER_USABLE, float(server.usable), labels)


def through_ray(run: str) -> Tell:
    """Out of a Ray worker: the agent of its node exports what all its workers tell."""
    from ray.util import metrics as ray_metrics  # Ray takes a second to import

    def make(metric: Metric) -> Callable[..., None]:
        keys = ("run", *metric.labels)
        match metric.kind:
            case "counter":
                return ray_metrics.Counter(metric.name, metric.meaning, keys).inc  # type: ignore[no-any-return]
            case "gauge":
                return ray_metrics.Gauge(metric.name, metric.meaning, keys).set  # type: ignore[no-any-return]
            case "histogram":
                made = ray_metrics.Histogram(metric.name, metric.meaning, list(_BUCKETS), keys)
                return made.observe  # type: ignore[no-any-return]

    made = {metric.name: make(metric) for metric in METRICS}

    def tell(metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        made[metric.name](value, dict(zip(metric.labels, labels, strict=True), run=run))

    return tell


@contextmanager
def on_port(port: int | None, run: str) -> Iterator[Tell]:
    """Out of a single process: a page on the loopback interface, or nowhere when there is no port.

    Raises UserError when the port is taken.
    """
    if port is None:
        yield _nowhere
        return
    registry = prometheus.CollectorRegistry()
    made = {metric.name: _make(metric, registry) for metric in METRICS}

    def tell(metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        made[metric.name](dict(zip(metric.labels, labels, strict=True), run=run), value)

    try:
        server, thread = prometheus.start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise UserError(f"engine.metrics_port={port} cannot be used ({error.strerror}): name another port") from None
    try:
        yield tell
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _nowhere(metric: Metric, value: float, labels: tuple[str, ...]) -> None:
    pass


def _make(metric: Metric, registry: prometheus.CollectorRegistry) -> Callable[[Mapping[str, str], float], None]:
    keys = ("run", *metric.labels)
    match metric.kind:
        case "counter":
            counter = prometheus.Counter(metric.name, metric.meaning, keys, registry=registry)
            return lambda labels, value: counter.labels(**labels).inc(value)
        case "gauge":
            gauge = prometheus.Gauge(metric.name, metric.meaning, keys, registry=registry)
            return lambda labels, value: gauge.labels(**labels).set(value)
        case "histogram":
            histogram = prometheus.Histogram(metric.name, metric.meaning, keys, registry=registry, buckets=_BUCKETS)
            return lambda labels, value: histogram.labels(**labels).observe(value)
