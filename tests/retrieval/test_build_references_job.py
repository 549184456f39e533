"""`kgqa build-references`, from the command line to the file that a run loads."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from pipeline.cli.main import main
from pipeline.config import default
from pipeline.normalisation import normalise
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.references import ReferenceBase
from pipeline.retrieval.search import Search
from pipeline.types import Question

SMALL = ["dataset.triples=2000", "dataset.questions=60", "references.clusters=5"]


class NoGraph:
    fingerprint = "none"


async def nearest(base: Path, text: str) -> str:
    question = Question(id="1", dataset="d", split="test", text=text)
    async with default(Search, encoder=LexicalEncoder(), reference_base=base) as search:
        [reference] = await search.for_graph(NoGraph()).references(question, 1)
    return reference.question


def test_references_of_the_synthetic_world_can_be_loaded_by_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["build-references", *SMALL]) == 0
    file = Path("references/synthetic.jsonl")
    base = ReferenceBase.load(file)
    assert len(base.references) == 10
    assert file.with_suffix(".npy").is_file()
    assert "10 references in references/synthetic.jsonl" in capsys.readouterr().out
    for known in base.references:
        assert asyncio.run(nearest(file, f"{known.masked_question}, please")) == known.question


@pytest.mark.exhaustive
def test_held_out_questions_do_not_become_references(tmp_path: Path, shared_data: Path) -> None:
    folder = shared_data / "freebase-slice"
    with gzip.open(folder / "webqsp.test.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [line for line, _ in zip(file, range(100), strict=False)]
    train, test, output = tmp_path / "train.jsonl", tmp_path / "test.jsonl", tmp_path / "webqsp.jsonl"
    train.write_text("".join(rows))
    test.write_text("".join(rows[:70]))

    words = [
        "dataset=custom",
        f"dataset.triples={folder / 'triples.tsv.gz'}",
        f"dataset.questions={train}",
        f"+references.held_out.questions={test}",
        "references.clusters=10",
        f"references.output={output}",
    ]
    assert main(["build-references", *words]) == 0

    tested = {normalise(json.loads(row)["question"]) for row in rows[:70]}
    built = {normalise(known.question) for known in ReferenceBase.load(output).references}
    assert len(built) == 20
    assert not built & tested


def test_a_mistake_is_answered_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, sentence in [
        (["references.clusters=0"], "references.clusters=0 is wrong: input should be greater than 0"),
        (["references.cluster=3"], "unknown key 'references.cluster'. Did you mean 'references.clusters'?"),
        (
            ["references.held_out.split=train"],
            "none of 60 questions can be a reference (60 held out); nothing was written. references.",
        ),
    ]:
        assert main(["build-references", *SMALL, *words]) == 2
        assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help_names_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build-references", "--help"]) == 0
    assert "references.per_cluster=2" in capsys.readouterr().out
