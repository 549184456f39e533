"""DoG: its worked example, its cost, its parsers, and the effect of every key (specification §16.4)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.config import default
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.errors import ParseError, UserError
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.dog import DoG
from pipeline.methods.dog.debate import Rewrite, simplified_question
from pipeline.methods.dog.enough import Enough
from pipeline.methods.dog.relations import ChooseRelations
from pipeline.methods.interface import GoldFeedback, table_name
from pipeline.types import Answer, Prediction, Relation
from tests.methods.support import DictionaryGraph, FixedCaps, ScriptedTools, chain, literal, question, texts

NO, ALONE = "{No}", "So the answer is {a guess}."
BASE = {"dog.simplify": "Simplified question: why?", "dog.criticise": "Good.", "dog.rewrite": "", "dog.alone": ALONE}


def yes(*answers: str) -> str:
    return f"{{Yes}} The answer is {{{'; '.join(answers)}}}."


def pick(*numbers: int) -> str:
    return ", ".join(f"relation_{number}" for number in numbers)


async def run(
    dog: DoG,
    *topics: str,
    facts: list[Any],
    text: str = "which leader?",
    names: dict[str, str] | None = None,
    caps: FixedCaps | None = None,
    gold_feedback: GoldFeedback | None = None,
    write: Callable[[Prompt[Any]], str] | None = None,
    **replies: str | Sequence[str],
) -> tuple[ScriptedTools, Answer]:
    scripted = {**BASE, **{f"dog.{role}": reply for role, reply in replies.items()}}
    script = ScriptedTools(DictionaryGraph(facts, names), scripted, write=write, caps=caps, gold_feedback=gold_feedback)
    return script, await dog.answer(question(text, *topics, names=names), script.tools)


# The worked example

CHAPEL = "Who founded the town where Odo Marrick was born?"
SIMPLER = "Who founded Vell Harbour?"
FACTS = [
    ("Odo Marrick", "people.person.nationality", "Quessland"),
    ("Odo Marrick", "people.person.place_of_birth", "Vell Harbour"),
    ("Vell Harbour", "location.location.containedby", "Quessland"),
    ("Vell Harbour", "location.location.founder", "Tavin Orsa"),
]


async def test_the_worked_example() -> None:
    script, answer = await run(
        default(DoG),
        "Odo Marrick",
        facts=FACTS,
        text=CHAPEL,
        relations=pick(2),
        enough=[NO, yes("Tavin Orsa")],
        rewrite=f"The simplified question: {SIMPLER}",
    )
    of_turn = ["dog.relations", "dog.enough"]
    assert script.model.roles == [*of_turn, "dog.simplify", "dog.criticise", "dog.rewrite", *of_turn]
    assert len(script.model.roles) == 7
    assert script.graph.lookups == {"relations": 2, "neighbours": 2, "labels": 2}
    assert answer.predictions == (Prediction("Tavin Orsa", "Tavin Orsa"),)
    assert [fact[0].relation for fact in answer.evidence] == ["location.location.founder"]
    for prompt in script.model.prompts[-2:]:
        asked = prompt.messages()[-1].content
        assert SIMPLER in asked
        assert CHAPEL not in asked
        assert "place_of_birth" not in asked
    second = script.model.prompts[3].inputs()
    assert second["debate"] == "Simplifier: Simplified question: why?\n"
    assert script.payloads("edited") == [{"turn": 1, "question": SIMPLER, "before": CHAPEL}]


async def test_a_debate_that_changes_nothing_is_no_edit() -> None:
    script, _ = await run(
        default(DoG, max_turns=2),
        "Odo Marrick",
        facts=FACTS,
        text=CHAPEL,
        relations=pick(2),
        enough=NO,
        rewrite=f"The simplified question: {CHAPEL}",
    )
    assert script.model.roles.count("dog.rewrite") == 1
    assert not script.payloads("edited")


# The cost


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("sufficient", [True, False])
async def test_the_cost(turns: int, sufficient: bool) -> None:
    facts = [("A", "r", "B"), ("B", "r", "C"), ("C", "r", "D"), ("D", "r", "E")]
    enough = [NO] * (turns - sufficient) + [yes("B")] * sufficient
    script, answer = await run(default(DoG, max_turns=turns), "A", facts=facts, relations=pick(1), enough=enough)
    closing = not sufficient
    assert len(script.model.roles) == 2 * turns + 3 * (turns - 1) + closing
    assert texts(answer) == (["B"] if sufficient else ["a guess"])
    assert script.graph.lookups == {"relations": turns, "neighbours": turns, "labels": turns}
    limit = default(DoG, max_turns=turns, parse_retries=0).most_llm_calls(question("?", "A"), FixedCaps())
    assert limit == 2 * turns + 3 * (turns - 1) + 1


def test_the_largest_cost_is_13_calls() -> None:
    assert default(DoG, parse_retries=0).most_llm_calls(question("?", "A"), FixedCaps()) == 13
    assert default(DoG).most_llm_calls(question("?", "A"), FixedCaps()) == 3 * 7 + 6


async def test_the_samplings() -> None:
    facts = [("A", "r", "B"), ("B", "r", "C")]
    script, _ = await run(default(DoG, max_turns=2), "A", facts=facts, relations=pick(1), enough=NO)
    limits = dict(zip(script.model.roles, script.model.samplings, strict=True))
    debate = dict.fromkeys(["dog.simplify", "dog.criticise", "dog.rewrite"], Sampling(max_tokens=512))
    others = dict.fromkeys(["dog.relations", "dog.enough", "dog.alone"], Sampling(max_tokens=150))
    assert limits == debate | others


# What a turn does


@pytest.mark.parametrize(("topic", "start"), [("first", ("A",)), ("all", ("A", "B"))])
async def test_where_the_search_starts(topic: Any, start: tuple[str, ...]) -> None:
    facts = [("A", "r", "C"), ("B", "s", "C")]
    script, _ = await run(default(DoG, topic=topic), "A", "B", facts=facts, relations=pick(1), enough=yes("C"))
    assert script.model.last("dog.relations").entities == start  # type: ignore[attr-defined]
    assert script.payloads("cut")[0] == {"by": "cap", "nodes": ["B"] if topic == "first" else []}


@pytest.mark.parametrize(
    ("directions", "printed"), [("out", "relation_1: s"), ("both", "relation_1: ^r\nrelation_2: s")]
)
async def test_which_relations_are_offered(directions: Any, printed: str) -> None:
    facts = [("C", "r", "A"), ("A", "s", "B")]
    script, _ = await run(default(DoG, directions=directions), "A", facts=facts, relations=pick(1), enough=yes("B"))
    assert script.model.last("dog.relations").inputs()["relations"] == printed
    at_start = {"by": "cap", "relations": [Relation("r", "in")] if directions == "out" else [], "at": ["A"]}
    assert script.payloads("cut")[1] == at_start


async def test_one_list_of_relations_for_all_entities() -> None:
    facts = [("A", "r", "B"), ("A", "r", "C"), ("B", "s", "D"), ("C", "s", "E"), ("C", "t", "F")]
    script, _ = await run(
        default(DoG, max_turns=2), "A", facts=facts, relations=[pick(1), pick(1)], enough=[NO, yes("D", "E")]
    )
    assert script.model.last("dog.relations").inputs() == {
        "question": "which leader?",
        "entities": "B; C",
        "relations": "relation_1: s\nrelation_2: t",
    }
    assert script.model.last("dog.enough").inputs()["facts"] == '[("B", "s", "D")]\n[("C", "s", "E")]'


async def test_a_relation_that_leads_to_unnamed_nodes_only_is_followed_through_them() -> None:
    facts = [
        ("A", "role", "m.1"),
        ("m.1", "film", "X"),
        ("m.1", "year", literal("1999")),
        ("P", "cast", "m.1"),
        ("A", "mixed", "m.2"),
        ("A", "mixed", "B"),
        ("m.2", "film", "Y"),
    ]
    script, answer = await run(default(DoG), "A", facts=facts, relations=pick(1, 2), enough=yes("X"))
    assert script.model.last("dog.enough").inputs()["facts"].splitlines() == [
        '[("A", "mixed", "B")]',
        '[("A", "role", "<cvt 1>"), ("<cvt 1>", "film", "X")]',
        '[("A", "role", "<cvt 1>"), ("<cvt 1>", "year", "1999")]',
    ]
    assert script.graph.lookups == {"relations": 2, "neighbours": 2, "labels": 2}
    assert texts(answer) == ["X"]
    both, _ = await run(default(DoG, directions="both"), "A", facts=facts, relations=pick(2), enough=yes("X"))
    assert '("P", "cast", "<cvt 1>")' in both.model.last("dog.enough").inputs()["facts"]


async def test_the_far_ends_of_unnamed_nodes_go_on() -> None:
    facts = [("A", "role", "m.1"), ("m.1", "film", "X"), ("X", "year", literal("1999"))]
    script, answer = await run(default(DoG), "A", facts=facts, relations=pick(1), enough=[NO, yes("1999")])
    assert script.model.last("dog.relations").entities == ("X",)  # type: ignore[attr-defined]
    walks = script.model.last("dog.relations").walks  # type: ignore[attr-defined]
    assert [walk.path for walk in walks] == [("role", "film")]
    assert texts(answer) == ["1999"]


async def test_the_facts_most_like_the_question_are_shown() -> None:
    facts = [("A", "r", f"leader {number}" if number > 6 else f"x{number}") for number in range(9)]
    script, _ = await run(default(DoG, max_paths=2), "A", facts=facts, relations=pick(1), enough=NO)
    shown = script.model.last("dog.enough").inputs()["facts"]
    assert shown == '[("A", "r", "leader 7")]\n[("A", "r", "leader 8")]'
    assert {"turn": 1, "have": False, "chains": 2, "left_out": 7} in script.payloads("judged")
    assert {"by": "evidence", "nodes": [f"x{number}" for number in range(7)]} in script.payloads("cut")
    assert not script.payloads("cap_hit"), "a limit of the method, not of the budget"


async def test_unreadable_choices_are_replaced_by_similarity() -> None:
    facts = [("A", f"r{number}", "x") for number in range(8)] + [("A", "leader", "B")]
    script, _ = await run(default(DoG), "A", facts=facts, relations="?", enough=yes("B"))
    assert Counter(script.model.roles)["dog.relations"] == 3, "asked again twice"
    (chosen,) = script.payloads("relations_selected")
    assert chosen["relations"][0] == ("leader", "out")
    assert len(chosen["relations"]) == 3


# The ends of a search


@pytest.mark.parametrize(
    ("facts", "roles"),
    [
        ([], ["dog.alone"]),
        ([("B", "r", "A")], ["dog.alone"]),
        ([("A", "r", "m.1")], ["dog.relations", "dog.alone"]),
        ([("A", "r", literal("7"))], ["dog.relations", "dog.enough", "dog.alone"]),
    ],
)
async def test_dead_ends(facts: list[Any], roles: list[str]) -> None:
    script, answer = await run(default(DoG), "A", facts=facts, relations=pick(1), enough=NO)
    assert script.model.roles == roles
    assert (texts(answer), answer.evidence, answer.status) == (["a guess"], (), "no_evidence")


async def test_without_a_topic_entity_one_call() -> None:
    script, answer = await run(default(DoG), facts=[])
    assert script.model.roles == ["dog.alone"]
    assert (answer.status, texts(answer)) == ("no_topic_entity", ["a guess"])


async def test_the_model_alone_is_asked_the_original_question() -> None:
    facts = [("A", "r", "B"), ("B", "r", "C"), ("C", "r", "D")]
    script, _ = await run(default(DoG), "A", facts=facts, relations=pick(1), enough=NO, rewrite="Question: why?")
    assert script.model.last("dog.enough").inputs()["question"] == "why?"
    assert script.model.last("dog.alone").inputs() == {"question": "which leader?"}
    assert script.payloads("cut")[-1] == {"by": "depth", "nodes": ["D"]}
    assert [payload["nodes"] for payload in script.payloads("kept")] == [["B"], ["C"], ["D"]]


@pytest.mark.parametrize("calls", range(7))
async def test_a_budget_ends_the_search_with_an_answer(calls: int) -> None:
    facts = [("A", "r", "B"), ("B", "r", "C"), ("C", "r", "D")]
    script = ScriptedTools(DictionaryGraph(facts), {**BASE, "dog.relations": pick(1), "dog.enough": NO})
    script.model.max_calls = calls
    answer = await default(DoG).answer(question("which?", "A"), script.tools)
    assert (answer.status, texts(answer)) == ("budget_exhausted", ["a guess"])


async def test_limits_of_the_budget_are_counted() -> None:
    facts = [("A", "r", f"B{number}") for number in range(9)] + [(f"B{number}", "s", "C") for number in range(9)]
    script, _ = await run(
        default(DoG, max_turns=2),
        "A",
        facts=facts,
        caps=FixedCaps(max_evidence_triples=4, max_frontier=9),
        relations=pick(1),
        enough=NO,
    )
    assert {"cap": "max_evidence_triples"} in script.payloads("cap_hit")
    assert script.model.prompts[1].inputs()["facts"].count("\n") == 3


# The debate


@pytest.mark.parametrize(
    ("speech", "asked"),
    [
        ("The simplified question: Who founded Vell Harbour?", "Who founded Vell Harbour?"),
        ("The simplified question is: 'Who founded Vell Harbour?'", "Who founded Vell Harbour?"),
        ("It is true.\nQuestion:\nWho founded\nVell Harbour?", "Who founded Vell Harbour?"),
        ("The simplified question: Who founded Vell?\nIt has the same answer.", "Who founded Vell?"),
        ("Question:\n**Who founded Vell?**\n\nIs it simpler? Yes.", "**Who founded Vell?**"),
        ("Question: x\nBetter question: Who made Star Wars: A New Hope?", "Who made Star Wars: A New Hope?"),
        ("The simplified question: Who sang Question: Why?", "Who sang Question: Why?"),
        ("A simpler question: x\n**New question**: Who sang The question: is it?", "Who sang The question: is it?"),
        ("The facts name it. Simplified question: Who sang it?", "Who sang it?"),
        ("Who founded Vell Harbour?", "Who founded Vell Harbour?"),
        ("Questions: none", "Questions: none"),
        ("", CHAPEL),
        (" \n", CHAPEL),
        ("The simplified question:", CHAPEL),
        (f"Simplified question: {CHAPEL}", CHAPEL),
        (f"“{CHAPEL.lower().removesuffix('?')}”", CHAPEL),
    ],
)
def test_what_the_last_speaker_settles(speech: str, asked: str) -> None:
    assert simplified_question(speech, CHAPEL) == asked
    assert Rewrite(question(CHAPEL), (), {}).parse(speech) == speech.strip()


@pytest.mark.parametrize(("debaters", "asked"), [(0, "which leader?"), (1, "why?"), (2, "Good."), (3, "who?")])
async def test_the_last_of_the_debaters_writes_the_question(debaters: int, asked: str) -> None:
    script, _ = await run(
        default(DoG, max_turns=2, debaters=debaters),
        "A",
        facts=[("A", "r", "B"), ("B", "r", "C")],
        relations=pick(1),
        enough=NO,
        rewrite="who?",
    )
    assert len(script.model.roles) == 2 * 2 + debaters + 1
    assert script.model.last("dog.enough").inputs()["question"].rstrip("?.") == asked.rstrip("?.")


# Parsers

OFFERED = ChooseRelations(
    question("?", "A"),
    ("A",),
    (Relation("a.b", "out"), Relation("a.b.c", "in"), Relation("d", "in"), Relation("d", "out")),
)


@pytest.mark.parametrize(
    ("text", "picked", "unknown"),
    [
        ("relation_2", "a.b.c", ()),
        ("relation_4, relation_1, relation_4", "d a.b", ()),
        ("Relation 2: it is best", "a.b.c", ()),
        ("relation_9 and relation_1", "a.b", ("relation_9",)),
        ("I take a.b.", "a.b", ()),
        ("a.b.c", "a.b.c", ()),
        ("`^a.b.c`, then d", "a.b.c d", ()),
        ("relation_99 is ^d", "d", ("relation_99",)),
    ],
)
def test_relations_are_read(text: str, picked: str, unknown: tuple[str, ...]) -> None:
    choice = OFFERED.parse(text)
    assert choice is not None
    assert " ".join(relation.name for relation in choice.picked) == picked
    assert choice.unknown == unknown


def test_a_label_that_a_reply_repeats_is_no_further_number() -> None:
    relations = (Relation("relation_2", "out"), Relation("a", "out"), Relation("x relation_1", "in"))
    prompt = ChooseRelations(question("?", "A"), ("A",), relations)
    for text, picked in (
        ("relation_1: relation_2", [0]),
        ('relation_3 ("^x relation_1"), relation_2', [2, 1]),
        ("relation_2: relation_1", [1, 0]),
    ):
        choice = prompt.parse(text)
        assert choice is not None
        assert choice.picked == tuple(relations[number] for number in picked)


def test_a_name_in_both_directions_means_the_outgoing_one() -> None:
    for text, direction in (("d", "out"), ("^d", "in")):
        choice = OFFERED.parse(text)
        assert choice is not None
        assert choice.picked == (Relation("d", direction),)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "none", "relation_0", "relation_", "x.a.b", "a.bb"])
def test_without_a_relation_that_was_offered_the_reply_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        OFFERED.parse(text)
    assert OFFERED.fallback(text) is None


ENOUGH = Enough(question("?", "A"), (chain("A", "r", "B"),), {"A": "A", "B": "B"})


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("{Yes} The answer is {Paris; Lyon}.", ["Paris", "Lyon"]),
        ("YES, {Yes} it is {Paris}", ["Paris"]),
        ("{Yes}. Paris.", ["Paris"]),
        ("Yes: Paris\nbecause of the facts", ["Paris"]),
        ("yes\n\nParis", ["Paris"]),
        ("{Paris}. Yes.", ["Paris"]),
        ("Yes. So the answer is Paris and Lyon.", ["Paris and Lyon"]),
        ("{No}", None),
        ("No. Yes would be wrong.", None),
        ('{Yes} {"A; B"}', ["A; B"]),
        ("No Time to Die is among the facts. {Yes} The answer is {Lyon}.", ["Lyon"]),
        ("Yes, the answer is {No More}.", ["No More"]),
        ("Yes the facts are enough: {Lyon}", ["Lyon"]),
        ("No {Yes}", None),
    ],
)
def test_verdicts(text: str, answers: list[str] | None) -> None:
    read = ENOUGH.parse(text)
    assert (None if read is None else list(read.texts)) == answers


@pytest.mark.parametrize("text", ["", "Perhaps.", "{Yes}", "{yes} {yes}", "noyes", "Nobody knows; yes", "Yes…  "])
def test_a_verdict_without_yes_no_or_an_answer_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        ENOUGH.parse(text)
    assert ENOUGH.fallback(text) is None


# Gold answers at run time


def right(predictions: Sequence[Prediction], *, one_is_enough: bool = False) -> bool:
    found = [each.text for each in predictions]
    return "B" in found if one_is_enough else found == ["B"]


@pytest.mark.parametrize(
    ("first", "second", "answers", "calls"),
    [
        (yes("B"), ALONE, ["B"], 2),
        (yes("X"), "{B}", ["B"], 3),
        (yes("X", "B"), ALONE, ["X", "B"], 2),
        (yes("X"), "{Y} and {B}", ["Y", "B"], 3),
        (yes("X"), "{Y}", ["X"], 3),
        (NO, "{Y}", ["Y"], 3),
    ],
)
async def test_gold_answers_decide_on_a_second_attempt(first: str, second: str, answers: list[str], calls: int) -> None:
    dog = default(DoG, final="gold_retry", max_turns=1)
    script, answer = await run(
        dog, "A", facts=[("A", "r", "B")], relations=pick(1), enough=first, alone=second, gold_feedback=right
    )
    assert (texts(answer), len(script.model.roles)) == (answers, calls)
    assert (table_name(dog), dog.uses_gold) == ("dog (oracle)", True)
    assert not default(DoG).uses_gold


@pytest.mark.parametrize(
    "keys", [{"max_turns": 0}, {"debaters": 4}, {"topic": "last"}, {"directions": "in"}, {"final": "gold"}]
)
def test_wrong_values_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(keys))):
        default(DoG, **keys)


# Whole runs


def evaluated(folder: Path, configurations: list[str], *shared: str) -> pl.DataFrame:
    """Run configurations on the same questions, and return the rows. `point` is the number of the configuration."""
    words = [
        (*each.split(), *shared, f"run.dir='{folder}'", "evaluation.bootstrap_resamples=100") for each in configurations
    ]
    execute([Configuration(each, config.compose(each)) for each in words], Console(quiet=True))
    return pl.read_parquet(folder / "traces" / "*.parquet")


async def test_without_the_debate_a_model_that_answers_one_hop_falls_to_the_closed_book() -> None:
    """Its sufficiency is that of the question it is asked, so the second hop needs the simpler question."""

    def write(prompt: Prompt[Any]) -> str:
        return yes("Tavin Orsa") if prompt.inputs()["question"] == SIMPLER else NO

    for debaters, expected in ((3, ["Tavin Orsa"]), (0, ["a guess"])):
        replies = {**BASE, "dog.relations": pick(2), "dog.rewrite": f"The simplified question: {SIMPLER}"}
        script = ScriptedTools(DictionaryGraph(FACTS), replies, write=write)
        answer = await default(DoG, debaters=debaters).answer(question(CHAPEL, "Odo Marrick"), script.tools)
        assert texts(answer) == expected


def test_a_second_attempt_decided_by_gold_is_never_worse(tmp_path: Path) -> None:
    faults = ("llm=oracle", "llm.error_rate=0.3", "dataset.triples=2000", "run.limit=60")
    wide = "method=dog method.topic=all method.directions=both"
    rows = evaluated(tmp_path / "run", [wide, f"{wide} method.final=gold_retry"], *faults)
    first, second = (rows.filter(point=point).sort("question_id")["hits_at_1"].to_list() for point in (0, 1))
    assert all(b >= a for a, b in zip(first, second, strict=True))
    assert set(rows.filter(point=1)["method"]) == {"dog (oracle)"}


@pytest.mark.exhaustive
def test_the_cost_of_runs_is_that_of_the_formula(tmp_path: Path) -> None:
    """2·t + 3·(t − 1) + z, less the calls that a dead end saves; lookups at most 6 a turn."""
    rows = evaluated(tmp_path / "run", ["experiment=dog_wide"], "llm=oracle", "run.limit=200", "dataset.triples=2000")
    for steps, lookups in rows.select("steps", "kg_lookups").iter_rows():
        calls = Counter(step["role"] for step in steps if step["kind"] == "llm")
        turns = calls["dog.relations"]
        assert 1 <= turns <= 3
        debates = turns - 1 if not calls["dog.alone"] else calls["dog.simplify"]
        assert [calls[f"dog.{role}"] for role in ("simplify", "criticise", "rewrite")] == [debates] * 3
        assert turns - 1 <= debates <= 2
        assert calls["dog.enough"] in (turns, turns - 1)
        assert calls["dog.alone"] in (0, 1)
        assert lookups <= 6 * turns


def test_hostile_replies_never_lose_a_question(tmp_path: Path) -> None:
    rows = evaluated(
        tmp_path / "run", ["method=dog"], "llm=oracle", "llm.malformed_rate=0.7", "llm.error_rate=0.5", "run.limit=40"
    )
    assert rows["status"].is_in(["failed"]).sum() == 0
    assert rows["error"].null_count() == rows.height


@pytest.mark.parametrize("piece", ["question:", "relation_1 ", "{Yes}", "yes ", ":", "question "])
def test_long_texts_are_read_in_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    started = time.process_time()
    simplified_question(text, CHAPEL)
    for prompt in (OFFERED, ENOUGH):
        with suppress(ParseError):
            prompt.parse(text)
    assert time.process_time() - started < 5
