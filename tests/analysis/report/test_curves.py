"""What is an axis, and which points a curve may average: only such as differ in nothing else that counts."""

from __future__ import annotations

from itertools import product

from pipeline.analysis.report.curves import Curve, find_curves, telling_keys
from pipeline.analysis.report.measured import Measured
from tests.analysis.report.points import point

NO_HITS = [0.0] * 4


def curves(points: list[Measured], among: list[int] | None = None) -> dict[str, list[Curve]]:
    return find_curves(points, range(len(points)) if among is None else among)


def grid(**axes: list[object]) -> list[Measured]:
    return [point(NO_HITS, dict(zip(axes, values, strict=True))) for values in product(*axes.values())]


def test_a_grid_has_a_curve_for_each_axis_that_averages_the_others() -> None:
    points = grid(beam_width=[1, 3], depth=[1, 2, 3])
    found = curves(points)
    assert list(found) == ["method.beam_width", "method.depth"]
    (beam,), (depth,) = found.values()
    assert beam.values == [1, 3]
    assert [part.settings for part in beam.slices] == [{"method.depth": value} for value in (1, 2, 3)]
    assert (beam.points(1), beam.points(3)) == ([0, 1, 2], [3, 4, 5])
    assert depth.values == [1, 2, 3]
    assert depth.points(2) == [1, 4]
    assert not depth.followers


def test_what_follows_an_axis_is_told_and_neither_averaged_nor_an_axis() -> None:
    points = [
        point(NO_HITS, {"depth": depth}, implied={"max_hops": depth, "top": max(3, depth), "retries": depth})
        for depth in (1, 2, 4)
    ]
    ((axis, (curve,)),) = curves(points).items()
    assert axis == "method.depth"
    assert curve.followers == ["method.max_hops", "method.top", "method.retries"]
    assert len(curve.slices) == 1
    assert curve.slices[0].settings == {}


def test_a_beam_of_none_is_the_widest() -> None:
    (curve,) = curves(grid(beam_width=[0, 5, 1]))["method.beam_width"]
    assert curve.values == [1, 5, 0]
    (curve,) = curves(grid(retries=[2, 0]))["method.retries"]
    assert curve.values == [0, 2]


def test_a_hole_in_the_grid_leaves_out_the_settings_that_it_makes_unlike() -> None:
    points = grid(beam_width=[1, 3], depth=[1, 2, 3])
    among = [0, 1, 2, 3, 4]  # beam 3 was not run at depth 3
    beam, depth = curves(points, among)["method.beam_width"][0], curves(points, among)["method.depth"][0]
    assert (beam.points(1), beam.points(3)) == ([0, 1], [3, 4])
    assert depth.values == [1, 2, 3]
    assert [depth.points(value) for value in depth.values] == [[0], [1], [2]]


def test_what_is_no_number_makes_a_curve_of_its_own() -> None:
    points = grid(depth=[1, 2], planner=["prompted", "none"], judge=[True])
    (prompted, without) = curves(points)["method.depth"]
    assert [prompted.kinds, without.kinds] == [{"method.planner": "prompted"}, {"method.planner": "none"}]
    assert (prompted.points(1), without.points(1)) == ([0], [1])


def test_presets_that_differ_in_a_switch_are_no_curve() -> None:
    """Without reflection there are no retries: what the one does is not to be put down to the other."""
    points = [
        point(NO_HITS, {"retries": 1, "reflection": True}, name="r3"),
        point(NO_HITS, {"retries": 0, "reflection": False}, name="r3 without"),
    ]
    assert curves(points) == {}


def test_presets_that_differ_in_an_axis_are_a_curve_whatever_they_are_called() -> None:
    points = [
        point(NO_HITS, {"depth": depth}, implied={"hypo": True}, name=f"arg with depth {depth}") for depth in (4, 1, 2)
    ]
    points += [point(NO_HITS, {"hypo": False}, implied={"depth": 4}, name="arg w/o hypo-generator")]
    (curve,) = curves(points)["method.depth"]
    assert [curve.points(value) for value in (1, 2, 4)] == [[1], [2], [0]]


def test_methods_labels_and_models_are_never_averaged() -> None:
    points = [
        point(NO_HITS, {"depth": depth}, method=method, label=label, model=model)
        for method, label, model in [
            ("srp", "oracle", "m"),
            ("arg", "oracle", "m"),
            ("srp", None, "m"),
            ("srp", None, "n"),
        ]
        for depth in (1, 2)
    ]
    found = curves(points)["method.depth"]
    assert [curve.group for curve in found] == [
        ("srp", "oracle", None),
        ("arg", "oracle", None),
        ("srp", None, "m"),
        ("srp", None, "n"),
    ]


def test_seeds_are_repetitions_and_no_axis() -> None:
    points = [point(NO_HITS, {"depth": depth, "run.seed": seed}) for depth in (1, 2) for seed in (0, 1)]
    found = curves(points)
    assert list(found) == ["method.depth"]
    assert found["method.depth"][0].points(2) == [2, 3]
    assert telling_keys(points) == ["method.depth", "run.seed"]


def test_a_point_has_no_curve() -> None:
    assert curves([point(NO_HITS, {"depth": 2})]) == {}
