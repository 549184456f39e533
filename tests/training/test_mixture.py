"""Mixing collections of training texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.training.mixture import Part, write_mixture


def rows(file: Path, role: str | None, count: int) -> Path:
    more = {"role": role} if role else {}
    file.write_text("".join(json.dumps({"id": str(i), **more, "text": "x"}) + "\n" for i in range(count)), "utf-8")
    return file


def test_each_role_has_its_share(tmp_path: Path) -> None:
    walks, calls = rows(tmp_path / "a", None, 1000), rows(tmp_path / "b", "r3.thought", 1000)
    parts = [Part(walks, {"": 0.5}), Part(calls, {"r3": 1.0, "r3.thought": 0.2}), Part(calls, {"srp": 1.0})]
    taken = write_mixture(parts, tmp_path / "mixture")
    assert 430 < taken["arg"] < 570
    assert 140 < taken["r3.thought"] < 260
    assert len((tmp_path / "mixture").read_text("utf-8").splitlines()) == taken.total()


def test_a_larger_share_contains_a_smaller_one_in_the_same_order(tmp_path: Path) -> None:
    file = rows(tmp_path / "a", "srp.judge", 500)
    taken = []
    for share in (0.1, 0.3, 0.3):
        write_mixture([Part(file, {"srp": share})], tmp_path / "mixture")
        taken.append([json.loads(line)["id"] for line in (tmp_path / "mixture").read_text("utf-8").splitlines()])
    assert set(taken[0]) < set(taken[1])
    assert taken[1] == taken[2] == sorted(taken[1], key=int)


def test_held_out_questions_are_left_out_of_all_parts(tmp_path: Path) -> None:
    parts = [Part(rows(tmp_path / name, "srp.judge", 5), {"": 1.0}) for name in ("a", "b")]
    assert write_mixture(parts, tmp_path / "mixture", {"1", "4"}).total() == 6
    ids = [json.loads(line)["id"] for line in (tmp_path / "mixture").read_text("utf-8").splitlines()]
    assert ids == ["0", "2", "3"] * 2


def test_a_missing_part_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="missing"):
        write_mixture([Part(tmp_path / "missing", {"": 1.0})], tmp_path / "mixture")
    assert not (tmp_path / "mixture").exists()
