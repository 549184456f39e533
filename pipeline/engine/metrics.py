"""The Prometheus metrics of a run: their definitions, how they are computed, and two ways to export them.

A recorder sums up finished questions and emits the sums about once a second, so that a model call costs the worker one
addition and one append. Methods do not know the metrics: all values come from the trace rows and from the statistics
that clients keep of their servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

import prometheus_client as prometheus

from pipeline.errors import UserError
from pipeline.net.server_stats import ServerStats
from pipeline.traces.schema import OVER_LIMIT, Step, TraceRow

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of histograms in seconds."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Ray exports it under the prefix `ray_`, which `infra/monitoring` removes."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    """Besides `run`, the name of the run folder."""


QUESTIONS = Metric("kgqa_questions_total", "counter", "Questions finished.", ("method", "status"))
QUESTION_SECONDS = Metric("kgqa_question_seconds", "histogram", "From the start of a question to its row.", ("method",))
MODEL_CALLS = Metric("kgqa_model_calls_total", "counter", "Model calls of finished questions.", ("role", "shared"))
MODEL_CALL_SECONDS = Metric("kgqa_model_call_seconds", "histogram", "Waiting time of unshared calls.", ("role",))
TOKENS = Metric("kgqa_tokens_total", "counter", "Tokens of finished questions.", ("kind", "shared"))
PARSE_FAILURES = Metric("kgqa_parse_failures_total", "counter", "Replies that could not be parsed.", ("role",))
GRAPH_LOOKUPS = Metric("kgqa_graph_lookups_total", "counter", "Batched lookups of finished questions.", ("operation",))
GRAPH_QUERIES = Metric("kgqa_graph_queries_total", "counter", "Physical queries that lookups caused.", ("operation",))
IN_FLIGHT = Metric("kgqa_questions_in_flight", "gauge", "Questions that a worker is running.")
QUEUED = Metric("kgqa_questions_queued", "gauge", "Questions that a worker has leased and not started.")
LOOP_LAG = Metric("kgqa_loop_lag_seconds", "gauge", "The longest time that anything blocked a worker's event loop.")
SERVER_SECONDS = Metric("kgqa_server_seconds", "histogram", "Latency of answered requests.", ("kind", "server"))
SERVER_FAILURES = Metric("kgqa_server_failures_total", "counter", "Requests without an answer.", ("kind", "server"))
SERVER_USABLE = Metric("kgqa_server_usable", "gauge", "1 while a worker sends requests there.", ("kind", "server"))

METRICS = (
    *(QUESTIONS, QUESTION_SECONDS, MODEL_CALLS, MODEL_CALL_SECONDS, TOKENS, PARSE_FAILURES),
    *(GRAPH_LOOKUPS, GRAPH_QUERIES, IN_FLIGHT, QUEUED, LOOP_LAG, SERVER_SECONDS, SERVER_FAILURES, SERVER_USABLE),
)

Emit = Callable[[Metric, float, tuple[str, ...]], None]
"""Adds to a counter, sets a gauge, or adds a value to a histogram. The last argument holds the values of the labels."""

Running: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Returns a context that counts a question as running."""


class Recorder:
    """The sums of one worker since it last emitted them."""

    def __init__(self, emit: Emit) -> None:
        """Take one of the exporters below."""
        self._emit = emit
        self._sums: Counter[tuple[Metric, tuple[str, ...]]] = Counter()
        self._seconds: list[tuple[Metric, float, tuple[str, ...]]] = []
        self._failures: Counter[int] = Counter()
        self.queued = 0
        self.in_flight = 0

    @contextmanager
    def shard(self, questions: int) -> Iterator[Running]:
        """Count the questions of a shard as queued until they run, also if the shard ends before that.

        Gives the context of each question that runs.
        """
        waiting = questions

        @contextmanager
        def running() -> Iterator[None]:
            nonlocal waiting
            waiting -= 1
            self.queued -= 1
            self.in_flight += 1
            try:
                yield
            finally:
                self.in_flight -= 1

        self.queued += questions
        try:
            yield running
        finally:
            self.queued -= waiting

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
        if step.error is not None and not step.error.startswith(OVER_LIMIT):
            self._sums[PARSE_FAILURES, (step.role,)] += 1

    def emit(self, servers: Sequence[ServerStats], loop_lag_s: float) -> None:
        """Emit the sums and the current values of the gauges."""
        for server in servers:
            self._add_server(server)
        for (metric, labels), count in self._sums.items():
            if count:
                self._emit(metric, count, labels)
        for metric, seconds, labels in self._seconds:
            self._emit(metric, seconds, labels)
        self._sums.clear()
        self._seconds.clear()
        for metric, value in ((QUEUED, self.queued), (IN_FLIGHT, self.in_flight), (LOOP_LAG, loop_lag_s)):
            self._emit(metric, value, ())

    def _add_server(self, server: ServerStats) -> None:
        labels = (server.kind, server.url)
        while server.latencies:
            self._seconds.append((SERVER_SECONDS, server.latencies.popleft(), labels))
        self._sums[SERVER_FAILURES, labels] += server.failures - self._failures[id(server)]
        self._failures[id(server)] = server.failures
        self._emit(SERVER_USABLE, float(server.healthy), labels)


def emit_through_ray(run: str) -> Emit:
    """Return the exporter of a Ray worker: the agent of its node exports the metrics of all its workers."""
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

    def emit(metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        made[metric.name](value, dict(zip(metric.labels, labels, strict=True), run=run))

    return emit


@contextmanager
def serve_metrics(port: int | None, run: str) -> Iterator[Emit]:
    """Yield the exporter of a single process: a page on the loopback interface, or no export if `port` is None.

    Raises UserError if the port is in use.
    """
    if port is None:
        yield lambda *_: None
        return
    registry = prometheus.CollectorRegistry()
    made = {metric.name: _make(metric, registry) for metric in METRICS}

    def emit(metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        made[metric.name](dict(zip(metric.labels, labels, strict=True), run=run), value)

    try:
        server, thread = prometheus.start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise UserError(f"engine.metrics_port={port} cannot be used ({error.strerror}): name another port") from None
    try:
        yield emit
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
