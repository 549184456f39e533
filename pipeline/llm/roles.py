"""A model or a wording of its own for some roles: a planner beside the model that does all else (methods.md §2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipeline.errors import UserError, nearest
from pipeline.kg.port import KnowledgeGraph
from pipeline.llm.port import Model, ModelBackend
from pipeline.llm.prompt import Call, Completion, Prompt, Template, compact
from pipeline.types import Example


class ByRole:
    """Backends that are open already: one for the roles that are named, another for all others."""

    def __init__(self, default: ModelBackend, roles: Mapping[str, ModelBackend]) -> None:
        """`roles` are names such as `parog.plan`."""
        self._default = default
        self._roles = roles

    @property
    def identities(self) -> dict[str, str]:
        """What answers each of the roles named."""
        return {role: backend.identity for role, backend in self._roles.items()}

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Model:
        """The models of one question, as one."""
        default = self._default.for_question(example, kg)
        if not self._roles:
            return default
        return _QuestionByRole(default, {role: one.for_question(example, kg) for role, one in self._roles.items()})

    @property
    def identity(self) -> str:
        """Of the model that does all else."""
        return self._default.identity

    @property
    def label(self) -> str | None:
        """Printed in every table: what any of the backends wants said."""
        labels = (backend.label for backend in (self._default, *self._roles.values()))
        return ", ".join(dict.fromkeys(label for label in labels if label)) or None


class _QuestionByRole:
    def __init__(self, default: Model, roles: Mapping[str, Model]) -> None:
        self._default = default
        self._roles = roles

    def identity_of(self, role: str) -> str:
        return self._roles.get(role, self._default).identity_of(role)

    async def complete(self, call: Call) -> Completion:
        return await self._roles.get(call.prompt.role, self._default).complete(call)

    async def choose(self, call: Call) -> Completion:
        return await self._roles.get(call.prompt.role, self._default).choose(call)


class Wording:
    """What the model of each role is sent of a prompt's fixed text: all of it, or as little as `compact` leaves."""

    def __init__(self, prompts: Mapping[str | None, str]) -> None:
        """`prompts` says `full` or `compact` of the roles named, and under None of all others."""
        self._prompts = prompts

    def __call__(self, role: str, template: Template) -> Template:
        """The template to render."""
        prompts = self._prompts.get(role, self._prompts[None])
        return compact(role, template) if prompts == "compact" else template


FULL = Wording({None: "full"})


def check_roles(named: Iterable[str]) -> None:
    """Raise UserError for a role that no prompt of the methods imported so far has."""
    known = sorted({kind.role for kind in _kinds(Prompt) if "role" in vars(kind)})  # type: ignore[type-abstract]
    for role in named:
        if role not in known:
            raise UserError(f"llm.roles: there is no role '{role}'.{nearest(role, known)} Known: {', '.join(known)}")


def _kinds(prompt: type[Prompt[Any]]) -> Iterator[type[Prompt[Any]]]:
    for kind in prompt.__subclasses__():
        yield kind
        yield from _kinds(kind)
