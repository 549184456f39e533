"""The sections of a configuration, and the keys that the runner reads itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic_core import PydanticCustomError

from pipeline.errors import UserError
from pipeline.types import RUNTIME_ONLY

SECTIONS = ("run", "budget", "dataset", "kg", "method", "llm", "retrieval", "engine", "evaluation")
"""The sections that configure a run."""

QUESTION_KEYS = ("limit", "sample", "sample_seed")
"""The keys of `run` that choose which questions of the dataset are asked (`pipeline.datasets.selection.Selection`)."""

Count: TypeAlias = Annotated[int, Field(gt=0, lt=1 << 31)]
"""A number of questions."""


def check_sections(config: Mapping[str, Any], sections: Iterable[str]) -> None:
    """Raise UserError naming the first section that is missing, is not a section, or names no class but needs one."""
    for section in sections:
        if not isinstance(keys := config.get(section), Mapping):
            raise UserError(f"{section}={keys} is wrong: it should be a section with keys of its own")
        if section not in ("run", "engine") and "_target_" not in keys:
            raise UserError(f"{section}._target_ must be given: the class that the section configures")


class RunnerKeys(BaseModel):
    """Keys that the runner reads itself. A component never sees them."""

    model_config = ConfigDict(strict=True, extra="forbid")


def _named(folder: str) -> str:
    if not folder:
        raise PydanticCustomError("empty", "name a folder, or leave out the key")
    return folder


def _without_comma(tags: list[str]) -> list[str]:
    if any("," in tag for tag in tags):
        raise PydanticCustomError("comma", "a tag has no comma, which separates the tags in the list of kgqa ls")
    return tags


class RunKeys(RunnerKeys):
    """The section `run`."""

    dir: Annotated[Annotated[str, AfterValidator(_named)] | None, RUNTIME_ONLY]
    limit: Count | None
    sample: Count | None
    sample_seed: int
    seed: int
    reuse: Annotated[list[str], RUNTIME_ONLY]
    retry_failed: Annotated[bool, RUNTIME_ONLY]
    extend: Annotated[bool, RUNTIME_ONLY]
    restart: Annotated[bool, RUNTIME_ONLY]
    trust: Annotated[bool, RUNTIME_ONLY]
    max_equal_failures: Annotated[PositiveInt | None, RUNTIME_ONLY]
    max_failed: Annotated[Annotated[float, Field(ge=0, le=1)], RUNTIME_ONLY]
    early_stopping: PositiveInt | None
    tags: Annotated[Annotated[list[str], AfterValidator(_without_comma)] | None, RUNTIME_ONLY]
    note: Annotated[str | None, RUNTIME_ONLY]


class EngineKeys(RunnerKeys):
    """The section `engine`. Only the size of a shard changes what lies in the run folder.

    The keys that only one of the engines has are those with a default here.
    """

    name: Annotated[Literal["local", "ray"], RUNTIME_ONLY]
    concurrency: Annotated[PositiveInt, RUNTIME_ONLY]
    shard_size: Count
    dedupe_calls: Annotated[bool, RUNTIME_ONLY]
    log: Annotated[Literal["text", "json"], RUNTIME_ONLY]
    metrics_port: Annotated[Annotated[int, Field(ge=1, le=65535)] | None, RUNTIME_ONLY] = None
    workers: Annotated[PositiveInt, RUNTIME_ONLY] = 1
    address: Annotated[str | None, RUNTIME_ONLY] = None
    cpus_per_worker: Annotated[PositiveFloat, RUNTIME_ONLY] = 1
    resources: Annotated[dict[str, PositiveFloat] | None, RUNTIME_ONLY] = None
    max_worker_restarts: Annotated[NonNegativeInt, RUNTIME_ONLY] = 0


class DatasetKeys(RunnerKeys):
    """The runner's keys of the section `dataset`."""

    model_config = ConfigDict(extra="ignore")

    strict: Annotated[bool, RUNTIME_ONLY]


class MethodKeys(RunnerKeys):
    """The sweep axes that every method has (specification §1.3). The method's own keys interpolate from them."""

    model_config = ConfigDict(extra="ignore")

    beam_width: NonNegativeInt
    """0 keeps everything, in the methods that support it."""
    depth: PositiveInt
    retries: NonNegativeInt


class ModelKeys(RunnerKeys):
    """The runner's keys of the section `llm`."""

    model_config = ConfigDict(extra="ignore")

    roles: dict[str, dict[str, Any]] | None
    """Role → the keys by which its model differs from that of all other roles."""
    prompt_style: Literal["full", "inputs_only"]
    """Whether prompts include their instructions and worked examples (`inputs_only` of pipeline/llm/prompt.py)."""


RUNNER_KEYS: Mapping[str, type[RunnerKeys]] = {
    "run": RunKeys,
    "engine": EngineKeys,
    "dataset": DatasetKeys,
    "method": MethodKeys,
    "llm": ModelKeys,
}


def is_strict(composed: Mapping[str, Any]) -> bool:
    """Return whether a row of the dataset that cannot be read is an error. A dataset of the user may lack the key."""
    return bool(composed["dataset"].get("strict", False))


def with_sections(keys: Iterable[str]) -> set[str]:
    """Return dotted keys with the sections that hold them: `llm.roles.plan` with `llm.roles` and `llm`."""
    parts = (key.split(".") for key in keys)
    return {".".join(each[:count]) for each in parts for count in range(1, len(each) + 1)}


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested configuration with their dotted keys."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
