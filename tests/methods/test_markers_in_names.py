"""Text of the graph or of a question that looks like a marker of a method is never read as one (specification §2.4).

With a perfect model, each method and each preset scores the same on a world whose names are made of markers as on one
with plain names. Only questions that it answers with plain names are compared. Where it cannot answer, as one hop of
RAG cannot, its guess depends on the order of the names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from tests.methods.markers import MARKERS, PLACES, write_world
from tests.support import LARGE, METHODS, PRESETS

SWITCHES = ["method=arg method.facts=walk", "method=pog method.calls=batched", "method=r3 method.calls_per_step=1"]
"""Configurations with markers or with rules of reading that no preset has."""
MORE_ANSWERS = ["experiment=arg_prompted", "experiment=dog_wide", "experiment=rag_2_hop", "experiment=rog_listed"]
"""Presets that answer more questions than their method by itself, or with other prompts."""
BY_NAME = {"rog_random_plans", "rog_no_reasoning", "rog_vote", "tog_bm25", "tog_encoder"}
"""Presets that draw relations, rank them by their text, or answer with the ends of all paths, of which the best are the
first by name. Other names lead to other answers, whatever they look like."""

QUICK = [*(f"method={method}" for method in METHODS), *SWITCHES, *MORE_ANSWERS]
ALL = [*(f"experiment={preset}" for preset in PRESETS if preset not in BY_NAME), *SWITCHES]

Scores = Mapping[str, Mapping[str, float]]
"""F1 by configuration and question."""


def scores(configurations: Sequence[str], folder: Path, words: tuple[str, ...]) -> Scores:
    lines = [(*each.split(), *words, f"run.dir={folder}") for each in configurations]
    execute([Configuration(line, config.compose(line)) for line in lines], Console(quiet=True))
    rows = pl.read_parquet(folder / "traces" / "*.parquet").sort("point", "question_id")
    found: dict[str, dict[str, float]] = {}
    for point, question, f1 in rows.select("point", "question_id", "f1").iter_rows():
        found.setdefault(configurations[point], {})[question] = round(f1, 6)
    return found


def compared(found: Scores, innocent: Scores) -> Scores:
    """Return the scores of the questions that are answered with plain names."""
    return {
        each: {question: found[each][question] for question, f1 in scores.items() if f1 == 1}
        for each, scores in innocent.items()
    }


@pytest.fixture(scope="module")
def innocent(tmp_path_factory: pytest.TempPathFactory) -> Scores:
    folder = tmp_path_factory.mktemp("innocent")
    found = scores(QUICK, folder / "run", write_world(folder))
    answered = {each for each, of_questions in found.items() if all(f1 == 1 for f1 in of_questions.values())}
    # The others know nothing of the graph, follow one hop, or follow no relation against its direction.
    assert found.keys() - answered <= {"method=dog", "method=rag", "experiment=rag_2_hop"}
    return found


def markers_of(family: str, of: Sequence[str]) -> list[str]:
    """Return markers for names. A relation with # is of a foreign vocabulary, which every method ignores (§8.4)."""
    return [marker for marker in MARKERS[family] if "relations" not in of or "#" not in marker]


@pytest.mark.exhaustive
@pytest.mark.parametrize("of", ["relations", "entities", "questions"])
@pytest.mark.parametrize("family", MARKERS)
def test_names_made_of_markers_change_no_score(family: str, of: str, innocent: Scores, tmp_path: Path) -> None:
    place = PLACES["after" if of == "questions" else "alone"]
    words = write_world(tmp_path, markers_of(family, [of]), place, of=[of])
    assert compared(scores(QUICK, tmp_path / "run", words), innocent) == compared(innocent, innocent)


@pytest.mark.exhaustive
@pytest.mark.parametrize("offset", [5, 10, 15, 20])
def test_relations_named_like_tokens_of_arg_change_no_score(offset: int, innocent: Scores, tmp_path: Path) -> None:
    words = write_world(tmp_path, MARKERS["arg"], of=["relations"], offset=offset)
    assert compared(scores(QUICK, tmp_path / "run", words), innocent) == compared(innocent, innocent)


@pytest.mark.parametrize("place", [pytest.param(place, marks=LARGE) for place in ("before", "alone")])
def test_markers_in_all_names_at_once_change_no_score_of_any_preset(place: str, tmp_path: Path) -> None:
    expected = scores(ALL, tmp_path / "plain", write_world(tmp_path))
    for family in MARKERS:
        folder = tmp_path / family
        of = ["relations", "entities"]
        words = write_world(folder, markers_of(family, of), PLACES[place], of=of)
        assert compared(scores(ALL, folder / "run", words), expected) == compared(expected, expected), family
