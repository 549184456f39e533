"""ArG's hyper-parameters and what follows from them (specification §4.4)."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass

from pipeline.llm.prompt import Sampling
from pipeline.methods.arg.entities import FactLayout
from pipeline.methods.arg.generation import Generator, Probabilities
from pipeline.methods.arg.scores import Aggregate, ScoreAt, SeqScore, Terms, UtilityWeights
from pipeline.methods.arg.tails import TailOrder
from pipeline.methods.arg.tree import RelationRank
from pipeline.methods.interface import Tools


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Settings:
    """The keys of `conf/method/arg.yaml`, where they are described and have their defaults."""

    generator: Literal["finetuned", "prompted"]
    probabilities: Probabilities
    name: str
    beam: NonNegativeInt | Literal["exhaustive"]
    max_hops: PositiveInt
    max_regenerate: NonNegativeInt
    retrieval: Literal["model", "always"]
    retrieve_k: PositiveInt
    hypo: bool
    naive_retriever: bool
    group_size: PositiveInt
    max_tails_shown: PositiveInt
    max_tails_fetched: PositiveInt
    tail_order: TailOrder
    facts: FactLayout
    cvt_fanout: PositiveInt
    k1: NonNegativeFloat
    k2: NonNegativeFloat
    score: Terms
    score_at: ScoreAt
    seq_score: SeqScore
    utility_weights: UtilityWeights
    aggregate: Aggregate
    relation_rank: RelationRank
    on_unreasonable: Literal["leaf", "drop"]
    on_all_unrelevant: Literal["inherit", "end"]
    force_answer: bool
    answer_leaves: PositiveInt
    temperature: NonNegativeFloat
    top_p: NonNegativeFloat
    max_new_tokens: PositiveInt
    logprobs: PositiveInt

    @field_validator("name")
    @classmethod
    def _name_the_variant(cls, name: str, info: ValidationInfo) -> str:
        """Add to the name, in every table, what makes this variant incomparable to the published results."""
        if info.data.get("generator") == "prompted" and "arg-prompted" not in name:
            name = f"arg-prompted {name.removeprefix('arg').strip()}".strip()
        if info.data.get("probabilities") == "hard" and "hard_scores" not in name:
            name = f"{name} (hard_scores)"
        return name

    @model_validator(mode="after")
    def _has_a_retriever(self) -> Settings:
        if not (self.hypo or self.naive_retriever):
            raise ValueError("ArG needs a relation retriever: set hypo=true or naive_retriever=true")
        return self

    @property
    def width(self) -> int:
        """The beam width; 0 keeps all nodes."""
        return 0 if self.beam == "exhaustive" else self.beam

    @property
    def prompted(self) -> bool:
        """Whether the prompts explain the tokens."""
        return self.generator == "prompted"

    def model(self, tools: Tools) -> Generator:
        """Return the model of a question as the search uses it."""
        sampling = Sampling(self.temperature, self.max_new_tokens, self.top_p, logprobs=self.logprobs)
        return Generator(tools.llm, sampling, self.probabilities, self.max_regenerate)
