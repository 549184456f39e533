"""Encodes texts with a sentence-transformers model, by name or path. Needs the optional extra `dense`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated
from weakref import WeakValueDictionary

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.extras import require
from pipeline.kg.batch_loader import BatchLoader
from pipeline.kg.interface import Batch, batch
from pipeline.net.hub import only_cached
from pipeline.retrieval.interface import Vectors
from pipeline.types import RUNTIME_ONLY

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BATCH_WINDOW_S = 0.003
"""Seconds that the first text of a batch waits for others."""
_BATCH_SIZE = 1024
"""Texts per batch for the model's thread."""
_CACHE_SIZE = 20_000
"""Texts whose vectors are cached: 30 MB at 384 dimensions."""


class _Model:
    """A model in memory, with the only thread that uses it: the tokenizer of one model serves one thread at a time."""

    def __init__(self, name: str, device: str | None) -> None:
        self._name = name
        self._device = device
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encoder")

    def encode(self, texts: Sequence[str], *, normalise: bool) -> Vectors:
        """Return a vector per text, shape (texts, dimensions). Raises UserError if the model cannot be loaded."""
        vectors = self._loaded.encode(
            list(texts), batch_size=64, normalize_embeddings=normalise, show_progress_bar=False
        )
        return np.asarray(vectors, np.float32)

    @cached_property
    def _loaded(self) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # it would overwrite the run's progress display
        try:
            return SentenceTransformer(self._name, device=self._device, local_files_only=only_cached(self._name))
        except (OSError, ValueError) as error:
            reason, _, _ = str(error).partition("\n")
            raise UserError(
                f"the encoder model '{self._name}' is neither a folder with a sentence-transformers model nor a name "
                f"that the Hugging Face Hub serves to this machine ({reason}): copy the model to a folder of this name "
                "in the working directory, or set the key `model` of the encoder to its folder, or use "
                "retrieval=lexical, which every table then names"
            ) from None


_models: WeakValueDictionary[tuple[str, str | None], _Model] = WeakValueDictionary()
_models_lock = Lock()


def _shared_model(name: str, device: str | None) -> _Model:
    """Return the model of this name, which all encoders of a process share. It is loaded by its first text."""
    folder = Path(name)
    key = str(folder.resolve()) if folder.exists() else name, device
    with _models_lock:
        found = _models.get(key)
        if found is None:
            found = _models[key] = _Model(name, device)
        return found


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class DenseEncoder:
    """A neural encoder that runs in a thread, batches concurrent texts and caches vectors per text.

    The keys are described in `conf/retrieval/dense.yaml`.

    Encoders of the same model share it in memory. Models without their own pooling, such as `facebook/contriever`, are
    mean-pooled. Picklable until first used.
    """

    model: str
    """A name on the Hugging Face Hub, or a folder."""
    device: Annotated[str | None, RUNTIME_ONLY]
    """`cpu`, `cuda:1`, …; None takes a GPU if there is one."""
    unnormalised: bool
    """Whether vectors keep the length that the model gives them: some models are trained for the inner product."""

    def __post_init__(self) -> None:
        require("dense", f"the encoder {self.model}")

    @property
    def name(self) -> str:
        """The key of stored vectors."""
        return f"dense:{self.model}{':unnormalised' if self.unnormalised else ''}"

    async def encode(self, texts: Sequence[str]) -> Vectors:
        """Return a vector per text, shape (texts, dimensions). Raises UserError if the model cannot be loaded."""
        if not texts:
            return np.empty((0, 0), np.float32)
        rows = await self._loader(texts)
        return np.stack([rows[text] for text in texts])

    @cached_property
    def _loader(self) -> BatchLoader[str, Vectors]:
        return BatchLoader(self._fetch, batch_size=_BATCH_SIZE, window_s=_BATCH_WINDOW_S, cache_size=_CACHE_SIZE)

    @cached_property
    def _shared(self) -> _Model:
        return _shared_model(self.model, self.device)

    async def _fetch(self, texts: Sequence[str]) -> Batch[str, Vectors]:
        rows = await asyncio.get_running_loop().run_in_executor(self._shared.thread, self._compute, texts)
        return batch(dict(zip(texts, rows, strict=True)), queries=1)

    def _compute(self, texts: Sequence[str]) -> Vectors:
        return self._shared.encode(texts, normalise=not self.unnormalised)
