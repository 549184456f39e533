"""Reads `run.yaml`. Somebody else may have written it: it is checked to be plain data of the expected shape.

Nothing in it is built, imported or resolved here. `pipeline.config.trust` decides whether a command may run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from pipeline.errors import UserError, first_defect
from pipeline.llm.interface import simulated
from pipeline.renames import current_run
from pipeline.text import load_yaml
from pipeline.traces.storage import StoragePath, read_whole

_PROJECT = "kgqa-pipeline"
_MOST_VALUES = 20_000_000
"""More values than any run has: the names for repeated parts in YAML can make a small file this large."""


class _Plain(BaseModel):
    model_config = ConfigDict(strict=True)


class _Run(_Plain):
    limit: int | None
    seed: int
    reuse: list[str]


class _Engine(_Plain):
    name: Literal["local", "ray"]
    shard_size: int


class _Llm(_Plain):
    roles: dict[str, dict[str, Any]] | None = None


class _Config(_Plain):
    run: _Run
    engine: _Engine
    llm: _Llm
    dataset: dict[str, Any]
    kg: dict[str, Any]
    method: dict[str, Any]
    evaluation: dict[str, str | int | float | bool | None]
    choices: dict[str, str]


class _Configuration(_Plain):
    overrides: list[str]
    config: _Config
    sources: dict[str, str] = {}
    models: dict[str, str] = {}


class _Served(_Plain):
    model: str
    label: str | None
    graph: str
    roles: dict[str, str] = {}


class _RunFile(_Plain):
    id: str = ""
    begun_in: str | None = None
    points: list[_Configuration] = Field(min_length=1)
    served: list[_Served]
    versions: dict[str, str | None] = {}

    @model_validator(mode="after")
    def _pairs(self) -> _RunFile:
        if len(self.points) != len(self.served):
            raise ValueError(f"it has {len(self.points)} points, and {len(self.served)} served")
        if self.id and _PROJECT not in self.versions:
            raise ValueError(f"versions has no {_PROJECT}")
        return self


def language_models(run: Mapping[str, Any]) -> list[str]:
    """Return the names of the language models that answered in a run, by the contents of its `run.yaml`."""
    names = (name for each in run["served"] if not simulated(each["label"]) for name in _model_names(each))
    return list(dict.fromkeys(names))


def _model_names(served: Mapping[str, Any]) -> Iterable[str]:
    return [served["model"], *(served.get("roles") or {}).values()]  # an older run has no roles


def code_of(run: Mapping[str, Any], configuration: int) -> dict[str, str | None]:
    """Return digests of the sources of a configuration by class or module, and the version of the project.

    `run` is the contents of a `run.yaml`. One of an older version has fewer digests.
    """
    point = run["points"][configuration]
    versions = {name: version for name, version in run.get("versions", {}).items() if name == _PROJECT}
    return {**versions, **point.get("models", {}), **point.get("sources", {})}


def differing_code(codes: Iterable[Mapping[str, str | None]]) -> list[str]:
    """Return the names that have different values in some results of `code_of`, sorted."""
    values: dict[str, set[str | None]] = {}
    for name, value in chain.from_iterable(code.items() for code in codes):
        values.setdefault(name, set()).add(value)
    return sorted(name for name, found in values.items() if len(found) > 1)


_JSON = TypeAdapter(dict[str, JsonValue])


def read_run_file(path: StoragePath) -> Mapping[str, Any]:
    """Return the contents of a `run.yaml` under today's names, as plain data.

    Raises FileNotFoundError or NotADirectoryError if there is no such file, StorageError if it cannot be read, and
    UserError if it is not the description of a run.
    """
    try:
        return _parse(read_whole(path))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        why = "it is not YAML"
    except ValidationError as error:
        why = first_defect(error)
    except (AttributeError, KeyError, TypeError, ValueError):
        why = "its configurations are not complete"
    raise UserError(f"{path} is not the run.yaml of a run ({why}): restore it from a copy, or name another run.dir")


@lru_cache(maxsize=4)
def _parse(contents: bytes) -> Mapping[str, Any]:
    loaded = load_yaml(contents.decode())
    if _count(loaded, {}) > _MOST_VALUES:
        raise ValueError
    run = current_run(_JSON.validate_python(loaded, strict=True))
    _RunFile.model_validate(run)
    return run


def _count(value: object, counted: dict[int, int]) -> int:
    """Return the number of values, those of repeated parts each time. Raises RecursionError for a part of itself."""
    parts: Sequence[object]
    match value:
        case dict():
            parts = list(value.values())
        case list():
            parts = value
        case _:
            return 1
    if id(value) not in counted:
        counted[id(value)] = 1 + sum(_count(part, counted) for part in parts)
    return counted[id(value)]
