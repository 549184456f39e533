"""What is said of a call that a replayed run did not record: in what it differs from the nearest recorded one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.errors import Unanswerable
from pipeline.llm.prompt import Call
from pipeline.traces.replay import _as_recorded, _QuestionReplay
from tests.llm.support import call

ASKED = call()
AGAIN = replace(ASKED, complaint="no list")


@pytest.mark.parametrize(
    ("recorded", "asked", "difference"),
    [
        (ASKED, call("Where?"), "the input question"),
        (ASKED, AGAIN, "the input complaint"),
        (AGAIN, replace(AGAIN, key="other"), "the model or the seed"),
        (ASKED, replace(ASKED, ordinal=1), "the number of equal calls before it"),
    ],
)
async def test_the_nearest_call_is_named(recorded: Call, asked: Call, difference: str) -> None:
    replay = _QuestionReplay(lambda _: "model", {}, {"recorded": _as_recorded(recorded)}, {"recorded"})
    with pytest.raises(Unanswerable, match=f"^not recorded: the nearest recorded call differs in {difference}$"):
        await replay.complete(asked)
