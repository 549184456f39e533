"""The run folder: its lock, and what is removed at the start."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.llm.prompt import Template
from pipeline.traces.folder import RunFolder
from pipeline.traces.journal import Journal


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.create()
    return run


def test_two_drivers_cannot_lock_one_folder(folder: RunFolder) -> None:
    in_use = pytest.raises(UserError, match=f"{folder.path} is in use by another process")
    with folder.held(), in_use, folder.held():
        pass
    with folder.held():
        pass


def test_a_file_system_without_locks_can_be_used(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with folder.held():
        pass


async def test_journals_of_committed_shards_and_temporary_files_are_removed(folder: RunFolder) -> None:
    for shard in (0, 1):
        async with Journal(folder, shard):
            pass
    folder.shard(0).write_bytes(b"committed")
    of_others = folder.path / "thesis.tmp"
    of_others.touch()
    half_written = folder.path / "traces" / "shard-00001.parquet.17.tmp"
    half_written.write_bytes(b"half")
    with folder.held():
        assert folder.journals(0) == []
        assert len(folder.journals(1)) == 1
        assert not half_written.exists()
        assert of_others.exists()
        assert folder.finished() == {0}


@pytest.mark.parametrize("assistant", ["", "Answer: {{begun}}"])
def test_a_template_is_read_back_unchanged(assistant: str, folder: RunFolder) -> None:
    template = Template(system="Be brief.", user="{{question}}", assistant=assistant)
    folder.write_template("test.ask", template)
    inputs = {"question": "Who?", "begun": "It was", "complaint": "no name"}
    found = folder.read_template(template.digest)
    assert (found.digest, found.render(inputs)) == (template.digest, template.render(inputs))
    roles = ["system", "user", "assistant"] if assistant else ["system", "user"]
    assert [message.role for message in found.render(inputs)] == roles
    assert "no name" in found.render(inputs)[1].content


def test_an_empty_run_folder_goes_with_the_folders_that_were_made_for_it(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    run = RunFolder(tmp_path / "kept" / "runs" / "group" / "run")
    created = run.create()
    (tmp_path / "kept" / "runs" / "other").mkdir()
    with run.held():
        pass
    run.remove_if_empty(created)
    assert [each.name for each in (tmp_path / "kept").rglob("*")] == ["runs", "other"]
    other = RunFolder(tmp_path / "kept" / "runs" / "other")
    other.remove_if_empty(other.create())
    assert other.path.exists(), "the folder was there before"


def test_the_folder_of_a_wrong_command_without_a_reply_is_removed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    created = run.create()
    draft = run.path / "drafts" / "shard-00000.0123abcd.jsonl"
    (run.path / "run.yaml").write_text("")
    draft.write_text("[]\n")
    run.remove_if_empty(created, is_wrong=True)
    assert draft.exists(), "it has a reply"
    draft.write_text("")
    run.remove_if_empty(created)
    assert draft.exists(), "the same command continues it"
    run.remove_if_empty(created, is_wrong=True)
    assert not run.path.exists()
