"""SRP with the oracle: a perfect model answers correctly, and reflection helps an erring one (specification §3)."""

from __future__ import annotations

import gzip
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipeline.config import default
from pipeline.llm.prompt import Prompt
from pipeline.methods.srp import SRP
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.registry import write_as_oracle
from pipeline.types import Answer, Entity, Gold, GoldAnswer, Question, Relation
from tests.methods.support import DictionaryGraph, ScriptedTools, VocabularyRetrieval, gold_context, literal, question

FACTS = [
    ("Ann", "people.person.nationality", "Annland"),
    ("Ann", "people.person.place_of_birth", "Mirra"),
    ("Annland", "location.country.capital", "Ann City"),
    ("Annland", "location.country.language", "Annish"),
    ("Ann", "film.actor.film", "m.1"),
    ("Ann", "film.actor.film", "m.2"),
    ("m.1", "film.performance.film", "The Salt Road"),
    ("m.2", "film.performance.film", "Nine Lanterns"),
    ("m.2", "film.performance.character", "Captain"),
    ("The Salt Road", "film.film.release", literal("1999")),
    ("Nine Lanterns", "film.film.release", literal("2004")),
    ("Bob", "film.director.film", "Nine Lanterns"),
    ("Bob", "film.director.film", "Winter Ferry"),
]
QUESTIONS = [
    (("Ann",), ["Ann City"], {"Ann": ["people.person.nationality -> location.country.capital"]}),
    (("Ann",), ["The Salt Road", "Nine Lanterns"], {"Ann": ["film.actor.film -> film.performance.film"]}),
    (("Ann",), ["1999", "2004"], {"Ann": ["film.actor.film -> film.performance.film -> film.film.release"]}),
    (
        ("Ann", "Bob"),
        ["Nine Lanterns"],
        {"Ann": ["film.actor.film -> film.performance.film"], "Bob": ["film.director.film"]},
    ),
    (("Zoe", "Bob"), ["Winter Ferry"], {"Bob": ["film.director.film"]}),
]


async def ask(
    srp: SRP, graph: DictionaryGraph, asked: Question, known: GoldContext, *, error_rate: float = 0.0, seed: int = 0
) -> tuple[Answer, ScriptedTools]:
    rng = Random(f"{seed}|{asked.id}")

    def write(prompt: Prompt[Any]) -> str:
        return write_as_oracle(prompt, known, rng if rng.random() < error_rate else None)

    tools = ScriptedTools(graph, write=write, retrieval=VocabularyRetrieval(vocabulary=graph.vocabulary()))
    return await srp.answer(asked, tools.tools), tools


def is_right(answer: Answer, known: GoldContext) -> bool:
    return bool(answer.predictions) and known.is_answer(answer.predictions[0].text, id=answer.predictions[0].id)


@pytest.mark.parametrize(("topics", "answers", "paths"), QUESTIONS)
@pytest.mark.parametrize("changed", [{}, {"relation_check": False}, {"judge": "structural"}, {"paths_per_entity": 3}])
async def test_a_perfect_model_answers_correctly(
    topics: tuple[str, ...], answers: list[str], paths: dict[str, list[str]], changed: dict[str, Any]
) -> None:
    asked = question("which one?", *topics)
    known = gold_context(asked, answers, paths)
    answer, _ = await ask(default(SRP, **changed), DictionaryGraph(FACTS), asked, known)
    assert is_right(answer, known)


async def test_a_path_longer_than_the_depth_is_out_of_reach() -> None:
    topics, answers, paths = QUESTIONS[2]
    asked = question("in which years?", *topics)
    known = gold_context(asked, answers, paths)
    reached = [
        is_right((await ask(default(SRP, max_path_len=n), DictionaryGraph(FACTS), asked, known))[0], known)
        for n in (2, 3)
    ]
    assert reached == [False, True]


async def test_a_perfect_model_fails_when_the_facts_are_missing() -> None:
    asked = question("which capital?", "Ann")
    known = gold_context(asked, ["Atlantis City"], {"Ann": ["people.person.nationality -> location.country.capital"]})
    answer, _ = await ask(default(SRP), DictionaryGraph(FACTS), asked, known)
    assert not is_right(answer, known)


async def test_without_evidence_no_answer_is_invented() -> None:
    asked = question("which capital?", "Nobody")
    known = gold_context(asked, ["Ann City"], {"Nobody": ["people.person.nationality -> location.country.capital"]})
    answer, tools = await ask(default(SRP), DictionaryGraph(FACTS), asked, known)
    assert (answer.status, tools.model.roles[-1]) == ("no_evidence", "srp.answer_cot")
    assert not is_right(answer, known)


@pytest.mark.parametrize(("sequences", "answered"), [(15, "2"), (1, "1")])
async def test_a_count_is_the_number_of_nodes_in_the_evidence(sequences: int, answered: str) -> None:
    asked = question("how many films?", "Ann")
    known = gold_context(asked, ["2"], {"Ann": ["film.actor.film -> film.performance.film"]})
    known = replace(known, counted=frozenset({"The Salt Road", "Nine Lanterns"}))
    answer, tools = await ask(default(SRP, judge_samples_per_path=sequences), DictionaryGraph(FACTS), asked, known)
    assert [prediction.text for prediction in answer.predictions] == [answered]
    assert len(tools.model.roles) == 3, "the nodes to count satisfy the judge"


async def test_reflection_improves_an_erring_model() -> None:
    async def rate(srp: SRP) -> float:
        right = 0
        for seed in range(150):
            topics, answers, paths = QUESTIONS[seed % 3]
            asked = question("which one?", *topics)
            known = gold_context(asked, answers, paths)
            answer, _ = await ask(srp, DictionaryGraph(FACTS), asked, known, error_rate=0.2, seed=seed)
            right += is_right(answer, known)
        return right / 150

    reflecting = await rate(default(SRP, relation_top_k=2))  # fewer than there are, so that the check can err
    single = await rate(default(SRP, relation_top_k=2, judge=False))
    assert reflecting > single + 0.05


# The complete graph of MetaQA

RELATIONS = {
    "actor": "starred_actors",
    "director": "directed_by",
    "genre": "has_genre",
    "imdbrating": "has_imdb_rating",
    "imdbvotes": "has_imdb_votes",
    "language": "in_language",
    "tag": "has_tags",
    "tags": "has_tags",
    "writer": "written_by",
    "year": "release_year",
}


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


@pytest.fixture(scope="module")
def wikimovies(shared_data: Path) -> DictionaryGraph:
    triples = (line.split("|") for line in lines(shared_data / "metaqa" / "kb.txt.gz"))
    return DictionaryGraph((head, relation, tail) for head, relation, tail in triples)


@pytest.mark.exhaustive
@pytest.mark.parametrize("hops", [1, 2, 3])
async def test_a_perfect_model_answers_metaqa(shared_data: Path, wikimovies: DictionaryGraph, hops: int) -> None:
    folder = shared_data / "metaqa" / f"{hops}-hop"
    rows = list(zip(lines(folder / "qa_test.txt.gz"), lines(folder / "qa_test_qtype.txt.gz"), strict=True))
    right = calls = expected = 0
    for number, (row, kind) in enumerate(Random(hops).sample(rows, 60)):
        known = metaqa_gold_context(str(number), row, kind)
        answer, tools = await ask(default(SRP), wikimovies, known.question, known)
        right += is_right(answer, known)
        calls += len(tools.model.roles)
        expected += 3 + (tools.payloads("relations_selected")[0]["offered"] > default(SRP).relation_top_k)
    assert (right, calls) == (60, expected), "one entity, no edit: the check of a choice and three calls (§3.11)"


def metaqa_gold_context(id: str, row: str, kind: str) -> GoldContext:
    text, _, answers = row.partition("\t")
    before, _, rest = text.partition("[")
    topic, _, after = rest.partition("]")
    steps = kind.split("_to_")
    path = tuple(
        Relation(RELATIONS[target], "out") if source == "movie" else Relation(RELATIONS[source], "in")
        for source, target in pairwise(steps)
    )
    asked = Question(id, "metaqa", "test", f"{before}{topic}{after}", (Entity(topic, topic),))
    return GoldContext(asked, Gold(tuple(map(GoldAnswer, answers.split("|")))), {topic: (path,)})
