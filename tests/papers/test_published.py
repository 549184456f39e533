"""The published numbers are complete, and equal to the papers'."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from pipeline.config import build, compose, conf_dir, departures
from pipeline.evaluation.paper_metrics import paper_metrics_of
from pipeline.papers.comparison_systems import ComparisonSystem, comparison_systems, why_not_run
from pipeline.papers.published import _FILE, Figure, _Table, published_figures
from pipeline.papers.unprinted import UnprintedRow, unprinted_tables
from pipeline.types import Scores

FIGURES = published_figures()
_READINGS = {None, "self-judged", "all neighbours", "four rounds", "one attempt"}
PRINTED = [figure for figure in FIGURES if figure.reading in _READINGS]
"""Each number once."""
OWN = {"SRP", "ArG", "PARoG", "R3-Cycle"}
"""The methods of the four papers."""


def find(**wanted: object) -> Figure:
    """The one figure with these fields; those not named may be anything, except a variant or a subset."""
    wanted = {"variant": None, "subset": None, **wanted}
    found = [figure for figure in PRINTED if all(getattr(figure, name) == value for name, value in wanted.items())]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("wanted", "printed"),
    [
        ({"paper": "SRP", "table": "main", "method": "SRP", "model": "GPT-3.5", "dataset": "webqsp"}, "78.6"),
        ({"table": "ablation", "variant": "w/o self-reflection", "dataset": "cwq"}, "55.5"),
        ({"table": "main", "method": "ToG", "model": "GPT-4", "dataset": "grailqa", "subset": "zero-shot"}, "86.5"),
        ({"table": "main", "method": "Readi", "model": "GPT-4.1-mini", "dataset": "cwq"}, "60.2"),
        ({"table": "searching success", "method": "SRP", "model": "GPT-4.1-mini", "dataset": "webqsp"}, "85.3"),
        ({"table": "reliable answering", "dataset": "grailqa"}, ">95"),
        ({"paper": "ArG", "table": "settings", "method": "ArG", "dataset": "cwq", "metric": "F1"}, "≈55–57"),
        ({"paper": "ArG", "variant": "width exhaustive", "dataset": "cwq", "metric": "F1"}, "≈45"),
        ({"paper": "PARoG", "table": "main", "method": "PARoG", "model": "GPT-4", "dataset": "cwq"}, "79.3"),
        ({"paper": "PARoG", "table": "error correction", "dataset": "grailqa"}, "77.1"),
        ({"paper": "PARoG", "table": "gain over PoG", "subset": "superlative"}, "20.5"),
        (
            {
                "table": "main",
                "method": "R3-Cycle",
                "model": "GPT-4o-mini",
                "dataset": "grbench",
                "subset": "biomedical",
            },
            "39.8",
        ),
        ({"paper": "PoG", "table": "main", "method": "PoG", "model": "GPT-4", "dataset": "cwq"}, "75.0"),
        ({"paper": "PoG", "variant": "w/o memory", "dataset": "grailqa"}, "69.3"),
        ({"paper": "PoG", "method": "PoG", "dataset": "webqsp", "metric": "output tokens"}, "283.0"),
        ({"paper": "PoG", "method": "RoG", "dataset": "cwq"}, "62.6"),
        ({"paper": "RoG", "table": "main", "method": "RoG", "dataset": "webqsp", "metric": "Hits@1"}, "85.7"),
        ({"paper": "RoG", "variant": "w/o reasoning", "dataset": "cwq", "metric": "recall"}, "67.9"),
        ({"table": "efficiency", "method": "R3-Cycle", "subset": "goodreads", "metric": "seconds"}, "17.3"),
    ],
)
def test_a_figure_prints_as_in_the_paper(wanted: dict[str, object], printed: str) -> None:
    assert str(find(**wanted)) == printed


def test_every_table_is_complete() -> None:
    assert Counter((figure.paper, figure.table) for figure in PRINTED) == {
        ("SRP", "main"): 14 * 6 - 18,
        ("SRP", "main, as repeated in a second table"): 1,
        ("SRP", "ablation"): 5 * 3,
        ("SRP", "searching success"): 4 * 3,
        ("SRP", "reliable answering"): 3,
        ("ArG", "settings"): 1 * 4 + 4 * 2,
        ("ArG", "depth"): 4 * 4,
        ("ArG", "width"): 4 * 4,
        ("ArG", "token types"): 6,
        ("PARoG", "main"): 2 * 3 + 2 + 3 + 2,
        ("PARoG", "ablation"): 6 * 3,
        ("PARoG", "error correction"): 3,
        ("PARoG", "gain over PoG"): 5,
        ("PoG", "main"): 3 * 5 + 2 + 6 * 2,
        ("PoG", "ablation"): 5 * 3,
        ("PoG", "efficiency"): 2 * 12,
        ("RoG", "main"): 3 * 2 + 2 * 4,
        ("RoG", "plug and play"): 2 * 2,
        ("RoG", "ablation"): 5 * 6,
        ("RoG", "F1 by hops"): 5,
        ("RoG", "MetaQA with three hops"): 2 * 2,
        ("DoG", "gain over ToG"): 2,
        ("R3-Cycle", "main"): 9 * 9 - 3 * 3,
        ("R3-Cycle", "efficiency"): 2 * 9,
    }


SPECIFICATION = (Path(__file__).parents[2] / "docs" / "specification.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\d)")


def values_of(section: str) -> Counter[float]:
    """Every number of the tables of a section in `published.yaml`, each as often as it is printed."""
    tables = [table for table in yaml.safe_load(_FILE.read_text(encoding="utf-8")) if table["section"] == section]
    printed = [value for table in tables for row in table["rows"] for value in row["values"] if value is not None]
    return Counter(float(n) for value in printed for n in (value.values() if isinstance(value, dict) else [value]))


@pytest.mark.parametrize("section", ["11.1", "11.2", "11.3", "11.4", "11.5"])
def test_the_tables_hold_every_number_of_the_specification(section: str) -> None:
    """A row that is forgotten, here or there, fails. What is no cell of a table there stands in its text."""
    text = SPECIFICATION.partition(f'<a id="{section}"></a>')[2].partition('<a id="')[0]
    body = re.sub(r"^\|.*\n\| ---.*\n", "", text, flags=re.MULTILINE)
    rows = [line for line in body.splitlines() if line.startswith("|")]
    cells = " ".join(cell for row in rows for cell in row.split("|")[2:])
    in_cells = Counter(map(float, NUMBER.findall(re.sub(r"\(−[\d.]+\)", "", cells))))
    published = values_of(section)
    assert in_cells - published == Counter()
    prose = {float(number) for line in body.splitlines() if line not in rows for number in NUMBER.findall(line)}
    assert (published - in_cells).keys() <= prose


def test_no_figure_is_listed_twice() -> None:
    keys = [
        tuple(
            getattr(figure, name)
            for name in ("paper", "table", "method", "variant", "model", "dataset", "subset", "metric", "reading")
        )
        for figure in FIGURES
    ]
    assert len(set(keys)) == len(keys)


def test_r3_stands_beside_the_oracle_that_its_paper_very_probably_used() -> None:
    """The same numbers, each with the preset that judges itself and with the one that is told by gold."""
    own = [figure for figure in FIGURES if figure.method == "R3-Cycle" and figure.variant is None]
    readings = {"r3": "self-judged", "r3_gold": "oracle"}
    assert {(figure.preset, figure.reading) for figure in own} == set(readings.items())
    values = {preset: [figure.value for figure in own if figure.preset == preset] for preset in readings}
    assert values["r3"] == values["r3_gold"]
    assert "R3-Cycle (GPT-4o-mini), oracle" in {figure.row for figure in own}


def test_whole_columns_of_the_r3_table_add_up() -> None:
    """A wrong digit anywhere in these columns changes the sum."""
    sums: Counter[tuple[str | None, str | None]] = Counter()
    for figure in PRINTED:
        if (figure.paper, figure.table) == ("R3-Cycle", "main"):
            sums[figure.model, figure.subset] += round(10 * figure.value)
    assert sums["GPT-3.5-turbo", "amazon"] == 2210
    assert sums["Qwen2.5-7B-Instruct", "biomedical"] == 959


def test_our_equivalent_scores_exist_and_are_those_that_our_tables_print() -> None:
    columns = {field.name for field in dataclasses.fields(Scores)}
    only_in_ablations = {"compat_rog_precision", "compat_rog_recall"}
    assert {figure.score for figure in FIGURES} - {None} <= columns
    for figure in FIGURES:
        if figure.score and figure.score.startswith(("compat", "rouge")) and figure.method == figure.paper:
            assert figure.score in {*paper_metrics_of(figure.method), *only_in_ablations}


def test_the_error_correction_rate_is_our_score_corrected() -> None:
    assert {figure.score for figure in FIGURES if figure.table == "error correction"} == {"corrected_tog_em"}


def test_the_reliable_answering_rate_is_of_what_the_rule_of_its_table_counts_as_correct() -> None:
    assert {figure.score for figure in FIGURES if figure.table == "reliable answering"} == {"supported_readi_hit"}


def test_the_presets_exist_and_every_row_of_srp_and_its_baselines_has_one() -> None:
    for preset in {figure.preset for figure in FIGURES if figure.preset}:
        assert (conf_dir() / "experiment" / f"{preset}.yaml").is_file()
        build("method", compose([f"experiment={preset}"]))
    ours = [
        figure
        for figure in FIGURES
        if figure.paper == "SRP" and figure.method in {"SRP", "ToG", "Readi", "model alone"}
    ]
    assert ours
    assert all(figure.preset for figure in ours)


def test_a_row_of_the_wrong_length_is_an_error() -> None:
    table = {"paper": "P", "table": "t", "section": "0", "metric": "m", "columns": [{}, {}]}
    read = TypeAdapter(_Table).validate_python
    assert len(list(read(table | {"rows": [{"method": "x", "values": [1, None]}]}).figures())) == 1
    with pytest.raises(ValidationError, match="1 values for 2 columns"):
        read(table | {"rows": [{"method": "x", "values": [1]}]})
    with pytest.raises(ValidationError, match="metric"):
        read(table | {"metric": None, "rows": [{"method": "x", "values": [1, 2]}]})


def test_every_row_has_a_preset_or_a_reason() -> None:
    presets = {file.stem for file in (conf_dir() / "experiment").glob("*.yaml")}
    assert {figure.preset for figure in FIGURES} - {None} <= presets
    without = [figure for figure in FIGURES if figure.preset is None]
    assert all(why_not_run(figure) for figure in without)
    assert all(bool(figure.score or figure.cost) != bool(figure.reason) for figure in FIGURES if figure.preset), (
        "a row that is run has a score, a cost, or the place of its number"
    )
    table = {"paper": "P", "table": "t", "section": "0", "metric": "m", "columns": [{}]}
    with pytest.raises(ValidationError, match="neither a score nor a cost, and no reason"):
        TypeAdapter(_Table).validate_python(table | {"rows": [{"method": "x", "preset": "srp", "values": [1]}]})


def test_every_system_that_a_paper_compares_itself_with_is_described() -> None:
    systems = comparison_systems()
    compared = {figure.method for figure in FIGURES if figure.method not in OWN}
    compared |= {row.row for each in unprinted_tables() for row in each.rows if row.reason and row.row in systems}
    assert compared == systems.keys()
    assert all(system.what.endswith(".") for system in systems.values())
    presets = {file.stem for file in (conf_dir() / "experiment").glob("*.yaml")}
    assert {preset for system in systems.values() for preset in system.presets} <= presets
    for figure in FIGURES:
        if figure.method in systems and figure.preset is None and figure.reason is None:
            assert systems[figure.method].reason, f"{figure.row} has a preset in its description and none in its row"
    with pytest.raises(ValidationError, match="either presets or a reason"):
        ComparisonSystem(what="x")


def test_every_row_without_numbers_has_a_command_that_composes_or_a_reason() -> None:
    named = {(figure.paper, figure.table) for figure in FIGURES}
    assert not named & {(each.paper, each.table) for each in unprinted_tables()}
    for row in (row for each in unprinted_tables() for row in each.rows):
        if row.run:
            program, command, *words = row.run.split()
            assert (program, command) == ("kgqa", "evaluate")
            composed = compose([*words, "dataset.path=x"])
            build("method", composed)
            assert departures(composed) in ((), ("no references",)), "the retriever is that of the paper"
        else:
            assert row.reason
    with pytest.raises(ValidationError, match="either a command or a reason"):
        UnprintedRow(row="x")


def test_a_system_without_a_preset_has_one_reason_in_all_tables() -> None:
    systems = comparison_systems()
    rows = [row for each in unprinted_tables() for row in each.rows if row.row in systems and row.reason]
    wikidata = "no dataset of ours links its questions to Wikidata"
    assert {row.row: row.reason for row in rows if row.reason != wikidata} == {
        row.row: systems[row.row].reason for row in rows if row.reason != wikidata
    }


def test_every_part_of_a_paper_with_results_is_covered() -> None:
    """What specification §11 and §12 list, by paper."""
    tables = {(figure.paper, figure.table) for figure in FIGURES} | {(t.paper, t.table) for t in unprinted_tables()}
    assert {paper: sum(each == paper for each, _ in tables) for paper, _ in tables} == {
        "SRP": 5 + 2,
        "ArG": 4 + 2,
        "PARoG": 4 + 2,
        "R3-Cycle": 2,
        "PoG": 3,
        "RoG": 5 + 1,
        "DoG": 1 + 1,
    }
