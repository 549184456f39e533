"""`kgqa collect arg` with the oracle: the texts and the report, on the synthetic world and on MetaQA."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline import config
from pipeline.cli.main import main
from pipeline.datasets.interface import Dataset
from pipeline.kg.interface import KnowledgeGraph
from pipeline.methods.arg.tokens import CLASSES, find_tokens
from pipeline.normalisation import normalise
from pipeline.types import Example, Relation
from tests.support import refuse
from tests.training.support import assert_reads_back

SYNTHETIC = ["dataset=synthetic", "dataset.split=train", "dataset.triples=4000", "run.limit=160"]


def collect(folder: Path, *words: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run the command; return the rows and the report."""
    output = folder / "texts.jsonl"
    assert main(["collect", "arg", f"output={output}", f"run.dir={folder / 'run'}", *words]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    return rows, json.loads(output.with_suffix(".report.json").read_text())


def metaqa(shared_data: Path, hops: int) -> list[str]:
    folder = shared_data / "metaqa"
    return ["dataset=metaqa", f"dataset.path={folder}", f"dataset.hops={hops}", "dataset.split=dev", "run.limit=120"]


def examples_of(words: Sequence[str]) -> tuple[Dataset, dict[str, Example], Any]:
    composed = config.compose(list(words))
    dataset: Dataset = config.build("dataset", composed)
    return dataset, {example.question.id: example for example in dataset.examples(refuse)}, composed


async def assert_walks(rows: Sequence[dict[str, Any]], examples: dict[str, Example], graph: KnowledgeGraph) -> None:
    """Assert that every reference path exists in the graph and leads from a topic entity to a gold answer."""
    async with graph:
        for row in rows:
            example = examples[row["id"]]
            reached = row["topic"]["id"]
            assert reached in {topic.id for topic in example.question.topic_entities}
            for step in row["path"]:
                hop = (reached, Relation(step["relation"], step["direction"]))
                ends = (await graph.neighbours([hop], 100_000))[hop].nodes
                assert step["node"] in {end if isinstance(end, str) else end.value for end in ends}
                reached = step["node"]
            names = {normalise(name) for gold in example.gold.answers for name in (gold.name, *gold.aliases)}
            assert reached in {gold.id for gold in example.gold.answers} or normalise(reached) in names


def assert_sound(rows: Sequence[dict[str, Any]], report: dict[str, Any], words: Sequence[str]) -> None:
    _, examples, composed = examples_of([word for word in words if not word.startswith("collect.")])
    asyncio.run(assert_walks(rows, examples, config.build("kg", composed)))
    for row in rows:
        assert_reads_back(row)
        assert row["loss"] == [[0, len(row["text"])]]
        pieces = {
            row["text"][begin - len("<paragraph>") : end + len("</paragraph>")] for begin, end in row["paragraphs"]
        }
        assert all(piece.startswith("<paragraph>") and piece.endswith("</paragraph>") for piece in pieces)
        assert len(row["paragraphs"]) == 2 * len(row["hops"])
        stopped = row["hops"][-1]["rationality"] == "[Unreasonable]"
        assert stopped or len(row["hops"]) == len(row["path"])
        gold = {" ".join(answer.name.split()) for answer in examples[row["id"]].gold.answers}
        assert set(row["answers"]) <= gold
    counted = Counter(token.text for row in rows for token in find_tokens(row["text"]))
    assert {token: count for of in report["labels"].values() for token, count in of.items()} == {
        token: counted[token] for members in CLASSES.values() for token in members
    }
    assert report["samples"] == len(rows) == report["questions"] - sum(report["rejected"].values())
    for shares in report["shares"].values():
        assert sum(shares.values()) == pytest.approx(1, abs=0.001)
    assert report["path_lengths"] == {
        str(hops): count for hops, count in sorted(Counter(len(row["path"]) for row in rows).items())
    }
    assert report["stopped_early"] == sum(row["hops"][-1]["rationality"] == "[Unreasonable]" for row in rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize("paths", ["known", "shortest"])
def test_texts_and_report_on_the_synthetic_world(paths: str, tmp_path: Path) -> None:
    words = [*SYNTHETIC, f"collect.paths={paths}"]
    rows, report = collect(tmp_path, *words)
    assert_sound(rows, report, words)
    assert report["questions"] == 160
    pathless = report["rejected"]["no path to an answer within 4 hops"]
    assert pathless == 20 if paths == "known" else 0 < pathless <= 20, (
        "no path leads to a count, but the shortest path may lead to an equal number"
    )
    assert (report["stopped_early"] > 0) == (paths == "shortest")
    assert set(report["path_lengths"]) == set("1234")
    if paths == "known":
        assert len(rows) == 140
        indices = Counter(
            list(hop["relations"]).index(step["relation"])
            for row in rows
            for hop, step in zip(row["hops"], row["path"], strict=True)
        )
        assert len(indices) == 5, "the position of a relation must not reveal its relevance"
        assert max(indices.values()) < indices.total() / 3


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("hops", "paths"),
    [
        (2, "shortest"),
        (1, "known"),
        (3, "known"),
    ],
)
def test_texts_and_report_on_metaqa(hops: int, paths: str, shared_data: Path, tmp_path: Path) -> None:
    words = [*metaqa(shared_data, hops), f"collect.paths={paths}"]
    held_out = shared_data / "metaqa" / f"{hops}-hop" / "qa_test.txt.gz"
    rows, report = collect(tmp_path, *words, f"material.held_out=[{held_out}]")
    assert_sound(rows, report, words)
    if paths == "known":
        assert len(rows) >= 114
        assert set(report["path_lengths"]) == {str(hops)}


def test_repeating_the_command_writes_the_same_file_without_model_calls(tmp_path: Path) -> None:
    first = collect(tmp_path, *SYNTHETIC, "run.limit=16")
    texts = (tmp_path / "texts.jsonl").read_bytes()
    shards = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "traces").iterdir()}
    assert collect(tmp_path, *SYNTHETIC, "run.limit=16") == first
    assert (tmp_path / "texts.jsonl").read_bytes() == texts
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "traces").iterdir()} == shards


def test_an_erring_critic_gives_fewer_texts_that_all_read_back(tmp_path: Path) -> None:
    rows, report = collect(
        tmp_path, *SYNTHETIC, "llm.error_rate=0.2", "llm.malformed_rate=0.3", "collect.parse_retries=0"
    )
    assert 20 < len(rows) < 130
    assert any("cannot be read" in reason for reason in report["rejected"])
    for row in rows:
        assert_reads_back(row)


def test_held_out_questions_give_no_text(tmp_path: Path) -> None:
    _, examples, _ = examples_of(SYNTHETIC)
    first, second, *_ = examples.values()
    held = tmp_path / "held.txt"
    held.write_text(f"{first.question.id}\n{second.question.text}\n")
    rows, report = collect(tmp_path, *SYNTHETIC, "run.limit=16", f"material.held_out=[{held}]")
    assert report["rejected"]["held out"] == 2
    assert {first.question.id, second.question.id}.isdisjoint(row["id"] for row in rows)
