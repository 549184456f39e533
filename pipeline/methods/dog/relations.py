"""The prompt `dog.relations`: which relations to follow from the entities of a turn (specification §16.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.json_replies import print_list
from pipeline.methods.node_labels import relation_label
from pipeline.methods.parsing import LenientPrompt
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.templates import load_template
from pipeline.types import Question, Relation

_NUMBER = re.compile(r"relation[_ ]?([0-9]{1,6})\b", re.IGNORECASE | re.ASCII)
_TO_LABEL = re.compile(r"[ \t:(\"']*+")
"""What stands between a number and its label."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The relations that a reply picks."""

    picked: tuple[Relation, ...]
    """In the order of the reply."""
    unknown: tuple[str, ...] = ()
    """Numbers in the reply that were not offered."""


@dataclass(frozen=True)
class ChooseRelations(LenientPrompt[Choice | None]):
    """A choice of relations by their numbers, else by their names; None when no reply can be read."""

    role: ClassVar[str] = "dog.relations"
    template = load_template(__file__, "relations")

    question: Question
    entities: tuple[str, ...]
    """The names of the entities of the turn."""
    relations: tuple[Relation, ...]
    """Those of all these entities, sorted, at least one."""
    walks: tuple[GroundedPath, ...] = ()
    """The walks from topic entities to these entities, one for each sequence of relations. No prompt shows them."""

    def inputs(self) -> dict[str, str]:
        lines = (f"relation_{number}: {label}" for number, label in enumerate(self._labels, start=1))
        return {
            "question": as_question(self.question.text),
            "entities": print_list(map(one_line, self.entities)),
            "relations": "\n".join(lines),
        }

    def fallback(self, text: str) -> Choice | None:
        """Return None: the method then ranks the relations by similarity."""
        return None

    def read(self, text: str) -> Choice:
        numbers = dict.fromkeys(self._numbers(text))
        offered = range(1, len(self.relations) + 1)
        picked = [self.relations[number - 1] for number in numbers if number in offered]
        unknown = tuple(f"relation_{number}" for number in numbers if number not in offered)
        if not picked:
            picked = list(dict.fromkeys(self._named(text)))
        if not picked:
            raise ParseError("there is none of the numbers of the relations, as in relation_1")
        return Choice(tuple(picked), unknown)

    def _numbers(self, text: str) -> Iterator[int]:
        """Yield the numbers in the text. A label that a reply repeats after its number is no further number."""
        at = 0
        while match := _NUMBER.search(text, at):
            number, at = int(match[1]), match.end()
            label = self._labels[number - 1] if 0 < number <= len(self._labels) else ""
            after = _TO_LABEL.match(text, at)
            if after and text.startswith(label, after.end()):
                at = after.end() + len(label)
            yield number

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        return tuple(map(relation_label, self.relations))

    def _named(self, text: str) -> Iterator[Relation]:
        """Yield the relations whose names stand in the text, the first name first."""
        places = {name: place for name in self._by_name if (place := _place(name, text)) >= 0}
        return (self._by_name[name] for name in sorted(places, key=places.__getitem__))

    @cached_property
    def _by_name(self) -> Mapping[str, Relation]:
        """Each relation as it is printed, and by its bare name, which means the outgoing one if both exist."""
        bare_names = {relation.name: relation for relation in reversed(self.relations)}
        return bare_names | dict(zip(self._labels, self.relations, strict=True))


def _place(name: str, text: str) -> int:
    """Return where a name stands in a text, not as a part of a longer one; -1 if it does not."""
    match = re.search(rf"(?<![\w.^]){re.escape(name)}(?!\w|\.\w)", text)
    return match.start() if match else -1
