"""Prompts of SRP that tests share."""

from __future__ import annotations

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.srp.judge import Judge
from pipeline.methods.srp.path_edit import Edit
from pipeline.methods.srp.path_generation import PathGeneration
from pipeline.methods.srp.relation_check import RelationCheck
from pipeline.types import Relation
from tests.methods.support import question

ASKED = question("which movies did Ann direct", "Ann", "Bob")
ANN, BOB = ASKED.topic_entities
NAMES = {"Ann": "Ann", "m.1": None, "m.2": None, "Film": "Film", 'Say "Hi"': 'Say "Hi"', "Oslo": "Oslo"}

TO_FILM = GroundedPath("Ann").then(Relation("role", "out"), "m.1").then(Relation("film", "out"), "Film")
TO_HI = GroundedPath("Ann").then(Relation("role", "out"), "m.2").then(Relation("film", "out"), 'Say "Hi"')
TO_OSLO = GroundedPath("Ann").then(Relation("born_in", "out"), "Oslo")

CHECK = RelationCheck(ASKED, ANN, ("born_in", "directed", "role"), top_k=2)
PLAN = PathGeneration(ASKED, {"Ann": ("directed", "role"), "Bob": ("born_in",)}, paths_per_entity=1, max_path_len=4)
JUDGED = Judge(ASKED, ANN, (TO_FILM, TO_HI, TO_OSLO), NAMES)
EDITED = Edit(
    question=ASKED,
    entity=ANN,
    path=("role",),
    tried=(("born_in",),),
    message="Not yet. <cvt></cvt> in the end",
    grounded=(TO_FILM.first(1),),
    partial=(GroundedPath("Ann"),),
    names=NAMES,
    candidates=((("role",), ("film", "character")),),
    known=frozenset({"directed"}),
    max_path_len=4,
    shown_grounded=5,
    shown_partial=15,
)
