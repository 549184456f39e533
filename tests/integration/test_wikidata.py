"""Wikidata in a real Virtuoso: methods answer the questions of a slice by the oracle, over Wikidata's own IRIs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline import api
from pipeline.config import default
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.simulation.world import SyntheticWorld
from tests.kg.support import vocabulary
from tests.wikidata_world import HOSTILE, WikidataWorld

pytestmark = pytest.mark.exhaustive

WIKIDATA = vocabulary("wikidata")
QUESTIONS = 24
"""Of all eight types alike."""


@pytest.fixture(scope="module")
def world() -> WikidataWorld:
    return WikidataWorld(default(SyntheticWorld, triples=2_500, questions=QUESTIONS))


@pytest.fixture(scope="module")
def server(world: WikidataWorld, virtuoso_factory: Callable[..., list[VirtuosoServer]]) -> VirtuosoServer:
    (server,) = virtuoso_factory(world.triples(), terms=WIKIDATA.terms)
    return server


def run(world: WikidataWorld, server: VirtuosoServer, folder: Path, **keys: Any) -> pl.DataFrame:
    """Answer the questions by the oracle, as a user does who has them in a file and the graph in a server."""
    world.write(folder)
    common = {
        "llm": "oracle",
        "dataset": "custom",
        "dataset.triples": folder / "slice.nt",
        "dataset.questions": folder / "questions.jsonl",
        "kg": "sparql",
        "kg/vocabulary": "wikidata",
        "kg.endpoints": [server.endpoint],
        "run.dir": folder / "run",
    }
    return api.evaluate(common | keys).questions.collect()


@pytest.mark.parametrize(
    ("keys", "least"),
    [
        # The judge sees 15 sequences of a path, so that SRP counts no more than 15 nodes (§3.7).
        ({"method": "srp"}, (0.95, 1)),
        ({"method": "srp", "method.judge_samples_per_path": 300}, (1, 1)),
        ({"method": "parog"}, (0.95, 0.95)),
        # A beam of three counts no more than three nodes.
        ({"method": "tog"}, (0, 0.95)),
        ({"experiment": "tog_wide"}, (0.95, 0.95)),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_the_oracle_answers_over_wikidata(
    world: WikidataWorld,
    server: VirtuosoServer,
    keys: dict[str, Any],
    least: tuple[float, float],
    tmp_path: Path,
) -> None:
    """`least` is the share of all questions that is answered, and of those that ask for no count."""
    rows = run(world, server, tmp_path, **keys, **{"method.depth": 4})
    assert len(rows) == QUESTIONS
    assert any(relation.endswith("(qualifier)") for relation in rows["followed_relations"].explode())
    missed = rows.filter(pl.col("hits_at_1") < 1)
    counts = pl.col("type") == "count"
    for share, asked, wrong in (
        (least[0], rows, missed),
        (least[1], rows.filter(~counts), missed.filter(~counts)),
    ):
        assert wrong.height <= (1 - share) * asked.height, wrong.select("question", "answers", "gold_paths").to_dicts()


async def test_virtuoso_answers_as_the_graph_in_the_process_does(world: WikidataWorld, server: VirtuosoServer) -> None:
    facts = list(world.triples())
    ids = sorted({node for fact in facts for node in (fact.head, fact.tail) if isinstance(node, str)})
    german = vocabulary("wikidata", languages=["de", "en"])
    async with (
        default(EmbeddedGraph, dataset=world, vocabulary=german) as known,
        default(SparqlGraph, endpoints=(server.endpoint,), vocabulary=german) as kg,
    ):
        assert await kg.relation_names() == await known.relation_names()
        assert "directed by (deutsch)" in await kg.relation_names()
        assert "a quoted label \\ # http://x . ☃" in await kg.relation_names()
        relations = await kg.relations(ids)
        assert relations == await known.relations(ids)
        hops = [(id, relation) for id in ids[::20] for relation in relations[id]]
        assert await kg.neighbours(hops, 50) == await known.neighbours(hops, 50)
        names = await kg.labels(ids)
        assert names == await known.labels(ids)
        assert names["Q999"] == HOSTILE
        assert sum(name is not None and name.endswith("(deutsch)") for name in names.values()) > 100
        assert await kg.mediators(ids) == await known.mediators(ids)
        assert await kg.types(ids) == await known.types(ids)
        current = await kg.current_ids(ids)
        assert current == await known.current_ids(ids)
        assert sum(id != now for id, now in current.items()) > 10
        wanted = [name for name in names.values() if name][:200]
        assert await kg.find_by_name(wanted, 5) == await known.find_by_name(wanted, 5)
        assert kg.fingerprint == known.fingerprint.rpartition("-")[0]
