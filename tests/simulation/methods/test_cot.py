"""The simulated replies to CoT's prompt."""

from __future__ import annotations

from random import Random

from pipeline.config import default
from pipeline.methods.cot import AnswerAlone, CoT
from pipeline.simulation.registry import write_as_oracle
from tests.methods.support import DictionaryGraph, ScriptedTools, gold_context, question

ASKED = question("what is the capital of Quessland", "Quessland")


async def test_the_oracle_gives_the_gold_answers() -> None:
    known = gold_context(ASKED, ["Mirravel", "Mirra"], {})
    tools = ScriptedTools(DictionaryGraph([]), write=lambda prompt: write_as_oracle(prompt, known, None))
    answer = await default(CoT).answer(ASKED, tools.tools)
    assert [prediction.text for prediction in answer.predictions] == ["Mirravel", "Mirra"]


def test_an_error_of_the_oracle_is_a_topic_entity_or_unknown() -> None:
    alone, asked = AnswerAlone(ASKED), [entity.name for entity in ASKED.topic_entities]
    known = gold_context(ASKED, ["Mirravel"], {})
    wrong = {alone.parse(write_as_oracle(alone, known, Random(seed))).texts for seed in range(30)}
    assert wrong == {(name,) for name in (*asked, "unknown")}
    assert alone.parse(write_as_oracle(alone, gold_context(ASKED, [], {}), None)).texts == ("unknown",)
