"""The configuration of a fine-tuning: hyper-parameters, adapter and workers."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.training.llama import Precision


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class LoRA:
    """A low-rank adapter on every linear layer. Embeddings and output head are trained in full.

    The keys are described in `conf/train_arg.yaml`.
    """

    rank: PositiveInt = 16
    alpha: PositiveInt = 32
    dropout: float = Field(default=0.05, ge=0, lt=1)


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SFTConfig:
    """The hyper-parameters of supervised fine-tuning. Their defaults are in `conf/train_arg.yaml`."""

    reflection_tokens: bool
    """Add ArG's missing tokens to the vocabulary."""
    adapter: LoRA | None
    """None trains all weights."""
    epochs: PositiveFloat
    max_steps: PositiveInt | None
    """Optimiser steps; overrides `epochs`."""
    batch_size: PositiveInt
    """Texts per optimiser step, over all workers."""
    gradient_accumulation: PositiveInt
    """Number of parts into which each worker divides its share of a step."""
    learning_rate: PositiveFloat
    """The peak learning rate."""
    warmup: float = Field(ge=0, lt=1)
    """Share of the steps in which the learning rate rises."""
    schedule: Literal["cosine", "linear", "constant_with_warmup"]
    weight_decay: NonNegativeFloat
    beta2: float = Field(gt=0, lt=1)
    """AdamW β₂."""
    max_tokens: PositiveInt
    """Maximum length of a text with its prompt. Longer texts are left out and counted."""
    prefix_sharing: bool
    """Pack the texts of a question and role into prefix trees of at most `max_tokens`; compute common prefixes once."""
    row_tokens: PositiveInt | None
    """Join texts or prefix trees to rows of at most so many tokens, so that a GPU gets equal lengths. `batch_size` then
    counts rows. None joins none."""
    precision: Precision
    """Precision of the arithmetic; the weights are kept in single precision."""
    weights: Precision
    """Precision of the written weights."""
    gradient_checkpointing: bool
    """Recompute activations instead of storing them."""
    evaluation_texts: NonNegativeInt
    """Texts drawn for evaluation at every checkpoint; they are not trained on."""
    checkpoint_steps: PositiveInt
    log_steps: PositiveInt
    seed: int

    def __post_init__(self) -> None:
        """Raise UserError for rows that some texts would not fit into."""
        if self.row_tokens is not None and self.row_tokens < self.max_tokens:
            raise UserError(f"recipe.row_tokens={self.row_tokens} is less than recipe.max_tokens={self.max_tokens}")

    @property
    def branching(self) -> bool:
        """Whether a token may not see all tokens before it, so that batches need a mask."""
        return self.prefix_sharing or self.row_tokens is not None

    def texts_per_device(self, workers: int) -> int:
        """Return the texts per worker and forward pass. Raises UserError if the batch cannot be divided evenly."""
        texts, rest = divmod(self.batch_size, workers * self.gradient_accumulation)
        if rest:
            raise UserError(
                f"recipe.batch_size={self.batch_size} cannot be divided among workers.count={workers} with "
                f"recipe.gradient_accumulation={self.gradient_accumulation}: make it a multiple of their product"
            )
        return texts


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Workers:
    """The workers of Ray Train, each of which trains on a part of every batch.

    The keys are described in `conf/train_arg.yaml`.
    """

    count: PositiveInt
    gpus: bool
    """Whether each worker has a GPU; otherwise it trains on CPUs."""
    cpus: PositiveInt
    """CPUs per worker."""
    sharded: bool
    """Shard weights, gradients and optimiser state over the workers (FSDP), if a full copy does not fit."""
    address: str | None
    """The Ray cluster as HOST:PORT; None joins the cluster of the job, or starts one here."""
    max_failures: NonNegativeInt
    """How often lost workers are replaced; training resumes from the last checkpoint."""
