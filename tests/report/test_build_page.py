"""The content of the page, for small examples."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pipeline import config
from pipeline.evaluation.configuration_summary import Group
from pipeline.evaluation.statistics import Estimate, wilson
from pipeline.report.build_page import build_page
from pipeline.report.configuration_table import Row
from pipeline.report.data import Block, Configuration
from pipeline.report.labels import percent
from pipeline.report.page_content import BlockView, CurveView, ScoreView
from pipeline.report.render_page import render
from tests.report.configurations import RUN, make


def view(*configurations: Configuration) -> BlockView:
    (block,) = build_page([Block(configurations)]).blocks
    return block


def strict(*configurations: Configuration) -> ScoreView:
    score = view(*configurations).scores[0]
    assert score.name == "hits_at_1"
    return score


def rows(block: BlockView) -> list[Row]:
    return [row for group in block.table.groups for row in group]


def hits(right: int, of: int = 20) -> list[float]:
    return [1.0] * right + [0.0] * (of - right)


GRID = [
    make(hits(right), {"depth": depth, "retries": retries}, calls=calls)
    for depth, retries, right, calls in [(1, 0, 4, 1), (1, 1, 6, 2), (2, 0, 10, 3), (2, 1, 20, 4)]
]


def texts(curve: CurveView) -> list[str | None]:
    return [figure and figure.text for figure in curve.figures]


def test_each_axis_has_the_best_and_the_marginal_curve_of_a_method() -> None:
    depth, retries = strict(*GRID).axes
    assert (depth.key, retries.key) == ("method.depth", "method.retries")
    assert depth.values == ["1", "2"]
    assert [curve.kind for curve in depth.curves] == ["best configuration", "marginal: mean over 2 combinations"]
    assert [texts(curve) for curve in depth.curves] == [["30.0", "100.0"], ["25.0", "75.0"]]
    assert [texts(curve) for curve in retries.curves] == [["50.0", "100.0"], ["35.0", "65.0"]]
    assert [line.is_mean for line in depth.chart.lines] == [False, True]
    tooltips = [mark.text.split(":")[0] for mark in depth.chart.lines[0].marks]
    assert tooltips == ["srp (oracle) · depth 1 · retries 1", "srp (oracle) · depth 2 · retries 1"]


def test_a_setting_that_cannot_work_lowers_the_marginal_curve_only() -> None:
    depth_one = [make(hits(0), {"depth": 1, "beam_width": beam}) for beam in (1, 3)]
    depth_two = [make(hits(right), {"depth": 2, "beam_width": beam}) for beam, right in ((1, 10), (3, 16))]
    best, marginal = strict(*depth_one, *depth_two).axes[0].curves
    assert (texts(best), texts(marginal)) == (["50.0", "80.0"], ["25.0", "40.0"])


def test_a_configuration_that_two_runs_have_counts_once_in_the_marginal_curve() -> None:
    again = make(hits(20), {"depth": 2, "retries": 1}, calls=4)
    best, marginal = strict(*GRID, again).axes[0].curves
    assert (texts(best), texts(marginal)) == (["30.0", "100.0"], ["25.0", "75.0"])


def test_the_best_configuration_may_belong_to_a_combination_that_lacks_other_values() -> None:
    lone = make(hits(18), {"depth": 2, "retries": 2})
    best, marginal = strict(*GRID[:2], make(hits(10), {"depth": 2, "retries": 0}), lone).axes[0].curves
    assert (texts(best), texts(marginal)) == (["30.0", "90.0"], ["20.0", "50.0"])
    assert marginal.kind == "marginal: mean over 1 combination"


def test_a_curve_of_one_combination_has_one_name() -> None:
    (curve,) = strict(make(hits(3), {"depth": 1}), make(hits(5), {"depth": 2})).axes[0].curves
    assert (curve.kind, curve.is_mean, texts(curve)) == ("", False, ["15.0", "25.0"])


def test_the_interval_of_a_share_is_wilsons() -> None:
    """A bootstrap interval of no hits would be empty."""
    first, _ = strict(make(hits(0), {"depth": 1}), make(hits(5), {"depth": 2})).axes[0].curves[0].figures
    assert first == percent(Estimate(0.0, *wilson(0.0, 20, confidence=0.95), 20))
    assert first.interval == "0.0–16.1"


def test_the_interval_of_a_mean_over_configurations_is_over_their_common_questions() -> None:
    """Equal results on the same questions do not narrow the interval; complementary results make it empty."""
    half = hits(10)
    same = [make(half, {"depth": depth, "retries": retries}) for depth in (1, 2) for retries in (0, 1)]
    others = [
        make(half if retries else half[::-1], {"depth": depth, "retries": retries})
        for depth in (1, 2)
        for retries in (0, 1)
    ]
    alike, complementary = (strict(*configurations).axes[0].curves[1].figures[0] for configurations in (same, others))
    assert alike is not None
    assert complementary is not None
    assert (alike.text, complementary.text) == ("50.0", "50.0")
    low, high = map(float, alike.interval.split("–"))
    assert low < 35
    assert high > 65
    assert not complementary.interval, "it would have no width"


def test_panels_show_each_combination_of_the_other_parameters() -> None:
    depth, _ = strict(*GRID).axes
    assert [panel.title for panel in depth.panels] == ["retries 0", "retries 1"]
    heights = [[mark.y for mark in panel.chart.lines[0].marks] for panel in depth.panels]
    assert heights[0][0] > heights[0][1] > heights[1][1], "one scale, and the better the higher"
    single = strict(make(hits(3), {"depth": 1}), make(hits(5), {"depth": 2})).axes
    assert single[0].panels == []


def test_fronts_and_recommendation() -> None:
    score = strict(*GRID)
    assert [front.cost for front in score.fronts] == ["model calls", "tokens"], "seconds of the oracle mean nothing"
    calls, tokens = score.fronts
    assert [(on.rank, on.name.details, on.score.text, on.cost) for on in calls.entries] == [
        (1, "depth 1 · retries 0", "20.0", "1.00"),
        (2, "depth 1 · retries 1", "30.0", "2.00"),
        (3, "depth 2 · retries 0", "50.0", "3.00"),
        (4, "depth 2 · retries 1", "100.0", "4.00"),
    ]
    assert [on.name.details for on in tokens.entries] == ["depth 2 · retries 1"], "all cost the same, one is best"
    (advice,) = score.recommendations
    assert advice.is_best
    assert (advice.not_worse, advice.candidates) == (1, 4)
    assert advice.command == "kgqa evaluate method=srp method.depth=2 method.retries=1"
    assert advice.asks == "this run asks all questions of its dataset: give another split or dataset to this command"


def test_the_score_of_the_oracle_alone_is_on_no_front_and_not_recommended() -> None:
    alone = make(hits(20), method="cot", counters={"llm_calls": 20, "tokens": 20, "kg_lookups": 0})
    walk = make(hits(18), calls=2)
    score = strict(alone, walk)
    assert [on.name.details for front in score.fronts for on in front.entries] == [
        view(walk).scores[0].fronts[0].entries[0].name.details
    ] * len(score.fronts)
    (advice,) = score.recommendations
    assert (advice.candidates, advice.score.text) == (1, "90.0")
    (reason,) = view(alone, walk).oracles_left_out
    assert reason.endswith("their score is the oracle's alone.")
    assert not view(*GRID).oracles_left_out
    assert view(alone).scores[0].fronts[0].entries, "it has no rival that asked the graph"


def test_a_method_that_gets_gold_answers_is_on_no_front_and_not_recommended() -> None:
    told, walk = make(hits(20), method="rog (oracle)"), make(hits(18), calls=2)
    (advice,) = strict(told, walk).recommendations
    assert (advice.candidates, advice.score.text) == (1, "90.0")
    (reason,) = view(told, walk).oracles_left_out
    assert reason.startswith("Configurations whose method gets gold answers (oracle) are left out")


def test_a_front_is_of_one_label() -> None:
    assert view(*GRID).label_rivals == ""
    assert view(make(hits(3)), make(hits(4), label=None)).label_rivals == " with the same label"


@pytest.mark.parametrize(
    ("keys", "others"),
    [
        ({"run.limit": 400}, "run.sample=400 run.sample_seed=1"),
        ({"run.sample": 900, "run.limit": 400, "run.sample_seed": 3}, "run.sample=400 run.sample_seed=4"),
    ],
)
def test_the_choice_is_confirmed_on_other_questions(keys: dict[str, int], others: str) -> None:
    (advice,) = strict(*(make(hits(n, 400), {"depth": n, **keys}, calls=n) for n in (1, 5))).recommendations
    assert advice.command == f"kgqa evaluate method=srp method.depth=5 {others}"
    assert (
        advice.asks
        == "this command draws 400 questions at random from the whole dataset, so some of those asked here may be "
        "among them. If the dataset has no more than these, give another split or dataset to the command. Run "
        "the second best configuration in the same way, and compare both"
    )


def test_after_too_few_questions_the_command_asks_enough() -> None:
    (advice,) = strict(*(make(hits(n), {"depth": n, "run.limit": 20}, calls=n) for n in (1, 5))).recommendations
    (needed,) = re.findall(r"At least (\d+) are needed", advice.objection or "")
    assert f"run.sample={needed} " in advice.command
    assert advice.asks.startswith(f"this command draws {needed} questions")


def test_a_page_says_that_tokens_are_not_known() -> None:
    known = [make(hits(n), {"depth": n}, calls=n) for n in (3, 5)]
    unknown = [make(hits(n), {"depth": n}, counters={"llm_calls": n, "tokens": 0, "kg_lookups": 9}) for n in (3, 5)]
    assert view(*unknown).without_tokens
    assert not view(*known).without_tokens
    said = "in score and calls (the servers reported no tokens)"
    assert said in render(build_page([Block(unknown)]))
    assert said not in render(build_page([Block(known)]))


def test_unknown_tokens_are_never_the_fewer_ones() -> None:
    def costs(calls: int, tokens: int) -> dict[str, int]:
        return {"llm_calls": calls, "tokens": tokens, "kg_lookups": 9}

    one, other = (make(hits(n, 400), {"depth": n}, counters=costs(800, 0)) for n in (320, 380))
    (advice,) = strict(one, other).recommendations
    assert advice.objection is not None
    assert advice.objection.startswith(
        "The servers reported no tokens, so it is not known which of the ones with equal"
    )
    dear = make(hits(381, 400), {"depth": 3}, counters=costs(1200, 0))
    cheap = make(hits(380, 400), {"depth": 1}, counters=costs(800, 0))
    worse = make(hits(320, 400), {"depth": 2}, counters=costs(800, 0))
    assert strict(dear, cheap).recommendations[0].objection is None
    (advice,) = strict(dear, cheap, worse).recommendations
    assert (advice.objection or "").startswith("The servers reported no tokens"), "also of one that is not the best"
    known = make(hits(380, 400), {"depth": 1}, counters=costs(800, 900))
    (advice,) = strict(known, other).recommendations
    assert advice.objection is None
    assert advice.recommended.details == "depth 1"


def test_a_run_that_asked_fewer_questions_than_it_could_has_asked_all() -> None:
    one, other = (make(hits(n), {"depth": n, "run.limit": 1000}, calls=n) for n in (1, 5))
    runs = [replace(each, run=replace(each.run, totals={})) for each in (one, other)]
    (advice,) = strict(*runs).recommendations
    assert advice.asks.startswith("this run asks all questions of its dataset")


def test_seconds_of_a_simulated_model_are_left_out_unless_they_were_set() -> None:
    own, simulated = make(hits(3), label=None), make(hits(3))
    slow = replace(simulated, resolved={**simulated.resolved, "llm": {"latency_s": 2.0}})
    assert [each.cost("critical_s") for each in (own, simulated, slow)] == [2.0, None, 2.0]
    assert [view(each).has_seconds for each in (own, simulated, slow)] == [True, False, True]


def test_costs_of_two_models_are_not_compared() -> None:
    small, large = (make(hits(n) * 30, {"depth": 1}, label=None, calls=calls) for n, calls in ((9, 4), (9, 2)))
    large = replace(large, served={**large.served, "model": "large"})
    block = view(small, large)
    assert block.label_rivals == " of the same model"
    assert len(block.scores[0].recommendations) == 2
    assert [len(front.entries) for front in block.scores[0].fronts] == [2, 2, 1], "seconds can be compared"
    assert len(view(small, replace(large, served=small.served)).scores[0].recommendations) == 1


def test_seconds_of_replies_that_earlier_runs_measured_have_a_warning() -> None:
    run = replace(RUN, totals={"complete": True, "reused_llm_calls": 875})
    (warning,) = view(make(hits(3), label=None, run=run)).warnings
    assert warning.startswith(
        "run: 875 of its model calls come from earlier runs, with the seconds that they took there."
    )
    assert view(make(hits(3), run=run)).warnings == [], "a simulated model takes no seconds"


def test_a_cheaper_configuration_that_is_hardly_worse_is_recommended_and_marked() -> None:
    best, cheap, poor = hits(380, 400), [0.0, *hits(379, 399)], hits(40, 400)
    configurations = [
        make(best, {"depth": 3}, calls=9),
        make(cheap, {"depth": 2}, calls=4),
        make(poor, {"depth": 1}),
    ]
    block = view(*configurations)
    (advice,) = block.scores[0].recommendations
    assert (str(advice.recommended), str(advice.best)) == ("srp (oracle) · depth 2", "srp (oracle) · depth 3")
    assert (advice.difference.text, advice.is_best) == ("−0.3", False)
    assert advice.difference.interval.endswith("… +0.0")
    assert [row.tags.get("hits_at_1") for row in rows(block)] == ["best", "recommended", None]
    assert [mark.recommended for mark in block.scores[0].fronts[0].chart.marks] == [False, True, False]


def test_too_few_questions_are_said_and_nothing_is_recommended() -> None:
    block = view(make(hits(10, 10), {"depth": 2}, calls=2), make(hits(9, 10), {"depth": 1}, calls=1))
    (advice,) = block.scores[0].recommendations
    assert advice.objection == (
        "Too few questions: 10. At least 236 are needed to show that a cheaper configuration is worse than the best "
        "one by less than 2 percentage points."
    )


def test_too_few_sources_are_said_beside_the_questions() -> None:
    sources = [f"source {number // 12}" for number in range(120)]
    best = make(hits(120, 120), {"depth": 2}, calls=2, sources=sources)
    (advice,) = view(best, make(hits(110, 120), {"depth": 1}, sources=sources)).scores[0].recommendations
    assert advice.objection is not None
    assert advice.objection.startswith(
        "Too few questions: 10 (the 120 that were asked have 10 sources, and those of one source count as one). "
        "At least 236 are needed"
    )


def test_nothing_is_recommended_if_no_configuration_answers_a_question() -> None:
    (advice,) = view(make(hits(0, 200), {"depth": 1}), make(hits(0, 200), {"depth": 2})).scores[0].recommendations
    assert advice.objection == "No configuration answers a question correctly."


def test_questions_with_the_same_source_are_drawn_together() -> None:
    """80 lost and 79 won of 4,000 independent questions are hardly worse; one cluster of each may be chance."""
    best, cheap = hits(3920, 4000), [0.0] * 80 + hits(3919, 3920)
    sources = [f"source {number // 80}" for number in range(4000)]
    apart = [make(best, {"depth": 2}, calls=2), make(cheap, {"depth": 1})]
    together = [
        make(best, {"depth": 2}, calls=2, sources=sources),
        make(cheap, {"depth": 1}, sources=sources),
    ]
    assert not view(*apart).shares_sources
    assert view(*together).shares_sources
    assert not strict(*apart).recommendations[0].is_best
    assert strict(*together).recommendations[0].is_best


def test_simulated_and_language_models_are_not_compared() -> None:
    configurations = [
        make(hits(20), {"depth": 1}, label="oracle"),
        make(hits(9), {"depth": 1}, label=None),
        make(hits(2), {"depth": 2}, label=None, calls=2),
    ]
    block = view(*configurations)
    score = block.scores[0]
    assert [(advice.label, advice.candidates) for advice in score.recommendations] == [("oracle", 1), (None, 2)]
    assert block.simulators == ["oracle"]
    assert {str(on.name).split(" ·")[0] for on in score.fronts[0].entries} == {"srp (oracle)", "srp"}


def test_the_page_says_that_the_oracle_knows_the_gold_answers() -> None:
    told = view(make(hits(3), label="oracle")).gold_notes
    assert told == [
        "the oracle replies from the gold answers (and errs by llm.error_rate): a score shows what a method can reach "
        "with such replies, not what a model answers"
    ]
    assert view(make(hits(3), label="similarity")).gold_notes == []


def test_every_name_has_its_label() -> None:
    block = view(*GRID)
    names = [*block.names, *(name for name, _ in block.legend), *(row.name for row in rows(block))]
    names += [on.name for score in block.scores for front in score.fronts for on in front.entries]
    assert {name.label for name in names} == {"oracle"}
    texts = [mark.text for score in block.scores for front in score.fronts for mark in front.chart.marks]
    texts += [curve.name for score in block.scores for axis in score.axes for curve in axis.curves]
    texts += [mark.text for axis in block.scores[0].axes for line in axis.chart.lines for mark in line.marks]
    assert texts
    assert all("(oracle)" in text for text in texts)


def test_the_table_begins_with_score_and_costs_and_has_parameters_and_other_scores() -> None:
    block = view(*GRID)
    columns = block.table.columns
    headings = [column.heading for column in columns]
    assert headings[:6] == ["Hits@1", "model calls", "tokens", "depth", "retries", "F1"]
    assert headings[-1] == "paper's metric"
    assert {column.heading: column.shown for column in columns}["F1"]
    cells = dict(zip(headings, rows(block)[1].cells, strict=True))
    assert cells["depth"].order == 2
    assert cells["paper's metric"].figures[0].name == "Readi's Hit"
    assert (cells["Hits@1"].figures[0].text, cells["Hits@1"].order) == ("50.0", 0.5)
    assert cells["model calls"].figures[0].text == "3.00"
    assert all(len(row.cells) == len(headings) for row in rows(block))


def test_the_best_row_is_first_and_equal_configurations_are_one_group() -> None:
    """Equal scores on every question, not only an equal mean; the cheapest configuration stands for its group."""
    configurations = [
        make(hits(4), {"depth": 1}, calls=1),
        make(hits(10), {"depth": 2}, calls=3),
        make(hits(10), {"depth": 3}, calls=2),
        make(hits(10)[::-1], {"depth": 4}, calls=9),
        make(hits(10), {"depth": 5}, method="arg", calls=5),
    ]
    groups = view(*configurations).table.groups
    assert [[row.cells[3].order for row in group] for group in groups] == [[3, 2], [5], [4], [1]]


def test_an_unknown_cost_is_no_column_and_is_counted() -> None:
    """Traces of an older version do not have the seconds of a question's own waiting."""
    counters = {"llm_calls": 20.0, "tokens": 40.0, "wall_s": 60.0}
    old = view(*(make(hits(n), {"depth": n}, label=None, counters=counters) for n in (3, 4)))
    assert "seconds" not in [column.heading for column in old.table.columns]
    assert [front.cost for front in old.scores[0].fronts] == ["model calls", "tokens"]
    assert old.without_seconds == 2
    assert view(*GRID).without_seconds == 0


def test_the_page_counts_runs_configurations_and_questions() -> None:
    other = replace(RUN, name="other")
    facts = dict(view(*GRID, make(hits(3), {"depth": 3}, run=other)).facts)
    assert [facts[term] for term in ("runs", "configurations", "questions")] == [["2"], ["5"], ["20"]]


def test_keys_that_differ_from_their_default_are_first() -> None:
    words = ["method=arg", "llm=oracle", "llm.error_rate=0.2", "run.limit=20"]
    resolved = [config.compose([*words, f"method.depth={depth}"]) for depth in (2, 3)]
    keys = view(*(replace(make(hits(3)), resolved=each) for each in resolved)).keys
    changed = {key.name: (key.values, key.defaults) for key in keys if key.defaults}
    assert changed["llm.error_rate"] == (["0.2"], ["0"])
    assert changed["method"] == (["arg"], ["srp"])
    assert changed["run.limit"] == (["20"], ["–"])
    assert set(changed["method.depth"][0]) == {"2", "3"}
    assert "method.retrieve_k" not in changed, "the default of the chosen method"
    assert [bool(key.defaults) for key in keys] == [True] * len(changed) + [False] * (len(keys) - len(changed))


def test_keys_that_every_command_must_give_leave_the_other_defaults_known() -> None:
    words = ["dataset=custom", "dataset.triples=a b.tsv", "dataset.questions=q.jsonl", "dataset.split=dev"]
    serving = ["llm=serve", "llm.model=some/model"]
    block = view(replace(make(hits(3)), resolved=config.compose([*words, *serving])))
    assert block.has_defaults
    changed = {key.name: key.defaults for key in block.keys if key.defaults}
    assert changed == {"dataset": ["synthetic"], "llm": ["similarity"], "dataset.split": ["test"]}


def test_keys_of_a_choice_that_is_not_found_have_no_known_default() -> None:
    resolved = {"method": {"depth": 2}, "choices": {"method": "not_found"}, "run": {}}
    block = view(replace(make(hits(3)), resolved=resolved))
    assert not block.has_defaults
    assert all(not key.defaults for key in block.keys)


def test_failed_and_not_run_questions_are_counted_separately() -> None:
    block = view(make(hits(3), failed=2, not_run=5, questions=25))
    assert dict(block.facts)["complete"] == ["no · 2 failed · 5 not run"]
    assert rows(block)[0].remarks == ["2 failed", "5 not run"]
    assert dict(block.facts)["questions"] == ["20"]
    assert any(warning.startswith("2 questions failed") for warning in block.warnings)
    assert dict(view(make(hits(3))).facts)["complete"] == ["yes · 0 failed · 0 not run"]


def test_a_run_in_progress_has_a_warning() -> None:
    run = replace(RUN, totals=None, score_notes=["half is not complete"])
    block = view(make(hits(3), run=run))
    assert dict(block.facts)["complete"] == ["no · 0 failed · the run is in progress or was stopped"]
    assert block.warnings == ["half is not complete."]


def test_what_is_recommended_of_a_run_in_progress_is_so_only_so_far() -> None:
    run = replace(RUN, totals=None)
    block = view(*(make(hits(500, of=500), {"depth": depth}, run=run) for depth in (1, 2)))
    assert [each.heading for each in block.scores[0].recommendations] == ["best, recommended so far"]
    assert [row.tags.get("hits_at_1") for row in rows(block)] == ["best, recommended so far", None]


def test_a_configuration_that_was_stopped_early_is_shown_but_not_compared() -> None:
    stopped = make(hits(8, of=8), {"depth": 2}, not_run=12, questions=20)
    block = view(make(hits(4), {"depth": 1}), stopped)
    assert len(rows(block)) == 2
    assert block.scores[0].recommendations[0].candidates == 1
    assert [str(on.name) for on in block.scores[0].fronts[0].entries] == ["srp (oracle) · depth 1"]
    assert block.scores[0].axes == []
    assert rows(block)[0].remarks == ["8 questions", "12 not run"]
    assert block.warnings == [
        "Not all configurations answered all questions. Those that answered fewer are in the table, but are not "
        "compared: 1."
    ]


def test_recomputed_scores_have_a_warning() -> None:
    rescored = make(hits(3))
    scores = {**rescored.summary.scores, "hits_at_1": Estimate(0.9, 0.8, 1.0, 20)}
    changed = replace(rescored, summary=replace(rescored.summary, scores=scores))
    assert any("recomputed after the run" in warning for warning in view(changed).warnings)
    assert view(rescored).warnings == []


def test_the_breakdown_has_every_kind_of_question_of_every_configuration() -> None:
    def group(value: str, mean: float) -> Group:
        return Group(value, 4, {"hits_at_1": Estimate(mean, mean - 0.1, mean + 0.1, 4)})

    one = make(hits(2), breakdown={"hops": [group("1", 0.25), group("2", 0.5)]})
    two = make(hits(1), {"depth": 2}, breakdown={"hops": [group("2", 0.75)]})
    kinds = view(one, two).breakdown
    assert kinds.kinds == [("hops", "1"), ("hops", "2")]
    assert kinds.figures == [
        [[4, 25.0, 15.0, 35.0, None, None, None], [4, 50.0, 40.0, 60.0, None, None, None]],
        [None, [4, 75.0, 65.0, 85.0, None, None, None]],
    ]


def test_names_have_the_parameters_that_distinguish_configurations() -> None:
    named = [
        make(hits(1), {"depth": 1}, name="arg with depth 1"),
        make(hits(1), {"depth": 2}, name="arg"),
    ]
    assert [str(name) for name in view(*named).names] == ["arg with depth 1 (oracle)", "arg (oracle)"]
    clash = [make(hits(1), {"score.x": 1, "kg.x": 1}), make(hits(1), {"score.x": 2, "kg.x": 2})]
    assert [name.details for name in view(*clash).names] == ["score.x 1 · kg.x 1", "score.x 2 · kg.x 2"]


def test_several_models_of_one_method_are_in_the_names() -> None:
    """Without llm.model, a server answers with what it serves at the time: no key tells it."""
    same = [make(hits(2), {"depth": 1}, model=model, label=None) for model in ("small", "large")]
    assert [name.details for name in view(*same).names] == ["small", "large"]
    given = [make(hits(2), {"llm.model": model}, model=model, label=None) for model in ("small", "large")]
    assert [name.details for name in view(*given).names] == ["small", "large"]


@pytest.mark.parametrize(
    ("seeds", "best", "refused"), [((9, 8), 7, True), ((9, 9), 7, False), ((6, 5), 7, False), ((9,), 7, False)]
)
def test_the_luckiest_of_several_seeds_is_not_recommended(seeds: tuple[int, ...], best: int, *, refused: bool) -> None:
    """Seeds that are not the best, or decide nothing, do not matter."""
    drawn = [make([*hits(right)] * 30, {"depth": 1}) for right in seeds]
    seeded = [replace(each, resolved={**each.resolved, "run": {"seed": n}}) for n, each in enumerate(drawn)]
    other = make([*hits(best)] * 30, {"depth": 2})
    other = replace(other, resolved={**other.resolved, "method": {"name": "srp", "depth": 2}, "run": {"seed": 0}})
    (found,) = view(*seeded, other).scores[0].recommendations
    assert (f"is one of {len(seeds)} seeds" in (found.objection or "")) is refused
    assert (found.objection is None) is not refused


def test_seeds_with_one_score_on_other_questions_are_no_lucky_draws() -> None:
    drawn = [make(right * 30, {"depth": 1}) for right in (hits(9), hits(9)[::-1])]
    seeded = [replace(each, resolved={**each.resolved, "run": {"seed": n}}) for n, each in enumerate(drawn)]
    assert view(*seeded).scores[0].recommendations[0].objection is None


def test_nothing_is_recommended_after_few_questions_even_if_the_best_one_is_the_cheapest() -> None:
    """No test chooses it then: with so few questions it is the best one by luck."""
    for times, objects in ((1, True), (30, False)):
        cheap, dear = (make([*hits(n)] * times, {"depth": n}, calls=calls) for n, calls in ((5, 1.0), (3, 9.0)))
        (found,) = view(cheap, dear).scores[0].recommendations
        assert (
            "to show that no other configuration is better by 2 percentage points" in (found.objection or "")
        ) is objects
        assert (found.objection is None) is not objects


def test_different_graphs_have_a_warning() -> None:
    here = make(hits(1), {"depth": 1})
    there = replace(make(hits(1), {"depth": 2}), served={**here.served, "graph": "another"})
    assert view(here, there).warnings == ["The configurations used different graphs, which alone can change scores."]
    assert dict(view(here, there).facts)["graph"] == ["a graph", "another"]
    for one, recommended in ((there, False), (make(hits(1), {"depth": 2}), True)):
        (found,) = view(here, one).scores[0].recommendations
        assert (found.objection is None) is recommended
        assert ("recommended" in found.heading) is recommended


@pytest.mark.parametrize("right", [0, 20])
def test_configurations_with_all_answers_right_or_wrong_can_be_shown(right: int) -> None:
    score = strict(*(make(hits(right), {"depth": depth}) for depth in (1, 2)))
    assert score.axes[0].curves[0].figures[0] is not None


def test_the_configurations_of_a_sweep_have_a_column_with_their_numbers() -> None:
    first, second = make(hits(1), {"depth": 1}), make(hits(2), {"depth": 2})
    numbered = replace(second, summary=replace(second.summary, number=1))
    table = view(first, numbered).table
    numbers = [group[0].cells[3].figures[0].text for group in table.groups]
    assert (table.columns[3].heading, numbers) == ("#", ["1", "0"])
    assert "#" not in [column.heading for column in view(first).table.columns]


def test_first_and_last_answers_are_compared_over_the_questions_with_a_first_answer() -> None:
    scores = {
        "hits_at_1": Estimate(0.8, 0.6, 0.9, 20),
        "initial_hits_at_1": Estimate(0.75, 0.3, 0.95, 4),
        "corrected": Estimate(1.0, 0.2, 1.0, 1),
        "damaged": Estimate(1 / 3, 0.1, 0.8, 3),
    }
    configuration = make(hits(16), {"depth": 1})
    own = replace(
        configuration, summary=replace(configuration.summary, scores={**configuration.summary.scores, **scores})
    )
    reflection = view(own).reflection
    assert reflection is not None
    assert [each.text for each in reflection.bars[0].figures[:2]] == ["75.0", "75.0"], (
        "and not the 80.0 of all questions"
    )


def test_several_runs_have_a_column_with_the_run() -> None:
    other = replace(RUN, name="other")
    table = view(make(hits(1), {"depth": 1}), make(hits(2), {"depth": 2}, run=other)).table
    runs = [group[0].cells[3].figures[0].text for group in table.groups]
    assert (table.columns[3].heading, runs) == ("run", ["other", "run"])
