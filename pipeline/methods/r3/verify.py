"""Decides without gold whether a finished attempt has failed: `r3.verify`, or rules (specification §6.6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.parsing import LenientPrompt, read_literal
from pipeline.methods.r3.memory import Memory, Step, elide, listings
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.templates import load_template
from pipeline.normalisation import normalise
from pipeline.types import Question


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check."""

    accept: bool
    why: str = ""


@dataclass(frozen=True)
class Verify(LenientPrompt[Verdict]):
    """A check that an answer is supported, of the kind asked for, and complete."""

    role: ClassVar[str] = "r3.verify"
    template = load_template(__file__, "verify")

    question: Question
    answers: tuple[str, ...]
    path: tuple[str, ...]
    """The knowledge path, line by line."""
    max_characters: int = 40_000
    """Maximum length of the path in the prompt."""

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "answer": "; ".join(map(one_line, self.answers)) or "(empty)",
            "path": elide(self.path, self.max_characters) or "nothing",
        }

    def read(self, text: str) -> Verdict:
        reply = read_literal(text, "{")
        assert isinstance(reply, dict), "a literal that opens with a brace is a dictionary"
        verdict, why = str(reply.get("verdict", "")).strip().lower(), reply.get("why")
        if verdict not in {"accept", "reject"}:
            raise ParseError("the 'verdict' is neither 'accept' nor 'reject'")
        return Verdict(verdict == "accept", one_line(why)[:500] if isinstance(why, str) else "")

    def fallback(self, text: str) -> Verdict:
        return Verdict(accept=True)


def broken_rule(answers: Sequence[str], memory: Memory) -> str | None:
    """Return the rule that the answers of a finished attempt break, or None."""
    if not answers:
        return "the answer is empty"
    observations = [observation for step in memory.steps for observation in step.observations]
    if observations and not observations[-1].ok:
        return "the last observation was an error"
    observed = _Observed.of(memory.steps)
    for answer in answers:
        if observed.are_ids(answer):
            return "the answer is a node id"
        if not observed.holds(answer):
            return "the answer was never observed"
    return None


@dataclass(frozen=True, slots=True)
class _Observed:
    """What an attempt has observed."""

    ids: frozenset[str]
    names: frozenset[str]
    counts: frozenset[str]
    text: str

    @classmethod
    def of(cls, steps: Iterable[Step]) -> _Observed:
        steps = tuple(steps)
        all_listings = list(listings(steps))
        items = [item for listing in all_listings for item in listing.items]
        by_edge: dict[str, set[object]] = {}
        for listing in all_listings:
            by_edge.setdefault(listing.via, set()).update(item.node for item in listing.items)
        counts = {len(nodes) for nodes in by_edge.values()} | {listing.total for listing in all_listings}
        text = " ".join(observation.full for step in steps for observation in step.observations)
        return cls(
            ids=frozenset(item.node for item in items if isinstance(item.node, str)),
            names=frozenset(normalise(item.name) for item in items if item.name),
            counts=frozenset(map(str, counts)),
            text=normalise(text),
        )

    def are_ids(self, answer: str) -> bool:
        """Return whether an answer, or each item of a list with commas, is a node id and no name."""
        parts = {answer} if answer in self.ids else set(answer.split(", "))
        return parts <= self.ids and self.names.isdisjoint(map(normalise, parts))

    def holds(self, answer: str) -> bool:
        """Return whether an answer was observed, as a whole or item by item, or is a number of observed things."""
        if answer.strip() in self.counts or normalise(answer) in self.text:
            return True
        return all(normalise(part) in self.text for part in answer.split(", "))
