"""The Hydra files of the methods: every key documented, the sweep axes connected, the presets what they say."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from pipeline.config import build, compose, conf_dir
from pipeline.errors import UserError
from pipeline.methods.cot import CoT
from pipeline.methods.parog import PARoG
from pipeline.methods.srp import SRP

METHODS = {"srp": SRP, "cot": CoT, "parog": PARoG}


def built(*overrides: str) -> Any:
    return build("method", compose(list(overrides)))


@pytest.mark.parametrize("name", METHODS)
def test_the_defaults_of_the_file_are_those_of_the_method(name: str) -> None:
    assert built(f"method={name}") == METHODS[name]()


@pytest.mark.parametrize("name", METHODS)
def test_every_key_is_there_with_a_comment_above_it_or_its_neighbour(name: str) -> None:
    text = (conf_dir() / "method" / f"{name}.yaml").read_text()
    keys = set(re.findall(r"^(\w+):", text, re.MULTILINE)) - {"_target_"}
    fields = {field.name for field in dataclasses.fields(METHODS[name])}
    assert keys == fields | {"beam_width", "depth", "retries"}
    for block in text.split("\n\n"):
        assert block.lstrip().startswith("#")


def test_the_sweep_axes_drive_srps_own_keys() -> None:
    wide = built("method=srp", "method.beam_width=5", "method.depth=2", "method.retries=1")
    assert (wide.paths_per_entity, wide.relation_top_k, wide.max_path_len, wide.max_edits) == (5, 5, 2, 1)
    narrow = built("method=srp", "method.beam_width=1")
    assert (narrow.paths_per_entity, narrow.relation_top_k) == (1, 3)


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("srp_no_relation_check", {"relation_check": False}),
        ("srp_no_reflection", {"judge": False, "max_edits": 0}),
        ("srp_no_reference", {"num_references": 0}),
        ("srp_random_reference", {"reference_selection": "random"}),
        ("srp_structural", {"judge": "structural"}),
        (
            "srp_references_everywhere",
            {"references_in": ("relation_check", "path_generation", "judge", "edit")},
        ),
        (
            "readi",
            {
                "judge": "structural",
                "num_references": 0,
                "relation_check": False,
                "answer_evidence": "instances",
                "compat_readi_budget": True,
                "shown_grounded": 15,
                "shown_partial": 10,
                "parse_retries": 5,
            },
        ),
    ],
)
def test_presets(preset: str, changed: dict[str, Any]) -> None:
    method = built(f"experiment={preset}")
    assert method == SRP(name=method.name, **changed)
    assert method.name != "srp", "a variant says so in every table"


def test_the_sweep_axes_drive_parogs_own_keys() -> None:
    deep = built("method=parog", "method.beam_width=2", "method.depth=4")
    assert (deep.width, deep.max_rounds, deep.max_refines) == (2, 4, 4), "a refinement for each round (§5.2)"
    assert built("method=parog", "method.retries=1").max_refines == 1


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("parog_prompted_planner", {"planner": "prompted"}),
        ("parog_no_planner", {"planner": "none"}),
        ("parog_no_refinement", {"refine": False}),
        ("parog_prior_only", {"max_rounds": 0}),
        ("parog_always_refined", {"fallback_to_tentative": False}),
        ("parog_topic_starts", {"seed_entities": "topic"}),
        ("parog_split_refine", {"split_refine": True}),
        ("parog_per_entity", {"per_entity": True}),
    ],
)
def test_parog_presets(preset: str, changed: dict[str, Any]) -> None:
    method = built(f"experiment={preset}")
    assert method == PARoG(name=method.name, **changed)
    assert method.name != "parog", "a variant says so in every table"


def test_a_wrong_value_is_named() -> None:
    with pytest.raises(UserError, match=r"method\.judge"):
        built("method=srp", "method.judge=maybe")
    with pytest.raises(UserError, match="temperature > 0"):
        built("method=cot", "method.samples=3")
