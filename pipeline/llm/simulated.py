"""What the models that are not language models have in common."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from pipeline.llm.prompt import Call, Completion

_CHARACTERS_PER_TOKEN = 4
_TOKEN = re.compile(r"\[[^\[\]\n]{1,40}\]|\s+|[^\s\[]+|\[")
"""Words, blanks, and anything in brackets as one piece: a vocabulary with reflection tokens in it (methods.md §4.2)."""


def written(
    call: Call, text: str, *, probabilities: Mapping[str, float] | None = None, doubt: float = 0.0
) -> Completion:
    """A completion of `text`, of each token of which the model has the same doubt, the probability that it is wrong.

    Token counts are estimated at four characters per token.
    """
    wanted = call.sampling.logprobs is not None and probabilities is None
    return Completion(
        text=text,
        prompt_tokens=_estimate(sum(len(message.content) for message in call.messages)),
        completion_tokens=_estimate(len(text)),
        logprobs=token_logprobs(text, call.prompt.alternatives, doubt) if wanted else None,
        probabilities=probabilities,
    )


def token_logprobs(
    text: str, alternatives: Sequence[Sequence[str]] = (), doubt: float = 0.0
) -> tuple[Mapping[str, float], ...]:
    """What a model reports of each token of `text`: its own, and those it hesitated between, which share the doubt."""
    groups = {token: group for group in alternatives for token in group}
    return tuple(_logprobs(token, groups.get(token, ()), doubt) for token in _TOKEN.findall(text))


def _logprobs(token: str, group: Sequence[str], doubt: float) -> Mapping[str, float]:
    others = [other for other in group if other != token] if doubt else []
    own = math.log1p(-doubt) if doubt < 1 else -math.inf
    return {token: own} | {other: math.log(doubt / len(others)) for other in others}


def _estimate(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)
