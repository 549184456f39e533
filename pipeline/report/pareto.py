"""Builds the recommendation and the charts of quality against cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isinf

from pipeline import config
from pipeline.evaluation.configuration_summary import SECONDS, is_oracle, without_oracles
from pipeline.evaluation.statistics import mean_over_seeds
from pipeline.grouping import grouped
from pipeline.llm.interface import is_told_gold
from pipeline.percentages import percentage
from pipeline.report.charts import DataPoint, scatter
from pipeline.report.data import Block, Configuration
from pipeline.report.labels import COSTS, BlockLabels, percent, percentage_points, score_text
from pipeline.report.page_content import FrontEntry, FrontView, RecommendationView
from pipeline.report.recommendation import MARGIN, Recommendation, pareto_front, recommend
from pipeline.text import counted, kgqa

_SIZE = (440, 290)
_OF_THE_RUN = {
    *(f"run.{key}" for key in config.QUESTION_KEYS),
    *("run.dir", "run.reuse", "run.early_stopping", "run.tags", "run.note"),
    *("run.restart", "run.extend", "run.retry_failed"),
}
"""Keys that the command for one configuration does not repeat: its questions and its folder are others."""
_CLOSED_BOOK = "Configurations that looked up nothing in the graph are left out: their score is the oracle's alone."
_TOLD_GOLD = "Configurations whose method gets gold answers (oracle) are left out: others do without."
_CHOOSE_METHOD = ("method=", "experiment=")


def recommendations(block: Block, score: str) -> list[Recommendation]:
    """Return the recommendation by a score, for each label."""
    scores = block.scores(score)
    cost_keys = {index: block.configurations[index].cost_key for index in block.comparable}
    found = [recommend(scores, cost_keys, among=_different(block, among)) for among in _rivals(block)]
    if not block.has_one_graph:
        return [replace(each, recommended=None) for each in found]
    found = [replace(each, recommended=None, is_tied=True) if _is_tied(block, each) else each for each in found]
    by_seed = ((each, _draws(block, score, each)) for each in found)
    return [replace(each, recommended=None, draws=draws) if draws else each for each, draws in by_seed]


def _is_tied(block: Block, recommendation: Recommendation) -> bool:
    """Whether another configuration makes as many calls as the recommended one, and the tokens are not known."""
    chosen = recommendation.recommended
    if chosen is None:
        return False
    calls, tokens = block.configurations[chosen].cost_key
    among = (index for group in _rivals(block) if chosen in group for index in _different(block, group))
    return isinf(tokens) and any(block.configurations[each].cost_key[0] == calls for each in among if each != chosen)


def _draws(block: Block, score: str, recommendation: Recommendation) -> Sequence[int]:
    """Return the seeds among which the best or the recommended configuration was the luckiest."""
    chosen = {recommendation.best, recommendation.recommended}
    return next((group for group in block.draws(score) if not chosen.isdisjoint(group)), ())


def _different(block: Block, among: Sequence[int]) -> list[int]:
    """Leave out configurations that compute the same as an earlier one: no test has to be corrected for them."""
    first: dict[tuple[object, ...], int] = {}
    for index in among:
        each = block.configurations[index]
        first.setdefault((each.run.path, each.scores_digest, each.cost_key), index)
    return list(first.values())


def recommendation_view(
    block: Block, labels: BlockLabels, score: str, recommendation: Recommendation
) -> RecommendationView:
    """Describe the recommended configuration in comparison with the best one."""
    index = recommendation.shown
    command, asks = _command(block.configurations[index], recommendation)
    recommended, best = block.configurations[index], block.configurations[recommendation.best]
    return RecommendationView(
        label=labels.names[index].label,
        recommended=labels.names[index],
        score=percent(recommended.summary.scores[score]),
        best=labels.names[recommendation.best],
        best_score=percent(best.summary.scores[score]),
        is_best=index == recommendation.best,
        heading=_marks(block, recommendation)[index],
        objection=_objection(block, score, recommendation),
        difference=percentage_points(recommendation.not_worse[index]),
        costs=[
            (COSTS[counter], labels.cost(recommended, counter), labels.cost(best, counter)) for counter in labels.costs
        ],
        not_worse=len(recommendation.not_worse),
        candidates=recommendation.candidates,
        command=command,
        asks=asks,
    )


def _objection(block: Block, score: str, recommendation: Recommendation) -> str | None:
    """Say why no configuration can be recommended; None if one is."""
    if recommendation.recommended is not None:
        return None
    if not block.has_one_graph:
        return "The configurations used different graphs, which alone can change scores."
    if draws := recommendation.draws:
        mean = mean_over_seeds([block.configurations[index].summary.score(score) for index in draws])
        return (
            f"The best one, or the cheapest that is hardly worse, is one of {len(draws)} seeds, and the best draw is "
            f"luck: the mean over these seeds is {percentage(mean.mean)} ± {percentage(mean.high - mean.mean)} % "
            "(1.96·s/√n)."
        )
    if recommendation.is_tied:
        return "The servers reported no tokens, so it is not known which of the ones with equal calls is cheaper."
    if recommendation.independent < recommendation.needed:
        count, asked = recommendation.independent, recommendation.questions
        shown = (
            "no other configuration is better by"
            if recommendation.is_cheapest
            else "a cheaper configuration is worse than the best one by less than"
        )
        alike = f" (the {asked:,} that were asked have {count:,} sources, and those of one source count as one)"
        return (
            f"Too few questions: {count:,}{alike if count < asked else ''}. At least {recommendation.needed:,} are "
            f"needed to show that {shown} {100 * MARGIN:g} percentage points."
        )
    return "No configuration answers a question correctly."


def tags(block: Block, by_score: Mapping[str, Sequence[Recommendation]]) -> list[dict[str, str]]:
    """Return, for each configuration and score, whether it is the best or the recommended one."""
    found: list[dict[str, str]] = [{} for _ in block.configurations]
    for score, of_score in by_score.items():
        for each in of_score:
            for index, mark in _marks(block, each).items():
                found[index][score] = mark
    return found


def _marks(block: Block, recommendation: Recommendation) -> dict[int, str]:
    """Return what the best and the recommended configuration are called, by index."""
    marks = {recommendation.best: "best"}
    if (index := recommendation.recommended) is not None:
        marks[index] = "best, recommended" if index == recommendation.best else "recommended"
    is_complete = all(block.configurations[each].run.totals is not None for each in block.comparable)
    return marks if is_complete else {index: f"{mark} so far" for index, mark in marks.items()}


def front_view(
    block: Block, labels: BlockLabels, score: str, counter: str, recommendations: Sequence[Recommendation]
) -> FrontView:
    """Build the chart of a score against a cost, with the Pareto front of each label, and of each model."""
    costs = {i: cost for i in block.comparable if (cost := block.configurations[i].cost(counter)) is not None}
    scores = {i: block.configurations[i].summary.scores[score] for i in costs}
    fronts = [
        pareto_front(costs, {i: scores[i].mean for i in among})
        for part in _rivals(block, models_apart=counter != SECONDS)
        if (among := costs.keys() & part)
    ]
    equals = {i: others for front in fronts for i, others in front.items()}
    ranks = {i: rank for rank, i in enumerate(equals, start=1)}
    marked = {recommendation.recommended for recommendation in recommendations}

    def data_point(index: int) -> DataPoint:
        configuration = block.configurations[index]
        cost = f"{labels.cost(configuration, counter)} {COSTS[counter]}"
        return DataPoint(
            group=labels.group_number(configuration.group),
            cost=costs[index],
            score=scores[index],
            text=f"{score_text(labels.names[index], scores[index])}, {cost}",
            rank=ranks.get(index),
            recommended=index in marked,
            values=labels.filter_values(index),
        )

    data = {index: data_point(index) for index in costs}
    return FrontView(
        cost=COSTS[counter],
        chart=scatter(list(data.values()), [[data[i] for i in front] for front in fronts], *_SIZE),
        entries=[
            FrontEntry(
                rank=rank,
                group=data[i].group,
                name=labels.names[i],
                score=percent(scores[i]),
                cost=labels.cost(block.configurations[i], counter),
                equals=len(equals[i]),
            )
            for i, rank in ranks.items()
        ],
    )


def oracles_left_out(block: Block) -> list[str]:
    """Return a sentence for each reason for which comparable configurations are left out as oracles."""
    kept = {index for group in _rivals(block) for index in group}
    left_out = [block.configurations[index].summary for index in block.comparable if index not in kept]
    return [
        *[_CLOSED_BOOK] * any(each.closed_book for each in left_out),
        *[_TOLD_GOLD] * any(is_told_gold(each.method) for each in left_out),
    ]


def _rivals(block: Block, *, models_apart: bool = True) -> list[list[int]]:
    """Group the comparable configurations by label and model.

    Simulated and language models are not compared, and a call or a token of one model does not cost what one of another
    does. Oracles are left out where there are others.
    """
    summaries = [configuration.summary for configuration in block.configurations]

    def answered_by(index: int) -> tuple[str | None, str]:
        configuration = block.configurations[index]
        return configuration.summary.label, configuration.models if models_apart else ""

    groups = grouped(block.comparable, answered_by).values()
    return [without_oracles(group, lambda index: is_oracle(summaries[index])) for group in groups]


def _command(configuration: Configuration, recommendation: Recommendation) -> tuple[str, str]:
    """Return the command that runs the configuration alone, and what it asks: other questions where it can."""
    asked, drawn = (configuration.parameters.get(f"run.{key}") for key in ("limit", "sample"))
    own = [word for word in configuration.summary.overrides if word.lstrip("+").partition("=")[0] not in _OF_THE_RUN]
    if not any(word.startswith(_CHOOSE_METHOD) for word in own):  # the default method, which may be another one later
        own = [f"method={configuration.family}", *own]
    number = min((each for each in (asked, drawn) if each is not None), default=None)
    is_whole = configuration.run.totals is not None and configuration.summary.questions < (number or 0)
    if number is None or is_whole:
        asks = "this run asks all questions of its dataset: give another split or dataset to this command"
        return kgqa("evaluate", *own), asks
    if recommendation.recommended is None:
        number = max(number, recommendation.needed)
    seed = configuration.parameters.get("run.sample_seed", 0) + 1
    asks = (
        f"this command draws {counted(number, 'question')} at random from the whole dataset, so some of those asked "
        "here may be among them. If the dataset has no more than these, give another split or dataset to the command. "
        "Run the second best configuration in the same way, and compare both"
    )
    return kgqa("evaluate", *own, f"run.sample={number}", f"run.sample_seed={seed}"), asks
