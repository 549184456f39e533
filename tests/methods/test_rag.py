"""RAG: the worked example, its cost, and the effect of every key (specification §16.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.kg.interface import Batch, batch
from pipeline.llm.prompt import Prompt
from pipeline.methods.rag import RAG
from pipeline.simulation.registry import write_as_oracle
from pipeline.types import EntityId, Prediction, Question, Triple
from tests.methods.support import DictionaryGraph, FixedCaps, PlainRetrieval, ScriptedTools, gold_context, literal
from tests.methods.support import question as asked_about

FEATURES: Mapping[str, Mapping[str, Any]] = {
    "b1": {"title": "The Lake", "publication_year": 1999, "description": "not written out"},
    "b2": {"title": "The Sea", "publication_year": 2003, "genres": ["novel", "sea\nstory"], "is_ebook": None},
    "a1": {"name": "Ann Roe"},
}
TYPES = {"b1": ["book"], "b2": ["book"], "a1": ["author"]}
EDGES = [
    ("b1", "author", "a1"),
    ("b1", "similar_books", "b2"),
    ("b1", "similar_books", "lost"),
    ("a1", "book", "b1"),
    ("a1", "book", "b2"),
]
YEAR = Question(
    "q", "grbench", "test", "In which year did the author of The Lake publish The Sea?", meta={"domain": "goodreads"}
)

LAKE, SEA = (
    "title: The Lake. publication_year: 1999.",
    "title: The Sea. genres: novel, sea story. publication_year: 2003.",
)
NO_HOP = f"The node found: {LAKE}"
ONE_HOP = f"{NO_HOP}\nauthor:\n- name: Ann Roe.\nsimilar_books:\n- {SEA}"
TWO_HOPS = f"{NO_HOP}\nauthor:\n- name: Ann Roe.\n  book:\n  - {LAKE}\n  - {SEA}\nsimilar_books:\n- {SEA}"
BREADTH = f"{NO_HOP}\nauthor:\n- name: Ann Roe.\nsimilar_books:\n- {SEA}\nbook of Ann Roe:\n- {LAKE}\n- {SEA}"
AS_PUBLISHED = f"{NO_HOP}\nauthor:\n- name: Ann Roe.\n  book:\n  - {LAKE}\n  - {SEA}\nsimilar_books:"


class Books(DictionaryGraph):
    """The worked example's graph of books."""

    async def features(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, Any] | None]:
        self._count("features", ids)
        return batch({id: dict(FEATURES[id]) if id in FEATURES else None for id in ids})

    async def degrees(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, int] | None]:
        self._count("degrees", ids)
        edges = {id: sorted({relation for head, relation, _ in EDGES if head == id}) for id in ids}
        return batch({id: dict.fromkeys(edges[id], 1) if id in FEATURES else None for id in ids})

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        self._count("types", ids)
        return batch({id: TYPES.get(id, []) for id in ids})


class FindsTheLake(PlainRetrieval):
    labelled: bool | None = None

    async def nodes(self, query: str, k: int, *, labelled: bool = False) -> list[EntityId]:
        self.labelled = labelled
        return ["b1"]


class FindsNothing(PlainRetrieval):
    async def nodes(self, query: str, k: int, *, labelled: bool = False) -> list[EntityId]:
        return []


def copy_year(prompt: Prompt[Any]) -> str:
    """A reader that copies the year of The Sea from the context."""
    return "2003" if "publication_year: 2003" in prompt.messages()[-1].content else "unknown"


def books(retrieval: PlainRetrieval | None = None, **reader: Any) -> ScriptedTools:
    graph = Books(EDGES)
    return ScriptedTools(
        graph, retrieval=retrieval or FindsTheLake(), attributes=graph, **(reader or {"write": copy_year})
    )


def context(tools: ScriptedTools) -> str:
    return tools.model.prompts[-1].messages()[-1].content.partition("\n\nQuestion: ")[0]


@pytest.mark.parametrize(
    ("keys", "shown", "answer", "lookups"),
    [
        ({"hops": 0}, NO_HOP, "unknown", {"features": 1}),
        ({"hops": 1}, ONE_HOP, "2003", {"features": 2, "degrees": 1, "neighbours": 1}),
        ({"hops": 2}, TWO_HOPS, "2003", {"features": 2, "degrees": 2, "neighbours": 2}),
        ({"hops": 2, "order": "breadth"}, BREADTH, "2003", {"features": 2, "degrees": 2, "neighbours": 2}),
        (
            {"hops": 2, "two_hop": "compat"},
            AS_PUBLISHED,
            "2003",
            {"features": 2, "degrees": 2, "neighbours": 2, "types": 1},
        ),
        ({"hops": 1, "two_hop": "compat"}, ONE_HOP, "2003", {"features": 2, "degrees": 1, "neighbours": 1}),
    ],
)
async def test_the_worked_example(keys: dict[str, Any], shown: str, answer: str, lookups: dict[str, int]) -> None:
    tools = books()
    done = await default(RAG, **keys).answer(YEAR, tools.tools)
    assert context(tools) == shown
    assert done.predictions == (Prediction(answer),)
    assert tools.model.roles == ["rag.read"]
    assert dict(tools.graph.lookups) == lookups


async def test_the_evidence_is_what_the_prompt_shows() -> None:
    tools = books()
    answer = await default(RAG, hops=1).answer(YEAR, tools.tools)
    assert (Triple("b1", "author", "a1"),) in answer.evidence
    assert (Triple("b2", "publication_year", literal("2003")),) in answer.evidence
    assert not any("description" in fact for chain in answer.evidence for fact in chain)
    assert answer.names == {"a1": "Ann Roe", "b1": "The Lake", "b2": "The Sea"}
    assert tools.payloads("context") == [{"shown": 3, "dropped": 0}]


@pytest.mark.parametrize(("tokens", "shown"), [(40, 2), (16, 1), (3, 0)])
async def test_the_context_is_cut_between_nodes(tokens: int, shown: int) -> None:
    tools = books()
    await default(RAG, hops=1, context_tokens=tokens).answer(YEAR, tools.tools)
    assert tools.payloads("context") == [{"shown": shown, "dropped": 3 - shown}]
    cut = context(tools)
    assert len(cut) <= 4 * tokens or not shown
    assert cut == "\n".join(ONE_HOP.split("\n")[: len(cut.split("\n"))]) if shown else "Question" in cut


async def test_the_model_alone_looks_nothing_up() -> None:
    tools = books(replies={"rag.read": "2003"})
    answer = await default(RAG, hops=None).answer(YEAR, tools.tools)
    assert (answer.predictions, answer.evidence, answer.status) == ((Prediction("2003"),), (), "ok")
    assert tools.graph.lookups.total() == 0
    assert tools.model.prompts[0].messages()[-1].content.startswith("Question: ")
    assert not default(RAG, hops=None).uses_graph
    assert default(RAG).uses_graph


async def test_a_search_without_a_result_asks_the_model_alone() -> None:
    answer = await default(RAG).answer(YEAR, books(FindsNothing()).tools)
    assert (answer.predictions, answer.status) == ((Prediction("unknown"),), "no_evidence")


async def test_an_empty_reply_is_asked_for_once_more() -> None:
    tools = books(replies={"rag.read": ["  \n", " 2003 "]})
    answer = await default(RAG).answer(YEAR, tools.tools)
    assert answer.predictions == (Prediction("2003"),)
    silent = await default(RAG).answer(YEAR, books(replies={"rag.read": ""}).tools)
    assert (silent.predictions, silent.raw) == ((), "")


async def test_limits_of_lookups_and_of_the_frontier_leave_a_context() -> None:
    tools = books()
    tools.graph.max_lookups = 3
    answer = await default(RAG, hops=1).answer(YEAR, tools.tools)
    assert (answer.status, context(tools)) == ("budget_exhausted", NO_HOP)
    graph = Books(EDGES)
    narrow = ScriptedTools(
        graph, write=copy_year, retrieval=FindsTheLake(), attributes=graph, caps=FixedCaps(max_frontier=1)
    )
    await default(RAG, hops=1).answer(YEAR, narrow.tools)
    assert narrow.payloads("cap_hit") == [{"cap": "max_frontier"}]
    assert context(narrow) == "\n".join(ONE_HOP.split("\n")[:3])


FACTS = [
    ("m.ann", "people.person.nationality", "m.land"),
    ("m.ann", "people.person.born", literal("1971")),
    ("m.ann", "film.actor.film", "m.role"),
    ("m.role", "film.performance.film", "m.salt"),
    ("m.land", "location.country.capital", "m.city"),
]
NAMES = {"m.ann": "Ann", "m.land": "Annland", "m.salt": "The Salt Road", "m.city": "Ann City"}
ASKED = asked_about("what is the capital of Ann's country", "m.ann", names=NAMES)
BORN = '[("Ann", "people.person.born", "1971")]'
PLAYED = '[("Ann", "film.actor.film", "<cvt 1>"), ("<cvt 1>", "film.performance.film", "The Salt Road")]'
LAND = '[("Ann", "people.person.nationality", "Annland")]'
CITY = '[("Annland", "location.country.capital", "Ann City")]'


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ({"hops": 0}, [BORN]),
        ({"hops": 1}, [PLAYED, BORN, LAND]),
        ({"hops": 2}, [PLAYED, BORN, LAND, CITY]),
        ({"hops": 2, "context_tokens": 40}, [PLAYED, BORN]),
    ],
)
async def test_facts_around_the_topic_entities(keys: dict[str, Any], lines: list[str]) -> None:
    tools = ScriptedTools(DictionaryGraph(FACTS, NAMES), {"rag.read_facts": "{Ann City}"})
    answer = await default(RAG, **keys).answer(ASKED, tools.tools)
    assert sorted(context(tools).split("\n")[1:]) == sorted(lines)
    assert answer.predictions == (Prediction("Ann City", "m.city" if CITY in lines else None),)
    assert len(answer.evidence) == len(lines)


async def test_nested_facts_stand_behind_the_fact_that_leads_to_them() -> None:
    facts = [("A", "r", "B"), ("A", "s", "C"), ("B", "t", "D"), ("C", "t", "E")]
    shown = {}
    for order in ("nested", "breadth"):
        tools = ScriptedTools(DictionaryGraph(facts), {"rag.read_facts": "{E}"})
        await default(RAG, hops=2, order=order).answer(asked_about("?", "A"), tools.tools)
        shown[order] = [line[2:-2].replace('"', "") for line in context(tools).split("\n")[1:]]
    assert shown["nested"] == ["A, r, B", "B, t, D", "A, s, C", "C, t, E"]
    assert shown["breadth"] == ["A, r, B", "A, s, C", "B, t, D", "C, t, E"]


async def test_at_most_so_many_neighbours_of_a_relation_are_shown() -> None:
    facts = [("A", "r", f"B{n:02}") for n in range(30)]
    tools = ScriptedTools(DictionaryGraph(facts), {"rag.read_facts": "{B00}"})
    await default(RAG).answer(asked_about("?", "A"), tools.tools)
    assert len(context(tools).split("\n")[1:]) == 20


async def test_a_question_without_topic_entities_is_answered_by_the_model_alone() -> None:
    tools = ScriptedTools(DictionaryGraph(FACTS, NAMES), {"rag.read_facts": "{x}"})
    answer = await default(RAG).answer(asked_about("?"), tools.tools)
    assert (answer.status, answer.evidence) == ("no_topic_entity", ())


async def test_the_oracle_answers_from_the_context_alone() -> None:
    scores = {}
    for hops in (0, 1, 2):
        known = gold_context(YEAR, ["2003"], {})
        tools = books(write=lambda prompt, known=known: write_as_oracle(prompt, known, None))
        answer = await default(RAG, hops=hops).answer(YEAR, tools.tools)
        scores[hops] = [prediction.text for prediction in answer.predictions] == ["2003"]
    assert scores == {0: False, 1: True, 2: True}


@pytest.mark.parametrize(("keys", "labelled"), [({}, True), ({"index_text": "plain"}, False)])
async def test_the_centre_is_found_by_the_text_that_is_asked_for(keys: dict[str, Any], *, labelled: bool) -> None:
    search = FindsTheLake()
    await default(RAG, **keys).answer(YEAR, books(search).tools)
    assert search.labelled is labelled


@pytest.mark.parametrize(("key", "value"), [("hops", 3), ("context_tokens", 0), ("two_hop", "both"), ("centres", 0)])
def test_wrong_values_are_refused(key: str, value: object) -> None:
    with pytest.raises(UserError, match=key):
        default(RAG, **{key: value})
