"""Builds what the templates show, as plain data: lists, comparisons, one question. All texts are still untrusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson

from pipeline.analysis.losses import STAGE_TEXTS, STAGES
from pipeline.analysis.question_trace import QuestionTrace, StepTrace
from pipeline.analysis.question_tree import fact_tree, gold_forms, trail_texts, walk_tree
from pipeline.normalisation import normalise
from pipeline.percentages import one_decimal
from pipeline.viewer.drawing import Drawing, TimeLine, draw_time_line, draw_tree
from pipeline.viewer.index import RunIndex
from pipeline.viewer.index_queries import COSTS, Filters, Listing, Side, question_url

MOST_FACTS = 60
"""Facts in the drawing of the facts."""
KINDS = {"llm": "model call", "kg": "graph lookup", "decision": "decision"}
_STAGE_NAMES: Mapping[str, str] = {stage: text.heading for stage, text in STAGE_TEXTS.items()}
_COUNTERS = {
    "llm_calls": "model calls",
    "prompt_tokens": "prompt tokens",
    "completion_tokens": "completion tokens",
    "kg_lookups": "lookups",
    "kg_queries": "graph queries",
}


class Choice(NamedTuple):
    """One choice of a list in a form."""

    value: str
    text: str
    is_chosen: bool


def configuration_name(index: RunIndex, number: int) -> str:
    """Name a configuration by its number, its method, and the words in which it differs from the others."""
    points = index.metadata["points"]
    words = [word for word in points[number]["overrides"] if not word.startswith(("method=", "run.dir="))]
    others = [set(point["overrides"]) for point in points]
    own = " ".join(word for word in words if not all(word in other for other in others))
    return f"{number}: {points[number]['config']['choices'].get('method', '')}{f' ({own})' if own else ''}"


def sides(indexes: Sequence[RunIndex], chosen: str) -> Sequence[Choice]:
    """Return all configurations of all runs, as choices of a form."""
    several = len(indexes) > 1
    return [
        Choice(
            f"{index.name}/{number}",
            f"{f'{index.name} ' if several else ''}{configuration_name(index, number)}",
            f"{index.name}/{number}" == chosen,
        )
        for index in indexes
        for number in range(index.configurations)
    ]


def stage_name(stage: str) -> str:
    """Name a stage for a question that was lost at it, such as `relation not offered`."""
    return _STAGE_NAMES[stage]


def stage_choices(chosen: str) -> Sequence[Choice]:
    """Return the stages of loss as choices of a form."""
    return [Choice(stage, stage_name(stage), stage == chosen) for stage in STAGES]


def choices(values: Sequence[object], chosen: object) -> Sequence[Choice]:
    """Return some values as choices of a form."""
    return [Choice(str(value), str(value), value == chosen) for value in values]


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the bar of outcomes: where it begins and how wide it is, of 100."""

    name: str
    count: int
    x: float
    width: float
    url: str
    kind: str
    """`right`, `failed`, `unscored` or `stage-N`."""

    @property
    def percent(self) -> float:
        """The width with one decimal."""
        return one_decimal(self.width)


def outcome_shares(listing: Listing, filters: Filters) -> Sequence[Share]:
    """Return the shares of right, lost (by stage) and unscored questions, each with the list of its questions."""
    counts = {
        "right": listing.outcomes.get("right", 0),
        **listing.stages,
        "no gold answers": listing.outcomes.get("unscored", 0),
    }
    known = sum(counts.values())
    counts["other"] = listing.count - known  # failed questions without gold answers
    stages: Mapping[str, int] = {stage: number for number, stage in enumerate(STAGES)}
    parts = []
    x = 0.0
    for name, count in counts.items():
        if count > 0:
            width = 100 * count / listing.count
            changes = {"right": {"outcome": "right"}, "no gold answers": {"outcome": "unscored"}}
            url = filters.url(**changes.get(name, {"stage": name} if name in stages else {"outcome": "failed"}))
            kind = f"stage-{stages[name]}" if name in stages else name.partition(" ")[0]
            text = stage_name(name) if name in stages else name
            parts.append(Share(text, count, x, width, url, kind))
            x += width
    return parts


class Column(NamedTuple):
    """The heading of a column that sorts."""

    name: str
    text: str
    url: str
    direction: str
    """`ascending`, `descending`, or `none`: the value of `aria-sort`."""


def columns(filters: Filters) -> Mapping[str, Column]:
    """Return the headings; a click on that by which the list is sorted reverses the order."""
    texts = {"question": "question", **COSTS, "f1": "F1"}
    found = {}
    for name, text in texts.items():
        is_chosen = filters.sort == name
        descending = not filters.descending if is_chosen else name not in {"question", "f1"}
        direction = ("descending" if filters.descending else "ascending") if is_chosen else "none"
        found[name] = Column(name, text, filters.url(sort=name, descending=descending), direction)
    return found


class Answer(NamedTuple):
    """An answer and whether it is a gold answer."""

    text: str
    is_gold: bool


@dataclass(frozen=True, slots=True)
class StepView:
    """One step, with everything that is known of it."""

    step: StepTrace
    kind: str
    trail: str
    """What it did to the gold answers and gold paths."""
    is_lost: bool
    payload: str
    """The data of a decision as indented JSON; empty for other steps."""
    url: str
    url_all: str
    """The address that shows its texts in full."""
    before: str
    """The address of the step before; empty for the first."""
    after: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A question in one configuration: its figures, its drawings, and the step that is open."""

    side: Side
    name: str
    trace: QuestionTrace
    answers: Sequence[Answer]
    costs: Sequence[tuple[str, str]]
    walk: Drawing
    facts: Drawing
    fact_label: str
    time_line: TimeLine
    steps: Sequence[StepView]
    open: StepView | None
    is_full: bool
    parameter: str
    """The parameter of the address that says which step is open."""
    list_url: str
    urls: Mapping[int, str]
    """The addresses of the page with each step open, by its number."""

    def step_url(self, number: int) -> str:
        """Return the address of the page with a step open; empty if there is no such step."""
        return self.urls.get(number, "")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a question's page: the question, what stands beside it, and the open steps."""

    side: Side
    id: str
    beside: Side | None = None
    step: int | None = None
    other_step: int | None = None
    is_full: bool = False

    def url(self, **changes: Any) -> str:
        """Return the address with some parts changed."""
        new = replace(self, **{"is_full": False, **changes})
        return question_url(
            new.side.index.name,
            new.side.configuration,
            new.id,
            step=new.step,
            beside=new.beside.key if new.beside else "",
            other_step=new.other_step if new.beside else "",
            all="true" if new.is_full else "",
        )


def build_panel(address: Address, side: Side, trace: QuestionTrace) -> Panel:
    """Lay out a question in one configuration.

    The step that the address names is open, else the one that lost the answer, else the last model call.
    """
    parameter = "step" if side == address.side else "other_step"
    wanted: int | None = getattr(address, parameter)
    trail, gold = trail_texts(trace), gold_forms(trace)
    lost = trace.loss.step if trace.loss else None
    numbers = {step.number for step in trace.steps}
    last_call = max((step.number for step in trace.steps if step.kind == "llm"), default=min(numbers, default=None))
    number = wanted if wanted in numbers else lost if lost in numbers else last_call
    urls = {each: address.url(**{parameter: each}) for each in numbers}
    views = [
        StepView(
            step=step,
            kind=KINDS.get(step.kind, step.kind),
            trail=trail.get(step.number, ""),
            is_lost=step.number == lost,
            payload="" if step.payload is None else orjson.dumps(step.payload, option=orjson.OPT_INDENT_2).decode(),
            url=urls[step.number],
            url_all=address.url(**{parameter: step.number, "is_full": True}),
            before=urls.get(step.number - 1, ""),
            after=urls.get(step.number + 1, ""),
        )
        for step in trace.steps
    ]
    by_number = {step.number: step for step in trace.steps}
    facts = fact_tree(trace, MOST_FACTS)
    return Panel(
        side=side,
        name=configuration_name(side.index, side.configuration),
        trace=trace,
        answers=[Answer(answer, normalise(answer) in gold) for answer in trace.answers],
        costs=_costs(trace),
        walk=draw_tree(walk_tree(trace), by_number, lost),
        facts=draw_tree(facts, {}, None),
        fact_label=facts.label,
        time_line=draw_time_line(trace),
        steps=views,
        open=next((each for each in views if each.step.number == number), None),
        is_full=address.is_full,
        parameter=parameter,
        urls=urls,
        list_url=Filters(run=side.index.name, configuration=side.configuration).url(),
    )


def _costs(trace: QuestionTrace) -> Sequence[tuple[str, str]]:
    counts = [(text, f"{trace.row[name]:,}") for name, text in _COUNTERS.items() if trace.row.get(name) is not None]
    seconds = trace.row.get("critical_s")
    waited = trace.row.get("wall_s") if seconds is None else seconds
    return [*counts, *([] if waited is None else [("seconds", f"{waited:,.2f}")])]


def compare_url(place: Mapping[str, str], *, show: str, page: int = 1) -> str:
    """Return the address of a comparison."""
    given = {**place, "show": "" if show == "differ" else show, "page": "" if page == 1 else str(page)}
    return f"/compare?{urlencode({name: value for name, value in given.items() if value})}"
