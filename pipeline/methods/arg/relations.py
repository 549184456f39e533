"""`arg.hypo` and `arg.relations`: propose hypothetical relations for retrieval, and judge the retrieved relations.

See specification §4.5.1 and §4.5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.arg.retrieval import declines
from pipeline.methods.arg.tokens import RETRIEVE_ENTITY, UNRELEVANT
from pipeline.methods.arg.transcript import Labelled, Segment, find_name, paragraph, read_labelled, write_labelled
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import match_key, truncate
from pipeline.methods.rendering import one_line

_MAX_CHARACTERS = 200
"""Characters kept of a hypothetical relation."""


@dataclass(frozen=True)
class HypotheticalRelations(Segment[tuple[str, ...]]):
    """The relations that the model hopes to find next, before it has seen any."""

    role: ClassVar[str] = "arg.hypo"

    walks: tuple[GroundedPath, ...]
    """The walks to the current entities of the transcript."""

    @property
    def text_so_far(self) -> str:
        return self.transcript

    def fallback(self, text: str) -> tuple[str, ...]:
        """Return no relation: retrieval works without them."""
        return ()

    def read(self, text: str) -> tuple[str, ...]:
        kept = [pair.name for pair in read_labelled(text) if pair.token.text != UNRELEVANT]
        if names := tuple(dict.fromkeys(one_line(name)[-_MAX_CHARACTERS:] for name in kept if name)):
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

    group: tuple[str, ...]
    """The relations offered."""
    walks: tuple[GroundedPath, ...]
    """The walks to the current entities of the transcript."""

    @property
    def text_so_far(self) -> str:
        return self.transcript + paragraph(self.group)

    def render(self, labels: Mapping[str, str]) -> str:
        """Render the segment that labels each relation of the group."""
        return write_relations((relation, labels[relation]) for relation in self.group)

    def fallback(self, text: str) -> RelationJudgement:
        """Return no relation: the node is dropped."""
        return RelationJudgement()

    def read(self, text: str) -> RelationJudgement:
        offered = {match_key(relation): relation for relation in self.group}
        labelled: dict[str, Labelled] = {}
        for pair in read_labelled(text):
            if (relation := find_name(pair.name, offered)) is not None:
                labelled.setdefault(relation, Labelled(relation, pair.token))
        declined = declines(text)
        if not labelled and not declined:
            raise ParseError(f"no relation of the paragraph is followed by its relevance: {truncate(text)}")
        return RelationJudgement(tuple(labelled.values()), declined)


def write_relations(labelled: Iterable[tuple[str, str]]) -> str:
    """Render relations with their labels, and `[Retrieve Entity]`."""
    return write_labelled(labelled) + RETRIEVE_ENTITY
