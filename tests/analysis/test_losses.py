"""Where answers are lost: an oracle that errs in one role loses answers at the stage of that role."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import polars as pl
import pytest

import pipeline.methods
from pipeline import evaluate
from pipeline.analysis.effects import add_role_counts, count_roles, role_costs
from pipeline.analysis.losses import LOSS_COLUMNS, STAGE_TEXTS, STAGES, Loss, clusters, find_loss, loss_shares
from pipeline.analysis.runs import Run
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.traces.schema import OVER_LIMIT

OFFERED, CHOSEN, KEPT, SHOWN, ANSWERED = "relation offered", "relation chosen", "node kept", "shown", "answered"
STAGES_OF: dict[str, tuple[str, ...]] = {
    "srp.relation_check": (CHOSEN,),
    "srp.path_generation": (CHOSEN,),
    "srp.judge": (OFFERED, CHOSEN),  # accepts what a wrong plan found, so that it is not edited
    "srp.edit": (CHOSEN,),
    "srp.answer": (ANSWERED, "matched"),
    "arg.hypo": (OFFERED,),
    "arg.relations": (CHOSEN,),
    "arg.entities": (KEPT, ANSWERED),  # one segment selects nodes and answers
    "parog.plan": (OFFERED, CHOSEN),  # a plan without its last sub-goal ends early, another goal leads elsewhere
    "parog.relations": (CHOSEN,),
    "parog.entities": (KEPT,),
    "parog.refine": (OFFERED, CHOSEN, SHOWN, ANSWERED),  # may withhold a fact, from the next sub-goal too
    "parog.align": (SHOWN,),
    "parog.aggregate": (ANSWERED, "matched"),
    "r3.action": (OFFERED, CHOSEN, KEPT, ANSWERED),  # one call decides everything
    "r3.step": (OFFERED, CHOSEN, KEPT, ANSWERED),
    "r3.verify": (OFFERED, CHOSEN, KEPT, ANSWERED),  # accepts any wrong end of an attempt
    "r3.reflect": (OFFERED, CHOSEN, KEPT, ANSWERED),
    "r3.guess": (ANSWERED, "matched"),
    "tog.relations": (CHOSEN,),
    "tog.entities": (KEPT,),
    "tog.reason": (OFFERED,),  # ends the search
    "tog.answer": (ANSWERED, "matched"),
    "pog.relations": (CHOSEN,),
    "pog.entities": (KEPT,),
    "pog.evaluate": (OFFERED,),  # ends the search
    "dog.relations": (CHOSEN, OFFERED),  # a wrong relation may lead where the way on is against its direction
    "dog.enough": (OFFERED, SHOWN),  # ends the search, or misses an answer that it was shown
    "rog.plan": (OFFERED, CHOSEN, KEPT),  # a plan may be too short, lead elsewhere, or lead past the answer
    "rog.list": (OFFERED, CHOSEN, KEPT),
    "rog.read": (ANSWERED, "matched"),
    "rag.read_facts": (ANSWERED, "matched"),
    "cot.answer": (ANSWERED, "matched"),
}
"""The stages at which an answer is lost when the calls of a role err."""
WORDS: dict[str, str] = {
    **dict.fromkeys(("srp.relation_check", "srp.path_generation"), "method.retries=0"),
    "srp.edit": "method.bind_top_k=1 method.retries=2",
    "arg.hypo": "method.naive_retriever=false",
    "arg.retrieval": "method.naive_retriever=false",
    "arg.answer": "method.depth=2",
    "arg.token": "method.probabilities=exact",
    **dict.fromkeys(("parog.plan", "parog.read"), "method.refine=false"),
    **dict.fromkeys(("parog.align", "parog.correct", "parog.suffice"), "method.split_refine=true"),
    "parog.aggregate": "method.stop_on_question_answered=false",
    "r3.action": "method.retries=0",
    "r3.step": "method.retries=0 method.calls_per_step=1",
    "r3.guess": "method.retries=0 method.depth=2 method.on_halt_guess=true",
    "rog.list": "method.planner=listed",
}
"""What keeps a method from repairing the errors of a role, or lets it ask the role at all."""
OTHERS: dict[str, dict[str, float]] = {
    "srp.edit": {"srp.path_generation": 1.0, "srp.relation_check": 1.0},
    "srp.judge": {"srp.path_generation": 1.0, "srp.relation_check": 1.0},
    "r3.reflect": {"r3.action": 0.3},
    "r3.verify": {"r3.action": 0.3},
    "tog.answer": {"tog.reason": 1.0},
}
"""Roles that err as well, because the role is asked, or can do harm, only after such errors: they err in both runs."""
HARMLESS: dict[str, str] = {
    "arg.retrieval": "no training text declines to retrieve, so the oracle does not err here",
    "arg.answer": "it is asked where the search found no answer, and the oracle then finds none either",
    "arg.token": "it only ranks the branches, and what the segments drop, they drop by their own tokens",
    "parog.tentative": "the refinement replaces it by what the facts show; without facts, the oracle has no answer",
    "parog.correct": "the third question of the refinement gives the answers again, from the same facts",
    "parog.suffice": "after the last round, the answers are read off the facts of all sub-goals",
    "parog.read": "the last call reads the answers off the facts of all sub-goals again",
    "r3.thought": "the oracle acts without reading its thoughts",
    "pog.plan": "the oracle follows gold paths whatever the sub-objectives are",
    "pog.memory": "the oracle reads the facts, not the notes on them",
    "pog.reflect": "it is asked after the facts did not suffice, and the search goes on either way",
    **dict.fromkeys(
        ("dog.simplify", "dog.criticise", "dog.rewrite"), "the oracle knows which question is meant, however it is put"
    ),
    "dog.alone": "it is asked where the search found nothing, when the oracle does not know the answer either",
}
"""Roles whose errors alone lose no answer, and why."""
NOT_ASKED: dict[str, str] = {
    **dict.fromkeys(("srp.answer_cot", "tog.answer_cot"), "the oracle always finds something to answer from"),
    **dict.fromkeys(("pog.answer", "pog.alone", "pog.backtrack"), "the oracle's search never comes to a dead end"),
    "rog.alone": "it is asked instead of a search, and the oracle knows nothing without facts",
    "rag.read": "it reads the documents of a graph with attributes",
}
"""Roles that a run of the oracle on this graph does not ask, and why."""
QUICK = ("tog.relations", "srp.answer")
TYPES = "[1-hop,2-hop,3-hop,4-hop]"
"""Types whose gold paths say everything: the others also compare values, which no gold path holds."""


def run(folder: Path, role: str, error_rate: float, questions: int) -> Run:
    words = {"method": role.partition(".")[0], "llm": "oracle", "dataset.types": TYPES, "run.limit": questions}
    rates = {**OTHERS.get(role, {}), role: error_rate}
    roles = ", ".join(f"{name}: {{error_rate: {rate}}}" for name, rate in rates.items())
    overrides = [f"{key}={value}" for key, value in {**words, "run.dir": folder}.items()]
    return evaluate([*overrides, *WORDS.get(role, "").split(), f"llm.roles={{{roles}}}"])


def lost_by(role: str, folder: Path, questions: int) -> pl.DataFrame:
    """Return the questions that are answered right while the role does not err, and wrong while it always errs."""
    perfect, erring = (run(folder / str(rate), role, rate, questions) for rate in (0.0, 1.0))
    for each in (perfect, erring):
        assert each.calls.filter(pl.col("role") == role).head(1).collect().height, f"{role} is not asked"
    right = perfect.losses().filter(pl.col("right")).select("question_id")
    assert right.collect().height >= questions / 4
    return erring.losses().filter(~pl.col("right")).join(right, on="question_id", how="semi").collect()


@pytest.mark.parametrize(
    "role", [pytest.param(role, marks=() if role in QUICK else pytest.mark.exhaustive) for role in STAGES_OF]
)
def test_an_oracle_that_errs_in_one_role_loses_answers_at_its_stage(role: str, tmp_path: Path) -> None:
    lost = lost_by(role, tmp_path, 30 if role in QUICK else 80)
    table = lost.group_by("stage", "reason", "role").len().sort("len", descending=True)
    at_stage = lost.filter(pl.col("stage").cast(pl.String).is_in(STAGES_OF[role])).height
    print(f"\n{role}: {at_stage} of {lost.height} lost", *table.iter_rows(), sep="\n  ")
    assert lost.height > 5
    assert at_stage >= 0.99 * lost.height


def test_every_role_of_every_method_is_made_to_err() -> None:
    modules = (f"pipeline.methods.{module.name}" for module in iter_modules(pipeline.methods.__path__))
    loaded = [vars(import_module(name)).values() for name in modules]
    methods = [each for values in loaded for each in values if isinstance(each, type) and "prompts" in vars(each)]
    roles = {prompt.role for method in methods for prompt in vars(method)["prompts"]}
    assert len(roles) > 40
    assert roles == STAGES_OF.keys() | HARMLESS.keys() | NOT_ASKED.keys()


@pytest.mark.exhaustive
@pytest.mark.parametrize("role", HARMLESS)
def test_errors_that_another_call_repairs_lose_no_answer(role: str, tmp_path: Path) -> None:
    assert lost_by(role, tmp_path, 80).is_empty(), f"unlike before: {HARMLESS[role]}"


@pytest.fixture(scope="module")
def erring(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of ToG in which every role errs."""
    folder = tmp_path_factory.mktemp("runs") / "erring"
    words = ("method=tog", "llm=oracle", "llm.error_rate=0.3", "dataset.triples=2000", "run.limit=40")
    return evaluate([*words, f"run.dir={folder}", "engine.shard_size=16"])


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "perfect"
    return evaluate(["method=tog", "llm=oracle", "dataset.triples=2000", "run.limit=40", f"run.dir={folder}"])


def test_every_wrong_question_has_one_stage_and_one_step(erring: Run) -> None:
    losses, questions = erring.losses().collect(), erring.questions.collect()
    assert losses.height == questions.filter(pl.col("hits_at_1").is_not_null()).height
    wrong = losses.filter(~pl.col("right"))
    assert wrong.height == questions.filter(pl.col("hits_at_1") == 0).height > 5
    assert wrong.select(pl.col("stage", "reason", "step", "role").null_count()).row(0) == (0, 0, 0, 0)
    assert losses.filter(pl.col("right")).select(pl.col("stage").is_null().all()).item()


def test_the_losses_are_read_lazily(erring: Run) -> None:
    first = erring.losses().filter(~pl.col("right")).select("question_id", "stage").head(2).collect()
    assert first.shape == (2, 2)


def test_shares_add_up_to_the_wrong_questions(erring: Run) -> None:
    losses = erring.losses()
    wrong = losses.filter(~pl.col("right")).collect().height
    for by in ((), ("configuration",), ("type",), ("hops", "method")):
        shares = loss_shares(losses, by).collect()
        assert shares["lost"].sum() == wrong
        assert shares.filter(pl.col("share") > 1).is_empty()
    assert loss_shares(losses, reasons=True).collect()["lost"].sum() == wrong
    with pytest.raises(UserError, match=r"there is no group 'typ'\. Did you mean 'type'"):
        loss_shares(losses, ("typ",))


def test_clusters_count_every_wrong_question_once(erring: Run) -> None:
    losses = erring.losses()
    groups = clusters(losses).collect()
    assert groups["questions"].sum() == losses.filter(~pl.col("right")).collect().height
    assert groups["questions"].is_sorted(descending=True)
    assert groups.equals(clusters(losses).collect()), "the order is the same every time"


def test_flips_say_where_the_wrong_answer_parted(erring: Run, perfect: Run) -> None:
    flips = perfect.flips(erring).collect()
    right = perfect.losses().filter(pl.col("right")).select("question_id").collect()["question_id"]
    wrong = erring.losses().filter(~pl.col("right")).collect()
    damaged = flips.filter(~pl.col("gained"))
    assert set(damaged["question_id"]) == set(right) & set(wrong["question_id"])
    assert damaged["stage"].null_count() == 0
    assert erring.flips(erring).collect().is_empty()


def test_the_critical_path_adds_up_to_the_seconds_of_the_question(erring: Run) -> None:
    for row in erring.questions.collect().iter_rows(named=True):
        path = erring.critical_path(row["question_id"])
        assert path["own_s"].sum() == pytest.approx(row["critical_s"], abs=1e-4)
        assert path["step"].is_sorted()


def test_the_tables_of_costs_and_effects(erring: Run) -> None:
    costs, counted = erring.role_costs().collect(), erring.questions.collect()
    assert costs["prompt_tokens"].sum() == counted["prompt_tokens"].sum()
    assert costs["calls"].sum() == counted["llm_calls"].sum()
    lookups = erring.slow_lookups(3).collect()
    assert lookups.height == 3
    assert lookups["own_s"].is_sorted(descending=True)
    assert erring.repetition_effects().collect().is_empty(), "ToG repeats nothing"


@pytest.mark.parametrize(
    ("method", "of", "repeats"), [("arg", "leaf score", None), ("parog", "tentative confidence", "refinements")]
)
def test_calibration_and_repetitions(method: str, of: str, repeats: str | None, tmp_path: Path) -> None:
    words = ("llm=oracle", "llm.error_rate=0.3", "dataset.triples=2000", "run.limit=16")
    run = evaluate([f"method={method}", *words, f"run.dir={tmp_path}/run"])
    calibration = run.calibration(bins=4).collect()
    assert set(calibration["of"]) == {of}
    assert 0 < calibration["questions"].sum() <= 16
    effects = run.repetition_effects().collect()
    assert set(effects["of"]) == ({repeats} if repeats else set())


# Rows with one thing in their trail


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
        ([FOLLOWED, REACHED, FOUND, {"step": 3, "event": "shown", "number": 1}, ANSWER], {"hits_any": 1.0},
         ("answered", "model", 3)),
        ([LISTED, ANSWER], {"status": "failed"}, ("relation chosen", "error", 3)),
        ([ANSWER], {"gold_paths": [], "topic_entities": []}, ("node reached", "no gold path", 2)),
        ([ANSWER], {"gold_paths": [], "topic_entities": [], "steps": []}, ("topic known", "graph", None)),
        ([{"step": -1, "event": "cut", "edge": 0, "number": 1, "of": 1, "by": "cap"}, ANSWER], {},
         ("relation offered", "cap", 1)),
        ([ANSWER], {"followed_relations": None}, ("answered", "model", 3)),
    ],
)  # fmt: skip
def test_the_loss_of_a_row(
    trail: list[dict[str, Any]], fields: dict[str, Any], expected: tuple[str, str, int | None] | None
) -> None:
    loss = find_loss(row(trail, STEPS, **fields))
    assert (loss and (loss.stage, loss.reason, loss.step)) == expected


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


def test_stages_are_in_order() -> None:
    assert STAGES[:3] == ("topic known", "relation offered", "relation chosen")


def test_a_topic_entity_of_which_the_graph_knows_nothing_is_not_known() -> None:
    unknown = row([ANSWER], STEPS, gold_paths=[])
    assert find_loss(unknown) == Loss("node reached", "no gold path", 2)
    for step in unknown["steps"]:
        step["rows"] = 0
    assert find_loss(unknown) == Loss("topic known", "graph", 3)


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
    limit = {**decided, "trail": [decided["trail"][0], {**decided["trail"][1], "by": "cap"}, decided["trail"][2]]}
    assert find_loss(limit) == Loss("relation offered", "cap", 2, 1, "topic ✗ capital")


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


@pytest.mark.parametrize(("method", "calls", "least"), [("tog", 1, 2), ("pog", 2, 2), ("parog", 3, 8), ("arg", 6, 2)])
def test_a_budget_that_ended_a_selection_lost_the_nodes_in_it(
    method: str, calls: int, least: int, tmp_path: Path
) -> None:
    words = ("llm=oracle", "dataset.types=[2-hop]", "run.limit=24", f"budget.max_llm_calls={calls}")
    losses = evaluate([f"method={method}", *words, f"run.dir={tmp_path}/run"]).losses().filter(~pl.col("right"))
    lost = losses.filter(pl.col("stage").cast(pl.String) == "node kept").collect()
    assert lost.height >= least
    assert set(lost["reason"]) == {"cap"}


def test_an_agent_that_asks_about_a_node_that_does_not_exist_was_offered_no_relation() -> None:
    named = {"step": 2, "event": "written", "edge": 0}
    agent = row([named, {"step": 4, "event": "answered"}], "act labels act neighbours act")
    assert find_loss(agent) == Loss("relation offered", "model", 4, 1, "topic ✗ capital")
    passed = {"step": 3, "event": "passed", "edge": 0, "number": 1, "of": 1}
    elsewhere = row([passed, {"step": 4, "event": "answered"}], "act labels act neighbours act")
    assert find_loss(elsewhere) == Loss("relation chosen", "model", 2, 1, "topic ✗ capital")


def test_a_reply_that_cannot_be_read_leaves_nothing_out() -> None:
    paths = [{"topic": "norway", "relations": ["king", "seat"]}]
    trail = [LISTED, {"step": 1, "event": "shown", "edge": 0}, FOLLOWED, {**REACHED, "number": 1}, ANSWER]
    unread = row(trail, "relations choose neighbours judge answer", gold_paths=paths)
    unread["steps"][1]["error"] = "no list"
    assert find_loss(unread) == Loss("relation offered", "model", 3, 2, "topic → king ✗ seat")
