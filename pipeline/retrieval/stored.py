"""Stores vectors on disk, and checks that a file matches its texts and the current version of its encoder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.retrieval.interface import Encoder, Vectors

_TOLERANCE = 1e-3
"""Largest difference between two encodings of one text that batching and hardware can cause."""


async def encode_stored(encoder: Encoder, texts: Sequence[str], path: Path) -> Vectors:
    """Return the vectors of `texts` from `path`. If they are not there, encode and store them."""
    vectors = load_vectors(path)
    if vectors is None or not await are_current(vectors, encoder, texts):
        vectors = await encoder.encode(texts)
        save_vectors(path, vectors)
    return vectors


def file_name(encoder: Encoder, texts: Sequence[str]) -> str:
    """Return a file name that depends on the encoder and on all texts."""
    digest = hashlib.blake2b("\0".join([encoder.name, *texts]).encode("utf-8", "surrogatepass"), digest_size=12)
    return f"{digest.hexdigest()}.npy"


async def are_current(vectors: Vectors, encoder: Encoder, texts: Sequence[str], *, check: Sequence[int] = ()) -> bool:
    """Return whether stored vectors match `texts`. Checks the first, the middle, the last and those at `check`."""
    if len(vectors) != len(texts):
        return False
    positions = sorted({0, len(texts) // 2, len(texts) - 1, *check})
    fresh = await encoder.encode([texts[at] for at in positions])
    return fresh.shape == vectors[positions].shape and bool(np.allclose(fresh, vectors[positions], atol=_TOLERANCE))


def load_vectors(path: Path) -> Vectors | None:
    """Return the matrix in a file, or None if the file cannot be read."""
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return vectors if vectors.ndim == 2 and vectors.dtype == np.float32 else None


def save_vectors(path: Path, vectors: Vectors) -> None:
    """Write a matrix atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        np.save(file, vectors)
    temporary.replace(path)
