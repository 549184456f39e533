"""Tables of results."""

from __future__ import annotations

import re

import pytest
from rich.console import Console
from rich.table import Table

from pipeline.evaluation.configuration_summary import ConfigurationSummary, Group
from pipeline.evaluation.score_tables import breakdown_table, score_table, sweep_table
from pipeline.evaluation.statistics import Estimate

HALF = Estimate(0.5, 0.401, 0.599, 100)


def summary(method: str = "srp", **changes: object) -> ConfigurationSummary:
    values = {
        "number": 0,
        "method": method,
        "dataset": "webqsp",
        "overrides": (),
        "label": None,
        "questions": 100,
        "not_run": 0,
        "failed": 0,
        "empty_gold": 0,
        "statuses": {"ok": 100},
        "scores": {"hits_at_1": HALF, "f1": HALF, "compat_readi_hit": Estimate(0.75, 0.7, 0.8, 100)},
        "confidence": 0.95,
        "counters": {"llm_calls": 450, "tokens": 123456},
    }
    return ConfigurationSummary(**{**values, **changes})  # type: ignore[arg-type]


def printed(table: Table, width: int = 200) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text()


@pytest.mark.parametrize(("high", "said"), [(1.2, True), (0.9, False)])
def test_an_f1_above_100_is_explained(high: float, said: bool) -> None:
    scores = {"hits_at_1": HALF, "compat_rog_hit": HALF, "compat_rog_f1": Estimate(0.8, 0.7, high, 100)}
    assert ("can exceed 100" in printed(score_table([summary("rog", scores=scores)]))) is said
    assert "can exceed 100" not in printed(score_table([summary("srp", scores=scores)]))


def test_a_score_is_printed_with_its_interval() -> None:
    text = printed(score_table([summary()]))
    assert "50.0" in text
    assert "40.1–59.9" in text
    assert "95 % intervals" in text


def test_the_papers_metric_comes_after_the_standard_one_with_its_name() -> None:
    text = printed(score_table([summary()]))
    assert "readi_hit" in text
    assert text.index("50.0") < text.index("75.0")


def test_relation_recall_is_a_column_where_gold_queries_are_known() -> None:
    known = summary(scores={"hits_at_1": HALF, "relation_recall": Estimate(0.375, 0.3, 0.45, 100)})
    for table in (score_table, sweep_table):
        text = printed(table([known, summary("cot", number=1)]), width=80)
        assert "37.5" in text
        assert "relation" in text
        assert "relation" not in printed(table([summary(), summary("cot", number=1)]))


def test_a_simulated_model_is_labelled_in_its_row_and_below() -> None:
    text = printed(score_table([summary(label="oracle"), summary("cot")]))
    assert "srp (oracle)" in text
    assert "not the answers of a language model: oracle" in text
    assert "not the answers" not in printed(score_table([summary()]))


def test_a_table_says_that_the_oracle_knows_the_gold_answers_and_what_that_means_without_a_graph() -> None:
    cot = summary("cot", label="oracle", counters={"llm_calls": 100, "tokens": 900, "kg_lookups": 0})
    srp = summary(label="oracle", number=1, counters={"llm_calls": 100, "tokens": 900, "kg_lookups": 7})
    known = "the oracle replies from the gold answers (and errs by llm.error_rate): a score shows what a method can"
    alone = "cot: looked up nothing in the graph, so the score is the oracle's alone"
    for table, closed in ((score_table([cot]), True), (sweep_table([cot, srp]), True), (score_table([srp]), False)):
        text = " ".join(printed(table).split())
        assert known in text
        assert (alone in text) is closed
    unasked = summary("mine", label="oracle", counters={"llm_calls": 0, "tokens": 0, "kg_lookups": 0})
    assert "the oracle's alone" not in printed(score_table([unasked])), "it asked no model"
    other = summary("cot", label="similarity", counters={"llm_calls": 100, "tokens": 900, "kg_lookups": 0})
    assert "gold answers" not in printed(score_table([other]))
    assert [cot.to_dict()["closed_book"], srp.to_dict()["closed_book"], srp.to_dict()["from_gold"]] == [
        True,
        False,
        True,
    ]


def test_the_effect_of_reflection_is_below_the_table() -> None:
    corrected, damaged = Estimate(0.7123, 0.7, 0.72, 310), Estimate(0.031, 0.02, 0.04, 690)
    parog = summary("parog", scores={"hits_at_1": HALF, "corrected": corrected, "damaged": damaged})
    said = "71.2 % of 310 wrong ones corrected, 3.1 % of 690 correct ones damaged"
    text = printed(score_table([parog, summary()]))
    assert " ".join(text.split()).endswith(f"count as wrong first answers of parog: {said}")
    r3 = summary("r3", label="oracle", overrides=("a=1",), scores={"corrected": Estimate(1, 1, 1, 9)})
    text = printed(score_table([r3, summary("r3", label="oracle", overrides=("a=2",))]))
    assert "first answers of r3 (oracle) a=1: 100 % of 9 wrong ones corrected" in text
    recovered = {"recovered_halted": Estimate(0.5, 0.2, 0.8, 4), "recovered_incorrect": Estimate(0.25, 0.1, 0.4, 8)}
    said = "50.0 % of 4 halted first attempts recovered, 25.0 % of 8 incorrect first attempts recovered"
    assert said in " ".join(printed(score_table([summary("r3", scores=recovered)])).split())
    assert text.count("first answers") == 1


def test_failed_not_run_and_unscored_questions_are_counted() -> None:
    text = printed(score_table([summary(failed=3, not_run=20, empty_gold=11)]))
    assert all(words in text for words in ("3 failed", "20 not run", "11 without gold"))


def test_a_sweep_says_how_many_questions_have_no_gold_answers() -> None:
    rows = [summary(number=number, empty_gold=1, questions=1200) for number in (0, 1)]
    assert printed(sweep_table(rows)).count("webqsp: 1 of 1,200 questions without gold answers") == 1
    assert "without gold" not in printed(sweep_table([summary(), summary(number=1)]))


def test_costs_are_per_answered_question() -> None:
    text = printed(score_table([summary(not_run=50)]))
    assert "9.0 calls" in text
    assert "2,469.1" in text
    assert "tokens" in text


def test_differing_overrides_are_printed() -> None:
    text = printed(score_table([summary(overrides=("method.depth=2",)), summary(overrides=("method.depth=[3]",))]))
    assert "method.depth=2" in text
    assert "method.depth=[3]" in text


def test_common_overrides_are_not_printed() -> None:
    shared = ("run.dir=/data/runs/x", "run.limit=20")
    alone = printed(score_table([summary(overrides=shared)]))
    both = printed(score_table([summary(overrides=(*shared, f"method.depth={depth}")) for depth in (2, 3)]))
    assert "run." not in alone + both
    assert "method.depth=2" in both
    assert "method.depth=3" in both


def test_varying_keys_are_columns_and_many_keys_share_one() -> None:
    assert "method (oracle)" in printed(sweep_table([summary(label="oracle")] * 2), 80)
    presets = [summary(overrides=(word,)) for word in ("method=srp", "experiment=mine", "experiment=other")]
    told_apart = printed(sweep_table(presets), 100)
    assert "experiment" in told_apart, "a preset that gives its method no name of its own"
    assert {"mine", "other"} <= set(told_apart.split())
    named = [summary(word, overrides=(f"experiment={word}",)) for word in ("mine", "other")]
    assert "experiment" not in printed(sweep_table(named), 100)
    few = printed(sweep_table([summary(overrides=(f"method.depth={depth}",)) for depth in (1, 2)]), 80)
    assert few.split()[:3] == ["#", "method", "depth"]
    own = {"srp": ("method.retries=1", "method.depth=2"), "r3": ("method.depth=3", "llm.depth=1", "a.b=5", "a.c=6")}
    many = printed(sweep_table([summary(method, overrides=words) for method, words in own.items()]), 120)
    assert many.split()[:4] == ["#", "method", "differs", "by"]
    assert "retries=1 method.depth=2" in many
    assert "method.depth=3 llm.depth=1 b=5 c=6" in many


def test_a_key_that_a_configuration_does_not_set_is_explained() -> None:
    meaning = "no value in the column of a key: its method or preset decides"
    some = [summary(overrides=("method.depth=2",)), summary(overrides=())]
    assert meaning in printed(sweep_table(some), 120)
    assert meaning not in printed(sweep_table([summary(overrides=(f"method.depth={depth}",)) for depth in (1, 2)]), 120)


def test_of_paths_only_what_tells_them_apart_is_a_cell() -> None:
    def cells(*paths: str) -> str:
        points = [summary(number=n, overrides=(f"dataset.questions={path}",)) for n, path in enumerate(paths)]
        return printed(sweep_table(points))

    assert "/" not in cells("/long/folder/webqsp.jsonl", "/long/folder/cwq.jsonl")
    assert "/two/test.jsonl" in cells("/one/test.jsonl", "/two/test.jsonl")


def test_a_grbench_row_shows_rouge() -> None:
    scores = {"rouge_l": Estimate(0.369, 0.3, 0.4, 200), "grbench_em": HALF}
    text = printed(score_table([summary("r3", dataset="grbench", scores=scores)]))
    assert "36.9" in text
    assert "rouge_l" in text
    assert "EM" in text


@pytest.mark.parametrize("width", [60, 70])
def test_a_narrow_terminal_still_shows_the_names(width: int) -> None:
    text = printed(score_table([summary(label="similarity", failed=3), summary("cot", label="similarity")]), width)
    assert all(words in text for words in ("srp (similarity)", "cot (similarity)", "webqsp, 100", "3 failed"))


@pytest.mark.parametrize("width", [80, 120])
def test_a_grbench_row_names_its_metrics(width: int) -> None:
    names = ("rouge_l", "hits_at_1", "f1", "grbench_em", "grbench_f1", "answer_in_evidence", "answer_supported")
    scores = {name: Estimate(mean / 10, mean / 10 - 0.05, mean / 10 + 0.05, 200) for mean, name in enumerate(names, 1)}
    row = summary("r3", dataset="grbench", label="similarity", failed=3, scores=scores)
    text = printed(score_table([row]), width)
    assert max(map(len, text.splitlines())) <= width
    assert all(words in text for words in ("r3 (similarity)", "grbench, ", "100", "questions", "3 failed", "tokens"))
    assert all(f"{10 * mean - 5:.1f}–{10 * mean + 5:.1f}" in text for mean in range(1, 8))
    assert all(heading in text for heading in ("rouge_l", "Hits@1", "EM", "item F1"))


def test_of_many_kinds_of_question_those_with_the_most_questions_are_printed_and_the_rest_is_named() -> None:
    kinds = [Group(f"kind {number}", 10 + number % 7, {"hits_at_1": HALF}) for number in range(20)]
    hops = [Group(str(hop), 5, {"hits_at_1": HALF}) for hop in (1, 2)]
    text = printed(breakdown_table(summary(breakdown={"type": kinds, "hops": hops})))
    printed_kinds = [int(number) for number in re.findall(r"kind (\d+)", text)]
    assert len(printed_kinds) == 8
    assert printed_kinds == sorted(printed_kinds), "in the order of the values"
    counts = [10 + number % 7 for number in range(20)]
    assert sorted(counts[number] for number in printed_kinds) == sorted(counts)[-8:]
    assert "12 more of type: json=true and the report have all" in " ".join(text.split())
    assert "json=true" not in printed(breakdown_table(summary(breakdown={"hops": hops})))


def test_markup_in_names_is_text() -> None:
    group = Group("[bold]", 5, {"hits_at_1": HALF})
    text = printed(breakdown_table(summary("[red]m", breakdown={"type": [group]})))
    assert "[bold]" in text
    assert "[red]m" in text


def test_terminal_commands_in_names_are_replaced() -> None:
    group = Group("\x1b[2J\x07\x9b31m", 5, {"hits_at_1": HALF})
    text = printed(breakdown_table(summary("\x1b]0;mine\x07", breakdown={"\x1bc": [group]})))
    assert not {"\x1b", "\x07", "\x9b"} & set(text)
    assert "\ufffd[2J\ufffd" in text


def test_the_table_fits_80_columns() -> None:
    summaries = [summary("srp", label="similarity", overrides=(f"method.depth={depth}",)) for depth in (3, 4)]
    text = printed(score_table(summaries), width=80)
    assert text.count("40.1–59.9") == 4
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in ("srp (similarity)", "method.depth=3", "method.depth=4"))


def test_every_table_names_the_retriever_and_where_a_preset_is_not_as_published() -> None:
    lexical = summary(retriever="lexical", departures=("no references",))
    dense = summary(number=1, retriever="all-MiniLM-L6-v2")
    assert "retriever: lexical\n" in printed(score_table([lexical])).replace("  ", "")
    assert "srp [no references]" in printed(score_table([lexical]))
    swept = printed(sweep_table([lexical, dense]))
    assert "retriever: lexical (in 0), all-MiniLM-L6-v2 (in 1)" in swept
    assert "srp [no references]" in swept
    assert "not as published: no references" in printed(sweep_table([lexical, lexical]))
    assert "not as published" not in printed(sweep_table([dense, dense]))
    assert "retriever" not in printed(score_table([summary()])), "not known of a file of predictions"


def test_a_score_that_all_questions_share_has_no_interval() -> None:
    alike = summary(scores={"hits_at_1": HALF, "f1": Estimate(2 / 3, 2 / 3, 2 / 3, 1)})
    assert re.search(r"\b66\.7\s", text := printed(score_table([alike])))
    assert "66.7–66.7" not in text
