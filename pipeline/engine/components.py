"""Opens the components of a worker's configurations; equal sections share one component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from pipeline import config
from pipeline.engine.question import ConfigurationRuntime
from pipeline.evaluation.paper_metrics import scores_parsed_answers
from pipeline.llm.roles import PromptStyle, RoleRouter
from pipeline.methods.interface import table_name
from pipeline.net.server_stats import HasServerStats, ServerStats


@dataclass(frozen=True, slots=True)
class Backends:
    """The model and the graph that a configuration runs on. A resumed run must find the same ones."""

    model: str
    label: str | None
    """The name of the simulated model, printed in every table; None if a language model answers."""
    graph: str
    roles: Mapping[str, str] = field(default_factory=dict)
    """The models of the roles that have one of their own."""

    @classmethod
    def of(cls, runtime: ConfigurationRuntime) -> Backends:
        """Return the backends of an opened configuration."""
        model = runtime.model
        return cls(model.identity, model.label, runtime.graph.fingerprint, model.identities)


class Components(AsyncExitStack):
    """The open components of one worker, an asynchronous context manager."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: dict[tuple[str, str], Any] = {}

    @property
    def server_stats(self) -> list[ServerStats]:
        """The statistics of every server that a component is connected to."""
        connected = [each for each in self._opened.values() if isinstance(each, HasServerStats)]
        return [stats for component in connected for stats in component.server_stats]

    async def open_runtime(self, configs: Mapping[int, Mapping[str, Any]]) -> ConfigurationRuntime:
        """Open configurations that compute the same; each is given under its number in the run."""
        methods = {number: config.build("method", each) for number, each in configs.items()}
        first, *_ = configs.values()
        return ConfigurationRuntime(
            configurations=[(number, table_name(method)) for number, method in methods.items()],
            method=next(iter(methods.values())),
            model=await self._open_models(config.models(first["llm"])),
            graph=await self._open("kg", first["kg"]),
            retrieval=await self._open("retrieval", first["retrieval"]),
            evaluation=config.build("evaluation", first),
            budget=config.build("budget", first),
            seed=first["run"]["seed"],
            prompt_style=PromptStyle(config.prompt_styles(first["llm"])),
        )

    async def _open_models(self, sections: Mapping[str | None, Mapping[str, Any]]) -> RoleRouter:
        models = {role: await self._open("llm", keys) for role, keys in sections.items()}
        return RoleRouter(models[None], {role: model for role, model in models.items() if role is not None})

    async def _open(self, section: str, keys: Mapping[str, Any]) -> Any:
        key = section, config.canonical(keys)
        if key not in self._opened:
            self._opened[key] = await self.enter_async_context(config.build(section, {section: keys}))
        return self._opened[key]


def group_equal(configs: Sequence[Mapping[str, Any]]) -> list[dict[int, Mapping[str, Any]]]:
    """Group configurations that differ only in the name of their method, each under its number.

    Names by which the metrics of papers read another text are not equal.
    """
    groups: dict[tuple[str, bool], dict[int, Mapping[str, Any]]] = {}
    for number, each in enumerate(configs):
        key = config.key_without_name(each), scores_parsed_answers(str(each.get("method", {}).get("name", "")))
        groups.setdefault(key, {})[number] = each
    return list(groups.values())
