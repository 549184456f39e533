"""Checks what a method returns, so that a method of the user's that returns something else fails one question."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import get_args

from pipeline.types import Answer, Prediction, Status, Triple

_SHORT = 80
"""Characters of a wrong value that are quoted."""


def check_answer(answer: object) -> Answer:
    """Return the answer. Raises TypeError for anything that cannot be scored and stored."""
    if not isinstance(answer, Answer):
        raise TypeError(f"answer() must return a pipeline.Answer, not {type(answer).__name__}")
    fits = {
        "predictions": _are_predictions(answer.predictions),
        "raw": isinstance(answer.raw, str),
        "evidence": _are_chains(answer.evidence),
        "names": isinstance(answer.names, Mapping),
        "status": answer.status in get_args(Status),
        "initial": answer.initial is None or _are_predictions(answer.initial),
    }
    for name, is_right in fits.items():
        if not is_right:
            raise TypeError(f"Answer.{name} cannot be {_short(getattr(answer, name))}: see pipeline.Answer")
    return answer


def _are_predictions(value: object) -> bool:
    return isinstance(value, Iterable) and all(
        isinstance(each, Prediction) and isinstance(each.text, str) and _is_score(each.score) for each in value
    )


def _is_score(value: object) -> bool:
    """Whether a value is None or a finite number: in a trace, a NaN would look like a score."""
    return value is None or (isinstance(value, Real) and math.isfinite(value))


def _are_chains(value: object) -> bool:
    return isinstance(value, Iterable) and all(
        isinstance(chain, Iterable) and all(isinstance(fact, Triple) for fact in chain) for chain in value
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"
