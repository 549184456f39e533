"""The simulated replies to SRP's prompts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from pipeline.retrieval.interface import Reference
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.registry import write_as_oracle, write_by_similarity
from tests.methods.srp_prompts import ASKED, CHECK, EDITED, JUDGED, PLAN, TO_FILM, TO_HI
from tests.methods.support import gold_context, question

KNOWN = gold_context(ASKED, ["Film"], {"Ann": ["role -> film", "directed"], "Bob": []})
ERROR_RNGS = [Random(seed) for seed in range(20)]
ENCODER = LexicalEncoder()


def test_relation_check_picks_the_first_relations_of_gold_paths_and_others_as_an_error() -> None:
    assert set(CHECK.parse(write_as_oracle(CHECK, KNOWN, None))) == {"directed", "role"}
    single = replace(CHECK, top_k=1)
    assert [list(single.parse(write_as_oracle(single, KNOWN, error_rng))) for error_rng in ERROR_RNGS] == [
        ["born_in"]
    ] * len(ERROR_RNGS)


def test_path_generation_plans_the_gold_paths_that_begin_with_an_offered_relation() -> None:
    planned = PLAN.parse(write_as_oracle(PLAN, KNOWN, None))
    assert planned == {"Ann": (("role", "film"),), "Bob": (("born_in",),)}
    limited = replace(PLAN, relations={"Ann": ("directed",), "Bob": ()})
    assert limited.parse(write_as_oracle(limited, KNOWN, None)) == {"Ann": (("directed",),)}
    misled = replace(PLAN, relations={"Ann": ("born_in",), "Bob": ()})
    assert misled.parse(write_as_oracle(misled, KNOWN, None)) == {"Ann": (("born_in",),)}
    unguided = replace(PLAN, relations=None, paths_per_entity=9)
    assert unguided.parse(write_as_oracle(unguided, KNOWN, None)) == {"Ann": (("role", "film"), ("directed",))}


def test_an_error_in_path_generation_is_another_path_of_known_relations() -> None:
    for error_rng in ERROR_RNGS:
        (path,) = PLAN.parse(write_as_oracle(PLAN, KNOWN, error_rng))["Ann"]
        assert path not in {("role", "film"), ("directed",)} or path == ("directed", "film")
        assert set(path) <= {"role", "film", "directed", "born_in"}


def test_the_judge_retains_prefixes_that_lead_to_gold_or_follow_a_gold_path() -> None:
    right = JUDGED.parse(write_as_oracle(JUDGED, KNOWN, None))
    assert (right.have, right.retained) == (True, (TO_FILM,))
    elsewhere = gold_context(ASKED, ["Atlantis"], {"Ann": ["role -> director"]})
    verdict = JUDGED.parse(write_as_oracle(JUDGED, elsewhere, None))
    assert (verdict.have, verdict.retained) == (False, (TO_FILM.first(1), TO_HI.first(1)))


def test_an_error_of_the_judge_is_the_opposite_verdict() -> None:
    assert not any(JUDGED.parse(write_as_oracle(JUDGED, KNOWN, error_rng)).have for error_rng in ERROR_RNGS)
    elsewhere = gold_context(ASKED, ["Atlantis"], {})
    for error_rng in ERROR_RNGS:
        verdict = JUDGED.parse(write_as_oracle(JUDGED, elsewhere, error_rng))
        assert verdict.have
        assert len(verdict.retained) == 1


def test_the_editor_writes_a_gold_path_that_was_not_tried() -> None:
    assert EDITED.parse(write_as_oracle(EDITED, KNOWN, None)) == ("role", "film")
    tried = replace(EDITED, tried=(("role", "film"),))
    assert tried.parse(write_as_oracle(tried, KNOWN, None)) == ("directed",)
    all_tried = replace(EDITED, tried=(("role", "film"), ("directed",)))
    assert all_tried.parse(write_as_oracle(all_tried, KNOWN, None)) is None


@pytest.mark.parametrize("unreadable", [("directed", "directed"), ("unheard_of",), ("directed",) * 5])
def test_the_editor_writes_no_path_that_the_method_rejects(unreadable: tuple[str, ...]) -> None:
    known = gold_context(ASKED, ["Film"], {"Ann": [" -> ".join(unreadable)]})
    assert EDITED.parse(write_as_oracle(EDITED, known, None)) is None
    named = {"Ann": " -> ".join(("Ann", *unreadable))}
    misled = replace(EDITED, candidates=(), references=(Reference("?", "?", named, ("Film",)),))
    assert misled.parse(write_as_oracle(misled, known, ERROR_RNGS[0])) is None


def test_an_error_of_the_editor_is_an_offered_path_that_is_not_gold() -> None:
    assert {EDITED.parse(write_as_oracle(EDITED, KNOWN, error_rng)) for error_rng in ERROR_RNGS} == {
        ("role", "character")
    }
    empty = replace(EDITED, path=(), tried=(), candidates=())
    assert empty.parse(write_as_oracle(empty, KNOWN, ERROR_RNGS[0])) is None


def test_the_judge_retains_the_nodes_to_count() -> None:
    counted = replace(gold_context(ASKED, ["2"], {"Ann": ["role -> film"]}), counted=frozenset({"Film", 'Say "Hi"'}))
    verdict = JUDGED.parse(write_as_oracle(JUDGED, counted, None))
    assert (verdict.have, verdict.retained) == (True, (TO_FILM, TO_HI))


def test_the_similarity_policy_prefers_relations_similar_to_the_question() -> None:
    assert next(iter(CHECK.parse(write_by_similarity(CHECK, ENCODER)))) == "directed"
    assert PLAN.parse(write_by_similarity(PLAN, ENCODER)) == {"Ann": (("directed",),), "Bob": (("born_in",),)}
    unguided = replace(PLAN, relations=None)
    assert unguided.parse(write_by_similarity(unguided, ENCODER)) == {}
    asked = question("in which film did Ann play", "Ann")
    verdict = replace(JUDGED, question=asked).parse(write_by_similarity(replace(JUDGED, question=asked), ENCODER))
    assert verdict.retained == (TO_FILM, TO_HI)
    edit = replace(EDITED, question=asked)
    assert edit.parse(write_by_similarity(edit, ENCODER)) == ("role", "film")
    assert replace(edit, candidates=()).parse(write_by_similarity(replace(edit, candidates=()), ENCODER)) is None
