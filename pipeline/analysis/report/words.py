"""How points, scores and costs are called and written on the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pipeline.analysis.report.curves import telling_keys
from pipeline.analysis.report.measured import Group, Measured
from pipeline.config import canonical
from pipeline.evaluation.statistics import Estimate

SCORES: Mapping[str, tuple[str, str]] = {
    "hits_at_1": ("Hits@1", "the first answer is right, compared whole, under one normal form"),
    "hits_any": ("Hits@any", "any of the answers is right"),
    "precision": ("precision", "share of the answers that are right"),
    "recall": ("recall", "share of the gold answers that were given"),
    "f1": ("F1", "harmonic mean of a question's precision and recall"),
    "exact_match": ("exact match", "the answers are the gold answers, no more and no fewer"),
    "rouge_l": ("ROUGE-L", "longest common sequence of words with the gold answer"),
    "grbench_em": ("GRBench EM", "exact match as GRBench counts"),
    "grbench_f1": ("GRBench F1", "F1 of the items as GRBench counts"),
    "answer_in_evidence": ("gold in evidence", "a gold answer is among the facts retrieved"),
    "answer_supported": ("hits in evidence", "of the right first answers, those that the evidence holds"),
    "faithfulness": ("faithful", "share of the answers that the evidence holds"),
    "initial_hits_at_1": ("first Hits@1", "Hits@1 of what the answer would have been without reflection"),
    "corrected": ("corrected", "of the first answers that were wrong, those that reflection put right"),
    "damaged": ("damaged", "of the first answers that were right, those that reflection spoilt"),
    "compat_tog_em": ("ToG's EM", "a paper's laxer rule: text and gold answer contain one another"),
    "compat_readi_hit": ("Readi's Hit", "a paper's laxer rule: the reply contains a gold answer"),
    "compat_rog_hit": ("RoG's Hit", "a paper's laxer rule: the lines of the answer contain a gold answer"),
    "compat_rog_f1": ("RoG's F1", "a paper's laxer rule: F1 of the gold answers that the lines contain"),
    "compat_arg_hit3": ("ArG's Hit@3", "a paper's laxer rule: one of the answers of the three best leaves is right"),
    "compat_arg_f1": ("ArG's F1", "a paper's laxer rule: F1 of the labels as they are"),
}
"""Per score what it is called and what it counts, in the order of the page."""
COSTS = {"llm_calls": "model calls", "tokens": "tokens", "wall_s": "seconds"}
"""What a question costs, by counter."""
ABSENT = "–"
_LONGEST = 200
"""Characters of a name."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its interval and, where nothing beside it says so, what it is."""

    text: str
    interval: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Name:
    """What a point is called."""

    method: str
    label: str | None
    """Says that the answers are not a language model's: it stands wherever the name does."""
    details: str

    def __str__(self) -> str:
        label = f" ({self.label})" if self.label else ""
        return f"{self.method}{label}{' · ' if self.details else ''}{self.details}"

    @classmethod
    def of(cls, method: str, label: str | None, details: Iterable[str]) -> Self:
        """Put a name together."""
        return cls(inserted(method), label and inserted(label), " · ".join(details))


def inserted(text: str) -> str:
    """A name as part of a sentence: cut where it is endless, and its direction of writing kept to itself."""
    cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return cut if cut.isascii() else f"\u2068{cut}\u2069"


def labelled(text: str, label: str | None) -> str:
    """A text with the label of the numbers beside it."""
    return f"{inserted(text)} ({inserted(label)})" if label else inserted(text)


def setting_text(value: Any) -> str:
    """The value of a key as a command would have it."""
    if value is None:
        return ABSENT
    return inserted(value if isinstance(value, str) else canonical(value))


def percent(score: Estimate, name: str = "") -> Figure:
    """A share as a percentage with its interval."""
    return Figure(f"{100 * score.mean:.1f}", f"{100 * score.low:.1f}–{100 * score.high:.1f}", name)


def said(name: Name | str, score: Estimate) -> str:
    """A name with its score, as it is read out."""
    figure = percent(score)
    return f"{name}: {figure.text} % ({figure.interval})"


def points_apart(difference: Estimate) -> Figure:
    """A difference of shares in percentage points, with its interval."""
    low, high = (f"{100 * end:+.1f}".replace("-", "−") for end in (difference.low, difference.high))
    return Figure(f"{100 * difference.mean:+.1f}".replace("-", "−"), f"{low} … {high}")


class Words:
    """What the points of a block are called wherever the page speaks of them."""

    def __init__(self, points: Sequence[Measured]) -> None:
        self.keys = telling_keys(points)
        """The settings that tell points of one method apart."""
        ends = Counter(_end(key) for key in self.keys)
        self._short = {key: _end(key) for key in self.keys if ends[_end(key)] == 1}
        self.names = self._names(points)
        """Parallel to the points."""
        self._groups = list(dict.fromkeys(point.group for point in points))
        self._formats = _cost_formats(points)

    def short(self, key: str) -> str:
        """The last part of a key, where that is unmistakable."""
        return self._short.get(key, key)

    def setting(self, key: str, value: Any) -> str:
        """A key with its value."""
        return f"{self.short(key)} {setting_text(value)}"

    def place(self, group: Group) -> int:
        """The number of a group in the legend, which decides its colour and shape."""
        return self._groups.index(group)

    @property
    def legend(self) -> list[Name]:
        """The groups in the order of their numbers; the model is told where that is more than one."""
        models = {model for _, _, model in self._groups if model}
        return [
            Name.of(family, label, [inserted(model)] if model and len(models) > 1 else [])
            for family, label, model in self._groups
        ]

    @property
    def costs(self) -> list[str]:
        """The counters that the points have."""
        return list(self._formats)

    def cost(self, point: Measured, counter: str) -> str:
        """What a question cost, with as many decimals as the largest number of its kind needs."""
        cost = point.cost(counter)
        return ABSENT if cost is None else format(cost, self._formats[counter])

    def _names(self, points: Sequence[Measured]) -> list[Name]:
        """The method of each point and, where others have it too, the settings in which they differ."""
        of_method: dict[str, list[Measured]] = {}
        for point in points:
            of_method.setdefault(point.summary.method, []).append(point)
        telling = {
            method: [key for key in self.keys if len({canonical(point.settings.get(key)) for point in alike}) > 1]
            for method, alike in of_method.items()
        }
        return [
            Name.of(
                point.summary.method,
                point.summary.label,
                [self.setting(key, point.settings.get(key)) for key in telling[point.summary.method]],
            )
            for point in points
        ]


def _end(key: str) -> str:
    return key.rpartition(".")[2]


def _cost_formats(points: Sequence[Measured]) -> dict[str, str]:
    formats = {}
    for counter in COSTS:
        if costs := [cost for point in points if (cost := point.cost(counter)) is not None]:
            decimals = next((places for places, bound in enumerate((1000, 20, 1, 0.1)) if max(costs) >= bound), 4)
            formats[counter] = f",.{decimals}f"
    return formats
