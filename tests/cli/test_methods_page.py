"""The figures of `docs/methods.md` for the slices of Freebase are those of today."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.support import Kgqa

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "methods.md").read_text("utf-8")
FILES = {"WebQSP": "webqsp.test", "CWQ": "cwq.test", "GrailQA": "grailqa.test1000"}
PLANS = {"rog": " method.plans=5"}
"""What the page says of the keys of a method."""
WITH_INVERSES = {"pog", "rog", "dog"}
"""The methods that it says were run on the graph with inverse relations."""


def table() -> dict[tuple[str, str], dict[str, list[float]]]:
    """The table of the slices: dataset and model → method → its score, and that of its wide preset if there is one."""
    text = PAGE.partition("\n## Slices of Freebase\n")[2].partition("\n\n2. ")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    _, _, *methods = lines[0]
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    dataset = ""
    for named, model, *cells in lines[2:]:
        dataset = named or dataset
        scores = [[float(each) for each in re.findall(r"\d+(?:\.\d)?", re.sub("[²³]", "", cell))] for cell in cells]
        found[dataset, model] = dict(zip(methods, scores, strict=True))
    return found


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


def test_the_table_is_found() -> None:
    assert set(table()) == {(dataset, model) for dataset in FILES for model in ("oracle", "similarity")}
    assert all(len(row) == 9 for row in table().values())
