"""The Hydra files of the methods: documented keys, sweep axes, and presets."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from pipeline.config import build, compose, conf_dir, default
from pipeline.errors import UserError
from pipeline.methods.arg import ArG
from pipeline.methods.cot import CoT
from pipeline.methods.dog import DoG
from pipeline.methods.interface import table_name
from pipeline.methods.parog import PARoG
from pipeline.methods.pog import PoG
from pipeline.methods.r3 import R3
from pipeline.methods.rog import RoG
from pipeline.methods.srp import SRP
from pipeline.methods.tog import ToG
from tests.methods.support import score_without
from tests.support import METHODS


def built(*overrides: str) -> Any:
    return build("method", compose(list(overrides)))


@pytest.mark.parametrize("name", METHODS)
def test_every_key_is_in_the_file_and_has_a_comment(name: str) -> None:
    text = (conf_dir() / "method" / f"{name}.yaml").read_text()
    keys = set(re.findall(r"^(\w+):", text, re.MULTILINE)) - {"_target_"}
    fields = {field.name for field in dataclasses.fields(type(built(f"method={name}")))}
    assert keys == fields | {"beam_width", "depth", "retries"}
    for block in text.split("\n\n"):
        assert block.lstrip().startswith("#")


def test_the_sweep_axes_drive_srps_own_keys() -> None:
    wide = built("method=srp", "method.beam_width=5", "method.depth=2", "method.retries=1")
    assert (wide.paths_per_entity, wide.relation_top_k, wide.max_path_len, wide.max_edits) == (5, 5, 2, 1)
    narrow = built("method=srp", "method.beam_width=1")
    assert (narrow.paths_per_entity, narrow.relation_top_k) == (1, 3)


def test_the_sweep_axes_drive_togs_own_keys() -> None:
    tog = built("method=tog", "method.beam_width=5", "method.depth=2", "method.retries=1")
    assert (tog.width, tog.max_depth, tog.parse_retries) == (5, 2, 1)


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
    assert method == default(SRP, name=method.name, **changed)
    assert method.name != "srp", "a variant has a name of its own in every table"


@pytest.mark.parametrize(
    ("preset", "method"),
    [
        ("srp", default(SRP)),
        ("cot", default(CoT)),
        ("tog", default(ToG)),
        ("tog_bm25", default(ToG, name="tog with bm25", prune="bm25")),
        ("tog_encoder", default(ToG, name="tog with encoder", prune="encoder")),
        ("tog_compat", default(ToG, name="tog (as published)", compat=True, no_return="relation")),
        ("tog_wide", default(ToG, name="tog wide", width=100, max_depth=4, entity_sample_from=2000)),
        ("cot_self_consistency", default(CoT, name="cot with self-consistency", samples=5, temperature=0.7)),
    ],
)
def test_presets_of_whole_methods_and_of_the_baselines(preset: str, method: Any) -> None:
    assert built(f"experiment={preset}") == method


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("rog", {}),
        ("rog_no_planning", {"planner": "none"}),
        ("rog_no_reasoning", {"reader": "all"}),
        ("rog_random_plans", {"planner": "random"}),
        ("rog_vote", {"reader": "vote"}),
        ("rog_listed", {"planner": "listed", "match": "bind"}),
        ("rog_sampled", {"planner": "sampled"}),
        ("rog_gold", {"planner": "gold"}),
    ],
)
def test_rog_presets(preset: str, changed: dict[str, Any]) -> None:
    method = built(f"experiment={preset}")
    assert method == default(RoG, name=method.name, **changed)
    assert (method.name == "rog") == (not changed)


def test_the_sweep_axes_drive_rogs_own_keys() -> None:
    swept = built("method=rog", "method.beam_width=5", "method.depth=2", "method.retries=1")
    assert (swept.plans, swept.max_path_len, swept.parse_retries) == (5, 2, 1)


def test_the_sweep_axes_drive_r3s_own_keys() -> None:
    swept = built("method=r3", "method.beam_width=3", "method.depth=5", "method.retries=2")
    assert (swept.samples, swept.step_limit, swept.max_retries) == (3, 5, 2)


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("graph_cot", {"max_retries": 0, "memory": False, "reflection": False, "adaptive_steps": False}),
        ("r3_memory", {"max_retries": 0, "reflection": False, "adaptive_steps": False}),
        ("r3_reflection", {"memory": False, "adaptive_steps": False}),
        ("r3_memory_reflection", {"adaptive_steps": False}),
        ("r3_gold", {"failure_signal": "gold"}),
    ],
)
def test_presets_of_r3(preset: str, changed: dict[str, Any]) -> None:
    method = built(f"experiment={preset}")
    assert method == default(R3, name=method.name, **changed)
    assert method.name != "r3"


def test_a_method_that_uses_gold_has_oracle_in_its_name() -> None:
    assert table_name(built("method=r3", "method.failure_signal=gold")) == "r3 (oracle)"
    assert table_name(built("method=r3", "method.failure_signal=gold", "method.name=mine")) == "mine (oracle)"
    assert table_name(built("method=r3", "method.failure_signal=gold", "method.name=my-oracle")) == "my-oracle"
    assert table_name(built("method=r3")) == "r3"


def test_the_sweep_axes_drive_args_own_keys() -> None:
    method = built("method=arg", "method.beam_width=5", "method.depth=2", "method.retries=1")
    assert (method.beam, method.max_hops, method.max_regenerate) == (5, 2, 1)
    assert built("method=arg", "method.beam_width=0") == default(ArG, beam=0)
    assert built("method=arg", "method.beam=exhaustive").beam == "exhaustive"


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("arg_exhaustive", {"beam": 0}),
        ("arg_wide", {"beam": 0, "max_tails_shown": 100, "cvt_fanout": 100}),
        ("arg_depth_1", {"max_hops": 1}),
        ("arg_depth_2", {"max_hops": 2}),
        ("arg_depth_3", {"max_hops": 3}),
        ("arg_width_5", {"beam": 5}),
        ("arg_top_3", {"retrieve_k": 3}),
        ("arg_no_hypo", {"hypo": False}),
        ("arg_no_naive_retriever", {"naive_retriever": False}),
        ("arg_prompted", {"generator": "prompted"}),
        ("arg_hard_scores", {"probabilities": "hard"}),
        (
            "arg_released",
            {"aggregate": "code", "seq_score": "mean_logprob", "score_at": "leaf", "relation_rank": "parent"},
        ),
        ("arg_width_1", {"beam": 1}),
        ("arg_token_no_relevance", {"beam": 1, "score": score_without("relevance")}),
        ("arg_token_no_rationality", {"beam": 1, "score": score_without("rationality")}),
        ("arg_token_no_relevance_rationality", {"beam": 1, "score": score_without("relevance", "rationality")}),
        ("arg_token_no_sequence", {"beam": 1, "score": score_without("sequence")}),
        ("arg_token_no_utility", {"beam": 1, "score": score_without("utility")}),
        ("arg_token_sequence", {"beam": 1, "score": score_without("relevance", "rationality", "utility")}),
        ("arg_token_utility", {"beam": 1, "score": score_without("relevance", "rationality", "sequence")}),
    ],
)
def test_presets_of_arg(preset: str, changed: dict[str, Any]) -> None:
    method = built(f"experiment={preset}")
    assert method == default(ArG, name=method.name, **changed)
    assert method.name != "arg", "a variant has a name of its own in every table"


@pytest.mark.parametrize("preset", ["arg_exhaustive", "arg_wide", "pog_wide", "tog_wide"])
def test_presets_without_a_beam_cap_the_calls(preset: str) -> None:
    assert compose([f"experiment={preset}"])["budget"]["max_llm_calls"] == 3000
    assert compose([f"experiment={preset}", "budget.max_llm_calls=7"])["budget"]["max_llm_calls"] == 7


def test_a_variant_of_arg_is_labelled() -> None:
    assert built("method=arg", "method.generator=prompted").name == "arg-prompted"
    assert built("method=arg", "method.probabilities=hard").name == "arg (hard_scores)"
    both = built("experiment=arg_no_hypo", "method.generator=prompted", "method.probabilities=hard")
    assert both.name == "arg-prompted w/o hypo-generator (hard_scores)"
    assert built("method=arg", "method.generator=prompted", "method.name=mine").name == "arg-prompted mine"
    with pytest.raises(UserError, match="needs a relation retriever"):
        built("method=arg", "method.hypo=false", "method.naive_retriever=false")


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
        ("parog_error_correction", {"initial_answer": True}),
    ],
)
def test_parog_presets(preset: str, changed: dict[str, Any]) -> None:
    method = built(f"experiment={preset}")
    assert method == default(PARoG, name=method.name, **changed)
    assert method.name != "parog", "a variant has a name of its own in every table"


def test_the_sweep_axes_drive_pogs_own_keys() -> None:
    swept = built("method=pog", "method.beam_width=3", "method.depth=2", "method.retries=1")
    assert (swept.width, swept.max_depth, swept.max_reversals) == (3, 2, 1)
    assert swept.parse_retries == default(PoG).parse_retries, "retries of the search, not of the parser (§16.3)"


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("pog_depth_3", {"max_depth": 3}),
        ("pog_no_guidance", {"guidance": False}),
        ("pog_no_memory", {"memory": False}),
        ("pog_no_reflection", {"reflection": False}),
        ("pog_wide", {"unnamed_sample": 2000, "frontier_cap": 2000}),
        ("pog_fixed_width", {"width": 3}),
        ("pog_batched", {"calls": "batched"}),
        ("pog_compat", {"backtrack_from": "expanded", "no_return": "relation"}),
        ("pog_evidence", {"on_depth_limit": "evidence"}),
    ],
)
def test_presets_of_pog(preset: str, changed: dict[str, Any]) -> None:
    method = built(f"experiment={preset}")
    assert method == default(PoG, name=method.name, **changed)
    assert method.name != "pog", "a variant has a name of its own in every table"


def test_the_sweep_axes_drive_dogs_own_keys() -> None:
    swept = built("method=dog", "method.beam_width=3", "method.depth=2", "method.retries=1")
    assert swept == default(DoG, max_turns=2, parse_retries=1)


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("dog", {}),
        ("dog_wide", {"topic": "all", "directions": "both", "max_paths": 500}),
        ("dog_no_debate", {"debaters": 0}),
        ("dog_gold", {"final": "gold_retry"}),
    ],
)
def test_presets_of_dog(preset: str, changed: dict[str, Any]) -> None:
    method = built(f"experiment={preset}")
    assert method == default(DoG, name=method.name, **changed)
    assert (method.name == "dog") == (not changed)


def test_a_wrong_value_names_its_key() -> None:
    with pytest.raises(UserError, match=r"method\.judge"):
        built("method=srp", "method.judge=maybe")
    with pytest.raises(UserError, match="temperature > 0"):
        built("method=cot", "method.samples=3")
