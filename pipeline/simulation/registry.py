"""The registry of simulators, which write the replies of the oracle and of the similarity policy to prompts.

Prompts do not know simulators. `@simulates(SomePrompt)` registers a simulator class for a prompt class; subclasses of
the prompt without a simulator use it too. The project's simulators are in `pipeline/simulation/methods/`. Users list
modules with their own simulators in `llm.simulators`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pipeline.errors import UserError
from pipeline.imports import import_named
from pipeline.llm.prompt import Prompt

if TYPE_CHECKING:
    from pipeline.retrieval.lexical import LexicalEncoder
    from pipeline.simulation.gold_context import GoldContext

P = TypeVar("P", bound=Prompt[Any])
S = TypeVar("S", bound="type[Simulator[Any]]")

_METHODS = "pipeline.simulation.methods"


class Simulator(Generic[P]):
    """Writes the replies to the prompts of one class, as text that the prompt's `parse` then reads.

    Subclasses implement one or both methods. A call of the other one raises UserError.
    """

    seed_excluded_inputs: ClassVar[frozenset[str]] = frozenset()
    """Inputs that do not seed the oracle's errors, such as references. With and without them the oracle errs on the
    same calls, so a comparison measures the effect of the input, not of another random draw."""
    alternatives: ClassVar[Sequence[Sequence[str]]] = ()
    """Groups of tokens such as `("[Yes]", "[No]")`, whose probabilities the method reads. If a reply has one token of a
    group, its log-probabilities list the others too."""

    def write_as_oracle(self, prompt: P, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Return the reply of a perfect model; with `error_rng`, a well-formed wrong reply drawn from it."""
        raise UserError(_missing(prompt, "write_as_oracle", "oracle"))

    def write_by_similarity(self, prompt: P, encoder: LexicalEncoder) -> str:
        """Return the reply of a policy that only knows lexical similarity."""
        raise UserError(_missing(prompt, "write_by_similarity", "similarity"))

    def write_candidates_as_oracle(
        self, prompt: P, gold_context: GoldContext, error_rng: Random | None, rng: Random, count: int
    ) -> list[str]:
        """Return several replies of one call, best first: one reply, and wrong replies drawn from `rng`."""
        first = self.write_as_oracle(prompt, gold_context, error_rng)
        return [first, *(self.write_as_oracle(prompt, gold_context, rng) for _ in range(count - 1))]

    def write_candidates_by_similarity(self, prompt: P, encoder: LexicalEncoder, count: int) -> list[str]:
        """Return several replies of one call, best first. The policy has one opinion, so they are equal."""
        return [self.write_by_similarity(prompt, encoder)] * count


_REGISTERED: dict[type[Prompt[Any]], Simulator[Any]] = {}


def simulates(prompt: type[Prompt[Any]]) -> Callable[[S], S]:
    """Register the decorated `Simulator` class for a prompt class."""

    def register(simulator: S) -> S:
        _REGISTERED[prompt] = simulator()
        return simulator

    return register


def simulator_of(prompt: Prompt[Any]) -> Simulator[Any]:
    """Return the simulator of the prompt's class or nearest base class; else one whose methods raise UserError."""
    load_simulators()
    candidates = (_REGISTERED.get(cls) for cls in type(prompt).__mro__)
    return next(filter(None, candidates), Simulator())


def write_as_oracle(prompt: Prompt[Any], gold_context: GoldContext, error_rng: Random | None) -> str:
    """Return the oracle's reply to a prompt. Raises UserError when no simulator writes one."""
    return simulator_of(prompt).write_as_oracle(prompt, gold_context, error_rng)


def write_by_similarity(prompt: Prompt[Any], encoder: LexicalEncoder) -> str:
    """Return the similarity policy's reply to a prompt. Raises UserError when no simulator writes one."""
    return simulator_of(prompt).write_by_similarity(prompt, encoder)


def load_simulators(modules: Iterable[str] = ()) -> None:
    """Import the project's simulators and the given modules. Raises UserError for one that cannot be imported."""
    _load_project_simulators()
    for module in modules:
        try:
            import_named(module)
        except (ImportError, SyntaxError, ValueError) as error:
            raise UserError(f"llm.simulators: {module} cannot be imported: {error}") from None


@cache
def _load_project_simulators() -> None:
    for module in pkgutil.iter_modules(import_module(_METHODS).__path__, f"{_METHODS}."):
        import_module(module.name)


def _missing(prompt: Prompt[Any], function: str, model: str) -> str:
    name = type(prompt).__name__
    return (
        f"llm={model} cannot answer {prompt.role}: no simulator of {name} has `{function}`. Write a class with "
        f"@simulates({name}) and list its module in llm.simulators (docs/extending.md), or use a language model"
    )
