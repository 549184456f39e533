"""Early stopping: hopeless configurations are dropped, the best is kept, and the rows equal those of a full sweep."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.config import default
from pipeline.engine.configuration import Configuration
from pipeline.engine.early_stopping import MAX_RISK, stratified_order, survivors
from pipeline.engine.run import execute
from pipeline.errors import UserError
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from tests.support import AS_RUN, rewrite_shard

WORDS = (
    *("dataset.triples=2000", "run.limit=150", "engine.shard_size=8", "evaluation.bootstrap_resamples=100"),
    *("method=r3", "llm=oracle", "llm.error_rate=0.1"),
)
DEPTHS = (1, 2, 3, 8)


def run(folder: Path, *words: str) -> dict[str, Any]:
    overrides = [(*WORDS, f"method.depth={depth}", f"run.dir={folder}", *words) for depth in DEPTHS]
    execute([Configuration(each, config.compose(each)) for each in overrides], Console(quiet=True))
    return RunFolder(folder).read_summary() or {}


def rows(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(RunFolder(folder).traces).drop(AS_RUN).sort("point", "question_id")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep without early stopping. Tests that write to it use a copy."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep with early stopping. Tests that write to it use a copy."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    run(folder, "run.early_stopping=24")
    return folder


@pytest.mark.exhaustive
class TestRuns:
    def test_dropped_configurations_ask_fewer_questions_and_the_best_asks_all(self, whole: Path, stopped: Path) -> None:
        full, short = (RunFolder(folder).read_summary() or {} for folder in (whole, stopped))
        asked = [each["questions"] for each in short["points"]]
        assert asked[-1] == 150
        assert asked[0] == 24
        assert short["complete"] is True
        assert short["physical_llm_calls"] < full["physical_llm_calls"]
        assert short["points"][-1]["hits_at_1"] == full["points"][-1]["hits_at_1"]

    def test_the_rows_equal_those_of_a_sweep_without_early_stopping(self, whole: Path, stopped: Path) -> None:
        keys = ["point", "question_id"]
        common = rows(whole).join(rows(stopped).select(keys), on=keys, how="semi")
        assert common.equals(rows(stopped))

    @pytest.mark.parametrize("lost", [(5, 11), (0,), (2, 3), (18,)])
    def test_a_resumed_run_drops_the_same_configurations(
        self, lost: tuple[int, ...], stopped: Path, tmp_path: Path
    ) -> None:
        shutil.copytree(stopped, tmp_path / "run")
        for shard in lost:
            RunFolder(tmp_path / "run").shard(shard).unlink()
        (tmp_path / "run/summary.json").unlink()
        assert run(tmp_path / "run", "run.early_stopping=24")["complete"] is True
        assert rows(tmp_path / "run").equals(rows(stopped))

    def test_a_complete_run_has_nothing_left_though_its_first_configuration_was_dropped(
        self, stopped: Path, tmp_path: Path
    ) -> None:
        shutil.copytree(stopped, tmp_path / "run")
        before = rows(stopped)
        assert run(tmp_path / "run", "run.early_stopping=24")["complete"] is True
        assert rows(tmp_path / "run").equals(before)
        for more in ([], ["run.extend=true"]):
            with pytest.raises(UserError, match=r"asked another number .*its run cannot be extended\. run\.restart"):
                run(tmp_path / "run", "run.early_stopping=24", "run.limit=160", *more)


class TestOrder:
    EXAMPLES = tuple(default(SyntheticWorld, triples=2000, questions=400).examples(pytest.fail))

    def test_the_order_is_deterministic_and_keeps_every_question(self) -> None:
        ordered = stratified_order(self.EXAMPLES)
        assert ordered == stratified_order(self.EXAMPLES[::-1])
        assert sorted(one.question.id for one in ordered) == sorted(one.question.id for one in self.EXAMPLES)

    @pytest.mark.parametrize("taken", [40, 100, 200, 333])
    def test_every_prefix_has_each_kind_in_proportion(self, taken: int) -> None:
        by_type = sorted(self.EXAMPLES, key=lambda one: str(one.question.meta["type"]))
        total = Counter(one.question.meta["type"] for one in by_type)
        prefix = Counter(one.question.meta["type"] for one in stratified_order(by_type)[:taken])
        for kind, questions in total.items():
            hops = len({one.question.meta["hops"] for one in by_type if one.question.meta["type"] == kind})
            assert prefix[kind] == pytest.approx(questions * taken / 400, abs=1 + hops / 2)


class TestGuarantee:
    QUESTIONS, RUNGS = 400, (25, 50, 100, 200)

    def sweeps_that_lose_the_best(self, right: np.ndarray, sweeps: int) -> float:
        """Return the share of random orders in which the best configuration, a row of `right`, is dropped."""
        rng = np.random.default_rng(5)
        best = int(right.mean(axis=1).argmax())
        lost = 0
        for _ in range(sweeps):
            order = rng.permutation(self.QUESTIONS)
            alive = list(range(len(right)))
            for rung in self.RUNGS:
                level = MAX_RISK / ((len(right) - 1) * len(self.RUNGS))
                alive = survivors({number: right[number, order[:rung]] for number in alive}, level=level)
            lost += best not in alive
        return lost / sweeps

    def test_the_best_is_hardly_ever_dropped_even_if_all_are_nearly_equal(self) -> None:
        rng = np.random.default_rng(1)
        right = rng.random((12, self.QUESTIONS)) < 0.5
        right[3, :40] = True  # the best, by a little
        assert self.sweeps_that_lose_the_best(right, 400) <= MAX_RISK

    def test_the_best_is_hardly_ever_dropped_if_it_answers_other_questions(self) -> None:
        right = np.zeros((12, self.QUESTIONS), dtype=bool)
        for number in range(11):
            right[number, :200] = True
        right[11, 199:] = True  # one question more than each of the others
        assert self.sweeps_that_lose_the_best(right, 400) <= MAX_RISK

    def test_configurations_far_behind_are_dropped_at_once(self) -> None:
        rng = np.random.default_rng(2)
        shares = [0.9, 0.85, 0.8, 0.75, 0.3, 0.2, 0.1, 0.0]
        hits = {number: rng.random(64) < share for number, share in enumerate(shares)}
        assert survivors(hits, level=MAX_RISK / 28) == [0, 1, 2, 3]

    def test_at_most_half_are_dropped_and_none_that_is_equal_to_the_leader(self) -> None:
        worst = {number: np.zeros(500, dtype=bool) for number in range(9)}
        assert survivors({**worst, 9: np.ones(500, dtype=bool)}, level=0.001) == [0, 1, 2, 3, 9]
        assert survivors(worst, level=0.001) == list(range(9))


class TestOracles:
    @pytest.mark.parametrize("alone", [("method=cot",), ("experiment=r3_gold",)])
    def test_a_configuration_that_gets_gold_answers_drops_none_that_does_not(
        self, alone: tuple[str, ...], tmp_path: Path
    ) -> None:
        words = (*WORDS, "llm.error_rate=0.2", f"run.dir={tmp_path}", "run.early_stopping=24")
        sweep = [(*words, f"method.depth={depth}") for depth in DEPTHS] + [(*words, *alone, "llm.error_rate=0")]
        execute([Configuration(each, config.compose(each)) for each in sweep], Console(quiet=True))
        *others, oracle = (RunFolder(tmp_path).read_summary() or {})["points"]
        assert oracle["hits_at_1"] > max(each["hits_at_1"] for each in others)
        assert max(each["questions"] for each in others) == oracle["questions"] == 150
        assert others[0]["questions"] < 150


class TestOutages:
    def test_a_failed_question_drops_no_configuration(self, whole: Path, tmp_path: Path) -> None:
        """A configuration is not worse because its server was unreachable for a while."""
        from pipeline.engine.early_stopping import EarlyStopping

        shutil.copytree(whole, tmp_path / "run")
        folder = RunFolder(tmp_path / "run")
        for index in folder.finished():
            rows = pl.read_parquet(folder.shard(index))
            away = pl.col("point") == len(DEPTHS) - 1
            failed = rows.with_columns(
                status=pl.when(away).then(pl.lit("failed")).otherwise(pl.col("status")),
                hits_at_1=pl.when(away).then(0.0).otherwise(pl.col("hits_at_1")).cast(pl.Float32),
            )
            rewrite_shard(tmp_path / f"run/traces/shard-{index:05d}.parquet", failed)
        stopping = EarlyStopping(folder, 24, lambda line, rows: None)
        configurations = tuple(range(len(DEPTHS)))
        assert stopping._survivors(configurations, sorted(folder.finished()), level=0.05) == configurations

    def test_failed_questions_cannot_be_retried(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"run\.retry_failed=true cannot be combined with run\.early_stopping"):
            run(tmp_path / "run", "run.early_stopping=24", "run.retry_failed=true")
