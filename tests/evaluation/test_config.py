"""The `evaluation` group of the configuration."""

from __future__ import annotations

import pytest

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig


@pytest.mark.parametrize(
    ("key", "value"),
    [("empty_gold", "ignore"), ("bootstrap_resamples", 1), ("confidence", 95), ("bootstrap_seed", -1)],
)
def test_a_wrong_value_is_named(key: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"evaluation\.{key}={value!r} is wrong"):
        default(ScoringConfig, **{key: value})


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(UserError, match=r"unknown key 'evaluation\.typo'"):
        default(ScoringConfig, typo=1)
