"""PARoG with the oracle: a perfect model answers every type of question correctly, at the cost of §5.9."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, get_args

import pytest

from pipeline.config import default
from pipeline.datasets.gold_paths import Operation, query_operation
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.llm.prompt import Prompt
from pipeline.methods.parog import PARoG
from pipeline.methods.parog.plan import write_plan
from pipeline.normalisation import normalise
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext, find_gold_context
from pipeline.simulation.gold_path_search import legs
from pipeline.simulation.oracle import damage
from pipeline.simulation.parog_plan import perfect_plan
from pipeline.simulation.registry import write_as_oracle, write_by_similarity
from pipeline.simulation.world import SyntheticWorld
from pipeline.simulation.world.questions import QUESTION_TYPES, QuestionType
from pipeline.types import Answer, Example, Gold, GoldAnswer, Question, Relation
from tests.methods.support import DictionaryGraph, Fact, ScriptedTools, literal, question
from tests.support import sampled

PER_TYPE = 12


class CountedGraph:
    """A graph that counts its lookups."""

    def __init__(self, graph: EmbeddedGraph) -> None:
        self._graph = graph
        self.lookups: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._graph, name)
        if name not in {"relations", "neighbours", "labels", "find_by_name"}:
            return operation

        async def look_up(arguments: Sequence[Any], *limit: int) -> Any:
            self.lookups[name] += bool(arguments)
            return await operation(arguments, *limit)

        return look_up


@pytest.fixture(scope="module")
def world() -> SyntheticWorld:
    return default(SyntheticWorld, triples=6000, questions=PER_TYPE * len(QUESTION_TYPES))


@pytest.fixture
async def graph(world: SyntheticWorld) -> AsyncIterator[EmbeddedGraph]:
    async with default(EmbeddedGraph, dataset=world) as graph:
        yield graph


async def ask(
    method: PARoG, graph: Any, example: Example, *, error_rate: float = 0.0, malformed_rate: float = 0.0
) -> tuple[Answer, ScriptedTools, GoldContext]:
    known = await find_gold_context(example, graph)
    rng = Random(example.question.id)

    def write(prompt: Prompt[Any]) -> str:
        text = write_as_oracle(prompt, known, rng if rng.random() < error_rate else None)
        return damage(text, rng) if rng.random() < malformed_rate else text

    counted: Any = CountedGraph(graph)
    tools = ScriptedTools(counted, write=write)
    return await method.answer(example.question, tools.tools), tools, known


def is_right(answer: Answer, known: GoldContext) -> bool:
    return bool(answer.predictions) and known.is_answer(answer.predictions[0].text, id=answer.predictions[0].id)


def of_type(world: SyntheticWorld, type: QuestionType) -> list[Example]:
    return [example for example in world.examples(lambda _: None) if example.question.meta["type"] == type]


@pytest.mark.parametrize("type", sampled(QUESTION_TYPES, every=3))
async def test_a_perfect_model_is_right_and_makes_the_calls_of_the_formula(
    type: QuestionType, world: SyntheticWorld, graph: EmbeddedGraph
) -> None:
    examples = of_type(world, type)
    assert len(examples) == PER_TYPE
    for example in examples:
        answer, tools, known = await ask(default(PARoG), graph, example)
        assert is_right(answer, known), example.question.text
        explored = [step for step in perfect_plan(known) if step.leg is not None]
        selections = sum(payload["offered"] > 0 for payload in tools.payloads("pruned"))
        is_aggregated = type in {"conjunction", "comparison", "superlative", "count"}
        assert len(tools.model.roles) == 1 + len(explored) * 3 + selections + is_aggregated, (
            "a plan; a tentative answer, relations, entities where there is a choice, and a refinement per sub-goal; "
            "an aggregation unless a refinement has answered the question (§5.9)"
        )
        lookups: Counter[str] = tools.graph.lookups
        assert set(lookups) <= {"relations", "neighbours", "labels"}
        for count in lookups.values():
            assert count <= 2 * len(explored), "per round, one layer of nodes and one behind mediators"


@pytest.mark.parametrize("type", ["comparison", "superlative", "count"])
async def test_set_operations_are_executed_on_facts_and_not_on_gold_answers(
    type: QuestionType, world: SyntheticWorld, graph: EmbeddedGraph
) -> None:
    for example in of_type(world, type)[:4]:
        false = Gold((GoldAnswer("someone else", "m.none"),), example.gold.paths, example.gold.sparql)
        known = await find_gold_context(example, graph)
        blind = replace(known, gold=false)
        tools = ScriptedTools(graph, write=lambda prompt, blind=blind: write_as_oracle(prompt, blind, None))  # type: ignore[arg-type]
        answer = await default(PARoG).answer(example.question, tools.tools)
        assert is_right(answer, known), "the answer follows from the facts"


@pytest.mark.parametrize(
    "changed",
    sampled(
        [{"refine": False}, {"split_refine": True}, {"per_entity": True}, {"width": 0}, {"planner": "prompted"}],
        every=2,
    ),
)
async def test_a_perfect_model_is_right_with_every_option(
    changed: dict[str, Any], world: SyntheticWorld, graph: EmbeddedGraph
) -> None:
    for type in QUESTION_TYPES:
        for example in of_type(world, type)[:3]:
            answer, _, known = await ask(default(PARoG, **changed), graph, example)
            assert is_right(answer, known), example.question.text


@pytest.mark.parametrize("changed", [{"expand_cvt": False}, {"seed_entities": "topic"}, {"planner": "none"}])
async def test_paths_of_three_hops_need_no_mediators_dependencies_or_plan(
    changed: dict[str, Any], world: SyntheticWorld, graph: EmbeddedGraph
) -> None:
    for type in get_args(QuestionType)[:3]:
        for example in of_type(world, type)[:4]:
            answer, _, known = await ask(default(PARoG, width=0, unnamed_sample=200, **changed), graph, example)
            assert is_right(answer, known), example.question.text


async def test_without_facts_the_oracle_does_not_know_the_answer(world: SyntheticWorld, graph: EmbeddedGraph) -> None:
    for example in of_type(world, "1-hop")[:3]:
        answer, _, known = await ask(default(PARoG, max_rounds=0), graph, example)
        assert not is_right(answer, known)


@pytest.mark.parametrize(
    "changed", sampled([{}, {"refine": False}, {"split_refine": True}, {"planner": "none"}], every=4)
)
async def test_an_erring_model_with_damaged_replies_always_ends_in_an_answer(
    changed: dict[str, Any], world: SyntheticWorld, graph: EmbeddedGraph
) -> None:
    for example in list(world.examples(lambda _: None))[:64]:
        answer, _, _ = await ask(default(PARoG, **changed), graph, example, error_rate=0.3, malformed_rate=0.3)
        assert answer.status in {"ok", "no_evidence"}


async def test_the_similarity_policy_answers_every_type(world: SyntheticWorld, graph: EmbeddedGraph) -> None:
    encoder = LexicalEncoder()
    for type in QUESTION_TYPES:
        for example in of_type(world, type)[:2]:
            tools = ScriptedTools(graph, write=lambda prompt: write_by_similarity(prompt, encoder))  # type: ignore[arg-type]
            assert (await default(PARoG).answer(example.question, tools.tools)).status in {"ok", "no_evidence"}


async def test_two_runs_are_identical(world: SyntheticWorld, graph: EmbeddedGraph) -> None:
    for example in of_type(world, "conjunction")[:4]:
        runs = [await ask(default(PARoG), graph, example, error_rate=0.2) for _ in range(2)]
        assert runs[0][0] == runs[1][0]
        assert runs[0][1].events == runs[1][1].events


FILMS = [("Ann", "film", "Brazil"), ("Ann", "film", "1984"), ("Bob", "film", "1984"), ("Bob", "film", "Brazil")]
YEARS = [("Brazil", "year", "1985"), ("1984", "year", "1956")]
FILM = (Relation("film", "out"),)


async def ask_for_the_last(film: str, facts: list[Fact], *, gold_name: str | None = None) -> list[str]:
    """Ask which film came last, where `film` is right; the oracle takes `gold_name` for the gold answer."""
    ns = "http://rdf.freebase.com/ns/"
    sparql = f"SELECT ?x WHERE {{ <{ns}Ann> <{ns}film> ?x . ?x <{ns}year> ?v }} ORDER BY DESC(?v) LIMIT 1"
    asked, graph = question("which film of hers came last?", "Ann"), DictionaryGraph(facts)
    gold = Gold((GoldAnswer(film),), {"Ann": (FILM,)}, sparql)
    known = replace(
        await find_gold_context(Example(asked, gold), graph), gold=Gold((GoldAnswer(gold_name or film),), {}, sparql)
    )  # type: ignore[arg-type]
    tools = ScriptedTools(graph, write=lambda prompt: write_as_oracle(prompt, known, None))
    return [prediction.text for prediction in (await default(PARoG).answer(asked, tools.tools)).predictions]


async def test_values_are_compared_in_a_graph_without_literals() -> None:
    assert await ask_for_the_last("Brazil", FILMS + YEARS, gold_name="someone else") == ["Brazil"]
    assert await ask_for_the_last("Brazil", FILMS + YEARS[1:]) == ["1984"], "compared by the values that the graph has"


async def test_the_gold_answer_is_recognised_only_if_there_are_no_values_to_compare() -> None:
    assert await ask_for_the_last("Brazil", FILMS) == ["Brazil"]
    assert set(await ask_for_the_last("Brazil", FILMS, gold_name="someone else")) == {"1984", "Brazil"}


@pytest.mark.parametrize("planner", ["finetuned", "none"])
async def test_the_gold_answer_is_recognised_if_a_condition_is_missing_in_the_paths(planner: Any) -> None:
    asked, graph = question("which film of theirs is British?", "Ann", "Bob"), DictionaryGraph(FILMS)
    example = Example(asked, Gold((GoldAnswer("Brazil"),), {"Ann": (FILM,), "Bob": (FILM,)}))
    answer, _, _ = await ask(default(PARoG, planner=planner), graph, example)
    assert [prediction.text for prediction in answer.predictions] == ["Brazil"]


# The oracle's knowledge


@pytest.mark.parametrize(
    ("ending", "operation"),
    [
        ("ORDER BY ?v LIMIT 1", Operation("lowest", (Relation("d", "out"),))),
        ("ORDER BY DESC(?v) LIMIT 1", Operation("highest", (Relation("d", "out"),))),
        (
            "ORDER BY DESC(<http://www.w3.org/2001/XMLSchema#integer>(?v)) LIMIT 1",
            Operation("highest", (Relation("d", "out"),)),
        ),
        ("ORDER BY ?v", None),
    ],
)
def test_an_order_with_a_limit_is_a_superlative(ending: str, operation: Operation | None) -> None:
    assert query_operation(_query("?x", "") + ending) == operation


@pytest.mark.parametrize(
    ("sign", "kind"), [(">", "above"), (">=", "above"), ("<", "below"), ("<=", "below"), ("!=", None)]
)
def test_a_filter_by_a_constant_is_a_comparison(sign: str, kind: Any) -> None:
    found = query_operation(_query("?x", f'FILTER (?v {sign} "7"^^<http://www.w3.org/2001/XMLSchema#integer>)'))
    assert found == (Operation(kind, (Relation("d", "out"),), "7") if kind else None)


def test_a_count_query_is_a_count() -> None:
    assert query_operation(_query("(COUNT(DISTINCT ?x) AS ?n)", "")) == Operation("count")


def _query(what: str, condition: str) -> str:
    ns = "http://rdf.freebase.com/ns/"
    return f"SELECT {what} WHERE {{ <{ns}m.t> <{ns}p> ?x . ?x <{ns}d> ?v . {condition} }} "


FACTS = [
    ("Ann", "acted", "m.1"),
    ("m.1", "film", "The Salt Road"),
    ("m.1", "film", "Nine Lanterns"),
    ("The Salt Road", "actor", "Ann"),
    ("The Salt Road", "actor", "Bob"),
    ("Nine Lanterns", "actor", "Cid"),
    ("Bob", "height", literal("2")),
]


async def test_a_path_is_split_at_named_nodes_and_visits_none_twice() -> None:
    path = tuple(Relation(name, "out") for name in ("acted", "film", "actor"))
    parts = await legs(DictionaryGraph(FACTS), "Ann", path, [GoldAnswer("Bob")])
    assert [(leg.relations, leg.nodes, leg.leading) for leg in parts] == [
        (path[:2], {"The Salt Road", "Nine Lanterns"}, {"The Salt Road"}),
        (path[2:], {"Bob", "Cid"}, {"Bob"}),
    ]
    parts = await legs(DictionaryGraph(FACTS), "Ann", path, [GoldAnswer("Ann")])
    assert "Ann" in parts[-1].leading, "unless only that reaches the answer"


async def test_a_superlative_is_planned_as_legs_values_and_selection() -> None:
    asked = Question("q", "test", "test", "who is tallest?", question("?", "Ann").topic_entities)
    path = tuple(Relation(name, "out") for name in ("acted", "film", "actor"))
    ns = "http://rdf.freebase.com/ns/"
    chain = f"<{ns}Ann> <{ns}acted> ?a . ?a <{ns}film> ?b . ?b <{ns}actor> ?x . ?x <{ns}height> ?v"
    sparql = f"SELECT ?x WHERE {{ {chain} }} ORDER BY DESC(?v) LIMIT 1"
    known = await find_gold_context(
        Example(asked, Gold((GoldAnswer("Bob"),), {"Ann": (path,)}, sparql)), DictionaryGraph(FACTS)
    )  # type: ignore[arg-type]
    steps = [step.subgoal for step in perfect_plan(known)]
    assert [(one.op, one.uses, one.keep) for one in steps] == [
        ("lookup", (), None),
        ("composition", (1,), None),
        ("composition", (2,), None),
        ("superlative", (2, 3), "highest"),
    ]
    assert normalise("Bob") not in write_plan(steps).casefold(), "a plan never contains the answer"
