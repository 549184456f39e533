"""The reference base: solved training questions that methods show to the model as examples (specification §7.1)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from random import Random

import orjson
from pydantic import TypeAdapter, ValidationError

from pipeline.errors import UserError
from pipeline.normalisation import normalise
from pipeline.retrieval.interface import Encoder, Reference, Vectors
from pipeline.retrieval.ranking import best
from pipeline.retrieval.stored import are_current, load_vectors, save_vectors
from pipeline.types import Entity, Question

_ROW = TypeAdapter(Reference)


class ReferenceBase:
    """References and their vectors, with exact nearest-neighbour search."""

    def __init__(self, references: Sequence[Reference], vectors: Vectors | None = None) -> None:
        """Store references. `vectors` are those of the questions, masked or not, shape (references, dimensions)."""
        self.references = tuple(references)
        self._stored = vectors
        self._vectors: dict[tuple[str, bool], Vectors] = {}

    @classmethod
    def load(cls, path: Path) -> ReferenceBase:
        """Read `path` (JSON lines) and the `.npy` file next to it. Raises UserError if a line or file is invalid."""
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise UserError(
                f"there is no reference base at {path} ({error.strerror}); build one with `kgqa build-references`"
            ) from None
        return cls(
            [_read(path, number, line) for number, line in enumerate(lines, 1)], load_vectors(_vector_file(path))
        )

    def save(self, path: Path) -> None:
        """Write the references to `path` and their vectors to the `.npy` file next to it, each atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._stored is not None:
            save_vectors(_vector_file(path), self._stored)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(b"".join(orjson.dumps(reference) + b"\n" for reference in self.references))
        temporary.replace(path)

    async def nearest(self, question: Question, k: int, encoder: Encoder, *, masked: bool = False) -> list[Reference]:
        """Return the k references nearest to the question (inner product), never the question itself.

        With `masked`, names of topic entities count on neither side.
        """
        if not self.references:
            return []
        text = mask(question.text, question.topic_entities) if masked else question.text
        query = (await encoder.encode([text]))[0]
        scores = await self.vectors(encoder, masked=masked) @ query  # for unit vectors, the order of L2 distances
        return list(islice(self._others(question, best(scores, len(self.references))), k))

    def sample(self, question: Question, k: int) -> list[Reference]:
        """Draw k references at random, seeded by the question, never the question itself."""
        order = list(range(len(self.references)))
        Random(f"{question.dataset}/{question.split}/{question.id}").shuffle(order)
        return list(islice(self._others(question, order), k))

    async def vectors(self, encoder: Encoder, *, masked: bool) -> Vectors:
        """Return the vectors of the questions, masked or not. Encodes them if the stored ones are others."""
        key = encoder.name, masked
        if key not in self._vectors:
            texts = [each.masked_question if masked else each.question for each in self.references]
            changed = [at for at, each in enumerate(self.references) if each.masked_question != each.question]
            if self._stored is None or not await are_current(self._stored, encoder, texts, check=changed[:1]):
                self._stored = await encoder.encode(texts)
            self._vectors[key] = self._stored
        return self._vectors[key]

    def _others(self, question: Question, order: Iterable[int]) -> Iterable[Reference]:
        asked = normalise(question.text)
        return (self.references[at] for at in order if normalise(self.references[at].question) != asked)


def mask(text: str, topics: Iterable[Entity]) -> str:
    """Return the text with the names of its topic entities replaced by `*`, ignoring case, longest names first."""
    for name in sorted({topic.name for topic in topics if topic.name}, key=lambda name: (-len(name), name)):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "*", text, flags=re.IGNORECASE)
    return text


def _read(path: Path, number: int, line: bytes) -> Reference:
    try:
        return _ROW.validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        raise UserError(
            f"{path} line {number} is not a reference ({field}: {problem['msg']}); "
            "rebuild the file with `kgqa build-references`"
        ) from None


def _vector_file(path: Path) -> Path:
    return path.with_suffix(".npy")
