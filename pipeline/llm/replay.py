"""Replay: a model that answers from the traces of an earlier run, and says precisely why when it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import orjson
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.errors import ServiceError
from pipeline.kg.port import KnowledgeGraph
from pipeline.llm.prompt import Call, Completion
from pipeline.traces.reader import RecordedCall, RecordedCalls
from pipeline.types import Example


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Replay:
    """Serves every call of `run` under the identity of the model that answered it then."""

    run: Path
    """The folder of the earlier run."""

    async def __aenter__(self) -> Self:
        self._recorded = RecordedCalls(self.run)
        served = self._recorded.saved["served"][0]
        self.identity: str = served["model"]
        self.label: str | None = served["label"]
        self._roles: dict[str, str] = served["roles"]
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, example: Example, kg: KnowledgeGraph) -> _QuestionReplay:
        return _QuestionReplay(self.identity, self._roles, self._recorded, example.question.id)


class _QuestionReplay:
    """The recorded calls of one question."""

    def __init__(self, identity: str, roles: Mapping[str, str], recorded: RecordedCalls, question_id: str) -> None:
        self._identity = identity
        self._roles = roles
        self._recorded = recorded
        self._question_id = question_id

    def identity_of(self, role: str) -> str:
        return self._roles.get(role, self._identity)

    async def complete(self, call: Call) -> Completion:
        """The recorded completion. Raises ServiceError, naming what differs from the nearest recorded call."""
        calls = self._recorded.calls(self._question_id)
        if recorded := calls.get(call.key):
            return recorded.completion
        raise ServiceError(f"not recorded: {explain_miss(call, list(calls.values()))}")

    choose = complete


def explain_miss(call: Call, recorded: list[RecordedCall]) -> str:
    """Say which field of the nearest recorded call differs from `call`."""
    same_role = [candidate for candidate in recorded if candidate.role == call.prompt.role]
    if not same_role:
        return f"the question has no recorded call of role {call.prompt.role}"
    differences = min((_differences(call, candidate) for candidate in same_role), key=len)
    return f"the nearest recorded call differs in {', '.join(differences) or 'the model or the seed'}"


def _differences(call: Call, recorded: RecordedCall) -> list[str]:
    inputs = orjson.loads(recorded.inputs)
    now = call.prompt.inputs()
    differing = [f"input '{name}'" for name in now if now[name] != inputs.get(name)]
    if call.prompt.template.digest != recorded.template:
        differing.append("the prompt's fixed text")
    then = orjson.loads(recorded.sampling)
    sampling = orjson.loads(orjson.dumps(call.sampling))
    differing += [f"sampling.{name}" for name in sampling if sampling[name] != then["sampling"].get(name)]
    if list(call.choices) != then["choices"]:
        differing.append("the choices")
    return differing
