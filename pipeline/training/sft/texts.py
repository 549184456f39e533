"""Reads, splits and tokenizes training texts, and labels the tokens that carry loss."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from pipeline.datasets.files import lines
from pipeline.errors import UserError
from pipeline.training.sft.prefix_packing import IGNORED, Row, join_sequences, pack_prefixes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_COLUMNS = ("input_ids", "labels", "position_ids", "ends")

_TOKENIZER_BATCH = 1000
"""Texts per call of the tokenizer."""


@dataclass(frozen=True, slots=True)
class TrainingText:
    """A prompt and the model's reply."""

    messages: tuple[dict[str, str], ...]
    """The turns before the model's, each with `role` and `content`."""
    text: str
    """The model's turn."""
    loss: tuple[tuple[int, int], ...]
    """Spans of characters of `text` that carry loss."""
    question_id: str | None = None

    @property
    def group(self) -> str:
        """What is packed together: the calls of one role of a question, whose prompts begin alike; else one prompt."""
        if self.question_id is None:
            return str(self.messages)
        return f"{self.question_id} {self.messages[0]}"

    @property
    def parts(self) -> list[str]:
        """The texts of all turns."""
        return [*(message["content"] for message in self.messages), self.text]


@dataclass(frozen=True)
class Encoded:
    """Tokenized and labelled texts, a dataset for `transformers.Trainer` and `Collator`."""

    items: Sequence[np.ndarray]
    """Arrays of int32 of shape [4, tokens], as described in `pack_prefixes`: ids, labels, positions and ends."""

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return dict(zip(_COLUMNS, self.items[index], strict=True))


def read_texts(files: Iterable[Path]) -> Iterator[TrainingText]:
    """Yield the texts of JSON Lines files, as `kgqa collect` writes them (docs/training.md).

    A row has the turns before the model's as chat `messages` or as one `question`, and the model's turn as `text` or as
    the last message. `loss` holds the spans of that turn that carry loss; without it, the whole turn does. Raises
    UserError naming file and line.
    """
    for file in files:
        for number, line in lines(file):
            try:
                yield read_text(orjson.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                problem = f"no {error}" if isinstance(error, KeyError) else error
                raise UserError(f"{file}, line {number} is not a training text: {problem}") from None


def read_text(row: dict[str, Any]) -> TrainingText:
    """Read one row. Raises KeyError, TypeError or ValueError for a row that is no training text."""
    turns = row["messages"] if "messages" in row else [{"role": "user", "content": row["question"]}]
    prompt = [{"role": str(one["role"]), "content": str(one["content"])} for one in turns]
    if "text" in row:
        text = str(row["text"])
    elif prompt and prompt[-1]["role"] == "assistant":
        text = prompt.pop()["content"]
    else:
        raise ValueError("it has no text, and its last message is not the assistant's")
    loss = tuple((int(begin), int(end)) for begin, end in row.get("loss", [[0, len(text)]]))
    if not prompt or not text or any(not 0 <= begin < end <= len(text) for begin, end in loss):
        raise ValueError("its prompt or its text is empty, or a span of loss is outside the text")
    return TrainingText(tuple(prompt), text, loss, row.get("id"))


def split(texts: Sequence[TrainingText], evaluation: int, seed: int) -> tuple[list[TrainingText], list[TrainingText]]:
    """Return the training texts and `evaluation` texts for evaluation, drawn by the seed; no prompt is in both."""
    order = list(texts)
    Random(seed).shuffle(order)
    evaluated = {_question(text) for text in order[:evaluation]}
    return [text for text in order[evaluation:] if _question(text) not in evaluated], order[:evaluation]


def encode(
    texts: Iterable[TrainingText],
    tokenizer: PreTrainedTokenizerBase,
    max_tokens: int,
    dropped: Counter[str],
    *,
    prefix_sharing: bool = False,
    row_tokens: int | None = None,
) -> Encoded:
    """Tokenize and label each text in the tokenizer's chat layout; `dropped` counts texts that are too long.

    With prefix sharing the texts of a question and role are packed into as few items as fit. With `row_tokens` items
    are then joined to rows of at most so many tokens; give the texts in random order. The end of the model's turn also
    carries loss, so that the model learns to stop. Raises UserError for a tokenizer whose chat template changes the
    model's turn.
    """
    rows: defaultdict[object, list[Row]] = defaultdict(list)
    for index, (text, row) in enumerate(_rows(texts, tokenizer)):
        if len(row[0]) > max_tokens:
            dropped[f"longer than {max_tokens:,} tokens"] += 1
        else:
            rows[text.group if prefix_sharing else index].append(row)
    items = [item for of_prompt in rows.values() for item in pack_prefixes(of_prompt, max_tokens)]
    return Encoded(items if row_tokens is None else join_sequences(items, row_tokens))


def label(text: TrainingText, tokenizer: PreTrainedTokenizerBase) -> Row:
    """Tokenize one text in the tokenizer's chat layout, and label the tokens that carry loss."""
    ((_, row),) = _rows([text], tokenizer)
    return row


def _rows(texts: Iterable[TrainingText], tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[TrainingText, Row]]:
    for batch in _batches(texts, _TOKENIZER_BATCH):
        laid_out = [_lay_out(text, tokenizer) for text in batch]
        wholes = [whole for whole, _ in laid_out]
        encoded = tokenizer(wholes, add_special_tokens=False, return_offsets_mapping=True)
        for text, (_, start), ids, offsets in zip(
            batch, laid_out, encoded["input_ids"], encoded["offset_mapping"], strict=True
        ):
            yield text, _label(text, start, ids, offsets)


def _lay_out(text: TrainingText, tokenizer: PreTrainedTokenizerBase) -> tuple[str, int]:
    """Return the whole conversation as the model sees it, and where its own turn begins."""
    prompt = list(text.messages)
    before = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    turn = {"role": "assistant", "content": text.text}
    whole = tokenizer.apply_chat_template([*prompt, turn], tokenize=False)
    if not whole.startswith(before + text.text):
        raise UserError("the chat template of the model changes the text of its turn: use another model")
    return whole, len(before)


def _label(text: TrainingText, start: int, ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> Row:
    """Label each token whose successor overlaps a span with loss, or ends the turn."""
    end = start + len(text.text)
    spans = [(start + begin, start + stop) for begin, stop in text.loss]
    last = next((index for index, (begin, _) in enumerate(offsets) if begin >= end), None)
    carried = [
        token if index == last or any(begin < stop and first < after for first, stop in spans) else IGNORED
        for index, (token, (begin, after)) in enumerate(zip(ids, offsets, strict=True))
    ]
    keep = len(ids) if last is None else last + 1  # drop what the template adds after the end of the turn
    return list(ids[:keep]), [*carried[1:keep], IGNORED]


def _batches(texts: Iterable[TrainingText], size: int) -> Iterator[list[TrainingText]]:
    remaining = iter(texts)
    while batch := list(islice(remaining, size)):
        yield batch


def _question(text: TrainingText) -> str:
    return text.messages[-1]["content"]
