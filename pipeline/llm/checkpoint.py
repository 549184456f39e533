"""Reads folders of Hugging Face checkpoints: a digest, configuration files and weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError

Array = NDArray[np.float32]

_CONTENT = ("*.safetensors", "*.bin", "*.json", "*.jinja", "*.model")
"""The files that determine the outputs of a checkpoint: weights, configuration, tokenizer and chat template."""

_DTYPES: Mapping[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""Supported formats of weights. NumPy has no bfloat16, which is the upper half of a float32."""


@lru_cache
def digest_of(folder: Path) -> str:
    """Return a digest of the files that determine the outputs of a checkpoint. Reads the files completely.

    Raises UserError for a folder without such files.
    """
    files = sorted({file for pattern in _CONTENT for file in folder.glob(pattern)})
    if not files:
        raise UserError(f"{folder} is not a checkpoint: it contains neither config.json nor weights")
    whole = hashlib.blake2b(digest_size=4)
    with ThreadPoolExecutor() as pool:
        for file, digest in zip(files, pool.map(_digest_of_file, files), strict=True):
            whole.update(file.name.encode() + digest)
    return whole.hexdigest()


def read_config(folder: Path, name: str, *, required: bool = True) -> dict[str, Any]:
    """Return a JSON file of a checkpoint; {} if it is missing and not required. Raises UserError if unreadable."""
    file = folder / name
    if not file.is_file() and not required:
        return {}
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} is not a Hugging Face checkpoint: it contains no {name}") from None
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise UserError(f"{file} is not a JSON object")
    return config


def read_weights(folder: Path) -> dict[str, Array]:
    """Return all weights of a checkpoint by name, as float32. Raises UserError for other formats than safetensors.

    A safetensors file contains the length of its header, the header in JSON, and the numbers of all tensors.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder} contains no safetensors files; save the model with save_pretrained")
    return {name: array for file in files for name, array in _read_tensors(file).items()}


def _read_tensors(file: Path) -> dict[str, Array]:
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8:start])
        header.pop("__metadata__", None)
        return {name: _read_tensor(tensor, memoryview(content)[start:]) for name, tensor in header.items()}
    except KeyError as error:
        raise UserError(
            f"{file} has weights in the unsupported format {error}; supported: {', '.join(_DTYPES)}"
        ) from None
    except ValueError as error:
        raise UserError(f"{file} is not a complete safetensors file: {error}") from None


def _read_tensor(tensor: Mapping[str, Any], numbers: memoryview) -> Array:
    first, last = tensor["data_offsets"]
    stored = np.frombuffer(numbers[first:last], dtype=_DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
    if tensor["dtype"] == "BF16":
        return np.left_shift(stored, 16, dtype=np.uint32).view(np.float32)
    return stored.astype(np.float32)


def _digest_of_file(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()
