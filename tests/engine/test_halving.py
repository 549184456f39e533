"""Early stopping: hopeless points go, the best one stays, and what was asked is what it would have been."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.datasets.sample import SampleWorld
from pipeline.engine.halving import DOUBT, fair_order, survivors
from pipeline.engine.run import Point, execute
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder

WORDS = (
    *("dataset.triples=2000", "run.limit=150", "engine.shard_size=8", "evaluation.bootstrap_resamples=100"),
    *("method=r3", "llm=oracle", "llm.error_rate=0.1"),
)
DEPTHS = (1, 2, 3, 8)
AS_RUN = ["llm_s", "kg_s", "wall_s", "steps", "texts", "llm_calls_shared", "kg_queries"]


def run(folder: Path, *words: str) -> dict[str, Any]:
    overrides = [(*WORDS, f"method.depth={depth}", f"run.dir={folder}", *words) for depth in DEPTHS]
    execute([Point(each, config.compose(each)) for each in overrides], Console(quiet=True))
    return RunFolder(folder).read_summary() or {}


def rows(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(RunFolder(folder).traces).drop(AS_RUN).sort("point", "question_id")


class TestRuns:
    def test_points_that_are_behind_ask_fewer_questions_and_the_best_asks_all(self, tmp_path: Path) -> None:
        whole, halved = run(tmp_path / "whole"), run(tmp_path / "halved", "run.halving=24")
        asked = [point["questions"] for point in halved["points"]]
        assert asked[-1] == 150
        assert asked[0] == 24
        assert halved["complete"] is True
        assert halved["physical_llm_calls"] < whole["physical_llm_calls"]
        assert halved["points"][-1]["hits_at_1"] == whole["points"][-1]["hits_at_1"]

    def test_the_rows_that_there_are_are_those_of_the_whole_sweep(self, tmp_path: Path) -> None:
        run(tmp_path / "whole")
        run(tmp_path / "halved", "run.halving=24")
        common = rows(tmp_path / "whole").join(
            rows(tmp_path / "halved").select("point", "question_id"), on=["point", "question_id"], how="semi"
        )
        assert common.equals(rows(tmp_path / "halved"))

    @pytest.mark.parametrize("lost", [(0,), (2, 3), (5, 11), (18,)])
    def test_a_resumed_run_drops_the_same_points(self, lost: tuple[int, ...], tmp_path: Path) -> None:
        run(tmp_path / "run", "run.halving=24")
        before = rows(tmp_path / "run")
        for shard in lost:
            RunFolder(tmp_path / "run").shard(shard).unlink()
        (tmp_path / "run/summary.json").unlink()
        assert run(tmp_path / "run", "run.halving=24")["complete"] is True
        assert rows(tmp_path / "run").equals(before)


class TestOrder:
    EXAMPLES = tuple(SampleWorld(triples=2000, questions=400).examples(pytest.fail))

    def test_nothing_is_lost_and_it_is_the_same_every_time(self) -> None:
        ordered = fair_order(self.EXAMPLES)
        assert ordered == fair_order(self.EXAMPLES[::-1])
        assert sorted(one.question.id for one in ordered) == sorted(one.question.id for one in self.EXAMPLES)

    @pytest.mark.parametrize("taken", [40, 100, 200, 333])
    def test_every_beginning_has_each_kind_in_proportion(self, taken: int) -> None:
        by_type = sorted(self.EXAMPLES, key=lambda one: str(one.question.meta["type"]))
        whole = Counter(one.question.meta["type"] for one in by_type)
        beginning = Counter(one.question.meta["type"] for one in fair_order(by_type)[:taken])
        for kind, questions in whole.items():
            hops = len({one.question.meta["hops"] for one in by_type if one.question.meta["type"] == kind})
            assert beginning[kind] == pytest.approx(questions * taken / 400, abs=1 + hops / 2)


class TestGuarantee:
    QUESTIONS, RUNGS = 400, (25, 50, 100, 200)

    def sweeps_that_lose_the_best(self, right: np.ndarray, sweeps: int) -> float:
        """The share of random orders in which the best of the points, a row of `right` each, is dropped."""
        rng = np.random.default_rng(5)
        best = int(right.mean(axis=1).argmax())
        lost = 0
        for _ in range(sweeps):
            order = rng.permutation(self.QUESTIONS)
            alive = list(range(len(right)))
            for rung in self.RUNGS:
                level = DOUBT / ((len(right) - 1) * len(self.RUNGS))
                alive = survivors({point: right[point, order[:rung]] for point in alive}, level=level)
            lost += best not in alive
        return lost / sweeps

    def test_the_best_is_hardly_ever_dropped_even_where_all_are_nearly_alike(self) -> None:
        rng = np.random.default_rng(1)
        right = rng.random((12, self.QUESTIONS)) < 0.5
        right[3, :40] = True  # the best, by a little
        assert self.sweeps_that_lose_the_best(right, 400) <= DOUBT

    def test_nor_where_its_hits_are_quite_other_ones(self) -> None:
        right = np.zeros((12, self.QUESTIONS), dtype=bool)
        for point in range(11):
            right[point, :200] = True
        right[11, 199:] = True  # one question more than each of the others
        assert self.sweeps_that_lose_the_best(right, 400) <= DOUBT

    def test_points_far_behind_are_dropped_at_once(self) -> None:
        rng = np.random.default_rng(2)
        shares = [0.9, 0.85, 0.8, 0.75, 0.3, 0.2, 0.1, 0.0]
        hits = {point: rng.random(64) < share for point, share in enumerate(shares)}
        assert survivors(hits, level=DOUBT / 28) == [0, 1, 2, 3]

    def test_at_most_half_are_dropped_and_none_that_is_as_good(self) -> None:
        worst = {point: np.zeros(500, dtype=bool) for point in range(9)}
        assert survivors({**worst, 9: np.ones(500, dtype=bool)}, level=0.001) == [0, 1, 2, 3, 9]
        assert survivors(worst, level=0.001) == list(range(9))


class TestOutages:
    def test_a_question_that_failed_drops_nobody(self, tmp_path: Path) -> None:
        """A point whose server was away for a while is not behind because of it."""
        from pipeline.engine.halving import Halving

        run(tmp_path / "run")
        folder = RunFolder(tmp_path / "run")
        for index in folder.finished():
            rows = pl.read_parquet(folder.shard(index))
            away = pl.col("point") == len(DEPTHS) - 1
            failed = rows.with_columns(
                status=pl.when(away).then(pl.lit("failed")).otherwise(pl.col("status")),
                hits_at_1=pl.when(away).then(0.0).otherwise(pl.col("hits_at_1")).cast(pl.Float32),
            )
            failed.write_parquet(folder.shard(index))
        halving = Halving(folder, 24, lambda line, rows: None)
        points = tuple(range(len(DEPTHS)))
        assert halving._survivors(points, sorted(folder.finished()), level=0.05) == points

    def test_what_was_dropped_is_not_mended(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"run\.retry_failed=true does not go with run\.halving"):
            run(tmp_path / "run", "run.halving=24", "run.retry_failed=true")
