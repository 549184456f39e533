"""Speed of fine-tuning on the calls of searches, with and without prefix packing."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.cli.benchmarks.runs import run_method
from pipeline.config import default
from pipeline.llm.embedded.bundled import BUNDLED_MODEL
from pipeline.traces.folder import RunFolder
from pipeline.training.call_collection import Report, Selection, read_calls
from pipeline.training.labelled import TrainingSource
from pipeline.training.llama import Checkpoint
from pipeline.training.rows import write_rows
from pipeline.training.sft.batches import Collator
from pipeline.training.sft.config import SFTConfig
from pipeline.training.sft.model import open_base
from pipeline.training.sft.prefix_packing import IGNORED
from pipeline.training.sft.texts import Encoded, TrainingText, encode, read_texts

_QUESTIONS = 100
_TOKENS_A_BATCH = 3000
_LONGEST = 1200


def training() -> dict[str, float]:
    """Trained tokens per second on ArG's calls, with prefix sharing and text by text."""
    return measure_training(open_base(str(BUNDLED_MODEL), default(SFTConfig)), questions=_QUESTIONS)


def measure_training(checkpoint: Checkpoint, *, questions: int, device: str = "cpu") -> dict[str, float]:
    """Return trained tokens per second on the calls of so many questions, with prefix sharing and text by text."""
    checkpoint.model.to(device)
    with tempfile.TemporaryDirectory() as scratch:
        texts = _calls(Path(scratch), questions)
    apart, shared = (_measure(texts, checkpoint, prefix_sharing=sharing) for sharing in (False, True))
    return {"apart_per_s": apart, "shared_per_s": shared, "shared_to_apart": shared / apart}


def _calls(folder: Path, questions: int) -> list[TrainingText]:
    run, rows = folder / "run", folder / "calls.jsonl"
    run_method(run, ["method=arg", "method.depth=3", "llm=oracle", f"run.limit={questions}", "dataset.split=train"])
    selection = default(Selection, merge_continuations=True)
    write_rows(read_calls([RunFolder(run)], default(TrainingSource), selection, Report()), rows)
    return list(read_texts([rows]))


def _measure(texts: list[TrainingText], checkpoint: Checkpoint, *, prefix_sharing: bool) -> float:
    """Return the tokens with loss per second of forward and backward pass."""
    encoded = encode(texts, checkpoint.tokenizer, _LONGEST, Counter(), prefix_sharing=prefix_sharing)
    collate = Collator(checkpoint.tokenizer.pad_token_id, branching=prefix_sharing)
    device = checkpoint.model.device
    batches = [collate([encoded[index] for index in indices]) for indices in _batches(encoded)]
    batches = [{name: values.to(device) for name, values in batch.items()} for batch in batches]
    _step(checkpoint, batches[0])  # the first pass sets up what later ones use
    began = time.perf_counter()
    for batch in batches:
        _step(checkpoint, batch)
    seconds = time.perf_counter() - began
    return sum(int((batch["labels"] != IGNORED).sum()) for batch in batches) / seconds


def _step(checkpoint: Checkpoint, batch: Mapping[str, Any]) -> None:
    """Do a forward and a backward pass, and wait for their end."""
    loss = checkpoint.model(**batch).loss
    loss.backward()
    loss.item()  # on a GPU, it is there only once all that was asked before is done


def _batches(encoded: Encoded) -> list[list[int]]:
    """Return batches of indices of texts of similar length, a few thousand tokens each."""
    batches: list[list[int]] = [[]]
    for index in sorted(range(len(encoded)), key=lambda index: encoded.items[index].shape[1]):
        if (len(batches[-1]) + 1) * encoded.items[index].shape[1] > _TOKENS_A_BATCH and batches[-1]:
            batches.append([])
        batches[-1].append(index)
    return batches
