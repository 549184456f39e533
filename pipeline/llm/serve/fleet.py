"""The replicas of a served model, as the driver keeps them: placed by Ray, replaced when their node is drained."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from pipeline.errors import UserError
from pipeline.llm.serve.directory import Directory, Report, Servers
from pipeline.llm.serve.replica import LOOPBACKS, Launch, ModelServer, several_machines

_log = logging.getLogger(__name__)

_PERIOD_S = 1.0
"""Seconds between two looks at the replicas and the nodes."""
_BUSY_S, _IDLE_S = 10, 300
"""Seconds that calls wait at every server before another is started, and that none has a call before one is stopped."""
_STOP_S = 60
"""Seconds that replicas may take to stop."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What Ray reserves for a replica."""

    bundles: tuple[Mapping[str, float], ...]
    strategy: str

    @property
    def is_split(self) -> bool:
        """Whether the engine's workers may be on several nodes."""
        return len(self.bundles) > 1


@dataclass(eq=False)
class _Replica:
    number: int
    group: PlacementGroup
    actor: Any
    successor: _Replica | None = None
    """What takes its place when its node is drained."""
    is_leaving: bool = False


class Fleet:
    """The replicas of one model."""

    def __init__(self, name: str, launch: Launch, placement: Placement, counts: tuple[int, int]) -> None:
        """Describe the replicas; nothing is started yet.

        Args:
            name: Of the directory.
            launch: How their servers are started.
            placement: What Ray reserves for each.
            counts: The fewest and the most of them.
        """
        self.name = name
        self._launch = launch
        self._placement = placement
        self._fewest, self._most = counts
        self._replicas: list[_Replica] = []
        self._started = 0
        self._since = time.monotonic()
        self._trend = 0
        """1 while calls wait at every server, -1 while there are no calls, else 0; `_since` when."""

    def start(self) -> None:
        """Ask Ray for the replicas."""
        # On the driver's node: it lasts as long as the driver then.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        options = {"name": self.name, "num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
        self._directory = ray.remote(Directory).options(**options).remote(self._launch.token)
        for _ in range(self._fewest):
            self._add()

    async def servers(self) -> Servers:
        """Return the servers, once each replica that has room answers.

        Raises UserError if a server does not start, or none answers in time.
        """
        deadline = time.monotonic() + self._launch.start_timeout_s
        while True:
            reports = await self._reports()
            if problem := next((each.problem for each in reports.values() if each.problem), None):
                raise UserError(f"{self._launch.model} cannot be served: {problem}")
            up = sum(report.url is not None for report in reports.values())
            placed = sum([await self._is_placed(each) for each in self._replicas])
            if up and up >= placed:
                if missing := self._fewest - placed:
                    _log.warning("%d of %d model servers wait for room in the Ray cluster", missing, self._fewest)
                found: Servers = await self._directory.changes.remote(-1)
                return found
            if time.monotonic() > deadline:
                raise UserError(
                    f"{self._launch.model} does not answer after llm.start_timeout_s="
                    f"{self._launch.start_timeout_s:g}: {placed} of {self._fewest} replicas have room in the Ray "
                    "cluster; allow it more time, or see kgqa-model-server-*.log among the logs of Ray"
                )
            await asyncio.sleep(0.2)

    async def keep(self) -> None:
        """Replace replicas of drained nodes, and add and remove replicas by load, for ever."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            try:
                await self._look()
            except RayError as error:  # Ray is restarting a part of itself
                _log.warning("the model servers cannot be looked after at present: %s", error)

    async def stop(self) -> None:
        """Stop all replicas and the directory."""
        with contextlib.suppress(RayError, TimeoutError):
            async with asyncio.timeout(_STOP_S):
                placed = [each for each in self._replicas if await self._is_placed(each)]
                await asyncio.gather(*(each.actor.stop.remote() for each in placed), return_exceptions=True)
        with contextlib.suppress(RayError):  # the cluster is gone, and the replicas with it
            for each in self._replicas:
                self._remove(each)
            ray.kill(self._directory)

    async def _look(self) -> None:
        reports = await self._reports()
        draining, alive, several = await asyncio.to_thread(_nodes)
        for each in list(self._replicas):
            report = reports.get(each.number)
            if report is None:
                continue
            if several and self._is_hidden(report.url):
                each.actor.open_to_network.remote()
            if report.node in draining and each.successor is None:
                _log.warning("node %s is drained: its model server is replaced", report.node[:8])
                each.successor = self._add()
            answers = each.successor is not None and (reports.get(each.successor.number) or report).url is not None
            if answers and each.successor is not None and each.successor.number in reports:
                self._leave(each)
            if (each.successor and report.node not in alive) or (each.is_leaving and report.url is None):
                self._replicas.remove(each)
                self._remove(each)
                await self._directory.forget.remote(each.number)
        self._fit_to_load(list(reports.values()))

    def _is_hidden(self, url: str | None) -> bool:
        """Return whether other machines cannot reach a server that may be reached: it has a token."""
        launch = self._launch
        return bool(url and launch.token) and launch.host is None and urlsplit(url).hostname in LOOPBACKS

    def _fit_to_load(self, reports: Sequence[Report]) -> None:
        """Add a replica after calls have waited everywhere for a time, and remove one after a time without calls."""
        up = [report for report in reports if report.url and not report.is_leaving]
        kept = [each for each in self._replicas if not each.is_leaving and each.successor is None]
        trend = 1 if up and all(report.waiting for report in up) else 0 if any(report.running for report in up) else -1
        if trend != self._trend:
            self._trend, self._since = trend, time.monotonic()
        lasts_s = time.monotonic() - self._since
        if trend == 1 and lasts_s > _BUSY_S and len(up) == len(kept) < self._most:
            self._add()
            self._since = time.monotonic()
        elif trend == -1 and lasts_s > _IDLE_S and len(kept) > self._fewest:
            self._leave(kept[-1])
            self._since = time.monotonic()

    def _add(self) -> _Replica:
        bundles = [dict(each) for each in self._placement.bundles]
        group = placement_group(bundles, strategy=self._placement.strategy)
        # With workers on several nodes, it is vLLM that starts them, in the bundles; the server itself needs no GPU.
        own = {} if self._placement.is_split else _reserved(bundles[0])
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
        options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 4, "scheduling_strategy": strategy, **own}
        split = group.id.hex() if self._placement.is_split else None
        actor = ray.remote(ModelServer).options(**options).remote(self._launch, self._started, self.name, split)
        replica = _Replica(self._started, group, actor)
        self._started += 1
        self._replicas.append(replica)
        return replica

    def _leave(self, replica: _Replica) -> None:
        if not replica.is_leaving:
            replica.is_leaving = True
            replica.actor.leave.remote()

    def _remove(self, replica: _Replica) -> None:
        ray.kill(replica.actor)
        remove_placement_group(replica.group)

    async def _reports(self) -> Mapping[int, Report]:
        reports: Mapping[int, Report] = await self._directory.reports.remote()
        return reports

    async def _is_placed(self, replica: _Replica) -> bool:
        table = await asyncio.to_thread(placement_group_table, replica.group)
        return bool(table["state"] == "CREATED")


def _reserved(bundle: Mapping[str, float]) -> dict[str, Any]:
    """Return the options of an actor that takes a whole bundle."""
    own = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    named = {own[kind]: amount for kind, amount in bundle.items() if kind in own}
    return {**named, "resources": {kind: amount for kind, amount in bundle.items() if kind not in own}}


def _nodes() -> tuple[set[str], set[str], bool]:
    """Return the nodes that are drained, those that are alive, and whether there are several machines."""
    draining = set(ray._private.state.state.get_draining_nodes())
    return draining, {node["NodeID"] for node in ray.nodes() if node["Alive"]}, several_machines()
