"""The trees of a question: every step once, in the parts of the search, with what was chosen and what was gold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from pipeline.analysis.question_trace import QuestionTrace, StepTrace
from pipeline.analysis.question_tree import TreeNode, fact_tree, trail_texts, walk_tree
from pipeline.analysis.runs import Run, open_run
from tests.support import sampled
from tests.viewer.support import METHODS, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(make_run(tmp_path_factory.mktemp("trees") / "run"))


def traces(run: Run, configuration: int) -> list[QuestionTrace]:
    ids = run.questions.filter(pl.col("configuration") == configuration).select("question_id").collect()
    return [run.question(id, configuration) for id in ids["question_id"]]


def nodes(tree: TreeNode) -> Iterator[TreeNode]:
    yield tree
    for child in tree.children:
        yield from nodes(child)


@pytest.mark.parametrize("configuration", sampled(range(len(METHODS)), every=8), ids=METHODS)
def test_every_step_stands_in_one_node(configuration: int, run: Run) -> None:
    for trace in traces(run, configuration):
        numbers = [number for node in nodes(walk_tree(trace)) for number in node.steps]
        assert sorted(numbers) == [step.number for step in trace.steps]


@pytest.mark.parametrize(
    ("method", "begins"),
    [("arg", "hop 1"), ("parog", "sub-goal 1: "), ("r3", "attempt 1"), ("tog", "round 1"), ("pog", "round 1")],
)
def test_the_parts_of_a_search_are_groups(method: str, begins: str, run: Run) -> None:
    for trace in traces(run, METHODS.index(method)):
        groups = [node.label for node in nodes(walk_tree(trace)) if node.kind == "group"]
        assert groups[0].startswith(begins)
        assert len(set(groups)) == len(groups) or method == "parog", "rounds of sub-goals have equal names"


def test_an_edit_of_srp_opens_a_round(run: Run) -> None:
    trees = [walk_tree(trace) for trace in traces(run, METHODS.index("srp"))]
    rounds = [node for tree in trees for node in nodes(tree) if node.kind == "group" and node.label.startswith("round")]
    edited = [node for node in rounds if node.children[0].label == "edited"]
    assert edited
    assert all(node.label != "round 1" for node in edited)
    assert all(node.children[-1].label in {"judged", "parse failed", "bound", "instantiated"} for node in edited)


def test_the_beam_of_arg_has_scores_and_what_was_dropped(run: Run) -> None:
    found = [node for trace in traces(run, METHODS.index("arg")) for node in nodes(walk_tree(trace))]
    chosen = [child for node in found if node.label == "relations selected" for child in node.children]
    kept = [node for node in chosen if not node.is_dropped]
    assert kept
    assert all(node.score is not None for node in kept)
    assert any(node.is_dropped and node.is_gold for node in chosen), "an error drops a relation of a gold path"


def test_gold_answers_are_marked_where_they_are_given(run: Run) -> None:
    for trace in traces(run, METHODS.index("cot")):
        (answered,) = [node for node in nodes(walk_tree(trace)) if node.label == "answered"]
        is_right = trace.scores["hits_any"] == 1
        assert any(child.is_gold for child in answered.children) == is_right


def test_facts_form_a_tree_from_where_they_start(run: Run) -> None:
    for trace in traces(run, METHODS.index("srp")):
        tree = fact_tree(trace, most=1000)
        names = {fact["tail_name"] or fact["tail"] for fact in trace.row["evidence"]}
        labels = " ".join(node.label for node in nodes(tree))
        assert all(name in labels for name in names)
        assert len(tree.children) <= len(trace.row["evidence"])


def with_chains(*chains: Sequence[str]) -> QuestionTrace:
    """Return the trace of a question whose evidence is chains of facts, such as `ann knows bob`."""
    ends = [(number, *fact.split()) for number, chain in enumerate(chains) for fact in chain]
    facts = [
        {"chain": chain, "head": head, "head_name": None, "relation": relation, "tail": tail, "tail_name": None}
        for chain, head, relation, tail in ends
    ]
    trace = trace_of()
    return replace(trace, row={**trace.row, "evidence": facts})


def test_a_single_fact_starts_at_the_topic_entity() -> None:
    backwards = with_chains(["oslo birthplace_of ann", "oslo likes bob"], ["oslo birthplace_of ann"])
    asked = replace(backwards, row={**backwards.row, "topic_entities": ["ann"]})
    labels = [node.label for node in nodes(fact_tree(asked, most=5))]
    assert labels[1:] == ["ann", "birthplace_of ← oslo", "likes → bob"]
    assert len(fact_tree(backwards, most=5).children) == 2, "nothing says where the chain of one fact starts"


@pytest.mark.parametrize(
    ("chain", "walks"),
    [
        (
            ["film cast ann", "film cast ann", "film language latin"],
            ["film", "cast → ann", "cast ← film", "language → latin"],
        ),
        (["ann knows bob", "bob knows ann", "bob likes oslo"], ["bob", "knows ← ann", "knows ← bob", "likes → oslo"]),
        (["ann knows bob", "oslo in norway"], ["ann", "knows → bob", "oslo", "in → norway"]),
    ],
)
def test_no_fact_is_drawn_that_is_not_in_the_evidence(chain: list[str], walks: list[str]) -> None:
    """A chain may go back over its first edge, and may hold facts that do not follow one another."""
    assert [node.label for node in nodes(fact_tree(with_chains(chain), most=5))][1:] == walks


def test_facts_that_chains_share_are_counted_once() -> None:
    chains = ["ann knows bob", "bob likes oslo"], ["ann knows bob", "bob likes rome"], ["ann knows bob"]
    shared = with_chains(*chains)
    tree = fact_tree(shared, most=5)
    assert tree.label == "facts in the evidence: 3"
    assert [node.label for node in nodes(tree)][1:] == ["ann", "knows → bob", "likes → oslo", "likes → rome"]
    assert fact_tree(shared, most=2).label == "facts in the evidence: 3, of which 2 are shown"


def test_the_trail_says_what_a_step_did_to_the_gold_answers(run: Run) -> None:
    for trace in traces(run, METHODS.index("tog")):
        texts = trail_texts(trace)
        assert any("gives the answers" in text for text in texts.values())
        assert set(texts) <= {step.number for step in trace.steps}


# Steps without a run


def step(number: int, kind: str, role: str, payload: Any = None) -> StepTrace:
    return StepTrace(number=number, kind=kind, role=role, duration_s=0.0, shared=False, payload=payload)


def trace_of(*steps: StepTrace) -> QuestionTrace:
    row = {"gold_aliases": [[]], "gold_ids": [None], "evidence": [], "gold_paths": None}
    texts = {"id": "q", "text": "?", "method": "m", "dataset": "d", "status": "ok", "error": None}
    return QuestionTrace(**texts, configuration=0, answers=[], gold=["Oslo"], scores={}, row=row, steps=steps)


def test_equal_decisions_after_as_many_calls_have_one_each() -> None:
    kinds = [("kg", "relations"), ("llm", "a"), ("llm", "a"), ("decision", "chosen"), ("decision", "chosen")]
    tree = walk_tree(trace_of(*(step(number, *each, {}) for number, each in enumerate(kinds))))
    assert [(node.before, node.step) for node in tree.children] == [([0, 1], 3), ([2], 4)]


def test_steps_without_a_decision_are_nodes() -> None:
    tree = walk_tree(trace_of(step(0, "llm", "a"), step(1, "kg", "b")))
    assert [(node.label, node.steps) for node in tree.children] == [("a", (0,)), ("b", (1,))]


@pytest.mark.parametrize(
    "payload",
    [
        *(None, [], "text", 7),
        *({"entity": ["a"]}, {"round": {"x": 1}}, {"subgoals": [{"id": []}]}, {"from": 1, "via": 2, "to": [{}]}),
        *({"relations": [[]], "scores": {}}, {"relations": "x", "scores": {"x": 1}}, {"paths": {"a": []}}),
        *({"offered": [], "kept": [], "relevant": [3]}, {"offered": [[{}]], "kept": 1, "relevant": [{"a": "b"}]}),
        {"kept": [[["a", "b"], None]], "x": {"y": {"z": [1, [2, {"value": None}], [0.5, [{}]], [[], 1]]}}},
        {"learnt": [{"from": [], "via": None, "to": {}}], "candidates": [{"path": [], "score": "x"}, {"path": [1]}]},
    ],
)
def test_any_payload_is_shown(payload: Any) -> None:
    """A method of one's own may record what it likes."""
    decisions = [step(number, "decision", role, payload) for number, role in enumerate(["step", "judged", "plan"])]
    assert len(list(nodes(walk_tree(trace_of(*decisions))))) >= 4


@pytest.mark.parametrize("role", ["parse_failed", "over_limit"])
def test_calls_whose_replies_were_of_no_use_stand_where_the_method_went_on(role: str) -> None:
    said = {"role": "parog.refine", "complaint": "there is no JSON object"}
    calls = [step(0, "llm", "parog.refine"), step(1, "decision", role, said)]
    went_on = step(2, "decision", "refined", {"subgoal": 1})
    (subgoal,) = walk_tree(trace_of(*calls, went_on, step(3, "decision", "answered", {}))).children[:1]
    assert [(node.before, node.step) for node in subgoal.children] == [([0], 1), ([], 2)]
    ended = walk_tree(trace_of(*calls)).children
    assert [(node.before, node.step) for node in ended] == [([0], 1)]


def test_rounds_end_with_a_judgement_for_each_entity_apart() -> None:
    payloads = [{"entity": "a"}, {"entity": "b"}, {"entity": "a"}, {"entity": "b"}, {"entity": "a"}]
    roles = ["bound", "bound", "judged", "judged", "edited"]
    decisions = (
        step(number, "decision", role, payload)
        for number, (role, payload) in enumerate(zip(roles, payloads, strict=True))
    )
    tree = walk_tree(trace_of(*decisions))
    assert [node.label for node in tree.children] == ["from a", "from b"]
    assert [node.label for node in tree.children[0].children] == ["round 1", "round 2"]


def test_a_planned_path_is_one_node(run: Run) -> None:
    for trace in traces(run, METHODS.index("rog")):
        plan = next(node for node in nodes(walk_tree(trace)) if node.label == "plan")
        paths = next(step.payload["paths"] for step in trace.steps if step.role == "plan" and step.payload)
        assert {" → ".join(path) for path in paths} <= {child.label for child in plan.children}


@pytest.mark.parametrize(
    ("duration_s", "own_s", "text"),
    [
        (0.247, 0.01, "0.247 s, of which 0.010 s outside queues"),
        (0.0, 0.13, "0.000 s, and 0.130 s when the call was made"),
        (0.2, None, "0.200 s"),
    ],
)
def test_the_time_of_a_reply_that_was_there_already_is_no_part_of_its_step(
    duration_s: float, own_s: float | None, text: str
) -> None:
    step = StepTrace(number=0, kind="llm", role="r", duration_s=duration_s, own_s=own_s, shared=False)
    assert step.seconds_text == text
