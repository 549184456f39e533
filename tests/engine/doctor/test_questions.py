"""Checks of the questions, and how all checks are run: each finding with its fix."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.engine.configuration import Configuration
from pipeline.engine.doctor import checks, questions
from pipeline.engine.doctor.finding import Check, Finding, Level
from pipeline.errors import ServiceError, UserError
from tests.engine.doctor.support import point, worst
from tests.llm.conftest import FakeOpenAIServer


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    """Overrides for a graph and questions in files that tests can change."""
    (tmp_path / "graph.tsv").write_text("Ann\tson\tBob\n")
    rows = [
        {"id": f"q{n}", "question": f"Who is {n}?", "level": "easy", "topic_entities": ["Ann"], "answers": ["Bob"]}
        for n in range(3)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["dataset=custom", f"dataset.triples={tmp_path}/graph.tsv", f"dataset.questions={tmp_path}/rows.jsonl"]


def of_own(words: list[str]) -> Configuration:
    return replace(point(), config=questions.config.compose(words))


class TestDataset:
    async def test_rows_that_can_be_read(self, own: list[str]) -> None:
        (finding,) = await questions.dataset(of_own(own))
        assert finding == Finding("ok", "dataset", "custom test: the first 3 questions can be read")

    async def test_rows_that_repeat_others(self, own: list[str], tmp_path: Path) -> None:
        row = {"question": "Who is 0?", "topic_entities": ["Ann"], "answers": ["Bob"]}
        with (tmp_path / "rows.jsonl").open("a") as file:
            file.write(f"{json.dumps({'id': 'copy', **row})}\n")
        level, found, _ = worst(await questions.dataset(of_own(own)))
        assert (level, found.split(":")[0]) == (
            "warning",
            "1 of the first 4 questions repeats an earlier one, with its text and topic entities",
        )

    async def test_some_rows_cannot_be_read(self, own: list[str], tmp_path: Path) -> None:
        with (tmp_path / "rows.jsonl").open("a") as file:
            file.write('{"id": "half"\n')
        level, found, fix = worst(await questions.dataset(of_own(own)))
        assert (level, fix) == (
            "warning",
            "Fix these rows, or ignore them: a run lists them in its rejected.jsonl.",
        )
        assert found.startswith("1 of the first 4 rows cannot be read, such as ")
        assert "rows.jsonl, line 4: " in found
        level, _, fix = worst(await questions.dataset(of_own([*own, "dataset.strict=true"])))
        assert (level, fix) == ("problem", "Fix these rows, or set dataset.strict=false: a run stops at the first.")

    async def test_no_question_is_selected(self, own: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(UserError, match=r"dataset\.filter selects no question of .* level = \"easy\""):
            await questions.dataset(of_own([*own, "dataset.filter={level: hard}"]))
        monkeypatch.setattr(questions, "_first", lambda _: ([], []))  # as a dataset of the user's own may
        assert worst(await questions.dataset(of_own(own))) == (
            "problem",
            "no question of custom is selected",
            "See the keys that select questions, such as dataset.filter and dataset.types.",
        )


class TestNames:
    @pytest.fixture
    def wikidata(self, tmp_path: Path) -> list[str]:
        label = "<http://www.w3.org/2000/01/rdf-schema#label>"
        wd, wdt = "http://www.wikidata.org/entity/", "http://www.wikidata.org/prop/direct/"
        (tmp_path / "graph.nt").write_text(f'<{wd}Q1> <{wdt}P1> <{wd}Q2> .\n<{wd}Q1> {label} "Eins"@de .\n')
        row = {"id": "q", "question": "Wo?", "topic_entities": ["Q1"], "answers": [{"id": "Q2"}]}
        (tmp_path / "rows.jsonl").write_text(json.dumps(row))
        files = [f"dataset.triples={tmp_path}/graph.nt", f"dataset.questions={tmp_path}/rows.jsonl"]
        return ["dataset=custom", *files, "kg/vocabulary=wikidata"]

    async def test_no_label_in_the_language_asked_for(self, wikidata: list[str]) -> None:
        topics, golds, names = await questions.topic_entities(of_own(wikidata))
        assert "the graph has no name for a gold answer (e.g. 'Q2')" in golds.found
        assert topics.level == "ok"
        assert names.level == "warning"
        assert names.found == (
            "none of 1 topic entity has a name in en, mul by http://www.w3.org/2000/01/rdf-schema#label, "
            "http://www.w3.org/2004/02/skos/core#altLabel: prompts will show names in other languages"
        )
        assert "kg.vocabulary.languages" in str(names.fix)

    async def test_no_label_at_all(self, wikidata: list[str]) -> None:
        words = [*wikidata, "kg.vocabulary.names=[http://example.org/name]"]
        *_, names = await questions.topic_entities(of_own(words))
        assert names.found.endswith("prompts will show no names")

    async def test_labels_in_the_language_asked_for(self, wikidata: list[str]) -> None:
        topics, golds = await questions.topic_entities(of_own([*wikidata, "kg.vocabulary.languages=[de]"]))
        assert (topics.level, golds.subject) == ("ok", "gold answers")


class TestTopicEntities:
    async def test_all_are_in_the_graph(self, own: list[str]) -> None:
        (finding,) = await questions.topic_entities(of_own(own))
        assert finding.found == "those of the first 3 questions are in the graph"

    async def test_none_is_in_the_graph(self, own: list[str], tmp_path: Path) -> None:
        (tmp_path / "graph.tsv").write_text("Eve\tson\tBob\n")
        level, found, fix = worst(await questions.topic_entities(of_own(own)))
        assert (level, found) == (
            "problem",
            "3 of the first 3 questions: topic entity not in the graph (e.g. 'Ann')",
        )
        assert fix.startswith("Name the graph of these questions (kg=, kg.endpoints, kg.store)")

    async def test_some_are_not_in_the_graph(self, own: list[str], tmp_path: Path) -> None:
        rows = (tmp_path / "rows.jsonl").read_text().replace("Ann", "Zoe", 1)
        (tmp_path / "rows.jsonl").write_text(rows)
        level, _, fix = worst(await questions.topic_entities(of_own(own)))
        assert (level, fix) == (
            "warning",
            "Load the whole graph, or exclude the questions that it cannot answer.",
        )

    async def test_a_gold_answer_is_not_in_the_graph(self, own: list[str], tmp_path: Path) -> None:
        rows = (tmp_path / "rows.jsonl").read_text().replace("Bob", "Zoe", 1)
        (tmp_path / "rows.jsonl").write_text(rows)
        level, found, _ = worst(await questions.topic_entities(of_own(own)))
        assert (level, found) == (
            "warning",
            "1 of the first 3 questions: no gold answer in the graph (e.g. 'Zoe'); with answers from the graph, Hits@1 "
            "cannot exceed 66.7 %, unless these names are only spelled differently, have other spaces, or are in "
            "a language that kg.vocabulary.languages does not list",
        )

    async def test_a_topic_entity_is_given_by_its_name(self, own: list[str], tmp_path: Path) -> None:
        (tmp_path / "graph.tsv").write_text("m.1\ttype.object.name\tAnn\nm.1\tson\tBob\n")
        level, found, fix = worst(await questions.topic_entities(of_own(own)))
        assert (level, fix) == ("problem", "Give the id in topic_entities, as in {'id': 'm.1', 'name': 'Ann'}.")
        assert found.endswith("'Ann' is the name of 'm.1', and topic entities are given by their ids")

    @pytest.mark.parametrize("lacking", [1, 3])
    async def test_questions_without_topic_entities(self, lacking: int, own: list[str], tmp_path: Path) -> None:
        rows = (tmp_path / "rows.jsonl").read_text().replace('["Ann"]', "[]", lacking)
        (tmp_path / "rows.jsonl").write_text(rows)
        said = f"{lacking} of the first 3 questions: no topic entity is given, "
        found = worst(await questions.topic_entities(of_own(own)))
        assert (found[0], found[1][: len(said)]) == ("warning", said)

    async def test_a_gold_answer_has_no_name(self, own: list[str], tmp_path: Path) -> None:
        (tmp_path / "graph.tsv").write_text("Ann\tson\tm.1\n")
        rows = (tmp_path / "rows.jsonl").read_text().replace('"Bob"', '{"id": "m.1"}')
        (tmp_path / "rows.jsonl").write_text(rows)
        level, found, fix = worst(await questions.topic_entities(of_own(own)))
        assert (level, found[:61]) == ("warning", "3 of the first 3 questions: the graph has no name for a gold ")
        assert "kg.vocabulary.names" in fix

    async def test_a_method_without_a_graph(self, own: list[str], tmp_path: Path) -> None:
        (tmp_path / "graph.tsv").write_text("Eve\tson\tAbel\n")
        (finding,) = await questions.topic_entities(of_own([*own, "method=cot"]))
        assert finding.level == "ok"


class TestDryRun:
    async def test_it_answers_and_leaves_no_files(self, tmp_path: Path) -> None:
        (finding,) = await questions.dry_run(point("llm=oracle", f"run.dir={tmp_path}/run"))
        assert finding.level == "ok"
        assert finding.found.startswith("one question: ")
        assert os.listdir(tmp_path) == []

    async def test_its_question_fails(self, server: FakeOpenAIServer, tmp_path: Path) -> None:
        server.default = FakeOpenAIServer.fail(400, "no such template")
        words = ["llm=endpoint", f"llm.base_urls=[{server.url}]", f"run.dir={tmp_path}/run"]
        level, found, fix = worst(await questions.dry_run(point(*words)))
        assert (level, fix) == ("problem", questions.SEE_ERROR)
        assert "no such template" in found

    async def test_replies_that_cannot_be_parsed(self, server: FakeOpenAIServer, tmp_path: Path) -> None:
        words = ["llm=endpoint", f"llm.base_urls=[{server.url}]", f"run.dir={tmp_path}/run"]
        level, found, fix = worst(await questions.dry_run(point(*words)))
        assert (level, fix) == (
            "warning",
            "Serve an instruction-tuned model with its own chat template.",
        )
        assert "replies could not be parsed" in found

    async def test_a_question_that_takes_too_long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(questions, "_DRY_RUN_S", 0.2)
        words = ["llm=oracle", "llm.latency_s=0.15", f"run.dir={tmp_path}/run"]
        assert worst(await questions.dry_run(point(*words))) == (
            "warning",
            "its question was not answered within 0.2 s",
            "See the latencies above: one of the servers is slow or overloaded.",
        )


class TestChecks:
    async def test_an_error_in_a_group_says_how_to_fix_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def broken(_: Configuration) -> list[Finding]:
            raise ExceptionGroup("of a TaskGroup", [ExceptionGroup("of another", [UserError("set it to hard")])])

        monkeypatch.setattr(checks, "CHECKS", [Check("dry run", broken, "kgqa show")])
        found = [each async for _, findings in checks.examine(point()) for each in findings]
        assert found == [Finding("problem", "dry run", "it prevents a run", "set it to hard")]

    @pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.subject)
    @pytest.mark.parametrize(
        ("error", "found"),
        [
            (RuntimeError("tripped"), "RuntimeError: tripped"),
            (ServiceError("gone"), "gone"),
            (ExceptionGroup("of a TaskGroup", [ValueError("no"), ServiceError("gone")]), "gone"),
            (TimeoutError(), "no answer within"),
        ],
    )
    async def test_a_failing_check_hides_no_other(
        self, check: Check, error: Exception, found: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fine(_: Configuration) -> list[Finding]:
            return [Finding("ok", "", "")]

        async def broken(_: Configuration) -> list[Finding]:
            raise error

        tried = [replace(one, run=broken if one is check else fine) for one in checks.CHECKS]
        monkeypatch.setattr(checks, "CHECKS", tried)
        findings = [finding async for _, of_check in checks.examine(point()) for finding in of_check]
        assert len(findings) == len(checks.CHECKS)
        (broken_one,) = [each for each in findings if each.level == "problem"]
        assert broken_one.fix == check.fix
        assert broken_one.found.startswith(found)
        stopped = [each.subject for each in findings if each.level == "stopped"]
        assert stopped == (["dry run"] if check.subject in ("model", "graph") else []), "it would wait for them"

    @pytest.mark.parametrize(("levels", "tried"), [(("problem", "ok"), True), (("problem", "problem"), False)])
    async def test_the_dry_run_is_tried_if_one_of_the_servers_works(
        self, levels: Sequence[Level], tried: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def servers(_: Configuration) -> list[Finding]:
            return [Finding(level, f"graph {number}", "", "") for number, level in enumerate(levels)]

        async def dry_run(_: Configuration) -> list[Finding]:
            return [Finding("ok", "dry run", "one question")]

        monkeypatch.setattr(checks, "CHECKS", [Check("graph", servers, ""), Check("dry run", dry_run, "")])
        *_, (_, (last,)) = [each async for each in checks.examine(point())]
        assert (last.level == "ok") is tried

    async def test_a_user_error_keeps_its_message(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def mistaken(_: Configuration) -> list[Finding]:
            raise UserError("name another file")

        monkeypatch.setattr(checks, "CHECKS", [Check("dataset", mistaken, "")])
        ((_, findings),) = [each async for each in checks.examine(point())]
        assert worst(findings)[2] == "name another file"

    async def test_a_check_that_hangs_is_stopped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def hanging(_: Configuration) -> list[Finding]:
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(checks, "CHECKS", [Check("graph", hanging, "Start it again.", timeout_s=0.01)])
        ((_, findings),) = [each async for each in checks.examine(point())]
        assert worst(findings) == ("problem", "no answer within 0.01 s", "Start it again.")
