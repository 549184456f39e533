"""Simulates a run on a cluster: questions queue at stations, each of which has a number of parallel servers.

The simulation models `pipeline.engine`. Workers lease shards from the coordinator while they have room for them, start
questions as slots become free, and write a shard when all of it is answered. A question proceeds in rounds: its calls
pass a worker's CPU, occupy a slot of a GPU while their prompt is read and their reply is written, and then its lookups
pass a graph server. Load balancing is perfect, and nothing fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush, heapreplace
from itertools import count
from random import Random
from typing import TypeAlias

from pipeline.engine.open_shards import most_open_shards
from pipeline.simulation.cluster.workload import QuestionWorkload

Process: TypeAlias = Iterator[float]
"""A part of the simulation that yields the time, in seconds, at which it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The number of servers of each station, and their service times in seconds."""

    coordinators: int = 1
    lease_s: float
    workers: int
    call_s: float
    """CPU time of a worker, per call."""
    gpus: int = 1
    prompt_token_s: float = 0.0
    """Time of a GPU, which reads one prompt at a time."""
    slots: int
    """Concurrent calls, over all GPUs."""
    token_s: float = 0.0
    """Time of a slot, per token of a reply."""
    answer_s: float = 0.0
    """Time of a slot, per call, independent of length."""
    replicas: int
    entity_s: float
    """Time of a graph server, per entity looked up."""
    stores: int = 1
    put_s: float
    in_flight: int
    """Questions in flight at a time."""
    shard_size: int


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The duration and utilisation of a simulated run."""

    wall_s: float
    busy: Mapping[str, float]
    """Station → the share of time in which its servers were busy, 0 to 1."""

    @property
    def bottleneck(self) -> str:
        """The busiest station."""
        return max(self.busy, key=self.busy.__getitem__)


class Station:
    """Servers with one common queue, first in, first out. Requests are made in the order of their times.

    The end of a request therefore follows from the earlier requests, without an event for each change of the queue.
    """

    def __init__(self, servers: int) -> None:
        """Create a station of `servers`, each of which serves one request at a time."""
        self._free_at = [0.0] * servers
        self.busy_s = 0.0

    def serve(self, now: float, seconds: float, first: tuple[Station, float] | None = None) -> float:
        """Return when a request made at `now` ends.

        A server is occupied for `seconds`, and before that, if `first` is given, until that station has served the
        request for that many seconds.
        """
        begins = now if now > (free_at := self._free_at[0]) else free_at
        ends = (begins if first is None else first[0].serve(begins, first[1])) + seconds
        heapreplace(self._free_at, ends)
        self.busy_s += ends - begins
        return ends

    def utilisation(self, wall_s: float) -> float:
        """Return the share of `wall_s` in which the servers were busy."""
        return self.busy_s / (wall_s * len(self._free_at)) if wall_s else 0.0


@dataclass(slots=True)
class _Shard:
    unanswered: int


class _Run:
    """One simulated run: its stations and its processes."""

    def __init__(self, cluster: Cluster, questions: Sequence[QuestionWorkload]) -> None:
        size = cluster.shard_size
        self._cluster = cluster
        self._shards = [questions[at : at + size] for at in range(0, len(questions), size)]
        self.stations = {
            "coordinator": Station(cluster.coordinators),
            "workers": Station(cluster.workers),
            "prefill": Station(cluster.gpus),
            "slots": Station(cluster.slots),
            "Virtuoso": Station(cluster.replicas),
            "object store": Station(cluster.stores),
        }
        self._free_slots = cluster.in_flight
        self._unanswered = 0
        self._open = 0
        self._waiting: deque[tuple[QuestionWorkload, _Shard]] = deque()
        self._number = count()
        self._events: list[tuple[float, int, Process]] = []
        self._lease_shards(0.0)

    def finish(self) -> float:
        """Run all processes in the order of their times, and return the time at the end."""
        now = 0.0
        while self._events:
            now, _, process = heappop(self._events)
            if (then := next(process, None)) is not None:
                heappush(self._events, (then, next(self._number), process))
        return now

    def _lease_shards(self, now: float) -> None:
        """Lease shards as long as the workers have room: questions for all slots, and one more shard for each worker.

        The same rule as that of `pipeline.engine.open_shards`.
        """
        size, in_flight = self._cluster.shard_size, self._cluster.in_flight
        enough, most = in_flight + size * self._cluster.workers, most_open_shards(in_flight, size)
        while self._shards and self._unanswered < enough and self._open < most:
            questions = self._shards.pop()
            self._unanswered += len(questions)
            self._open += 1
            heappush(self._events, (now, next(self._number), self._lease(now, questions)))

    def _lease(self, now: float, questions: Sequence[QuestionWorkload]) -> Process:
        """Lease a shard, and put its questions in line for the slots in flight."""
        now = self.stations["coordinator"].serve(now, self._cluster.lease_s)
        yield now
        shard = _Shard(len(questions))
        self._waiting.extend((question, shard) for question in questions)
        self._fill_slots(now)

    def _fill_slots(self, now: float) -> None:
        while self._free_slots and self._waiting:
            self._free_slots -= 1
            heappush(self._events, (now, next(self._number), self._question(now, *self._waiting.popleft())))

    def _question(self, now: float, workload: QuestionWorkload, shard: _Shard) -> Process:
        """Answer a question in rounds. After the last one of its shard, write the shard."""
        rounds, all_calls = max(1, workload.rounds), workload.calls
        lookup_s = workload.entities / rounds * self._cluster.entity_s
        for number in range(rounds):
            calls = all_calls * (number + 1) // rounds - all_calls * number // rounds
            if calls:
                now = self._call(now, calls, workload)
                yield now
            if lookup_s:
                now = self.stations["Virtuoso"].serve(now, lookup_s)
                yield now
        self._free_slots += 1
        self._fill_slots(now)
        self._unanswered -= 1
        self._lease_shards(now)
        shard.unanswered -= 1
        if not shard.unanswered:
            now = self.stations["object store"].serve(now, self._cluster.put_s)
            yield now
            self._open -= 1
            self._lease_shards(now)

    def _call(self, now: float, calls: int, workload: QuestionWorkload) -> float:
        """Make concurrent calls of the question, each of average length, and return when the last one ends.

        All calls take the same time of a worker, so they reach the slots in their order.
        """
        cluster, stations = self._cluster, self.stations
        workers, slots = stations["workers"], stations["slots"]
        reading = stations["prefill"], workload.prompt_tokens / workload.calls * cluster.prompt_token_s
        writing_s = cluster.answer_s + workload.completion_tokens / workload.calls * cluster.token_s
        ends = now
        for _ in range(calls):
            ends = max(ends, slots.serve(workers.serve(now, cluster.call_s), writing_s, first=reading))
        return ends


def draw_questions(measured: Sequence[QuestionWorkload], questions: int, *, seed: int) -> list[QuestionWorkload]:
    """Draw a number of questions, with replacement, from the measured ones."""
    return Random(seed).choices(measured, k=questions)


def longest_s(cluster: Cluster, questions: Sequence[QuestionWorkload]) -> float:
    """Return the seconds of the question that takes longest on an idle cluster: no run is shorter."""
    alone = replace(cluster, in_flight=1)
    return max((_Run(alone, [question]).finish() for question in set(questions)), default=0.0)


def simulate(cluster: Cluster, questions: Sequence[QuestionWorkload]) -> SimulationResult:
    """Simulate a run of the questions."""
    run = _Run(cluster, questions)
    wall_s = run.finish()
    return SimulationResult(wall_s, {name: station.utilisation(wall_s) for name, station in run.stations.items()})
