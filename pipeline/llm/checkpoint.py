"""The folder of a Hugging Face checkpoint: what decides its answers, its settings and its weights."""

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

_DECIDING = ("*.safetensors", "*.bin", "*.json", "*.jinja", "*.model")
"""What decides the answers of a checkpoint: weights, configuration, tokenizer and chat template."""

_NUMBERS: Mapping[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""The formats of weights that are read. NumPy has none for bfloat16, which is the upper half of a float32."""


@lru_cache
def digest_of(folder: Path) -> str:
    """Digest of the files that decide what a checkpoint answers. It reads them whole: weights may differ anywhere.

    Raises UserError for a folder without any.
    """
    files = sorted({file for pattern in _DECIDING for file in folder.glob(pattern)})
    if not files:
        raise UserError(f"{folder} holds no checkpoint: there is no config.json and no file of weights in it")
    whole = hashlib.blake2b(digest_size=4)
    with ThreadPoolExecutor() as pool:
        for file, digest in zip(files, pool.map(_digest_of_file, files), strict=True):
            whole.update(file.name.encode() + digest)
    return whole.hexdigest()


def read_settings(folder: Path, name: str, *, required: bool = True) -> dict[str, Any]:
    """A JSON file of a checkpoint; {} where it may be missing and is. Raises UserError where it cannot be read."""
    file = folder / name
    if not file.is_file() and not required:
        return {}
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} holds no checkpoint of Hugging Face's form: there is no {name} in it") from None
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise UserError(f"{file} should hold a JSON object")
    return settings


def read_weights(folder: Path) -> dict[str, Array]:
    """All weights of a checkpoint by name, as float32. Raises UserError without safetensors, or for another format.

    A safetensors file is the length of its header, the header in JSON, and the numbers of one tensor after the other.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder} holds no weights as safetensors: save the model with save_pretrained")
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
            f"{file} has weights in a format that is not read, {error}; known: {', '.join(_NUMBERS)}"
        ) from None
    except ValueError as error:
        raise UserError(f"{file} is no whole safetensors file: {error}") from None


def _read_tensor(tensor: Mapping[str, Any], numbers: memoryview) -> Array:
    first, last = tensor["data_offsets"]
    stored = np.frombuffer(numbers[first:last], dtype=_NUMBERS[tensor["dtype"]]).reshape(tensor["shape"])
    if tensor["dtype"] == "BF16":
        return np.left_shift(stored, 16, dtype=np.uint32).view(np.float32)
    return stored.astype(np.float32)


def _digest_of_file(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()
