"""What is told of the questions, and how the checks are tried: each mend, provoked."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.engine.checkup import checks, questions
from pipeline.engine.checkup.finding import Check, Finding
from pipeline.engine.run import Point
from pipeline.errors import ServiceError, UserError
from tests.engine.checkup.support import point, worst
from tests.llm.conftest import FakeOpenAIServer


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    """Words for a graph and questions of the user's own, in files that tests may spoil."""
    (tmp_path / "graph.tsv").write_text("Ann\tson\tBob\n")
    rows = [
        {"id": f"q{n}", "question": "Who?", "level": "easy", "topic_entities": ["Ann"], "answers": ["Bob"]}
        for n in range(3)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["dataset=custom", f"dataset.triples={tmp_path}/graph.tsv", f"dataset.questions={tmp_path}/rows.jsonl"]


def of_own(words: list[str]) -> Point:
    return replace(point(), config=questions.config.compose(words))


class TestDataset:
    async def test_rows_that_can_be_read(self, own: list[str]) -> None:
        (finding,) = await questions.dataset(of_own(own))
        assert finding == Finding("ok", "dataset", "custom test: the first 3 questions can be read")

    async def test_some_rows_cannot_be_read(self, own: list[str], tmp_path: Path) -> None:
        with (tmp_path / "rows.jsonl").open("a") as file:
            file.write('{"id": "half"\n')
        level, found, mend = worst(await questions.dataset(of_own(own)))
        assert (level, mend) == (
            "warning",
            "Mend these rows, or go on without them: a run lists them in its rejected.jsonl.",
        )
        assert found.startswith("1 of the first 4 rows cannot be read, such as ")
        assert "rows.jsonl, line 4: " in found

    async def test_no_question_is_selected(self, own: list[str]) -> None:
        assert worst(await questions.dataset(of_own([*own, "dataset.filter={level: hard}"]))) == (
            "problem",
            "no question of custom is selected",
            "Look at the keys that select questions, such as dataset.filter and dataset.types.",
        )


class TestTopicEntities:
    async def test_all_are_in_the_graph(self, own: list[str]) -> None:
        (finding,) = await questions.topic_entities(of_own(own))
        assert finding.found == "all 1 of the first 3 questions are in the graph"

    async def test_none_is_in_the_graph(self, own: list[str], tmp_path: Path) -> None:
        (tmp_path / "graph.tsv").write_text("Eve\tson\tAbel\n")
        level, found, mend = worst(await questions.topic_entities(of_own(own)))
        assert (level, found) == (
            "problem",
            "1 of the 1 entities of the first 3 questions are not in the graph, such as Ann",
        )
        assert mend.startswith("Name the graph that these questions are about (kg=, kg.endpoints, kg.store)")

    async def test_some_are_not_in_the_graph(self, own: list[str], tmp_path: Path) -> None:
        rows = (tmp_path / "rows.jsonl").read_text().replace("Ann", "Zoe", 1)
        (tmp_path / "rows.jsonl").write_text(rows)
        level, _, mend = worst(await questions.topic_entities(of_own(own)))
        assert (level, mend) == (
            "warning",
            "Load the whole graph, or leave out the questions that it cannot answer.",
        )


class TestDryRun:
    async def test_it_answers_and_leaves_nothing(self, tmp_path: Path) -> None:
        (finding,) = await questions.dry_run(point("llm=oracle", f"run.dir={tmp_path}/run"))
        assert finding.level == "ok"
        assert finding.found.startswith("one question: ")
        assert os.listdir(tmp_path) == []

    async def test_its_question_fails(self, server: FakeOpenAIServer, tmp_path: Path) -> None:
        server.default = FakeOpenAIServer.fail(400, "no such template")
        words = ["llm=endpoint", f"llm.base_urls=[{server.url}]", f"run.dir={tmp_path}/run"]
        level, found, mend = worst(await questions.dry_run(point(*words)))
        assert (level, mend) == ("problem", "Mend what is told above, and ask again.")
        assert "no such template" in found

    async def test_replies_that_cannot_be_read(self, server: FakeOpenAIServer, tmp_path: Path) -> None:
        words = ["llm=endpoint", f"llm.base_urls=[{server.url}]", f"run.dir={tmp_path}/run"]
        level, found, mend = worst(await questions.dry_run(point(*words)))
        assert (level, mend) == (
            "warning",
            "Serve a model that is tuned to follow instructions, with its own chat template.",
        )
        assert "replies could not be read" in found

    async def test_a_question_that_takes_too_long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(questions, "_DRY_RUN_S", 0.2)
        words = ["llm=oracle", "llm.latency_s=0.15", f"run.dir={tmp_path}/run"]
        assert worst(await questions.dry_run(point(*words))) == (
            "warning",
            "its question was not answered within 0.2 s",
            "Look at the latencies above: one of the servers is slow, or overloaded.",
        )


class TestChecks:
    @pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.subject)
    @pytest.mark.parametrize(
        ("error", "found"),
        [
            (RuntimeError("tripped"), "RuntimeError: tripped"),
            (ServiceError("gone"), "gone"),
            (TimeoutError(), "no answer within"),
        ],
    )
    async def test_one_that_breaks_hides_no_other(
        self, check: Check, error: Exception, found: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fine(_: Point) -> list[Finding]:
            return [Finding("ok", "", "")]

        async def broken(_: Point) -> list[Finding]:
            raise error

        tried = [replace(one, look=broken if one is check else fine) for one in checks.CHECKS]
        monkeypatch.setattr(checks, "CHECKS", tried)
        findings = [finding async for _, of_check in checks.examine(point()) for finding in of_check]
        assert len(findings) == len(checks.CHECKS)
        level, said, mend = worst(findings)
        assert (level, mend) == ("problem", check.mend)
        assert said.startswith(found)

    async def test_a_users_mistake_says_itself_how_to_mend_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def mistaken(_: Point) -> list[Finding]:
            raise UserError("name another file")

        monkeypatch.setattr(checks, "CHECKS", [Check("dataset", mistaken, "")])
        ((_, findings),) = [each async for each in checks.examine(point())]
        assert worst(findings)[2] == "name another file"

    async def test_one_that_hangs_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def hanging(_: Point) -> list[Finding]:
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(checks, "CHECKS", [Check("graph", hanging, "Start it again.", patience_s=0.01)])
        ((_, findings),) = [each async for each in checks.examine(point())]
        assert worst(findings) == ("problem", "no answer within 0.01 s", "Start it again.")
