"""How servers differ in the parameters of a call that they accept, and in where they put a model's reasoning."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

Dialect: TypeAlias = Literal["auto", "reasoning"]

RENAMED = {"max_tokens": "max_completion_tokens"}
"""Parameters that some servers know only by another name."""
_OPTIONAL = ("seed", "top_p", "temperature", *RENAMED)
"""Parameters that a server may refuse. If a refusal names several, the first one is left out."""
_REFUSAL = re.compile(
    r"unsupported|unrecogni[sz]ed|unexpected|unknown|no longer|extra_forbidden|cannot both"
    r"|(?:not|n't) (?:support|permitted|allow|accept|recogni[sz]ed|known|available)",
    re.IGNORECASE,
)
_REASONING = "<think>"
_END_OF_REASONING = "</think>"

REFUSED_FROM_THE_START: Mapping[Dialect, frozenset[str]] = {"auto": frozenset(), "reasoning": frozenset(_OPTIONAL)}
"""The parameters that no server of a dialect accepts."""


def adapt(fields: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Return the fields of a call without the refused parameters, or with these under their other names."""
    renamed = {new: fields[old] for old, new in RENAMED.items() if old in refused and old in fields}
    return renamed | {name: value for name, value in fields.items() if name not in refused}


def refused_parameter(message: str, sent: Collection[str]) -> str | None:
    """Return the parameter among those sent that a server's message refuses; None if it refuses something else.

    A message that names the other name of a parameter asks for it, in whatever words.
    """

    def names(parameter: str) -> bool:
        return re.search(rf"\b{parameter}\b", message) is not None

    if _REFUSAL.search(message) and (found := next((name for name in _OPTIONAL if name in sent and names(name)), None)):
        return found
    return next((old for old, new in RENAMED.items() if old in sent and names(new)), None)


def without_reasoning(text: str, *, begun: bool = False) -> str:
    """Return the text after a model's reasoning, which ends with `</think>`; empty if the reasoning has no end.

    `begun` says that the reasoning begins in the prompt, so that a text without the end of it is all reasoning.
    """
    _, end, answer = text.partition(_END_OF_REASONING)
    if end:
        return answer.lstrip()
    return "" if begun or text.lstrip().startswith(_REASONING) else text


def begins_in_prompt(text: str) -> bool:
    """Return whether the reasoning in a text has only an end: the template of the model's prompts begins it."""
    before, end, _ = text.partition(_END_OF_REASONING)
    return bool(end) and _REASONING not in before
