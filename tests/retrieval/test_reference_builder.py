"""Building reference bases and finding gold paths on real questions and graphs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from pipeline.config import default
from pipeline.datasets.custom import Custom
from pipeline.datasets.metaqa import MetaQA
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.interface import Batch
from pipeline.kg.paths import find_paths, gold_paths, instantiate
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.reference_builder import build_references, solve_question
from pipeline.retrieval.references import ReferenceBase
from pipeline.types import Entity, Example, Gold, GoldAnswer, Question, Relation


@pytest.fixture(scope="module")
def metaqa(shared_data: Path) -> Callable[[int, str], MetaQA]:
    return lambda hops, split: default(MetaQA, path=shared_data / "metaqa", hops=hops, split=split)


@pytest.fixture(scope="module")
def films(metaqa: Callable[[int, str], MetaQA]) -> EmbeddedGraph:
    return asyncio.run(default(EmbeddedGraph, dataset=metaqa(1, "dev")).__aenter__())


def read(dataset: MetaQA | Custom, step: int = 1, limit: int | None = None) -> list[Example]:
    rejected: list[object] = []
    examples = list(islice(dataset.examples(rejected.append), 0, limit, step))
    assert not rejected
    return examples


def path_of(reference_path: str) -> list[str]:
    return reference_path.split(" -> ")[1:]


async def reaches_gold(graph: EmbeddedGraph, topic: str, names: list[str], answers: set[str]) -> bool:
    """Return whether the relations, in any directions, lead from the topic to a gold answer."""
    nodes = {topic}
    for name in names:
        hops = [(node, Relation(name, direction)) for node in sorted(nodes) for direction in ("out", "in")]
        found = await graph.neighbours(hops, 5000)
        nodes = {node for end in found.values() for node in end.nodes if isinstance(node, str)}
    return bool(nodes & answers)


@pytest.mark.exhaustive
@pytest.mark.parametrize("hops", [1, 2, 3])
async def test_every_metaqa_reference_leads_to_its_answer(
    metaqa: Callable[[int, str], MetaQA], films: EmbeddedGraph, hops: int
) -> None:
    examples = read(metaqa(hops, "dev"), step=20)
    base, report = await build_references(examples, films, LexicalEncoder(), clusters=10, per_cluster=2, seed=5)
    assert report.questions == report.eligible == len(examples)
    assert report.clusters == 10
    assert not report.rejected
    gold = {example.question.text: example for example in examples}
    assert len(base.references) == len({known.question for known in base.references}) == 20
    for known in base.references:
        example = gold[known.question]
        [(topic, path)] = known.paths.items()
        assert "*" in known.masked_question
        assert topic not in known.masked_question
        assert known.topic_entities == {topic: topic}
        assert len(path_of(path)) == hops
        assert set(known.answers) <= {answer.name for answer in example.gold.answers}
        assert len(known.answers) == min(10, len(example.gold.answers))
        assert await reaches_gold(films, topic, path_of(path), {answer.name for answer in example.gold.answers})


async def test_a_real_question_finds_references_that_ask_for_the_same_relations(
    metaqa: Callable[[int, str], MetaQA], films: EmbeddedGraph
) -> None:
    base, _ = await build_references(read(metaqa(2, "dev"), step=10), films, LexicalEncoder())
    assert len(base.references) == 100
    nearest, drawn = Counter[bool](), Counter[bool]()
    for example in read(metaqa(2, "test"), step=150):
        [[path]] = example.gold.paths.values()
        relations = [relation.name for relation in path]
        for found, references in (
            (nearest, await base.nearest(example.question, 4, LexicalEncoder())),
            (drawn, base.sample(example.question, 4)),
        ):
            found[any(path_of(next(iter(known.paths.values()))) == relations for known in references)] += 1
    assert nearest[True] > 0.85 * nearest.total()
    assert drawn[True] < 0.5 * drawn.total()


async def test_the_same_seed_builds_the_same_base(metaqa: Callable[[int, str], MetaQA], films: EmbeddedGraph) -> None:
    examples = read(metaqa(1, "dev"), step=50)

    async def build(seed: int) -> ReferenceBase:
        base, _ = await build_references(examples, films, LexicalEncoder(), clusters=8, per_cluster=2, seed=seed)
        return base

    assert (await build(1)).references == (await build(1)).references
    assert (await build(1)).references != (await build(2)).references


@pytest.mark.parametrize("masked", [False, True])
async def test_questions_are_clustered_and_stored_masked_by_choice(
    metaqa: Callable[[int, str], MetaQA], films: EmbeddedGraph, tmp_path: Path, masked: bool
) -> None:
    examples, encoder = read(metaqa(1, "dev"), step=100), LexicalEncoder()
    base, _ = await build_references(examples, films, encoder, clusters=8, per_cluster=2, masked=masked)
    base.save(tmp_path / "films.jsonl")
    texts = [known.masked_question if masked else known.question for known in base.references]
    assert np.allclose(np.load(tmp_path / "films.npy"), encoder.vectors(texts))


async def test_no_test_question_becomes_a_reference(metaqa: Callable[[int, str], MetaQA], films: EmbeddedGraph) -> None:
    examples = read(metaqa(1, "dev"), step=100)
    held_out = {f"  {example.question.text.upper()}?" for example in examples[::2]}
    base, report = await build_references(
        examples, films, LexicalEncoder(), held_out=held_out, clusters=50, per_cluster=2
    )
    assert report.rejected == {"held out": len(examples[::2])}
    assert {known.question for known in base.references} == {example.question.text for example in examples[1::2]}


@pytest.mark.exhaustive
@pytest.mark.parametrize("hops", [1, 2, 3])
async def test_shortest_paths_are_found_in_the_whole_metaqa_graph(
    metaqa: Callable[[int, str], MetaQA], films: EmbeddedGraph, hops: int
) -> None:
    found = Counter[bool]()
    for example in read(metaqa(hops, "dev"), step=500):
        [(topic, [path])] = example.gold.paths.items()
        paths = await find_paths(films, topic, example.gold.answers)
        assert paths
        assert {len(shortest) for shortest in paths} == {len(paths[0])}
        assert len(paths[0]) <= hops
        answers = {answer.id for answer in example.gold.answers}
        assert set((await instantiate(films, topic, paths[0])).nodes) & answers
        assert await gold_paths(films, topic, [path], example.gold.answers) == [path]
        found[paths[0] == path] += 1
    assert found[True] >= 0.5 * found.total()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["webqsp.test", "cwq.test", "grailqa.test1000"])
async def test_freebase_questions_make_a_full_base_of_verified_paths(shared_data: Path, name: str) -> None:
    folder = shared_data / "freebase-slice"
    dataset = default(Custom, triples=folder / "triples.tsv.gz", questions=folder / f"{name}.jsonl.gz")
    examples = read(dataset, limit=300)
    async with default(EmbeddedGraph, dataset=dataset) as graph:
        base, report = await build_references(examples, graph, LexicalEncoder())
        assert report.clusters == 50
        assert len(base.references) == 100
        for known in base.references[:20]:
            golds = [example for example in examples if example.question.text == known.question]
            answers = {answer.id or answer.name for example in golds for answer in example.gold.answers}
            for topic, path in known.paths.items():
                assert 1 <= len(path_of(path)) <= 4
                ids = [id for id, topic_name in known.topic_entities.items() if topic_name == topic]
                assert any([await reaches_gold(graph, id, path_of(path), answers) for id in ids])


def example(text: str, *, topics: tuple[Entity, ...], answers: tuple[GoldAnswer, ...]) -> Example:
    return Example(Question(id=text, dataset="d", split="train", text=text, topic_entities=topics), Gold(answers))


async def test_rejected_questions_are_counted_by_reason(films: EmbeddedGraph) -> None:
    titanic, cameron = Entity("Titanic", "Titanic"), GoldAnswer("James Cameron", id="James Cameron")
    examples = [
        example("who directed Titanic", topics=(titanic,), answers=(cameron,)),
        example("who directed it", topics=(), answers=(cameron,)),
        example("who sank Titanic", topics=(titanic,), answers=()),
        example("who is on Titanic", topics=(titanic,), answers=(GoldAnswer("nobody here", id="nobody here"),)),
        example("who held Titanic", topics=(titanic,), answers=(cameron,)),
    ]
    told: list[bool] = []
    base, report = await build_references(
        examples,
        films,
        LexicalEncoder(),
        held_out=["Who held Titanic?"],
        clusters=2,
        per_cluster=1,
        on_drawn=lambda reference: told.append(reference is not None),
    )
    assert [known.question for known in base.references] == ["who directed Titanic"]
    assert (report.questions, report.eligible) == (5, 2)
    assert report.rejected == {"no topic entity": 1, "no answer": 1, "no path to an answer": 1, "held out": 1}
    assert sorted(told) == [False, True]


async def test_without_questions_the_base_is_empty(films: EmbeddedGraph) -> None:
    base, report = await build_references([], films, LexicalEncoder())
    assert (base.references, report.clusters) == ((), 0)


@pytest.mark.exhaustive
async def test_topic_entities_without_a_name_get_the_graphs_name(shared_data: Path) -> None:
    class Named(EmbeddedGraph):
        async def labels(self, ids: Sequence[str]) -> Batch[str, str | None]:
            found = await super().labels(ids)
            found.update({"Titanic": "RMS Titanic"})
            return found

    dataset = default(MetaQA, path=shared_data / "metaqa", hops=1)
    cameron = GoldAnswer("James Cameron", id="James Cameron")
    asked = example("who filmed RMS Titanic", topics=(Entity("Titanic", "Titanic"),), answers=(cameron,))
    async with default(Named, dataset=dataset) as graph:
        base, _ = await build_references([asked], graph, LexicalEncoder())
    [known] = base.references
    assert known.masked_question == "who filmed *"
    assert list(known.paths) == ["RMS Titanic"]


async def test_a_question_without_a_path_is_not_solved(films: EmbeddedGraph) -> None:
    lost = example("x", topics=(Entity("no such film", "no such film"),), answers=(GoldAnswer("y", id="y"),))
    assert await solve_question(lost, films) is None
