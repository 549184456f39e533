"""`kgqa graph load`: convert a dataset's graph and load it. `kgqa graph serve`: local Virtuoso replicas of it."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from jobs.cli import guard
from jobs.common import run_word
from pipeline import config
from pipeline.datasets.port import Dataset
from pipeline.engine.rejections import Rejections
from pipeline.errors import UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.load import Summary, Target, load_graph
from pipeline.kg.port import KnowledgeGraph
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.terms import Terms
from pipeline.kg.virtuoso import DATABASE_FILE, Server, ServerSettings, build_database, replicas

CONTENTS_FILE = "contents.txt"
"""What was loaded into a database folder, in words."""

USAGE = "kgqa graph load|serve [dataset=NAME] [group=choice] [key=value] …"


def main(argv: list[str]) -> int:
    """Run `load` or `serve`, the first word, with the Hydra overrides that follow."""
    return run_word(argv, USAGE, _JOBS)


def load(settings: Mapping[str, Any]) -> None:
    """Convert and load a dataset's graph, and print what is in it."""
    dataset: Dataset = config.build("dataset", settings)
    target: Target = settings["target"]
    if target not in get_args(Target):
        raise UserError(f"target={target} is none of {', '.join(get_args(Target))}")
    output = Path(settings["output"]) if settings["output"] else None
    print(_load(settings, dataset, target, output, rejected=Path(f"{output or dataset.name}.rejected.jsonl")))
    if target == "oxigraph":
        print(_identify(EmbeddedGraph(store=output, **_spelling(settings))))
    elif target == "virtuoso":
        print(_identify(config.build("kg", settings)))


def serve(settings: Mapping[str, Any]) -> None:
    """Start the replicas, print their endpoints, and stop them on Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    dataset: Dataset = config.build("dataset", settings)
    server: ServerSettings = config.build("server", settings)
    count = settings["replicas"]
    if not isinstance(count, int) or count < 1:
        raise UserError(f"replicas={count} should be a number from 1 on")
    database = Path(settings["database"] or f"graphs/{dataset.name}-{_digest(settings['dataset'])}")
    if not (database / DATABASE_FILE).is_file():
        _build(settings, dataset, database, server)
    contents = database / CONTENTS_FILE
    print(f"{database}:\n{contents.read_text(encoding='utf-8') if contents.is_file() else 'loaded elsewhere'}")
    try:
        with replicas(database, count, database, server) as servers:
            endpoints = [server.endpoint for server in servers]
            snapshot = settings["kg"].get("snapshot")
            print(_identify(SparqlGraph(endpoints=tuple(endpoints), snapshot=snapshot, **_spelling(settings))))
            print(f"kg=sparql kg.endpoints=[{','.join(endpoints)}]", flush=True)
            print("Ctrl-C stops the servers", file=sys.stderr, flush=True)
            _watch(servers)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)


_JOBS: dict[str, Callable[[Mapping[str, Any]], None]] = {"load": load, "serve": serve}


def _load(settings: Mapping[str, Any], dataset: Dataset, target: Target, output: Path | None, *, rejected: Path) -> str:
    """Load the graph and describe what is in it."""
    with Rejections(rejected, strict=settings["dataset"]["strict"]) as rejections, _progress(dataset.name) as tick:
        summary = load_graph(
            dataset,
            target,
            output,
            endpoints=settings["kg"].get("endpoints") or (),
            terms=Terms(**_spelling(settings)),
            reject=rejections.add,
            tick=tick,
        )
    return "\n".join([_describe(summary), *rejections.remarks()])


def _build(settings: Mapping[str, Any], dataset: Dataset, database: Path, server: ServerSettings) -> None:
    """Load the dataset into the database folder, by way of an N-Triples file beside it."""
    database.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=database.parent, prefix=f".{database.name}-") as folder:
        file = Path(folder, "graph.nt")
        contents = _load(settings, dataset, "ntriples", file, rejected=Path(f"{database}.rejected.jsonl"))
        with Console(stderr=True).status("loading into Virtuoso …"):
            build_database([file], database, server)
    (database / CONTENTS_FILE).write_text(contents, encoding="utf-8")


def _watch(servers: Sequence[Server]) -> None:
    """Sleep for ever, saying so when a server ends on its own."""
    running = list(servers)
    while True:
        for server in [server for server in running if not server.running]:
            print(f"the replica at {server.endpoint} ended; see {server.folder / 'server.log'}", file=sys.stderr)
            running.remove(server)
        time.sleep(1)


def _spelling(settings: Mapping[str, Any]) -> dict[str, Any]:
    """How the chosen graph backend reads ids and relations, so that they are written that way."""
    return {key: settings["kg"][key] for key in ("namespace", "opaque_ids") if key in settings["kg"]}


def _identify(graph: KnowledgeGraph) -> str:
    """The line that names the graph; opening it also shows that it can be asked."""

    async def opened() -> str:
        async with graph:
            return graph.fingerprint

    return f"fingerprint {asyncio.run(opened())}"


def _digest(dataset: Mapping[str, Any]) -> str:
    """Another graph gets another folder."""
    return hashlib.blake2b(config.canonical(dataset).encode(), digest_size=4).hexdigest()


def _describe(summary: Summary) -> str:
    return (
        f"{summary.triples!s:>14} triples ({summary.read:,} read, {summary.rejected:,} rejected)\n"
        f"{summary.entities!s:>14} entities\n"
        f"{summary.relations!s:>14} relations\n"
        f"{summary.literals!s:>14} literals"
    )


class _Rate(ProgressColumn):
    """Triples so far and per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed:,.0f} triples, {task.speed or 0:,.0f}/s")


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int], None]]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), _Rate(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield partial(progress.advance, progress.add_task(name, total=None))


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
