"""Answers calls from the traces of an earlier run, and reports why a call is not recorded (`llm=replay`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Self

import orjson
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.errors import ServiceError
from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.prompt import Call, Completion
from pipeline.traces.origin import QuestionDigest
from pipeline.traces.reader import OTHER_DATA, RecordedCall, RecordedCalls, explain_miss
from pipeline.types import Example


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Replay:
    """Serves every call of `run` under the identity of the model that answered it."""

    run: str
    """The folder of the earlier run: a path or a URL."""

    async def __aenter__(self) -> Self:
        self._recorded = RecordedCalls(self.run)
        served = self._recorded.saved["served"][0]
        self.identity: str = served["model"]
        self.label: str | None = served["label"]
        self._roles: dict[str, str] = served.get("roles", {})
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, example: Example, kg: KnowledgeGraph) -> _QuestionReplay:
        gold = QuestionDigest.of(example).gold
        recorded = self._recorded.calls(example.question.id)
        usable = self._recorded.reusable(example.question.id, gold, [kg.fingerprint])
        return _QuestionReplay(self.identity, self._roles, recorded, usable.keys())


class _QuestionReplay:
    """The recorded calls of one question."""

    def __init__(
        self, identity: str, roles: Mapping[str, str], recorded: Mapping[str, RecordedCall], usable: Collection[str]
    ) -> None:
        self._identity = identity
        self._roles = roles
        self._recorded = recorded
        self._usable = usable

    def identity_of(self, role: str) -> str:
        return self._roles.get(role, self._identity)

    async def complete(self, call: Call) -> Completion:
        """Return the recorded completion.

        Raises ServiceError with the differences from the nearest recorded call, or if a simulated model replied from
        other data.
        """
        if recorded := self._recorded.get(call.key):
            if call.key in self._usable:
                return recorded.completion
            raise ServiceError(f"not usable: the recorded call has {OTHER_DATA}")
        same_role = [other for other in self._recorded.values() if other.role == call.prompt.role]
        difference = explain_miss(_as_recorded(call), same_role, otherwise="the model or the seed")
        raise ServiceError(f"not recorded: the nearest recorded call differs in {difference}")

    choose = complete


def _as_recorded(call: Call) -> RecordedCall:
    """Return the call in the form of a recorded one."""
    return RecordedCall(
        key=call.key,
        role=call.prompt.role,
        template=(call.template or call.prompt.template).digest,
        inputs=orjson.dumps(call.prompt.inputs()).decode(),
        sampling=orjson.dumps({"sampling": call.sampling.as_hashed(), "choices": call.choices}).decode(),
        completion=Completion(""),
    )
