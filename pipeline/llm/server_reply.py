"""What a model server may answer. A reply of another form is an error of its server, and nothing reads it.

Replies are validated strictly: a number in a text is no number.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from pipeline.llm.prompt import TokenCount

Logprob: TypeAlias = Annotated[float, Field(le=700, allow_inf_nan=False)]
"""A natural logarithm whose exponential is a number."""


class TextPart(TypedDict):
    """A part of a message that some servers send as a list of parts."""

    type: Literal["text"]
    text: str


class ReasoningPart(TypedDict):
    """A part of a message with the model's reasoning, which is not read."""

    type: Literal["thinking", "reasoning"]


class ReplyMessage(TypedDict):
    """The message of a choice."""

    content: NotRequired[str | list[TextPart | ReasoningPart] | None]


class TokenLogprob(TypedDict):
    """The log-probability of one token."""

    token: str
    logprob: Logprob


class Position(TokenLogprob):
    """A generated token, and the most probable ones in its place."""

    top_logprobs: NotRequired[list[TokenLogprob] | None]


class ChoiceLogprobs(TypedDict):
    """The log-probabilities of a choice, one entry per generated token."""

    content: NotRequired[list[Position] | None]


class Choice(TypedDict):
    """One answer."""

    message: ReplyMessage
    finish_reason: NotRequired[str | None]
    error: NotRequired[Any]
    logprobs: NotRequired[ChoiceLogprobs | None]


class Usage(TypedDict):
    """Counts of tokens."""

    prompt_tokens: NotRequired[TokenCount | None]
    completion_tokens: NotRequired[TokenCount | None]


class ChatReply(TypedDict):
    """A chat completion. Only the first choice is used, unless several were asked for."""

    choices: Annotated[list[Choice], Field(min_length=1)]
    error: NotRequired[Any]
    model: NotRequired[Any]
    usage: NotRequired[Usage | None]


class Tokens(TypedDict):
    """The tokens of a text, from `/tokenize`."""

    tokens: list[int]


class EchoedPrompt(TypedDict):
    """A choice of a plain completion, with the tokens of its prompt."""

    prompt_token_ids: NotRequired[list[int] | None]


class PlainReply(TypedDict):
    """A plain completion."""

    choices: list[EchoedPrompt]


class ModelCard(TypedDict):
    """A model that a server lists."""

    id: str
    root: NotRequired[str | None]
    parent: NotRequired[str | None]
    max_model_len: NotRequired[int | None]


class ModelList(TypedDict):
    """The models of a server."""

    data: list[ModelCard]


CHAT_REPLY = TypeAdapter(ChatReply)
TOKENS = TypeAdapter(Tokens)
PLAIN_REPLY = TypeAdapter(PlainReply)
MODEL_LIST = TypeAdapter(ModelList)


def has_error(reply: ChatReply) -> bool:
    """Return whether a reply, or one of its choices, reports an error beside its text, as some routers' do."""
    failed = (each.get("error") or each.get("finish_reason") == "error" for each in reply["choices"])
    return bool(reply.get("error")) or any(failed)


def text_of(choice: Choice) -> str:
    """Return the text of a choice: its content, or the text parts of it joined."""
    content = choice["message"].get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def usage_of(reply: ChatReply, kind: Literal["prompt_tokens", "completion_tokens"]) -> int:
    """Return a count of tokens; 0 if the server does not report it."""
    return (reply.get("usage") or {}).get(kind) or 0


def token_logprobs(choice: Choice) -> tuple[dict[str, float], ...]:
    """Return the reported log-probabilities per generated token, its own first."""
    return tuple(map(_reported, (choice.get("logprobs") or {}).get("content") or ()))


def _reported(position: Position) -> dict[str, float]:
    logprobs = {position["token"]: position["logprob"]}
    for entry in position.get("top_logprobs") or ():
        logprobs.setdefault(entry["token"], entry["logprob"])  # different parts of a character have the same text
    return logprobs
