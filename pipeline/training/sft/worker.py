"""What each training worker does: `transformers.Trainer` over its part of the texts."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import UserError
from pipeline.training.llama import Checkpoint
from pipeline.training.sft.batches import Collator
from pipeline.training.sft.model import open_base, with_adapter
from pipeline.training.sft.recipe import Recipe
from pipeline.training.sft.texts import Encoded, encode, read_texts, split
from pipeline.training.sft.trees import IGNORED

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback

LAST_ONLY = 1
"""Checkpoints kept: the one to go on from."""


@dataclass(frozen=True)
class Task:
    """What is trained on what."""

    model: str
    texts: tuple[Path, ...]
    recipe: Recipe
    share: int
    """Texts that this worker takes at once."""
    gpus: bool
    sharded: bool


@dataclass(frozen=True)
class Material:
    """The texts, encoded."""

    training: Encoded
    evaluation: Encoded
    dropped: Mapping[str, int]


def prepare(task: Task, checkpoint: Checkpoint) -> Material:
    """Read, split and encode the texts. Raises UserError when none is left to train on."""
    recipe, dropped = task.recipe, Counter[str]()
    training, evaluation = split(list(read_texts(task.texts)), recipe.evaluation_texts, recipe.seed)
    encoded = [
        encode(texts, checkpoint.tokenizer, recipe.max_tokens, dropped, prefix_sharing=recipe.prefix_sharing)
        for texts in (training, evaluation)
    ]
    if not encoded[0]:
        raise UserError(
            f"of {sum(dropped.values()) + len(encoded[1]):,} texts none is left to train on: raise "
            "recipe.max_tokens, or lower recipe.evaluation_texts"
        )
    return Material(encoded[0], encoded[1], dropped)


def train(
    task: Task, callbacks: list[TrainerCallback], resume_from: Path | None, on_material: Callable[[Material], None]
) -> None:
    """Train until the recipe's last step, from a checkpoint where there is one.

    `on_material` is told of the texts before the first step, and `callbacks` see every step.
    """
    checkpoint = open_base(task.model, task.recipe)
    material = prepare(task, checkpoint)
    on_material(material)
    with tempfile.TemporaryDirectory(prefix="kgqa-sft-") as folder:
        trainer = _trainer(task, checkpoint, material, folder)
        for callback in callbacks:
            trainer.add_callback(callback)
        trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)


def _trainer(task: Task, checkpoint: Checkpoint, material: Material, folder: str) -> Trainer:
    from transformers import Trainer

    recipe, model = task.recipe, checkpoint.model
    if recipe.adapter is not None:
        model = with_adapter(model, recipe.adapter, recipe.seed)
    model.config.use_cache = False
    return Trainer(
        model=model,
        args=_arguments(task, folder, evaluate=len(material.evaluation) > 0),
        train_dataset=material.training,
        eval_dataset=material.evaluation,
        data_collator=Collator(checkpoint.tokenizer.pad_token_id, branching=recipe.prefix_sharing),
        preprocess_logits_for_metrics=lambda logits, _: logits.argmax(-1),
        compute_metrics=_accuracy(),
    )


def _arguments(task: Task, folder: str, *, evaluate: bool) -> Any:
    from transformers import TrainingArguments

    recipe = task.recipe
    return TrainingArguments(
        output_dir=folder,
        num_train_epochs=recipe.epochs,
        max_steps=recipe.max_steps or -1,
        per_device_train_batch_size=task.share,
        per_device_eval_batch_size=task.share,
        gradient_accumulation_steps=recipe.gradient_accumulation,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type=recipe.schedule,
        warmup_steps=recipe.warmup,  # a number below 1 is a share
        weight_decay=recipe.weight_decay,
        adam_beta2=recipe.beta2,
        bf16=recipe.precision == "bfloat16",
        fp16=recipe.precision == "float16",
        gradient_checkpointing=recipe.gradient_checkpointing,
        train_sampling_strategy="group_by_length",
        eval_strategy="steps" if evaluate else "no",
        eval_steps=recipe.checkpoint_steps,
        batch_eval_metrics=True,
        save_strategy="steps",
        save_steps=recipe.checkpoint_steps,
        save_total_limit=LAST_ONLY,
        logging_steps=recipe.log_steps,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not task.gpus,
        fsdp=task.sharded,
        dataloader_pin_memory=task.gpus,
        remove_unused_columns=False,
        seed=recipe.seed,
    )


def _accuracy() -> Callable[[Any, bool], dict[str, float]]:
    """How many of the tokens that carry loss are what greedy decoding would have written; told batch by batch."""
    right = total = 0

    def add(batch: Any, compute_result: bool) -> dict[str, float]:
        nonlocal right, total
        counted = batch.label_ids != IGNORED
        right += int(((batch.label_ids == batch.predictions) & counted).sum())
        total += int(counted.sum())
        if not compute_result:
            return {}
        accuracy = right / max(1, total)
        right = total = 0
        return {"accuracy": accuracy}

    return add
