"""Prompts of PoG that tests share, and what the oracle knows of their question."""

from __future__ import annotations

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.node_labels import NodeLabels
from pipeline.methods.pog.answer import AnswerAlone, AnswerFromTriples
from pipeline.methods.pog.entities import SelectEntities
from pipeline.methods.pog.evaluate import Evaluate
from pipeline.methods.pog.facts import ShownFacts
from pipeline.methods.pog.memory import NOTHING, UpdateStatus
from pipeline.methods.pog.plan import MakePlan
from pipeline.methods.pog.reflect import ChooseBack, Reflect
from pipeline.methods.pog.relations import RelationOffer, SelectRelations
from pipeline.simulation.gold_context import GoldContext
from pipeline.types import Gold, GoldAnswer, Relation
from tests.methods.support import question

ASKED = question("who directed “Amélie”, and which film of O’Hara?", "m.amelie", "m.ohara")
DIRECTED, FILM = Relation("film.directed_by", "out"), Relation("person.film", "out")
KNOWN = GoldContext(
    ASKED,
    Gold((GoldAnswer("Jeunet"),)),
    {"m.amelie": ((DIRECTED,),), "m.ohara": ((FILM, DIRECTED),)},
    waypoints=frozenset({"m.film"}),
)
NAMES = {
    "m.amelie": "Amélie",
    "m.ohara": "O’Hara",
    "m.jeunet": "Jeunet",
    "m.other": "Jeunet",
    "m.film": "Delicatessen [1991], restored",
    "m.cvt": None,
}
LABELS = NodeLabels(NAMES)
LABELS.add(NAMES)
START, OTHER = GroundedPath("m.amelie"), GroundedPath("m.ohara")
FACTS = (START.then(DIRECTED, "m.jeunet"), START.then(DIRECTED, "m.other"), START.then(DIRECTED, "m.cvt"))
FILMS = (OTHER.then(FILM, "m.film"), OTHER.then(FILM, "m.cvt"))
SHOWN = ShownFacts((*FACTS, *FILMS), LABELS, left_out=2)
OBJECTIVES = ("Find the director of Amélie", "Find the film of O’Hara")
STATUS = tuple((objective, NOTHING) for objective in OBJECTIVES)
OFFERS = (
    RelationOffer("m.amelie", "Amélie", (START,), (DIRECTED, Relation("film.genre", "out"))),
    RelationOffer("m.ohara", "O’Hara", (OTHER,), (FILM, Relation("person.film", "in"))),
)

PLAN = MakePlan(ASKED)
RELATIONS = SelectRelations(ASKED, OBJECTIVES, OFFERS[:1], batched=False)
RELATIONS_BATCHED = SelectRelations(ASKED, (), OFFERS, batched=True)
ENTITIES = SelectEntities(ASKED, (FACTS,), LABELS, batched=False)
ENTITIES_BATCHED = SelectEntities(ASKED, (FACTS, FILMS), LABELS, batched=True)
MEMORY = UpdateStatus(ASKED, STATUS, SHOWN)
EVALUATE = Evaluate(ASKED, STATUS, SHOWN)
REFLECT = Reflect(ASKED, ("m.jeunet", "m.film"), STATUS, SHOWN)
BACKTRACK = ChooseBack(ASKED, "a wrong turn", ("m.ohara", "m.film", "m.jeunet", "m.other"), STATUS, LABELS)
ANSWER = AnswerFromTriples(ASKED, SHOWN)
ALONE = AnswerAlone(ASKED)

PROMPTS = (
    *(PLAN, RELATIONS, RELATIONS_BATCHED, ENTITIES, ENTITIES_BATCHED),
    *(MEMORY, EVALUATE, REFLECT, BACKTRACK, ANSWER, ALONE),
)
