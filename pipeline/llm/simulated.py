"""What the models that are not language models have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipeline.llm.prompt import Call, Completion

_CHARACTERS_PER_TOKEN = 4
_TOKEN = re.compile(r"\[[^\[\]\n]{1,40}\]|\s+|[^\s\[]+|\[")
"""Words, blanks, and anything in brackets as one piece: a vocabulary with reflection tokens in it (methods.md §4.2)."""


def written(call: Call, text: str, *, probabilities: Mapping[str, float] | None = None) -> Completion:
    """A completion of `text`, certain of every token; token counts are estimated at four characters per token."""
    wanted = call.sampling.logprobs is not None and probabilities is None
    return Completion(
        text=text,
        prompt_tokens=_estimate(sum(len(message.content) for message in call.messages)),
        completion_tokens=_estimate(len(text)),
        logprobs=certain_tokens(text) if wanted else None,
        probabilities=probabilities,
    )


def certain_tokens(text: str) -> tuple[Mapping[str, float], ...]:
    """The log-probabilities of a model that had no doubt about any token of `text`."""
    return tuple({token: 0.0} for token in _TOKEN.findall(text))


def _estimate(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)
