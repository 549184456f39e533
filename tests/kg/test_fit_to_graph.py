"""A question is fitted to its graph: names for ids, ids of today, and relations as the graph shows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.config import default
from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.fit_to_graph import fit_to_graph
from pipeline.types import Entity, Example, Gold, GoldAnswer, LiteralNode, Question, Relation, Triple
from tests.kg.support import NAME, Facts, TripleGraph, vocabulary
from tests.kg.test_vocabulary import LABEL, slice_of_wikidata

WIKIDATA = vocabulary("wikidata")
WD = "http://www.wikidata.org/entity/"


def example(topics: list[Entity], answers: list[GoldAnswer], **gold: object) -> Example:
    question = Question("q", "custom", "test", "Where?", tuple(topics))
    return Example(question, replace(Gold(tuple(answers)), **gold))


async def fitted(given: Example, facts: list[Triple] | None = None, choice: str = "wikidata") -> Example:
    facts = list(slice_of_wikidata()) if facts is None else facts
    async with default(EmbeddedGraph, dataset=Facts(facts), vocabulary=vocabulary(choice)) as kg:
        return await fit_to_graph(given, kg)


@pytest.mark.parametrize("id", ["Q1", f"{WD}Q1"])
async def test_topic_entities_given_as_ids_get_their_names(id: str) -> None:
    found = await fitted(example([Entity(id, id), Entity("Q404", "Q404"), Entity("Q2", "mine")], []))
    assert found.question.topic_entities == (Entity("Q1", "Ada"), Entity("Q404", "Q404"), Entity("Q2", "mine"))


async def test_a_gold_answer_given_by_its_id_gets_its_name_in_a_table_of_triples() -> None:
    facts = [Triple("P1", "child", "C1"), Triple("C1", "type.object.name", LiteralNode("John Dane"))]
    found = await fitted(example([], [GoldAnswer("C1", id="C1"), GoldAnswer("C1")]), facts, "freebase")
    assert found.gold.answers == (GoldAnswer("John Dane", id="C1"), GoldAnswer("C1"))


async def test_former_ids_become_those_of_today() -> None:
    found = await fitted(
        example([Entity("Q99", "Q99")], [GoldAnswer("Q98"), GoldAnswer("x", id="Q99", aliases=("y",))])
    )
    assert found.question.topic_entities == (Entity("Q2", "Bonn"),)
    assert found.gold.answers == (GoldAnswer("Bonn", id="Q2"), GoldAnswer("x", id="Q2", aliases=("y",)))


async def test_answers_that_are_texts_stay() -> None:
    answers = [GoldAnswer("1974"), GoldAnswer("Quebec"), GoldAnswer("Ada", aliases=("A.",))]
    assert (await fitted(example([], answers))).gold.answers == tuple(answers)


async def test_gold_paths_and_queries_name_relations_as_the_graph_shows_them() -> None:
    query = "SELECT ?x { wd:Q99 ^wdt:P19/wdt:P19 ?y . wd:Q99 p:P19 ?s . ?s pq:P580 ?x }"
    listed = ((Relation("P19 (statement)", "out"), Relation("P580 (qualifier)", "out")),)
    paths = SparqlPaths(("SELECT ?x { ?x wdt:P19 wd:Q99 }",), {"Q99": "Q99"}, unverified=listed)
    found = await fitted(example([Entity("Q99", "Q99")], [], paths=paths, sparql=query))
    assert dict(found.gold.paths) == {
        "Q2": (
            (Relation("place of birth", "in"),),
            (Relation("place of birth (statement)", "out"), Relation("P580 (qualifier)", "out")),
        )
    }
    assert found.gold.sparql is not None
    assert "<http://rdf.freebase.com/ns/Q2>" in found.gold.sparql
    assert "place%20of%20birth%20%28statement%29" in found.gold.sparql


async def test_gold_paths_of_a_dataset_are_renamed() -> None:
    given = example([Entity("Q1", "Ada")], [], paths={"Q1": ((Relation("P19", "out"),),)})
    assert dict((await fitted(given)).gold.paths) == {"Q1": ((Relation("place of birth", "out"),),)}


async def test_whole_iris_are_ids_of_a_graph_without_prefixes() -> None:
    one, two, lives = (f"http://example.org/{name}" for name in ("one", "two", "livesIn"))
    facts = [Triple(one, lives, two), Triple(two, LABEL, LiteralNode("Two"))]
    query = f"SELECT ?x {{ <{one}> <{lives}> ?x }}"
    given = example([Entity(one, one)], [GoldAnswer(two)], paths=SparqlPaths((query,), {one: one}), sparql=query)
    found = await fitted(given, facts, "rdfs")
    assert found.gold.answers == (GoldAnswer("Two", id=two),)
    assert dict(found.gold.paths) == {one: ((Relation("livesIn", "out"),),)}
    assert (await fitted(example([], [GoldAnswer("plain text")]), facts, "rdfs")).gold.answers == (
        GoldAnswer("plain text"),
    )


async def test_a_question_about_freebase_is_untouched_but_for_missing_names() -> None:
    facts = [Triple("m.1", NAME, LiteralNode("One", lang="en")), Triple("m.1", "a.b", "m.2")]
    paths = SparqlPaths(("not SPARQL",), {"m.1": "m.1"})
    named = example(
        [Entity("m.1", "named"), Entity("Tom Hanks", "Tom Hanks")], [GoldAnswer("x", id="m.2")], paths=paths
    )
    assert await fitted(named, facts, "freebase") is named
    unnamed = await fitted(
        example([Entity("m.1", "m.1")], [GoldAnswer("m.2", id="m.2")], paths=paths), facts, "freebase"
    )
    assert unnamed.question.topic_entities == (Entity("m.1", "One"),)
    assert unnamed.gold.answers == (GoldAnswer("m.2", id="m.2"),)
    assert unnamed.gold.paths is paths


async def test_a_graph_without_a_vocabulary_changes_nothing() -> None:
    given = example([Entity("m.1", "m.1")], [])
    assert await fit_to_graph(given, TripleGraph([("m.1", "a.b", "m.2")])) is given  # type: ignore[arg-type]
