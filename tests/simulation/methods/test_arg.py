"""Simulators of ArG's prompts: the oracle and the similarity policy."""

from __future__ import annotations

from random import Random

from pipeline.methods.arg.answers import AnswerSegment
from pipeline.methods.arg.relations import HypotheticalRelations, RelationSegment
from pipeline.methods.arg.retrieval import RetrievalToken
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.registry import write_as_oracle, write_by_similarity
from tests.methods.arg_prompts import ANN, ASKED, GROUP, entities, relations
from tests.methods.support import gold_context, question

KNOWN = gold_context(ASKED, ["Bo"], {"Ann": ["film.director", "film.genre -> film.year"]})


def test_the_oracle_prefers_the_best_gold_path() -> None:
    assert write_as_oracle(relations(), KNOWN, None) == (
        "film.director[Fully Relevant]film.genre[Partially Relevant]film.year[Unrelevant][Retrieve Entity]"
    )
    assert "film.year[Fully Relevant]" in write_as_oracle(relations(), KNOWN, Random(1)), "the only wrong one"
    hypo = HypotheticalRelations(ASKED, False, "", ANN)
    assert hypo.parse(write_as_oracle(hypo, KNOWN, None)) == ("film.director",)
    assert hypo.parse(write_as_oracle(hypo, KNOWN, Random(1))) != ("film.director",)


def test_the_oracle_answers_only_with_shown_tails() -> None:
    judgement = entities("Bo", "Cy").parse(write_as_oracle(entities("Bo", "Cy"), KNOWN, None))
    assert judgement.answers is not None
    assert (judgement.answers.texts, [walk.end for walk in judgement.relevant]) == (("Bo",), ["Bo"])
    lost = entities("Cy").parse(write_as_oracle(entities("Cy"), KNOWN, None))
    assert lost.answers is not None
    assert (lost.is_unreasonable, lost.answers.texts) == (True, ("unknown",))
    forced = AnswerSegment(ASKED, False, "[Retrieve Relation]", ANN, {"Ann": "Ann"})
    assert forced.parse(write_as_oracle(forced, KNOWN, None)).texts == ("unknown",)


def test_the_oracle_does_not_continue_from_a_node_that_the_walk_has_visited() -> None:
    films = gold_context(ASKED, ["Cy"], {"Ann": ["film.director -> film.year"]})
    judgement = entities("Ann", "Bo").parse(write_as_oracle(entities("Ann", "Bo"), films, None))
    assert ([walk.end for walk in judgement.relevant], judgement.ends) == (["Bo"], False)
    back = entities("Ann").parse(write_as_oracle(entities("Ann"), films, None))
    assert (back.is_unreasonable, back.ends) == (True, True)


def test_an_error_of_the_oracle_is_well_formed_and_wrong() -> None:
    for seed in range(20):
        judgement = entities("Bo", "Cy").parse(write_as_oracle(entities("Bo", "Cy"), KNOWN, Random(seed)))
        assert [walk.end for walk in judgement.relevant] == ["Cy"]
        assert judgement.answers is None or judgement.answers.texts == ("Cy",)


def test_the_simulated_models_always_retrieve() -> None:
    token = RetrievalToken(question("which genre?", "Ann"), False)
    texts = [write_as_oracle(token, KNOWN, None), write_as_oracle(token, KNOWN, Random(1))]
    texts.append(write_by_similarity(token, LexicalEncoder()))
    assert [token.parse(text) for text in texts] == [False] * 3
    assert set(texts) == {"[Retrieve Relation]"}


def test_the_similarity_policy_takes_the_most_similar_relation_and_all_its_tails() -> None:
    asked = question("which genre?", "Ann")
    segment = RelationSegment(asked, False, "", GROUP, ANN)
    read = segment.parse(write_by_similarity(segment, LexicalEncoder())).labelled
    assert [pair.name for pair in read if pair.token.text == "[Fully Relevant]"] == ["film.genre"]
    judgement = entities("Bo", "Cy").parse(write_by_similarity(entities("Bo", "Cy"), LexicalEncoder()))
    assert judgement.answers is not None
    assert judgement.answers.texts == ("Bo", "Cy")
