"""What the models that are not language models have in common."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.llm.prompt import Call, Completion

_CHARACTERS_PER_TOKEN = 4


def written(call: Call, text: str, *, probabilities: Mapping[str, float] | None = None) -> Completion:
    """A completion of `text`, with token counts estimated at four characters per token."""
    return Completion(
        text=text,
        prompt_tokens=_estimate(sum(len(message.content) for message in call.messages)),
        completion_tokens=_estimate(len(text)),
        probabilities=probabilities,
    )


def _estimate(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)
