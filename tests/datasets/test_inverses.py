"""Pairs of inverse relations: read from a file, and completed in a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.custom import Custom
from pipeline.datasets.inverses import INVERSE, inverse_pairs, read_inverses
from pipeline.errors import UserError
from pipeline.types import LiteralNode, Triple


def test_pairs_are_known_from_both_ends() -> None:
    assert inverse_pairs([("parent", "child"), ("child", "parent")]) == {"parent": "child", "child": "parent"}


def test_a_relation_has_one_inverse_and_is_not_its_own() -> None:
    declared = [("b", "c"), ("a", "b"), ("spouse", "spouse"), ("x", LiteralNode("y"))]
    assert inverse_pairs(declared) == {"a": "b", "b": "a"}


def test_a_file_has_columns_by_name_among_others(tmp_path: Path) -> None:
    file = tmp_path / "relations.tsv"
    file.write_text('relation\tdomain\treverse\ndirected\tfilm\tdirector_of\nyear\tfilm\t\nsaid "so"\tx\tquoted\n')
    pairs = {"directed": "director_of", "director_of": "directed", 'said "so"': "quoted", "quoted": 'said "so"'}
    assert read_inverses(file) == pairs


def test_a_file_without_the_columns_is_named(tmp_path: Path) -> None:
    file = tmp_path / "relations.tsv"
    file.write_text("directed,director_of\n")
    with pytest.raises(UserError, match=r"relations\.tsv needs a first line with the columns relation and reverse"):
        read_inverses(file)


def test_a_graph_with_inverses_holds_each_fact_from_both_ends(tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text("Solaris\tdirected_by\tTarkovsky\nTarkovsky\tborn\t1932\n")
    (tmp_path / "inverses.tsv").write_text("relation\treverse\ndirected_by\tdirected\n")
    files = {"triples": tmp_path / "facts.tsv", "questions": tmp_path / "questions.jsonl"}
    facts = [Triple("Solaris", "directed_by", "Tarkovsky"), Triple("Tarkovsky", "born", "1932")]
    assert list(default(Custom, **files).triples()) == facts
    assert set(default(Custom, **files, inverses=tmp_path / "inverses.tsv").triples()) == {
        *facts,
        Triple("Tarkovsky", "directed", "Solaris"),
        Triple("directed_by", INVERSE, "directed"),
        Triple("directed", INVERSE, "directed_by"),
    }
