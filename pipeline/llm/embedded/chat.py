"""Conversations to the ids of tokens, and ids back to text, as transformers and vLLM do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from pipeline.errors import ServiceError, UserError
from pipeline.llm.checkpoint import read_settings
from pipeline.llm.prompt import Message

_MARK = "THE MESSAGE GOES ON HERE"
"""Put, with a blank behind it, at the end of a message that the model goes on with, to find its place when rendered."""

_PARTIAL = "\N{REPLACEMENT CHARACTER}"
"""Ends the text of a token that ends within a character."""

_MOST_BEFORE = 4
"""Tokens that are looked back to for the beginning of a character, as vLLM does."""


class Chat:
    """The tokenizer and the chat template of a checkpoint."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        """Read them, for a model of so many tokens. Raises UserError where one is missing or cannot be read."""
        settings = read_settings(folder, "tokenizer_config.json")
        words = read_settings(folder, "special_tokens_map.json", required=False) | settings
        self._words = {key: _text(word) for key, word in words.items() if key.endswith("_token") and word}
        self._template = _read_template(folder, settings)
        self._tokenizer = _read_tokenizer(folder)
        self._hidden = {id for id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        self._texts = [self._decode([id]) for id in range(vocabulary)]
        self._partial = {id for id, text in enumerate(self._texts) if text.endswith(_PARTIAL)}

    @property
    def end_of_turn(self) -> int | None:
        """The token that ends a reply; None where the tokenizer has none."""
        id: int | None = self._tokenizer.token_to_id(self._words.get("eos_token", ""))
        return id

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The ids that the model is to go on from: after the last message if it is the assistant's, or to answer it.

        Raises ServiceError where the template refuses the messages.
        """
        begun = messages[-1].role == "assistant"
        turns = [message._asdict() for message in messages]
        if begun:
            turns[-1]["content"] += f"{_MARK} "
        given = {"messages": turns, "tools": None, "documents": None, "add_generation_prompt": not begun}
        try:
            text = self._template.render(given, **self._words)
        except TemplateError as error:
            raise ServiceError(f"the chat template refuses the prompt: {error}") from None
        return self.tokens(_cut(text) if begun else text)

    def tokens(self, text: str) -> list[int]:
        """The ids of a text's tokens, the special ones among them that are written out in it."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def hides(self, id: int) -> bool:
        """Whether replies leave a token out, because it is a special one."""
        return id in self._hidden

    def reader(self, prompt: Sequence[int]) -> Callable[[int], str]:
        """Turns the ids of a reply, one after the other, into its text: nothing for half a character."""
        stream = DecodeStream(ids=list(prompt), skip_special_tokens=True)

        def read(id: int) -> str:
            nonlocal stream
            try:
                return stream.step(self._tokenizer, id) or ""
            except Exception:  # noqa: BLE001 — the library raises no class of its own when bytes are no characters
                stream = DecodeStream(skip_special_tokens=True)
                return stream.step(self._tokenizer, id) or ""

        return read

    def named(self, logprobs: Mapping[int, float], before: Sequence[int]) -> dict[str, float]:
        """Log-probabilities by text instead of by id; of tokens that look alike, that of the first.

        A token that ends a character is called by all that it ends, given the ids of the reply `before`.
        """
        named: dict[str, float] = {}
        for id, logprob in logprobs.items():
            named.setdefault(self._ended(id, before) if id in self._partial else self._texts[id], logprob)
        return named

    def _ended(self, id: int, before: Sequence[int]) -> str:
        """The characters that a token ends; none if it ends within one."""
        for count in range(1, min(_MOST_BEFORE, len(before)) + 1):
            parts = list(before[-count:])
            whole = self._decode([*parts, id])
            if not whole.endswith(_PARTIAL):
                while parts and parts[-1] in self._partial:
                    parts.pop()
                return whole.removeprefix(self._decode(parts))
        return ""

    def tokens_with(self, stop: str) -> list[int]:
        """The tokens after which a reply holds a stop string, whatever was before them."""
        return [id for id, text in enumerate(self._texts) if stop in text and id not in self._hidden]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))


def _read_tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise UserError(f"{folder} has no tokenizer.json: save its tokenizer with transformers, as a fast one")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 — the library raises no class of its own
        raise UserError(f"{file} cannot be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_template(folder: Path, settings: dict[str, Any]) -> Template:
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = next((each["template"] for each in source if each["name"] == "default"), None)
    if not source:
        raise UserError(f"{folder} has no chat template: neither chat_template.jinja nor one in tokenizer_config.json")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise UserError(f"the chat template of {folder} cannot be read: {error}") from None


def _text(word: str | dict[str, Any]) -> str:
    """A special token, which may be written with its properties."""
    return word if isinstance(word, str) else word["content"]


def _cut(text: str) -> str:
    """A conversation up to where its last message goes on; blanks are trimmed there if the template trims messages."""
    before, mark, after = text.rpartition(_MARK)
    if not mark:
        raise ServiceError("the chat template leaves out the beginning of the reply")
    return before if after.startswith(" ") else before.rstrip()


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
