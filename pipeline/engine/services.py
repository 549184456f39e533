"""What a run starts before its workers and stops after them: the models that it serves itself (`llm=serve`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rich.console import Console

from pipeline import config
from pipeline.traces.place import Place

_SERVED = "pipeline.llm.serve.ServedModel"


@asynccontextmanager
async def services(
    points: Sequence[Mapping[str, Any]], folder: Place, console: Console
) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
    """Give the points as workers take them: each model that is yet to be served replaced by where it is served.

    Nothing that names a run or a call depends on the replacement. Raises UserError when a model cannot be served.
    """
    sections = {config.canonical(keys): keys for point in points for keys in config.models(point["llm"]).values()}
    to_serve = {text: keys for text, keys in sections.items() if keys["_target_"] == _SERVED}
    if not to_serve:
        yield points
        return
    from pipeline.engine.cluster import joined  # Ray takes a second to import
    from pipeline.llm.serve import hosting

    models = [config.build("llm", {"llm": keys}) for keys in to_serve.values()]
    starting = f"starting {', '.join(model.name for model in models)} …"
    if not console.is_terminal:  # where a status shows nothing
        console.print(starting, markup=False, soft_wrap=True)
    async with AsyncExitStack() as running:
        ours = running.enter_context(joined(points[0]["engine"], sum(model.cpus for model in models)))
        with console.status(starting):
            served = await running.enter_async_context(hosting(models, owner=str(folder), grows=not ours))
        places = dict(zip(to_serve, served, strict=True))
        yield [{**point, "llm": placed(point["llm"], places)} for point in points]


def placed(llm: Mapping[str, Any], places: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """An `llm` section with each model where it is served: `places`, by the canonical text of the model's section."""
    prompts = config.prompts(llm)
    sections = {
        role: {**places.get(config.canonical(keys), keys), "prompts": prompts[role]}
        for role, keys in config.models(llm).items()
    }
    default = sections.pop(None)
    return {**default, "roles": sections or None}
