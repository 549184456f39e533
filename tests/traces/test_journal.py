"""Journals: what a killed worker leaves, and how the next one uses it."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.llm.prompt import Candidate, Completion
from pipeline.traces.folder import RunFolder
from pipeline.traces.journal import Journal
from pipeline.traces.storage import StoragePath, storage_path, write_whole

REPLY = Completion("text", "stop", 3, 4, ({"a": -0.5},), {"yes": 0.75, "no": 0.25})


def folder(path: StoragePath) -> RunFolder:
    run = RunFolder(path)
    run.create()
    return run


@pytest.fixture(params=["a file", "objects"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return folder(tmp_path / "run" if request.param == "a file" else storage_path(f"memory://{uuid.uuid4().hex}/run"))


async def test_the_next_worker_replays_the_finished_calls(run: RunFolder) -> None:
    async with Journal(run, 3) as journal:
        await journal.append("q1", "k1", REPLY)
        await journal.append("q2", "k2", Completion("other"))
    async with Journal(run, 3) as taken_over:
        replayed = taken_over.calls("q1")["k1"]
        assert (replayed.text, replayed.probabilities) == (REPLY.text, REPLY.probabilities)
        assert taken_over.calls("q2") == {"k2": Completion("other")}
        assert taken_over.calls("q3") == {}


async def test_calls_that_return_together_are_written_at_once_before_any_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder(tmp_path / "run")
    async with Journal(run, 3) as journal:
        writes = []
        append = journal._own.append
        monkeypatch.setattr(journal._own, "append", lambda lines: (writes.append(lines), append(lines)))
        await asyncio.gather(*(journal.append(f"q{n}", "k", REPLY) for n in range(3)))
        (path,) = run.journals(3)
        assert [path.read_bytes()] == writes
        assert [orjson.loads(line)[0] for line in path.read_bytes().splitlines()] == ["q0", "q1", "q2"]


async def test_a_call_that_ends_after_the_journal_is_not_stored(
    run: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a question that is given up when another one has ended the run."""
    async with Journal(run, 3) as journal:
        await journal.append("q1", "k1", REPLY)
    await journal.append("q2", "k2", REPLY)
    await asyncio.sleep(0)
    assert not caplog.records, "no error of the event loop"
    async with Journal(run, 3) as taken_over:
        assert (len(taken_over.calls("q1")), len(taken_over.calls("q2"))) == (1, 0)


async def test_calls_of_one_configuration_are_apart_from_shared_calls(run: RunFolder) -> None:
    async with Journal(run, 3) as journal:
        await journal.append("q", "k", REPLY)
        await journal.append("q", "k", Completion("of the second configuration"), configuration=1)
    async with Journal(run, 3) as taken_over:
        assert taken_over.calls("q")["k"].text == REPLY.text
        assert taken_over.calls("q", 1)["k"].text == "of the second configuration"
        assert taken_over.calls("q", 0) == {}


async def test_a_journal_of_the_first_edition_is_replayed(run: RunFolder) -> None:
    write_whole(run.path / "drafts" / "shard-00003.old.jsonl", orjson.dumps(("q", "k", REPLY)) + b"\n")
    async with Journal(run, 3) as journal:
        assert journal.calls("q")["k"].text == REPLY.text


async def test_candidates_are_replayed(run: RunFolder) -> None:
    reply = Completion("a", completion_tokens=7, candidates=(Candidate("a", score=-0.5), Candidate("b", "length")))
    async with Journal(run, 3) as journal:
        await journal.append("q", "k", reply)
    async with Journal(run, 3) as taken_over:
        assert taken_over.calls("q") == {"k": reply}


async def test_a_journal_of_a_version_without_candidates_is_replayed(run: RunFolder) -> None:
    older = orjson.loads(orjson.dumps(Completion("text", prompt_tokens=3)))
    del older["candidates"]
    write_whole(run.path / "drafts" / "shard-00003.old.jsonl", orjson.dumps(("q", 0, "k", older)) + b"\n")
    async with Journal(run, 3) as journal:
        assert journal.calls("q", 0) == {"k": Completion("text", prompt_tokens=3)}


@pytest.mark.parametrize("wrong", [[7], [{"score": 1}], {"text": "a"}, [{"text": "a", "score": "high"}], "abc"])
async def test_candidates_of_wrong_types_are_read_past(run: RunFolder, wrong: object) -> None:
    line = ("q", "k", {"text": "a", "candidates": wrong})
    write_whole(run.path / "drafts" / "shard-00003.odd.jsonl", orjson.dumps(line) + b"\n")
    async with Journal(run, 3) as journal:
        assert journal.calls("q") == {}


async def test_a_shard_does_not_read_journals_of_other_shards(run: RunFolder) -> None:
    async with Journal(run, 1) as journal:
        await journal.append("q", "k", REPLY)
    async with Journal(run, 11) as other:
        assert other.calls("q") == {}


async def test_discard_removes_every_journal_of_the_shard(run: RunFolder) -> None:
    async with Journal(run, 1) as lost:
        await lost.append("q", "k", REPLY)
    async with Journal(run, 1) as journal, Journal(run, 2) as other:
        await journal.append("q", "k", REPLY)
        await other.append("q", "k", REPLY)
        await journal.discard()
    assert [path.name[:11] for path in (run.path / "drafts").iterdir()] == ["shard-00002"]


@settings(max_examples=60)
@given(cut=st.integers(min_value=0, max_value=400), texts=st.lists(st.text(), min_size=1, max_size=6))
async def test_a_torn_line_loses_one_call_and_no_other(tmp_path_factory, cut: int, texts: list[str]) -> None:
    run = folder(tmp_path_factory.mktemp("torn"))
    async with Journal(run, 0) as journal:
        for index, text in enumerate(texts):
            await journal.append("q", f"k{index}", Completion(text))
    (path,) = run.journals(0)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - cut] if cut else whole)
    complete_lines = path.read_bytes().count(b"\n")
    async with Journal(run, 0) as taken_over:
        calls = taken_over.calls("q")
    # A line that lost only its newline is still a whole call.
    assert complete_lines <= len(calls) <= complete_lines + 1
    assert all(calls[f"k{index}"].text == texts[index] for index in range(len(calls)))


@pytest.mark.parametrize(
    "reply",
    [
        *(7, None, {}, {"text": ["a"]}, {"text": 7}, {"text": "a", "finish_reason": None}),
        *({"text": "a", "prompt_tokens": wrong} for wrong in (-1, 1.5, 2**31)),
    ],
)
async def test_a_reply_of_wrong_types_is_read_past_and_counted(run: RunFolder, reply: object, caplog: Any) -> None:
    lines = [("q", None, "bad", reply), ("q", None, "good", REPLY)]
    write_whole(run.path / "drafts" / "shard-00003.old.jsonl", b"\n".join(map(orjson.dumps, lines)))
    async with Journal(run, 3) as journal:
        assert journal.calls("q") == {"good": REPLY}
    assert "calls in journals with replies that cannot be used, which are made again: 1" in caplog.text
