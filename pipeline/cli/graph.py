"""`kgqa graph load`: convert and load the graph of a dataset. `kgqa graph serve`: start local Virtuoso replicas."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.console import Console
from pipeline.datasets.interface import Dataset
from pipeline.engine.rejections import Rejections
from pipeline.errors import Outage, UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.interface import KnowledgeGraph
from pipeline.kg.load import Summary, Target, load_graph
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.virtuoso import DATABASE_FILE, VirtuosoConfig, VirtuosoServer, build_database, replicas
from pipeline.kg.vocabulary import GraphVocabulary
from pipeline.text import printable

CONTENTS_FILE = "contents.txt"
"""Says what was loaded into a database folder."""
_READING = ("kg/vocabulary=", "kg.vocabulary.", "kg.snapshot=")
"""What the keys of a run begin with that must be as they were when its graph was loaded."""
_FIRST_PORT, _LAST_PORT = 1024, 65_535
"""Ports below are those of the system."""


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """The keys of `conf/graph_load.yaml`."""

    target: Target
    output: str | None


@dataclass(frozen=True, kw_only=True)
class ServePlan:
    """The keys of `conf/graph_serve.yaml`."""

    database: str | None
    replicas: PositiveInt
    port: Annotated[int, Field(ge=_FIRST_PORT, le=_LAST_PORT)] | None

    def __post_init__(self) -> None:
        """Refuse ports that do not exist."""
        if self.port and self.port + self.replicas - 1 > _LAST_PORT:
            raise UserError(f"port={self.port} leaves fewer than {self.replicas} ports: the last one is {_LAST_PORT}")


def load(arguments: Arguments) -> Output:
    """Convert and load the graph of a dataset, and count what is in it."""
    composed = arguments.compose()
    dataset: Dataset = config.build("dataset", composed)
    plan = config.build_own(LoadPlan, composed)
    target, output = plan.target, Path(plan.output) if plan.output else None
    rejected = Path.cwd() / f"{output or dataset.name}.rejected.jsonl"
    summary, notes = _load(composed, dataset, target, output, rejected=rejected)
    fingerprint = None
    if target == "oxigraph":
        fingerprint = _fingerprint(config.default(EmbeddedGraph, store=output, vocabulary=_vocabulary(composed)))
    elif target == "virtuoso":
        fingerprint = _fingerprint(config.build("kg", composed))
    distinct = {name: getattr(summary, name) for name in ("triples", "entities", "relations", "literals")}
    figures = {
        **{name: each.count for name, each in distinct.items()},
        "estimated": [name for name, each in distinct.items() if not each.exact],
        "read": summary.read,
        "rejected": summary.rejected,
        "fingerprint": fingerprint,
    }
    lines = [*_describe(summary), *([f"fingerprint {fingerprint}"] if fingerprint else [])]
    return Output(figures, lines=lines, notes=notes)


def serve(arguments: Arguments) -> None:
    """Start the replicas, print their endpoints, and stop them on Ctrl-C or SIGTERM.

    Raises Outage if all of them end by themselves.
    """
    composed = arguments.compose()
    dataset: Dataset = config.build("dataset", composed)
    server: VirtuosoConfig = config.build("server", composed)
    plan = config.build_own(ServePlan, composed)
    database = Path(plan.database or f"graphs/{dataset.name}-{_digest(composed['dataset'])}")
    if not (database / DATABASE_FILE).is_file():
        if not _is_new_or_empty(database):
            raise UserError(
                f"database={database} is no folder with a {DATABASE_FILE}, and is not empty: name a new folder"
            )
        _build(composed, dataset, database, server)
    contents = database / CONTENTS_FILE
    said = contents.read_text(encoding="utf-8") if contents.is_file() else "loaded elsewhere"
    print(printable(f"{database}:\n{said}"))
    try:
        with replicas(database, plan.replicas, database, server, first_port=plan.port) as servers:
            endpoints = [server.endpoint for server in servers]
            snapshot = composed["kg"].get("snapshot")
            graph = config.default(
                SparqlGraph, endpoints=tuple(endpoints), snapshot=snapshot, vocabulary=_vocabulary(composed)
            )
            print(f"fingerprint {_fingerprint(graph)}")
            words = [shlex.quote(word) for word in arguments.overrides if word.lstrip("+").startswith(_READING)]
            print("kg=sparql", *words, config.shell_override("kg.endpoints", endpoints), flush=True)
            print("Ctrl-C stops the servers", file=sys.stderr, flush=True)
            _wait(servers)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)


def _is_new_or_empty(database: Path) -> bool:
    """Whether a database can be built in this folder without a loss."""
    return not database.exists() or (database.is_dir() and not any(database.iterdir()))


def _load(
    composed: Mapping[str, Any], dataset: Dataset, target: Target, output: Path | None, *, rejected: Path
) -> tuple[Summary, list[str]]:
    """Load the graph. Return what is in it, and remarks on rows that cannot be read."""
    with (
        Rejections(rejected, strict=config.is_strict(composed)) as rejections,
        _progress(dataset.name) as tick,
    ):
        summary = load_graph(
            dataset,
            target,
            output,
            endpoints=composed["kg"].get("endpoints") or (),
            timeout_s=composed["kg"].get("timeout_s"),
            terms=_vocabulary(composed).terms,
            reject=rejections.add,
            tick=tick,
        )
    return summary, rejections.remarks()


def _build(composed: Mapping[str, Any], dataset: Dataset, database: Path, server: VirtuosoConfig) -> None:
    """Load the dataset into the database folder, through a temporary N-Triples file next to it."""
    database.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=database.parent, prefix=f".{database.name}-") as folder:
        file = Path(folder, "graph.nt")
        summary, notes = _load(composed, dataset, "ntriples", file, rejected=Path(f"{database}.rejected.jsonl"))
        with Console(stderr=True).status("loading into Virtuoso …"):
            build_database([file], database, server)
    (database / CONTENTS_FILE).write_text("\n".join([*_describe(summary), *notes]), encoding="utf-8")


def _wait(servers: Sequence[VirtuosoServer]) -> None:
    """Wait until interrupted, and report servers that end by themselves. Raises Outage once none runs any more."""
    running = list(servers)
    while running:
        for server in [server for server in running if not server.running]:
            print(f"the replica at {server.endpoint} ended; see {server.folder / 'server.log'}", file=sys.stderr)
            running.remove(server)
        time.sleep(1)
    raise Outage("no replica runs any more")


def _vocabulary(composed: Mapping[str, Any]) -> GraphVocabulary:
    """Return how the chosen graph backend reads ids and relations: they are written the same way."""
    section = composed["kg"].get("vocabulary")
    return config.default(GraphVocabulary) if section is None else config.build("vocabulary", {"vocabulary": section})


def _fingerprint(graph: KnowledgeGraph) -> str:
    """Open the graph, which also tests it, and return its fingerprint."""

    async def opened() -> str:
        async with graph:
            return graph.fingerprint

    return asyncio.run(opened())


def _digest(dataset: Mapping[str, Any]) -> str:
    """Return a short hash, so that each graph gets a folder of its own."""
    return hashlib.blake2b(config.canonical(dataset).encode(), digest_size=4).hexdigest()


def _describe(summary: Summary) -> list[str]:
    return [
        f"{summary.triples!s:>14} triples ({summary.read:,} read, {summary.rejected:,} rejected)",
        f"{summary.entities!s:>14} entities",
        f"{summary.relations!s:>14} relations",
        f"{summary.literals!s:>14} literals",
    ]


class _Rate(ProgressColumn):
    """Shows the triples so far, in total and per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed:,.0f} triples, {task.speed or 0:,.0f}/s")


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int], None]]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), _Rate(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield partial(progress.advance, progress.add_task(name, total=None))
