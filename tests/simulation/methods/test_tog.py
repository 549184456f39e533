"""The simulated replies to ToG's prompts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from pipeline.methods.tog.entities import EntityScores
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.registry import write_as_oracle, write_by_similarity
from pipeline.types import Gold, GoldAnswer
from tests.methods.tog_prompts import ASKED, FILM, FILM_IN, KNOWN, ROLE, START, TOWN, enough, entities, relations


def test_the_oracle_follows_gold_paths_in_their_direction() -> None:
    asked = relations()
    assert list(asked.parse(write_as_oracle(asked, KNOWN, None))) == [FILM, TOWN], "the best path's first"
    later = relations(FILM, ROLE, chain=START.then(FILM, "m.1"))
    assert later.parse(write_as_oracle(later, KNOWN, None)) == {ROLE: 1.0}
    astray = relations(FILM, FILM_IN, ROLE, chain=START.then(FILM_IN, "m.1"))
    assert astray.parse(write_as_oracle(astray, KNOWN, None)) == pytest.approx(
        dict.fromkeys((FILM, FILM_IN, ROLE), 1 / 3), abs=0.01
    )


def test_an_error_follows_other_relations() -> None:
    asked = relations()
    assert asked.parse(write_as_oracle(asked, KNOWN, Random(0))) == {FILM_IN: 1.0}
    correct_only = relations(FILM, TOWN)
    assert list(correct_only.parse(write_as_oracle(correct_only, KNOWN, Random(0)))) == [FILM, TOWN], (
        "nothing else to take"
    )


def test_the_oracle_keeps_gold_answers_else_nodes_on_the_way_else_all() -> None:
    def kept(*candidates: str, error_rng: int | None = None) -> tuple[float, ...]:
        asked = entities(*candidates)
        return asked.parse(write_as_oracle(asked, KNOWN, None if error_rng is None else Random(error_rng)))

    assert kept("Captain", "The Salt Road", "m.2") == (0.0, 1.0, 0.0)
    assert kept("m.1", "m.2") == (0.0, 1.0)
    assert kept("m.1", "Captain") == (0.5, 0.5)
    assert {kept("m.1", "m.2", "Captain", error_rng=seed) for seed in range(20)} == {(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)}
    assert sum(kept("m.2", "m.2", error_rng=1)) == 1.0


def test_the_chains_suffice_when_they_show_an_answer_and_an_error_says_the_opposite() -> None:
    film = START.then(FILM, "m.2").then(ROLE, "The Salt Road")
    other = START.then(TOWN, "Captain")
    said = enough(film, other)
    answered = said.parse(write_as_oracle(said, KNOWN, None))
    assert answered is not None
    assert answered.texts == ("The Salt Road",)
    assert said.parse(write_as_oracle(said, KNOWN, Random(0))) is None
    missing = enough(other)
    assert missing.parse(write_as_oracle(missing, KNOWN, None)) is None
    wrong = missing.parse(write_as_oracle(missing, KNOWN, Random(0)))
    assert wrong is not None
    assert wrong.texts == ("Captain",)
    unnamed = enough(START.then(FILM, "m.1"))
    assert unnamed.parse(write_as_oracle(unnamed, KNOWN, Random(0))) is None


def test_the_chains_suffice_for_a_count_when_they_show_all_nodes() -> None:
    counting = replace(KNOWN, gold=Gold((GoldAnswer("2"),)), counted=frozenset({"The Salt Road", "Captain"}))
    chains = [START.then(FILM, "m.2").then(ROLE, name) for name in ("The Salt Road", "Captain")]
    some, all = enough(*chains[:1]), enough(*chains)
    assert some.parse(write_as_oracle(some, counting, None)) is None
    counted = all.parse(write_as_oracle(all, counting, None))
    assert counted is not None
    assert counted.texts == ("2",)


def test_the_similarity_policy_prefers_words_of_the_question() -> None:
    encoder = LexicalEncoder()
    asked = relations()
    assert next(iter(asked.parse(write_by_similarity(asked, encoder)))).name == "actor.film"
    chosen = entities("Captain", "Films of Ann", "m.1").parse(
        write_by_similarity(
            EntityScores(ASKED, START, FILM, ("x", "y", "z"), {"x": "Captain", "y": "Films of Ann"}), encoder
        )
    )
    assert chosen.index(max(chosen)) == 1
    named = enough(START.then(FILM, "The Salt Road"), START.then(TOWN, "Captain"))
    answered = named.parse(write_by_similarity(named, encoder))
    assert answered is not None
    assert answered.texts == ("The Salt Road",)
    unnamed = enough(START.then(FILM, "m.1"))
    assert unnamed.parse(write_by_similarity(unnamed, encoder)) is None
