"""Simulators of R3's prompts: the oracle."""

from __future__ import annotations

from random import Random

from pipeline.methods.r3.reflect import Guidance
from pipeline.methods.r3.step_prompts import NextAction, Turn
from pipeline.methods.r3.verify import Verify
from pipeline.simulation.registry import write_as_oracle
from tests.methods.support import gold_context, question

ASKED = question("which capital?", "m.ann", names={"m.ann": "Ann"})
KNOWN = gold_context(ASKED, ["Ann City"], {"m.ann": ["people.person.nationality -> location.country.capital"]})


def test_the_oracle_verifies_by_gold_and_errs_to_the_opposite() -> None:
    right, wrong = Verify(ASKED, ("Ann City",), ()), Verify(ASKED, ("Annland",), ())
    assert right.parse(write_as_oracle(right, KNOWN, None)).accept
    assert not wrong.parse(write_as_oracle(wrong, KNOWN, None)).accept
    assert not right.parse(write_as_oracle(right, KNOWN, Random(1))).accept
    assert wrong.parse(write_as_oracle(wrong, KNOWN, Random(1))).accept


def test_an_error_of_the_oracle_is_not_repeated_against_advice() -> None:
    first = NextAction(Turn(ASKED, "triples"))
    errors = {write_as_oracle(first, KNOWN, Random(seed)) for seed in range(30)}
    assert errors == {"RetrieveNode[something else]", "Finish[unknown]"}
    warned = NextAction(Turn(ASKED, "triples", guidance=Guidance(avoid=tuple(errors))))
    assert write_as_oracle(warned, KNOWN, Random(1)) == "RetrieveNode[Ann]"
