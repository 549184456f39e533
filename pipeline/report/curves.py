"""Finds configurations that differ in one numeric parameter only, which shows how scores depend on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config import canonical, key_of
from pipeline.grouping import grouped
from pipeline.report.data import Configuration, Group

BEAM_WIDTH = "method.beam_width"
_STANDARD_AXES = (BEAM_WIDTH, "method.depth", "method.retries")
_SECTIONS = ("method.", "budget.", "retrieval.", "kg.", "llm.")
"""Sections whose keys affect answers; an axis is a key of one of them."""
_NAME = "method.name"
"""The name in tables, which does not affect answers."""

_ByValue = dict[float, list[Configuration]]
"""Configurations by value of the axis."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Configurations that differ in the axis only."""

    parameters: Mapping[str, Any]
    """The other numeric parameters that distinguish this slice from others of its curve."""
    indices: Mapping[float, Sequence[int]]
    """Indices of configurations by value of the axis; several if runs repeat a configuration."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A method's configurations along an axis. All slices have the same values, so that their mean is a fair one."""

    group: Group
    categories: Mapping[str, Any]
    """The non-numeric parameters that distinguish this curve from others of its group."""
    values: Sequence[float]
    """The values of the axis in ascending order. A beam width of 0 means no limit, and comes last."""
    slices: Sequence[Slice]
    followers: Sequence[str]
    """Other numeric parameters that the value of the axis determines."""
    candidates: Mapping[float, Sequence[Sequence[int]]]
    """Indices of configurations by value, one sequence per combination of the other parameters that was run with it.
    Combinations without some of the values are in no slice, but here."""

    def configurations(self, value: float) -> list[Sequence[int]]:
        """Return the indices of the configurations at a value, one sequence for each slice."""
        return [each.indices[value] for each in self.slices]


def distinguishing_keys(configurations: Sequence[Configuration]) -> list[str]:
    """Return the keys that vary within a group: the standard axes, and all keys set by overrides."""
    overridden = (key for each in configurations for key in _overridden_keys(each))
    candidates = dict.fromkeys([*_STANDARD_AXES, *overridden])
    return [
        key for key in candidates if key != "method" and any(_varies(key, group) for group in _groups(configurations))
    ]


def find_curves(configurations: Sequence[Configuration], among: Collection[int]) -> dict[str, list[Curve]]:
    """Find the curves of the configurations with the indices `among`, by axis. Axes without curves are left out."""
    selected = {index: configurations[index] for index in sorted(among)}
    curves = {axis: list(_curves(axis, selected)) for axis in _axes(list(selected.values()))}
    return {axis: found for axis, found in curves.items() if found}


def is_number(value: object) -> bool:
    """Return whether a parameter's value is a number; booleans are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _axes(configurations: Sequence[Configuration]) -> list[str]:
    """Return the numeric keys that vary, without standard axes that an overridden key determines."""
    numeric = [
        key
        for key in distinguishing_keys(configurations)
        if key.startswith(_SECTIONS) and all(is_number(each.parameters.get(key, 0)) for each in configurations)
    ]
    swept = {key for each in configurations for key in _overridden_keys(each)}.intersection(numeric)
    groups = _groups(configurations)
    return [
        key
        for key in numeric
        if key in swept or not any(all(_determines(other, key, group) for group in groups) for other in swept)
    ]


def _curves(axis: str, configurations: Mapping[int, Configuration]) -> Iterator[Curve]:
    index_of = {id(configuration): index for index, configuration in configurations.items()}
    for group in _groups(each for each in configurations.values() if axis in each.parameters):
        categories, numbers, followers = _other_keys(axis, group)
        for part in _split(group, categories):
            combinations = [grouped(equal, lambda each: each.parameters[axis]) for equal in _split(part, numbers)]
            slices = _largest_common(combinations)
            values = sorted(slices[0], key=lambda value: (axis == BEAM_WIDTH and value == 0, value))
            if len(values) < 2:
                continue
            firsts = [by_value[values[0]][0] for by_value in slices]
            keys = _sufficient(numbers, firsts)

            def indices(members: Sequence[Configuration]) -> list[int]:
                return [index_of[id(each)] for each in members]

            found = [
                Slice(_values(first, keys), {value: indices(by_value[value]) for value in values})
                for first, by_value in zip(firsts, slices, strict=True)
            ]
            found.sort(key=lambda each: tuple(each.parameters.values()))
            candidates = {value: [indices(each[value]) for each in combinations if value in each] for value in values}
            named = _values(part[0], _sufficient(categories, group))
            yield Curve(part[0].group, named, values, found, followers, candidates)


def _other_keys(axis: str, group: Sequence[Configuration]) -> tuple[list[str], list[str], list[str]]:
    """Return the other varying keys: non-numeric ones, numeric ones, and numeric ones that the axis determines."""
    keys = dict.fromkeys(key for configuration in group for key in configuration.parameters)
    varying = [key for key in keys if key != axis and _affects_answers(key) and _varies(key, group)]
    numeric = [key for key in varying if all(is_number(each.parameters.get(key)) for each in group)]
    followers = [key for key in numeric if _determines(axis, key, group)]
    return (
        [key for key in varying if key not in numeric],
        [key for key in numeric if key not in followers],
        followers,
    )


def _largest_common(parts: Sequence[_ByValue]) -> list[_ByValue]:
    """Return the parts that have all values of the largest part, reduced to these values."""
    largest = max(parts, key=lambda part: (len(part), sum(part.keys() <= other.keys() for other in parts)))
    return [{value: part[value] for value in largest} for part in parts if largest.keys() <= part.keys()]


def _groups(configurations: Iterable[Configuration]) -> list[list[Configuration]]:
    return list(grouped(configurations, lambda each: each.group).values())


def _split(configurations: Sequence[Configuration], keys: Sequence[str]) -> list[list[Configuration]]:
    """Split the configurations into parts with equal values of the keys."""
    return list(grouped(configurations, lambda each: canonical(_values(each, keys))).values())


def _sufficient(keys: Sequence[str], configurations: Sequence[Configuration]) -> list[str]:
    """Return as many of the keys as are needed to distinguish the configurations, preferring overridden keys."""
    sufficient: list[str] = []
    for key in sorted(keys, key=distinguishing_keys(configurations).count, reverse=True):
        if any(_varies(key, part) for part in _split(configurations, sufficient)):
            sufficient.append(key)
    return sufficient


def _values(configuration: Configuration, keys: Sequence[str]) -> dict[str, Any]:
    return {key: configuration.parameters.get(key) for key in keys}


def _varies(key: str, configurations: Sequence[Configuration]) -> bool:
    return len(_split(configurations, [key])) > 1


def _determines(key: str, other: str, configurations: Sequence[Configuration]) -> bool:
    """Return whether configurations with equal values of `key` have equal values of `other`."""
    return not any(_varies(other, part) for part in _split(configurations, [key]))


def _affects_answers(key: str) -> bool:
    """Return whether the key can change answers. The choice of a configuration group acts through the group's keys."""
    return key != _NAME and key.startswith((*_SECTIONS, "run.seed"))


def _overridden_keys(configuration: Configuration) -> Iterator[str]:
    """Yield the keys that overrides set; for the override of a section, all keys of the section."""
    for word in configuration.summary.overrides:
        key = key_of(word)
        inside = (known for known in configuration.parameters if known.startswith(f"{key}."))
        yield from [key] if key in configuration.parameters else inside
