"""Quality against cost in words and charts: the point to take, and the fronts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from pipeline.analysis.report.charts import Spot, scatter
from pipeline.analysis.report.choice import Choice, choose, pareto_front
from pipeline.analysis.report.measured import Block, Measured
from pipeline.analysis.report.view import Advice, Front, OnFront
from pipeline.analysis.report.words import COSTS, Words, percent, points_apart, said

_SIZE = (440, 290)


def choices(block: Block, score: str) -> list[Choice]:
    """The point to take by a score, for each label."""
    answers = block.answers(score)
    prices = {index: block.points[index].price for index in block.comparable}
    return [choose(answers, prices, among=among) for among in _by_label(block)]


def advice(block: Block, words: Words, score: str, choice: Choice) -> Advice:
    """The point to take beside the best one."""
    chosen, best = block.points[choice.chosen], block.points[choice.best]
    return Advice(
        label=words.names[choice.chosen].label,
        chosen=words.names[choice.chosen],
        score=percent(chosen.summary.scores[score]),
        best=words.names[choice.best],
        best_score=percent(best.summary.scores[score]),
        alone=choice.chosen == choice.best,
        difference=points_apart(choice.equals[choice.chosen]),
        costs=[(COSTS[counter], words.cost(chosen, counter), words.cost(best, counter)) for counter in words.costs],
        equals=len(choice.equals),
        among=choice.among,
        command=_command(chosen),
    )


def tags(block: Block, chosen: Mapping[str, Sequence[Choice]]) -> list[dict[str, str]]:
    """By point and score, whether it is the best or the one to take."""
    found: list[dict[str, str]] = [{} for _ in block.points]
    for score, of_score in chosen.items():
        for choice in of_score:
            found[choice.best][score] = "best"
            found[choice.chosen][score] = "best, recommended" if choice.best == choice.chosen else "recommended"
    return found


def front(block: Block, words: Words, score: str, counter: str, chosen: Sequence[Choice]) -> Front:
    """The points of a block by a score and a cost, and which of them no other beats."""
    costs = {i: cost for i in block.comparable if (cost := block.points[i].cost(counter)) is not None}
    scores = {i: block.points[i].summary.scores[score] for i in costs}
    fronts = [
        pareto_front(costs, {i: scores[i].mean for i in among})
        for part in _by_label(block)
        if (among := costs.keys() & part)
    ]
    equals = {i: alike for of_label in fronts for i, alike in of_label.items()}
    ranks = {i: rank for rank, i in enumerate(equals, start=1)}
    recommended = {choice.chosen for choice in chosen}

    def spot(index: int) -> Spot:
        point = block.points[index]
        cost = f"{words.cost(point, counter)} {COSTS[counter]}"
        return Spot(
            group=words.place(point.group),
            cost=costs[index],
            score=scores[index],
            text=f"{said(words.names[index], scores[index])}, {cost}",
            rank=ranks.get(index),
            chosen=index in recommended,
        )

    spots = {index: spot(index) for index in costs}
    return Front(
        cost=COSTS[counter],
        chart=scatter(list(spots.values()), [[spots[i] for i in of_label] for of_label in fronts], *_SIZE),
        points=[
            OnFront(
                rank=rank,
                group=spots[i].group,
                name=words.names[i],
                score=percent(scores[i]),
                cost=words.cost(block.points[i], counter),
                equals=len(equals[i]),
            )
            for i, rank in ranks.items()
        ],
    )


def _by_label(block: Block) -> list[list[int]]:
    """The comparable points of each label: a simulation and a language model do not compete."""
    parts: dict[str | None, list[int]] = {}
    for index in block.comparable:
        parts.setdefault(block.points[index].summary.label, []).append(index)
    return list(parts.values())


def _command(point: Measured) -> str:
    """The words that run the point again, alone."""
    return shlex.join(
        ["kgqa", "evaluate", *(word for word in point.summary.overrides if not word.startswith("run.dir="))]
    )
