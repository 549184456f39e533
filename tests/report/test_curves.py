"""Which parameters are axes, and which configurations form a curve."""

from __future__ import annotations

from itertools import product

from pipeline.report.curves import Curve, distinguishing_keys, find_curves
from pipeline.report.data import Configuration
from tests.report.configurations import make

NO_HITS = [0.0] * 4


def curves(configurations: list[Configuration], among: list[int] | None = None) -> dict[str, list[Curve]]:
    return find_curves(configurations, range(len(configurations)) if among is None else among)


def grid(**axes: list[object]) -> list[Configuration]:
    return [make(NO_HITS, dict(zip(axes, values, strict=True))) for values in product(*axes.values())]


def test_a_grid_has_a_curve_for_each_axis_that_averages_the_others() -> None:
    configurations = grid(beam_width=[1, 3], depth=[1, 2, 3])
    found = curves(configurations)
    assert list(found) == ["method.beam_width", "method.depth"]
    (beam,), (depth,) = found.values()
    assert beam.values == [1, 3]
    assert [part.parameters for part in beam.slices] == [{"method.depth": value} for value in (1, 2, 3)]
    assert (beam.configurations(1), beam.configurations(3)) == ([[0], [1], [2]], [[3], [4], [5]])
    assert depth.values == [1, 2, 3]
    assert depth.configurations(2) == [[1], [4]]
    assert not depth.followers


def test_a_parameter_that_the_axis_determines_is_a_follower_and_not_an_axis() -> None:
    configurations = [
        make(NO_HITS, {"depth": depth}, implied={"max_hops": depth, "top": max(3, depth), "retries": depth})
        for depth in (1, 2, 4)
    ]
    ((axis, (curve,)),) = curves(configurations).items()
    assert axis == "method.depth"
    assert curve.followers == ["method.max_hops", "method.top", "method.retries"]
    assert len(curve.slices) == 1
    assert curve.slices[0].parameters == {}


def test_a_beam_width_of_zero_means_no_limit_and_comes_last() -> None:
    (curve,) = curves(grid(beam_width=[0, 5, 1]))["method.beam_width"]
    assert curve.values == [1, 5, 0]
    (curve,) = curves(grid(retries=[2, 0]))["method.retries"]
    assert curve.values == [0, 2]


def test_slices_with_missing_values_are_left_out() -> None:
    configurations = grid(beam_width=[1, 3], depth=[1, 2, 3])
    among = [0, 1, 2, 3, 4]  # beam 3 was not run at depth 3
    beam, depth = (
        curves(configurations, among)["method.beam_width"][0],
        curves(configurations, among)["method.depth"][0],
    )
    assert (beam.configurations(1), beam.configurations(3)) == ([[0], [1]], [[3], [4]])
    assert depth.values == [1, 2, 3]
    assert [depth.configurations(value) for value in depth.values] == [[[0]], [[1]], [[2]]]


def test_each_non_numeric_value_has_its_own_curve() -> None:
    configurations = grid(depth=[1, 2], planner=["prompted", "none"], judge=[True])
    (prompted, without) = curves(configurations)["method.depth"]
    assert [prompted.categories, without.categories] == [{"method.planner": "prompted"}, {"method.planner": "none"}]
    assert (prompted.configurations(1), without.configurations(1)) == ([[0]], [[1]])


def test_presets_that_differ_in_a_switch_have_no_curve() -> None:
    """Without reflection there are no retries, so a curve would attribute the effect of one to the other."""
    configurations = [
        make(NO_HITS, {"retries": 1, "reflection": True}, name="r3"),
        make(NO_HITS, {"retries": 0, "reflection": False}, name="r3 without"),
    ]
    assert curves(configurations) == {}


def test_presets_that_differ_in_an_axis_are_a_curve_with_any_names() -> None:
    configurations = [
        make(NO_HITS, {"depth": depth}, implied={"hypo": True}, name=f"arg with depth {depth}") for depth in (4, 1, 2)
    ]
    configurations += [make(NO_HITS, {"hypo": False}, implied={"depth": 4}, name="arg w/o hypo-generator")]
    (curve,) = curves(configurations)["method.depth"]
    assert [curve.configurations(value) for value in (1, 2, 4)] == [[[1]], [[2]], [[0]]]


def test_methods_labels_and_models_are_never_averaged() -> None:
    configurations = [
        make(NO_HITS, {"depth": depth}, method=method, label=label, model=model)
        for method, label, model in [
            ("srp", "oracle", "m"),
            ("arg", "oracle", "m"),
            ("srp", None, "m"),
            ("srp", None, "n"),
        ]
        for depth in (1, 2)
    ]
    found = curves(configurations)["method.depth"]
    assert [curve.group for curve in found] == [
        ("srp", "oracle", None),
        ("arg", "oracle", None),
        ("srp", None, "m"),
        ("srp", None, "n"),
    ]


def test_seeds_are_repetitions_and_not_an_axis() -> None:
    configurations = [make(NO_HITS, {"depth": depth, "run.seed": seed}) for depth in (1, 2) for seed in (0, 1)]
    found = curves(configurations)
    assert list(found) == ["method.depth"]
    assert found["method.depth"][0].configurations(2) == [[2], [3]]
    assert distinguishing_keys(configurations) == ["method.depth", "run.seed"]


def test_a_single_configuration_has_no_curve() -> None:
    assert curves([make(NO_HITS, {"depth": 2})]) == {}
