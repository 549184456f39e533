"""The prompts of ToG: what they read, and what simulated models write."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from pipeline.errors import ParseError
from pipeline.llm.oracle import Truth
from pipeline.methods.instance import Instance
from pipeline.methods.tog.answer import first_brace
from pipeline.methods.tog.entities import EntityScores
from pipeline.methods.tog.reason import Enough
from pipeline.methods.tog.relations import RelationScores
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.types import Gold, GoldAnswer, Relation
from tests.methods.support import question

ASKED = question("which films is Ann in?", "Ann")
FILM, FILM_IN, TOWN = Relation("actor.film", "out"), Relation("actor.film", "in"), Relation("person.town", "out")
ROLE = Relation("role.film", "out")
TRUTH = Truth(
    ASKED,
    Gold((GoldAnswer("The Salt Road"),)),
    {"Ann": ((FILM, ROLE), (TOWN, FILM_IN))},
    waypoints=frozenset({"m.2"}),
)
NAMES = {"Ann": "Ann", "m.1": None, "m.2": None, "The Salt Road": "The Salt Road", "Captain": "Captain"}
START = Instance("Ann")


def relations(*offered: Relation, chain: Instance = START) -> RelationScores:
    return RelationScores(ASKED, chain, offered or (FILM_IN, FILM, TOWN), NAMES)


def entities(*candidates: str, chain: Instance = START, relation: Relation = FILM) -> EntityScores:
    return EntityScores(ASKED, chain, relation, candidates, NAMES)


def enough(*chains: Instance) -> Enough:
    return Enough(ASKED, chains, NAMES)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("('actor.film', 0.5): x\n('person.town', 0.5): y", {FILM: 0.5, TOWN: 0.5}),
        ('("actor.film (incoming)", .2) ("actor.film", 0.6)', {FILM_IN: 0.25, FILM: 0.75}),
        ("(‘person.town’, 3)", {TOWN: 1.0}),
        ("('person.town', 0.4) ('made.up', 0.6) ('person.town', 0.1)", {TOWN: 1.0}),
    ],
)
def test_relations_are_read_with_scores_that_add_up_to_one(text: str, scores: dict[Relation, float]) -> None:
    assert relations().parse(text) == pytest.approx(scores)


def test_a_bare_name_may_stand_for_the_incoming_relation_when_there_is_no_other() -> None:
    assert relations(FILM_IN, TOWN).parse("('actor.film', 1)") == {FILM_IN: 1.0}


@pytest.mark.parametrize("text", ["", "person.town 0.5", "('made.up', 1)", "('person.town', 0)", "('person.town', -1)"])
def test_no_usable_relation_is_a_complaint_and_then_all_are_alike(text: str) -> None:
    with pytest.raises(ParseError):
        relations().parse(text)
    assert relations().fallback(text) == {FILM_IN: 1 / 3, FILM: 1 / 3, TOWN: 1 / 3}


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("1. 0.25\n2. 0.75", (0.25, 0.75)),
        ("2) The Salt Road: 0.5", (0.0, 1.0)),
        ("1. Apollo 13: 0.2 (1995)\n2. .2", (0.5, 0.5)),
        ("1. 0\n2. 0", (0.0, 0.0)),
        ("1. 1\n1. 0\n2. 1\n3. 1\n0. 1", (0.5, 0.5)),
        ("1. -0.5\n2. 0.5", (0.0, 1.0)),
    ],
)
def test_entities_are_read_by_number(text: str, scores: tuple[float, ...]) -> None:
    assert entities("m.1", "m.2").parse(text) == scores


@pytest.mark.parametrize("text", ["", "0.5, 0.5", "3. 0.5", "1. the first\n2. 200"])
def test_no_score_is_a_complaint_and_then_all_are_alike(text: str) -> None:
    with pytest.raises(ParseError):
        entities("m.1", "m.2").parse(text)
    assert entities("m.1", "m.2").fallback(text) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("{Yes} So the answer is {a; b}.", ("a", "b")),
        ("Thinking {hard}. { YES. } It is {a}.", ("a",)),
        ("{No} The answer is {a}.", None),
        ("{no}", None),
    ],
)
def test_the_verdict_decides_whether_an_answer_is_read(text: str, answers: tuple[str, ...] | None) -> None:
    read = enough(START.then(FILM, "m.1")).parse(text)
    assert (read.texts if read else None) == answers


@pytest.mark.parametrize("text", ["", "Yes, it is {a}.", "{Yes} It is a.", "{Yes} {}", "{a}", "{nobody}"])
def test_without_a_verdict_or_an_answer_the_search_goes_on(text: str) -> None:
    with pytest.raises(ParseError):
        enough().parse(text)
    assert enough().fallback(text) is None


def test_the_first_braces_as_the_published_code_reads_them() -> None:
    assert first_brace("{Yes} It is {a}.") == ("Yes",)
    assert first_brace("It is a.") == ("It is a.",)
    assert first_brace(" {} ") == ()


def test_equal_names_are_told_apart_by_their_numbers() -> None:
    prompt = EntityScores(
        ASKED, START, TOWN, ("e.1", "e.2", "m.1"), {"Ann": "Ann", "e.1": "Paris", "e.2": "Paris\nTexas", "m.1": None}
    )
    assert prompt.inputs()["candidates"] == "1. Paris\n2. Paris Texas\n3. <cvt 1>"


# The oracle


def test_the_oracle_follows_gold_paths_in_their_direction() -> None:
    asked = relations()
    assert list(asked.parse(asked.write_as_oracle(TRUTH, None))) == [FILM, TOWN], "the best path's first"
    later = relations(FILM, ROLE, chain=START.then(FILM, "m.1"))
    assert later.parse(later.write_as_oracle(TRUTH, None)) == {ROLE: 1.0}
    astray = relations(FILM, FILM_IN, ROLE, chain=START.then(FILM_IN, "m.1"))
    assert astray.parse(astray.write_as_oracle(TRUTH, None)) == pytest.approx(
        dict.fromkeys((FILM, FILM_IN, ROLE), 1 / 3), abs=0.01
    )


def test_a_slip_follows_other_relations() -> None:
    asked = relations()
    assert asked.parse(asked.write_as_oracle(TRUTH, Random(0))) == {FILM_IN: 1.0}
    right_only = relations(FILM, TOWN)
    assert list(right_only.parse(right_only.write_as_oracle(TRUTH, Random(0)))) == [FILM, TOWN], "nothing else to take"


def test_the_oracle_keeps_what_is_sought_else_what_leads_there_else_all() -> None:
    def kept(*candidates: str, slip: int | None = None) -> tuple[float, ...]:
        asked = entities(*candidates)
        return asked.parse(asked.write_as_oracle(TRUTH, None if slip is None else Random(slip)))

    assert kept("Captain", "The Salt Road", "m.2") == (0.0, 1.0, 0.0)
    assert kept("m.1", "m.2") == (0.0, 1.0)
    assert kept("m.1", "Captain") == (0.5, 0.5)
    assert {kept("m.1", "m.2", "Captain", slip=seed) for seed in range(20)} == {(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)}
    assert sum(kept("m.2", "m.2", slip=1)) == 1.0


def test_the_oracle_has_enough_when_an_answer_is_shown_and_a_slip_says_the_opposite() -> None:
    film = START.then(FILM, "m.2").then(ROLE, "The Salt Road")
    other = START.then(TOWN, "Captain")
    said = enough(film, other)
    answered = said.parse(said.write_as_oracle(TRUTH, None))
    assert answered is not None
    assert answered.texts == ("The Salt Road",)
    assert said.parse(said.write_as_oracle(TRUTH, Random(0))) is None
    missing = enough(other)
    assert missing.parse(missing.write_as_oracle(TRUTH, None)) is None
    wrong = missing.parse(missing.write_as_oracle(TRUTH, Random(0)))
    assert wrong is not None
    assert wrong.texts == ("Captain",)
    unnamed = enough(START.then(FILM, "m.1"))
    assert unnamed.parse(unnamed.write_as_oracle(TRUTH, Random(0))) is None


def test_the_oracle_has_enough_to_count_when_all_is_shown() -> None:
    counting = replace(TRUTH, gold=Gold((GoldAnswer("2"),)), counted=frozenset({"The Salt Road", "Captain"}))
    chains = [START.then(FILM, "m.2").then(ROLE, name) for name in ("The Salt Road", "Captain")]
    some, all = enough(*chains[:1]), enough(*chains)
    assert some.parse(some.write_as_oracle(counting, None)) is None
    counted = all.parse(all.write_as_oracle(counting, None))
    assert counted is not None
    assert counted.texts == ("2",)


# The similarity policy


def test_similarity_prefers_what_has_the_words_of_the_question() -> None:
    encoder = LexicalEncoder()
    asked = relations()
    assert next(iter(asked.parse(asked.write_by_similarity(encoder)))).name == "actor.film"
    chosen = entities("Captain", "Films of Ann", "m.1").parse(
        EntityScores(ASKED, START, FILM, ("x", "y", "z"), {"x": "Captain", "y": "Films of Ann"}).write_by_similarity(
            encoder
        )
    )
    assert chosen.index(max(chosen)) == 1
    named = enough(START.then(FILM, "The Salt Road"), START.then(TOWN, "Captain"))
    answered = named.parse(named.write_by_similarity(encoder))
    assert answered is not None
    assert answered.texts == ("The Salt Road",)
    unnamed = enough(START.then(FILM, "m.1"))
    assert unnamed.parse(unnamed.write_by_similarity(encoder)) is None
