"""Labels and number formats of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

from pipeline.config import canonical
from pipeline.evaluation.configuration_summary import SECONDS
from pipeline.evaluation.statistics import Estimate
from pipeline.grouping import grouped
from pipeline.percentages import percentage, signed_points
from pipeline.report.curves import distinguishing_keys, is_number
from pipeline.report.data import Configuration, Group
from pipeline.text import short_keys

SCORES: Mapping[str, tuple[str, str]] = {
    "hits_at_1": ("Hits@1", "the first answer equals a gold answer after normalisation"),
    "hits_any": ("Hits@any", "any answer is correct"),
    "precision": ("precision", "share of the answers that are correct"),
    "recall": ("recall", "share of the gold answers that were found"),
    "f1": ("F1", "harmonic mean of a question's precision and recall"),
    "exact_match": ("exact match", "the answers are exactly the gold answers"),
    "rouge_l": ("ROUGE-L", "longest common subsequence of words with the gold answer"),
    "grbench_em": ("GRBench EM", "exact match by GRBench's rule"),
    "grbench_f1": ("GRBench F1", "F1 of the items by GRBench's rule"),
    "answer_in_evidence": ("gold in evidence", "a gold answer is among the facts that the method gives for its answer"),
    "answer_supported": ("hits in evidence", "share of the correct first answers that are in the evidence"),
    "faithfulness": ("answers in evidence", "share of the answers that are in the evidence"),
    "relation_recall": ("relation recall", "share of the relations of the gold query that the method followed"),
    "initial_hits_at_1": ("first Hits@1", "Hits@1 before reflection"),
    "corrected": ("corrected", "share of the wrong first answers that reflection corrected"),
    "damaged": ("damaged", "share of the correct first answers that reflection made wrong"),
    "recovered_halted": ("recovered (halted)", "share of the halted first attempts after which a retry was better"),
    "recovered_incorrect": (
        "recovered (incorrect)",
        "share of the first attempts with a wrong answer after which a retry was better",
    ),
    "corrected_tog_em": ("corrected (ToG)", "share of the wrong first answers that reflection corrected, by ToG's EM"),
    "damaged_tog_em": ("damaged (ToG)", "share of the correct first answers that reflection made wrong, by ToG's EM"),
    "supported_readi_hit": (
        "hits in evidence (Readi)",
        "share of the answers that Readi's Hit counts as correct whose first answer is in the evidence",
    ),
    "compat_tog_em": ("ToG's EM", "lenient metric of a paper: the text contains a gold answer, or the reverse"),
    "compat_readi_hit": ("Readi's Hit", "lenient metric of a paper: the reply contains a gold answer"),
    "compat_rog_hit": ("RoG's Hit", "lenient metric of a paper: the lines of the answer contain a gold answer"),
    "compat_rog_precision": (
        "RoG's precision",
        "lenient metric of a paper: the gold answers that the lines contain, per line",
    ),
    "compat_rog_recall": ("RoG's recall", "lenient metric of a paper: the share of the gold answers in the lines"),
    "compat_rog_f1": ("RoG's F1", "lenient metric of a paper: F1 of the gold answers that the lines contain"),
    "compat_arg_hit3": ("ArG's Hit@3", "lenient metric of a paper: an answer of the three best leaves is correct"),
    "compat_arg_f1": ("ArG's F1", "lenient metric of a paper: F1 of the exact labels"),
}
"""Name and definition of each score, in the order of the page."""
COSTS = {"llm_calls": "model calls", "tokens": "tokens", SECONDS: "seconds"}
"""Names of the costs of a question, by counter."""
ABSENT = "–"
_LONGEST_NAME = 200
"""In characters."""
_FILTERED_FROM = 12
"""Fewer configurations than this can be seen at once, and need no filters."""
_MOST_FILTERS, _MOST_FILTER_VALUES = 6, 12


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its interval, and its name if the context does not show it."""

    text: str
    interval: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a configuration."""

    method: str
    label: str | None
    """Shown wherever the name is, if no language model answered; otherwise None."""
    details: str

    def __str__(self) -> str:
        label = f" ({self.label})" if self.label else ""
        return f"{self.method}{label}{' · ' if self.details else ''}{self.details}"

    @classmethod
    def of(cls, method: str, label: str | None, details: Iterable[str]) -> Self:
        """Create a name from raw texts."""
        return cls(inline(method), label and inline(label), " · ".join(details))


def inline(text: str) -> str:
    """Return a name for use inside a sentence: truncated, and isolated from the writing direction around it."""
    return isolated(text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…")


def isolated(text: str) -> str:
    """Return a text that is isolated from the writing direction around it."""
    return text if text.isascii() else f"\u2068{text}\u2069"


def with_label(text: str, label: str | None) -> str:
    """Append a label, if there is one, in parentheses."""
    return f"{inline(text)} ({inline(label)})" if label else inline(text)


def value_text(value: Any) -> str:
    """Return the value of a parameter as it is written on the command line."""
    if value is None:
        return ABSENT
    return inline(value if isinstance(value, str) else canonical(value))


def percent(score: Estimate, name: str = "") -> Figure:
    """Format a share as a percentage with its interval."""
    interval = f"{percentage(score.low)}–{percentage(score.high)}" if score.has_interval else ""
    return Figure(percentage(score.mean), interval, name)


def score_text(name: Name | str, score: Estimate) -> str:
    """Return a name with its score, for tooltips and screen readers."""
    figure = percent(score)
    return f"{name}: {figure.text} %{f' ({figure.interval})' if figure.interval else ''}"


def percentage_points(difference: Estimate) -> Figure:
    """Format a difference of shares in percentage points, with its interval."""
    low, high = (signed_points(end).replace("-", "−") for end in (difference.low, difference.high))
    return Figure(signed_points(difference.mean).replace("-", "−"), f"{low} … {high}")


class BlockLabels:
    """The labels of a block's configurations, groups and parameters."""

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        self.keys = distinguishing_keys(configurations)
        """The parameters that distinguish configurations of one method."""
        self._short_keys = short_keys(self.keys)
        self.names = self._names(configurations)
        """Parallel to the configurations."""
        self._groups = list(dict.fromkeys(configuration.group for configuration in configurations))
        self._formats = _cost_formats(configurations)
        self.filters = self._filters(configurations)
        """The parameters by which a reader can select configurations, with their values."""
        self._parameters = [configuration.parameters for configuration in configurations]

    def short_key(self, key: str) -> str:
        """Return a key without its section, or the whole key if that is ambiguous."""
        return self._short_keys.get(key, key)

    def parameter(self, key: str, value: Any) -> str:
        """Return a key with its value."""
        return f"{self.short_key(key)} {value_text(value)}"

    def filter_values(self, index: int) -> str:
        """Return the numbers of the values that a configuration has in the filters, as in `0-1 1-0`."""
        own = self._parameters[index]
        return " ".join(
            f"{number}-{list(map(canonical, values)).index(canonical(own.get(key)))}"
            for number, (key, values) in enumerate(self.filters.items())
        )

    def group_number(self, group: Group) -> int:
        """Return the number of a group in the legend, which determines its colour and shape."""
        return self._groups.index(group)

    @property
    def legend(self) -> list[Name]:
        """The names of the groups in order of their numbers, with the model if there are several."""
        models = {model for _, _, model in self._groups if model}
        return [
            Name.of(family, label, [inline(model)] if model and len(models) > 1 else [])
            for family, label, model in self._groups
        ]

    @property
    def costs(self) -> list[str]:
        """The counters that the configurations have."""
        return list(self._formats)

    def cost(self, configuration: Configuration, counter: str) -> str:
        """Format a cost per question. All configurations have the same number of decimals."""
        cost = configuration.cost(counter)
        return ABSENT if cost is None else format(cost, self._formats[counter])

    def _filters(self, configurations: Sequence[Configuration]) -> dict[str, list[Any]]:
        """Return the keys with few values, each with its values in order; none for few configurations."""
        if len(configurations) < _FILTERED_FROM:
            return {}
        found = {key: _in_order(each.parameters.get(key) for each in configurations) for key in self.keys}
        few = {key: values for key, values in found.items() if 1 < len(values) <= _MOST_FILTER_VALUES}
        return dict(islice(few.items(), _MOST_FILTERS))

    def _names(self, configurations: Sequence[Configuration]) -> list[Name]:
        """Return the method of each configuration, with the parameters in which those of one method differ.

        So is the model, whether a key names it or not: without `llm.model`, a server answers with what it serves.
        """
        of_methods = grouped(configurations, lambda each: each.summary.method)
        keys = {
            method: [key for key in self.keys if len({canonical(each.parameters.get(key)) for each in alike}) > 1]
            for method, alike in of_methods.items()
        }
        have_models = {method: len({each.group[-1] for each in alike}) > 1 for method, alike in of_methods.items()}
        return [
            Name.of(
                each.summary.method,
                each.summary.label,
                [
                    *(self.parameter(key, each.parameters.get(key)) for key in keys[each.summary.method]),
                    *([model] if have_models[each.summary.method] and (model := each.group[-1]) else []),
                ],
            )
            for each in configurations
        ]


def _in_order(values: Iterable[Any]) -> list[Any]:
    """Return the different values, numbers in ascending order."""
    different = {canonical(value): value for value in values}.values()
    return sorted(different, key=lambda value: (not is_number(value), value if is_number(value) else 0))


def _cost_formats(configurations: Sequence[Configuration]) -> dict[str, str]:
    formats = {}
    for counter in COSTS:
        if costs := [cost for configuration in configurations if (cost := configuration.cost(counter)) is not None]:
            decimals = next((places for places, bound in enumerate((1000, 20, 1, 0.1)) if max(costs) >= bound), 4)
            formats[counter] = f",.{decimals}f"
    return formats
