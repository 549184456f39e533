"""A replica of a served model: an actor that starts vLLM's own server on its node, watches it and restarts it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson
import ray
from ray.util import get_node_ip_address

from pipeline.errors import UserError
from pipeline.llm.serve.directory import Report
from pipeline.llm.serve.metrics import Exporter
from pipeline.llm.vllm import VllmServer, read_samples, sums
from pipeline.net.subprocess_server import LOOPBACK, fetch

_log = logging.getLogger(__name__)

_PERIOD_S = 1.0
"""Seconds between two looks at the server."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
"""Seconds before a server that did not start is started again; doubled each time."""
_LEAVING_S = 120
"""Seconds that a leaving server has to answer its calls."""
ANY = "0.0.0.0"  # noqa: S104 — only if the user asks for it
LOOPBACKS = (LOOPBACK, "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How the server of a model is started."""

    model: str
    name: str
    arguments: tuple[str, ...]
    """Of vLLM's command line."""
    token: str = field(repr=False)
    host: str | None
    """The address to listen on; None is loopback if the cluster is one machine, and else the node's address."""
    port: int | None
    """Of the first replica; the next ones follow."""
    start_timeout_s: float
    hang_timeout_s: float


class _Observation(NamedTuple):
    """What the watched server says of itself."""

    running: int
    waiting: int
    tokens: float
    """All that it has read and written."""


class ModelServer:
    """The actor. Ray restarts it on another node when its node is gone."""

    def __init__(self, launch: Launch, number: int, directory: str, group: str | None) -> None:
        """Begin to start the server; the directory with this name gets its address once it answers.

        `group` is the id of the placement group that holds the engine's workers; None keeps them on this node.
        """
        self._launch = launch
        self._number = number
        self._directory = ray.get_actor(directory)  # by its name: a handle among the arguments may not outlast a node
        self._group = group
        self._node = ray.get_runtime_context().get_node_id()
        self._logs = Path(ray._private.worker._global_node.get_logs_dir_path())
        self._is_open = threading.Event()
        self._is_leaving = threading.Event()
        self._has_ended = threading.Event()
        self._exporter = Exporter()
        self._port = launch.port + number if launch.port else 0
        if launch.token and several_machines():  # nobody else on the network can use a server with a token
            self._is_open.set()
        self._thread = threading.Thread(target=self._keep_running, daemon=True)
        self._thread.start()

    def open_to_network(self) -> None:
        """Listen on the address of the node from now on: the cluster has grown by a machine."""
        self._is_open.set()

    def leave(self) -> None:
        """Take no more calls, answer those that there are, and end the server."""
        self._is_leaving.set()

    def stop(self) -> None:
        """End the server at once."""
        self._has_ended.set()
        self._thread.join()

    def _keep_running(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._has_ended.is_set():
            server = self._server()
            try:
                server.start(self._has_ended.is_set)
            except UserError as error:
                self._report(problem=str(error))
                self._has_ended.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            pause_s = _FIRST_PAUSE_S
            self._port = server.port  # a restarted server keeps its address
            try:
                reason = self._watch(server)
            finally:
                self._report()  # before it is killed: no client sends it another call
                server.kill()
            _log.warning("the model server at %s is ended: %s", server.base_url, reason)

    def _server(self) -> VllmServer:
        launch, host = self._launch, self._host()
        module = ["vllm.entrypoints.openai.api_server"]
        environment = {**os.environ, "VLLM_API_KEY": launch.token}
        if self._group is not None:
            module = ["pipeline.llm.serve.in_group", self._group]
            environment["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
            environment.pop("CUDA_VISIBLE_DEVICES", None)  # it is that of this actor, which has no GPU
        return VllmServer(
            model=launch.model,
            name=launch.name,
            arguments=(*launch.arguments, "--enable-server-load-tracking"),
            log=self._logs / f"kgqa-model-server-{self._number}-{os.getpid()}.log",
            command=(sys.executable, "-m", *module),
            host=host,
            reached_at=get_node_ip_address() if host == ANY else host,
            port=self._port,
            environment=environment,
            start_timeout_s=launch.start_timeout_s,
        )

    def _host(self) -> str:
        if self._launch.host is not None:
            return self._launch.host
        return str(get_node_ip_address()) if self._is_open.is_set() else LOOPBACK

    def _watch(self, server: VllmServer) -> str:
        """Report that the server is up until it has to be ended. Returns the reason."""
        alive_at = time.monotonic()
        leave_by, tokens = float("inf"), -1.0
        while not self._has_ended.is_set():
            if not server.running:
                return "its process has ended"
            seen, now = self._observe(server), time.monotonic()
            if seen and (not seen.running or seen.tokens != tokens):
                alive_at, tokens = now, seen.tokens
            if now - alive_at > self._launch.hang_timeout_s:
                return "its calls do not go on" if seen else "it does not answer"
            if server.host != self._host():
                return "it moves to the address of its node"
            if self._is_leaving.is_set():
                leave_by = min(leave_by, now + _LEAVING_S)
                if now > leave_by or (seen and not seen.running and now > leave_by - _LEAVING_S + 2 * _PERIOD_S):
                    self._has_ended.set()
            self._report(server.base_url, seen)
            self._has_ended.wait(_PERIOD_S)
        return "it is stopped"

    def _observe(self, server: VllmServer) -> _Observation | None:
        """Return what the server says; None if it does not answer."""
        try:
            running = int(orjson.loads(fetch(server.load_url))["server_load"])
            samples = read_samples(server.metrics_url)
        except (OSError, ValueError):
            return None
        self._exporter.export(samples)
        counted = sums(samples)
        tokens = counted["vllm:prompt_tokens_total"] + counted["vllm:generation_tokens_total"]
        return _Observation(running, int(counted["vllm:num_requests_waiting"]), tokens)

    def _report(self, url: str | None = None, seen: _Observation | None = None, problem: str | None = None) -> None:
        counts: Mapping[str, int] = {"running": seen.running, "waiting": seen.waiting} if seen else {}
        report = Report(self._node, url, self._is_leaving.is_set(), **counts, problem=problem)
        self._directory.report.remote(self._number, report)


def several_machines() -> bool:
    """Return whether the Ray cluster has more than one machine."""
    return len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}) > 1
