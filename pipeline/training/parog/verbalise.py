"""Writes operations as a plan: code fills in names, a model polishes the sentences (specification §7.3, step 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.parog.plan import Keep, Plan, SubGoal
from pipeline.methods.parog.relations import print_plan
from pipeline.methods.parsing import parse_leniently, read_literal, truncate
from pipeline.methods.rendering import one_line
from pipeline.methods.templates import load_template
from pipeline.normalisation import canonical_literal
from pipeline.retrieval.relations import as_text
from pipeline.simulation.parog_plan import in_words
from pipeline.training.parog.constants import missing_constants
from pipeline.training.parog.decompose import Atom
from pipeline.types import EntityId


def verbalise(atoms: Sequence[Atom], names: Mapping[EntityId, str]) -> Plan:
    """Return the plan of these operations, in generated sentences; `names` are the names of the constants."""
    return tuple(
        SubGoal(id, _goal(atom, names), atom.op, atom.uses, keep=_keep(atom), bound=_bound(atom))
        for id, atom in enumerate(atoms, start=1)
    )


@dataclass(frozen=True)
class Polish(Prompt[Plan]):
    """The plan in fluent sentences."""

    role: ClassVar[str] = "parog.polish"
    template = load_template(__file__, "polish")

    plan: Plan
    constants: tuple[str, ...]
    """The names and values that the sentences must keep."""

    def inputs(self) -> dict[str, str]:
        return {"steps": print_plan(self.plan)}

    def parse(self, text: str) -> Plan:
        goals = parse_leniently(_read_sentences, text)
        if len(goals) != len(self.plan):
            raise ParseError(f"there are {len(goals)} sentences for {len(self.plan)} steps")
        if len(set(goals)) < len(goals):
            raise ParseError("two sentences are the same")
        for subgoal, goal in zip(self.plan, goals, strict=True):
            kept = [constant for constant in self.constants if not missing_constants(subgoal.goal, [constant])]
            if lost := missing_constants(goal, kept):
                raise ParseError(f"step {subgoal.id} has lost {truncate(lost[0])}")
        return tuple(replace(subgoal, goal=goal) for subgoal, goal in zip(self.plan, goals, strict=True))

    def fallback(self, text: str) -> Plan:
        """Return the plan with its generated sentences."""
        return self.plan


def _read_sentences(text: str) -> list[str]:
    items = read_literal(text, "[")
    if not isinstance(items, list) or not all(isinstance(item, str) and item.strip() for item in items):
        raise ParseError("there is no JSON list of sentences")
    return [one_line(str(item)).strip() for item in items]


def _goal(atom: Atom, names: Mapping[EntityId, str]) -> str:
    used, path = " and ".join(map(str, atom.uses)), in_words(atom.path)
    if atom.is_value:
        return f"Find the value that “{path}” has for each answer of {used}"
    if atom.op in ("lookup", "composition"):
        source = f"each answer of {used}" if atom.start is None else names[atom.start]
        return f"Find {_object(atom)} “{path}” leads to from {source}"
    if atom.op == "union":
        return f"Put together what {used} have found"
    if atom.op == "conjunction":
        return f"Keep what {used} have all found"
    if atom.op == "count":
        return f"Count the answers of {used}"
    used = " and ".join(map(str, atom.uses[:2]))  # a third one is the bound
    return f"Of the answers of {used}, {_selection(atom)}"


def _selection(atom: Atom) -> str:
    if atom.value is not None:
        return f"keep those for which “{in_words(atom.path)}” is {canonical_literal(atom.value.value)}"
    if atom.op == "filter":
        return f"keep those for which “{in_words(atom.path)}” is {atom.keep} {_bound(atom)}"
    if atom.bound is None:
        return f"keep those with the {atom.keep} value"
    bound = f"the answer of {atom.bound[1:]}" if atom.bound.startswith("#") else _bound(atom)
    return f"keep those whose value is {atom.keep} {bound}"


def _object(atom: Atom) -> str:
    return f"every {as_text(atom.about.rpartition('.')[2])} that" if atom.about else "what"


def _keep(atom: Atom) -> Keep | None:
    return None if atom.is_value else atom.keep


def _bound(atom: Atom) -> str | None:
    return None if atom.bound is None else canonical_literal(atom.bound)
