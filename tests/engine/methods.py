"""Test doubles for methods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipeline.errors import ServiceError
from pipeline.llm.prompt import Sampling
from pipeline.methods.cot import AnswerAlone
from pipeline.methods.interface import Tools
from pipeline.types import Answer, Prediction, Question


@dataclass(frozen=True)
class OneFails:
    """Raises on every tenth question and answers the others with one call."""

    name: str = "one-fails"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        if question.id.endswith("3"):
            raise ZeroDivisionError("a bug of the method")
        answers = await tools.llm.ask(AnswerAlone(question), Sampling())
        return Answer(tuple(map(Prediction, answers.texts)))


@dataclass(frozen=True)
class MeetsAnOutage:
    """Asks once; every tenth question then fails with ServiceError while the file `outage` exists."""

    outage: str
    name: str = "meets-an-outage"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        answers = await tools.llm.ask(AnswerAlone(question), Sampling())
        if question.id.endswith("3") and self._is_out():
            raise ServiceError("no server answers")
        return Answer(tuple(map(Prediction, answers.texts)))

    def _is_out(self) -> bool:
        return Path(self.outage).exists()


@dataclass(frozen=True)
class NeedsMemory:
    """Asks once; every tenth question then takes this much memory."""

    bytes: int
    name: str = "needs-memory"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        answers = await tools.llm.ask(AnswerAlone(question), Sampling())
        if question.id.endswith("3"):
            bytearray(self.bytes)
        return Answer(tuple(map(Prediction, answers.texts)))


@dataclass(frozen=True)
class Hangs:
    """Never answers questions whose id ends in 5."""

    name: str = "hangs"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        if question.id.endswith("5"):
            await asyncio.Event().wait()
        return Answer((Prediction("something"),))


@dataclass(frozen=True)
class Insatiable:
    """Calls until its budget is spent, then answers."""

    name: str = "insatiable"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        from pipeline.errors import BudgetExhausted

        try:
            while True:
                await tools.llm.ask(AnswerAlone(question), Sampling(temperature=0.5))
        except BudgetExhausted:
            answers = await tools.llm.ask(AnswerAlone(question), Sampling(), last=True)
        return Answer(tuple(map(Prediction, answers.texts)))


@dataclass(frozen=True)
class Samples:
    """Draws `samples` replies at a temperature: two configurations with different counts share their first draws."""

    samples: int
    name: str = "samples"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        for _ in range(self.samples):
            answers = await tools.llm.ask(AnswerAlone(question), Sampling(temperature=0.5))
        return Answer(tuple(map(Prediction, answers.texts)))


@dataclass(frozen=True)
class Planted:
    """A method with one best configuration: the further from it, the fewer questions are answered.

    Every hop costs a call, which all configurations with as many hops share.
    """

    width: int
    hops: int
    tries: int
    name: str = "planted"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        texts: tuple[str, ...] = ()
        for hop in range(self.hops):
            answers = await tools.llm.ask(AnswerAlone(question), Sampling(max_tokens=100 + hop))
            texts = answers.texts
        loss = abs(self.width - 4) / 8 + abs(self.hops - 5) / 12 + abs(self.tries - 2) / 8
        luck = int(question.id[-2:]) / 60
        return Answer(tuple(map(Prediction, texts)) if luck >= loss else ())


@dataclass(frozen=True)
class ChokesOnReply:
    """Asks twice; a question whose second reply is in the file `unusable` then fails."""

    unusable: str
    name: str = "chokes-on-reply"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        first = await tools.llm.complete(AnswerAlone(question), Sampling())
        second = await tools.llm.complete(AnswerAlone(question), Sampling())
        if self._is_unusable(second.text):
            raise ValueError("a reply of another form")
        return Answer((Prediction(f"{first.text} {second.text}"),))

    def _is_unusable(self, text: str) -> bool:
        return text in Path(self.unusable).read_text().splitlines()


@dataclass(frozen=True)
class FirstOfShardWaits:
    """Answers nothing. The first question of each shard waits until all questions of the run have begun."""

    questions: int
    shard_size: int
    begun: ClassVar[set[str]]
    all_begun: ClassVar[asyncio.Event]
    name: str = "first-of-shard-waits"

    async def answer(self, question: Question, tools: Tools) -> Answer:
        self.begun.add(question.id)
        if len(self.begun) == self.questions:
            self.all_begun.set()
        if int(question.id.rpartition("-")[2]) % self.shard_size == 0:
            await asyncio.wait_for(self.all_begun.wait(), 20)
        return Answer(())


class Misspelt:
    """A method without `answer`."""

    name = "misspelt"

    async def answr(self, question: Question, tools: Tools) -> Answer:
        raise NotImplementedError
