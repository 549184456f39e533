"""R3-Cycle: an agent reasons in a graph, reflects on a failed attempt, and retries with advice (specification §6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from math import ceil
from typing import ClassVar, Literal, TypeVar, get_args

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted, ContextOverflow
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.answer_linking import entity_names, link, majority
from pipeline.methods.answering import Answers
from pipeline.methods.exploration import record_cut_evidence
from pipeline.methods.interface import Caps, Tools
from pipeline.methods.r3.actions import ActionLine, read_finish
from pipeline.methods.r3.environment import Environment, environment
from pipeline.methods.r3.fallback_answer import FallbackAnswer
from pipeline.methods.r3.memory import Memory, Step, digest, listings
from pipeline.methods.r3.reflect import Failure, Guidance, Reflect
from pipeline.methods.r3.step_prompts import NextAction, Thought, ThoughtAndAction, Turn
from pipeline.methods.r3.verify import Verify, broken_rule
from pipeline.normalisation import normalise
from pipeline.types import Answer, LiteralNode, Prediction, Question, Relation, Status

T = TypeVar("T")

_CHARACTERS_PER_TOKEN = 4
"""Estimates the length of a prompt in tokens."""
_COUNTDOWN = 3
"""The last steps before the limit, whose prompts say how many are left. Earlier prompts are equal for every limit, so a
sweep of the limit shares their calls."""
_STOP_THOUGHT = ("\nAction", "\nObservation")
_STOP_ACTION = ("\nObservation", "\nThought")
"""Where a reply ends. A line break is no stop: some models begin with one. Of more lines, the first one counts."""
_MIN_OBSERVATION_CAP = 100
"""Characters that an observation may have, however often the cap is halved."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class R3:
    """Reason, retrospect, replan. Its hyper-parameters are described in `conf/method/r3.yaml`."""

    prompts: ClassVar = (Thought, NextAction, ThoughtAndAction, Verify, Reflect, FallbackAnswer)
    name: str
    samples: PositiveInt
    step_limit: PositiveInt
    max_retries: NonNegativeInt
    failure_signal: Literal["none", "self_judge", "rules", "gold"]
    memory: bool
    reflection: bool
    adaptive_steps: bool
    halted_extension: NonNegativeFloat
    incorrect_extension: NonNegativeFloat
    extension_base: Literal["initial", "previous"]
    force_retry: bool
    on_halt_guess: bool
    calls_per_step: Literal[1, 2]
    context_limit: PositiveInt
    observation_cap: PositiveInt
    error_hints: bool
    memory_digest_lines: NonNegativeInt
    temperature: NonNegativeFloat
    sample_temperature: NonNegativeFloat
    parse_retries: NonNegativeInt
    max_tokens: PositiveInt
    max_tokens_other: PositiveInt

    @property
    def uses_gold(self) -> bool:
        """Whether the failure signal is one bit of gold (specification §6.6)."""
        return self.failure_signal == "gold"

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Bound the calls (§6.12): the steps of all attempts, a check and a reflection after each, and a guess."""
        limits = [self.step_limit]
        for _ in range(self.max_retries):
            limits.append(max(self._next_limit(limits[-1], failure) for failure in get_args(Failure)))
        checks = (1 + self.parse_retries) * (2 * len(limits) + 1)
        return self.samples * (self.calls_per_step * sum(limits) + checks)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Run the cycle once per sample, one after the other, and return the majority answer."""
        state = QuestionState(question, tools, environment(question, tools, error_hints=self.error_hints))
        cycles = []
        for _ in range(self.samples):
            cycles.append(await self._cycle(state))
            if cycles[-1].exhausted:
                break
        return self._answer(state, cycles)

    async def _cycle(self, state: QuestionState) -> _Cycle:
        """Make attempts from an empty scratchpad until one is accepted or no retry is left (specification §6.4)."""
        cycle = _Cycle()
        guidance: Guidance | None = None
        limit, cap = self.step_limit, self.observation_cap
        try:
            for number in range(self.max_retries + 1):
                attempt = await self._attempt(state, number, limit, cap, guidance)
                cycle.attempts.append(attempt)
                if number == self.max_retries or attempt.halted == "budget":
                    break  # there is no retry, so it does not matter whether the attempt failed
                failure = await self._classify(state, attempt)
                if failure is None:
                    break
                guidance = await self._reflect(state, attempt, failure) if self.reflection else None
                if guidance and not guidance.retry and not self.force_retry:
                    break
                limit = self._next_limit(limit, failure)
                cap = max(_MIN_OBSERVATION_CAP, cap // 2) if attempt.halted == "context" else cap
        except BudgetExhausted:
            cycle.exhausted = True
        except ContextOverflow as error:  # the attempt is too long to verify it or to reflect on it
            if not cycle.attempts:
                raise
            state.tools.record("error", error=str(error))
        cycle.exhausted |= any(attempt.halted == "budget" for attempt in cycle.attempts)
        if self.on_halt_guess and cycle.attempts and cycle.best is None:
            guess = await self._fallback_answer(state, cycle.attempts[-1].memory)
            cycle.guess = replace(cycle.attempts[-1], answers=guess.texts, raw=guess.raw)
        return cycle

    def _next_limit(self, limit: int, failure: Failure) -> int:
        """Return the step limit of a retry: a halted attempt needs more steps than an incorrect one."""
        if not self.adaptive_steps:
            return limit
        extension = self.halted_extension if failure == "halted" else self.incorrect_extension
        return ceil((self.step_limit if self.extension_base == "initial" else limit) * (1 + extension))

    # Reason (specification §6.2)

    async def _attempt(
        self, state: QuestionState, number: int, limit: int, cap: int, guidance: Guidance | None
    ) -> _Attempt:
        """Make steps until `Finish`, the step limit or the context limit.

        Raises ContextOverflow if not even the first step of the first attempt fits.
        """
        attempt = _Attempt(number)
        steps = attempt.memory.steps
        try:
            while attempt.answers is None and attempt.halted is None:
                if len(steps) == limit:
                    attempt.halted = "steps"
                else:
                    await self._step(state, attempt, limit - len(steps), cap, guidance)
        except ContextOverflow:
            if not (number or steps):
                raise
            attempt.halted = "context"
            state.tools.record("cap_hit", cap="context")
        except BudgetExhausted:
            attempt.halted = "budget"
        if attempt.halted in ("steps", "context"):
            _report_unexplored(state.tools, steps[-1:])
        state.tools.record(
            "attempt_end",
            attempt=number,
            outcome="halted" if attempt.halted else "finished",
            reason=attempt.halted,
            steps=len(steps),
            limit=limit,
            answers=attempt.answers,
        )
        return attempt

    async def _step(
        self, state: QuestionState, attempt: _Attempt, left: int, cap: int, guidance: Guidance | None
    ) -> None:
        """Make one of the `left` steps of an attempt. Raises ContextOverflow, BudgetExhausted."""
        memory = attempt.memory
        shown = digest(memory.path, self.memory_digest_lines) if self.memory and not self.reflection else ()
        countdown = left if left <= _COUNTDOWN else None
        turn = Turn(state.question, state.graph.domain, tuple(memory.steps), guidance, tuple(shown), countdown)
        thought, line = await self._decide(state, turn)
        lookups = [action for action in line.actions if action.tool != "Finish"]
        finish = next((action for action in line.actions if action.tool == "Finish"), None)
        observations = await state.graph.execute(lookups, cap) if lookups or finish is None else ()
        memory.steps.append(Step(turn.number, thought, line.text, observations))
        learnt = [entry for entry in memory.path if entry["step"] == turn.number]
        state.tools.record("step", attempt=attempt.number, number=turn.number, action=line.text, learnt=learnt)
        if finish is not None:
            attempt.answers, attempt.raw = read_finish(finish.content), line.text

    async def _decide(self, state: QuestionState, turn: Turn) -> tuple[str, ActionLine]:
        """Return the next thought and action. Raises ContextOverflow over the context limit (specification §6.8)."""
        if self.calls_per_step == 1:
            both = ThoughtAndAction(turn)
            self._check_length(both)
            return await self._call(state, both, ("\nObservation",))
        first = Thought(turn)
        self._check_length(first)
        thought = await self._call(state, first, _STOP_THOUGHT)
        return thought, await self._call(state, NextAction(turn, thought), _STOP_ACTION)

    @property
    def _max_characters(self) -> int:
        """Maximum length of a prompt."""
        return self.context_limit * _CHARACTERS_PER_TOKEN

    def _check_length(self, prompt: Prompt[T]) -> None:
        if sum(len(message.content) for message in prompt.messages()) > self._max_characters:
            raise ContextOverflow(f"the prompt is longer than method.context_limit={self.context_limit} tokens")

    async def _call(self, state: QuestionState, prompt: Prompt[T], stop: tuple[str, ...]) -> T:
        temperature = self.sample_temperature if self.samples > 1 else self.temperature
        sampling = Sampling(temperature=temperature, max_tokens=self.max_tokens, stop=stop)
        return await state.tools.llm.ask(prompt, sampling, retries=0)

    # Retrospect (specification §6.6, §6.7)

    async def _classify(self, state: QuestionState, attempt: _Attempt) -> Failure | None:
        """Return how an attempt failed according to the failure signal, or None if it is accepted."""
        if attempt.answers is None:
            return "halted"
        why: str | None = None
        match self.failure_signal:
            case "none":
                accepted = True
            case "rules":
                why = broken_rule(attempt.answers, attempt.memory)
                accepted = why is None
            case "gold":
                assert state.tools.gold_feedback is not None, "the engine provides it while `uses_gold` is true"
                accepted = state.tools.gold_feedback(_linked(attempt.answers, attempt.memory))
            case "self_judge":
                prompt = Verify(state.question, attempt.answers, attempt.memory.lines, self._max_characters)
                verdict = await self._ask(state, prompt)
                accepted, why = verdict.accept, verdict.why
        state.tools.record("judged", attempt=attempt.number, signal=self.failure_signal, accepted=accepted, why=why)
        return None if accepted else "incorrect"

    async def _reflect(self, state: QuestionState, attempt: _Attempt, failure: Failure) -> Guidance:
        """Reflect on a whole attempt; without memory, only on its outcome."""
        prompt = Reflect(
            state.question, state.graph.domain, failure, attempt.answers, max_characters=self._max_characters
        )
        if self.memory:
            memory = attempt.memory
            prompt = replace(prompt, path=memory.lines, log=tuple(memory.log), steps=tuple(memory.steps))
        guidance = await self._ask(state, prompt)
        state.tools.record(
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

    async def _fallback_answer(self, state: QuestionState, memory: Memory) -> Answers:
        """Answer from the memory of an attempt that did not finish (specification §6.9)."""
        prompt = FallbackAnswer(state.question, memory.lines, tuple(memory.steps), self._max_characters)
        return await self._ask(state, prompt, last=True)

    async def _ask(self, state: QuestionState, prompt: Prompt[T], *, last: bool = False) -> T:
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens_other)
        return await state.tools.llm.ask(prompt, sampling, retries=self.parse_retries, last=last)

    # Answer (specification §6.9)

    def _answer(self, state: QuestionState, cycles: list[_Cycle]) -> Answer:
        voted, chosen = self._vote(cycle.best for cycle in cycles)
        initial, _ = self._vote(attempt for cycle in cycles for attempt in cycle.attempts[:1])
        chosen = chosen or next(reversed(cycles[-1].attempts), None)
        memory = chosen.memory if chosen else Memory()
        texts = [prediction.text for prediction in voted]
        evidence = tuple((fact,) for fact in memory.triples[: state.tools.caps.max_evidence_triples])
        record_cut_evidence(state.tools, evidence, memory.triples)
        status = _status(state, memory, exhausted=any(cycle.exhausted for cycle in cycles))
        state.tools.record("answered", answers=texts, attempt=chosen.number if chosen else None, status=status)
        return Answer(
            predictions=voted,
            raw=chosen.raw if chosen else "",
            evidence=evidence,
            names=entity_names(evidence, memory.names),
            status=status,
            initial=initial if self.max_retries else None,
            first_attempt=_first_attempt(cycles) if self.max_retries else None,
        )

    def _vote(self, attempts: Iterable[_Attempt | None]) -> tuple[tuple[Prediction, ...], _Attempt | None]:
        """Return the majority answer of the finished attempts and the first attempt that gives it."""
        finished = [attempt for attempt in attempts if attempt is not None and attempt.answers is not None]
        if not finished:
            return (), None
        voted = majority([Answers(attempt.answers or (), attempt.raw) for attempt in finished])
        best = {normalise(prediction.text) for prediction in voted[:1]}
        agreeing = (attempt for attempt in finished if best & set(map(normalise, attempt.answers or ())))
        chosen = next(agreeing, finished[0])
        linked = _linked(tuple(prediction.text for prediction in voted), chosen.memory)
        if self.samples > 1:
            linked = tuple(Prediction(one.text, one.id, vote.score) for one, vote in zip(linked, voted, strict=True))
        return linked, chosen


@plain_dataclass(frozen=True, slots=True)
class QuestionState:
    """A question, the tools to answer it, and the environment that executes the agent's actions."""

    question: Question
    tools: Tools
    graph: Environment


@plain_dataclass(slots=True)
class _Attempt:
    """One run of the agent from an empty scratchpad."""

    number: int
    memory: Memory = field(default_factory=Memory)
    answers: tuple[str, ...] | None = None
    """None until the attempt has finished; may then be empty."""
    raw: str = ""
    """The text that the answers were read from."""
    halted: Literal["steps", "context", "budget"] | None = None
    """The limit that ended the attempt without an answer."""


@plain_dataclass(slots=True)
class _Cycle:
    """All attempts of one sample."""

    attempts: list[_Attempt] = field(default_factory=list)
    exhausted: bool = False
    """Whether a limit on calls, lookups or time was hit."""
    guess: _Attempt | None = None
    """The last attempt with an answer that was asked for after all had halted. It does not count as finished."""

    @property
    def best(self) -> _Attempt | None:
        """The last attempt that finished (specification §6.9). An accepted attempt is always the last one."""
        finished = (attempt for attempt in reversed(self.attempts) if attempt.answers is not None)
        return next(finished, self.guess)


def _first_attempt(cycles: Iterable[_Cycle]) -> Literal["finished", "halted"]:
    """Return how the first attempts ended: finished, if one of them did."""
    finished = any(attempt.answers is not None for cycle in cycles for attempt in cycle.attempts[:1])
    return "finished" if finished else "halted"


def _linked(texts: tuple[str, ...], memory: Memory) -> tuple[Prediction, ...]:
    """Link each answer to the one node that the attempt observed under this name."""
    names = memory.names
    return link(texts, names, names)


def _report_unexplored(tools: Tools, steps: Iterable[Step]) -> None:
    """Report what the last step showed and a limit left no step to ask about."""
    for listing in listings(steps):
        if listing.via == "relations":
            names = [item.node.value for item in listing.items if isinstance(item.node, LiteralNode)]
            relations = [Relation(name, listing.direction) for name in names]
            tools.record("cut", by="depth", relations=relations, at=[listing.source])
        else:
            tools.record("cut", by="depth", nodes=[item.node for item in listing.items])


def _status(state: QuestionState, memory: Memory, *, exhausted: bool) -> Status:
    if exhausted:
        return "budget_exhausted"
    if memory.has_facts:
        return "ok"
    return "no_evidence" if state.question.topic_entities or state.tools.attributes else "no_topic_entity"
