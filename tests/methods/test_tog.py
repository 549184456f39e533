"""The algorithm of ToG on a graph in memory with a scripted model (specification §6.13)."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.cli.main import main
from pipeline.config import default
from pipeline.errors import UserError
from pipeline.methods.tog import ToG
from pipeline.types import Relation, Triple
from tests.methods.support import DictionaryGraph, FixedCaps, ScriptedTools, literal, question
from tests.support import sampled

NATIONALITY, LEADER, CAPITAL = "people.person.nationality", "location.country.leader", "location.country.capital"
NO, YES = "{No} Something is missing.", "{Yes} It stands there. So the answer is {it}."


def picked(*relations: str) -> str:
    return "\n".join(f"('{relation}', {1 / len(relations):.3f}): because" for relation in relations)


def scores(*values: float) -> str:
    return "\n".join(f"{number}. {value}" for number, value in enumerate(values, start=1))


async def run(
    tog: ToG,
    *topics: str,
    facts: list[Any],
    names: dict[str, str] | None = None,
    caps: FixedCaps | None = None,
    **replies: Any,
) -> tuple[ScriptedTools, Any]:
    defaults = {"relations": picked("a.b"), "entities": "I cannot.", "reason": NO, "answer": "So the answer is {it}."}
    replies = {"answer_cot": "So the answer is {a guess}.", **defaults, **replies}
    script = ScriptedTools(
        DictionaryGraph(facts, names), {f"tog.{role}": reply for role, reply in replies.items()}, caps=caps
    )
    return script, await tog.answer(question("which leader?", *topics), script.tools)


def tails(answer: Any) -> list[list[Any]]:
    return [[triple.tail for triple in chain] for chain in answer.evidence]


# A worked example


async def test_two_hops_take_five_calls_and_six_lookups() -> None:
    facts = [
        ("Ann", NATIONALITY, "Annland"),
        ("Ann", "people.person.profession", "Glazier"),
        ("Annland", LEADER, "Zed"),
        ("Annland", LEADER, "Yan"),
        ("Annland", CAPITAL, "Ann City"),
    ]
    script, answer = await run(
        default(ToG),
        "Ann",
        facts=facts,
        relations=[picked(NATIONALITY), picked(LEADER)],
        entities=scores(0.1, 0.9),
        reason=[NO, "{Yes} Zed leads it. So the answer is {Zed}."],
    )
    assert script.model.roles == ["tog.relations", "tog.reason", "tog.relations", "tog.entities", "tog.reason"]
    assert script.graph.lookups == {"relations": 2, "neighbours": 2, "labels": 2}
    assert [(prediction.text, prediction.id) for prediction in answer.predictions] == [("Zed", "Zed")]
    assert answer.status == "ok"
    assert answer.raw == "{Yes} Zed leads it. So the answer is {Zed}."
    nationality = Triple("Ann", NATIONALITY, "Annland")
    assert answer.evidence == (
        (nationality, Triple("Annland", LEADER, "Zed")),
        (nationality, Triple("Annland", LEADER, "Yan")),
    ), "the best first, and no chain that is the beginning of another"
    assert {sampling.temperature for sampling in script.model.samplings} == {0.4, 0.0}
    assert {sampling.max_tokens for sampling in script.model.samplings} == {256}
    assert [event for event, _ in script.events if event not in {"kept", "cut"}] == [
        *("relations_selected", "expanded", "pruned", "judged"),
        *("relations_selected", "expanded", "pruned", "judged", "answered"),
    ]


async def test_the_prompts_show_the_chain_and_its_end() -> None:
    facts = [
        ("Film", "film.directed_by", "Ann"),
        ("m.1", "award.winner", "Ann"),
        ("m.1", "award.year", literal("1999")),
    ]
    script, _ = await run(
        default(ToG, max_depth=2),
        "Ann",
        facts=facts,
        relations=[picked("award.winner (incoming)"), picked("award.year")],
    )
    first, second = (prompt for prompt in script.model.prompts if prompt.role == "tog.relations")
    assert "Reached: Ann\nBy: none\n" in first.messages()[-1].content
    assert "Relations: award.winner (incoming); film.directed_by (incoming)\n" in first.messages()[-1].content
    text = second.messages()[-1].content
    assert 'Reached: <cvt 1>\nBy: [("<cvt 1>", "award.winner", "Ann")]\nRelations: award.winner; award.year\n' in text


# Calls and lookups: at most 2·N·D + D + 1, and three lookups per depth


def tree(roots: list[str], depth: int, *, relations: int = 4, nodes: int = 3) -> list[Any]:
    """Return a tree: each node has `relations` relations, which differ by depth, each to `nodes` nodes of its own."""
    facts, layer = [], roots
    for hop in range(depth):
        found = [
            (node, f"r{hop}.{r}", f"{node}{r}{n}") for node in layer for r in range(relations) for n in range(nodes)
        ]
        facts += found
        layer = [tail for _, _, tail in found]
    return facts


def downwards(topics: int, width: int, depth: int) -> list[str]:
    """Return, for each relation call in order, the relations that lead further down the tree."""
    calls = [(hop, call) for hop in range(depth) for call in range(width if hop else topics)]
    return [picked(*(f"r{hop}.{r}" for r in range(4))) for hop, _ in calls]


@pytest.mark.parametrize(("width", "depth"), [(1, 1), (1, 3), (2, 2), (3, 1), (3, 2), (4, 1)])
async def test_the_bound_on_calls_is_reached_with_as_many_topics_as_the_beam_is_wide(width: int, depth: int) -> None:
    bound = 2 * width * depth + depth + 1
    topics = [f"T{number}" for number in range(width)]
    replies = {"entities": scores(0.5, 0.3, 0.2), "relations": downwards(width, width, depth)}
    facts = tree(topics, depth)
    full, _ = await run(default(ToG, width=width, max_depth=depth), *topics, facts=facts, **replies)
    assert len(full.model.roles) == bound
    assert full.graph.lookups == {"relations": depth, "neighbours": depth, "labels": depth}
    one = replies | {"relations": downwards(1, width, depth)}
    single, _ = await run(default(ToG, width=width, max_depth=depth), topics[0], facts=facts, **one)
    assert len(single.model.roles) == bound - (width - 1), "one relation call at the first depth"
    enough, _ = await run(default(ToG, width=width, max_depth=depth), *topics, facts=facts, reason=YES, **replies)
    assert len(enough.model.roles) == 2 * width + 1
    assert "tog.answer" not in enough.model.roles


async def test_each_topic_entity_beyond_the_width_adds_a_call_at_the_first_depth() -> None:
    topics = ["A", "B", "C"]
    replies = {"relations": downwards(3, 1, 2), "entities": scores(0.5, 0.3, 0.2)}
    script, _ = await run(default(ToG, width=1, max_depth=2), *topics, facts=tree(topics, 2), **replies)
    assert len(script.model.roles) == (2 * 1 * 2 + 2 + 1) + 2


async def test_depth_three_and_width_three_cost_22_calls() -> None:
    replies = {"relations": downwards(3, 3, 3), "entities": scores(0.5, 0.3, 0.2)}
    topics = ["A", "B", "C"]
    script, _ = await run(default(ToG), *topics, facts=tree(topics, 3), **replies)
    assert Counter(script.model.roles) == {"tog.relations": 9, "tog.entities": 9, "tog.reason": 3, "tog.answer": 1}


@pytest.mark.parametrize(
    ("no_return", "offered"),
    [("repeat", ["in", "other"]), ("relation", ["other", "out"]), ("none", ["in", "other", "out"])],
)
async def test_the_last_relation_is_barred_in_one_direction(no_return: Any, offered: list[str]) -> None:
    facts = [("A", "a.b", "B"), ("B", "a.b", "C"), ("Z", "a.b", "B"), ("B", "b.c", "D")]
    tog = default(ToG, width=1, max_depth=2, no_return=no_return)
    script, _ = await run(tog, "A", facts=facts, relations=[picked("a.b"), picked("b.c")])
    of_b = script.payloads("relations_selected")[1]
    assert of_b["entity"] == "B"
    assert of_b["offered"] == len(offered)
    cut = [payload for payload in script.payloads("cut") if payload["by"] == "cap"]
    barred = {"repeat": [("a.b", "out")], "relation": [("a.b", "in")], "none": []}[no_return]
    assert [tuple(relation) for payload in cut for relation in payload["relations"]] == barred


async def test_a_wider_beam_repeats_the_calls_of_a_narrower_one() -> None:
    """No prompt shows the width, so the configurations of a sweep share calls."""
    replies = {"relations": downwards(1, 3, 2), "entities": scores(0.5, 0.3, 0.2)}
    facts = [*tree(["A"], 2), *(("A", "r0.0", f"A0{n:02}") for n in range(40))]
    narrow, _ = await run(default(ToG, width=1, max_depth=1), "A", facts=facts, **replies)
    wide, _ = await run(default(ToG, width=3, max_depth=2), "A", facts=facts, **replies)
    asked = [prompt.messages() for prompt in wide.model.prompts]
    for role in ("tog.relations", "tog.entities"):
        assert next(prompt.messages() for prompt in narrow.model.prompts if prompt.role == role) in asked


@pytest.mark.parametrize("prune", ["bm25", "encoder"])
async def test_with_scores_without_a_model_only_reasoning_calls_remain(prune: Any) -> None:
    facts = [
        ("Ann", "country.leader", "Zed"),
        ("Ann", "country.leader", "the leader Yan"),
        ("Ann", "country.capital", "Mirra"),
    ]
    script, answer = await run(default(ToG, prune=prune, max_depth=1), "Ann", facts=facts)
    assert script.model.roles == ["tog.reason", "tog.answer"]
    selected = script.payloads("relations_selected")[0]["relations"]
    assert selected[0][:2] == ("country.leader", "out")
    assert tails(answer)[0] == ["the leader Yan"]
    if prune == "bm25":
        assert tails(answer) == [["the leader Yan"]], "a name without any word of the question has no score"


async def test_bm25_scores_are_equal_when_no_text_shares_a_word_with_the_question() -> None:
    script, answer = await run(
        default(ToG, prune="bm25", max_depth=1), "Ann", facts=[("Ann", "a.b", "x"), ("Ann", "c.d", "y")]
    )
    assert [score for _, _, score in script.payloads("relations_selected")[0]["relations"]] == [0.5, 0.5]
    assert tails(answer) == [["x"], ["y"]]


# The relation step


async def test_the_last_relation_is_not_offered_again_in_the_same_direction() -> None:
    facts = [("Ann", "person.parent", "Bea"), ("Bea", "person.parent", "Cy"), ("Bea", "person.town", "Mirra")]
    script, _ = await run(default(ToG, max_depth=2), "Ann", facts=facts, relations=picked("person.parent"))
    assert script.model.last("tog.relations").relations == (
        Relation("person.parent", "in"),
        Relation("person.town", "out"),
    )


async def test_malformed_relation_scores_fall_back_to_equal_scores() -> None:
    facts = [("Ann", f"r.{n}", f"x{n}") for n in range(5)]
    script, answer = await run(default(ToG, max_depth=1), "Ann", facts=facts, relations="Well.")
    assert script.model.roles.count("tog.relations") == 3, "asked again twice"
    assert [score for *_, score in script.payloads("relations_selected")[0]["relations"]] == [0.2, 0.2, 0.2]
    assert tails(answer) == [["x0"], ["x1"], ["x2"]]
    once, _ = await run(default(ToG, max_depth=1, parse_retries=0), "Ann", facts=facts, relations="Well.")
    assert once.model.roles.count("tog.relations") == 1


async def test_the_best_relations_of_all_entities_are_followed() -> None:
    facts = [(topic, f"{topic}.{n}", f"{topic} {n}") for topic in ("Ann", "Bob") for n in range(3)]
    replies = ["('Ann.0', 0.6): .\n('Ann.1', 0.4): .", "('Bob.0', 0.9): .\n('Bob.1', 0.1): ."]
    script, answer = await run(default(ToG, width=2, max_depth=1), "Ann", "Bob", facts=facts, relations=replies)
    assert [payload["relation"] for payload in script.payloads("expanded")] == [("Bob.0", "out"), ("Ann.0", "out")]
    assert tails(answer) == [["Bob 0"], ["Ann 0"]]


async def test_a_chain_that_ends_in_an_unnamed_node_is_expanded_before_any_other() -> None:
    facts = [
        ("Ann", "film.role", "m.1"),
        ("Ann", "person.town", "Mirra"),
        ("m.1", "role.film", "The Salt Road"),
        ("Mirra", "town.river", "Ondrel"),
    ]
    script, _ = await run(
        default(ToG, width=2, max_depth=2),
        "Ann",
        facts=facts,
        relations=["('person.town', 0.7): .\n('film.role', 0.3): .", "('town.river', 1): .", "('role.film', 0.2): ."],
        reason=NO,
    )
    assert [payload["entity"] for payload in script.payloads("expanded")] == ["Ann", "Ann", "m.1", "Mirra"]
    narrow, answer = await run(
        default(ToG, width=1, max_depth=2), "Ann", facts=facts, relations=[picked("film.role"), picked("role.film")]
    )
    assert narrow.payloads("expanded")[-1]["entity"] == "m.1"
    assert tails(answer) == [["m.1", "The Salt Road"]]
    assert answer.names["m.1"] is None


async def test_unnamed_nodes_are_expanded_first_even_when_named_ones_score_higher() -> None:
    facts = [
        ("Ann", "film.role", "m.1"),
        ("Bob", "person.town", "Mirra"),
        ("m.1", "role.film", "The Salt Road"),
        ("m.1", "role.part", "Captain"),
        ("Mirra", "town.river", "Ondrel"),
    ]
    script, _ = await run(
        default(ToG, width=2, max_depth=2),
        "Ann",
        "Bob",
        facts=facts,
        relations=[
            *(picked("film.role"), picked("person.town")),
            *("('town.river', 1): .", "('role.film', 0.6): .\n('role.part', 0.4): ."),
        ],
    )
    assert [payload["entity"] for payload in script.payloads("expanded")[2:]] == ["m.1", "m.1"]


# The entity step


async def test_more_than_twenty_nodes_are_sampled_to_the_same_five() -> None:
    def facts(many: int) -> list[Any]:
        return [("Ann", "a.b", f"x{number:02}") for number in range(many)]

    async def scored(tog: ToG, many: int) -> tuple[Any, ...]:
        script, _ = await run(tog, "Ann", facts=facts(many))
        return script.model.last("tog.entities").candidates  # type: ignore[no-any-return,attr-defined]

    assert len(await scored(default(ToG), 20)) == 20
    drawn = await scored(default(ToG), 21)
    assert len(drawn) == 5
    assert list(drawn) == sorted(drawn)
    assert drawn == await scored(default(ToG, width=1), 21), "the width does not change the sample"
    assert len(await scored(default(ToG, entity_sample_from=2, entity_sample=3), 10)) == 3


async def test_malformed_entity_scores_fall_back_to_equal_scores_and_zero_scores_are_dropped() -> None:
    facts = [("Ann", "a.b", f"x{number}") for number in range(5)]
    _, alike = await run(default(ToG, max_depth=1), "Ann", facts=facts, entities="Hm.")
    assert tails(alike) == [["x0"], ["x1"], ["x2"]]
    _, two = await run(default(ToG, max_depth=1), "Ann", facts=facts, entities=scores(0, 0.2, 0, 0.8, 0))
    assert tails(two) == [["x3"], ["x1"]]
    script, none = await run(default(ToG), "Ann", facts=facts, entities=scores(0, 0, 0, 0, 0))
    assert script.model.roles == ["tog.relations", "tog.entities", "tog.answer_cot"]
    assert (none.status, none.evidence) == ("no_evidence", ())


async def test_a_u_turn_is_allowed_at_a_named_node_only() -> None:
    facts = [(topic, "a.b", "m.1") for topic in ("Ann", "Bob")]
    through = [picked("a.b"), picked("a.b (incoming)")]
    _, unnamed = await run(default(ToG, max_depth=2), "Ann", facts=facts, relations=through)
    assert [chain[-1].head for chain in unnamed.evidence] == ["Bob"]
    twins = [("Ann", "a.b", "m.1"), ("m.1", "b.a", "Ann"), ("m.1", "b.a", "Bob")]
    _, unnamed = await run(default(ToG, max_depth=2), "Ann", facts=twins, relations=[picked("a.b"), picked("b.a")])
    assert tails(unnamed) == [["m.1", "Bob"]]
    _, named = await run(default(ToG, max_depth=2), "Ann", facts=facts, names={"m.1": "Mia"}, relations=through)
    assert [chain[-1].head for chain in named.evidence] == ["Ann", "Bob"]


async def test_a_chain_that_ends_in_a_literal_is_kept_and_not_expanded() -> None:
    facts = [("Ann", "born", literal("1999")), ("Ann", "town", "Mirra"), ("Mirra", "river", "Ondrel")]
    script, answer = await run(
        default(ToG, max_depth=2), "Ann", facts=facts, relations=["('born', 0.9): .\n('town', 0.1): .", picked("river")]
    )
    assert tails(answer) == [[literal("1999")], ["Mirra", "Ondrel"]]
    assert script.model.roles.count("tog.relations") == 2


# Results and limits


async def test_without_a_topic_entity_the_model_answers_alone() -> None:
    script, answer = await run(default(ToG), facts=[])
    assert script.model.roles == ["tog.answer_cot"]
    assert (answer.status, answer.predictions[0].text) == ("no_topic_entity", "a guess")


async def test_an_entity_unknown_to_the_graph_leaves_no_evidence() -> None:
    script, answer = await run(default(ToG), "Nobody", facts=[])
    assert script.model.roles == ["tog.answer_cot"]
    assert answer.status == "no_evidence"


async def test_after_the_last_depth_the_answer_comes_from_the_chains() -> None:
    script, answer = await run(
        default(ToG, max_depth=1), "Ann", facts=[("Ann", "a.b", "x")], answer="So the answer is {x}."
    )
    assert script.model.roles == ["tog.relations", "tog.reason", "tog.answer"]
    assert '[("Ann", "a.b", "x")]' in script.model.last("tog.answer").messages()[-1].content
    assert (answer.predictions[0].id, answer.status) == ("x", "ok")


async def test_a_yes_without_an_answer_is_asked_again_and_then_read_as_no() -> None:
    script, answer = await run(default(ToG, max_depth=1), "Ann", facts=[("Ann", "a.b", "x")], reason="{Yes} Certainly.")
    assert script.model.roles == ["tog.relations", *["tog.reason"] * 3, "tog.answer"]
    assert answer.predictions[0].text == "it"


@pytest.mark.parametrize("calls", range(9))
async def test_after_a_limit_on_calls_the_chains_of_earlier_depths_remain(calls: int) -> None:
    facts = tree(["A"], 2, relations=2, nodes=2)
    script = ScriptedTools(
        DictionaryGraph(facts),
        {
            "tog.relations": downwards(1, 3, 2),
            "tog.entities": scores(0.5, 0.5),
            "tog.reason": NO,
            "tog.answer": "So the answer is {it}.",
            "tog.answer_cot": "So the answer is {a guess}.",
        },
    )
    script.model.max_calls = calls
    answer = await default(ToG, max_depth=2).answer(question("which?", "A"), script.tools)
    assert answer.status == "budget_exhausted"
    reached = 0 if calls < 3 else 1
    assert {len(chain) for chain in answer.evidence} == ({reached} if reached else set())
    assert script.model.roles[-1] == ("tog.answer" if reached else "tog.answer_cot")
    assert len(script.model.roles) == calls + 1


@pytest.mark.parametrize("lookups", range(6))
async def test_after_a_limit_on_lookups_the_chains_of_earlier_depths_remain(lookups: int) -> None:
    graph = DictionaryGraph(tree(["A"], 2))
    graph.max_lookups = lookups
    replies = {"tog.relations": picked("r0.0", "r1.0"), "tog.entities": "?", "tog.reason": NO}
    answers = dict.fromkeys(("tog.answer", "tog.answer_cot"), "So the answer is {it}.")
    script = ScriptedTools(graph, replies | answers)
    answer = await default(ToG, max_depth=2).answer(question("which?", "A"), script.tools)
    assert answer.status == "budget_exhausted"
    assert len(answer.evidence) == (3 if lookups >= 3 else 0)


async def test_the_evidence_is_cut_at_its_cap() -> None:
    script, answer = await run(
        default(ToG, width=4, max_depth=1),
        "A",
        facts=tree(["A"], 1),
        caps=FixedCaps(max_evidence_triples=2),
        relations=downwards(1, 4, 1),
    )
    assert len(answer.evidence) == 2
    assert script.payloads("cap_hit") == [{"cap": "max_evidence_triples"}]
    assert answer.status == "budget_exhausted"


# The behaviour of the published code


async def test_compat_does_not_follow_incoming_relations() -> None:
    facts = [("Film", "film.directed_by", "Ann"), ("Ann", "person.town", "Mirra")]
    both = picked("film.directed_by (incoming)", "person.town")
    _, fixed = await run(default(ToG, max_depth=1), "Ann", facts=facts, relations=both)
    assert {chain[0].relation for chain in fixed.evidence} == {"film.directed_by", "person.town"}
    script, compat = await run(default(ToG, max_depth=1, compat=True), "Ann", facts=facts, relations=both)
    assert [chain[0].relation for chain in compat.evidence] == ["person.town"]
    offered = script.model.last("tog.relations").relations  # type: ignore[attr-defined]
    assert Relation("film.directed_by", "in") in offered, "it is still offered"


async def test_compat_reads_the_first_braces_as_the_answer() -> None:
    facts = [("Ann", "a.b", "x")]
    _, early = await run(default(ToG, compat=True), "Ann", facts=facts, reason=YES)
    assert [prediction.text for prediction in early.predictions] == ["Yes"]
    _, late = await run(default(ToG, compat=True, max_depth=1), "Ann", facts=facts, answer="Either {x; y} or {z}.")
    assert [prediction.text for prediction in late.predictions] == ["x; y"]
    _, bare = await run(default(ToG, compat=True, max_depth=1), "Ann", facts=facts, answer="It is x.")
    assert [prediction.text for prediction in bare.predictions] == ["It is x."]


def test_a_wrong_value_is_refused() -> None:
    for wrong in ({"width": 0}, {"prune": "rank"}, {"temperature_explore": -1}, {"beam": 3}):
        with pytest.raises(UserError):
            default(ToG, **wrong)


# The oracle on the synthetic world: correctness, and the cost of every question


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    folder = tmp_path_factory.mktemp("tog") / "run"
    words = ["method=tog", "method.entity_sample_from=2000", "llm=oracle", "run.limit=120", f"run.dir={folder}"]
    types = "dataset.types=[1-hop,2-hop,3-hop,conjunction,comparison,superlative]"
    assert main(["evaluate", *words, types, "dataset.triples=5000", "evaluation.bootstrap_resamples=100"]) == 0
    return pl.read_parquet(folder / "traces" / "*.parquet")


def test_a_perfect_model_answers_every_type_that_the_method_can_express(rows: pl.DataFrame) -> None:
    by_type = dict(rows.group_by("type").agg(pl.col("hits_at_1").mean()).iter_rows())
    assert by_type == dict.fromkeys(("1-hop", "2-hop", "3-hop", "conjunction", "comparison", "superlative"), 1.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("sample_from", "lost"), [(2000, 0), (20, 1)])
def test_on_metaqa_only_sampling_loses_an_answer(
    shared_data: Path, tmp_path: Path, sample_from: int, lost: int
) -> None:
    dataset = ["dataset=metaqa", f"dataset.path={shared_data / 'metaqa'}", "dataset.hops=3", "run.limit=40"]
    words = [
        "method=tog",
        f"method.entity_sample_from={sample_from}",
        "llm=oracle",
        "evaluation.bootstrap_resamples=100",
    ]
    assert main(["evaluate", *words, *dataset, f"run.dir={tmp_path}/run"]) == 0
    assert (1 - pl.read_parquet(tmp_path / "run" / "traces" / "*.parquet")["hits_at_1"]).sum() == lost


def test_the_calls_of_each_question_follow_from_its_decisions(rows: pl.DataFrame) -> None:
    for row in rows.iter_rows(named=True):
        steps = [(step["role"], text["payload"] or "") for step, text in zip(row["steps"], row["texts"], strict=True)]
        decisions = Counter(role for role, _ in steps)
        scored = sum(int(re.search(r'"kept":(\d+)', text)[1]) > 1 for role, text in steps if role == "expanded")  # type: ignore[index]
        answered_early = sum('"have":true' in text for role, text in steps if role == "judged")
        depths = decisions["pruned"]
        assert row["llm_calls"] == decisions["relations_selected"] + scored + decisions["judged"] + 1 - answered_early
        assert row["llm_calls"] <= 2 * 3 * depths + depths + 1
        assert row["kg_lookups"] <= 3 * depths


@pytest.mark.parametrize(
    "words",
    sampled(
        [
            ["llm=oracle", "llm.error_rate=0.3", "llm.malformed_rate=0.3"],
            ["llm=similarity"],
            ["llm=oracle", "experiment=tog_compat"],
            ["llm=oracle", "llm.error_rate=0.2", "budget.max_llm_calls=4"],
        ],
        every=4,
    ),
    ids=" ".join,
)
def test_no_question_fails(words: list[str], tmp_path: Path) -> None:
    small = ["dataset.triples=2000", "run.limit=40", "evaluation.bootstrap_resamples=100", f"run.dir={tmp_path}/run"]
    assert main(["evaluate", "method=tog", *words, *small]) == 0
    statuses = set(pl.read_parquet(tmp_path / "run" / "traces" / "*.parquet")["status"])
    assert statuses <= {"ok", "no_evidence", "budget_exhausted"}
