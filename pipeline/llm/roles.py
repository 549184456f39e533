"""Routes the calls of some roles to a model or a prompt style of their own, such as a planner (specification §2.3)."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pipeline.errors import UserError
from pipeline.imports import is_own
from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.interface import Model, ModelBackend
from pipeline.llm.prompt import Call, Completion, Prompt, Template, inputs_only
from pipeline.suggestions import did_you_mean
from pipeline.types import Example


@runtime_checkable
class Remarking(Protocol):
    """Optional: a model that warns of methods and datasets for which it is not made."""

    def remark(self, method: str, dataset: str, keys: Mapping[str, Any]) -> str | None:
        """Return the warning about a method with these keys; None or empty if there is nothing to warn of."""
        ...


class RoleRouter:
    """Open models: one for each named role, and a default for all others."""

    def __init__(self, default: ModelBackend, roles: Mapping[str, ModelBackend]) -> None:
        """Take the model of each role, such as `parog.plan`, and the model of all other roles."""
        self._default = default
        self._roles = roles
        self.identity = default.identity
        """The identity of the default model."""
        self.identities = {role: backend.identity for role, backend in roles.items()}
        """The identity of the model of each named role."""
        labels = (backend.label for backend in (default, *roles.values()))
        self.label = ", ".join(dict.fromkeys(filter(None, labels))) or None
        """The labels of all models, printed in every table; None if there is none."""

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Model:
        """Return one model for a question, which routes each call by its role."""
        default = self._default.for_question(example, kg)
        if not self._roles:
            return default
        return _QuestionRouter(default, {role: one.for_question(example, kg) for role, one in self._roles.items()})


class _QuestionRouter:
    def __init__(self, default: Model, roles: Mapping[str, Model]) -> None:
        self._default = default
        self._roles = roles

    def identity_of(self, role: str) -> str:
        return self._roles.get(role, self._default).identity_of(role)

    async def complete(self, call: Call) -> Completion:
        return await self._roles.get(call.prompt.role, self._default).complete(call)

    async def choose(self, call: Call) -> Completion:
        return await self._roles.get(call.prompt.role, self._default).choose(call)


@dataclass(frozen=True)
class PromptStyle:
    """Selects how much of a prompt's fixed text the model of a role is sent: all of it, or `inputs_only`."""

    styles: Mapping[str | None, str]
    """`full` or `inputs_only` for each named role, and under None for all others."""

    def __call__(self, role: str, template: Template) -> Template:
        """Return the template to render."""
        style = self.styles.get(role, self.styles[None])
        return inputs_only(role, template) if style == "inputs_only" else template


FULL = PromptStyle({None: "full"})


def method_of(role: str) -> str:
    """Return the method of a role: `arg` for `arg.entities`."""
    return role.partition(".")[0]


def remarks(model: object, method: object, dataset: str, composed: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a model that has a `remark` says about the method, its keys and the dataset of a configuration.

    A method whose prompts are not known is called as in `method=…`.
    """
    names = [method_of(prompt.role) for prompt in prompts_of(method)] or [composed["choices"]["method"]]
    if isinstance(model, Remarking):
        for name in dict.fromkeys(names):
            if remark := model.remark(name, dataset, composed["method"]):
                yield remark


def prompts_of(method: object) -> tuple[type[Prompt[Any]], ...]:
    """Return the prompts that a method declares. For a user's class, add the user's prompts in its file.

    Prompts that the file imports count, too. A method declares its prompts as
    `prompts: ClassVar[tuple[type[Prompt[Any]], ...]]`.
    """
    declared: Iterable[type[Prompt[Any]]] = getattr(method, "prompts", ())
    modules = [sys.modules.get(each.__module__) for each in type(method).__mro__ if not is_own(each.__module__)]
    kinds = [kind for module in modules if module for kind in vars(module).values() if isinstance(kind, type)]
    own = (kind for kind in kinds if issubclass(kind, Prompt) and not is_own(kind.__module__) and hasattr(kind, "role"))
    return tuple(dict.fromkeys((*declared, *own)))


def check_roles(named: Collection[str], methods: Collection[object]) -> None:
    """Raise UserError for a role that no prompt of the methods has."""
    known = {prompt.role for method in methods for prompt in prompts_of(method)}
    unknown = next((role for role in named if role not in known), None)
    if unknown is None:
        return
    listed = ", ".join(sorted(known)) or "none"
    said = f"llm.roles: there is no role '{unknown}'.{did_you_mean(unknown, known)} Known: {listed}"
    undeclared = (kind for kind in map(type, methods) if not is_own(kind.__module__) and "prompts" not in vars(kind))
    if kind := next(undeclared, None):
        name, inherited = kind.__name__, "*super_class.prompts, " if hasattr(kind, "prompts") else ""
        said += f". List the prompts of {name} that are in other files: prompts: ClassVar = ({inherited}MyPrompt,)"
    raise UserError(said)
