"""R3-Cycle: let an agent reason in a graph, look back when it failed, replan from the advice (methods.md §6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from math import ceil
from typing import Literal, TypeVar

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted, ContextOverflow
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.answering import Answers
from pipeline.methods.concluding import entity_names, link, majority
from pipeline.methods.port import Tools
from pipeline.methods.r3.actions import ActionLine, read_finish
from pipeline.methods.r3.agent import NextAction, Thought, ThoughtAndAction, Turn
from pipeline.methods.r3.environment import Environment, environment
from pipeline.methods.r3.guess import Guess
from pipeline.methods.r3.memory import Memory, Step, digest
from pipeline.methods.r3.reflect import Failure, Guidance, Reflect
from pipeline.methods.r3.verify import Verify, break_a_rule
from pipeline.text import normalise
from pipeline.types import Answer, Prediction, Question, Status

T = TypeVar("T")

_CHARACTERS_PER_TOKEN = 4
"""By which the length of a prompt is estimated."""
_LEAST_CAP = 100


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class R3:
    """Reason, retrospect, replan. Its hyper-parameters are described in `conf/method/r3.yaml`."""

    name: str = "r3"
    samples: PositiveInt = 1
    step_limit: PositiveInt = 10
    max_retries: NonNegativeInt = 1
    failure_signal: Literal["none", "self_judge", "rules", "gold"] = "self_judge"
    memory: bool = True
    reflection: bool = True
    adaptive_steps: bool = True
    halted_extension: NonNegativeFloat = 0.5
    incorrect_extension: NonNegativeFloat = 0.0
    extension_base: Literal["initial", "previous"] = "initial"
    force_retry: bool = False
    on_halt_guess: bool = False
    calls_per_step: Literal[1, 2] = 2
    context_limit: PositiveInt = 10_000
    observation_cap: PositiveInt = 2000
    memory_digest_lines: NonNegativeInt = 30
    temperature: NonNegativeFloat = 0.0
    sample_temperature: NonNegativeFloat = 0.7
    parse_retries: NonNegativeInt = 2
    max_tokens: PositiveInt = 300
    max_tokens_other: PositiveInt = 1024

    @model_validator(mode="after")
    def _mark(self) -> R3:
        """A row whose retries gold has decided says so wherever the name is printed (§6.6)."""
        if self.refereed and "oracle" not in self.name:
            object.__setattr__(self, "name", f"{self.name} (oracle)")
        return self

    @property
    def refereed(self) -> bool:
        """Whether the failure signal is one bit of gold."""
        return self.failure_signal == "gold"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Run the cycle, as often as there are samples, one after the other, and return what most of them say."""
        cycles = []
        for _ in range(self.samples):
            cycles.append(await self._cycle(_Case(question, tools, environment(question, tools))))
            if cycles[-1].exhausted:
                break
        return self._answer(question, tools, cycles)

    async def _cycle(self, case: _Case) -> _Cycle:
        """§6.4: attempts, each from an empty scratchpad, until one is accepted or the retries are spent."""
        cycle = _Cycle()
        guidance: Guidance | None = None
        limit, cap = self.step_limit, self.observation_cap
        try:
            for number in range(self.max_retries + 1):
                attempt = await self._attempt(case, number, limit, cap, guidance)
                cycle.attempts.append(attempt)
                if number == self.max_retries or attempt.halted == "budget":
                    break  # whatever was found out about this one would change nothing
                failure = await self._classify(case, attempt)
                if failure is None:
                    break
                guidance = await self._reflect(case, attempt, failure) if self.reflection else None
                if guidance and not guidance.retry and not self.force_retry:
                    break
                limit = self._next_limit(limit, failure)
                cap = max(_LEAST_CAP, cap // 2) if attempt.halted == "context" else cap
        except BudgetExhausted:
            cycle.exhausted = True
        except ContextOverflow as error:  # nobody can look back over this attempt
            case.tools.record("error", error=str(error))
        cycle.exhausted |= any(attempt.halted == "budget" for attempt in cycle.attempts)
        await self._guess(case, cycle)
        return cycle

    def _next_limit(self, limit: int, failure: Failure) -> int:
        """A halted attempt needs more steps, an incorrect one other steps."""
        if not self.adaptive_steps:
            return limit
        extension = self.halted_extension if failure == "halted" else self.incorrect_extension
        return ceil((self.step_limit if self.extension_base == "initial" else limit) * (1 + extension))

    # Reason (§6.2)

    async def _attempt(self, case: _Case, number: int, limit: int, cap: int, guidance: Guidance | None) -> _Attempt:
        """Thought, action, observation, until `Finish`, the step limit or the context limit."""
        attempt = _Attempt(number)
        steps = attempt.memory.steps
        try:
            while attempt.answers is None and attempt.halted is None:
                if len(steps) == limit:
                    attempt.halted = "steps"
                else:
                    await self._step(case, attempt, cap, guidance)
        except ContextOverflow:
            attempt.halted = "context"
        except BudgetExhausted:
            attempt.halted = "budget"
        case.tools.record(
            "attempt_end",
            attempt=number,
            outcome="halted" if attempt.halted else "finished",
            reason=attempt.halted,
            steps=len(steps),
            limit=limit,
            answers=attempt.answers,
        )
        return attempt

    async def _step(self, case: _Case, attempt: _Attempt, cap: int, guidance: Guidance | None) -> None:
        memory = attempt.memory
        shown = digest(memory.path, self.memory_digest_lines) if self.memory and not self.reflection else ()
        turn = Turn(case.question, case.graph.domain, tuple(memory.steps), guidance, tuple(shown))
        decided = await self._decide(case, turn)
        if decided is None:
            attempt.halted = "context"
            return
        thought, line = decided
        before = [action for action in line.actions if action.tool != "Finish"]
        finish = next((action for action in line.actions if action.tool == "Finish"), None)
        seen = await case.graph.execute(before, cap) if before or finish is None else ()
        step = Step(turn.number, thought, line.text, seen)
        memory.steps.append(step)
        learnt = [entry for entry in memory.path if entry["step"] == step.number]
        case.tools.record("step", attempt=attempt.number, number=step.number, action=line.text, learnt=learnt)
        if finish is not None:
            attempt.answers, attempt.raw = read_finish(finish.content), line.text

    async def _decide(self, case: _Case, turn: Turn) -> tuple[str, ActionLine] | None:
        """The next thought and action; None when the prompt is longer than the context limit (§6.8)."""
        if self.calls_per_step == 1:
            both = ThoughtAndAction(turn)
            if not self._fits(both):
                return None
            return await self._call(case, both, ("\nObservation",))
        first = Thought(turn)
        if not self._fits(first):
            return None
        thought = await self._call(case, first, ("\n",))
        return thought, await self._call(case, NextAction(turn, thought), ("\n",))

    @property
    def _room(self) -> int:
        """Characters that a prompt may take."""
        return self.context_limit * _CHARACTERS_PER_TOKEN

    def _fits(self, prompt: Prompt[T]) -> bool:
        characters = sum(len(message.content) for message in prompt.messages())
        return characters <= self._room

    async def _call(self, case: _Case, prompt: Prompt[T], stop: tuple[str, ...]) -> T:
        temperature = self.sample_temperature if self.samples > 1 else self.temperature
        sampling = Sampling(temperature=temperature, max_tokens=self.max_tokens, stop=stop)
        return await case.tools.llm.ask(prompt, sampling, retries=0)

    # Retrospect (§6.6, §6.7)

    async def _classify(self, case: _Case, attempt: _Attempt) -> Failure | None:
        """Whether and how an attempt failed, by the failure signal (§6.6)."""
        if attempt.answers is None:
            return "halted"
        why: str | None = None
        match self.failure_signal:
            case "none":
                accepted = True
            case "rules":
                why = break_a_rule(attempt.answers, attempt.memory)
                accepted = why is None
            case "gold":
                assert case.tools.verdict is not None, "the engine hands the bit to a method that is refereed"
                accepted = case.tools.verdict(_linked(attempt.answers, attempt.memory))
            case _:
                prompt = Verify(case.question, attempt.answers, attempt.memory.lines, self._room)
                verdict = await self._ask(case, prompt)
                accepted, why = verdict.accept, verdict.why
        case.tools.record("judged", attempt=attempt.number, signal=self.failure_signal, accepted=accepted, why=why)
        return None if accepted else "incorrect"

    async def _reflect(self, case: _Case, attempt: _Attempt, failure: Failure) -> Guidance:
        """One look back over the whole attempt; without memory only over its outcome."""
        prompt = Reflect(case.question, case.graph.domain, failure, attempt.answers, room=self._room)
        if self.memory:
            seen = attempt.memory
            prompt = replace(prompt, path=seen.lines, log=tuple(seen.log), steps=tuple(seen.steps))
        guidance = await self._ask(case, prompt)
        case.tools.record(
            "reflected",
            attempt=attempt.number,
            failure=failure,
            root_cause=guidance.root_cause,
            category=guidance.category,
            advice=guidance.advice,
            avoid=guidance.avoid,
            retry=guidance.retry,
        )
        return guidance

    async def _guess(self, case: _Case, cycle: _Cycle) -> None:
        """Where no attempt has finished, answer from what the last one learnt, if that is wanted (§6.9)."""
        if not self.on_halt_guess or not cycle.attempts or cycle.best is not None:
            return
        memory = cycle.attempts[-1].memory
        prompt = Guess(case.question, memory.lines, tuple(memory.steps), self._room)
        guessed = await self._ask(case, prompt, last=True)
        cycle.attempts[-1].answers, cycle.attempts[-1].raw = guessed.texts, guessed.raw

    async def _ask(self, case: _Case, prompt: Prompt[T], *, last: bool = False) -> T:
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens_other)
        return await case.tools.llm.ask(prompt, sampling, retries=self.parse_retries, last=last)

    # Answering (§6.9)

    def _answer(self, question: Question, tools: Tools, cycles: list[_Cycle]) -> Answer:
        voted, chosen = self._vote(cycle.best for cycle in cycles)
        initial, _ = self._vote(attempt for cycle in cycles for attempt in cycle.attempts[:1])
        chosen = chosen or next(reversed(cycles[-1].attempts), None)
        memory = chosen.memory if chosen else Memory()
        texts = [prediction.text for prediction in voted]
        evidence = tuple((fact,) for fact in memory.triples[: tools.caps.max_evidence_triples])
        status = _status(question, tools, memory, exhausted=any(cycle.exhausted for cycle in cycles))
        tools.record("answered", answers=texts, attempt=chosen.number if chosen else None, status=status)
        return Answer(
            predictions=voted,
            raw=chosen.raw if chosen else "",
            evidence=evidence,
            names=entity_names(evidence, memory.names),
            status=status,
            initial=initial if self.max_retries else None,
        )

    def _vote(self, attempts: Iterable[_Attempt | None]) -> tuple[tuple[Prediction, ...], _Attempt | None]:
        """What most of the attempts that finished say, and the first that says so; nothing where none finished."""
        finished = [attempt for attempt in attempts if attempt is not None and attempt.answers is not None]
        if not finished:
            return (), None
        voted = majority([Answers(attempt.answers or (), attempt.raw) for attempt in finished])
        first = {normalise(prediction.text) for prediction in voted[:1]}
        agreeing = (one for one in finished if first & set(map(normalise, one.answers or ())))
        chosen = next(agreeing, finished[0])
        resolved = _linked(tuple(prediction.text for prediction in voted), chosen.memory)
        if self.samples > 1:
            resolved = tuple(
                Prediction(one.text, one.id, vote.score) for one, vote in zip(resolved, voted, strict=True)
            )
        return resolved, chosen


@plain_dataclass(frozen=True, slots=True)
class _Case:
    """A question, and all there is to work on it with."""

    question: Question
    tools: Tools
    graph: Environment


@plain_dataclass(slots=True)
class _Attempt:
    """A run of the agent from an empty scratchpad."""

    number: int
    memory: Memory = field(default_factory=Memory)
    answers: tuple[str, ...] | None = None
    """None until it has finished; may then be empty."""
    raw: str = ""
    halted: Literal["steps", "context", "budget"] | None = None


@plain_dataclass(slots=True)
class _Cycle:
    """All attempts at one question."""

    attempts: list[_Attempt] = field(default_factory=list)
    exhausted: bool = False

    @property
    def best(self) -> _Attempt | None:
        """The latest attempt that finished, if any: an accepted one is the last one that was made (§6.9)."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.answers is not None), None)


def _linked(texts: tuple[str, ...], memory: Memory) -> tuple[Prediction, ...]:
    """The answers, each with the id of the one node that an attempt was shown under this name."""
    names = memory.names
    return link(texts, names, names)


def _status(question: Question, tools: Tools, memory: Memory, *, exhausted: bool) -> Status:
    if exhausted:
        return "budget_exhausted"
    if memory.learnt:
        return "ok"
    return "no_evidence" if question.topic_entities or tools.attributes else "no_topic_entity"
