"""The simulation: questions pass the stations of a cluster, each of which serves so many at a time, in turn.

A lane leases a shard from the coordinator, starts its questions as slots come free, and writes the shard when all are
answered: `pipeline.engine` on paper. A question goes round after round: its calls pass a worker's processor and
the ingress, take a slot of a GPU while their prompt is read and their reply is written, then its lookups pass a graph
server. Stations are shared perfectly, and nothing fails.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from pipeline.analysis.simulation.demand import Demand
from pipeline.errors import UserError

if TYPE_CHECKING:
    from simpy import Environment

Process: TypeAlias = Generator[Any, Any, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How many servers each station has, and how long one of them is busy. Seconds."""

    coordinators: int = 1
    lease_s: float
    workers: int
    call_s: float
    """Of a worker's processor, per call."""
    ingresses: int
    request_s: float
    gpus: int = 1
    prompt_token_s: float = 0.0
    """Of a GPU, which reads one prompt at a time."""
    slots: int
    """Calls that all GPUs have under way at a time."""
    token_s: float = 0.0
    """Of a slot, per token written."""
    answer_s: float = 0.0
    """Of a slot, per call, whatever its length."""
    replicas: int
    entity_s: float
    """Of a graph server, per entity looked up."""
    stores: int = 1
    put_s: float
    in_flight: int
    """Questions."""
    shard_size: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated run came to."""

    wall_s: float
    busy: Mapping[str, float]
    """Per station the share of the time that its servers were busy, 0 to 1."""

    @property
    def bottleneck(self) -> str:
        """The station that was busiest."""
        return max(self.busy, key=self.busy.__getitem__)


class Station:
    """Servers that take what comes in turn."""

    def __init__(self, env: Environment, servers: int) -> None:
        """`servers` are busy with one thing each."""
        import simpy  # an extra

        self._env = env
        self._line = simpy.Resource(env, servers)
        self.busy_s = 0.0

    def serve(self, seconds: float, first: Process | None = None) -> Process:
        """Wait for a server, and keep it busy, with what comes `first` as well."""
        with self._line.request() as turn:
            yield turn
            began = self._env.now
            if first is not None:
                yield from first
            yield self._env.timeout(seconds)
        self.busy_s += self._env.now - began

    def share(self, wall_s: float) -> float:
        """Of the time that was there."""
        return self.busy_s / (wall_s * self._line.capacity) if wall_s else 0.0


class _Run:
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

    def lane(self, shards: list[Sequence[Demand]]) -> Process:
        """Take shards until there is none."""
        while shards:
            shard = shards.pop()
            yield from self.stations["coordinator"].serve(self._cluster.lease_s)
            yield self._env.all_of([self._env.process(self._question(demand)) for demand in shard])
            yield from self.stations["object store"].serve(self._cluster.put_s)

    def _question(self, demand: Demand) -> Process:
        with self._slots.request() as slot:
            yield slot
            rounds = max(1, demand.rounds)
            entities = demand.entities / rounds
            for number in range(rounds):
                calls = demand.calls * (number + 1) // rounds - demand.calls * number // rounds
                if calls == 1:
                    yield from self._call(demand)
                else:
                    yield self._env.all_of([self._env.process(self._call(demand)) for _ in range(calls)])
                if entities:
                    yield from self.stations["Virtuoso"].serve(entities * self._cluster.entity_s)

    def _call(self, demand: Demand) -> Process:
        """One call of the question, of average length."""
        cluster, stations = self._cluster, self.stations
        yield from stations["workers"].serve(cluster.call_s)
        yield from stations["ingress"].serve(cluster.request_s)
        reading = stations["prefill"].serve(demand.prompt_tokens / demand.calls * cluster.prompt_token_s)
        writing_s = cluster.answer_s + demand.completion_tokens / demand.calls * cluster.token_s
        yield from stations["slots"].serve(writing_s, first=reading)


def draw(demands: Sequence[Demand], questions: int, *, seed: int) -> list[Demand]:
    """So many questions like those that were measured."""
    return Random(seed).choices(demands, k=questions)


def simulate(cluster: Cluster, questions: Sequence[Demand]) -> Outcome:
    """Run the questions. Raises UserError where SimPy is not installed."""
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
    return Outcome(env.now, {name: station.share(env.now) for name, station in run.stations.items()})
