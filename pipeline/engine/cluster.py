"""Joins the Ray cluster of a job, or starts one on this machine."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import ray
from ray._private import ray_constants
from ray._private.node import Node

from pipeline.errors import ServiceError, UserError
from pipeline.extras import require

_QUIET: Mapping[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
"""Arguments of `ray.init`."""
_TOKEN = secrets.token_hex(32)
"""The token of clusters that this process starts: Ray reads it once in a process."""
_TOO_SLOW = "timed out during startup"
"""In the message of Ray's own error, which has no class of its own, where its processes take more than 30 seconds."""
_ATTEMPTS = 3
"""How often Ray is started here before the command ends."""
_VARIABLES = "RAY_"
"""How the names of the variables begin that Ray reads from the environment, and writes there."""
_PROBE_S = 5
"""Seconds that a cluster may take to accept a connection."""


@contextmanager
def joined(engine: Mapping[str, Any], cpus: float = 0, *, extra: str | None = None) -> Iterator[bool]:
    """Join the configured cluster or the one that this job runs on, or start one here; leave it at the end.

    Yields True for a cluster that was started here: no other node will join it.
    Raises UserError if no cluster answers at the address, or if this machine lacks the extra, and ServiceError if Ray
    does not start here.

    Args:
        engine: The section `engine`.
        cpus: CPUs that the job reserves in addition to its question workers. A cluster that is started here has them.
        extra: An optional dependency that the nodes of the cluster need. It is checked before one is started here.
    """
    if ray.is_initialized():
        yield False
        return
    given: str | None = engine.get("address") or os.environ.get("RAY_ADDRESS")
    address = None if given == "local" else given
    with _kept_environment():
        if address:
            _join(engine, address)
        else:
            _take_own_token()
            _start(engine.get("workers", 0) * engine.get("cpus_per_worker", 0) + cpus, extra)
        try:
            yield not address
        finally:
            ray.shutdown()


def cluster_size(engine: Mapping[str, Any]) -> tuple[float, int]:
    """Return the CPUs and nodes of the configured cluster. Raises UserError if it does not answer."""
    with joined(engine):
        nodes = sum(node["Alive"] for node in ray.nodes())
        return float(ray.cluster_resources().get("CPU", 0)), nodes


async def accepts_connections(address: str) -> bool:
    """Return whether something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_PROBE_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:  # a time-out is one as well
        return False
    writer.close()
    return True


def _join(engine: Mapping[str, Any], address: str) -> None:
    named = "engine.address" if engine.get("address") else "RAY_ADDRESS"
    _probe(address, named)
    try:
        with kept_handler(signal.SIGTERM):
            ray.init(address=engine.get("address"), **_QUIET)
    except ConnectionError as error:
        raise UserError(f"{named}: {_refusal(error)}") from None


def _start(cpus: float, extra: str | None) -> None:
    if extra is not None:
        require(extra, "a model server on this machine")
    # "local": never join a cluster that somebody else has started on this machine.
    most = max(os.cpu_count() or 1, math.ceil(cpus))
    for _ in range(_ATTEMPTS):
        try:
            with _loopback_only(), kept_handler(signal.SIGTERM):
                ray.init("local", num_cpus=most, include_dashboard=False, _node_ip_address="127.0.0.1", **_QUIET)
        except Exception as error:
            _stop_processes(error)
            if _TOO_SLOW not in str(error):
                raise
        else:
            return
    raise ServiceError(
        f"Ray did not start on this machine within 30 seconds, {_ATTEMPTS} times in a row: the machine is too busy, or "
        "its memory is used up. Run the command again later, or name a cluster in engine.address"
    )


def _stop_processes(error: Exception) -> None:
    """Stop what a failed start of Ray has left running.

    Ray does so only when this process ends, and forgets the object that holds the processes: the traceback has it.
    """
    for frame, _ in walk_tb(error.__traceback__):
        if isinstance(node := frame.f_locals.get("self"), Node):
            node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
            return


@contextmanager
def _kept_environment() -> Iterator[None]:
    """Put the variables of Ray back at the end.

    Ray asks for a token in the environment when it starts a cluster. A cluster without a token, which this process or
    one that it starts joins later, would be refused.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith(_VARIABLES)]:
            del os.environ[name]
        os.environ.update(before)


def _take_own_token() -> None:
    """Give the cluster that is started here a token of its own, unless the environment has one.

    Ray would write one to `~/.ray/auth_token`, readable by every user of a host with open home folders.
    """
    if {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys() or os.environ.get("RAY_AUTH_MODE") == "disabled":
        return
    os.environ["RAY_AUTH_TOKEN"] = _TOKEN


@contextmanager
def kept_handler(number: signal.Signals) -> Iterator[None]:
    """Put back the handler of a signal at the end, if there is one. Ray replaces handlers by its own."""
    handler = signal.getsignal(number)
    try:
        yield
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(number, handler)


def _refusal(error: ConnectionError) -> str:
    """Say why a cluster that listens cannot be joined. Ray reports a missing token only in the text of its error."""
    if "AuthenticationError" in str(error.__cause__):
        return (
            "the Ray cluster there requires its token: set RAY_AUTH_MODE=token, "
            "and put the token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
        )
    return f"no Ray cluster answers ({str(error).splitlines()[0]})"


@contextmanager
def _loopback_only() -> Iterator[None]:
    """Make a cluster that is started here listen only on 127.0.0.1: Ray has no accounts, so a client can run any code.

    Given that address, Ray replaces it by the machine's own and listens on all interfaces, unless clusters of several
    machines are disabled, as they are on a Mac.
    """
    several_machines = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = several_machines


def _probe(address: str, named: str) -> None:
    """Raise UserError unless something listens at HOST:PORT. Ray itself would wait for more than a minute."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_PROBE_S).close()
    except ValueError:
        raise UserError(f"the Ray address {address} is not of the form HOST:PORT: correct {named}") from None
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"no Ray cluster answers at {address} ({reason}): start it, or correct {named}") from None
