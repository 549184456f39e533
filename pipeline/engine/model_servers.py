"""Starts the model servers of a run before its workers, and stops them after the workers (`llm=serve`)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout
from typing import Any

from pipeline import config
from pipeline.console import Console


@asynccontextmanager
async def model_servers(
    configs: Sequence[Mapping[str, Any]], console: Console
) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
    """Serve each model that has `starts_servers`. Yield the configurations with endpoints in place of these models.

    Names of runs and call keys do not depend on the replacement. Raises UserError when a model cannot be served.
    """
    sections = {config.canonical(keys): keys for each in configs for keys in config.models(each["llm"]).values()}
    built = {text: config.build("llm", {"llm": keys}) for text, keys in sections.items()}
    models = {text: model for text, model in built.items() if getattr(model, "starts_servers", False)}
    if not models:
        yield configs
        return
    from pipeline.engine.cluster import joined  # Ray takes a second to import
    from pipeline.llm.serve import hosting

    starting = f"starting {', '.join(model.name for model in models.values())} …"
    if not console.is_terminal:  # where a status shows nothing
        console.print(starting, markup=False, soft_wrap=True)
    async with AsyncExitStack() as running:
        cpus = sum(model.cpus for model in models.values())
        running.enter_context(redirect_stdout(sys.stderr))  # Ray prints there that a process of the servers has died
        ours = running.enter_context(joined(configs[0]["engine"], cpus, extra="gpu"))
        with console.status(starting):
            served = hosting(list(models.values()), grows=not ours, guarded=True)
            hosted = await running.enter_async_context(served)
            endpoints = {text: each.section for text, each in zip(models, hosted, strict=True)}
        yield [{**each, "llm": resolve(each["llm"], endpoints)} for each in configs]


def resolve(llm: Mapping[str, Any], endpoints: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return an `llm` section with each served model replaced by its endpoint.

    Args:
        llm: The section as configured.
        endpoints: The section that calls a served model, by the canonical text of the model's own section.
    """
    styles = config.prompt_styles(llm)
    sections = {
        role: {**endpoints.get(config.canonical(keys), keys), "prompt_style": styles[role]}
        for role, keys in config.models(llm).items()
    }
    default = sections.pop(None)
    return {**default, "roles": sections or None}
