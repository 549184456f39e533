"""CoT, the model alone (specification §6.13)."""

from __future__ import annotations

import pytest

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.methods.cot import CoT
from pipeline.types import Prediction
from tests.methods.support import DictionaryGraph, ScriptedTools, question

ASKED = question("what is the capital of Quessland", "Quessland")


def script(*replies: str) -> ScriptedTools:
    return ScriptedTools(DictionaryGraph([]), {"cot.answer": replies})


async def test_one_call_and_no_lookup() -> None:
    tools = script("I think. So the answer is {Mirravel; Mirra}.")
    answer = await default(CoT).answer(ASKED, tools.tools)
    assert [prediction.text for prediction in answer.predictions] == ["Mirravel", "Mirra"]
    assert (answer.raw, answer.status) == ("I think. So the answer is {Mirravel; Mirra}.", "ok")
    assert tools.model.roles == ["cot.answer"]
    assert tools.graph.lookups.total() == 0
    assert "Question: what is the capital of Quessland?" in tools.model.prompts[0].messages()[-1].content


async def test_a_reply_without_braces_is_asked_again_and_then_read_leniently() -> None:
    tools = script("Hm.", "Well.", "The answer is Mirravel.")
    answer = await default(CoT).answer(ASKED, tools.tools)
    assert len(tools.model.roles) == 3
    assert [prediction.text for prediction in answer.predictions] == ["Mirravel"]
    silent = await default(CoT, parse_retries=0).answer(ASKED, script("Mirravel").tools)
    assert (silent.predictions, silent.raw) == ((), "Mirravel")


async def test_self_consistency_returns_what_most_samples_say() -> None:
    tools = script("{Rome}", "{the Mirravel}", "{mirravel; Rome}")
    answer = await default(CoT, samples=3, temperature=0.7).answer(ASKED, tools.tools)
    assert answer.predictions == (Prediction("Rome", score=2 / 3), Prediction("the Mirravel", score=2 / 3))
    assert answer.raw == "{Rome}"
    assert {sampling.temperature for sampling in tools.model.samplings} == {0.7}


async def test_a_cap_leaves_one_sample() -> None:
    tools = script("{a}")
    tools.model.max_calls = 0
    answer = await default(CoT, samples=3, temperature=0.7).answer(ASKED, tools.tools)
    assert (len(tools.model.roles), answer.status, answer.predictions[0].text) == (1, "budget_exhausted", "a")


def test_equal_samples_and_negative_retries_are_refused() -> None:
    with pytest.raises(UserError, match="temperature > 0"):
        default(CoT, samples=3)
    with pytest.raises(UserError, match="parse_retries"):
        default(CoT, parse_retries=-1)
