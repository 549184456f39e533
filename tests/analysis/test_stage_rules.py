"""The rules that find where an answer was lost, each on a trace row with one thing in its trail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import evaluate
from pipeline.analysis.effects import add_role_counts, count_roles, role_costs
from pipeline.analysis.losses import LOSS_COLUMNS, REASON_TEXTS, STAGE_TEXTS, STAGES, Loss, clusters, find_loss
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.traces.schema import OVER_LIMIT
from pipeline.traces.trail import TrailEventName
from tests.support import sampled


def row(trail: list[dict[str, Any]], roles: str, /, **fields: Any) -> dict[str, Any]:
    """Return a trace row of a wrong question. `roles` names its steps; a lookup has the name of one."""
    lookups = {"relations", "neighbours", "labels"}
    unset = {"truncated": False, "error": None, "rows": 1}
    steps = [
        {"index": at, "kind": "kg" if name in lookups else "llm", "role": name, **unset}
        for at, name in enumerate(roles.split())
    ]
    events = [{"edge": None, "number": None, "of": None, "by": None, **event} for event in trail]
    known = {
        "hits_at_1": 0.0,
        "hits_any": 0.0,
        "status": "ok",
        "gold": ["Oslo"],
        "gold_aliases": [[]],
        "answers": ["Rome"],
        "followed_relations": ["capital"],
        "topic_entities": ["norway"],
        "gold_paths": [{"topic": "norway", "relations": ["capital"]}],
        "steps": steps,
        "trail": events,
    }
    return {**dict.fromkeys(LOSS_COLUMNS), **known, **fields}


LISTED = {"step": 0, "event": "listed", "edge": 0, "number": 1, "of": 1}
FOLLOWED = {"step": 2, "event": "followed", "edge": 0, "number": 1, "of": 1}
REACHED = {"step": 2, "event": "reached", "edge": 0, "number": 3}
FOUND = {"step": 2, "event": "found", "number": 1}
ANSWER = {"step": 3, "event": "answered"}
STEPS = "relations choose neighbours answer"


@pytest.mark.parametrize(
    ("trail", "fields", "expected"),
    [
        ([], {"hits_at_1": 1.0}, None),
        ([], {"hits_at_1": None}, None),
        ([], {"trail": None}, ("unknown", "old trace", None)),
        ([{**LISTED, "number": 0}, ANSWER], {}, ("relation offered", "graph", 0)),
        ([LISTED, ANSWER], {}, ("relation chosen", "model", 1)),
        ([LISTED, {"step": 1, "event": "cut", "edge": 0, "by": "similarity"}], {}, ("relation offered", "cap", 1)),
        ([LISTED, {"step": 1, "event": "cut", "edge": 0, "by": "beam"}], {}, ("relation chosen", "beam", 1)),
        ([LISTED, FOLLOWED, {**REACHED, "number": 0}, ANSWER], {}, ("node reached", "graph", 2)),
        ([LISTED, FOLLOWED, REACHED, ANSWER], {}, ("node reached", "graph", 2)),
        ([FOLLOWED, REACHED, FOUND, {"step": 2, "event": "cut", "number": 1, "by": "beam"}, ANSWER], {},
         ("node kept", "beam", 2)),
        ([FOLLOWED, REACHED, FOUND, {"step": 2, "event": "cut", "number": 1, "by": "evidence"}, ANSWER], {},
         ("shown", "cap", 2)),
        ([FOLLOWED, REACHED, FOUND, {"step": 3, "event": "shown", "number": 1}, ANSWER], {},
         ("answered", "model", 3)),
        ([FOLLOWED, REACHED, FOUND, {"step": 3, "event": "shown", "number": 1}, ANSWER], {"answers": ["Oslo, Norway"]},
         ("matched", "match rule", 3)),
        ([FOLLOWED, REACHED, FOUND, {"step": 3, "event": "shown", "number": 1}, ANSWER],
         {"answers": ["Oslo, Norway"], "answer_ids": ["m.2"], "gold_ids": [None]}, ("answered", "model", 3)),
        ([FOLLOWED, REACHED, FOUND, {"step": 3, "event": "shown", "number": 1}, ANSWER],
         {"answers": ["Rome", "Oslo, Norway"], "answer_ids": ["m.2", None], "gold_ids": ["m.1"]},
         ("matched", "match rule", 3)),
        ([FOLLOWED, REACHED, FOUND, {"step": 3, "event": "shown", "number": 1}, ANSWER],
         {"gold": ["Rome, Italy", "Oslo"], "answer_ids": ["m.2"], "gold_ids": ["m.3", None], "gold_aliases": [[], []]},
         ("answered", "model", 3)),
        ([ANSWER], {"followed_relations": None, "answers": ["Oslo, Norway"], "answer_ids": ["m.2"], "gold_ids": [None]},
         ("matched", "match rule", 3)),
        ([ANSWER],
         {"followed_relations": None, "answers": ["Oslo, Norway"], "answer_ids": ["m.2"], "gold_ids": ["m.1"]},
         ("answered", "model", 3)),
        ([FOLLOWED, REACHED, FOUND, {"step": 3, "event": "shown", "number": 1}, ANSWER],
         {"answers": ['["Bergen", "Oslo", "Oslo", "Oslo", "Oslo", "Oslo", "Oslo"']}, ("answered", "model", 3)),
        ([FOLLOWED, REACHED, FOUND, {"step": 3, "event": "shown", "number": 1}, ANSWER], {"hits_any": 1.0},
         ("answered", "model", 3)),
        ([LISTED, ANSWER], {"status": "failed"}, ("relation chosen", "error", 3)),
        ([ANSWER], {"gold_paths": [], "topic_entities": []}, ("node reached", "no gold path", 2)),
        ([ANSWER], {"gold_paths": [], "topic_entities": [], "steps": []}, ("topic known", "no topic entity", None)),
        ([{"step": -1, "event": "cut", "edge": 0, "number": 1, "of": 1, "by": "cap"}, ANSWER], {},
         ("relation offered", "cap", 1)),
        ([FOLLOWED, REACHED, FOUND, {"step": 2, "event": "unnamed", "number": 1}, ANSWER], {}, ("shown", "graph", 2)),
        ([FOLLOWED, REACHED, FOUND, {"step": 2, "event": "unnamed", "number": 1},
          {"step": 3, "event": "shown", "number": 1}, ANSWER], {}, ("answered", "model", 3)),
        ([FOLLOWED, REACHED, FOUND, {"step": 2, "event": "unnamed", "number": 1},
          {"step": 2, "event": "unnamed", "number": 0}, {"step": 3, "event": "shown", "number": 1}, ANSWER], {},
         ("answered", "model", 3)),
        ([ANSWER], {"followed_relations": None}, ("answered", "model", 3)),
    ],
)  # fmt: skip
def test_the_loss_of_a_row(
    trail: list[dict[str, Any]], fields: dict[str, Any], expected: tuple[str, str, int | None] | None
) -> None:
    loss = find_loss(row(trail, STEPS, **fields))
    assert (loss and (loss.stage, loss.reason, loss.step)) == expected


def test_no_model_is_blamed_for_a_first_relation_that_the_graph_lacks() -> None:
    """Other relations of the topic entity were followed: the gold one was passed by."""
    passed = {"step": 2, "event": "passed", "edge": 0, "number": 1, "of": 1}
    lacks = find_loss(row([{**LISTED, "number": 0}, passed, ANSWER], STEPS))
    assert lacks == Loss("relation offered", "graph", 0, 1, "topic ✗ capital")
    assert find_loss(row([LISTED, passed, ANSWER], STEPS)) == Loss("relation chosen", "model", 1, 1, "topic ✗ capital")


def test_no_model_is_blamed_for_a_later_relation_that_the_graph_lacks() -> None:
    """Other relations of all nodes whose relations were listed were followed."""
    listed = {"step": 3, "event": "listed", "edge": 1, "number": 0, "of": 2}
    passed = {"step": 5, "event": "passed", "edge": 1, "number": 2, "of": 2}
    steps = "relations choose neighbours relations choose neighbours answer"
    trail = [LISTED, FOLLOWED, REACHED, listed, passed, {**ANSWER, "step": 6}]
    assert find_loss(row(trail, steps, gold_paths=PATHS)) == Loss(
        "relation offered", "graph", 3, 2, "topic → king ✗ seat"
    )
    trail[3] = {**listed, "of": 1}  # the other node may have it
    loss = find_loss(row(trail, steps, gold_paths=PATHS))
    assert loss is not None
    assert (loss.stage, loss.reason) == ("relation chosen", "model")


def test_lookups_of_code_after_the_answer_are_no_part_of_the_search() -> None:
    """As of a method that completes its answers by the graph. A relation that the answering call chose is followed."""
    steps = "relations choose neighbours answer relations neighbours"
    search = [LISTED, FOLLOWED, REACHED, {"step": 1, "event": "written", "edge": 0}]
    dropped = {"step": 2, "event": "kept", "edge": 1, "number": 0, "of": 1}
    listed = {"step": 4, "event": "listed", "edge": 1, "number": 1, "of": 1}
    passed = {"step": 5, "event": "passed", "edge": 1, "number": 1, "of": 1}
    for before in ([*search, dropped], search):
        until = steps.rpartition(" relations")[0]
        without = find_loss(row([*before, ANSWER], until, gold_paths=PATHS))
        assert find_loss(row([*before, listed, passed, ANSWER], steps, gold_paths=PATHS)) == without
    chose = {"step": 3, "event": "written", "edge": 1}
    went_on = find_loss(row([*search, dropped, chose, listed, passed, ANSWER], steps, gold_paths=PATHS))
    assert went_on != find_loss(row([*search, dropped, ANSWER], until, gold_paths=PATHS))


def test_an_answer_that_code_gave_after_another_one_was_not_dropped() -> None:
    """The last call chose a relation. Code kept and gave all nodes that it led to."""
    chose, kept = {**ANSWER, "step": 1}, {"step": 2, "event": "kept", "number": 1, "of": 3}
    trail = [LISTED, chose, FOLLOWED, REACHED, FOUND, kept]
    steps = "relations choose neighbours labels"
    assert find_loss(row(trail, steps, hits_any=1.0)) == Loss("answered", "model", 1)
    assert find_loss(row(trail, steps)) == Loss("node kept", "cap", 2)


def test_a_sample_that_cut_the_answer_of_one_side_lost_it_and_not_the_reply_after_it() -> None:
    cut, kept = {"step": 2, "event": "cut", "number": 1, "by": "sample"}, {"step": 3, "event": "kept", "number": 0}
    paths = [{"topic": topic, "relations": ["capital"]} for topic in ("norway", "sweden")]
    sides: dict[str, Any] = {"topic_entities": ["norway", "sweden"], "gold_paths": paths}
    steps, end = "relations choose neighbours score answer", {"step": 4, "event": "answered"}
    lost = find_loss(row([LISTED, FOLLOWED, REACHED, FOUND, cut, kept, end], steps, **sides))
    assert lost is not None
    assert (lost.stage, lost.reason, lost.step) == ("node kept", "cap", 2)
    dropped = find_loss(row([LISTED, FOLLOWED, REACHED, FOUND, kept, end], steps, **sides))
    assert dropped is not None
    assert (dropped.stage, dropped.reason, dropped.step) == ("node kept", "model", 3)


def test_a_sample_that_left_too_few_nodes_to_count_lost_the_count() -> None:
    reached, found = {**REACHED, "number": 41}, {**FOUND, "number": 41}
    cut, kept = {"step": 2, "event": "cut", "number": 36, "by": "sample"}, {"step": 3, "event": "kept", "number": 5}
    end, steps = {"step": 4, "event": "answered"}, "relations choose neighbours score answer"
    counted = {"gold": ["41"], "gold_aliases": [[]]}
    assert find_loss(row([LISTED, FOLLOWED, reached, found, cut, kept, end], steps, **counted)) == Loss(
        "node kept", "cap", 2
    )
    assert find_loss(row([LISTED, FOLLOWED, reached, found, kept, end], steps, **counted)) == Loss(
        "node kept", "model", 3
    )


def test_a_kept_answer_whose_name_a_budget_leaves_unknown_is_not_shown() -> None:
    kept = {"step": 2, "event": "kept", "number": 1, "of": 3}
    ended = row([LISTED, FOLLOWED, REACHED, FOUND, kept, ANSWER], STEPS, status="budget_exhausted")
    assert find_loss(ended) == Loss("shown", "cap", 3)


def test_a_reply_that_cannot_be_read_is_the_reason() -> None:
    unread = row([LISTED, ANSWER], STEPS)
    unread["steps"][1]["error"] = "no list"
    assert find_loss(unread) == Loss("relation chosen", "parse failure", 1, 1, "topic ✗ capital")


def test_an_edge_that_no_call_named_and_code_followed_does_not_hide_the_loss() -> None:
    paths = [{"topic": "norway", "relations": ["king", "seat"]}]
    read = {"step": 1, "event": "shown", "edge": 0}
    trail = [LISTED, read, FOLLOWED, {**REACHED, "number": 1}, ANSWER]
    steps = "relations choose neighbours judge answer"
    chance = find_loss(row(trail, steps, gold_paths=paths))
    assert chance == Loss("relation chosen", "model", 1, 1, "topic ✗ king")
    named = find_loss(row([*trail[:2], {**read, "event": "written"}, *trail[2:]], steps, gold_paths=paths))
    assert named == Loss("relation offered", "model", 3, 2, "topic → king ✗ seat")


def test_a_relation_that_was_cut_is_not_offered_because_a_later_prompt_names_an_equal_one() -> None:
    cut = {"step": 1, "event": "cut", "edge": 0, "by": "similarity"}
    read = {"step": 3, "event": "shown", "edge": 0}
    end, steps = {**ANSWER, "step": 4}, "relations retrieve labels choose answer"
    assert find_loss(row([LISTED, cut, read, end], steps)) == Loss("relation offered", "cap", 1, 1, "topic ✗ capital")
    again = {**LISTED, "step": 2}
    offered = find_loss(row([LISTED, cut, again, read, end], steps))
    assert offered == Loss("relation chosen", "model", 3, 1, "topic ✗ capital")


@pytest.mark.parametrize(
    ("decision", "error", "reason"),
    [("parse_failed", "no braces", "parse failure"), ("over_limit", f"{OVER_LIMIT}too long", "cap")],
)
def test_what_code_cut_in_place_of_a_reply_is_lost_by_the_reply(decision: str, error: str, reason: str) -> None:
    cut = {"step": 1, "event": "cut", "edge": 0, "by": "similarity"}
    traced = row([LISTED, cut, {**ANSWER, "step": 4}], f"relations hypo {decision} listed answer")
    for step in traced["steps"][2:4]:
        step["kind"] = "decision"
    traced["steps"][1]["error"] = error
    assert find_loss(traced) == Loss("relation offered", reason, 1, 1, "topic ✗ capital")  # type: ignore[arg-type]


PATHS = [{"topic": "norway", "relations": ["king", "seat"]}]
LOOKED_AT = "relations choose neighbours relations judge"
"""A hop, then a lookup of the relations of the nodes it reached, by which a method selects among them."""


def looked_at(*events: dict[str, Any], steps: str) -> Loss | None:
    """Find the loss of a question whose second relation was listed before the selection at step 4."""
    ahead = {**LISTED, "step": 3, "edge": 1}
    return find_loss(row([LISTED, FOLLOWED, REACHED, ahead, *events], steps, gold_paths=PATHS))


def test_a_relation_that_was_looked_at_to_select_nodes_was_not_offered() -> None:
    kept = {"step": 4, "event": "kept", "edge": 1, "number": 2, "of": 2}
    beam = {**kept, "event": "cut", "by": "beam"}
    other = {"step": 5, "event": "answered"}
    dropped = looked_at(kept, beam, other, steps=f"{LOOKED_AT} choose")
    assert dropped == Loss("node kept", "beam", 4, 1, "topic → king ✗ seat")
    assert looked_at(kept, other, steps=f"{LOOKED_AT} answer") == Loss(
        "relation offered", "model", 5, 2, "topic → king ✗ seat"
    )
    offered = {"step": 5, "event": "shown", "edge": 1}
    chosen = looked_at(kept, offered, {**other, "step": 6}, steps=f"{LOOKED_AT} choose answer")
    assert chosen == Loss("relation chosen", "model", 5, 2, "topic → king ✗ seat")
    again = {**LISTED, "step": 5, "edge": 1}
    listed = looked_at(kept, beam, again, {**other, "step": 7}, steps=f"{LOOKED_AT} relations choose answer")
    assert listed == Loss("relation chosen", "model", 6, 2, "topic → king ✗ seat")


def test_a_limit_that_dropped_some_nodes_did_not_lose_those_that_a_reply_dropped() -> None:
    cap = {"step": 2, "event": "cut", "edge": 1, "number": 1, "of": 3, "by": "cap"}
    kept = {"step": 4, "event": "kept", "edge": 1, "number": 0, "of": 3}
    end = {"step": 5, "event": "answered"}
    assert looked_at(cap, kept, end, steps=f"{LOOKED_AT} answer") == Loss(
        "node kept", "model", 4, 1, "topic → king ✗ seat"
    )
    all_of_them = looked_at({**cap, "number": 3}, kept, end, steps=f"{LOOKED_AT} answer")
    assert all_of_them == Loss("node kept", "cap", 2, 1, "topic → king ✗ seat")


def test_a_walk_that_no_limit_stops_and_that_passes_the_answer_follows_a_reply() -> None:
    """A method that gives the nodes at the end of its walk, and shows its model none of them."""
    steps = "relations choose neighbours relations choose neighbours"
    trail = [LISTED, FOLLOWED, REACHED, FOUND, {"step": 4, "event": "answered"}]
    assert find_loss(row(trail, steps)) == Loss("node kept", "model", 4)
    assert find_loss(row(trail, steps, at_limit=True)) == Loss("node kept", "cap", 2)


def test_a_truncated_lookup_is_a_cap() -> None:
    cut = row([LISTED, FOLLOWED, REACHED, ANSWER], STEPS)
    cut["steps"][2]["truncated"] = True
    assert find_loss(cut) == Loss("node reached", "cap", 2, 1, "topic → capital ✗")


def test_the_attempt_that_came_furthest_counts() -> None:
    paths = [{"topic": "norway", "relations": ["king", "seat"]}, {"topic": "norway", "relations": ["capital"]}]
    trail = [LISTED, {**LISTED, "edge": 2}, FOLLOWED, {**REACHED, "number": 1}, {**LISTED, "step": 3, "edge": 1}]
    lost = find_loss(row(trail, "relations choose neighbours relations choose answer", gold_paths=paths))
    assert lost == Loss("relation chosen", "model", 5, 2, "topic → king ✗ seat")


def test_a_trail_with_impossible_numbers_is_read() -> None:
    trail = [{**LISTED, "step": 999}, {**ANSWER, "step": 888}, {"step": 5, "event": "cut", "edge": 77}]
    assert find_loss(row(trail, STEPS)) is not None


def test_the_documents_word_the_stages_as_the_code_does() -> None:
    page = Path("docs/how-to/find-out-why.md").read_text()
    table = "".join(f"| {stage} | {text.passed} |\n" for stage, text in STAGE_TEXTS.items())
    assert table in page
    assert tuple(STAGE_TEXTS) == STAGES


def test_one_text_says_why_a_trace_cannot_tell() -> None:
    why = "an older version made the run, or its gold answers or gold paths have changed since"
    text = STAGE_TEXTS["unknown"]
    for said in (text.passed, text.lost, REASON_TEXTS["old trace"], str(Loss("unknown", "old trace"))):
        assert said.endswith(f": {why}")


def test_stages_are_in_order() -> None:
    assert STAGES[:3] == ("topic known", "relation offered", "relation chosen")


def test_a_topic_entity_of_which_the_graph_knows_nothing_is_not_known() -> None:
    unknown = row([ANSWER], STEPS, gold_paths=[])
    assert find_loss(unknown) == Loss("node reached", "no gold path", 2)
    for step in unknown["steps"]:
        step["rows"] = 0
    assert find_loss(unknown) == Loss("topic known", "graph", 3)


def test_what_the_engine_looked_up_tells_whether_a_topic_entity_is_known() -> None:
    none, one = ({"step": 3, "event": "topics", "number": number} for number in (0, 1))
    lost = Loss("topic known", "graph", 3)
    assert find_loss(row([ANSWER, none], STEPS, gold_paths=[])) == lost, "the lookups returned only a name"
    assert find_loss(row([ANSWER, none], "act verify act answer", gold_paths=[])) == lost, "nothing was looked up"
    assert find_loss(row([{**LISTED, "number": 0}, ANSWER, none], STEPS)) == lost, "the path cannot begin"
    known = row([ANSWER, one], STEPS, gold_paths=[])
    for step in known["steps"]:
        step["rows"] = 0
    assert find_loss(known) == Loss("node reached", "no gold path", 2), "a plan followed a relation that it lacks"


@pytest.mark.parametrize(("topics", "reason"), [('["Zoe"]', "graph"), ("[]", "no topic entity")])
@pytest.mark.parametrize("method", ["rog", "tog", "srp", "r3"])
def test_every_method_loses_the_answer_at_a_topic_entity_that_is_not_in_the_graph(
    method: str, topics: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "facts.tsv").write_text("Ann\tknows\tBob\nBob\tlives_in\tOslo\n")
    question = f'{{"id": "1", "question": "Where does Zoe live?", "topic_entities": {topics}, "answers": ["Oslo"]}}'
    (tmp_path / "questions.jsonl").write_text(question)
    files = (f"dataset.triples={tmp_path}/facts.tsv", f"dataset.questions={tmp_path}/questions.jsonl")
    run = evaluate([f"method={method}", "llm=oracle", "dataset=custom", *files, f"run.dir={tmp_path}/run"])
    assert run.losses().select("stage", "reason").collect().rows() == [("topic known", reason)]


def test_a_call_that_answers_is_not_responsible_for_the_plan_that_code_follows() -> None:
    """The prompt of the answer may name an equal relation among its facts, but it chooses none."""
    relations, again = {**LISTED, "step": 1}, {"step": 2, "event": "shown", "edge": 0}
    planned = {"step": 1, "event": "cut", "edge": 0, "number": 1, "of": 1, "by": "plan"}
    answer = {"step": 2, "event": "answered"}
    for trail in ([relations, answer], [relations, planned, again, answer]):
        assert find_loss(row(trail, "plan relations answer")) == Loss(
            "relation chosen", "model", 0, 1, "topic ✗ capital"
        )
    seen = find_loss(row([relations, again, answer], "plan relations answer"))
    assert seen == Loss("relation chosen", "model", 2, 1, "topic ✗ capital"), "it was offered, and answered"


@pytest.mark.parametrize(("number", "lost"), [(1, ("model", 3)), (0, ("cap", 3)), (None, ("cap", 3))])
def test_a_call_that_answers_in_place_of_going_on_has_ended_the_search(
    number: int | None, lost: tuple[str, int]
) -> None:
    """ArG's model says that it needs no further relation. Older traces do not tell it from an end by code."""
    kept = {"step": 3, "event": "kept", "edge": 1, "number": 1, "of": 1}
    answered = {"step": 3, "event": "answered", "number": number}
    paths = [{"topic": "norway", "relations": ["capital", "mayor"]}]
    loss = find_loss(
        row([LISTED, FOLLOWED, REACHED, kept, answered], "relations choose neighbours answer", gold_paths=paths)
    )
    assert loss is not None
    assert (loss.stage, loss.reason, loss.step) == ("relation offered", *lost)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_node_is_dropped_in_vain_if_the_graph_leads_nowhere(width: int, tmp_path: Path) -> None:
    """Two films star Ann, and none has the gold genre: whatever the beam drops, the graph is to blame."""
    starred = "".join(f"Film {name}\tstarring\tAnn\nFilm {name}\tyear\t199{name}\n" for name in range(2))
    question = {"id": "1", "question": "Which genre have the films that star Ann?", "topic_entities": ["Ann"]}
    gold = {"answers": ["Western"], "gold_relation_paths": [["starring", "genre"]]}
    (tmp_path / "questions.jsonl").write_text(json.dumps({**question, **gold}))
    files = ("dataset=custom", f"dataset.triples={tmp_path}/facts.tsv", f"dataset.questions={tmp_path}/questions.jsonl")
    method = ("method=tog", "method.depth=2", f"method.beam_width={width}", "llm=oracle")
    for others in ("", "Film 0\tgenre\tComedy\n"):
        (tmp_path / "facts.tsv").write_text(f"{starred}Film 9\tgenre\tWestern\n{others}")
        run = evaluate([*files, *method, f"run.dir={tmp_path}/run-{len(others)}"])
        assert run.losses().collect()["reason"].to_list() == ["graph"]


def test_nodes_that_a_limit_keeps_from_a_count_are_named() -> None:
    trail = [LISTED, FOLLOWED, REACHED, FOUND, ANSWER]
    assert find_loss(row(trail, STEPS, gold=["3"], answers=["2"])) == Loss("answered", "model", 3)
    cut = {"step": 2, "event": "cut", "number": 1, "by": "cap"}
    trail = [LISTED, FOLLOWED, REACHED, FOUND, cut, ANSWER]
    assert find_loss(row(trail, STEPS, gold=["3"], answers=["2"])) == Loss("node kept", "cap", 2)


def test_a_call_that_failed_is_no_unreadable_reply() -> None:
    call = {"configuration": 0, "kind": "llm", "role": "r", "shared": False, "completion_tokens": 1, "own_s": 0.1}
    steps = [
        {**call, "prompt_tokens": 9, "error": None},
        {**call, "prompt_tokens": 9, "error": "no braces"},
        {**call, "prompt_tokens": None, "error": "no server is up"},
        {**call, "prompt_tokens": 9, "error": f"{OVER_LIMIT}the path is too long"},
    ]
    (costs,) = role_costs(pl.LazyFrame(steps)).collect().to_dicts()
    assert costs["parse_failures"] == pytest.approx(1 / 3)
    schema = pl.LazyFrame(steps).collect_schema()
    parts = pl.concat(count_roles(pl.LazyFrame([step], schema=schema)) for step in steps)
    assert add_role_counts(parts).collect().to_dicts() == [costs], "the report counts shard by shard"
    (unanswered,) = role_costs(pl.LazyFrame(steps[2:3], schema=schema)).collect().to_dicts()
    assert unanswered["parse_failures"] == 0


def test_questions_of_two_datasets_with_one_id_are_two() -> None:
    same = {"method": "srp", "right": False, "stage": "topic known", "reason": "graph", "role": None, "departure": None}
    asked = [(0, "q1", "Who?"), (1, "q1", "Who?"), (2, "q1", "Where?")]
    rows = [
        {"configuration": number, "question_id": id, "question": text, **same, "hop": None, "step": None}
        for number, id, text in asked
    ]
    (group,) = clusters(pl.LazyFrame(rows), across=True).collect().to_dicts()
    assert (group["questions"], group["configurations"]) == (2, 3)


def test_a_reply_that_a_limit_of_the_method_refuses_is_lost_by_the_limit() -> None:
    refused = row([LISTED, ANSWER], STEPS)
    refused["steps"][1]["error"] = f"{OVER_LIMIT}the path is too long"
    assert find_loss(refused) == Loss("relation chosen", "cap", 1, 1, "topic ✗ capital")


@pytest.mark.parametrize("method", ["srp", "rog"])
def test_no_model_is_blamed_for_answers_beyond_the_depth(method: str, tmp_path: Path) -> None:
    """The oracle plans the right path: it is longer than the setting allows."""
    words = ("llm=oracle", "method.depth=1", "run.limit=30", "evaluation.bootstrap_resamples=100")
    evaluate([f"method={method}", *words, f"run.dir={tmp_path / 'run'}"])
    (rows,) = read_shards(RunFolder(tmp_path / "run"), [*LOSS_COLUMNS, "parse_failures"])
    lost = [loss for row in rows.iter_rows(named=True) if len(row["gold_paths"]) == 1 and (loss := find_loss(row))]
    assert len(lost) > 10
    assert {(loss.stage, loss.reason) for loss in lost} == {("relation offered", "cap")}
    assert rows["parse_failures"].sum() == 0


def test_a_beam_over_replies_that_cannot_be_read_did_not_lose_the_answer() -> None:
    cut = row([LISTED, {"step": 2, "event": "cut", "edge": 0, "by": "beam"}, ANSWER], STEPS)
    assert find_loss(cut) == Loss("relation chosen", "beam", 2, 1, "topic ✗ capital")
    cut["steps"][1]["error"] = "no list"
    assert find_loss(cut) == Loss("relation chosen", "parse failure", 1, 1, "topic ✗ capital")


def test_a_beam_dropped_a_node_at_its_decision_and_not_at_the_call_before_it() -> None:
    cut = {"step": 2, "event": "cut", "edge": 0, "by": "beam"}
    decided = row([LISTED, cut, {"step": 4, "event": "answered"}], "relations score score pruned answer")
    decided["steps"][3]["kind"] = "decision"
    assert find_loss(decided) == Loss("relation chosen", "beam", 3, 1, "topic ✗ capital")
    for by, step in (("cap", 3), ("sample", 3), ("depth", 2)):
        limited = {**decided, "trail": [decided["trail"][0], {**decided["trail"][1], "by": by}, decided["trail"][2]]}
        assert find_loss(limited) == Loss("relation offered", "cap", step, 1, "topic ✗ capital")


def test_an_agent_that_reads_a_gold_answer_could_have_given_it() -> None:
    trail = [FOLLOWED, REACHED, FOUND, {"step": 3, "event": "shown", "number": 1}, {"step": 5, "event": "answered"}]
    agent = row(trail, "relations act neighbours act act act")
    assert find_loss(agent) == Loss("answered", "model", 3)
    retried = row(trail, "relations choose neighbours look answer answer")
    retried["steps"][5]["parent"] = 4
    assert find_loss(retried) == Loss("node kept", "model", 3), "a second try does not make an agent"


def test_a_limit_that_ended_the_search_before_the_chosen_relation_was_followed_lost_it() -> None:
    shown, chosen = {"step": 1, "event": "shown", "edge": 0}, {"step": 1, "event": "written", "edge": 0}
    end, steps = {"step": 2, "event": "answered"}, "relations choose answer"
    lost = Loss("relation chosen", "cap", 1, 1, "topic ✗ capital")
    assert find_loss(row([LISTED, shown, chosen, end], steps, status="budget_exhausted")) == lost
    unread = row([LISTED, shown, end], steps, status="budget_exhausted")
    assert find_loss(unread) == Loss("relation chosen", "model", 1, 1, "topic ✗ capital"), "the reply left it out"
    unread["steps"][1]["error"] = "no list"
    assert find_loss(unread) == lost, "code chose, and nothing was followed"
    unasked = row([LISTED, {**shown, "step": 2}, end], steps, status="budget_exhausted")
    assert find_loss(unasked) == lost, "only the call that answers was shown the relation"
    followed = row([LISTED, shown, {**end, "step": 3}], STEPS, status="budget_exhausted")
    followed["steps"][1]["error"] = "no list"
    assert find_loss(followed) == Loss("relation chosen", "parse failure", 1, 1, "topic ✗ capital")


def test_a_search_that_a_depth_ended_was_lost_where_it_first_left_the_path() -> None:
    """It left the path in a reply that was read, and came back to the topic entity before the depth ended it."""
    seen = [{**LISTED, "step": step} for step in (0, 3)] + [
        {"step": step, "event": "shown", "edge": 0} for step in (1, 4)
    ]
    beam = {"step": 4, "event": "cut", "edge": 0, "by": "beam"}
    depth = {"step": 5, "event": "cut", "number": 0, "by": "depth"}
    end, steps = {"step": 6, "event": "answered"}, "relations choose neighbours relations choose neighbours answer"
    ended = row([*seen, beam, depth, end], steps)
    ended["steps"][4]["error"] = "no list"
    assert find_loss(ended) == Loss("relation chosen", "model", 1, 1, "topic ✗ capital")
    stopped = {**ended, "trail": [event for event in ended["trail"] if event["by"] != "depth"]}
    assert find_loss(stopped) == Loss("relation chosen", "parse failure", 4, 1, "topic ✗ capital")
    onward = {
        **ended,
        "steps": [*ended["steps"][:6], {**ended["steps"][4], "index": 6}, {**ended["steps"][6], "index": 7}],
    }
    onward["trail"] = [*ended["trail"][:-1], {**ended["trail"][-1], "step": 7}]
    went_on = Loss("relation chosen", "parse failure", 4, 1, "topic ✗ capital")
    assert find_loss(onward) == went_on, "another call came after the depth"


def test_a_budget_that_ended_an_agent_before_its_question_was_looked_up_lost_the_answer() -> None:
    asked = {"step": 2, "event": "written", "edge": 0}
    trail = [asked, {"step": 2, "event": "answered"}]
    steps = "act labels act"
    assert find_loss(row(trail, steps, status="budget_exhausted")) == Loss(
        "relation chosen", "cap", 2, 1, "topic ✗ capital"
    )
    assert find_loss(row(trail, steps)) == Loss("relation offered", "model", 2, 1, "topic ✗ capital")
    onward = [FOLLOWED, {**REACHED, "number": 1}, {**asked, "step": 3, "edge": 1}, {"step": 3, "event": "answered"}]
    agent = row(onward, "act act neighbours act", gold_paths=PATHS, status="budget_exhausted")
    assert find_loss(agent) == Loss("relation chosen", "cap", 3, 2, "topic → king ✗ seat")
    wrote_nothing = [event for event in onward if event["event"] != "written"]
    agent = row(wrote_nothing, "act act neighbours act", gold_paths=PATHS, status="budget_exhausted")
    assert find_loss(agent) == Loss("relation offered", "cap", 3, 2, "topic → king ✗ seat")


@pytest.mark.parametrize(
    ("method", "calls", "least"), sampled([("tog", 1, 2), ("pog", 2, 2), ("parog", 3, 8), ("arg", 6, 2)], every=2)
)
def test_a_budget_that_ended_a_selection_lost_the_nodes_in_it(
    method: str, calls: int, least: int, tmp_path: Path
) -> None:
    words = ("llm=oracle", "dataset.types=[2-hop]", "run.limit=24", f"budget.max_llm_calls={calls}")
    losses = evaluate([f"method={method}", *words, f"run.dir={tmp_path}/run"]).losses().filter(~pl.col("right"))
    lost = losses.filter(pl.col("stage").cast(pl.String) == "node kept").collect()
    assert lost.height >= least
    assert set(lost["reason"]) == {"cap"}


@pytest.mark.parametrize("limit", [1, 2])
def test_a_step_limit_that_ended_an_agent_on_a_gold_path_lost_the_answer(limit: int, tmp_path: Path) -> None:
    words = ("method=r3", "llm=oracle", "method.retries=0", f"method.step_limit={limit}")
    questions = ("dataset.types=[2-hop]", "run.limit=8")
    losses = evaluate([*words, *questions, f"run.dir={tmp_path}/run"]).losses().filter(~pl.col("right")).collect()
    assert set(losses["reason"]) == {"cap"}


def test_a_reflection_that_reads_what_a_step_limit_kept_from_the_agent_lost_nothing(tmp_path: Path) -> None:
    words = ("method=r3", "method.depth=3", "llm=oracle", "llm.error_rate=0.1", "run.limit=40", f"run.dir={tmp_path}/r")
    lost = evaluate([*words]).losses().filter(pl.col("stage") == "node kept").collect()
    assert lost.height > 2
    assert set(lost["reason"]) == {"cap"}
    assert set(lost["role"]) == {"neighbours"}


def test_an_agent_that_asks_about_a_node_that_does_not_exist_was_offered_no_relation() -> None:
    named = {"step": 2, "event": "written", "edge": 0}
    agent = row([named, {"step": 4, "event": "answered"}], "act labels act neighbours act")
    assert find_loss(agent) == Loss("relation offered", "model", 4, 1, "topic ✗ capital")
    passed = {"step": 3, "event": "passed", "edge": 0, "number": 1, "of": 1}
    elsewhere = row([passed, {"step": 4, "event": "answered"}], "act labels act neighbours act")
    assert find_loss(elsewhere) == Loss("relation chosen", "model", 2, 1, "topic ✗ capital")


def test_an_agent_that_answers_at_once_was_lost_by_its_answer_and_not_by_its_thought() -> None:
    trail = [{"step": 1, "event": "answered", "number": 1}]
    assert find_loss(row(trail, "think act")) == Loss("relation offered", "model", 1, 1, "topic ✗ capital")
    unread = row(trail, "plan answer")
    unread["steps"][0]["error"] = "no list"
    assert find_loss(unread) == Loss("relation offered", "parse failure", 0, 1, "topic ✗ capital")


def test_a_reply_that_cannot_be_read_leaves_nothing_out() -> None:
    paths = [{"topic": "norway", "relations": ["king", "seat"]}]
    trail = [LISTED, {"step": 1, "event": "shown", "edge": 0}, FOLLOWED, {**REACHED, "number": 1}, ANSWER]
    unread = row(trail, "relations choose neighbours judge answer", gold_paths=paths)
    unread["steps"][1]["error"] = "no list"
    assert find_loss(unread) == Loss("relation offered", "model", 3, 2, "topic → king ✗ seat")


def test_an_agent_that_asks_about_other_nodes_was_offered_no_relation_of_the_node_it_reached() -> None:
    shown = {"step": 3, "event": "shown", "edge": 1}
    trail = [FOLLOWED, {**REACHED, "number": 1}, shown, {"step": 6, "event": "answered"}]
    steps = "act act neighbours think act neighbours act"
    asked = row(trail, steps, gold_paths=PATHS)
    assert find_loss(asked) == Loss("relation offered", "model", 6, 2, "topic → king ✗ seat"), "it ended the attempt"
    asked["steps"][6]["error"] = "no action"
    left = Loss("relation offered", "model", 4, 2, "topic → king ✗ seat")
    assert find_loss(asked) == left, "a limit of steps ended it: the loss is where it left the path"
    out_of_budget = row(trail, steps, gold_paths=PATHS, status="budget_exhausted")
    assert find_loss(out_of_budget) == left
    last = row([*trail, {"step": 6, "event": "written", "edge": 1}], steps, gold_paths=PATHS, status="budget_exhausted")
    assert find_loss(last) == Loss("relation chosen", "cap", 6, 2, "topic → king ✗ seat"), "it was not looked up"


def test_a_try_of_the_call_that_answers_chose_no_relation() -> None:
    shown = [{"step": step, "event": "shown", "edge": 0} for step in (1, 2, 3)]
    tried = row([LISTED, *shown, ANSWER], "relations choose answer answer", status="budget_exhausted")
    tried["steps"][2]["error"] = "no braces"
    tried["steps"][3]["parent"] = 2
    assert find_loss(tried) == Loss("relation chosen", "model", 1, 1, "topic ✗ capital")


def test_the_judge_that_saw_an_answer_dropped_it_and_not_the_editor_after_it() -> None:
    seen = [{"step": step, "event": "shown", "number": 1} for step in (3, 4, 5)]
    end = {"step": 6, "event": "answered"}
    traced = row([LISTED, FOLLOWED, REACHED, FOUND, *seen, end], "relations choose neighbours judge judge edit answer")
    traced["steps"][3]["error"], traced["steps"][4]["parent"] = "no verdict", 3
    assert find_loss(traced) == Loss("node kept", "model", 4)
    traced["steps"][4]["error"] = "no verdict"
    assert find_loss(traced) == Loss("node kept", "parse failure", 4)


def test_an_edge_that_was_reached_without_being_followed_does_not_stop_the_rules() -> None:
    reached = [LISTED, REACHED, {**REACHED, "edge": 1}]
    assert find_loss(row(reached, LOOKED_AT, gold_paths=PATHS)) == Loss(
        "node reached", "graph", 2, 2, "topic → king → seat ✗"
    )


EVENTS = st.fixed_dictionaries(
    {"step": st.integers(0, 6), "event": st.sampled_from(get_args(TrailEventName))},
    optional={
        "edge": st.integers(0, 3),
        "number": st.integers(0, 2),
        "of": st.integers(0, 2),
        "by": st.sampled_from(["beam", "cap", "similarity", "sample", "depth", "plan", "evidence"]),
    },
)
ROLES = st.sampled_from(["relations", "neighbours", "labels", "choose", "judge", "answer"])


@given(
    trail=st.lists(EVENTS, max_size=8),
    roles=st.lists(ROLES, max_size=6),
    relations=st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=3), max_size=2),
    gold=st.sampled_from(["Oslo", "3"]),
)
def test_no_trail_stops_the_rules(
    trail: list[dict[str, Any]], roles: list[str], relations: list[list[str]], gold: str
) -> None:
    """A trace may come from anybody, and another version may have written other trails."""
    paths = [{"topic": "norway", "relations": each} for each in relations]
    assert find_loss(row(trail, " ".join(roles), gold_paths=paths, gold=[gold])) is not None
