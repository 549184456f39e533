"""Presets of the user's own: what nothing reads is refused, and they are no published ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline import config
from pipeline.config import compose, describe
from pipeline.errors import UserError


@pytest.fixture
def preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of `experiment=mine`, to be written."""
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "conf" / "experiment" / "mine.yaml"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("method:\n  depth: 1\n", "below `experiment`, where nothing reads them: write `# @package _global_` into"),
        (
            "# @package _global_\nmetod:\n  depth: 1\n",
            "key 'metod' of a file. Did you mean 'method'?",
        ),
        ("# @package _global_\nlimit: 1\n", "nothing reads the key 'limit' of a file"),
        ("# @package _global_\nrun.limit: 1\n", "write 'run:', and below it, indented, 'limit: …'"),
        ("# @package _global_\n- a\n", "mine.yaml holds a list instead of keys"),
        ("# @package _global_\ndefaults:\n  - method: tog\n", "`override /method: tog` in the defaults of a file"),
    ],
)
def test_what_would_have_no_effect_is_refused(preset: Path, text: str, sentence: str) -> None:
    preset.write_text(text)
    with pytest.raises(UserError, match=re.escape(sentence)):
        compose(["experiment=mine"])


def test_a_key_that_is_null_cannot_be_removed() -> None:
    with pytest.raises(UserError, match=r"^~run\.limit: the key has no value to remove"):
        compose(["~run.limit"])


@pytest.mark.parametrize("word", ["+experiment.zzz=2", "+experiment.method.depth=1"])
def test_a_preset_is_no_section(word: str) -> None:
    with pytest.raises(UserError, match="nothing reads the key 'experiment"):
        compose([word])


@pytest.mark.parametrize(
    "text",
    [
        "wide: 3\nmethod:\n  depth: ${wide}\n",
        "wide: 3\nmethod:\n  depth: ${..wide}\n",
        'wide: {srp: 3}\nmethod:\n  depth: ${oc.select:"wide.srp", 1}\n',
        'wide: {srp: 3}\nmethod:\n  depth: "${oc.select: wide.srp, 1}"\n',
        "wide: {a: 1}\nrun:\n  tags: ${oc.dict.keys:wide}\nmethod:\n  depth: 3\n",
        "x-common: &common\n  depth: 3\nmethod:\n  <<: *common\n",
    ],
)
def test_a_key_that_others_refer_to_may_stand_beside_the_sections(preset: Path, text: str) -> None:
    preset.write_text(f"# @package _global_\n{text}")
    assert compose(["experiment=mine"])["method"]["depth"] == 3


def test_a_preset_of_ones_own_departs_from_no_paper(preset: Path) -> None:
    preset.write_text("# @package _global_\nmethod:\n  depth: 2\n")
    assert config.departures(compose(["experiment=srp"]))
    assert config.departures(compose(["experiment=mine"])) == ()


@pytest.mark.parametrize("form", ["[{}]", "['{}']", "['file://{}']"])
def test_a_folder_of_the_search_path_may_have_a_comma_and_no_scheme(tmp_path: Path, form: str) -> None:
    folder = tmp_path / ("a" if form == "[{}]" else "a,b")
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "other.yaml").write_text("# @package _global_\nmethod: {depth: 3}\n")
    word = f"hydra.searchpath={form.format(folder)}"
    assert compose(["experiment=other", word])["method"]["depth"] == 3
    assert "depth" in describe(["method=srp", word])


def test_a_search_path_without_a_folder_is_refused() -> None:
    with pytest.raises(UserError, match=r"hydra\.searchpath names /no/folder, which is not a folder"):
        compose(["hydra.searchpath=[file:///no/folder]"])
