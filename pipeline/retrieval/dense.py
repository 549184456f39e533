"""A dense encoder: any sentence-transformers model, by name or path. Needs the optional extra `dense`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.kg.memo import Fetched, Lookup
from pipeline.retrieval.port import Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_WAIT_S = 0.003
"""How long the first text of a batch waits for company."""
_BATCH = 1024
"""Texts that go to the model's thread at once."""
_REMEMBERED = 20_000
"""Texts whose vectors are kept: 30 MB at 384 dimensions."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class DenseEncoder:
    """Encodes off the event loop, in batches of what arrives together, and remembers vectors per text.

    Models without a pooling of their own, such as `facebook/contriever`, are mean-pooled. Picklable until first used.
    """

    model: str
    """A name on the Hugging Face Hub, or a folder."""
    device: str | None = None
    """`cpu`, `cuda:1`, …; None takes a GPU when there is one."""

    @property
    def name(self) -> str:
        """What decides the vectors."""
        return f"dense:{self.model}"

    async def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape (texts, dimensions). Raises UserError when the model cannot be had."""
        if not texts:
            return np.empty((0, 0), np.float32)
        rows = await self._lookup(texts)
        return np.stack([rows[text] for text in texts])

    @cached_property
    def _lookup(self) -> Lookup[str, Vectors]:
        return Lookup(self._fetch, size=_BATCH, wait_s=_WAIT_S, entries=_REMEMBERED)

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="encoder")

    @cached_property
    def _loaded(self) -> SentenceTransformer:
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging
        except ImportError:
            raise UserError(
                f"the encoder {self.model} needs sentence-transformers: pip install kgqa-pipeline[dense]"
            ) from None
        logging.disable_progress_bar()  # it would write over the run's own
        try:
            return SentenceTransformer(self.model, device=self.device)
        except (OSError, ValueError) as error:
            raise UserError(
                f"the encoder model '{self.model}' is neither a folder with a sentence-transformers model nor a name "
                f"that the Hugging Face Hub serves to this machine ({_first_line(error)})"
            ) from None

    async def _fetch(self, texts: Sequence[str]) -> Fetched[str, Vectors]:
        rows = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, texts)
        return Fetched(dict(zip(texts, rows, strict=True)), queries=1, endpoint=None)

    def _compute(self, texts: Sequence[str]) -> Vectors:
        return np.asarray(
            self._loaded.encode(list(texts), batch_size=64, normalize_embeddings=True, show_progress_bar=False),
            np.float32,
        )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
