"""Packed texts give the same loss and gradient as separate texts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from pipeline.config import default
from pipeline.training.llama import LlamaShape, new_llama, train_tokenizer
from pipeline.training.sft.batches import Collator, block_mask
from pipeline.training.sft.config import SFTConfig
from pipeline.training.sft.prefix_packing import IGNORED, attention_mask, join_sequences, pack_prefixes
from pipeline.training.sft.texts import Encoded, TrainingText, encode
from pipeline.training.sft.worker import Task, _arguments

STARRED = "[Retrieve Relation]starred_actors[Fully Relevant][Retrieve Entity]"
OFFERED = "[Retrieve Relation]<paragraph>starred_actors;has_genre</paragraph>"
JUDGED = f"{OFFERED}starred_actors[Fully Relevant]has_genre[Unrelevant][Retrieve Entity]"
SHOWN = f"{JUDGED}<paragraph>(Öst, starred_actors, Nine Lanterns)</paragraph>"
ANSWERED = f"{SHOWN}Nine Lanterns[Fully Relevant][No Retrieval]Answer: Nine Lanterns"


def calls(question: str) -> list[TrainingText]:
    """Three calls: two continuations of the same text, and one that continues the second."""
    spans = [(STARRED, 19), (JUDGED, len(OFFERED)), (ANSWERED, len(SHOWN))]
    turn = {"role": "user", "content": question}
    return [TrainingText((turn,), text, ((begin, len(text)),)) for text, begin in spans]


@pytest.fixture(scope="module")
def texts() -> list[TrainingText]:
    return [*calls("who played in Nine Lanterns?"), *calls("what does Öst star in, or somebody else?")]


@pytest.fixture(scope="module")
def tokenizer(texts: list[TrainingText]) -> transformers.PreTrainedTokenizerFast:
    return train_tokenizer([ANSWERED, STARRED, *(text.parts[0] for text in texts)] * 10, 600)


@pytest.fixture(scope="module")
def llama(tokenizer: transformers.PreTrainedTokenizerFast) -> Any:
    return new_llama(tokenizer, default(LlamaShape, vocabulary=600, layers=2), seed=0)


def gradient(llama: Any, encoded: Encoded, *, branching: bool) -> tuple[float, torch.Tensor]:
    """The loss of all texts in one batch, and its gradient."""
    llama.zero_grad()
    batch = Collator(0, branching=branching)([encoded[place] for place in range(len(encoded))])
    loss = llama(**batch).loss
    loss.backward()
    return loss.item(), torch.cat([weights.grad.flatten() for weights in llama.parameters()])


def test_loss_and_gradient_equal_those_of_separate_texts(
    texts: list[TrainingText], tokenizer: transformers.PreTrainedTokenizerFast, llama: Any
) -> None:
    apart = encode(texts, tokenizer, 1000, Counter())
    shared = encode(texts, tokenizer, 1000, Counter(), prefix_sharing=True)
    assert (len(apart), len(shared)) == (6, 2)
    assert sum(item.shape[1] for item in shared.items) < 0.6 * sum(item.shape[1] for item in apart.items)
    loss, wanted = gradient(llama, apart, branching=False)
    shared_loss, found = gradient(llama, shared, branching=True)
    assert shared_loss == pytest.approx(loss, rel=1e-5)
    assert (found - wanted).norm() < 1e-4 * wanted.norm()


@pytest.mark.parametrize("prefix_sharing", [False, True])
def test_loss_and_gradient_of_joined_rows_equal_those_of_separate_texts(
    texts: list[TrainingText], tokenizer: transformers.PreTrainedTokenizerFast, llama: Any, prefix_sharing: bool
) -> None:
    apart = encode(texts, tokenizer, 1000, Counter())
    joined = encode(texts, tokenizer, 1000, Counter(), prefix_sharing=prefix_sharing, row_tokens=1000)
    assert len(joined) == 1
    loss, wanted = gradient(llama, apart, branching=False)
    joined_loss, found = gradient(llama, joined, branching=True)
    assert joined_loss == pytest.approx(loss, rel=1e-5)
    assert (found - wanted).norm() < 1e-4 * wanted.norm()


def test_joined_rows_hold_every_sequence_once_and_are_nearly_full() -> None:
    lengths = np.random.default_rng(0).integers(1, 400, 1000)
    sequences = [np.tile(np.arange(1, length + 1), (4, 1)) + number for number, length in enumerate(lengths)]
    rows = join_sequences(sequences, 1000)
    assert max(row.shape[1] for row in rows) <= 1000
    assert sum(row.shape[1] for row in rows) == lengths.sum() > 0.97 * 1000 * len(rows)
    found = sorted(token for row in rows for token in row[0].tolist())
    assert found == sorted(token for sequence in sequences for token in sequence[0].tolist())


def test_texts_that_do_not_fit_into_one_sequence_are_split(
    texts: list[TrainingText], tokenizer: transformers.PreTrainedTokenizerFast, llama: Any
) -> None:
    longest = max(item.shape[1] for item in encode(texts, tokenizer, 1000, Counter()).items)
    split = encode(texts, tokenizer, longest, Counter(), prefix_sharing=True)
    assert len(split) > 2
    assert max(item.shape[1] for item in split.items) <= longest
    whole = encode(texts, tokenizer, 1000, Counter(), prefix_sharing=True)
    assert gradient(llama, split, branching=True)[0] == pytest.approx(
        gradient(llama, whole, branching=True)[0], rel=1e-5
    )


def test_a_tree_is_laid_out_depth_first() -> None:
    rows = [([1, 2, 3], [IGNORED, 3, IGNORED]), ([1, 2, 4], [IGNORED, IGNORED, 9]), ([1, 5], [5, IGNORED])]
    (tree,) = pack_prefixes(rows, 10)
    assert tree.tolist() == [
        [1, 2, 3, 4, 5],
        [5, 3, IGNORED, 9, IGNORED],
        [0, 1, 2, 2, 1],
        [5, 4, 3, 4, 5],
    ]
    assert attention_mask(tree[3]).astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 0, 0, 0, 1],
    ]


def test_a_token_with_two_labels_occurs_once_for_each() -> None:
    (tree,) = pack_prefixes([([1, 2], [2, IGNORED]), ([1, 3], [3, IGNORED])], 10)
    assert tree[0].tolist() == [1, 2, 1, 3]
    assert tree[1].tolist() == [2, IGNORED, 3, IGNORED]
    assert not attention_mask(tree[3])[2:, :2].any()


def test_no_token_attends_to_padding(
    texts: list[TrainingText], tokenizer: transformers.PreTrainedTokenizerFast
) -> None:
    shared = encode(texts, tokenizer, 1000, Counter(), prefix_sharing=True)
    batch = Collator(0, branching=True)([shared[0], shared[1]])
    for item, mask, labels in zip(shared.items, batch["attention_mask"], batch["labels"], strict=True):
        tokens = item.shape[1]
        assert not mask[0, :tokens, tokens:].any()
        assert mask[0].any(-1).all()
        assert (labels[tokens:] == IGNORED).all()
        assert np.array_equal(labels[:tokens], item[1])


def test_an_incomplete_batch_is_filled_with_texts_without_loss(
    texts: list[TrainingText], tokenizer: transformers.PreTrainedTokenizerFast
) -> None:
    """Every batch of a compiled model has one shape, so fewer texts than a batch are trained on, too."""
    llama = new_llama(tokenizer, default(LlamaShape, vocabulary=600, layers=2), seed=0)
    joined = encode(texts, tokenizer, 1000, Counter(), prefix_sharing=True, row_tokens=1000)
    rows = [joined[place] for place in range(len(joined))]
    filled = Collator(0, branching=True, row_tokens=1024, texts=len(rows) + 3)(rows)
    assert {len(each) for each in filled.values()} == {len(rows) + 3}
    assert (filled["labels"][len(rows) :] == IGNORED).all()
    with torch.no_grad():
        loss = llama(**Collator(0, branching=True)(rows)).loss
        llama.set_attn_implementation("flex_attention")
        blocked = llama(attention_mask=block_mask(filled.pop("ends")), **filled).loss
    assert blocked.item() == pytest.approx(loss.item(), rel=1e-5)


def test_no_text_is_dropped_from_a_batch_on_a_gpu(tmp_path: Path) -> None:
    config = default(SFTConfig, row_tokens=1024, max_tokens=1000, precision="float32")
    task = Task("model", (), config, texts_per_device=8, gpus=True, sharded=False)
    assert task.blocks
    assert not _arguments(task, str(tmp_path), evaluate=True).dataloader_drop_last


def test_a_block_mask_gives_the_same_loss(
    texts: list[TrainingText], tokenizer: transformers.PreTrainedTokenizerFast
) -> None:
    llama = new_llama(tokenizer, default(LlamaShape, vocabulary=600, layers=2), seed=0)
    joined = encode(texts, tokenizer, 1000, Counter(), prefix_sharing=True, row_tokens=1000)
    rows = [joined[place] for place in range(len(joined))]
    inputs = Collator(0, branching=True, row_tokens=1024)(rows)
    assert inputs["input_ids"].shape == (len(rows), 1024)
    with torch.no_grad():  # FlexAttention computes no gradients on a CPU
        loss = llama(**Collator(0, branching=True)(rows)).loss
        llama.set_attn_implementation("flex_attention")
        blocked = llama(attention_mask=block_mask(inputs.pop("ends")), **inputs).loss
    assert blocked.item() == pytest.approx(loss.item(), rel=1e-5)
