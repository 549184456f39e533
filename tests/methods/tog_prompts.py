"""Prompts of ToG that tests share, and what the oracle knows of their question."""

from __future__ import annotations

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.tog.entities import EntityScores
from pipeline.methods.tog.reason import Enough
from pipeline.methods.tog.relations import RelationScores
from pipeline.simulation.gold_context import GoldContext
from pipeline.types import Gold, GoldAnswer, Relation
from tests.methods.support import question

ASKED = question("which films is Ann in?", "Ann")
FILM, FILM_IN, TOWN = Relation("actor.film", "out"), Relation("actor.film", "in"), Relation("person.town", "out")
ROLE = Relation("role.film", "out")
KNOWN = GoldContext(
    ASKED,
    Gold((GoldAnswer("The Salt Road"),)),
    {"Ann": ((FILM, ROLE), (TOWN, FILM_IN))},
    waypoints=frozenset({"m.2"}),
)
NAMES = {"Ann": "Ann", "m.1": None, "m.2": None, "The Salt Road": "The Salt Road", "Captain": "Captain"}
START = GroundedPath("Ann")


def relations(*offered: Relation, chain: GroundedPath = START) -> RelationScores:
    return RelationScores(ASKED, chain, offered or (FILM_IN, FILM, TOWN), NAMES)


def entities(*candidates: str, chain: GroundedPath = START, relation: Relation = FILM) -> EntityScores:
    return EntityScores(ASKED, chain, relation, candidates, NAMES)


def enough(*chains: GroundedPath) -> Enough:
    return Enough(ASKED, chains, NAMES)
