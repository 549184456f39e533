"""Checks what a method returns, so that a method of the user's that returns something else fails one question."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, get_args

from pipeline.text import valid_unicode
from pipeline.types import Answer, LiteralNode, Prediction, Status, Triple

_SHORT = 80
"""Characters of a wrong value that are quoted."""


def check_answer(answer: object) -> Answer:
    """Return the answer, with tuples for other iterables. Raises TypeError if it cannot be scored and stored."""
    if not isinstance(answer, Answer):
        raise TypeError(f"answer() must return a pipeline.Answer, not {type(answer).__name__}")
    # A generator can be read once only.
    read = {name: _as_tuple(getattr(answer, name)) for name in ("predictions", "evidence", "initial")}
    if isinstance(read["evidence"], tuple):
        read["evidence"] = tuple(map(_as_tuple, read["evidence"]))
    answer = replace(answer, **read)
    fits = {
        "predictions": _are_predictions(answer.predictions),
        "raw": _is_text(answer.raw),
        "evidence": _are_chains(answer.evidence),
        "names": isinstance(answer.names, Mapping) and all(map(_is_name, answer.names.items())),
        "status": answer.status in get_args(Status),
        "initial": answer.initial is None or _are_predictions(answer.initial),
    }
    for name, is_right in fits.items():
        if not is_right:
            raise TypeError(f"Answer.{name} cannot be {_short(getattr(answer, name))}: see pipeline.Answer")
    return answer


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | Triple) else value


def _is_text(value: object) -> bool:
    """Whether a value is a text that can be stored: half of a surrogate pair cannot."""
    return isinstance(value, str) and valid_unicode(value) == value


def _is_node(value: object) -> bool:
    return _is_text(value.value if isinstance(value, LiteralNode) else value)


def _is_name(item: tuple[object, object]) -> bool:
    id, name = item
    return _is_text(id) and (name is None or _is_text(name))


def _are_predictions(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(each, Prediction)
        and _is_text(each.text)
        and (each.id is None or _is_node(each.id))
        and _is_score(each.score)
        for each in value
    )


def _is_score(value: object) -> bool:
    """Whether a value is None or a finite number: in a trace, a NaN would look like a score."""
    return value is None or (isinstance(value, Real) and math.isfinite(value))


def _are_chains(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(chain, tuple) and not isinstance(chain, Triple) and all(map(_is_fact, chain)) for chain in value
    )


def _is_fact(value: object) -> bool:
    """Whether a value is a fact, whose relation is a name: lookups return relations with a direction."""
    if not isinstance(value, Triple):
        return False
    return _is_node(value.head) and _is_text(value.relation) and _is_node(value.tail)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"
