"""Where answers are lost: an oracle that errs in one role loses answers at the stage of that role."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules

import polars as pl
import pytest

import pipeline.methods
from pipeline import evaluate
from pipeline.analysis.losses import clusters, critical_path, loss_shares
from pipeline.analysis.runs import Run
from pipeline.errors import UserError
from tests.support import LARGE

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
QUICK = ("tog.relations",)
TYPES = "[1-hop,2-hop,3-hop,4-hop]"
"""Types whose gold paths say everything: the others also compare values, which no gold path holds."""


SIZES = [pytest.param(40, marks=pytest.mark.exhaustive), pytest.param(80, marks=LARGE)]
"""Numbers of questions."""

RunWith = Callable[[str, int, Mapping[str, float]], Run]


@pytest.fixture(scope="module")
def run_with(tmp_path_factory: pytest.TempPathFactory) -> RunWith:
    """`run_with(role, questions, rates)` runs the method of a role with these error rates. It makes equal runs once."""

    @cache
    def made(method: str, questions: int, more: str, rates: tuple[tuple[str, float], ...]) -> Run:
        roles = ", ".join(f"{name}: {{error_rate: {rate}}}" for name, rate in rates)
        words = {"method": method, "llm": "oracle", "dataset.types": TYPES, "run.limit": questions}
        folder = tmp_path_factory.mktemp("erring") / "run"
        overrides = [f"{key}={value}" for key, value in {**words, "run.dir": folder}.items()]
        return evaluate([*overrides, *more.split(), f"llm.roles={{{roles}}}"])

    return lambda role, questions, rates: made(
        role.partition(".")[0], questions, WORDS.get(role, ""), tuple(rates.items())
    )


def lost_by(role: str, run_with: RunWith, questions: int) -> pl.DataFrame:
    """Return the questions that are answered right while the role does not err, and wrong while it always errs."""
    others = OTHERS.get(role, {})
    perfect, erring = run_with(role, questions, others), run_with(role, questions, {**others, role: 1.0})
    for each in (perfect, erring):
        assert each.calls.filter(pl.col("role") == role).head(1).collect().height, f"{role} is not asked"
    right = perfect.losses().filter(pl.col("right")).select("question_id")
    assert right.collect().height >= questions / 4
    return erring.losses().filter(~pl.col("right")).join(right, on="question_id", how="semi").collect()


@pytest.mark.parametrize(
    ("role", "questions"),
    [
        *((role, 30) for role in QUICK),
        *(pytest.param(role, *size.values, marks=size.marks) for size in SIZES for role in STAGES_OF),
    ],
)
def test_an_oracle_that_errs_in_one_role_loses_answers_at_its_stage(
    role: str, questions: int, run_with: RunWith
) -> None:
    lost = lost_by(role, run_with, questions)
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


@pytest.mark.parametrize("questions", SIZES)
@pytest.mark.parametrize("role", HARMLESS)
def test_errors_that_another_call_repairs_lose_no_answer(role: str, questions: int, run_with: RunWith) -> None:
    assert lost_by(role, run_with, questions).is_empty(), f"unlike before: {HARMLESS[role]}"


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
    with pytest.raises(UserError, match=r"by='type' should be a list of groups, such as \['type'\]"):
        loss_shares(losses, "type")


def test_clusters_count_every_wrong_question_once(erring: Run) -> None:
    losses = erring.losses()
    groups = clusters(losses).collect()
    assert groups["questions"].sum() == losses.filter(~pl.col("right")).collect().height
    assert groups["questions"].is_sorted(descending=True)
    assert groups.equals(clusters(losses).collect()), "the order is the same every time"


def test_clusters_across_configurations_count_a_question_once(erring: Run) -> None:
    losses = pl.concat([erring.losses(), erring.losses().with_columns(pl.col("configuration") + 1)])
    alone, both = clusters(erring.losses()).collect(), clusters(losses, across=True).collect()
    assert both["questions"].to_list() == alone["questions"].to_list()
    assert set(both["configurations"]) == {2}
    assert both["example"].to_list() == alone["example"].to_list()


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


def test_a_step_at_the_end_of_the_one_before_it_follows_it_whatever_the_rounding() -> None:
    """Traces hold times in 32 bits, by which a step seems to begin before the end of the one before it."""
    times = [(0.0, 600.3), (600.3, 0.7), (601.0, 33.3), (634.3, 5.1)]
    rounded = [tuple(pl.Series(each, dtype=pl.Float32).cast(pl.Float64)) for each in times]
    assert any(one[0] + one[1] > other[0] for one, other in pairwise(rounded)), "else this says nothing"
    steps = [
        {"index": n, "kind": "llm", "role": "a", "start_s": start, "duration_s": own, "own_s": own, "shared": False}
        for n, (start, own) in enumerate(rounded)
    ]
    assert critical_path(steps, None)["step"].to_list() == [0, 1, 2, 3]


def test_a_path_without_directions_is_followed_in_either_one(tmp_path: Path) -> None:
    """The gold relation leads to the topic entity, and is offered there: the graph leads on, and the model erred."""
    facts = [
        ("Lira", "directed", "North"),
        ("North", "year", "1994"),
        ("Bo", "likes", "North"),
        ("Cy", "sees", "North"),
    ]
    (tmp_path / "graph.tsv").write_text("".join("\t".join(fact) + "\n" for fact in facts))
    row = {"id": "q", "question": "Who directed it?", "topic_entities": ["North"], "answers": ["Lira"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps({**row, "gold_relation_paths": [["directed"]]}))
    files = {"dataset.triples": tmp_path / "graph.tsv", "dataset.questions": tmp_path / "rows.jsonl"}
    words = {"dataset": "custom", **files, "method": "tog", "llm": "oracle"}
    for rate, lost in ((0, (None, None)), (0.9, ("relation chosen", "model"))):
        run = evaluate({**words, "llm.error_rate": rate, "run.dir": tmp_path / f"run-{rate}"})
        (loss,) = run.losses().collect().to_dicts()
        assert (loss["stage"], loss["reason"]) == lost
        (trail,) = run.questions.select("trail").collect()["trail"].to_list()
        assert any(event["event"] == "listed" and event["number"] for event in trail)


def test_a_question_without_gold_answers_is_no_loss(tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("Ann\tson\tBob\n")
    row = {"question": "Who is the son of Ann?", "topic_entities": ["Ann"]}
    rows = [{"id": "gold", **row, "answers": ["Bob"]}, {"id": "none", **row, "answers": []}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    files = {"dataset.triples": tmp_path / "graph.tsv", "dataset.questions": tmp_path / "rows.jsonl"}
    words = {"dataset": "custom", **files, "evaluation.empty_gold": "strict_empty", "run.dir": tmp_path / "run"}
    run = evaluate({**words, "method": "tog", "llm": "similarity"})
    assert run.questions.select("hits_at_1").collect()["hits_at_1"].null_count() == 0
    assert run.losses().collect()["question_id"].to_list() == ["gold"]


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


@pytest.mark.parametrize(
    ("words", "relation"),
    [
        ({"method": "tog"}, "is.parent"),
        ({"method": "arg"}, "is.parent"),
        ({"method": "tog", "method.no_return": "relation"}, "has.actor"),
        ({"method": "pog", "method.no_return": "relation"}, "has.actor"),
    ],
)
def test_what_a_rule_does_not_offer_is_not_called_rejected(
    words: Mapping[str, str], relation: str, tmp_path: Path
) -> None:
    facts = [("Ann", "is.parent", "Bob"), ("Bob", "is.parent", "Cid"), ("F", "has.actor", "A"), ("G", "has.actor", "A")]
    (tmp_path / "facts.tsv").write_text("".join("\t".join(fact) + "\n" for fact in facts))
    topic, answer, inverse = ("Ann", "Cid", "") if relation == "is.parent" else ("F", "G", "^")
    path = f"{{ ns:{topic} ns:{relation} ?y . " + (f"?x ns:{relation} ?y }}" if inverse else f"?y ns:{relation} ?x }}")
    question = {
        "id": "q",
        "question": f"what has {relation} twice of {topic}?",
        "topic_entities": [topic],
        "answers": [answer],
        "sparql": f"PREFIX ns: <http://rdf.freebase.com/ns/> SELECT ?x WHERE {path}",
    }
    (tmp_path / "questions.jsonl").write_text(json.dumps(question))
    files = {"dataset.triples": f"{tmp_path}/facts.tsv", "dataset.questions": f"{tmp_path}/questions.jsonl"}
    run = evaluate({"dataset": "custom", **files, "llm": "oracle", **words, "run.dir": str(tmp_path / "run")})
    (loss,) = run.losses().collect().to_dicts()
    assert (loss["stage"], loss["reason"]) == ("relation offered", "cap")
