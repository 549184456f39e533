"""The `evaluation` group of the configuration."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from pipeline import config
from pipeline.errors import UserError
from pipeline.evaluation.scoring import ScoringConfig


def build(**changes: object) -> ScoringConfig:
    section = OmegaConf.merge(OmegaConf.load(config.conf_dir() / "evaluation" / "default.yaml"), changes)
    return config.build("evaluation", {"evaluation": OmegaConf.to_container(section)})


def test_the_defaults_in_yaml_equal_those_of_the_class() -> None:
    assert build() == ScoringConfig()


@pytest.mark.parametrize(
    ("key", "value"),
    [("empty_gold", "ignore"), ("bootstrap_resamples", 1), ("confidence", 95), ("bootstrap_seed", -1)],
)
def test_a_wrong_value_is_named(key: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"evaluation\.{key}={value!r} is wrong"):
        build(**{key: value})


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(UserError, match=r"unknown key 'evaluation\.typo'"):
        build(typo=1)
