"""Simulates a run on a cluster: questions queue at stations, each of which has a number of parallel servers.

The simulation models `pipeline.engine`. A lane leases a shard from the coordinator, starts its questions as slots
become free, and writes the shard when all are answered. A question proceeds in rounds: its calls pass a worker's CPU
and the ingress, occupy a slot of a GPU while their prompt is read and their reply is written, and then its lookups pass
a graph server. Load balancing is perfect, and nothing fails.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from pipeline.errors import UserError
from pipeline.simulation.cluster.workload import QuestionWorkload

if TYPE_CHECKING:
    from simpy import Environment

Process: TypeAlias = Generator[Any, Any, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The number of servers of each station, and their service times in seconds."""

    coordinators: int = 1
    lease_s: float
    workers: int
    call_s: float
    """CPU time of a worker, per call."""
    ingresses: int
    request_s: float
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
    """Servers with one common queue, first in, first out."""

    def __init__(self, env: Environment, servers: int) -> None:
        """Create a station of `servers`, each of which serves one request at a time."""
        import simpy  # an extra

        self._env = env
        self._line = simpy.Resource(env, servers)
        self.busy_s = 0.0

    def serve(self, seconds: float, first: Process | None = None) -> Process:
        """Wait for a server. Occupy it during the process `first`, if one is given, and then for `seconds`."""
        with self._line.request() as request:
            yield request
            began = self._env.now
            if first is not None:
                yield from first
            yield self._env.timeout(seconds)
        self.busy_s += self._env.now - began

    def utilisation(self, wall_s: float) -> float:
        """Return the share of `wall_s` in which the servers were busy."""
        return self.busy_s / (wall_s * self._line.capacity) if wall_s else 0.0


class _Run:
    """One simulated run: its stations and its processes."""

    def __init__(self, cluster: Cluster, env: Environment) -> None:
        import simpy

        self._env, self._cluster = env, cluster
        self.stations = {
            "coordinator": Station(env, cluster.coordinators),
            "workers": Station(env, cluster.workers),
            "ingress": Station(env, cluster.ingresses),
            "prefill": Station(env, cluster.gpus),
            "slots": Station(env, cluster.slots),
            "Virtuoso": Station(env, cluster.replicas),
            "object store": Station(env, cluster.stores),
        }
        self._slots = simpy.Resource(env, cluster.in_flight)

    def lane(self, shards: list[Sequence[QuestionWorkload]]) -> Process:
        """Lease and run shards until none is left."""
        while shards:
            shard = shards.pop()
            yield from self.stations["coordinator"].serve(self._cluster.lease_s)
            yield self._env.all_of([self._env.process(self._question(question)) for question in shard])
            yield from self.stations["object store"].serve(self._cluster.put_s)

    def _question(self, workload: QuestionWorkload) -> Process:
        with self._slots.request() as slot:
            yield slot
            rounds = max(1, workload.rounds)
            entities = workload.entities / rounds
            for number in range(rounds):
                calls = workload.calls * (number + 1) // rounds - workload.calls * number // rounds
                if calls == 1:
                    yield from self._call(workload)
                else:
                    yield self._env.all_of([self._env.process(self._call(workload)) for _ in range(calls)])
                if entities:
                    yield from self.stations["Virtuoso"].serve(entities * self._cluster.entity_s)

    def _call(self, workload: QuestionWorkload) -> Process:
        """Make one call of the question, of average length."""
        cluster, stations = self._cluster, self.stations
        yield from stations["workers"].serve(cluster.call_s)
        yield from stations["ingress"].serve(cluster.request_s)
        reading = stations["prefill"].serve(workload.prompt_tokens / workload.calls * cluster.prompt_token_s)
        writing_s = cluster.answer_s + workload.completion_tokens / workload.calls * cluster.token_s
        yield from stations["slots"].serve(writing_s, first=reading)


def draw_questions(measured: Sequence[QuestionWorkload], questions: int, *, seed: int) -> list[QuestionWorkload]:
    """Draw a number of questions, with replacement, from the measured ones."""
    return Random(seed).choices(measured, k=questions)


def simulate(cluster: Cluster, questions: Sequence[QuestionWorkload]) -> SimulationResult:
    """Simulate a run of the questions. Raises UserError if SimPy is not installed."""
    try:
        import simpy
    except ImportError:
        raise UserError("the simulation needs SimPy: pip install kgqa-pipeline[simulate]") from None
    env = simpy.Environment()
    run = _Run(cluster, env)
    size = cluster.shard_size
    shards = [questions[at : at + size] for at in range(0, len(questions), size)]
    for _ in range(2 * math.ceil(cluster.in_flight / size)):
        env.process(run.lane(shards))
    env.run()
    return SimulationResult(env.now, {name: station.utilisation(env.now) for name, station in run.stations.items()})
