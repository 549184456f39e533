"""The meaning of each configuration key, read from the comments in `conf/`."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline import config
from pipeline.cli.commands import COMMANDS
from pipeline.config.key_docs import KeyDoc, help_text, read_command, read_file, read_group, search_path
from tests.support import sampled

CONF = config.conf_dir()
FILES = sorted(CONF.rglob("*.yaml"))
PRESETS = "experiment"
"""Its files set keys that the files of the method explain."""

TEXT = """\
# A thing. It has more
# than one sentence.
defaults:
  # The graph.
  - kg: embedded
  - parent
  - override /method: srp
  - _self_

_target_: somewhere.Thing
# How many. null
# takes all.
count: 3

# A part.
part:
  first: [1, 2]  # Some numbers.
  # An address.
  second: "http://x#y"
  third: {a: 1,
    b: 2}
last: ???
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "thing.yaml"
    path.write_text(TEXT)
    return path


def test_comments_above_a_key_and_behind_its_value_are_its_meaning(file: Path) -> None:
    read = read_file(file, "things")
    assert (read.summary, read.first_sentence) == ("A thing. It has more than one sentence.", "A thing.")
    assert read.keys[1:] == [
        KeyDoc("things", "thing", "things.count", "3", "How many. null takes all."),
        KeyDoc("things", "thing", "things.part", None, "A part."),
        KeyDoc("things", "thing", "things.part.first", "[1, 2]", "Some numbers."),
        KeyDoc("things", "thing", "things.part.second", '"http://x#y"', "An address."),
        KeyDoc("things", "thing", "things.part.third", "{a: 1, b: 2}", ""),
        KeyDoc("things", "thing", "things.last", "???", ""),
    ]
    assert read.keys[0].key == "things._target_"
    assert read.keys[0].meaning


def test_the_defaults_list_names_groups_and_parents(file: Path) -> None:
    read = read_file(file)
    assert read.groups["kg"] == "The graph."
    assert read.parents == ["parent"]
    assert not [doc for doc in read.keys if doc.key.startswith("defaults")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_every_file_says_what_it_configures_and_every_key_what_it_means(path: Path) -> None:
    group = None if path.parent == CONF else str(path.parent.relative_to(CONF))
    read = read_file(path, group)
    assert read.summary.endswith(".")
    if group != PRESETS:
        assert [doc.key for doc in read.keys if not doc.meaning] == []
        assert [doc.key for doc in read.keys if not doc.meaning.endswith(".")] == []


def test_every_key_of_a_preset_is_explained_by_another_file() -> None:
    folders = [CONF]
    known = {doc.key for path in FILES if path.parent.name != PRESETS for doc in keys_of(path)}
    for choice, file in read_group(folders, PRESETS).items():
        assert {doc.key for doc in file.keys if doc.default is not None} <= known, choice


@pytest.mark.parametrize("name", sorted({each.config_name for each in COMMANDS.values() if each.config_name}))
def test_every_group_of_a_command_has_a_meaning(name: str) -> None:
    files = read_command([CONF], name)
    groups = {group for file in files for group in file.groups if not group.startswith("override")}
    assert groups == {group for file in files for group, meaning in file.groups.items() if meaning} & groups


def test_help_shows_values_under_the_overrides_and_names_required_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = config.describe(["dataset=metaqa", "run.limit=3"])
    assert "\n    * metaqa " in text
    assert "\n  run.limit=3\n      Number of questions to answer, from the first one on. null answers all.\n" in text
    assert "\n  dataset.path=???\n" in text
    assert "Required.\n" in text
    assert "dataset.triples" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_choices_of_the_users_own_are_listed(tmp_path: Path) -> None:
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("# A method of mine. It is short.\n# Its word.\nword: Ada\n")
    folders = search_path([CONF], [f"hydra.searchpath=[file://{tmp_path}]", "method=mine"])
    assert folders == [CONF, tmp_path]
    assert "mine" in read_group(folders, "method")
    text = help_text({"method": {"word": "Ada"}}, {"method": "mine"}, "config", folders, [])
    assert "* mine   A method of mine." in text
    assert "method.word=Ada" in text


GROUPS = ["dataset", "engine", "evaluation", "kg", "llm", "method", "retrieval"]


@pytest.mark.parametrize(
    "word",
    sampled((f"{group}={path.stem}" for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))), every=8),
)
def test_help_explains_every_key_of_every_choice(word: str) -> None:
    lines = config.describe([word]).splitlines()
    keys = lines[lines.index("Keys with their defaults:") + 2 :]
    for key, next_line in pairwise(keys):
        if re.match(r"  \S", key) and "=" in key:
            assert next_line.startswith("      "), f"{key} has no meaning"


def test_help_of_published_retrieval_is_that_of_the_encoders_it_takes() -> None:
    text = " ".join(config.describe(["retrieval=published", "method=srp"]).split())
    assert "The encoder for relation names: this is SRP's" in text
    assert "Another encoder for relation names" not in text


def test_a_key_without_a_comment_is_not_explained_by_another_choice(tmp_path: Path) -> None:
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("# A method of mine.\n\nname: mine\ndepth: 2\n")
    (tmp_path / "method" / "deeper.yaml").write_text("# As ArG.\ndefaults:\n  - arg\n  - _self_\ndepth: 3\n")
    folders = [CONF, tmp_path]
    text = help_text({"method": {"name": "mine", "depth": 2}}, {"method": "mine"}, "config", folders, ["method=mine"])
    assert text.endswith("  method.name=mine\n  method.depth=2")
    text = help_text({"method": {"depth": 3}}, {"method": "deeper"}, "config", folders, ["method=deeper"])
    assert re.search(r"method\.depth=3\n      \w", text)


def keys_of(path: Path) -> list[KeyDoc]:
    group = None if path.parent == CONF else path.parent.name
    return list(read_file(path, group).keys)


def test_a_default_is_printed_as_it_can_be_given() -> None:
    shown = help_text(
        {"stand_in": ["dataset=synthetic", "run.limit=100"], "seeds": [1, 2]}, {}, "reproduce", [CONF], []
    )
    assert 'stand_in=["dataset=synthetic", "run.limit=100"]' in shown
    assert "seeds=[1, 2]" in shown
