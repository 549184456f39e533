"""Runs `transformers.Trainer` in one training worker."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import UserError
from pipeline.text import counted
from pipeline.training.llama import Checkpoint
from pipeline.training.sft.batches import Collator, block_mask
from pipeline.training.sft.config import SFTConfig
from pipeline.training.sft.model import open_base, with_adapter
from pipeline.training.sft.prefix_packing import IGNORED
from pipeline.training.sft.texts import Encoded, encode, read_texts, split

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback

LAST_ONLY = 1
"""Number of checkpoints kept: only the last one, from which a fine-tuning resumes, and which becomes its result."""


@dataclass(frozen=True)
class Task:
    """The model, texts and configuration of a fine-tuning."""

    model: str
    texts: tuple[Path, ...]
    sft_config: SFTConfig
    texts_per_device: int
    """Texts per worker and forward pass."""
    gpus: bool
    sharded: bool

    @property
    def blocks(self) -> bool:
        """Whether the mask is a block mask and the model is compiled: rows of equal length on a GPU."""
        return self.gpus and self.sft_config.row_tokens is not None


@dataclass(frozen=True)
class EncodedTexts:
    """The tokenized texts, split into training and evaluation."""

    training: Encoded
    evaluation: Encoded
    dropped: Mapping[str, int]
    count: int
    """The number of texts in both, of which packing puts several in one sequence."""


def prepare(task: Task, checkpoint: Checkpoint) -> EncodedTexts:
    """Read, split and tokenize the texts. Raises UserError if none is left to train on."""
    config, dropped = task.sft_config, Counter[str]()
    texts = list(read_texts(task.texts))
    if not texts:
        raise UserError(f"{', '.join(map(str, task.texts))}: no text to train on")
    training, evaluation = split(texts, config.evaluation_texts, config.seed)
    encoded = [
        encode(
            part,
            checkpoint.tokenizer,
            config.max_tokens,
            dropped,
            prefix_sharing=config.prefix_sharing,
            row_tokens=config.row_tokens,
        )
        for part in (training, evaluation)
    ]
    if not encoded[0]:
        raise UserError(
            f"none of {counted(len(texts), 'text')} is left to train on: increase recipe.max_tokens or decrease "
            "recipe.evaluation_texts"
        )
    return EncodedTexts(encoded[0], encoded[1], dropped, len(training) + len(evaluation) - sum(dropped.values()))


def train(
    task: Task, callbacks: list[TrainerCallback], resume_from: Path | None, on_texts: Callable[[EncodedTexts], None]
) -> None:
    """Train until the last step, from the beginning or from a checkpoint.

    `on_texts` receives the texts before the first step; `callbacks` receive every step.
    """
    checkpoint = open_base(task.model, task.sft_config, blocks=task.blocks)
    texts = prepare(task, checkpoint)
    on_texts(texts)
    fit(task, checkpoint, texts, callbacks, resume_from)


def fit(
    task: Task,
    checkpoint: Checkpoint,
    texts: EncodedTexts,
    callbacks: list[TrainerCallback],
    resume_from: Path | None = None,
) -> None:
    """Train an open model on tokenized texts. The arguments are as in `train`."""
    with tempfile.TemporaryDirectory(prefix="kgqa-sft-") as folder:
        trainer = _trainer(task, checkpoint, texts, folder)
        for callback in callbacks:
            trainer.add_callback(callback)
        trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)


def _trainer(task: Task, checkpoint: Checkpoint, texts: EncodedTexts, folder: str) -> Trainer:
    config, model = task.sft_config, checkpoint.model
    if config.adapter is not None:
        model = with_adapter(model, config.adapter, config.seed)
    model.config.use_cache = False
    return _trainer_class(blocks=task.blocks)(
        model=model,
        args=_arguments(task, folder, evaluate=len(texts.evaluation) > 0),
        train_dataset=texts.training,
        eval_dataset=texts.evaluation,
        data_collator=Collator(
            checkpoint.tokenizer.pad_token_id,
            branching=config.branching,
            # other shapes would compile the model again
            row_tokens=config.row_tokens if task.blocks else None,
            texts=task.texts_per_device if task.blocks else None,
        ),
        preprocess_logits_for_metrics=lambda logits, _: logits.argmax(-1),
        compute_metrics=_accuracy(),
    )


def _trainer_class(*, blocks: bool) -> type[Trainer]:
    from transformers import Trainer

    class BlockTrainer(Trainer):  # type: ignore[misc]
        """Makes the block mask of each batch on its device."""

        def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
            prepared = super()._prepare_inputs(inputs)
            ends = prepared.pop("ends")
            return {**prepared, "attention_mask": block_mask(ends)}

    return BlockTrainer if blocks else Trainer


def _arguments(task: Task, folder: str, *, evaluate: bool) -> Any:
    from transformers import TrainingArguments

    config = task.sft_config
    return TrainingArguments(
        output_dir=folder,
        num_train_epochs=config.epochs,
        max_steps=config.max_steps or -1,
        per_device_train_batch_size=task.texts_per_device,
        per_device_eval_batch_size=task.texts_per_device,
        gradient_accumulation_steps=config.gradient_accumulation,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.schedule,
        warmup_steps=config.warmup,  # a number below 1 is a share of the steps
        weight_decay=config.weight_decay,
        adam_beta2=config.beta2,
        bf16=config.precision == "bfloat16",
        fp16=config.precision == "float16",
        gradient_checkpointing=config.gradient_checkpointing,
        torch_compile=task.blocks,
        train_sampling_strategy="group_by_length",
        eval_strategy="steps" if evaluate else "no",
        eval_steps=config.checkpoint_steps,
        batch_eval_metrics=True,
        save_strategy="steps",
        save_steps=config.checkpoint_steps,
        save_total_limit=LAST_ONLY,
        logging_steps=config.log_steps,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not task.gpus,
        fsdp=task.sharded,
        dataloader_pin_memory=task.gpus,
        remove_unused_columns=False,
        seed=config.seed,
    )


def _accuracy() -> Callable[[Any, bool], dict[str, float]]:
    """Return a batchwise metric: the share of tokens with loss that greedy decoding would have written."""
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
