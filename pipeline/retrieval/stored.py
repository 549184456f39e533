"""Vectors on disk. A file is trusted only when it holds these texts as this encoder encodes them today."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.retrieval.port import Encoder, Vectors

_TOLERANCE = 1e-3
"""Largest difference that batching and hardware make between two encodings of one text."""


async def encode_stored(encoder: Encoder, texts: Sequence[str], path: Path) -> Vectors:
    """The vectors of `texts`, from `path` when it has them; otherwise encoded, and written there."""
    vectors = load_vectors(path)
    if vectors is None or not await are_current(vectors, encoder, texts):
        vectors = await encoder.encode(texts)
        save_vectors(path, vectors)
    return vectors


def file_name(encoder: Encoder, texts: Sequence[str]) -> str:
    """A name that changes with the encoder and with any of the texts."""
    digest = hashlib.blake2b("\0".join([encoder.name, *texts]).encode("utf-8", "surrogatepass"), digest_size=12)
    return f"{digest.hexdigest()}.npy"


async def are_current(vectors: Vectors, encoder: Encoder, texts: Sequence[str]) -> bool:
    """Whether stored vectors are those of `texts`, tried on the first, the middle and the last one."""
    if len(vectors) != len(texts):
        return False
    probes = sorted({0, len(texts) // 2, len(texts) - 1})
    fresh = await encoder.encode([texts[probe] for probe in probes])
    return fresh.shape == vectors[probes].shape and bool(np.allclose(fresh, vectors[probes], atol=_TOLERANCE))


def load_vectors(path: Path) -> Vectors | None:
    """The matrix in a file, or None when there is none that can be read."""
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return vectors if vectors.ndim == 2 and vectors.dtype == np.float32 else None


def save_vectors(path: Path, vectors: Vectors) -> None:
    """Write a matrix so that a reader sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        np.save(file, vectors)
    beside.replace(path)
