"""`retrieval=published`: rows with different retrievers in one run, and what a missing model says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import Kgqa
from tests.retrieval.tiny_encoder import write_encoder

MODELS = {
    "srp": "all-MiniLM-L6-v2, relations by facebook/contriever",
    "arg": "BAAI/bge-large-en-v1.5",
    "parog": "sentence-transformers/msmarco-distilbert-base-tas-b",
    "graph_cot": "all-mpnet-base-v2",
    "cot": "lexical",
}
"""The retriever of the paper's preset."""
SMALL = ("llm=oracle", "dataset.triples=2000", "run.limit=2", "evaluation.bootstrap_resamples=100", "run.dir=run")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def models(tmp_path: Path) -> None:
    """A tiny model in place of each encoder, in a folder of its name."""
    names = {name for retriever in MODELS.values() for name in retriever.split(", relations by ")} - {"lexical"}
    for seed, name in enumerate(sorted(names)):
        write_encoder(tmp_path / name, seed=seed)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("models")
def test_one_run_serves_rows_with_different_retrievers(kgqa: Kgqa, tmp_path: Path) -> None:
    presets = f"experiment={','.join(MODELS)}"
    ran = kgqa("sweep", *SMALL, presets, "retrieval=published", f"retrieval.cache_dir={tmp_path}/cache")
    assert ran.code == 0, ran.err
    points = json.loads((tmp_path / "run/summary.json").read_text())["points"]
    assert [point["retriever"] for point in points] == list(MODELS.values())
    assert [point["departures"] for point in points] == [["no references"], [], [], [], []]
    assert "BAAI/bge-large-en-v1.5 (in 1)" in " ".join(ran.out.split())
    assert "not as published: no references (in 0)" in " ".join(ran.out.split())
    lines = " ".join(kgqa("compare", "run").out.split())
    assert f"{MODELS['cot']} (not as published: no references)" in lines
    shown = json.loads(kgqa("compare", "run", "json=true").out)
    assert shown["base"]["departures"] == ["no references"]
    assert shown["points"][0]["retriever"] == MODELS["arg"]
    listed = json.loads(kgqa("ls", "run", "json=true").out)["runs"][0]
    assert listed["retrievers"] == list(MODELS.values())
    assert listed["departures"] == ["no references"]


def test_a_missing_model_is_one_sentence_before_any_call(kgqa: Kgqa, tmp_path: Path) -> None:
    ended = kgqa("evaluate", *SMALL, "experiment=arg", "retrieval=published")
    assert "the encoder model 'BAAI/bge-large-en-v1.5' is neither a folder" in ended.sentence
    assert "or use retrieval=lexical" in ended.sentence
    assert not (tmp_path / "run").exists()


def test_a_preset_with_another_retriever_says_so_in_every_table(kgqa: Kgqa, tmp_path: Path) -> None:
    departures = "other retriever than published, no references"
    ran = kgqa("evaluate", *SMALL, "experiment=srp")
    assert f"retriever: lexical presets (experiment=…) not as published: {departures}" in " ".join(ran.out.split())
    assert f"srp (oracle) [{departures}]" in kgqa("ls", "run").out
    assert kgqa("report", "run").code == 0
    page = (tmp_path / "run/report.html").read_text()
    assert f"srp: {departures}" in page
