"""The client of a job's model servers: an endpoint whose servers join and leave while it is open."""

from __future__ import annotations

import asyncio

import ray
from pydantic import ConfigDict, PositiveFloat
from pydantic.dataclasses import dataclass
from ray.exceptions import RayError

from pipeline.errors import UserError
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.serve.directory import Servers

_RETRY_S = 1.0
"""Seconds until a directory that did not answer is asked again."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
class ServedEndpoint:
    """An endpoint that follows a directory. Opening it gives the endpoint."""

    directory: str
    """Name of the Ray actor that lists the servers."""
    endpoint: EndpointModel
    """Holds the parameters of calls."""
    start_timeout_s: PositiveFloat
    """Seconds that opening waits for the first server."""

    async def __aenter__(self) -> EndpointModel:
        """Connect to the servers of the directory. Raises UserError if there are none."""
        self._actor = ray.get_actor(self.directory)
        servers = await self._first()
        self.endpoint.serve_from(servers.urls, servers.token)
        opened = await self.endpoint.__aenter__()
        self._following = asyncio.create_task(self._follow(servers.version))
        return opened

    async def __aexit__(self, *exc: object) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self.endpoint.__aexit__(*exc)

    async def _first(self) -> Servers:
        version = -1
        try:
            async with asyncio.timeout(self.start_timeout_s):
                while not (servers := await self._changes(version)).urls:
                    version = servers.version
                return servers
        except TimeoutError:
            raise UserError(
                f"no server of {self.endpoint.model} answered within llm.start_timeout_s={self.start_timeout_s:g}; see "
                "kgqa-model-server-*.log among the logs of Ray"
            ) from None

    async def _follow(self, version: int) -> None:
        while True:
            servers = await self._changes(version)
            version = servers.version
            self.endpoint.follow(servers.urls, servers.leaving)

    async def _changes(self, version: int) -> Servers:
        while True:
            try:
                changed: Servers = await self._actor.changes.remote(version)
            except RayError:  # the directory is restarted
                await asyncio.sleep(_RETRY_S)
            else:
                return changed
