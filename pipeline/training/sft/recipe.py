"""What a model is trained with: every choice that decides the weights, and how the work is spread."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.training.llama import Precision


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class LoRA:
    """A low-rank adapter on every linear layer; the rows of embeddings and output head are trained as a whole."""

    rank: PositiveInt = 16
    alpha: PositiveInt = 32
    dropout: float = Field(default=0.05, ge=0, lt=1)


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Recipe:
    """The hyper-parameters of supervised fine-tuning. Their defaults are ArG's (methods.md §7.2)."""

    reflection_tokens: bool = True
    """Add ArG's tokens to the vocabulary where they are missing."""
    adapter: LoRA | None = None
    """None trains all weights."""
    epochs: PositiveFloat = 3
    max_steps: PositiveInt | None = None
    """Steps of the optimiser, in place of epochs."""
    batch_size: PositiveInt = 16
    """Texts per step, over all workers."""
    gradient_accumulation: PositiveInt = 1
    """Parts that a worker takes its share of a step in."""
    learning_rate: PositiveFloat = 1e-5
    """Its peak."""
    warmup: float = Field(default=0.03, ge=0, lt=1)
    """Share of the steps in which the learning rate rises."""
    schedule: Literal["cosine", "linear", "constant_with_warmup"] = "cosine"
    weight_decay: NonNegativeFloat = 0.0
    beta2: float = Field(default=0.999, gt=0, lt=1)
    """Of AdamW's two decays the slower one."""
    max_tokens: PositiveInt = 2048
    """Longest text with its prompt. Longer ones are left out and counted."""
    prefix_sharing: bool = False
    """Compute once what texts of the same prompt begin with alike. They are one text then, of `max_tokens` at most."""
    precision: Precision = "bfloat16"
    """Of the arithmetic; the weights are kept in single precision."""
    weights: Precision = "bfloat16"
    """Of the weights that are written in the end."""
    gradient_checkpointing: bool = False
    """Compute activations twice rather than keep them."""
    evaluation_texts: NonNegativeInt = 200
    """Texts that are drawn from all, not trained on, and measured at every checkpoint."""
    checkpoint_steps: PositiveInt = 200
    log_steps: PositiveInt = 10
    seed: int = 0

    def share(self, workers: int) -> int:
        """The texts that each worker takes at once. Raises UserError where they cannot be shared out."""
        share, rest = divmod(self.batch_size, workers * self.gradient_accumulation)
        if rest:
            raise UserError(
                f"recipe.batch_size={self.batch_size} cannot be shared out among workers={workers} with "
                f"recipe.gradient_accumulation={self.gradient_accumulation}: make it a multiple of their product"
            )
        return share


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Workers:
    """Who trains: processes of Ray Train, each with a part of every batch."""

    count: PositiveInt = 1
    gpus: bool = False
    """Give each worker a GPU; otherwise it trains on CPUs."""
    cpus: PositiveInt = 1
    """CPUs of each worker."""
    sharded: bool = False
    """Each worker holds a part of weights, gradients and optimiser state, where a whole copy does not fit."""
    address: str | None = None
    """The Ray cluster, HOST:PORT; null joins the one that the job runs on, or starts one here."""
    max_failures: NonNegativeInt = 3
    """Times that lost workers are replaced, the training going on from the last checkpoint."""
