"""Nodes that questions name and the graph does not have, reported before the questions are asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline import config
from pipeline.config import default
from pipeline.datasets.custom import Custom
from pipeline.engine import missing_nodes
from pipeline.engine.configuration import compose_configurations
from pipeline.engine.missing_nodes import count_missing_nodes, told_apart
from pipeline.engine.run import execute
from pipeline.errors import ServiceError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.simulation.world import SyntheticWorld
from pipeline.types import EntityId, Question, Relation
from tests.support import refuse

FACTS = "Ann\ttype.object.name\tAnn\nAnn\tknows\tBo\nAnn\tborn\t1990\nBo\tcommon.topic.notable_types\tperson\n"


def rows(*answers: object, topic: str = "Ann") -> str:
    fields = {"question": "Whom does Ann know?", "topic_entities": [topic]}
    return "".join(json.dumps({"id": f"q{n}", **fields, "answers": [each]}) + "\n" for n, each in enumerate(answers))


@pytest.fixture
def dataset(tmp_path: Path, request: pytest.FixtureRequest) -> Custom:
    (tmp_path / "facts.tsv").write_text(getattr(request, "param", FACTS))
    return default(Custom, triples=tmp_path / "facts.tsv", questions=tmp_path / "rows.jsonl")


def write(dataset: Custom, questions: str) -> None:
    Path(dataset.questions).write_text(questions)


async def warnings(dataset: Custom, questions: str) -> list[str]:
    write(dataset, questions)
    async with default(EmbeddedGraph, dataset=dataset) as graph:
        return (await count_missing_nodes(graph, dataset.examples(refuse))).warnings()


async def test_nothing_is_said_if_all_is_there(dataset: Custom) -> None:
    by_alias = {"id": "m.1", "name": "Robert", "aliases": ["Bo"]}
    assert await warnings(dataset, rows("Bo", {"id": "Bo", "name": "Robert"}, by_alias)) == []


@pytest.mark.parametrize("dataset", ["Ann\tknows\tm.07\n"], indirect=True)
async def test_an_alias_may_be_the_id_of_a_node_without_a_name(dataset: Custom) -> None:
    assert await warnings(dataset, rows({"name": "Robert", "aliases": ["m.07"]})) == []
    assert "no gold answer in the graph" in "".join(await warnings(dataset, rows({"name": "Cy", "aliases": ["m.08"]})))


async def test_missing_nodes_are_counted(dataset: Custom) -> None:
    absent = rows("Bo", topic="Zoe").replace("q0", "q9")
    assert await warnings(dataset, rows("Bo", "Cy", {"id": "m.1", "name": "Di"}) + absent) == [
        "1 of 4 questions: topic entity not in the graph (e.g. 'Zoe')",
        "2 of 4 questions: no gold answer in the graph (e.g. 'Cy'); with answers from the graph, Hits@1 cannot exceed "
        "50.0 %, unless these names are only spelled differently, have other spaces, or are in a language that "
        "kg.vocabulary.languages does not list",
    ]


async def test_questions_without_topic_entities_are_counted(dataset: Custom) -> None:
    without = rows("Bo").replace("q0", "q9").replace('["Ann"]', "[]")
    (said,) = await warnings(dataset, rows("Bo") + without)
    assert said.startswith("1 of 2 questions: no topic entity is given, from which most methods search the graph")


@pytest.mark.parametrize("dataset", ["Ann\tuser.knows\tBo\nBo\tlikes\tCy\n"], indirect=True)
async def test_a_relation_that_is_never_offered_is_named_as_a_reason(dataset: Custom) -> None:
    hidden = "1 relation of the graph is never offered to a method (e.g. 'user.knows'), because of a name like "
    reason = ", or only with relations that are never offered, such as 'user.knows' (kg.vocabulary.hidden)"
    first, about_topic = await warnings(dataset, rows("Bo"))
    assert first.startswith(hidden)
    assert about_topic == f"1 of 1 question: topic entity not in the graph (e.g. 'Ann'){reason}"
    absent = "1 of 1 question: topic entity not in the graph (e.g. 'Zoe')"
    assert (await warnings(dataset, rows("Cy", topic="Zoe")))[1:] == [absent]
    _, about_gold = await warnings(dataset, rows({"id": "Ann", "name": "Anna"}, topic="Bo"))
    assert about_gold.startswith(f"1 of 1 question: no gold answer in the graph (e.g. 'Anna'){reason}; with answers")


@pytest.mark.parametrize("dataset", ["m.1\ttype.object.name\tAnn\nm.1\tknows\tBo\n"], indirect=True)
async def test_a_topic_entity_given_by_its_name_is_told_with_its_id(dataset: Custom) -> None:
    absent = rows("Bo", topic="Zoe").replace("q0", "q9")
    assert await warnings(dataset, absent + rows("Bo")) == [
        "2 of 2 questions: topic entity not in the graph (e.g. 'Ann'): 'Ann' is the name of 'm.1', and topic entities "
        "are given by their ids",
    ]
    assert await warnings(dataset, absent) == ["1 of 1 question: topic entity not in the graph (e.g. 'Zoe')"]
    assert await warnings(dataset, rows("Bo", topic="m.1")) == []


@pytest.mark.parametrize("dataset", ["Ann\tuser#knows\tBo\nBo\tlikes\tCy\n"], indirect=True)
async def test_no_key_is_named_that_offers_no_relation(dataset: Custom) -> None:
    _, about_topic = await warnings(dataset, rows("Bo"))
    assert about_topic.endswith("or only with relations that are never offered, such as 'user#knows'")


@pytest.mark.parametrize("dataset", ["Ann\twrote\tm.1\nAnn\tknows\tm.2\nm.2\ttype.object.name\tBo\n"], indirect=True)
async def test_gold_answers_without_a_name_are_counted(dataset: Custom) -> None:
    unnamed = {"id": "m.1", "name": "The Book"}
    assert await warnings(dataset, rows(unnamed, {"id": "m.2"}, "m.1")) == [
        "2 of 3 questions: the graph has no name for a gold answer (e.g. 'm.1'): no method can read it there"
    ]
    row = {"id": "q", "question": "?", "topic_entities": ["Ann"]}
    both = json.dumps({**row, "answers": [unnamed, {"id": "m.2"}]})
    assert await warnings(dataset, both) == [], "one of the answers can be read"
    absent = json.dumps({**row, "answers": [unnamed, {"id": "m.77"}]})
    assert len(await warnings(dataset, absent)) == 1
    elsewhere = json.dumps({**row, "answers": [{"id": "m.1", "name": "Bo"}]})
    assert await warnings(dataset, elsewhere) == [], "another node has the name"


async def test_questions_without_gold_answers_have_no_share_in_the_limit_of_the_score(dataset: Custom) -> None:
    without = json.dumps({"id": "q9", "question": "Whom?", "topic_entities": ["Ann"], "answers": []}) + "\n"
    (said,) = await warnings(dataset, rows("Bo", "Cy", "Bo", "Bo") + without)
    assert said.startswith("1 of 4 questions with gold answers: no gold answer in the graph (e.g. 'Cy')")
    assert "Hits@1 cannot exceed 75.0 %" in said


async def test_values_are_not_searched_as_nodes(dataset: Custom) -> None:
    assert await warnings(dataset, rows("3", "2009-03-05", "1,200.5", "no", "2009-03-05T00:00:00Z")) == []


@pytest.mark.parametrize(
    ("value", "datatype"), [("134000", "integer"), ("1191-05-01", "date"), ("1191", "gYear"), ("true", "boolean")]
)
async def test_a_value_with_a_datatype_is_in_the_graph(value: str, datatype: str, tmp_path: Path) -> None:
    xsd = f"http://www.w3.org/2001/XMLSchema#{datatype}"
    (tmp_path / "facts.nt").write_text(f'<http://e.org/Ann> <http://e.org/has> "{value}"^^<{xsd}> .\n')
    (tmp_path / "rows.jsonl").write_text(rows(value, topic="http://e.org/Ann"))
    files = [f"dataset.triples={tmp_path}/facts.nt", f"dataset.questions={tmp_path}/rows.jsonl"]
    composed: dict[str, Any] = config.compose(["dataset=custom", "kg/vocabulary=rdfs", *files])
    async with config.build("kg", composed) as graph:
        examples = config.build("dataset", composed).examples(refuse)
        found = await count_missing_nodes(graph, examples, for_oracle=True)
    assert (found.no_topic, found.no_gold, found.no_way) == (0, 0, 0)


async def test_a_text_of_the_graph_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_nodes, "_SECONDS", 600)
    world = default(SyntheticWorld, triples=2000, questions=200)
    async with default(EmbeddedGraph, dataset=world) as graph:
        found = await count_missing_nodes(graph, world.examples(refuse))
    assert (found.questions, found.warnings()) == (200, [])


class Server:
    """A graph server that holds only `Ann`, and records the size of its batches."""

    server_stats = ()

    def __init__(self) -> None:
        self.batches: list[int] = []

    def for_question(self, question: Question) -> Server:
        return self

    async def relations(self, ids: Sequence[EntityId]) -> dict[EntityId, list[Relation]]:
        self.batches.append(len(ids))
        return {id: [Relation("knows", "out")] if id == "Ann" else [] for id in ids}

    async def labels(self, ids: Sequence[EntityId]) -> dict[EntityId, str | None]:
        return {id: id for id in ids}

    async def find_by_name(self, names: Sequence[str], limit: int) -> dict[str, list[EntityId]]:
        return {name: [] for name in names}


async def test_a_server_gets_few_batches_of_the_first_questions(dataset: Custom) -> None:
    write(dataset, rows(*({"id": f"m.{n}", "name": f"Cy {n}"} for n in range(1000))))
    graph = Server()
    found = await count_missing_nodes(graph, dataset.examples(refuse))  # type: ignore[arg-type]
    assert (found.questions, found.complete, graph.batches) == (200, False, [101, 101])
    assert found.about_golds.startswith("200 of the first 200 questions: no gold answer in the graph (e.g. 'Cy 0')")


async def test_names_that_may_be_texts_of_a_server_are_not_counted(dataset: Custom) -> None:
    write(dataset, rows("Cy", {"id": "Di", "name": "Di"}))
    found = await count_missing_nodes(Server(), dataset.examples(refuse))  # type: ignore[arg-type]
    assert found.warnings() == []


async def test_it_ends_when_its_time_is_over(dataset: Custom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_nodes, "_SECONDS", -1.0)
    write(dataset, rows(*(f"Cy {n}" for n in range(1000))))
    async with default(EmbeddedGraph, dataset=dataset) as graph:
        found = await count_missing_nodes(graph, dataset.examples(refuse))
    assert (found.questions, found.complete) == (100, False)


def printed(*words: str) -> str:
    text = StringIO()
    execute(compose_configurations([list(words)], Console(quiet=True)), Console(file=text, width=400))
    return text.getvalue()


@pytest.mark.parametrize(("method", "said"), [("srp", True), ("cot", False)])
def test_a_run_says_it_before_its_questions(dataset: Custom, tmp_path: Path, method: str, said: bool) -> None:
    write(dataset, rows("Bo", "Cy"))
    files = [f"dataset.triples={tmp_path}/facts.tsv", f"dataset.questions={dataset.questions}"]
    text = printed("dataset=custom", *files, f"method={method}", "llm=similarity", f"run.dir={tmp_path}/run")
    assert ("1 of 2 questions: no gold answer in the graph (e.g. 'Cy'); " in text) is said


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ({}, True),
        ({"sparql": 'SELECT (COUNT(?x) AS ?n) { "Ann" <knows> ?x }'}, True),  # a text is no subject
        ({"gold_relation_paths": [["knows"]]}, False),
    ],
    ids=["nothing", "unreadable query", "path"],
)
@pytest.mark.parametrize("model", ["oracle", "similarity"])
def test_the_oracle_says_which_values_it_cannot_compute(
    dataset: Custom, tmp_path: Path, gold: dict[str, object], said: bool, model: str
) -> None:
    fields = {"question": "How many does Ann know?", "topic_entities": ["Ann"], "answers": [1]}
    write(dataset, rows("Bo", "1990") + json.dumps({"id": "q9", **fields, **gold}) + "\n")
    files = [f"dataset.triples={tmp_path}/facts.tsv", f"dataset.questions={dataset.questions}"]
    text = printed("dataset=custom", *files, "method=srp", f"llm={model}", f"run.dir={tmp_path}/run")
    sentence = "1 of 3 questions: the answer (e.g. '1') is a value that is not in the graph in this spelling"
    assert (sentence in text) is (said and model == "oracle")


async def test_unknown_relations_of_gold_paths_are_counted(dataset: Custom) -> None:
    fields = {"question": "Whom?", "topic_entities": ["Ann"], "answers": ["Bo"]}
    known, unknown = ["common.topic.notable_types"], ["knows", "nosuch"]
    given = ([["knows"], known], [["knows"], unknown], [["konws"]], [["^knows"]], [])
    lines = [{"id": f"q{n}", **fields, "gold_relation_paths": paths} for n, paths in enumerate(given)]
    assert await warnings(dataset, "".join(json.dumps(each) + "\n" for each in lines)) == [
        "2 of 5 questions: gold_relation_paths names a relation that is not in the graph (e.g. 'nosuch'): a path "
        "with it cannot be followed"
    ]


def test_the_oracle_says_it_also_if_another_model_is_asked_first(dataset: Custom, tmp_path: Path) -> None:
    write(dataset, rows("7"))
    files = ["dataset=custom", f"dataset.triples={tmp_path}/facts.tsv", f"dataset.questions={dataset.questions}"]
    points = [[*files, "method=srp", f"llm={model}", f"run.dir={tmp_path}/run"] for model in ("similarity", "oracle")]
    text = StringIO()
    execute(compose_configurations(points, Console(quiet=True)), Console(file=text, width=400))
    assert "the oracle may not know the answer" in text.getvalue()


async def test_each_question_is_looked_up_in_its_own_graph(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = {"question": "Whom?", "answer": ["Bo"], "q_entity": ["Ann"]}
    table = [{"id": f"q{n}", **fields, "graph": [["Ann", "knows", tail]]} for n, tail in enumerate(["Bo", "Cy"])]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "test.parquet")
    composed: dict[str, Any] = config.compose(["dataset=rog", f"dataset.path={tmp_path}"])
    async with config.build("kg", composed) as graph:
        found = await count_missing_nodes(graph, config.build("dataset", composed).examples(refuse))
    assert (found.questions, found.no_topic, found.no_gold) == (2, 0, 1)


def test_a_sweep_over_files_names_the_file_of_each_warning(dataset: Custom, tmp_path: Path) -> None:
    write(dataset, rows("Cy"))
    (tmp_path / "others.jsonl").write_text(rows("Di"))
    files = ["dataset=custom", f"dataset.triples={tmp_path}/facts.tsv", "method=srp", "llm=similarity"]
    points = [
        [*files, f"dataset.questions={tmp_path}/{name}.jsonl", f"run.dir={tmp_path}/run"] for name in ("rows", "others")
    ]
    text = StringIO()
    execute(compose_configurations(points, Console(quiet=True)), Console(file=text, width=400))
    for name, gold in (("rows", "Cy"), ("others", "Di")):
        said = (
            f"dataset.questions={tmp_path}/{name}.jsonl: 1 of 1 question: no gold answer in the graph (e.g. '{gold}')"
        )
        assert said in text.getvalue()


def test_what_tells_questions_and_graphs_apart_is_named() -> None:
    choices = {"dataset": "synthetic", "kg": "embedded"}
    one = {"choices": choices, "dataset": {"seed": 7, "split": "test"}, "run": {"limit": None}}
    assert told_apart([one]) == [""]
    assert told_apart([one, {**one, "run": {"limit": 5}}]) == ["run.limit=null: ", "run.limit=5: "]
    dev = {"seed": 7, "split": "dev"}
    three = [one, {**one, "dataset": dev}, {**one, "dataset": {**dev, "seed": 8}}]
    assert told_apart(three) == [
        "dataset.seed=7 dataset.split=test: ",
        "dataset.seed=7 dataset.split=dev: ",
        "dataset.seed=8 dataset.split=dev: ",
    ]
    other = {**one, "choices": {**choices, "dataset": "custom"}, "dataset": {"questions": "a"}}
    mixed = [one, other, {**other, "dataset": {"questions": "b"}}]
    assert told_apart(mixed) == [
        "dataset=synthetic: ",
        "dataset=custom dataset.questions=a: ",
        "dataset=custom dataset.questions=b: ",
    ]


def test_a_check_that_fails_is_said(dataset: Custom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(graph: object, examples: object, *, for_oracle: bool) -> missing_nodes.MissingNodes:
        raise ServiceError("no graph server answers")

    write(dataset, rows("Bo"))
    monkeypatch.setattr("pipeline.engine.worker.count_missing_nodes", fail)
    files = [f"dataset.triples={tmp_path}/facts.tsv", f"dataset.questions={dataset.questions}"]
    text = printed("dataset=custom", *files, "method=srp", "llm=similarity", f"run.dir={tmp_path}/run")
    said = "whether the graph has the nodes of the questions could not be checked: no graph server answers"
    assert said in text
