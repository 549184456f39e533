"""One graph per question, read from RoG's Parquet files."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import config
from pipeline.config import default
from pipeline.datasets.metaqa import MetaQA
from pipeline.datasets.rog import RoG
from pipeline.errors import UserError
from pipeline.kg.subgraph import SubgraphGraph
from pipeline.types import Question, Relation

GRAPHS = {
    "q-1": [["Solaris", "film.film.starring", "m.0cvt"], ["m.0cvt", "film.performance.actor", "Donatas"]] * 2,
    "q-2": [["Solaris", "film.film.directed_by", "Tarkovsky"], ["Solaris", "common.topic.image", "m.0pic"]],
    "q-3": [],
}


@pytest.fixture
def rog(tmp_path: Path) -> RoG:
    rows = [
        {
            "id": id,
            "question": "?",
            "answer": ["x"],
            "q_entity": ["Solaris"],
            "a_entity": [],
            "graph": graph,
            "choices": [],
        }
        for id, graph in GRAPHS.items()
    ]
    schema = pa.schema(
        [("id", pa.string()), ("question", pa.string())]
        + [(name, pa.list_(pa.string())) for name in ("answer", "q_entity", "a_entity")]
        + [("graph", pa.list_(pa.list_(pa.string()))), ("choices", pa.list_(pa.null()))]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "test-00000.parquet")
    return default(RoG, path=tmp_path)


def question(id: str) -> Question:
    return Question(id=id, dataset="rog", split="test", text="?")


async def test_each_question_sees_its_own_graph(rog):
    async with default(SubgraphGraph, dataset=rog) as kg:
        first, second, third = (kg.for_question(question(id)) for id in GRAPHS)
        assert await first.relations(["Solaris", "m.0cvt"]) == {
            "Solaris": [Relation("film.film.starring", "out")],
            "m.0cvt": [Relation("film.film.starring", "in"), Relation("film.performance.actor", "out")],
        }
        assert await second.relations(["Solaris"]) == {"Solaris": [Relation("film.film.directed_by", "out")]}
        assert await third.relations(["Solaris"]) == {"Solaris": []}
        hop = ("Solaris", Relation("film.film.directed_by", "out"))
        assert (await second.neighbours([hop], 5))[hop].nodes == ("Tarkovsky",)
        assert (await first.neighbours([hop], 5))[hop].nodes == ()
        assert await first.labels(["Solaris", "m.0cvt"]) == {"Solaris": "Solaris", "m.0cvt": None}
        assert await first.mediators(["Solaris", "m.0cvt"]) == {"Solaris": False, "m.0cvt": True}
        assert await first.find_by_name(["Donatas", "Tarkovsky"], 5) == {"Donatas": ["Donatas"], "Tarkovsky": []}
        assert await first.types(["Solaris"]) == {"Solaris": []}
        assert await first.relation_names() == ["film.film.starring", "film.performance.actor"]


async def test_vocabulary_outside_a_question_is_the_union(rog):
    async with default(SubgraphGraph, dataset=rog) as kg:
        assert await kg.relation_names() == ["film.film.directed_by", "film.film.starring", "film.performance.actor"]


async def test_lookups_outside_a_question_are_refused(rog):
    async with default(SubgraphGraph, dataset=rog) as kg:
        for lookup in (kg.relations(["Solaris"]), kg.neighbours([], 5), kg.labels([]), kg.find_by_name([], 1)):
            with pytest.raises(UserError, match=r"no graph outside a question; use kg=embedded"):
                await lookup


async def test_an_unknown_question_fails_without_affecting_others(rog):
    async with default(SubgraphGraph, dataset=rog) as kg:
        for _ in range(2):
            with pytest.raises(UserError, match="there is no graph for question 'q-9'"):
                await kg.for_question(question("q-9")).relations(["Solaris"])
        assert await kg.for_question(question("q-2")).relations(["Tarkovsky"])


async def test_a_graph_is_read_once_for_concurrent_lookups_and_dropped_when_unused(rog):
    read: list[str] = []

    class Counted:
        name, split, path = rog.name, rog.split, rog.path

        def question_triples(self, id):
            read.append(id)
            return rog.question_triples(id)

    async with default(SubgraphGraph, dataset=Counted(), open_graphs=2) as kg:
        one = kg.for_question(question("q-1"))
        abandoned = asyncio.create_task(one.relations(["Solaris"]))
        await asyncio.sleep(0)
        abandoned.cancel()
        await asyncio.gather(*(one.labels(["Solaris"]) for _ in range(5)))
        assert kg.for_question(question("q-1")) is one
        assert read == ["q-1"]
        for id in ("q-2", "q-1", "q-3", "q-1", "q-2"):
            await kg.for_question(question(id)).relations(["Solaris"])
        assert read == ["q-1", "q-2", "q-3", "q-2"]


async def test_the_fingerprint_depends_on_the_content_and_the_question(rog, tmp_path):
    copy = tmp_path / "copy" / "data"
    copy.mkdir(parents=True)
    (copy / "test-00000.parquet").write_bytes((tmp_path / "test-00000.parquet").read_bytes())
    async with (
        default(SubgraphGraph, dataset=rog) as kg,
        default(SubgraphGraph, dataset=default(RoG, path=copy.parent)) as same,
    ):
        assert kg.fingerprint == same.fingerprint
        assert len({kg.fingerprint, *(kg.for_question(question(id)).fingerprint for id in GRAPHS)}) == 4
    shorter = pq.read_table(copy / "test-00000.parquet").slice(0, 2)
    pq.write_table(shorter, copy / "test-00000.parquet")
    async with default(SubgraphGraph, dataset=default(RoG, path=copy.parent)) as other:
        assert other.fingerprint != kg.fingerprint


async def test_graph_object_pickles_before_it_is_opened(rog):
    async with pickle.loads(pickle.dumps(default(SubgraphGraph, dataset=rog))) as kg:
        assert await kg.for_question(question("q-2")).relations(["Tarkovsky"])


async def test_configured_by_the_dataset(rog):
    settings = config.compose(["dataset=rog", f"dataset.path={rog.path}"])
    async with config.build("kg", settings) as kg:
        assert await kg.for_question(question("q-2")).relations(["Tarkovsky"])


def test_dataset_without_question_graphs_is_refused(shared_data):
    with pytest.raises(
        UserError, match="needs a dataset with a graph per question, such as dataset=rog; metaqa-1hop has none"
    ):
        default(SubgraphGraph, dataset=default(MetaQA, path=shared_data / "metaqa", hops=1))
