"""PARoG's training pairs: a gold query is verbalised, translated back, and executed by PARoG itself."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pipeline.config import default
from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.parog.plan import Plan, read_plan
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.oracle import damage
from pipeline.simulation.registry import load_simulators, write_as_oracle, write_by_similarity
from pipeline.training.labelled import LabelledQuestion
from pipeline.training.parog import PlanningData
from pipeline.training.parog.back_translation import BackTranslate, JudgeEquivalent
from pipeline.training.parog.constants import missing_constants
from pipeline.training.parog.decompose import Atom
from pipeline.training.parog.verbalise import Polish, verbalise
from pipeline.types import Entity, Gold, LiteralNode, Relation
from tests.methods.hostile import COMMON, read
from tests.methods.support import DictionaryGraph, Fact, ScriptedTools, gold_context, literal, texts
from tests.training.test_parog_queries import HEAD, query

load_simulators(["pipeline.training.parog.simulators"])

FACTS: list[Fact] = [
    ("m.orsa", "people.person.nationality", "m.quessland"),
    ("m.quessland", "location.country.languages_spoken", "m.quessish"),
    ("m.quessland", "location.country.languages_spoken", "m.salt"),
    ("m.varnland", "location.country.languages_spoken", "m.salt"),
    ("m.quessland", "location.country.code", literal("QU")),
    ("m.varnland", "location.country.code", literal("VA")),
    ("m.orsa", "film.actor.film", "m.cvt1"),
    ("m.cvt1", "film.performance.film", "m.winter"),
    ("m.cvt1", "film.performance.character", "m.role"),
    ("m.orsa", "film.actor.film", "m.cvt2"),
    ("m.cvt2", "film.performance.film", "m.quay"),
    ("m.winter", "film.film.year", literal("1991")),
    ("m.quay", "film.film.year", literal("2004")),
]
NAMES = {
    "m.orsa": "Tavin Orsa",
    "m.quessland": "Quessland",
    "m.varnland": "Varnland",
    "m.quessish": "Quessish",
    "m.salt": "Salt Tongue",
    "m.winter": "Winter Ferry",
    "m.quay": "The Glass Quay",
    "m.role": "The Ferryman",
}
FILMS = "ns:m.orsa ns:film.actor.film ?y . ?y ns:film.performance.film ?x . "
SPOKEN = "ns:location.country.languages_spoken"
SPEAK = "ns:m.orsa ns:people.person.nationality ?c . ?c ns:location.country.languages_spoken ?x ."


def solved(sparql: str | None, text: str = "what is it about Tavin Orsa") -> LabelledQuestion:
    topics = (Entity("m.orsa", "Tavin Orsa"),)
    return LabelledQuestion("q", "test", "train", text, topics, gold=Gold(sparql=sparql))


def tools(question: LabelledQuestion, **replies: str) -> ScriptedTools:
    """A script with the oracle's replies; keyword arguments such as `parog_polish="…"` replace those of one role."""
    known = gold_context(question, [], {})
    own = {role.replace("_", ".", 1): reply for role, reply in replies.items()}
    return ScriptedTools(DictionaryGraph(FACTS, NAMES), own, write=lambda prompt: write_as_oracle(prompt, known, None))


@pytest.mark.parametrize(
    ("patterns", "tail", "type", "ops", "answers"),
    [
        (FILMS, "", "linear", "lookup", ["The Glass Quay", "Winter Ferry"]),
        (SPEAK, "", "composition", "lookup composition", ["Quessish", "Salt Tongue"]),
        (
            f"ns:m.quessland {SPOKEN} ?x . ns:m.varnland {SPOKEN} ?x .",
            "",
            "conjunction",
            "lookup lookup conjunction",
            ["Salt Tongue"],
        ),
        (
            f"{FILMS} ?y ns:film.performance.character ns:m.role .",
            "",
            "conjunction",
            "lookup lookup conjunction",
            ["Winter Ferry"],
        ),
        (
            '?x ns:location.country.languages_spoken ns:m.salt . ?x ns:location.country.code "VA" .',
            "",
            "conjunction",
            "lookup filter",
            ["Varnland"],
        ),
        (
            f'{FILMS} ?x ns:film.film.year ?n . FILTER (?n < "2004"^^xsd:dateTime)',
            "",
            "comparative",
            "lookup composition comparative",
            ["Winter Ferry"],
        ),
        (
            f'{FILMS} ?x ns:film.film.year ?n . FILTER (?n <= "2004"^^xsd:dateTime)',
            "",
            "comparative",
            "lookup composition comparative",
            ["The Glass Quay", "Winter Ferry"],
        ),
        (
            f"{FILMS} ?x ns:film.film.year ?n .",
            "ORDER BY DESC(xsd:datetime(?n)) LIMIT 1",
            "superlative",
            "lookup composition superlative",
            ["The Glass Quay"],
        ),
    ],
)
async def test_the_plan_has_the_answers_of_the_query(
    patterns: str, tail: str, type: str, ops: str, answers: list[str]
) -> None:
    question = solved(query(patterns, tail))
    made = tools(question)
    answer = await default(PlanningData).answer(question, made.tools)
    assert sorted(texts(answer)) == answers
    (decomposed,), (sample,) = made.payloads("decomposed"), made.payloads("sample")
    assert decomposed["type"] == type
    assert [subgoal.op for subgoal in read_plan(sample["plan"])] == ops.split()
    assert sample["executed"]
    assert not made.payloads("rejected")


async def test_a_count_is_executed() -> None:
    question = solved(f"{HEAD.replace('DISTINCT ?x', '(COUNT(?x) AS ?value)')} {FILMS} }}")
    answer = await default(PlanningData).answer(question, tools(question).tools)
    assert texts(answer) == ["2"]


async def test_a_plan_without_result_has_no_answers() -> None:
    """The lists that a conjunction combines are not an answer."""
    question = solved(query(f"{FILMS} ?x ns:location.country.languages_spoken ns:m.salt ."))
    answer = await default(PlanningData).answer(question, tools(question).tools)
    assert texts(answer) == []


async def test_a_superlative_without_values_has_no_answers() -> None:
    question = solved(query(f"{FILMS} ?x ns:film.film.runtime ?n .", "ORDER BY ?n LIMIT 1"))
    answer = await default(PlanningData).answer(question, tools(question).tools)
    assert texts(answer) == []


async def test_a_plan_does_not_answer_with_the_entities_of_the_question() -> None:
    """Queries exclude them by guards, which plans do not express."""
    neighbours = f"ns:m.quessland {SPOKEN} ?c . ?x {SPOKEN} ?c ."
    question = solved(query(neighbours))
    assert texts(await default(PlanningData).answer(question, tools(question).tools)) == ["Varnland"]


async def test_the_pair_has_the_back_translated_question() -> None:
    question = solved(query(SPEAK))
    made = tools(question, parog_back_translate="which languages does one hear where Tavin Orsa comes from?")
    made.model.replies["parog.equivalent"] = ['{"equivalent": true}']
    goals = '["Find the country of Tavin Orsa", "Find the languages spoken in the country of 1"]'
    made.model.replies["parog.polish"] = [goals]
    answer = await default(PlanningData).answer(question, made.tools)
    (sample,) = made.payloads("sample")
    assert sample["question"] == "which languages does one hear where Tavin Orsa comes from?"
    assert read_plan(sample["plan"])[0].goal == "Find the country of Tavin Orsa"
    assert sorted(texts(answer)) == ["Quessish", "Salt Tongue"], "the plan is executed with the polished sentences"


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ({"parog_back_translate": "what is spoken there?"}, "the back-translation leaves out a constant"),
        ({"parog_back_translate": "```"}, "the back-translation leaves out a constant"),
        ({"parog_back_translate": "who is Tavin Orsa?"}, "the back-translation asks another question"),
        ({"parog_equivalent": '{"equivalent": false}'}, "the back-translation asks another question"),
        ({"parog_equivalent": "I cannot tell"}, "the back-translation asks another question"),
    ],
)
async def test_a_plan_with_a_wrong_back_translation_is_rejected(replies: dict[str, str], reason: str) -> None:
    question = solved(query(SPEAK))
    made = tools(question, **replies)
    assert texts(await default(PlanningData).answer(question, made.tools)) == []
    assert made.payloads("rejected") == [{"reason": reason}]
    assert not made.payloads("sample")


@pytest.mark.parametrize(
    ("sparql", "keys", "reason"),
    [
        (None, {}, "no gold query"),
        ("SELECT", {}, "the query cannot be parsed"),
        (query(SPEAK), {"max_subgoals": 1}, "more than 1 sub-goals"),
        (query("ns:m.cvt1 ns:film.performance.film ?x ."), {}, "a constant without a name"),
    ],
)
async def test_a_question_is_rejected_before_any_call(sparql: str | None, keys: dict[str, Any], reason: str) -> None:
    question = solved(sparql)
    made = tools(question)
    await default(PlanningData, **keys).answer(question, made.tools)
    assert made.payloads("rejected") == [{"reason": reason}]
    assert not made.model.roles


async def test_only_plans_that_match_execute_where_are_executed() -> None:
    question = solved(query(SPEAK))
    made = tools(question)
    answer = await default(PlanningData, execute_where={"in_graph": True}).answer(question, made.tools)
    assert texts(answer) == []
    assert [sample["executed"] for sample in made.payloads("sample")] == [False]
    assert not made.payloads("plan")


LOOKUP = Atom("lookup", start="m.orsa", path=(Relation("people.person.nationality", "out"),), about="location.country")
ATOMS = (
    LOOKUP,
    Atom("filter", (1,), path=(Relation("location.country.code", "out"),), value=LiteralNode("QU")),
    Atom("composition", (2,), path=(Relation("location.country.founded", "out"),), keep="at least"),
    Atom("comparative", (2, 3), keep="at least", bound="1950-07-01"),
)
PLAN: Plan = verbalise(ATOMS, NAMES)
CONSTANTS = ("Tavin Orsa", "QU", "1950-07-01")


def test_operations_are_verbalised_with_names_and_values() -> None:
    assert [subgoal.goal for subgoal in PLAN] == [
        "Find every country that “people person nationality” leads to from Tavin Orsa",
        "Of the answers of 1, keep those for which “location country code” is QU",
        "Find the value that “location country founded” has for each answer of 2",
        "Of the answers of 2 and 3, keep those whose value is at least 1950-07-01",
    ]
    assert (PLAN[3].keep, PLAN[3].bound) == ("at least", "1950-07-01")


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ('["Find his country"]', "there are 1 sentences for 4 steps"),
        ('["a Tavin Orsa", "QU", "b", "b 1950"]', None),
        ('["a Tavin Orsa", "b", "c", "d 1950"]', "step 2 has lost QU"),
        ('["a Tavin Orsa", "b QU", "c", "d"]', "step 4 has lost 1950-07-01"),
        ('["a Tavin Orsa", "b QU", "c", "c"]', "two sentences are the same"),
        ('["a", 2, "c", "d"]', "there is no JSON list of sentences"),
        ("no list", r"there is no '\['"),
    ],
)
def test_polishing_must_keep_every_sentence_and_constant(reply: str, complaint: str | None) -> None:
    prompt = Polish(PLAN, CONSTANTS)
    if complaint is None:
        polished = prompt.parse(reply)
        assert [subgoal.uses for subgoal in polished] == [subgoal.uses for subgoal in PLAN]
        return
    with pytest.raises(ParseError, match=complaint):
        prompt.parse(reply)
    assert prompt.fallback(reply) == PLAN


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("When did TAVIN ORSA found it, after 1950, under “qu”?", []),
        ("When did Tavin found it, after July 1950, under QU?", ["Tavin Orsa"]),
        ("Tavin Orsa and the quay in 1950", ["QU"]),
        ("", list(CONSTANTS)),
    ],
)
def test_constants_are_matched_as_whole_words(text: str, missing: list[str]) -> None:
    assert missing_constants(text, CONSTANTS) == missing


def prompts() -> list[Callable[[], Prompt[Any]]]:
    question = solved(None)
    return [
        lambda: Polish(PLAN, CONSTANTS),
        lambda: BackTranslate(PLAN, CONSTANTS),
        lambda: JudgeEquivalent(question, "what about Tavin Orsa?", ("Tavin Orsa",)),
    ]


@pytest.mark.parametrize("make", prompts(), ids=["polish", "back-translate", "equivalent"])
def test_damaged_replies_never_break_a_parser(make: Callable[[], Prompt[Any]]) -> None:
    prompt, rng = make(), Random(7)
    known: GoldContext = gold_context(solved(None), [], {})
    assert read(prompt, write_as_oracle(prompt, known, None))
    assert read(prompt, write_by_similarity(prompt, LexicalEncoder()))
    for _ in range(2000):
        text = damage(write_as_oracle(prompt, known, rng if rng.random() < 0.5 else None), rng)
        at = rng.randrange(len(text) + 1)
        read(prompt, text[:at] + "".join(rng.choices(COMMON, k=3)) + text[at:])
