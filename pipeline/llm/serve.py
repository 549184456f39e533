"""`llm=serve`: serves models with vLLM on Ray Serve LLM for the duration of a job.

The driver deploys the models before the workers start. Workers call them as any other server (`EndpointModel`). The
driver does not need vLLM, only the cluster does. Models that differ only in their adapter share one deployment, which
loads the weights once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import ray
from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass
from ray.exceptions import RayError, RayTaskError

from pipeline.errors import UserError
from pipeline.extras import installation
from pipeline.llm.checkpoint import digest_of
from pipeline.llm.endpoint import CallConfig
from pipeline.net.subprocess_server import free_ports
from pipeline.types import RUNTIME_ONLY

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


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
    prefix_routing: Annotated[bool, RUNTIME_ONLY]
    engine_kwargs: dict[str, Any] | None
    resources: Annotated[dict[str, float] | None, RUNTIME_ONLY]
    placement: Annotated[Literal["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"], RUNTIME_ONLY]
    accelerator: Annotated[str | None, RUNTIME_ONLY]
    host: Annotated[str, RUNTIME_ONLY]
    port: Annotated[Annotated[int, Field(ge=1, le=65535)] | None, RUNTIME_ONLY]
    start_timeout_s: Annotated[PositiveFloat, RUNTIME_ONLY]

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
        of_kind = {f"accelerator_type:{self.accelerator}": 0.001} if self.accelerator else {}
        available = ray.cluster_resources()
        short = [kind for kind, amount in {**self._bundle, **of_kind}.items() if available.get(kind, 0) < amount]
        return (
            f"the Ray cluster has too little of {', '.join(short)} for llm.resources={self._bundle}" if short else None
        )

    @property
    def cpus(self) -> float:
        """The most CPUs that Ray reserves: one per replica, those of its workers, and one for the ingress."""
        copies = self.autoscale[1] if self.autoscale else self.replicas
        return copies * (1 + self.tensor_parallel * self._bundle.get("CPU", 0)) + 1

    def as_endpoint(self, base_urls: Sequence[str]) -> dict[str, Any]:
        """Return the `llm` section that calls this model at the given URLs."""
        calls = {field.name: getattr(self, field.name) for field in fields(CallConfig)}
        target = {"_target_": "pipeline.llm.endpoint.EndpointModel", "base_urls": list(base_urls), "model": self.name}
        return {**target, **calls}

    def llm_config(self) -> dict[str, Any]:
        """Return the base model as the fields of Ray's `LLMConfig`."""
        deployment: dict[str, Any] = {"num_replicas": self.replicas}
        if self.autoscale:
            least, most = self.autoscale
            deployment = {"autoscaling_config": {"min_replicas": least, "max_replicas": most}}
        if self.prefix_routing:
            router = "ray.serve.llm.request_router.PrefixCacheAffinityRouter"
            deployment["request_router_config"] = {"request_router_class": router}
        engine = {
            "dtype": self.dtype,
            "tensor_parallel_size": self.tensor_parallel,
            "max_model_len": self.max_model_len,
        }
        return {
            "model_loading_config": {"model_id": self.base_name, "model_source": self.model},
            "accelerator_type": self.accelerator,
            "placement_group_config": {"bundle_per_worker": self._bundle, "strategy": self.placement},
            "deployment_config": deployment,
            "engine_kwargs": {key: value for key, value in engine.items() if value is not None} | self._engine,
        }


_OWN_KEYS = {
    "dtype": "dtype",
    "tensor_parallel_size": "tensor_parallel",
    "max_model_len": "max_model_len",
    "lora_modules": "adapter",
    "model": "model",
}
"""Arguments of vLLM's engine that have their own configuration key."""


@asynccontextmanager
async def hosting(models: Sequence[ServedModel], owner: str, *, grows: bool) -> AsyncIterator[list[dict[str, Any]]]:
    """Serve models on this process's Ray cluster. Yield the `llm` section that calls each model.

    `owner` identifies this job's deployments: a new job with the same owner takes over those of a killed job. If the
    cluster `grows`, wait for missing resources instead of failing. Raises UserError with the reason if a model cannot
    be served.
    """
    groups: dict[str, list[ServedModel]] = {}
    for model in models:
        _check_reach(model.host)
        if not grows and (lacking := model.lacking):
            raise UserError(f"{model.model} cannot be served: {lacking}; without a GPU, set llm.resources={{CPU: 1}}")
        groups.setdefault(_app(model, owner), []).append(model)
    try:
        urls = {app: await _serve(app, same) for app, same in groups.items()}
        yield [model.as_endpoint(urls[_app(model, owner)]) for model in models]
    finally:
        await asyncio.shield(asyncio.to_thread(_stop, list(groups)))


def _app(model: ServedModel, owner: str) -> str:
    """Return the name of a model's deployment, which all adapters of the model share."""
    digest = hashlib.blake2b(repr((owner, model.llm_config())).encode(), digest_size=4).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', model.base_name)}-{digest}"


async def _serve(app: str, models: Sequence[ServedModel]) -> list[str]:
    """Return the URLs of models that share their weights, once they answer."""
    base = models[0]
    adapters = {model.name: model.adapter for model in models if model.adapter}
    http_options = {"host": base.host, "port": base.port or free_ports(1)[0]}
    deploying = ray.remote(num_cpus=0, max_retries=0)(_deploy).remote(app, base.llm_config(), adapters, http_options)
    try:
        async with asyncio.timeout(base.start_timeout_s):
            return list(await deploying)
    except TimeoutError:
        raise UserError(
            f"{base.model} does not answer after llm.start_timeout_s={base.start_timeout_s:g}: "
            f"{base.lacking or 'allow it more time, or see the logs of Ray Serve'}"
        ) from None
    except RayTaskError as error:
        raise UserError(_reason(base, error)) from None


def _deploy(
    app: str, llm_config: Mapping[str, Any], adapters: Mapping[str, str], http_options: Mapping[str, Any]
) -> list[str]:
    """Run on the cluster: deploy the model and return its URLs once all replicas are up."""
    from ray import serve
    from ray.llm._internal.serve.core.configs.openai_api_models import to_model_metadata
    from ray.serve.context import _get_global_client
    from ray.serve.llm import LLMConfig, build_llm_deployment
    from ray.serve.llm.ingress import OpenAiIngress, make_fastapi_ingress
    from vllm.entrypoints.openai.models.protocol import LoRAModulePath

    if adapters:
        modules = [LoRAModulePath(name=name, path=path) for name, path in adapters.items()]
        engine = {
            "enable_lora": True,
            "max_loras": len(modules),
            **llm_config["engine_kwargs"],
            "lora_modules": modules,
        }
        llm_config = {**llm_config, "engine_kwargs": engine}
    config = LLMConfig(**llm_config)
    # To Ray, an adapter is another model of the same deployment. vLLM identifies it by its name.
    served = build_llm_deployment(config)
    names = [config.model_id, *adapters]
    ingress = serve.deployment(make_fastapi_ingress(OpenAiIngress), **OpenAiIngress.get_deployment_options([config]))
    application = ingress.bind(
        llm_deployments=dict.fromkeys(names, served),
        model_cards={name: to_model_metadata(name, config) for name in names},
    )
    serve.start(http_options=http_options)  # ignored if Serve is already running
    serve.run(application, name=app, route_prefix=f"/{app}")
    http = _get_global_client().http_config
    hosts = [http.host]
    if http.host not in _LOOPBACK:
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        hosts = [addresses[node] for node in serve.status().proxies]
    return [f"http://{host}:{http.port}/{app}/v1" for host in hosts]


def _stop(apps: Sequence[str]) -> None:
    with contextlib.suppress(RayError):  # the cluster is gone, and the deployments with it
        ray.get(ray.remote(num_cpus=0)(_delete).remote(apps))


def _delete(apps: Sequence[str]) -> None:
    """Run on the cluster: stop the deployments that still exist."""
    from ray import serve

    for app in serve.status().applications.keys() & set(apps):
        serve.delete(app)


def _check_reach(host: str) -> None:
    """Raise UserError if machines of the cluster cannot reach the servers."""
    machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if host in _LOOPBACK and len(machines) > 1:
        raise UserError(
            f"llm.host={host} cannot be reached from all {len(machines)} machines of the Ray cluster; set "
            "llm.host=0.0.0.0 if its network is private"
        )


def _reason(model: ServedModel, error: RayTaskError) -> str:
    if isinstance(error.cause, ImportError):
        return f"llm=serve needs Ray Serve and vLLM where Ray runs ({error.cause}): {installation('gpu')}"
    lines = [line.strip() for line in str(error.cause).splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)), lines[-1])
    return f"{model.model} cannot be served: {reason}"


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
