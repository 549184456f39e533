"""Names of the first edition: in commands, in run folders and in configuration files.

`first_edition_run` is a run folder that the first edition wrote.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import pipeline
from pipeline import config, renames
from pipeline.cli.main import main
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder

FIRST_EDITION_RUN = Path(__file__).parent / "first_edition_run"
WORLD = ("dataset.triples=2000", "run.limit=6", "engine.shard_size=3", "evaluation.bootstrap_resamples=100")
THEN = "llm=oracle", "kg.memo_entries=1000", "llm.roles={srp.judge:{prompts:compact}}"
"""Other words of the command that wrote `first_edition_run`."""
LIMITS = (
    *("budget.max_llm_calls=60", "budget.max_evidence_triples=300", "method.relation_check_max=200"),
    r'kg.vocabulary.opaque_ids="[mg]\."',
)
"""Its defaults that have changed since."""


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(FIRST_EDITION_RUN, tmp_path / "runs" / "first")


@pytest.fixture
def kgqa(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run a command that must succeed, and return its two streams."""

    def run(*words: str) -> tuple[str, str]:
        capsys.readouterr()
        assert main(list(words)) == 0
        return capsys.readouterr()

    return run


class TestOverrides:
    @pytest.mark.parametrize(
        ("old", "new", "sentence"),
        [
            ("engine.share=false", "engine.dedupe_calls=false", "engine.share is now called engine.dedupe_calls"),
            ("++kg.coalesce_ms=3", "++kg.batch_window_ms=3", "kg.coalesce_ms is now called kg.batch_window_ms"),
            ("llm.prompts=compact", "llm.prompt_style=inputs_only", "llm.prompts is now called llm.prompt_style"),
            (
                "llm.prompts=full,compact",
                "llm.prompt_style=full,inputs_only",
                "llm.prompts is now called llm.prompt_style",
            ),
            ("dataset=sample", "dataset=synthetic", "dataset=sample is now written dataset=synthetic"),
            ("dataset=metaqa", "dataset=metaqa", None),
            ("dataset.name=sample", "dataset.name=sample", None),
            ("RUN", "RUN", None),
        ],
    )
    def test_an_old_override_is_translated_with_a_sentence(self, old: str, new: str, sentence: str | None) -> None:
        assert renames.current_override(old) == (new, sentence)

    @pytest.mark.parametrize("old", renames.KEYS)
    def test_every_new_key_exists(self, old: str) -> None:
        new = renames.KEYS[old]
        _, _, rest = new.partition(".")
        top = config.conf_dir()
        documents = [
            (file.relative_to(top).parent, yaml.safe_load(file.read_text()) or {}) for file in top.rglob("*.yaml")
        ]
        nested = [(".".join((*folder.parts[1:], "")), document) for folder, document in documents]
        own = {f"{prefix}{key}" for prefix, document in nested for key, _ in config.flatten(document)}
        assert new in own or rest in own
        assert not any(key in own for key in (old, old.partition(".")[2]) if "." in key)

    def test_composing_accepts_old_names(self) -> None:
        old = ["dataset=sample", "engine.share=false", "llm=oracle", "llm.roles={srp.judge: {prompts: compact}}"]
        new = [
            *("dataset=synthetic", "engine.dedupe_calls=false", "llm=oracle"),
            "llm.roles={srp.judge: {prompt_style: inputs_only}}",
        ]
        assert config.compose(old) == config.compose(new)

    def test_an_old_target_is_recorded_under_its_new_name(self) -> None:
        composed = config.compose(["llm=oracle", "llm._target_=pipeline.llm.oracle.Oracle"])
        assert composed == config.compose(["llm=oracle"])

    def test_a_configuration_file_of_the_user_may_have_old_keys(self, tmp_path: Path) -> None:
        (tmp_path / "experiment").mkdir()
        (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nengine: {share: false}\n")
        composed = config.compose([f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine"])
        assert composed["engine"]["dedupe_calls"] is False
        assert "share" not in composed["engine"]

    def test_a_wrong_key_next_to_an_old_one_is_named(self) -> None:
        with pytest.raises(UserError, match=r"unknown key 'engine\.concurency'\. Did you mean 'engine\.concurrency'"):
            config.compose(["engine.share=false", "engine.concurency=3"])


class TestTargets:
    @pytest.mark.parametrize("old", renames.TARGETS)
    def test_every_new_target_can_be_imported(self, old: str) -> None:
        module, _, name = renames.current_target(old).rpartition(".")
        assert isinstance(getattr(import_module(module), name), type)

    def test_no_target_is_renamed_twice(self) -> None:
        assert not set(renames.TARGETS.values()) & set(renames.TARGETS)
        assert not set(renames.KEYS.values()) & set(renames.KEYS)


class TestCommands:
    def test_an_old_key_works_and_its_new_name_is_printed_to_stderr(self, kgqa: Callable[..., tuple[str, str]]) -> None:
        _, errors = kgqa("evaluate", "engine.share=false", "dataset=sample", "--help")
        assert errors.splitlines() == [
            "kgqa: engine.share is now called engine.dedupe_calls",
            "kgqa: dataset=sample is now written dataset=synthetic",
        ]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("simulate", "capacity"),
            ("references", "build-references"),
            ("llm make", "init-model"),
            ("train resident", "train bundled-model"),
        ],
    )
    def test_an_old_command_runs_as_its_new_name(
        self, old: str, new: str, kgqa: Callable[..., tuple[str, str]]
    ) -> None:
        output, errors = kgqa(*old.split(), "--help")
        assert errors == f"kgqa: `kgqa {old}` is now called `kgqa {new}`\n"
        assert output == kgqa(*new.split(), "--help")[0]
        assert f"kgqa {new}" in output

    def test_a_run_with_old_words_is_a_run_with_new_ones(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kgqa: Callable[..., tuple[str, str]]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        kgqa("evaluate", "dataset=sample", "engine.share=true", *WORLD, *THEN, "run.dir=runs/old")
        kgqa("evaluate", "dataset=synthetic", *WORLD, *(renames.current_override(word)[0] for word in THEN))
        (other,) = (path for path in (tmp_path / "runs").iterdir() if path.name != "old")
        saved, expected = RunFolder(tmp_path / "runs/old").read_run(), RunFolder(other).read_run()
        assert saved is not None
        assert expected is not None
        assert config.drift(saved["points"][0]["config"], expected["points"][0]["config"]) == []


class TestRunsOfTheFirstEdition:
    def test_its_configuration_is_read_under_new_names(self, first: Path) -> None:
        saved = RunFolder(first).read_run()
        assert saved is not None
        (point,) = saved["points"]
        config.check(config.complete(point["config"]))
        assert point["config"]["dataset"]["name"] == point["config"]["choices"]["dataset"] == "synthetic"
        assert point["config"]["llm"]["roles"] == {"srp.judge": {"prompt_style": "inputs_only"}}
        assert not config.drift(point["config"], config.compose([*WORLD, *THEN, *LIMITS, "dataset=sample"]))

    @pytest.mark.parametrize("words", ["runs/first/run.yaml", "dataset=sample run.dir=runs/first"])
    def test_it_resumes(self, words: str, first: Path, kgqa: Callable[..., tuple[str, str]]) -> None:
        columns = ["question_id", "answers", "hits_at_1", "llm_calls"]
        before = pl.read_parquet(first / "traces/*.parquet", columns=columns)
        (first / "traces/shard-00001.parquet").unlink()
        (first / "summary.json").unlink()
        kgqa("evaluate", *([words] if words.endswith(".yaml") else [*words.split(), *WORLD, *THEN, *LIMITS]))
        resumed = pipeline.open_run(first)
        assert resumed.questions.select(columns).collect().equals(before)
        assert resumed.calls.collect()["own_s"].null_count() < resumed.calls.collect().height
        assert "critical_s" not in json.loads((first / "summary.json").read_text())["points"][0]
        assert json.loads((first / "summary.json").read_text())["complete"] is True

    def test_its_calls_are_reused(self, first: Path, kgqa: Callable[..., tuple[str, str]]) -> None:
        """All prompts have changed since, and so have the keys of their calls. So the old file gets today's keys."""
        kgqa("evaluate", *WORLD, *THEN, "run.dir=runs/today")
        today = pipeline.open_run("runs/today").calls.filter(role="srp.answer").select("question_id", "key").collect()
        _give_keys(first / "traces", dict(today.iter_rows()))
        kgqa("evaluate", *WORLD, *THEN, "run.dir=runs/again", "run.reuse=[runs/first]")
        calls = pipeline.open_run("runs/again").calls.select("role", "shared").collect()
        assert calls.filter(role="srp.answer")["shared"].all()
        assert not calls.filter(pl.col("role") != "srp.answer")["shared"].any()

    def test_it_is_scored_again(self, first: Path, kgqa: Callable[..., tuple[str, str]]) -> None:
        before = json.loads((first / "summary.json").read_text())
        kgqa("score", "runs/first")
        after = json.loads((first / "summary.json").read_text())
        assert after["points"][0]["hits_at_1"] == before["points"][0]["hits_at_1"]

    def test_it_is_compared_with_another_run(self, first: Path, kgqa: Callable[..., tuple[str, str]]) -> None:
        shutil.copytree(first, "runs/second")
        output, _ = kgqa("compare", "runs/first", "runs/second")
        assert "first" in output
        assert "second" in output


def _give_keys(traces: Path, keys: Mapping[str, str]) -> None:
    """Write the key of each question into its call `srp.answer`."""
    for file in traces.glob("*.parquet"):
        table = pq.read_table(file)
        rows = table.to_pylist()
        for row in rows:
            for step in row["steps"]:
                if step["role"] == "srp.answer":
                    step["key"] = keys[row["question_id"]]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
