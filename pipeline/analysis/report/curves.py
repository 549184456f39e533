"""Which points differ in one numeric key alone, and so show how scores respond to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.analysis.report.measured import Group, Measured
from pipeline.config import canonical

BEAM_WIDTH = "method.beam_width"
_STANDARD_AXES = (BEAM_WIDTH, "method.depth", "method.retries")
_SECTIONS = ("method.", "budget.", "retrieval.", "kg.", "llm.")
"""What a method answers with: where an axis can be."""
_NAME = "method.name"
"""As printed in tables; it decides nothing."""

_ByValue = dict[float, list[Measured]]
"""Points by value of the axis."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Points that differ in the axis alone."""

    settings: Mapping[str, Any]
    """The other numbers, where they tell it from other slices of its curve."""
    points: Mapping[float, Sequence[int]]
    """Indices by value of the axis; several where runs repeat a point."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A method along an axis. Its slices have every value, so a mean over them compares like with like."""

    group: Group
    kinds: Mapping[str, Any]
    """The settings that are no numbers, where they tell it from other curves of its group."""
    values: Sequence[float]
    """Of the axis, ascending, but for a beam of 0: it keeps everything, and comes last."""
    slices: Sequence[Slice]
    followers: Sequence[str]
    """Other numbers that change with the axis: its value decides theirs."""

    def points(self, value: float) -> list[int]:
        """The points of all slices at a value."""
        return [index for each in self.slices for index in each.points[value]]


def telling_keys(points: Sequence[Measured]) -> list[str]:
    """The keys that tell points of one method apart: the standard axes, and whatever a command set."""
    named = dict.fromkeys([*_STANDARD_AXES, *(key for point in points for key in _overridden(point))])
    return [key for key in named if key != "method" and any(_varies(key, group) for group in _groups(points))]


def find_curves(points: Sequence[Measured], among: Collection[int]) -> dict[str, list[Curve]]:
    """By axis the curves of the points whose indices are `among`; without the axes that have none."""
    chosen = {index: points[index] for index in sorted(among)}
    found = {axis: list(_curves(axis, chosen)) for axis in _axes(list(chosen.values()))}
    return {axis: curves for axis, curves in found.items() if curves}


def _axes(points: Sequence[Measured]) -> list[str]:
    """The numeric keys that vary. A standard one that only follows another, which a command set, is not counted."""
    numeric = [
        key
        for key in telling_keys(points)
        if key.startswith(_SECTIONS) and all(is_number(point.settings.get(key, 0)) for point in points)
    ]
    swept = {key for point in points for key in _overridden(point)}.intersection(numeric)
    groups = _groups(points)
    return [
        key
        for key in numeric
        if key in swept or not any(all(_decides(other, key, group) for group in groups) for other in swept)
    ]


def _curves(axis: str, points: Mapping[int, Measured]) -> Iterator[Curve]:
    index_of = {id(point): index for index, point in points.items()}
    for group in _groups(point for point in points.values() if axis in point.settings):
        kinds, numbers, followers = _beside(axis, group)
        for alike in _split(group, kinds):
            slices = _common(_by_value(axis, part) for part in _split(alike, numbers))
            values = sorted(slices[0], key=lambda value: (axis == BEAM_WIDTH and value == 0, value))
            firsts = [part[values[0]][0] for part in slices]
            telling = _telling(numbers, firsts)
            found = [
                Slice(
                    _pick(first, telling),
                    {value: [index_of[id(point)] for point in part[value]] for value in values},
                )
                for first, part in zip(firsts, slices, strict=True)
            ]
            if len(values) > 1:
                found.sort(key=lambda part: tuple(part.settings.values()))
                yield Curve(alike[0].group, _pick(alike[0], _telling(kinds, group)), values, found, followers)


def _beside(axis: str, group: Sequence[Measured]) -> tuple[list[str], list[str], list[str]]:
    """What else varies: settings that are no numbers; numbers; and numbers that follow the axis."""
    keys = dict.fromkeys(key for point in group for key in point.settings)
    varying = [key for key in keys if key != axis and _counts(key) and _varies(key, group)]
    numeric = [key for key in varying if all(is_number(point.settings.get(key)) for point in group)]
    followers = [key for key in numeric if _decides(axis, key, group)]
    return (
        [key for key in varying if key not in numeric],
        [key for key in numeric if key not in followers],
        followers,
    )


def _common(slices: Iterable[_ByValue]) -> list[_ByValue]:
    """Of the slices those with the most values, and those that have these too, cut to them."""
    parts = list(slices)
    most = max(parts, key=lambda part: (len(part), sum(part.keys() <= other.keys() for other in parts)))
    return [{value: part[value] for value in most} for part in parts if most.keys() <= part.keys()]


def _by_value(axis: str, points: Sequence[Measured]) -> _ByValue:
    parts: _ByValue = {}
    for point in points:
        parts.setdefault(point.settings[axis], []).append(point)
    return parts


def is_number(value: object) -> bool:
    """Whether a setting's value is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _groups(points: Iterable[Measured]) -> list[list[Measured]]:
    parts: dict[Group, list[Measured]] = {}
    for point in points:
        parts.setdefault(point.group, []).append(point)
    return list(parts.values())


def _split(points: Sequence[Measured], keys: Sequence[str]) -> list[list[Measured]]:
    """The points in parts that agree on the keys."""
    parts: dict[str, list[Measured]] = {}
    for point in points:
        parts.setdefault(canonical(_pick(point, keys)), []).append(point)
    return list(parts.values())


def _telling(keys: Sequence[str], points: Sequence[Measured]) -> list[str]:
    """As many of the keys as tell the points apart, those first that a user sets."""
    told: list[str] = []
    for key in sorted(keys, key=telling_keys(points).count, reverse=True):
        if any(_varies(key, part) for part in _split(points, told)):
            told.append(key)
    return told


def _pick(point: Measured, keys: Sequence[str]) -> dict[str, Any]:
    return {key: point.settings.get(key) for key in keys}


def _varies(key: str, points: Sequence[Measured]) -> bool:
    return len(_split(points, [key])) > 1


def _decides(key: str, other: str, points: Sequence[Measured]) -> bool:
    """Whether points that agree on `key` agree on `other`."""
    return not any(_varies(other, part) for part in _split(points, [key]))


def _counts(key: str) -> bool:
    """Whether points that differ in a key answer differently; the choice of a group does by the keys that it brings."""
    return key != _NAME and key.startswith((*_SECTIONS, "run.seed"))


def _overridden(point: Measured) -> Iterator[str]:
    """The keys that a command set for the point: of a section, those in it."""
    for word in point.summary.overrides:
        key = word.partition("=")[0].lstrip("+~")
        inside = (known for known in point.settings if known.startswith(f"{key}."))
        yield from [key] if key in point.settings else inside
