"""`llm=serve`: serves models with vLLM's own servers, placed by Ray, for the duration of a job.

The driver starts the servers before the workers. Workers send calls to the servers themselves, and follow them as they
join, leave and are restarted. The driver does not need vLLM, only the cluster does. Models that differ only in their
adapter share servers, which load the weights once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import orjson
import ray
from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.llm.checkpoint import digest_of
from pipeline.llm.endpoint import CallConfig
from pipeline.llm.serve.client import ServedEndpoint
from pipeline.llm.serve.directory import Servers
from pipeline.llm.serve.fleet import Fleet, Placement
from pipeline.llm.serve.replica import LOOPBACKS, Launch, several_machines
from pipeline.types import RUNTIME_ONLY


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class ServedModel(CallConfig):
    """A model to serve. The fields are described in `conf/llm/serve.yaml`."""

    starts_servers: ClassVar[bool] = True
    """The driver serves it before the workers start (`pipeline/engine/model_servers.py`)."""

    model: str
    adapter: str | None
    replicas: Annotated[PositiveInt, RUNTIME_ONLY]
    autoscale: Annotated[tuple[PositiveInt, PositiveInt] | None, RUNTIME_ONLY]
    tensor_parallel: Annotated[PositiveInt, RUNTIME_ONLY]
    dtype: Literal["auto", "bfloat16", "float16", "float32"]
    max_model_len: PositiveInt | None
    engine_kwargs: dict[str, Any] | None
    resources: Annotated[dict[str, float] | None, RUNTIME_ONLY]
    placement: Annotated[Literal["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"], RUNTIME_ONLY]
    accelerator: Annotated[str | None, RUNTIME_ONLY]
    host: Annotated[str | None, RUNTIME_ONLY]
    port: Annotated[Annotated[int, Field(ge=1, le=65535)] | None, RUNTIME_ONLY]
    start_timeout_s: Annotated[PositiveFloat, RUNTIME_ONLY]
    hang_timeout_s: Annotated[PositiveFloat, RUNTIME_ONLY]

    def __post_init__(self) -> None:
        self._engine = self.engine_kwargs or {}
        self._bundle = self.resources or {"GPU": 1}
        for key, own in _OWN_KEYS.items():
            if key in self._engine:
                raise UserError(f"llm.engine_kwargs.{key} has its own key; set llm.{own} instead")
        if self.autoscale and self.autoscale[0] > self.autoscale[1]:
            raise UserError(f"llm.autoscale={list(self.autoscale)} is wrong: write it as [least,most]")

    @cached_property
    def base_name(self) -> str:
        """The model and all that determines its outputs, as in call keys. Changed checkpoints have other names."""
        deciding = [self._engine.get("revision"), self._engine.get("quantization")]
        dtype = None if self.dtype == "auto" else self.dtype
        return "-".join([_name(self.model), *(str(word) for word in (*deciding, dtype) if word is not None)])

    @cached_property
    def name(self) -> str:
        """The name under which the model is served, with the adapter."""
        return self.base_name if self.adapter is None else f"{self.base_name}+{_name(self.adapter)}"

    @property
    def lacking(self) -> str | None:
        """The resources that the Ray cluster lacks for one replica; None if it has enough."""
        available = ray.cluster_resources()
        short = [kind for kind, amount in self._reserved.items() if available.get(kind, 0) < amount]
        if not short:
            return None
        parts = f" in each of {self._parts} parts" if self._parts > 1 else ""
        return f"the Ray cluster has too little of {', '.join(short)} for llm.resources={self._bundle}{parts}"

    @property
    def counts(self) -> tuple[int, int]:
        """The fewest and the most copies."""
        return self.autoscale or (self.replicas, self.replicas)

    @property
    def cpus(self) -> float:
        """The most CPUs that Ray reserves."""
        return self.counts[1] * self._reserved.get("CPU", 0)

    @property
    def _reserved(self) -> dict[str, float]:
        """All resources of a copy: its bundles are equal."""
        bundles = self.placed.bundles
        return {kind: len(bundles) * amount for kind, amount in bundles[0].items()}

    @property
    def placed(self) -> Placement:
        """What Ray reserves for a copy: a bundle per part, or one bundle for parts that stay on one node."""
        if self.placement == "STRICT_PACK":
            whole = {kind: self._parts * amount for kind, amount in self._bundle.items()}
            return Placement(bundles=(whole | self._of_kind,), strategy=self.placement)
        return Placement(bundles=(self._bundle | self._of_kind,) * self._parts, strategy=self.placement)

    @property
    def _parts(self) -> int:
        """The parts of a copy, each in a process of its own."""
        return self.tensor_parallel * int(self._engine.get("pipeline_parallel_size") or 1)

    @property
    def _of_kind(self) -> dict[str, float]:
        return {f"accelerator_type:{self.accelerator}": 0.001} if self.accelerator else {}

    def as_endpoint(self, base_urls: Sequence[str]) -> dict[str, Any]:
        """Return the `llm` section that calls this model at the given URLs."""
        calls = {field.name: getattr(self, field.name) for field in fields(CallConfig)}
        target = {"_target_": "pipeline.llm.endpoint.EndpointModel", "base_urls": list(base_urls), "model": self.name}
        return {**target, **calls}

    def launch(self, adapters: Sequence[ServedModel], token: str) -> Launch:
        """Return how the servers of this model and of those of its adapters are started."""
        return Launch(
            model=self.model,
            name=self.base_name,
            arguments=(*self._words, *_adapter_words({each.name: each.adapter for each in adapters if each.adapter})),
            token=token,
            host=self.host,
            port=self.port,
            start_timeout_s=self.start_timeout_s,
            hang_timeout_s=self.hang_timeout_s,
        )

    @property
    def _words(self) -> list[str]:
        """The words of vLLM's command line."""
        engine: dict[str, Any] = {"dtype": self.dtype, "tensor_parallel_size": self.tensor_parallel}
        if self.placed.is_split:
            engine["distributed_executor_backend"] = "ray"
        engine |= {"max_model_len": self.max_model_len, **self._engine}
        return [word for key, value in engine.items() if value is not None for word in _words(key, value)]


def _words(key: str, value: object) -> list[str]:
    """Return an argument of vLLM's engine as words of its command line."""
    option = key.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    if isinstance(value, (list, tuple)):
        return [f"--{option}", *map(str, value)]
    return [f"--{option}={orjson.dumps(value).decode() if isinstance(value, dict) else value}"]


def _adapter_words(adapters: dict[str, str]) -> list[str]:
    if not adapters:
        return []
    modules = [orjson.dumps({"name": name, "path": path}).decode() for name, path in adapters.items()]
    return ["--enable-lora", f"--max-loras={len(adapters)}", "--lora-modules", *modules]


_OWN_KEYS = {
    "dtype": "dtype",
    "tensor_parallel_size": "tensor_parallel",
    "max_model_len": "max_model_len",
    "lora_modules": "adapter",
    "model": "model",
}
"""Arguments of vLLM's engine that have their own configuration key."""


@plain_dataclass(frozen=True)
class Hosted:
    """A model that is being served."""

    model: ServedModel
    directory: str
    """The name of the actor that knows the servers."""
    servers: Servers = field(repr=False)
    """The servers at the start."""

    @property
    def section(self) -> dict[str, Any]:
        """The `llm` section that calls the model's servers, wherever they are, for processes of this job."""
        return {
            "_target_": f"{ServedEndpoint.__module__}.{ServedEndpoint.__qualname__}",
            "directory": self.directory,
            "endpoint": self.model.as_endpoint(self.servers.urls),
            "start_timeout_s": self.model.start_timeout_s,
        }


@asynccontextmanager
async def hosting(models: Sequence[ServedModel], *, grows: bool, guarded: bool) -> AsyncIterator[list[Hosted]]:
    """Serve models on this process's Ray cluster.

    If the cluster `grows`, wait for missing resources instead of failing. The servers ask for a token if they are
    `guarded`, or listen on more than the loopback interface. Raises UserError with the reason if a model cannot be
    served.
    """
    groups: dict[str, list[ServedModel]] = {}
    for model in models:
        _check_reach(model.host)
        if not grows and (lacking := model.lacking):
            raise UserError(f"{model.model} cannot be served: {lacking}; without a GPU, set 'llm.resources={{CPU: 1}}'")
        groups.setdefault(repr((model.launch((), ""), model.placed, model.counts)), []).append(model)
    token = secrets.token_urlsafe(32)
    fleets = [_fleet(same, token if guarded or _is_open(same[0]) else "") for same in groups.values()]
    async with AsyncExitStack() as running:
        for fleet in fleets:
            fleet.start()
            running.push_async_callback(_stop, fleet)
        found = await asyncio.gather(*(fleet.servers() for fleet in fleets))
        for fleet in fleets:
            running.callback(asyncio.create_task(fleet.keep()).cancel)
        hosted = {
            id(model): Hosted(model, fleet.name, servers)
            for fleet, servers, same in zip(fleets, found, groups.values(), strict=True)
            for model in same
        }
        yield [hosted[id(model)] for model in models]


def _fleet(models: Sequence[ServedModel], token: str) -> Fleet:
    """Return the replicas of models that share their weights."""
    base, name = models[0], f"kgqa-model-servers-{secrets.token_hex(8)}"
    return Fleet(name, base.launch(models, token), base.placed, base.counts)


async def _stop(fleet: Fleet) -> None:
    await asyncio.shield(fleet.stop())


def _is_open(model: ServedModel) -> bool:
    """Return whether the servers of a model can be reached from other machines."""
    return several_machines() if model.host is None else model.host not in LOOPBACKS


def _check_reach(host: str | None) -> None:
    """Raise UserError if machines of the cluster cannot reach the servers."""
    if host in LOOPBACKS and several_machines():
        raise UserError(
            f"llm.host={host} cannot be reached from all machines of the Ray cluster; set llm.host=null, which is the "
            "address of each machine"
        )


def _name(source: str) -> str:
    """Return the name of a model or an adapter. The name of a folder includes a digest of its contents."""
    folder = Path(source)
    if folder.is_dir():
        return f"{folder.resolve().name}@{digest_of(folder)}"
    if "://" not in source and (folder.is_absolute() or source.startswith(".") or source.count("/") > 1):
        raise UserError(
            f"{source} is not a folder on this machine; choose the folder of a checkpoint, or a Hugging Face name"
        )
    return source
