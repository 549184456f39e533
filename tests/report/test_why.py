"""Why answers are wrong and what they cost: bars, published figures and transcripts of a real run, and filters."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import unquote

import polars as pl
import pytest

from pipeline.analysis.losses import STAGE_TEXTS, clusters, loss_shares
from pipeline.analysis.runs import open_run
from pipeline.errors import UserError
from pipeline.papers.published import published_figures
from pipeline.papers.reproduction import ReproducedFigure
from pipeline.percentages import one_decimal
from pipeline.report.bars import _seconds
from pipeline.report.build_page import build_page
from pipeline.report.data import Block, read_blocks
from pipeline.report.examples import _LONGEST_TEXT, _cut
from pipeline.report.page_content import BlockView
from pipeline.report.papers import paper_tables
from pipeline.report.render_page import render
from pipeline.viewer.server import open_indexes
from tests.report.configurations import RUN, make
from tests.report.conftest import Sweep


@pytest.fixture(scope="module")
def run(sweep: Sweep) -> Path:
    """A run of two methods, one of which edits, with a simulated latency."""
    words = ("run.limit=16", "llm.malformed_rate=0.2", "llm.latency_s=0.001")
    return sweep(*words, **{"llm.error_rate": [0.3, 0.5], "method.retries": [0, 1]})


@pytest.fixture(scope="module")
def view(run: Path) -> BlockView:
    (block,) = build_page(read_blocks([run])).blocks
    return block


def test_the_bars_are_the_shares_of_losses(run: Path, view: BlockView) -> None:
    assert view.losses is not None
    shares = loss_shares(open_run(run).losses()).collect()
    right = open_run(run).questions.group_by("configuration").agg(pl.col("hits_at_1").mean()).sort("configuration")
    found = sorted(sum(part.size for part in bar.parts) for bar in view.losses.bars)
    assert found == pytest.approx([100] * 4, abs=0.1), "every question is right, or lost at one stage"
    drawn = sorted(round(float(bar.figures[0].text or 0), 1) for bar in view.losses.bars)
    assert drawn == sorted(one_decimal(100 * share) for share in right.collect()["hits_at_1"])
    for bar in view.losses.bars:
        lost = [part for part in bar.parts if not part.text.startswith("right")]
        assert all(part.text.partition(": ")[0] in {text.heading for text in STAGE_TEXTS.values()} for part in lost)
        assert sum(part.size for part in lost) == pytest.approx(100 - float(bar.figures[0].text or 0), abs=0.1)
    assert shares["lost"].sum() == sum(int(part.text.split("(")[1].split()[0]) for bar in view.losses.bars
                                       for part in bar.parts if not part.text.startswith("right"))  # fmt: skip


def test_the_details_are_those_of_the_dataframes(run: Path) -> None:
    """The report reads the traces once, shard by shard; `open_run` gives the same figures."""
    (block,) = read_blocks([run])
    opened = open_run(run)
    roles = opened.role_costs().drop("shared").collect()
    repetitions = opened.repetition_effects().drop("corrected", "damaged").collect()
    groups = clusters(opened.losses(), by_path=False).collect()
    for number, each in enumerate(block.configurations):
        for found, expected in (
            (each.details.roles, roles),
            (each.details.repetitions, repetitions),
            (each.details.groups, groups.group_by("configuration", maintain_order=True).head(3)),
        ):
            rows = expected.filter(configuration=number).drop("configuration").to_dicts()
            assert [asdict(one) for one in found] == [
                {
                    name: pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
                    for name, value in row.items()
                }
                for row in rows
            ]


def test_the_tokens_of_roles_add_up_to_those_of_the_questions(run: Path, view: BlockView) -> None:
    (chart,) = view.roles
    means = open_run(run).questions.group_by("configuration").agg(pl.col("prompt_tokens", "completion_tokens").mean())
    tokens = means.select(pl.sum_horizontal("prompt_tokens", "completion_tokens").round(0)).collect().to_series()
    assert sorted(float(bar.figures[0].text.replace(",", "")) for bar in chart.bars) == sorted(tokens)
    assert max(sum(part.size for part in bar.parts) for bar in chart.bars) == pytest.approx(100, abs=0.1)
    assert {row[0] for row in chart.roles} == {entry.text for entry in chart.legend}


def test_latency_is_shown_only_where_seconds_mean_something(run: Path, view: BlockView, grid: Path) -> None:
    assert view.latency is not None
    calls = open_run(run).calls.group_by("configuration").agg(pl.col("own_s").sum() / 16).collect()
    of_the_model = [bar.figures[view.latency.headings.index("of the model")].text for bar in view.latency.bars]
    assert sorted(of_the_model) == sorted(map(_seconds, calls["own_s"])), "without queues, as the rest of the row"
    for bar in view.latency.bars:
        assert bar.range is not None
        low, mark, high = bar.range
        assert 0 <= low <= mark <= high <= 100
    (simulated,) = build_page(read_blocks([grid])).blocks
    assert simulated.latency is None, "the oracle takes no time"


def test_repetitions_count_every_question(view: BlockView) -> None:
    assert view.reflection is not None
    assert len(view.reflection.bars) == 2, "SRP edits nothing without retries"
    for bar in view.reflection.bars:
        counts = [int(text.rsplit(" of ", 1)[1]) for text in bar.figures[-1].text.split(", ")]
        assert sum(counts) == 16


def test_examples_hold_the_transcript_and_the_command(run: Path, view: BlockView) -> None:
    assert view.examples
    for example in view.examples:
        *command, folder, id, number = example.command.split()
        assert (command, folder) == (["kgqa", "show"], str(run))
        trace = open_run(folder).question(id, int(number.removeprefix("configuration=")))
        assert len(example.steps) == len(trace.steps)
        assert trace.scores["hits_at_1"] == 0
        lost = [at for at, step in enumerate(example.steps) if step.is_loss]
        assert lost == ([trace.loss.step] if trace.loss and trace.loss.step is not None else [])
        replies = [text for step in example.steps for term, text in step.texts if term == "reply"]
        assert replies == [step.completion for step in trace.steps if step.completion is not None]
    page = render(build_page(read_blocks([run])))
    assert "lost here" in page
    assert view.examples[0].page in page


def test_the_page_of_an_example_in_the_viewer_is_there(run: Path, view: BlockView, tmp_path: Path) -> None:
    (index,) = open_indexes([run], tmp_path)
    index.update()
    for example in view.examples:
        assert example.viewer == f"kgqa view {run}"
        _, name, configuration, id = map(unquote, example.page.split("/"))
        assert name == index.name
        assert index.question(id, int(configuration)).text == example.question


def test_a_megabyte_of_text_is_cut() -> None:
    text = _cut("x" * 1_000_000 + "\u202e")
    assert len(text) < _LONGEST_TEXT + 50
    assert text.endswith("more characters)")
    assert "\u202e" not in _cut("a\u202eb\x00")


def test_the_figures_of_reproduce_stand_beside_the_papers(tmp_path: Path) -> None:
    figure = next(each for each in published_figures() if each.preset == "srp" and each.dataset == "webqsp")
    estimate = {"mean": 70.0, "low": 60.0, "high": 80.0}
    entry = {**ReproducedFigure(figure, None, None, "").to_dict(), "measured": estimate, "strict": estimate}
    missing = {**entry, "measured": None}
    cost = {**entry, "strict": None}
    substituted = {**entry, "stood_in": True}
    run = replace(RUN, path=tmp_path)
    (tmp_path / "reproduction.json").write_text(json.dumps({"figures": [entry, missing, cost, substituted]}))
    whole, stand_in = paper_tables(Block([make([1.0], run=run)]))
    assert (whole.substituted, stand_in.substituted) == (False, True)
    (row,) = whole.rows
    assert (row.paper, row.ours.text, row.range) == (str(figure), "70.0", (60.0, 70.0, 80.0))
    assert row.gap == f"{70.0 - figure.value:+.1f}".replace("-", "−")
    assert stand_in.rows[0].gap == "–"
    (tmp_path / "reproduction.json").write_text("{}")
    with pytest.raises(UserError, match=r"reproduction\.json is damaged"):
        paper_tables(Block([make([1.0], run=run)]))


def test_a_run_with_the_preset_of_a_paper_stands_beside_it(tmp_path: Path) -> None:
    preset = make([1.0, 0.0], run=replace(RUN, path=tmp_path), dataset="webqsp")
    preset = replace(preset, resolved={**preset.resolved, "choices": {"method": "srp", "experiment": "srp"}})
    tables = paper_tables(Block([preset]))
    expected = [each for each in published_figures() if (each.preset, each.dataset) == ("srp", "webqsp") and each.score]
    shown = sorted(row.published for table in tables for row in table.rows)
    assert shown == sorted(each.value for each in expected if each.score == "compat_readi_hit" and not each.subset)
    assert {row.ours.text for table in tables for row in table.rows} == {"50.0"}
    assert paper_tables(Block([make([1.0], run=replace(RUN, path=tmp_path))])) == []


def test_many_configurations_are_filtered_by_their_parameters() -> None:
    def keys(depth: int, retries: int) -> dict[str, int]:
        return {"depth": depth, "retries": retries}

    few = [make([1.0], keys(depth, retries)) for depth in (1, 2) for retries in (0, 1)]
    assert build_page([Block(few)]).blocks[0].filters == []
    many = [make([1.0, 0.0], keys(depth, retries)) for depth in (10, 1, 2, 3) for retries in (0, 1, 2)]
    page = build_page([Block(many)])
    assert page.blocks[0].filters == [("depth", ["1", "2", "3", "10"]), ("retries", ["0", "1", "2"])]
    rows = [row for group in page.blocks[0].table.groups for row in group]
    assert {row.values for row in rows} == {f"0-{depth} 1-{retries}" for depth in range(4) for retries in range(3)}
    text = render(page)
    assert text.count('class="value value-') == 7
    assert '.block:has(.value-0-3:not(:checked)) [data-v~="0-3"]{display:none}' in text
