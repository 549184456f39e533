"""Collection of ArG's training data, one question at a time: paths, labels, texts and rejections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import pipeline.training.arg.simulators  # noqa: F401 - registers the simulators of the critic
from pipeline.config import default
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.registry import write_as_oracle
from pipeline.training.arg.collection import ArGCollection
from pipeline.training.labelled import LabelledQuestion
from pipeline.types import Entity, Gold, GoldAnswer, Relation
from tests.methods.support import DictionaryGraph, Fact, ScriptedTools, VocabularyRetrieval, literal
from tests.training.support import assert_reads_back

FACTS: list[Fact] = [
    ("Ann", "played_in", "Tin"),
    ("Ann", "wrote", "Tin"),
    ("Ann", "wrote", "Oak"),
    ("Tin", "directed_by", "Dee"),
    ("Tin", "edited_by", "Dee"),
    ("Oak", "directed_by", "Eve"),
    ("Ann", "born_in", "Rome"),
    ("Ann", "held", "m.post"),
    ("m.post", "office", "Mayor"),
    ("Tin", "year", literal("1961")),
]
TEXT = "who directed the films that Ann played in?"
PLAYED, DIRECTED = Relation("played_in", "out"), Relation("directed_by", "out")


def solved(
    answers: Sequence[str], *path: Relation, text: str = TEXT, topic: str = "Ann", held_out: bool = False
) -> LabelledQuestion:
    gold = Gold(tuple(GoldAnswer(name) for name in answers), {topic: (path,)} if path else {})
    return LabelledQuestion("q", "test", "train", text, (Entity(topic, topic),), gold=gold, held_out=held_out)


class Collected:
    """The collection of one question from a graph in memory. The oracle labels, except for the given replies."""

    def __init__(
        self,
        question: LabelledQuestion,
        facts: Iterable[Fact] = FACTS,
        replies: Mapping[str, str | Sequence[str]] | None = None,
        *,
        known: Sequence[Relation] | None = None,
        layout: str = "graph",
        seed: int = 0,
        **options: Any,
    ) -> None:
        graph = DictionaryGraph(facts)
        paths = {"Ann": (tuple(known),)} if known else question.gold.paths
        gold_context = GoldContext(question, question.gold, paths)
        self.tools = ScriptedTools(
            graph,
            replies,
            write=lambda prompt: write_as_oracle(prompt, gold_context, None),
            retrieval=VocabularyRetrieval(vocabulary=graph.vocabulary()),
        )
        self.tools.tools = replace(self.tools.tools, rng=lambda role, turn=0, /: Random(f"{role}|{turn}|{seed}"))
        self.answer = asyncio.run(default(ArGCollection, facts=layout, **options).answer(question, self.tools.tools))

    @property
    def rejected(self) -> str:
        (payload,) = self.tools.payloads("rejected")
        assert not self.tools.payloads("collected")
        return str(payload["reason"])

    @property
    def row(self) -> dict[str, Any]:
        (payload,) = self.tools.payloads("collected")
        assert not self.tools.payloads("rejected")
        row = {"id": "q", "dataset": "test", "split": "train", "question": TEXT, **payload}
        assert_reads_back(row)
        return row


def test_a_text_has_the_layout_of_the_method() -> None:
    row = Collected(solved(["Dee"], PLAYED, DIRECTED), paths="known", retrieve_k=2).row
    first, second = row["hops"]
    assert row["text"] == (
        f"[Retrieve Relation]<paragraph>{';'.join(first['relations'])}</paragraph>"
        f"{''.join(map(''.join, first['relations'].items()))}[Retrieve Entity]"
        "<paragraph>(Ann, played_in, Tin)</paragraph>Tin[Fully Relevant][Fully Reasonable]"
        f"[Retrieve Relation]<paragraph>{';'.join(second['relations'])}</paragraph>"
        f"{''.join(map(''.join, second['relations'].items()))}"
        "[Retrieve Entity]<paragraph>(Tin, directed_by, Dee)</paragraph>Dee[Fully Relevant][Fully Reasonable]"
        "[No Retrieval]Answer: Dee[Fully Useful][Utility:5]"
    )
    assert first["relations"]["played_in"] == second["relations"]["directed_by"] == "[Fully Relevant]"
    assert len(first["relations"]) == len(second["relations"]) == 2


def test_relations_are_ranked_by_the_encoder_alone_as_at_inference() -> None:
    retrieval = Collected(solved(["Dee"], PLAYED, DIRECTED), paths="known").tools.tools.retrieval
    assert isinstance(retrieval, VocabularyRetrieval)
    assert retrieval.hybrid
    assert not any(retrieval.hybrid)


def paths_drawn(question: LabelledQuestion, facts: Iterable[Fact]) -> set[tuple[Relation, ...]]:
    """Return all relation paths: with an unreadable critic, every path is pruned."""
    pruned = Collected(question, facts, {"critic.relations": "?"}, max_paths=99).tools.payloads("pruned")
    return {each["path"] for each in pruned}


def test_parallel_relations_and_both_directions_are_different_paths() -> None:
    """A graph with only one edge between two nodes would hide the others."""
    assert paths_drawn(solved(["Dee"]), FACTS) == {
        (Relation(first, "out"), Relation(then, "out"))
        for first in ("played_in", "wrote")
        for then in ("directed_by", "edited_by")
    }
    assert paths_drawn(solved(["Ann"], topic="Tin"), [*FACTS, ("Tin", "wrote", "Ann")]) == {
        (Relation("played_in", "in"),),
        (Relation("wrote", "in"),),
        (Relation("wrote", "out"),),
    }


def test_the_relation_of_the_path_is_offered_even_if_the_retriever_does_not_find_it() -> None:
    row = Collected(solved(["Rome"], Relation("born_in", "out")), paths="known", retrieve_k=1).row
    assert row["hops"][0]["relations"] == {"born_in": "[Fully Relevant]"}


def test_the_tail_of_the_path_replaces_the_last_one_shown() -> None:
    facts: list[Fact] = [("Ann", "wrote", f"Book {number}") for number in range(9)]
    row = Collected(solved(["Book 8"], Relation("wrote", "out")), facts, paths="known", max_tails_shown=3).row
    assert list(row["hops"][0]["entities"]) == ["Book 0", "Book 1", "Book 8"]
    row = Collected(solved(["Book 8"], Relation("wrote", "out")), facts, paths="known", max_tails_fetched=2).row
    assert list(row["hops"][0]["entities"]) == ["Book 0", "Book 1", "Book 8"]


def test_an_unnamed_tail_is_labelled_without_the_critic() -> None:
    path = (Relation("held", "out"), Relation("office", "out"))
    collected = Collected(solved(["Mayor"], *path), paths="known")
    assert collected.row["hops"][0]["entities"] == {"Unknown Entity": "[Partially Relevant]"}
    assert collected.tools.model.roles.count("critic.entities") == 1
    assert [step["name"] for step in collected.row["path"]] == [None, "Mayor"]


def test_a_literal_can_be_an_answer() -> None:
    row = Collected(solved(["1961"], PLAYED, Relation("year", "out")), paths="known").row
    assert row["answers"] == {"1961": "[Fully Useful]"}


def test_all_answers_are_written_or_by_choice_those_that_the_text_shows() -> None:
    facts: list[Fact] = [("Ann", "wrote", f"Book {number}") for number in range(9)]
    gold = ["Book 7", "Book 1", "Book 2", "Book 8"]
    row = Collected(solved(gold, Relation("wrote", "out")), facts, paths="known").row
    assert list(row["answers"]) == gold
    row = Collected(solved(gold, Relation("wrote", "out")), facts, paths="known", answers="shown").row
    assert set(row["answers"]) == set(gold) & set(row["hops"][0]["entities"])


@pytest.mark.parametrize(("order", "shown"), [("connected", ["Book 7", "Book 8"]), ("id", ["Book 0", "Book 7"])])
def test_tails_have_the_order_that_they_have_in_the_search(order: str, shown: list[str]) -> None:
    facts: list[Fact] = [("Ann", "wrote", f"Book {number}") for number in range(9)]
    facts += [("Book 7", "about", "Rome"), ("Book 8", "about", "Rome")]
    path = (Relation("wrote", "out"), Relation("about", "out"))
    rows = [
        Collected(solved(["Rome"], *path), facts, paths="known", tail_order=order, max_tails_shown=2, seed=seed).row
        for seed in range(9)
    ]
    assert shown in [list(row["hops"][0]["entities"]) for row in rows]
    assert {next(iter(row["hops"][0]["entities"])) for row in rows} == {shown[0]}


def test_a_path_with_a_contradictory_label_is_kept_unless_it_is_to_be_dropped() -> None:
    """The critic calls the only relation unrelevant, and the path to the answer fully reasonable."""
    replies = {"critic.relations": "1. {wrote (Score: [Unrelevant])}: no"}
    facts: list[Fact] = [("Ann", "wrote", "Oak")]
    question = solved(["Oak"], Relation("wrote", "out"))
    row = Collected(question, facts, replies, paths="known").row
    assert row["text"] == (
        "[Retrieve Relation]<paragraph>wrote</paragraph>wrote[Unrelevant][Retrieve Entity]<paragraph>(Ann, wrote, Oak)"
        "</paragraph>Oak[Fully Relevant][Fully Reasonable][No Retrieval]Answer: Oak[Fully Useful][Utility:5]"
    )
    rejected = Collected(question, facts, replies, paths="known", contradictions="drop").rejected
    assert rejected == "the critic calls a step unrelevant, and the path reasonable"


@pytest.mark.parametrize(("layout", "fact"), [("graph", "(Oak, by, Ann)"), ("walk", "(Ann, by, Oak)")])
def test_an_incoming_fact_is_written_in_the_chosen_layout(layout: str, fact: str) -> None:
    question = solved(["Oak"], Relation("by", "in"))
    collected = Collected(question, [("Oak", "by", "Ann")], paths="known", layout=layout)
    assert f"<paragraph>{fact}</paragraph>" in collected.row["text"]
    shown_to_critic = collected.tools.model.last("critic.entities").inputs()["new"]
    assert shown_to_critic == '[("Oak", "by", "Ann")]', "the critic reads the graph's own direction"


def test_an_unnamed_node_is_never_an_answer() -> None:
    facts: list[Fact] = [("Ann", "wrote", "m.1"), ("Ann", "wrote", "Oak")]
    gold = Gold((GoldAnswer("m.1", id="m.1"), GoldAnswer("Oak", id="Oak")), {"Ann": ((Relation("wrote", "out"),),)})
    question = LabelledQuestion("q", "test", "train", TEXT, (Entity("Ann", "Ann"),), gold=gold)
    for seed in range(9):
        collected = Collected(question, facts, paths="known", seed=seed)
        if collected.tools.payloads("rejected"):
            assert collected.rejected == "the answer has no name"
        else:
            assert collected.row["answers"] == {"Oak": "[Fully Useful]"}
            assert list(collected.row["hops"][0]["entities"]) == ["Oak", "Unknown Entity"]


def test_an_unreasonable_path_ends_the_text_with_all_gold_answers() -> None:
    """The shortest path to Dee is not a gold path, so the oracle calls it unreasonable."""
    facts: list[Fact] = [("Ann", "shuns", "Rome"), ("Rome", "home_of", "Dee"), ("Ann", "a", "x"), ("x", "b", "y")]
    meant = [Relation("a", "out"), Relation("b", "out"), Relation("c", "out")]
    collected = Collected(solved(["Dee", "Eve"]), facts, known=meant)
    row = collected.row
    assert [hop["rationality"] for hop in row["hops"]] == ["[Unreasonable]"]
    assert len(row["path"]) == 2
    assert row["text"].endswith("[Unreasonable][No Retrieval]Answer: Dee[Fully Useful];Eve[Fully Useful][Utility:5]")
    assert collected.tools.model.roles.count("critic.relations") == 1


def test_another_path_is_tried_if_one_gives_no_text() -> None:
    """A critic that calls a path reasonable and its step unrelevant contradicts itself."""
    collected = Collected(solved(["Dee"]), known=[PLAYED, DIRECTED], max_paths=9, contradictions="drop")
    reasons = {pruned["reason"] for pruned in collected.tools.payloads("pruned")}
    assert reasons <= {"the critic calls a step unrelevant, and the path reasonable"}
    assert collected.row


@pytest.mark.parametrize(
    ("role", "reply", "reason"),
    [
        ("critic.relations", "no idea", "the critic's relevance of relations cannot be read"),
        ("critic.entities", "no idea", "the critic's relevance of entities cannot be read"),
        ("critic.rationality", "no idea", "the critic's rationality cannot be read"),
    ],
)
def test_labels_that_cannot_be_parsed_reject_the_path(role: str, reply: str, reason: str) -> None:
    collected = Collected(solved(["Dee"], PLAYED, DIRECTED), replies={role: reply}, paths="known")
    assert collected.rejected == reason
    assert collected.tools.model.roles.count(role) == 1 + default(ArGCollection).parse_retries


def test_a_utility_that_cannot_be_parsed_is_neutral() -> None:
    row = Collected(solved(["Dee"], PLAYED, DIRECTED), replies={"critic.utility": "good"}, paths="known").row
    assert row["text"].endswith("[No Retrieval]Answer: Dee[Utility:3]")
    assert row["answers"] == {"Dee": ""}


def test_an_answer_that_is_not_useful_is_still_written() -> None:
    reply = '{"answers": {"Dee": "[Not Useful]"}, "utility": "[Utility:2]"}'
    row = Collected(solved(["Dee"], PLAYED, DIRECTED), replies={"critic.utility": reply}, paths="known").row
    assert row["text"].endswith("Answer: Dee[Not Useful][Utility:2]")


@pytest.mark.parametrize("name", ["Dee [Relevant] Day", "[No Retrieval]"])
def test_a_name_that_looks_like_a_token_is_printed_with_other_brackets(name: str) -> None:
    facts: list[Fact] = [("Ann", "wrote", name), ("Ann", "wrote", "Oak")]
    row = Collected(solved(["Oak"], Relation("wrote", "out")), facts, paths="known").row
    assert name.replace("[", "［").replace("]", "］") in row["text"]
    assert set(row["answers"]) == {"Oak"}


def test_names_with_characters_of_the_layout_are_kept_if_they_read_back() -> None:
    facts: list[Fact] = [("Ann", "wrote", name) for name in ("[REC]", "One; two", "(a, b);(c", "Why?")]
    row = Collected(solved(["One; two", "[REC]"], Relation("wrote", "out")), facts, paths="known").row
    assert set(row["answers"]) == {"One; two", "[REC]"}


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (solved(["Dee"], held_out=True), "held out"),
        (solved([]), "no answer"),
        (solved(["Dee"], topic="Nobody"), "no path to an answer within 4 hops"),
        (LabelledQuestion("q", "test", "train", TEXT, (), gold=Gold((GoldAnswer("Dee"),))), "no topic entity"),
    ],
)
def test_an_unusable_question_costs_no_call(question: LabelledQuestion, reason: str) -> None:
    collected = Collected(question)
    assert collected.rejected == reason
    assert collected.tools.model.prompts == []


def test_longer_paths_than_max_hops_are_not_found() -> None:
    assert Collected(solved(["Dee"]), max_hops=1).rejected == "no path to an answer within 1 hops"


def test_the_number_of_relations_is_drawn_from_the_list_at_each_hop() -> None:
    question = solved(["Dee"], PLAYED, DIRECTED)
    rows = [Collected(question, paths="known", retrieve_k=(1, 2), seed=seed).row for seed in range(12)]
    assert {tuple(len(hop["relations"]) for hop in row["hops"]) for row in rows} == {(1, 1), (1, 2), (2, 1), (2, 2)}
