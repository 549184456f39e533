"""The synthetic world of the benchmarks: in Virtuoso servers of its own, and without unreadable rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from pipeline.config import default
from pipeline.kg.load import load_graph
from pipeline.kg.virtuoso import VirtuosoConfig, VirtuosoServer, build_database, replicas
from pipeline.simulation.world import SyntheticWorld
from pipeline.types import EntityId, Rejected


@contextmanager
def served_world(triples: int, count: int) -> Iterator[tuple[Sequence[VirtuosoServer], list[EntityId]]]:
    """`count` running Virtuoso servers of a synthetic world of about `triples`, and its entities, shuffled."""
    world = default(SyntheticWorld, triples=triples)
    with tempfile.TemporaryDirectory() as scratch:
        file, database = Path(scratch) / "graph.nt", Path(scratch) / "database"
        load_graph(world, "ntriples", file, reject=refuse)
        config = default(VirtuosoConfig)
        build_database([file], database, config)
        ids = sorted({triple.head for triple in world.triples() if isinstance(triple.head, str)})
        Random(0).shuffle(ids)
        with replicas(database, count, Path(scratch), config) as servers:
            yield servers, ids


def refuse(row: Rejected) -> None:
    """Fail at a rejected row: every row of the synthetic world can be read."""
    raise AssertionError(f"the synthetic world has no row that cannot be read: {row}")
