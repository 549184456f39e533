"""The critic: a model that labels reference paths for ArG's training data, in four prompts (specification §7.2).

Its labels are reflection tokens, which the training text takes over.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.arg.relations import RelationSegment
from pipeline.methods.arg.tokens import CLASSES, Kind, find_tokens
from pipeline.methods.arg.transcript import UNKNOWN_ENTITY, find_name
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import LenientPrompt, first_line, match_key, numbered, parse_leniently, truncate
from pipeline.methods.rendering import Names, Printer, as_question, one_line, print_facts
from pipeline.methods.templates import load_template
from pipeline.types import Question

_SCORE = re.compile(r"\(\s*score\s*:\s*(\[[^\[\]\n]{1,40}\])\s*\)", re.IGNORECASE)
_NEUTRAL = "[Utility:3]"


class Relevance(LenientPrompt[Mapping[str, str]], ABC):
    """The relevance of each of some names; empty if no reply can be read."""

    @property
    @abstractmethod
    def judged(self) -> Sequence[str]:
        """The names, in the order shown."""

    def fallback(self, text: str) -> Mapping[str, str]:
        return {}

    def read(self, text: str) -> Mapping[str, str]:
        known = {match_key(name): name for name in self.judged}
        labels: dict[str, str] = {}
        for _, item in numbered(text):
            scored = _SCORE.search(item)
            name = find_name(item[: scored.start()].strip().removeprefix("{"), known) if scored else None
            if scored and name is not None:
                labels.setdefault(name, _label(scored[1], "relevance"))
        if missing := [name for name in self.judged if name not in labels]:
            raise ParseError(f"no numbered line of the form {{name (Score: [label])}} for {truncate(missing[0])}")
        return {name: labels[name] for name in self.judged}


@dataclass(frozen=True)
class RelationRelevance(Relevance):
    """The relevance of each relation offered at the end of a walk."""

    role: ClassVar[str] = "critic.relations"
    template = load_template(__file__, "relations")

    segment: RelationSegment
    """Offered to exactly one walk."""
    names: Names

    @property
    def judged(self) -> Sequence[str]:
        return self.segment.group

    def inputs(self) -> dict[str, str]:
        (walk,) = self.segment.walks
        printer = _printer(self.names)
        return {
            "question": as_question(self.segment.question.text),
            "entity": one_line(printer.node(walk.end)),
            "facts": _facts(walk, printer),
            "candidates": _numbered_list(self.judged),
        }


@dataclass(frozen=True)
class EntityRelevance(Relevance):
    """The relevance of each shown tail of a relation."""

    role: ClassVar[str] = "critic.entities"
    template = load_template(__file__, "entities")

    segment: EntitySegment

    @property
    def judged(self) -> Sequence[str]:
        return list(self.segment.shown_tails)

    def inputs(self) -> dict[str, str]:
        segment, printer = self.segment, _printer(self.segment.names)
        return {
            "question": as_question(segment.question.text),
            "facts": _facts(segment.source, printer),
            "new": print_facts(segment.shown_facts("graph")),
            "candidates": _numbered_list(self.judged),
        }


@dataclass(frozen=True)
class Rationality(Prompt[str | None]):
    """The rationality token of a walk so far; None if no reply can be read."""

    role: ClassVar[str] = "critic.rationality"
    template = load_template(__file__, "rationality")

    question: Question
    walk: GroundedPath
    answers: tuple[str, ...]
    """The first gold answers."""
    names: Names

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "answers": "; ".join(map(one_line, self.answers)),
            "walk": _facts(self.walk, _printer(self.names)),
        }

    def parse(self, text: str) -> str | None:
        return parse_leniently(lambda text: _label(first_line(text), "rationality"), text)

    def fallback(self, text: str) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The usefulness of answers."""

    usefulness: Mapping[str, str]
    """The label of each answer, in the order shown; an empty label if no reply could be read."""
    utility: str
    """The utility token of all answers together."""


@dataclass(frozen=True)
class Utility(LenientPrompt[Judgement]):
    """The usefulness of each answer to the question, and the utility of all of them together."""

    role: ClassVar[str] = "critic.utility"
    template = load_template(__file__, "utility")

    question: Question
    answers: tuple[str, ...]

    def inputs(self) -> dict[str, str]:
        answers = json.dumps(self.answers, ensure_ascii=False)
        return {"question": as_question(self.question.text), "answers": answers}

    def fallback(self, text: str) -> Judgement:
        """Return neutral labels."""
        return Judgement(dict.fromkeys(self.answers, ""), _NEUTRAL)

    def read(self, text: str) -> Judgement:
        begin, end = text.find("{"), text.rfind("}") + 1
        try:
            reply = json.loads(text[begin:end] if 0 <= begin < end else text)
            labels = {match_key(answer): label for answer, label in reply["answers"].items()}
            usefulness = {answer: _label(labels[match_key(answer)], "usefulness") for answer in self.answers}
            return Judgement(usefulness, _label(reply["utility"], "utility"))
        except KeyError as error:
            raise ParseError(f"there is no label for {truncate(str(error))}") from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise ParseError(f"not a JSON object with answers and utility: {truncate(text)}") from None


def _label(text: str, kind: Kind) -> str:
    """Return the first token of a class in a text. Raises ParseError if there is none."""
    for token in find_tokens(text):
        if token.kind == kind:
            return token.text
    raise ParseError(f"none of {', '.join(CLASSES[kind])}: {truncate(text)}")


def _printer(names: Names) -> Printer:
    return Printer(names, unnamed=UNKNOWN_ENTITY)


def _facts(walk: GroundedPath, printer: Printer) -> str:
    return printer.chain(walk.triples) if walk.length else "none"


def _numbered_list(names: Iterable[str]) -> str:
    return "\n".join(f"{number}. {name}" for number, name in enumerate(names, start=1))
