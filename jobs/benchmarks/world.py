"""The sample world as benchmarks ask for it: in Virtuoso servers of its own, and without a row that cannot be read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from pipeline.datasets.sample import SampleWorld
from pipeline.kg.load import load_graph
from pipeline.kg.virtuoso import Server, build_database, replicas
from pipeline.types import EntityId, Rejected


@contextmanager
def served_world(triples: int, count: int) -> Iterator[tuple[Sequence[Server], list[EntityId]]]:
    """`count` running Virtuoso servers of a sample world of about `triples`, and its entities, shuffled."""
    world = SampleWorld(triples=triples)
    with tempfile.TemporaryDirectory() as scratch:
        file, database = Path(scratch) / "graph.nt", Path(scratch) / "database"
        load_graph(world, "ntriples", file, reject=refuse)
        build_database([file], database)
        ids = sorted({triple.head for triple in world.triples() if isinstance(triple.head, str)})
        Random(0).shuffle(ids)
        with replicas(database, count, Path(scratch)) as servers:
            yield servers, ids


def refuse(row: Rejected) -> None:
    """For the sample world, every row of which can be read."""
    raise AssertionError(f"the sample world has no row that cannot be read: {row}")
