"""Converts conversations to token ids and token ids to text, as transformers and vLLM do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from pipeline.errors import Unanswerable, UserError
from pipeline.llm.checkpoint import read_config
from pipeline.llm.prompt import Message

_END_MARKER = "THE MESSAGE GOES ON HERE"
"""Appended with a space to a message that the model continues, to find the message's end in the rendered text."""

_PARTIAL = "\N{REPLACEMENT CHARACTER}"
"""The last character of a token's text if the token ends inside a character."""

_MAX_LOOKBACK = 4
"""Tokens before a token in which the beginning of a character is searched, as in vLLM."""


class Chat:
    """The tokenizer and the chat template of a checkpoint."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        """Read both for a model with `vocabulary` tokens. Raises UserError if one is missing or cannot be read."""
        config = read_config(folder, "tokenizer_config.json")
        words = read_config(folder, "special_tokens_map.json", required=False) | config
        self._words = {key: _text(word) for key, word in words.items() if key.endswith("_token") and word}
        self._template = _read_template(folder, config)
        self._tokenizer = _read_tokenizer(folder)
        self.end_of_turn: int | None = self._tokenizer.token_to_id(self._words.get("eos_token", ""))
        """The token that ends a reply; None if the tokenizer has none."""
        self.hidden = {id for id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        """The special tokens, which are left out of replies."""
        self._texts = [self._decode([id]) for id in range(vocabulary)]
        self._partial = {id for id, text in enumerate(self._texts) if text.endswith(_PARTIAL)}

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, which the model continues; a last message of the assistant is left open.

        Raises Unanswerable if the template refuses the messages.
        """
        is_open = messages[-1].role == "assistant"
        turns = [message._asdict() for message in messages]
        if is_open:
            turns[-1]["content"] += f"{_END_MARKER} "
        given = {"messages": turns, "tools": None, "documents": None, "add_generation_prompt": not is_open}
        try:
            text = self._template.render(given, **self._words)
        except TemplateError as error:
            raise Unanswerable(f"the chat template refuses the prompt: {error}") from None
        return self.tokens(_without_end(text) if is_open else text)

    def tokens(self, text: str) -> list[int]:
        """Return the ids of a text's tokens, including special tokens that the text spells out."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def reader(self, prompt: Sequence[int]) -> Callable[[int], str]:
        """Return a function that converts the ids of a reply one by one to text; a partial character gives none."""
        stream = DecodeStream(ids=list(prompt), skip_special_tokens=True)

        def read(id: int) -> str:
            nonlocal stream
            try:
                return stream.step(self._tokenizer, id) or ""
            except Exception:  # noqa: BLE001 — for invalid bytes the library raises a plain Exception
                stream = DecodeStream(skip_special_tokens=True)
                return stream.step(self._tokenizer, id) or ""

        return read

    def logprobs_by_text(self, logprobs: Mapping[int, float], before: Sequence[int]) -> dict[str, float]:
        """Return log-probabilities by text instead of id; of several tokens with the same text, the first one's.

        A token that completes a character has the text of all completed characters, given the reply's ids `before`.
        """
        by_text: dict[str, float] = {}
        for id, logprob in logprobs.items():
            by_text.setdefault(self._completed(id, before) if id in self._partial else self._texts[id], logprob)
        return by_text

    def _completed(self, id: int, before: Sequence[int]) -> str:
        """Return the characters that a token completes; an empty text if it completes none."""
        for count in range(1, min(_MAX_LOOKBACK, len(before)) + 1):
            parts = list(before[-count:])
            whole = self._decode([*parts, id])
            if not whole.endswith(_PARTIAL):
                while parts and parts[-1] in self._partial:
                    parts.pop()
                return whole.removeprefix(self._decode(parts))
        return ""

    def tokens_with(self, stop: str) -> list[int]:
        """Return the tokens that contain a stop string."""
        return [id for id, text in enumerate(self._texts) if stop in text and id not in self.hidden]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))


def _read_tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise UserError(f"{folder} has no tokenizer.json; save its tokenizer with transformers as a fast tokenizer")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 — the library raises a plain Exception
        raise UserError(f"{file} cannot be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_template(folder: Path, config: dict[str, Any]) -> Template:
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(source, list):  # several templates, by name
        source = next((each["template"] for each in source if each["name"] == "default"), None)
    if not source:
        raise UserError(f"{folder} has no chat template, neither in chat_template.jinja nor in tokenizer_config.json")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise UserError(f"the chat template of {folder} cannot be read: {error}") from None


def _text(word: str | dict[str, Any]) -> str:
    """Return the text of a special token, which may be given with its properties."""
    return word if isinstance(word, str) else word["content"]


def _without_end(text: str) -> str:
    """Return a conversation up to the end of its last message, trimmed there if the template trims messages."""
    before, mark, after = text.rpartition(_END_MARKER)
    if not mark:
        raise Unanswerable("the chat template omits the beginning of the reply")
    return before if after.startswith(" ") else before.rstrip()


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
