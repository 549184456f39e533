"""Without foresight the oracle writes only what prompts show: dead ends look like any other node on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipeline.config import default
from pipeline.llm.prompt import Prompt
from pipeline.methods.parog import PARoG
from pipeline.methods.r3 import R3
from pipeline.methods.srp import SRP
from pipeline.methods.tog import ToG
from pipeline.simulation.gold_context import GoldContext, find_gold_context
from pipeline.simulation.registry import write_as_oracle
from pipeline.types import Answer, Example, Gold, GoldAnswer, Relation
from tests.methods.support import DictionaryGraph, ScriptedTools, VocabularyRetrieval, question, texts

STARRED, DIRECTED = "starred_actors", "directed_by"
FACTS = [
    ("Alien", STARRED, "Ian Holm"),
    ("Alien", STARRED, "Sigourney Weaver"),
    ("Alien", DIRECTED, "Ridley Scott"),
    ("Avatar", STARRED, "Sigourney Weaver"),
    ("Avatar", DIRECTED, "James Cameron"),
    ("Holes", STARRED, "Sigourney Weaver"),  # a dead end: the graph names no director
    ("Brazil", STARRED, "Ian Holm"),
    ("Brazil", DIRECTED, "Sigourney Weaver"),  # so she is an answer, and on the way to the others
]
ASKED = question("who directed the films that share actors with Alien?", "Alien")
PATH = (Relation(STARRED, "out"), Relation(STARRED, "in"), Relation(DIRECTED, "out"))
EXAMPLE = Example(ASKED, Gold((GoldAnswer("Sigourney Weaver"), GoldAnswer("James Cameron")), {"Alien": (PATH,)}))


class Run:
    """A method that is run with the replies of an oracle, and these replies by role."""

    def __init__(self, known: GoldContext) -> None:
        self.known = known
        self.replies: dict[str, list[str]] = {}

    async def ask(self, method: Any) -> Answer:
        retrieval = VocabularyRetrieval(vocabulary=(STARRED, DIRECTED))
        tools = ScriptedTools(DictionaryGraph(FACTS), write=self._write, retrieval=retrieval)
        answer: Answer = await method.answer(ASKED, tools.tools)
        return answer

    def _write(self, prompt: Prompt[Any]) -> str:
        reply = write_as_oracle(prompt, self.known, None)
        self.replies.setdefault(prompt.role, []).append(reply)
        return reply


async def known(*, foresight: bool) -> GoldContext:
    return await find_gold_context(EXAMPLE, DictionaryGraph(FACTS), foresight=foresight)


async def test_all_nodes_on_the_way_are_waypoints_but_the_start() -> None:
    assert (await known(foresight=True)).waypoints == {"Ian Holm", "Sigourney Weaver", "Avatar", "Brazil"}
    inner = (await known(foresight=False)).waypoints
    assert inner == {"Ian Holm", "Sigourney Weaver", "Avatar", "Brazil", "Holes"}


@pytest.mark.parametrize("method", [PARoG, R3, SRP, ToG])
async def test_every_method_finds_all_answers(method: Callable[..., Any]) -> None:
    answer = await Run(await known(foresight=False)).ask(default(method))
    assert set(texts(answer)) == {"Sigourney Weaver", "James Cameron"}


async def test_parog_keeps_films_that_lead_nowhere_and_not_the_film_it_started_from() -> None:
    seen, ahead = Run(await known(foresight=False)), Run(await known(foresight=True))
    for run in (seen, ahead):
        await run.ask(default(PARoG))
    assert seen.replies["parog.entities"][1] == '{"1": ["Brazil"], "2": ["Avatar", "Holes"]}'
    assert ahead.replies["parog.entities"][1] == '{"1": ["Brazil"], "2": ["Avatar"]}'
    assert '"answers": ["Brazil", "Avatar", "Holes"]' in seen.replies["parog.refine"][1]


async def test_tog_does_not_stop_at_an_actor_who_is_also_an_answer() -> None:
    seen, ahead = Run(await known(foresight=False)), Run(await known(foresight=True))
    for run in (seen, ahead):
        await run.ask(default(ToG))
    assert [reply.split()[0] for reply in seen.replies["tog.reason"]] == ["{No}", "{No}", "{Yes}"]
    assert ahead.replies["tog.reason"][0].startswith("{Yes}"), "it knows that she is an answer"


async def test_srp_answers_with_the_ends_of_gold_paths() -> None:
    run = Run(await known(foresight=False))
    await run.ask(default(SRP))
    (reply,) = run.replies["srp.answer"]
    assert reply.endswith("the answer is {Sigourney Weaver; James Cameron}.")


async def test_r3_does_not_go_back_to_the_film_it_started_from() -> None:
    run = Run(await known(foresight=False))
    await run.ask(default(R3))
    assert not any(f"NeighbourCheck[Alien, {DIRECTED}]" in reply for reply in run.replies["r3.action"])
