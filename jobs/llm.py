"""`kgqa llm make`: a small Llama to try things with. `kgqa llm serve`: keep a model up for many jobs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs.cli import guard
from jobs.common import run_word
from pipeline import config
from pipeline.errors import UserError

USAGE = "kgqa llm make|serve [group=choice] [key=value] …"


def main(argv: list[str]) -> int:
    """Run `make` or `serve`, the first word, with the Hydra overrides that follow."""
    return run_word(argv, USAGE, _JOBS)


def make(settings: Mapping[str, Any]) -> None:
    """Make a Llama with random weights and write it."""
    from pipeline.engine.rejections import Rejections
    from pipeline.training.llama import make_llama
    from pipeline.training.sft.texts import read_texts

    output = Path(settings["output"])
    if output.exists():
        raise UserError(f"{output} is there already: name another output=")
    dataset = config.build("dataset", settings)
    with Rejections(Path(f"{output}.rejected.jsonl"), strict=settings["dataset"]["strict"]) as rejections:
        texts = (part for text in read_texts(map(Path, settings["texts"])) for part in text.parts)
        made = make_llama(dataset, rejections.add, config.build("shape", settings), settings["seed"], texts)
    made.save(output)
    print(f"{output}: a Llama of {made.model.num_parameters():,} weights and {len(made.tokenizer):,} tokens")


def serve(settings: Mapping[str, Any]) -> None:
    """Serve a model and those of its roles, print how to use them, and stop them on Ctrl-C or SIGTERM."""
    if settings["choices"]["llm"] != "serve":
        raise UserError(f"kgqa llm serve takes llm=serve, not llm={settings['choices']['llm']}")
    config.check(settings, ("llm",))
    try:
        asyncio.run(_keep_up(settings))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped", file=sys.stderr)


_JOBS: dict[str, Callable[[Mapping[str, Any]], None]] = {"make": make, "serve": serve}


async def _keep_up(settings: Mapping[str, Any]) -> None:
    from pipeline.engine.cluster import joined  # Ray takes a second to import
    from pipeline.llm.serve import hosting

    roles = config.models(settings["llm"])
    model, *others = (config.build("llm", {"llm": keys}) for keys in roles.values())
    console = Console(stderr=True)
    with joined(settings, sum(each.cpus for each in (model, *others))) as ours:
        serving = asyncio.current_task()
        assert serving is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)  # after Ray, which has its own
        owner = f"{socket.gethostname()} {os.getpid()}"
        status = console.status(f"starting {model.name} …")
        status.start()
        try:
            async with hosting([model, *others], owner, grows=not ours) as sections:
                status.stop()
                print(_words(dict(zip(roles, sections, strict=True)), config.prompts(settings["llm"])), flush=True)
                print("Ctrl-C stops the server", file=sys.stderr, flush=True)
                await asyncio.Event().wait()
        finally:
            status.stop()


def _words(sections: Mapping[str | None, Mapping[str, Any]], prompts: Mapping[str | None, str]) -> str:
    """What a job is told to use the server: the section and the wording of each role, and under None of all others."""

    def urls(keys: Mapping[str, Any]) -> str:
        return f"[{','.join(keys['base_urls'])}]"

    default = sections[None]
    words = ["llm=endpoint", f"llm.base_urls={urls(default)}", f"llm.model={default['model']}"]
    words += [f"llm.prompts={prompts[None]}"] if prompts[None] != "full" else []
    own = [
        f"{role}: {{model: {keys['model']}, base_urls: {urls(keys)}, prompts: {prompts[role]}}}"
        for role, keys in sections.items()
        if role is not None
    ]
    return " ".join([*words, *([f"'llm.roles={{{', '.join(own)}}}'"] if own else [])])


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
