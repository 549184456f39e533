"""Where run folders lie: paths of this machine, and URLs. A real object store is in `tests/integration`."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.traces.place import Place, matching, place, read_all, read_whole, write_whole


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path if request.param == "local" else place(f"memory://{uuid.uuid4().hex}/run")


def test_what_is_written_is_there_whole_and_listed(folder: Place) -> None:
    for number in (2, 1):
        write_whole(folder / f"shard-{number}.x", b"old")
        write_whole(folder / f"shard-{number}.x", b"new %d" % number)
    assert [path.name for path in matching(folder, "shard-*.x")] == ["shard-1.x", "shard-2.x"]
    assert [path.name for path in folder.iterdir() if path.suffix != ".x"] == [], "nothing is left beside"
    assert read_whole(folder / "shard-1.x") == b"new 1"
    assert matching(folder / "nothing", "*") == []
    with pytest.raises(FileNotFoundError):
        read_whole(folder / "shard-3.x")


def test_many_objects_are_read_in_order() -> None:
    folder = place(f"memory://{uuid.uuid4().hex}")
    paths = [folder / str(number) for number in range(100)]
    for number, path in enumerate(paths):
        write_whole(path, b"%d" % number)
    assert list(read_all(paths)) == [b"%d" % number for number in range(100)]


def test_a_local_file_is_not_read_into_memory(tmp_path: Path) -> None:
    assert list(read_all([tmp_path / "a", tmp_path / "b"])) == [tmp_path / "a", tmp_path / "b"]


def test_paths_stay_paths() -> None:
    assert place("runs/x") == Path("runs/x")
    assert place("file:///runs/x") == Path("/runs/x")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://key:secret@runs/x", "holds credentials"),
        ("nosuch://x/y", "nosuch://x/y cannot be reached: "),
        ("gs://x/y", "install gcsfs"),
    ],
)
def test_what_cannot_be_reached_is_one_sentence(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        place(url)
