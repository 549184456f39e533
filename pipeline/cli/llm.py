"""`kgqa llm serve`: serve a model for many jobs, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.console import Console
from pipeline.errors import UserError


def serve(arguments: Arguments) -> None:
    """Serve a model and those of its roles, print the overrides that use them, and stop on Ctrl-C or SIGTERM."""
    composed = arguments.compose()
    if composed["choices"]["llm"] != "serve":
        raise UserError(f"kgqa llm serve takes llm=serve, not llm={composed['choices']['llm']}")
    config.check(composed, ("llm",))
    try:
        asyncio.run(_serve(composed))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)


async def _serve(composed: Mapping[str, Any]) -> None:
    from pipeline.engine.cluster import joined  # Ray takes a second to import
    from pipeline.llm.serve import hosting

    roles = config.models(composed["llm"])
    model, *others = (config.build("llm", {"llm": keys}) for keys in roles.values())
    console = Console(stderr=True)
    with joined(composed, sum(each.cpus for each in (model, *others)), extra="gpu") as started_here:
        status = console.status(f"starting {model.name} …")
        status.start()
        try:
            async with hosting([model, *others], grows=not started_here, guarded=False) as hosted:
                status.stop()
                by_role = {
                    role: each.model.as_endpoint(each.servers.urls) for role, each in zip(roles, hosted, strict=True)
                }
                print(_overrides(by_role, config.prompt_styles(composed["llm"])), flush=True)
                for token in {each.servers.token for each in hosted} - {""}:
                    print(f"the servers ask for a token: export OPENAI_API_KEY={token}", file=sys.stderr, flush=True)
                print("Ctrl-C stops the servers", file=sys.stderr, flush=True)
                await asyncio.Event().wait()
        finally:
            status.stop()


def _overrides(sections: Mapping[str | None, Mapping[str, Any]], prompts: Mapping[str | None, str]) -> str:
    """Return the overrides with which a job uses the servers.

    `sections` and `prompts` are the section and the prompt style of each role; under None those of all other roles.
    """
    default = sections[None]
    words = ["llm=endpoint", *(config.shell_override(f"llm.{key}", default[key]) for key in ("base_urls", "model"))]
    words += [f"llm.prompt_style={prompts[None]}"] if prompts[None] != "full" else []
    own = [
        f"{role}: {{model: {keys['model']}, base_urls: [{','.join(keys['base_urls'])}], prompt_style: {prompts[role]}}}"
        for role, keys in sections.items()
        if role is not None
    ]
    return " ".join([*words, *([f"'llm.roles={{{', '.join(own)}}}'"] if own else [])])
