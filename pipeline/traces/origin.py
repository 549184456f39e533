"""The origin of a shard file: the run that wrote it, its number, and digests of its questions and their gold answers.

It is stored in the metadata of the file, so it is committed with the rows that it describes.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import orjson

from pipeline.types import Example

KEY = b"kgqa_origin"
"""The key of the file's metadata."""
READ_BY_METHODS = ("domain",)
"""Fields of `Question.meta` that methods of the project read. All others are labels, which only group scores."""


@dataclass(frozen=True, slots=True)
class QuestionDigest:
    """Digests of a question and its gold answers, from the time when it was answered."""

    id: str
    question: str
    """Digest of all that a method may know."""
    gold: str
    """Digest of the gold answers, with their paths."""
    replied: str | None = None
    """Digest of the gold answers when the model replied, if the rows were scored again for other ones; else None."""
    unlabelled: str | None = None
    """Digest of the question without its labels (type, hops, source, …); None for a shard of an older version."""

    @classmethod
    def of(cls, example: Example) -> QuestionDigest:
        """Return the digests of a row of a dataset."""
        question = example.question
        meta = {name: value for name, value in question.meta.items() if name in READ_BY_METHODS}
        unlabelled = _digest(replace(question, meta=meta))
        return cls(question.id, _digest(question), _digest(example.gold), unlabelled=unlabelled)

    def differs_in_labels(self, other: QuestionDigest) -> bool:
        """Whether the labels of the question are others, and all else of it is the same."""
        return self.question != other.question and self.unlabelled == other.unlabelled

    @property
    def gold_of_replies(self) -> str:
        """Digest of the gold answers when the model replied: a simulated model may have read them."""
        return self.replied or self.gold

    def scored_again(self, example: Example) -> QuestionDigest:
        """Return the digests after the rows were scored again for the gold answers of `example`."""
        new = QuestionDigest.of(example)
        return replace(new, replied=None if self.gold_of_replies == new.gold else self.gold_of_replies)


@dataclass(frozen=True, slots=True)
class ShardOrigin:
    """Where the rows of a shard come from."""

    run: str
    """The `id` in the `run.yaml` of the run."""
    index: int
    questions: tuple[QuestionDigest, ...]
    models: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names under which model servers had answered the worker, by the names that they were asked for."""

    @classmethod
    def of(cls, run: str, index: int, examples: Sequence[Example]) -> ShardOrigin:
        """Return the origin of a shard that asks these questions."""
        return cls(run, index, tuple(map(QuestionDigest.of, examples)))


def parse_origin(stored: bytes) -> ShardOrigin:
    """Return the origin in the metadata of a shard. Raises LookupError, TypeError or ValueError for anything else."""
    origin = orjson.loads(stored)
    questions = tuple(QuestionDigest(**each) for each in origin["questions"])
    return ShardOrigin(origin["run"], origin["index"], questions, origin.get("models", {}))


def merge_models(found: Iterable[Mapping[str, Collection[str]]]) -> dict[str, list[str]]:
    """Return all names under which model servers have answered, by the names that they were asked for."""
    merged: defaultdict[str, set[str]] = defaultdict(set)
    for asked, names in chain.from_iterable(each.items() for each in found):
        merged[asked].update(names)
    return {asked: sorted(names) for asked, names in sorted(merged.items())}


def _digest(value: object) -> str:
    text = orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _plain(value: Any) -> Any:
    """Return what orjson can write of a mapping or a named tuple."""
    return dict(value) if isinstance(value, Mapping) else tuple(value)
