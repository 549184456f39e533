"""Atomic operations as a plan: names filled in by code, the wording polished by a model (methods.md §7.3, step 5)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parog.guidance import in_words
from pipeline.methods.parog.plan import Keep, Plan, SubGoal
from pipeline.methods.parsing import clip, read_literal, twice
from pipeline.methods.rendering import one_line
from pipeline.retrieval.relations import as_text
from pipeline.text import canonical_literal
from pipeline.training.parog.constants import left_out
from pipeline.training.parog.decompose import Atom
from pipeline.types import EntityId

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

POLISH = Template(
    system="""\
Each step of a plan below was worded by a program. Reword every step into one fluent sentence that a person
would say. Change the wording alone: keep what is found, every name, every value and date, the numbers of other
steps, and the order. All sentences differ.

Reply with a JSON list of sentences, one for each step.

Example

Steps:
1. Find every country that “people person nationality” leads to from Tavin Orsa
2. Find every human language that “location country languages spoken” leads to from each answer of 1
["Find the country that Tavin Orsa comes from", "Find the languages spoken in the country of 1"]""",
    user="""\
Steps:
{{steps}}""",
)


def word(atoms: Sequence[Atom], names: Mapping[EntityId, str]) -> Plan:
    """The plan that operations make, each worded by what it does; `names` are those of the constants."""
    return tuple(
        SubGoal(id, _goal(atom, names), atom.op, atom.uses, keep=_keep(atom), bound=_bound(atom))
        for id, atom in enumerate(atoms, start=1)
    )


@dataclass(frozen=True)
class Polish(Prompt[Plan]):
    """The plan in better words."""

    role: ClassVar[str] = "parog.polish"

    plan: Plan
    constants: tuple[str, ...]

    @property
    def template(self) -> Template:
        return POLISH

    def inputs(self) -> dict[str, str]:
        return {"steps": "\n".join(f"{subgoal.id}. {one_line(subgoal.goal)}" for subgoal in self.plan)}

    def parse(self, text: str) -> Plan:
        goals = twice(_read_sentences, text)
        if len(goals) != len(self.plan):
            raise ParseError(f"there are {len(goals)} sentences for {len(self.plan)} steps")
        if len(set(goals)) < len(goals):
            raise ParseError("two sentences are the same")
        for subgoal, goal in zip(self.plan, goals, strict=True):
            if lost := left_out(goal, [one for one in self.constants if not left_out(subgoal.goal, [one])]):
                raise ParseError(f"step {subgoal.id} has lost {clip(lost[0])}")
        return tuple(replace(subgoal, goal=goal) for subgoal, goal in zip(self.plan, goals, strict=True))

    def fallback(self, text: str) -> Plan:
        """The program's own words."""
        return self.plan

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """The program's own words; a slip loses the last step."""
        return self._write(self.plan[:-1] if slip else self.plan)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """The program's own words: a policy without language has no better ones."""
        return self._write(self.plan)

    def _write(self, plan: Plan) -> str:
        return json.dumps([subgoal.goal for subgoal in plan], ensure_ascii=False)


def _read_sentences(text: str) -> list[str]:
    listed = read_literal(text, "[")
    if not isinstance(listed, list) or not all(isinstance(item, str) and item.strip() for item in listed):
        raise ParseError("there is no JSON list of sentences")
    return [one_line(str(item)).strip() for item in listed]


def _goal(atom: Atom, names: Mapping[EntityId, str]) -> str:
    used, path = " and ".join(map(str, atom.uses)), in_words(atom.path)
    if atom.is_value:
        return f"Find the value that “{path}” has for each answer of {used}"
    if atom.op in ("lookup", "composition"):
        source = f"each answer of {used}" if atom.start is None else names[atom.start]
        return f"Find {_what(atom)} “{path}” leads to from {source}"
    if atom.op == "conjunction":
        return f"Keep what {used} have all found"
    return f"Count the answers of {used}" if atom.op == "count" else f"Of the answers of {used}, {_kept(atom)}"


def _kept(atom: Atom) -> str:
    if atom.value is not None:
        return f"keep those for which “{in_words(atom.path)}” is {canonical_literal(atom.value.value)}"
    if atom.bound is None:
        return f"keep those with the {atom.keep} value"
    return f"keep those whose value is {atom.keep} {_bound(atom)}"


def _what(atom: Atom) -> str:
    return f"every {as_text(atom.about.rpartition('.')[2])} that" if atom.about else "what"


def _keep(atom: Atom) -> Keep | None:
    return None if atom.is_value else atom.keep


def _bound(atom: Atom) -> str | None:
    return None if atom.bound is None else canonical_literal(atom.bound)
