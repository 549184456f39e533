"""Writes tiny encoder models, because the models of the papers are not in the tests' environment."""

from __future__ import annotations

import string
from pathlib import Path

import torch
import transformers

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_encoder(folder: Path, *, seed: int = 0, size: int = 16) -> Path:
    """Write a random one-layer model that spells words letter by letter, as a folder that names no pooling."""
    letters = string.ascii_lowercase + string.digits + ".,?'-_"
    vocabulary = [*_SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    shape = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=size,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * size,
        max_position_embeddings=512,
    )
    transformers.BertModel(shape).save_pretrained(folder)
    return folder
