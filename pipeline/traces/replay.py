"""Answers calls from the traces of an earlier run, and reports why a call is not recorded (`llm=replay`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass as plain_dataclass
from functools import partial
from typing import Any, Self

import orjson
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.errors import Unanswerable
from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.embedded.bundled import reply_cap
from pipeline.llm.interface import capped_identity
from pipeline.llm.prompt import Call, Completion
from pipeline.llm.role_sections import is_embedded, section_of
from pipeline.llm.roles import method_of
from pipeline.traces.origin import QuestionDigest
from pipeline.traces.reader import OTHER_DATA, RecordedCall, RecordedCalls, explain_miss
from pipeline.types import Example


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Replay:
    """Serves every call of `run` under the identity of the model that answered it.

    The keys are described in `conf/llm/replay.yaml`.
    """

    run: str
    """The folder of the earlier run: a path or a URL."""

    async def __aenter__(self) -> Self:
        self._recorded = RecordedCalls(self.run)
        served = self._recorded.saved["served"][0]
        self.identity: str = served["model"]
        self.label: str | None = served["label"]
        self._roles: dict[str, str] = served.get("roles", {})
        self._llm: Mapping[str, Any] = self._recorded.saved["points"][0]["config"]["llm"]
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, example: Example, kg: KnowledgeGraph) -> _QuestionReplay:
        gold = QuestionDigest.of(example).gold
        recorded = self._recorded.calls(example.question.id)
        usable = self._recorded.reusable(example.question.id, gold, [kg.fingerprint])
        identity_of = partial(self._identity_of, example.question.dataset)
        return _QuestionReplay(identity_of, self._llm, recorded, usable.keys())

    def _identity_of(self, dataset: str, role: str) -> str:
        """Return the recorded identity of a role, with the limit that an embedded model had for its replies."""
        section = section_of(role, self._llm)
        identity = self._roles.get(role, self.identity)
        if not is_embedded(section):  # the identity of others has their limit
            return identity
        cap = reply_cap(section.get("model"), section["max_new_tokens"], method_of(role), dataset)
        return capped_identity(identity, cap)


@plain_dataclass(frozen=True)
class _QuestionReplay:
    """The recorded calls of one question."""

    identity_of: Callable[[str], str]
    llm: Mapping[str, Any]
    recorded: Mapping[str, RecordedCall]
    usable: Collection[str]

    async def complete(self, call: Call) -> Completion:
        """Return the recorded completion.

        Raises Unanswerable with the differences from the nearest recorded call, or if a simulated model replied from
        other data.
        """
        if recorded := self.recorded.get(call.key):
            if call.key in self.usable:
                return recorded.completion
            raise Unanswerable(f"not usable: the recorded call has {OTHER_DATA}")
        if not self.recorded:
            raise Unanswerable("not recorded: that run has no call of this question")
        same_role = [other for other in self.recorded.values() if other.role == call.prompt.role]
        difference = explain_miss(_as_recorded(call), same_role, otherwise="the model or the seed")
        style = section_of(call.prompt.role, self.llm).get("prompt_style", "full")
        hint = f"; that run had llm.prompt_style={style}" if style != "full" else ""
        raise Unanswerable(f"not recorded: the nearest recorded call differs in {difference}{hint}")

    choose = complete


def _as_recorded(call: Call) -> RecordedCall:
    """Return the call in the form of a recorded one."""
    asked_again = {} if call.complaint is None else {"complaint": call.complaint}
    sampling = {"sampling": call.sampling.as_hashed(), "choices": call.choices, "ordinal": call.ordinal}
    return RecordedCall(
        key=call.key,
        role=call.prompt.role,
        template=(call.template or call.prompt.template).digest,
        inputs=orjson.dumps({**call.prompt.inputs(), **asked_again}).decode(),
        sampling=orjson.dumps(sampling).decode(),
        completion=Completion(""),
    )
