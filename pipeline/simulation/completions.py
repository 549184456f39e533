"""Builds the completions of simulated models: token counts, log-probabilities and choice probabilities."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from pipeline.llm.prompt import Call, Candidate, Completion
from pipeline.simulation.registry import simulator_of

_CHARACTERS_PER_TOKEN = 4
_TOKEN = re.compile(r"\[[^\[\]\n]{1,40}\]|\s+|[^\s\[]+|\[")
"""Words, white space, and bracketed texts, as in a vocabulary with reflection tokens (specification §4.2)."""


def simulated_completion(
    call: Call,
    texts: Sequence[str],
    *,
    probabilities: Mapping[str, float] | None = None,
    error_probability: float = 0.0,
    latency_s: float = 0.0,
) -> Completion:
    """Build the completion with these candidates, every token of which is wrong with the given probability.

    One text is no list of candidates. Token counts are estimated at four characters per token.
    """
    wanted = call.sampling.logprobs is not None and probabilities is None
    text = texts[0]
    return Completion(
        text=text,
        prompt_tokens=_token_count(sum(len(message.content) for message in call.messages)),
        completion_tokens=sum(_token_count(len(each)) for each in texts),
        logprobs=token_logprobs(text, simulator_of(call.prompt).alternatives, error_probability) if wanted else None,
        probabilities=probabilities,
        seconds=latency_s,
        candidates=tuple(map(Candidate, texts)) if len(texts) > 1 else (),
    )


def token_logprobs(
    text: str, alternatives: Sequence[Sequence[str]] = (), error_probability: float = 0.0
) -> tuple[Mapping[str, float], ...]:
    """Return the log-probabilities of each token and of its alternatives, which share the error probability."""
    groups = {token: group for group in alternatives for token in group}
    return tuple(_logprobs(token, groups.get(token, ()), error_probability) for token in _TOKEN.findall(text))


def _logprobs(token: str, group: Sequence[str], error_probability: float) -> Mapping[str, float]:
    others = [other for other in group if other != token] if error_probability else []
    own = math.log1p(-error_probability) if error_probability < 1 else -math.inf
    return {token: own} | {other: math.log(error_probability / len(others)) for other in others}


def _token_count(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)
