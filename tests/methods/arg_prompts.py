"""Segments of ArG that several tests use."""

from __future__ import annotations

from typing import Any

from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.arg.relations import RelationSegment
from pipeline.methods.grounded_path import GroundedPath
from pipeline.types import Relation
from tests.methods.support import question

ASKED = question("who directed it", "Ann")
GROUP = ("film.director", "film.genre", "film.year")
ANN = (GroundedPath("Ann"),)


def relations(**changed: Any) -> RelationSegment:
    return RelationSegment(ASKED, changed.pop("prompted", False), "[Retrieve Relation]", GROUP, ANN)


def entities(*ends: Any, shown: int = 5, fanout: int = 3, names: dict[str, str | None] | None = None) -> EntitySegment:
    tails = tuple(ANN[0].then(Relation("film.director", "out"), end) for end in ends)
    known = {"Ann": "Ann"} | {end: end for end in ends if isinstance(end, str)} | (names or {})
    return EntitySegment(
        ASKED, False, "so far[Retrieve Entity]", ANN[0], "film.director", tails, known, shown, fanout, "graph"
    )
