"""Drafts: what a killed worker leaves, and what the next one makes of it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.llm.prompt import Completion
from pipeline.traces.draft import Draft
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place, place

REPLY = Completion("text", "stop", 3, 4, ({"a": -0.5},), {"yes": 0.75, "no": 0.25})


def folder(path: Place) -> RunFolder:
    run = RunFolder(path)
    run.create()
    return run


@pytest.fixture(params=["a file", "objects"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return folder(tmp_path / "run" if request.param == "a file" else place(f"memory://{uuid.uuid4().hex}/run"))


async def test_the_next_worker_replays_what_the_last_one_finished(run: RunFolder) -> None:
    async with Draft(run, 3) as draft:
        draft.append("q1", "k1", REPLY)
        draft.append("q2", "k2", Completion("other"))
    async with Draft(run, 3) as taken_over:
        replayed = taken_over.calls("q1")["k1"]
        assert (replayed.text, replayed.probabilities) == (REPLY.text, REPLY.probabilities)
        assert taken_over.calls("q2") == {"k2": Completion("other")}
        assert taken_over.calls("q3") == {}


async def test_shards_do_not_see_each_others_drafts(run: RunFolder) -> None:
    async with Draft(run, 1) as draft:
        draft.append("q", "k", REPLY)
    async with Draft(run, 11) as other:
        assert other.calls("q") == {}


async def test_discarding_removes_every_draft_of_the_shard(run: RunFolder) -> None:
    async with Draft(run, 1) as lost:
        lost.append("q", "k", REPLY)
    async with Draft(run, 1) as draft, Draft(run, 2) as other:
        draft.append("q", "k", REPLY)
        other.append("q", "k", REPLY)
        await draft.discard()
    assert [path.name[:11] for path in (run.path / "drafts").iterdir()] == ["shard-00002"]


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(min_value=0, max_value=400), texts=st.lists(st.text(), min_size=1, max_size=6))
async def test_a_torn_line_is_a_call_not_made_and_takes_no_other_with_it(
    tmp_path_factory, cut: int, texts: list[str]
) -> None:
    run = folder(tmp_path_factory.mktemp("torn"))
    async with Draft(run, 0) as draft:
        for index, text in enumerate(texts):
            draft.append("q", f"k{index}", Completion(text))
    (path,) = run.drafts(0)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - cut] if cut else whole)
    complete_lines = path.read_bytes().count(b"\n")
    async with Draft(run, 0) as taken_over:
        calls = taken_over.calls("q")
    # A line that lost only its newline is still a whole call.
    assert complete_lines <= len(calls) <= complete_lines + 1
    assert all(calls[f"k{index}"].text == texts[index] for index in range(len(calls)))
