"""Words of the command line whose values Hydra's grammar has no place for, and words that messages advise."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from pipeline import config


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("run.dir=runs/größe", "runs/größe"),
        ("run.note=a=b", "a=b"),
        ("run.note=it's", "it's"),
        ("dataset.triples=d/façts 1.tsv", "d/façts 1.tsv"),
        ("+run.note=日本", "日本"),
        ("run.note=what is it?", "what is it?"),
        ("run.dir=~/runs/a", str(Path.home() / "runs/a")),
        ("dataset.triples=~/größe/a=b.tsv", str(Path.home() / "größe/a=b.tsv")),
    ],
)
def test_a_plain_text_needs_no_quotes(word: str, value: str) -> None:
    assert OverridesParser.create().parse_override(config.readable(word)).value() == value


@pytest.mark.parametrize(
    "word",
    [
        "run.limit=20",
        "run.tags=[a,ü",
        "method=srp,ü",
        "~run.note",
        "run.dir='ü",
        "run.dir=ü method=srp",
        "a=${ü}",
        "x=",
        "ü=1",
    ],
)
def test_other_words_stay_as_they_are(word: str) -> None:
    assert config.readable(word) == word


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("x=[http://h/a#b]", ["http://h/a#b"]),
        ("x=[http://h/a#b,c]", ["http://h/a#b", "c"]),
        ("x=[a#b", "[a#b"),
        ("x=a#{b", "a#{b"),
    ],
)
def test_the_advised_word_is_read_as_it_was_meant(word: str, meant: object) -> None:
    (advised,) = shlex.split(config.not_an_override(word).partition("or write ")[2].removesuffix(" for this text"))
    assert OverridesParser.create().parse_override(advised).value() == meant


@given(folder=st.text("aü1 ~'\"\\$,:=[](){}+-./", min_size=1).filter(str.strip))
def test_an_advised_word_is_read_as_it_was_meant(folder: str) -> None:
    (word,) = shlex.split(config.shell_override("run.reuse", [folder]))
    assert OverridesParser.create().parse_override(config.readable(word)).value() == [folder]
