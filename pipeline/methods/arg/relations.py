"""`arg.hypo` and `arg.relations`: propose hypothetical relations for retrieval, and judge the retrieved relations.

See specification §4.5.1 and §4.5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.arg.retrieval import declines
from pipeline.methods.arg.tokens import CLOSE, OPEN, RETRIEVE_ENTITY, UNRELEVANT, escape
from pipeline.methods.arg.transcript import Labelled, Segment, find_name, paragraph, read_labelled, write_labelled
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import match_key, truncate
from pipeline.methods.rendering import one_line
from pipeline.methods.templates import load_template

_HYPO = load_template(__file__, "hypo")
_RELATIONS = load_template(__file__, "relations")

_MAX_CHARACTERS = 200
"""Characters kept of a hypothetical relation."""


@dataclass(frozen=True)
class HypotheticalRelations(Segment[tuple[str, ...]]):
    """The relations that the model hopes to find next, before it has seen any."""

    role: ClassVar[str] = "arg.hypo"
    explained = _HYPO

    walks: tuple[GroundedPath, ...]
    """The walks to the current entities of the transcript."""

    def fallback(self, text: str) -> tuple[str, ...]:
        """Return the whole relations of a paragraph that was cut before its end, or none: retrieval works without."""
        _, opened, paragraph = text.partition(OPEN)
        return _cleaned(paragraph.split(";")[:-1]) if self.prompted and opened and CLOSE not in paragraph else ()

    def read(self, text: str) -> tuple[str, ...]:
        if names := _cleaned(pair.name for pair in read_labelled(text) if pair.token.text != UNRELEVANT):
            return names
        raise ParseError(f"no relation is followed by its relevance: {truncate(text)}")


@dataclass(frozen=True, slots=True)
class RelationJudgement:
    """The generator's judgement of the relations of a group."""

    labelled: tuple[Labelled, ...] = ()
    """The relations with their relevance, in the order written."""
    declines: bool = False
    """Whether the generator ends the segment by `[No Retrieval]`: it will answer without the relations."""


@dataclass(frozen=True)
class RelationSegment(Segment[RelationJudgement]):
    """The relevance of each relation of a group, and whether to follow them."""

    role: ClassVar[str] = "arg.relations"
    explained = _RELATIONS

    group: tuple[str, ...]
    """The relations offered."""
    walks: tuple[GroundedPath, ...]
    """The walks to the current entities of the transcript."""
    batch: tuple[int, int] = (1, 1)
    """The number of the group, and the number of groups of its node."""

    @property
    def text_so_far(self) -> str:
        return self.transcript + paragraph(self.group)

    def turn(self) -> dict[str, str]:
        number, of = self.batch
        return {"batch": str(number), "batches": str(of)}

    def render(self, labels: Mapping[str, str]) -> str:
        """Render the segment that labels each relation of the group."""
        return write_relations((relation, labels[relation]) for relation in self.group)

    def fallback(self, text: str) -> RelationJudgement:
        """Return no relation: the node is dropped."""
        return RelationJudgement()

    def read(self, text: str) -> RelationJudgement:
        offered = {match_key(escape(relation)): relation for relation in self.group}
        labelled: dict[str, Labelled] = {}
        for pair in read_labelled(text):
            if (relation := find_name(pair.name, offered)) is not None:
                labelled.setdefault(relation, Labelled(relation, pair.token))
        declined = declines(text)
        if not labelled and not declined:
            raise ParseError(f"no relation of the paragraph is followed by its relevance: {truncate(text)}")
        return RelationJudgement(tuple(labelled.values()), declined)


def _cleaned(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names on one line each, without the marks that separate or quote them."""
    lines = (one_line(name)[-_MAX_CHARACTERS:] for name in names)
    return tuple(dict.fromkeys(line for line in lines if line))


def write_relations(labelled: Iterable[tuple[str, str]]) -> str:
    """Render relations with their labels, and `[Retrieve Entity]`."""
    return write_labelled(labelled) + RETRIEVE_ENTITY
