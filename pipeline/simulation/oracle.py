"""The oracle: a simulated model that knows the gold paths and answers of every question, and can be made to err.

The oracle knows which relations lead to an answer and which nodes are on the way, and it recognises an answer. But it
answers from the evidence in a prompt: it never mentions an answer that the method has not found, not even where the
method falls back on the model's own knowledge. Its score therefore measures the logic of the method. The only exception
is `method=cot`, which asks the model alone: there the oracle gives the gold answers.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from random import Random
from typing import Annotated, Self
from weakref import WeakValueDictionary

from pydantic import ConfigDict, Field, NonNegativeFloat
from pydantic.dataclasses import dataclass

from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.interface import FROM_GOLD, OneModel
from pipeline.llm.prompt import Call, Completion
from pipeline.simulation.completions import simulated_completion
from pipeline.simulation.gold_context import GoldContext, find_gold_context
from pipeline.simulation.registry import load_simulators, simulator_of, write_as_oracle
from pipeline.types import RUNTIME_ONLY, Example

_NO_BRACKETS = str.maketrans("", "", "()[]{}<>")
_CURLY_QUOTES = str.maketrans({'"': "\u201d", "'": "\u2019"})

Rate = Annotated[float, Field(ge=0, le=1)]


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Oracle:
    """A model that knows the gold context of every question, and errs at the given rates.

    The keys are described in `conf/llm/oracle.yaml`.
    """

    error_rate: Rate
    malformed_rate: Rate
    latency_s: Annotated[NonNegativeFloat, RUNTIME_ONLY]
    foresight: bool
    simulators: tuple[str, ...]
    """The user's modules that register simulators."""

    def __post_init__(self) -> None:
        load_simulators(self.simulators)
        rates = f"error_rate={self.error_rate:g},malformed_rate={self.malformed_rate:g}"
        self.identity = f"oracle({rates})" if self.foresight else f"oracle({rates},foresight=false)"
        self.label: str | None = FROM_GOLD

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, example: Example, kg: KnowledgeGraph) -> QuestionOracle:
        """Return the oracle of one question about one graph.

        Configurations that ask the same question of the same graph share the gold context while any of them runs.
        """
        question = example.question
        key = (question.dataset, question.split, question.id, kg.fingerprint)
        lookup = self._lookups.get(key)
        if lookup is None or not lookup.is_of(example, kg):
            lookup = self._lookups[key] = _GoldContextLookup(example, kg, foresight=self.foresight)
        return QuestionOracle(self, lookup)

    @cached_property
    def _lookups(self) -> WeakValueDictionary[tuple[str, str, str, str], _GoldContextLookup]:
        """Gold contexts of the questions in flight, by dataset, split, question id and graph fingerprint."""
        return WeakValueDictionary()


class _GoldContextLookup:
    """The gold context of one question about one graph, looked up at first use."""

    def __init__(self, example: Example, kg: KnowledgeGraph, *, foresight: bool) -> None:
        self.question_id = example.question.id
        self._example = example
        self._kg = kg
        self._foresight = foresight
        self._found: GoldContext | None = None
        self._lock = asyncio.Lock()

    def is_of(self, example: Example, kg: KnowledgeGraph) -> bool:
        """Whether this is the context of exactly these objects.

        Two files may be read under one dataset name, and two backends with other limits may serve the same facts.
        """
        return self._example is example and self._kg is kg

    async def get(self) -> GoldContext:
        """Return the gold context. If the caller is cancelled during the lookup, the next one repeats it."""
        async with self._lock:
            if self._found is None:
                self._found = await find_gold_context(self._example, self._kg, foresight=self._foresight)
        return self._found


class QuestionOracle(OneModel):
    """Replies to the prompts of one question like a perfect model, or errs. Its draws are seeded by the call."""

    def __init__(self, oracle: Oracle, lookup: _GoldContextLookup) -> None:
        """Bind to a question; its gold context is looked up at the first call."""
        self.identity = oracle.identity
        self._oracle = oracle
        self._lookup = lookup

    async def complete(self, call: Call) -> Completion:
        """Return the reply of a perfect model, or a wrong or damaged one."""
        rng = self._rng(call)
        error_probability, error_rng = self._draw_error(rng)
        is_malformed = rng.random() < self._oracle.malformed_rate
        texts = await self._write(call, error_rng, rng)
        damaged = [is_malformed, *(rng.random() < self._oracle.malformed_rate for _ in texts[1:])]
        return simulated_completion(
            call,
            [damage(text, rng) if wrong else text for text, wrong in zip(texts, damaged, strict=True)],
            error_probability=error_probability,
            latency_s=self._oracle.latency_s,
        )

    async def choose(self, call: Call) -> Completion:
        """Prefer the choice that the written text mentions first. The others share the error probability."""
        rng = self._rng(call)
        error_probability, error_rng = self._draw_error(rng)
        (text,) = await self._write(call, error_rng, rng)
        mentioned = {choice: position for choice in call.choices if (position := text.find(choice)) >= 0}
        if not mentioned:
            raise ValueError(f"the oracle's reply to {call.prompt.role} mentions none of {call.choices}: {text}")
        favourite = min(mentioned, key=lambda choice: (mentioned[choice], -len(choice)))
        others = [choice for choice in call.choices if choice != favourite]
        shares = {choice: error_probability / len(others) for choice in others}
        probabilities = {choice: shares.get(choice, 1 - sum(shares.values())) for choice in call.choices}
        return simulated_completion(call, [favourite], probabilities=probabilities, latency_s=self._oracle.latency_s)

    def _rng(self, call: Call) -> Random:
        """Return a generator seeded by the call's inputs, except those that its simulator excludes."""
        excluded = simulator_of(call.prompt).seed_excluded_inputs
        inputs = sorted((name, text) for name, text in call.prompt.inputs().items() if name not in excluded)
        return Random(repr((self._lookup.question_id, call.prompt.role, inputs, call.choices, call.nonce)))

    def _draw_error(self, rng: Random) -> tuple[float, Random | None]:
        """Return the error probability of this call and, if the call errs, the generator to draw the error from.

        The model is calibrated: error probabilities are uniform around the error rate, and each call errs with its own
        probability. So the reported probabilities are informative, as those of a good model are.
        """
        rate = self._oracle.error_rate
        error_probability = rate + min(rate, 1 - rate) * (2 * rng.random() - 1)
        return error_probability, rng if rng.random() < error_probability else None

    async def _write(self, call: Call, error_rng: Random | None, rng: Random) -> list[str]:
        """Return the reply, or the candidates that the call asks for."""
        await asyncio.sleep(self._oracle.latency_s)
        gold_context, count = await self._lookup.get(), call.sampling.candidates
        if count == 1:
            return [write_as_oracle(call.prompt, gold_context, error_rng)]
        simulator = simulator_of(call.prompt)
        return simulator.write_candidates_as_oracle(call.prompt, gold_context, error_rng, rng, count)


def damage(text: str, rng: Random) -> str:
    """Damage a reply in one of the ways in which models do; the parser may or may not recover the value."""
    damaged = (
        text[: rng.randrange(len(text) + 1)],
        text.translate(_NO_BRACKETS),
        text.translate(_CURLY_QUOTES),
        f"```\n{text}\n```",
        f"Sure, here is what you asked for.\n\n{text}\n\nShall I explain any of it?",
        f"{text}\n{text}",
        "As far as I can tell, there is more than one way to look at this question.",
        "",
    )
    return rng.choice(damaged)
