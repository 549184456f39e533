"""The figures of `docs/methods.md` for the synthetic world and the slices of Freebase are those of today."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from pipeline.analysis.runs import open_run
from tests.cli.support import Kgqa

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "methods.md").read_text("utf-8")
FILES = {"WebQSP": "webqsp.test", "CWQ": "cwq.test", "GrailQA": "grailqa.test1000"}
WIDE = {"srp": "method=srp method.judge_samples_per_path=300"}
"""The words for a method without its cut-offs, where no preset has them."""
PLANS = {"rog": " method.plans=5"}
"""What the page says of the keys of a method."""
WITH_INVERSES = {"pog", "rog", "dog"}
"""The methods that it says were run on the graph with inverse relations."""


def table() -> dict[tuple[str, str], dict[str, list[float]]]:
    """The table of the slices: dataset and model → method → its score, and that of its wide preset if there is one."""
    (_, _, *methods), *lines = rows(PAGE.partition("\n## Slices of Freebase\n")[2].partition("\n\n2. ")[0])
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    dataset = ""
    for named, model, *cells in lines:
        dataset = named or dataset
        found[dataset, model] = dict(zip(methods, map(scores_in, cells), strict=True))
    return found


def synthetic_table() -> dict[str, dict[str, list[float]]]:
    """The table of the synthetic world: method → type of question → the scores as in `table`."""
    (_, *methods, _), *lines = rows(PAGE.partition("\n## Synthetic world")[2].partition("\n\n| dataset")[0])
    return {
        method: {line[0].replace(" hops", "-hop").replace(" hop", "-hop"): scores_in(line[column]) for line in lines}
        for column, method in enumerate(methods, start=1)
    }


def rows(text: str) -> list[list[str]]:
    """The cells of a table, without the line below its header."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [cells[0], *cells[2:]]


def scores_in(cell: str) -> list[float]:
    return [float(each) for each in re.findall(r"\d+(?:\.\d)?", re.sub("[²³]", "", cell))]


@pytest.mark.parametrize(
    ("dataset", "model"),
    [
        pytest.param(*row, marks=pytest.mark.exhaustive if row == ("WebQSP", "similarity") else pytest.mark.large)
        for row in table()
    ],
)
def test_each_score_of_a_slice_is_on_the_page(
    dataset: str, model: str, kgqa: Kgqa, shared_data: Path, tmp_path: Path
) -> None:
    expected = table()[dataset, model]
    folder = shared_data / "freebase-slice"
    data = (f"dataset.triples={folder}/triples.tsv.gz", f"dataset.questions={folder}/{FILES[dataset]}.jsonl.gz")
    chosen = ("dataset=custom", *data, "dataset.filter={gold_pattern_in_slice: true}", f"llm={model}")
    for names, keys in (
        (expected.keys() - WITH_INVERSES, ()),
        (WITH_INVERSES, (f"dataset.inverses={folder}/relations.tsv.gz",)),
    ):
        on_page = {f"method={name}{PLANS.get(name, '')}": expected[name][0] for name in sorted(names)}
        on_page |= {f"experiment={name}_wide": expected[name][1] for name in sorted(names) if expected[name][1:]}
        (tmp_path / "methods.txt").write_text("\n".join(on_page))
        run = "inverses" if keys else "plain"
        done = kgqa("sweep", "methods.txt", *chosen, *keys, "evaluation.bootstrap_resamples=100", f"run.dir={run}")
        assert done.code == 0, done.err
        points = json.loads(Path(run, "summary.json").read_text())["points"]
        assert dict(zip(on_page, (round(100 * point["hits_at_1"], 1) for point in points), strict=True)) == on_page


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, marks=pytest.mark.exhaustive if method == "pog" else pytest.mark.large)
        for method in synthetic_table()
    ],
)
def test_each_score_of_the_synthetic_world_is_on_the_page(method: str, kgqa: Kgqa, tmp_path: Path) -> None:
    expected = synthetic_table()[method]
    words = [f"method={method}{PLANS.get(method, '')}"]
    if any(cell[1:] for cell in expected.values()):
        words.append(WIDE.get(method, f"experiment={method}_wide"))
    (tmp_path / "methods.txt").write_text("\n".join(words))
    world = ("dataset=synthetic", "dataset.questions=1600", "llm=oracle", "evaluation.bootstrap_resamples=100")
    done = kgqa("sweep", "methods.txt", *world, "run.dir=run")
    assert done.code == 0, done.err
    means = open_run("run").questions.group_by("configuration", "type").agg(pl.mean("hits_at_1")).collect().rows()
    scores = {(number, type): round(100 * mean, 1) for number, type, mean in means}
    on_page = {(number, type): score for type, cell in expected.items() for number, score in enumerate(cell)}
    assert {place: scores[place] for place in on_page} == on_page


def test_the_tables_are_found() -> None:
    assert len(synthetic_table()) == 8
    assert all(len(column) == 8 for column in synthetic_table().values())
    assert set(table()) == {(dataset, model) for dataset in FILES for model in ("oracle", "similarity")}
    assert all(len(row) == 9 for row in table().values())
