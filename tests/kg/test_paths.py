"""Relation paths are found from both ends, verified, and ranked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kg.interface import Neighbours
from pipeline.kg.paths import (
    find_paths,
    gold_paths,
    instantiate,
    leading_paths,
    rank_paths,
)
from pipeline.types import GoldAnswer, LiteralNode, Relation
from tests.kg.support import TripleGraph, into, out

FILMS = TripleGraph(
    [
        ("Alien", "directed_by", "Scott"),
        ("Gladiator", "directed_by", "Scott"),
        ("Gladiator", "starred_actors", "Crowe"),
        ("Alien", "starred_actors", "Weaver"),
        ("Alien", "release_year", "1979"),
        ("Gladiator", "release_year", "2000"),
    ]
)


async def test_the_shortest_path_has_the_directions_of_the_graph() -> None:
    assert await find_paths(FILMS, "Scott", [GoldAnswer("1979", id="1979")]) == [
        (into("directed_by"), out("release_year"))
    ]


async def test_a_search_costs_two_lookups_per_layer_from_each_end() -> None:
    graph = TripleGraph(FILMS.triples)
    paths = await find_paths(graph, "Weaver", [GoldAnswer("Crowe", id="Crowe")])
    assert paths == [(into("starred_actors"), out("directed_by"), into("directed_by"), out("starred_actors"))]
    assert graph.calls["relations"] == 4
    assert graph.calls["neighbours"] == 4 + 4  # the search, and following the one path found


async def test_max_hops_is_respected() -> None:
    for hops, found in ((3, 0), (4, 1)):
        assert len(await find_paths(FILMS, "Weaver", [GoldAnswer("Crowe", id="Crowe")], max_hops=hops)) == found


async def test_paths_with_more_answers_come_first_then_those_with_fewer_other_nodes() -> None:
    graph = TripleGraph(
        [("t", "broad", node) for node in "abcxyz"]
        + [("t", "narrow", node) for node in "abc"]
        + [("t", "single", node) for node in "a"]
    )
    answers = [GoldAnswer(name, id=name) for name in "abc"]
    assert await find_paths(graph, "t", answers) == [(out("narrow"),), (out("broad"),), (out("single"),)]


async def test_answers_without_an_id_are_found_by_name() -> None:
    graph = TripleGraph([("m.1", "film", "m.2")], names={"m.2": "Naked Movie"})
    assert await find_paths(graph, "m.1", [GoldAnswer("unknown", aliases=("Naked Movie",))]) == [(out("film"),)]
    assert await find_paths(graph, "m.1", [GoldAnswer("unknown")]) == []


async def test_literals_are_answers_by_their_normal_form() -> None:
    born = LiteralNode("1937-11-30T00:00:00Z", "http://www.w3.org/2001/XMLSchema#dateTime")
    graph = TripleGraph([("m.1", "person", "m.2"), ("m.2", "date_of_birth", born), ("m.1", "age", LiteralNode("7"))])
    assert await find_paths(graph, "m.1", [GoldAnswer("1937-11-30")]) == [(out("person"), out("date_of_birth"))]


async def test_a_path_has_at_least_one_hop_even_if_the_topic_is_an_answer() -> None:
    graph = TripleGraph([("a", "twin", "b"), ("b", "twin", "a")])
    answers = [GoldAnswer("a", id="a"), GoldAnswer("b", id="b")]
    assert await find_paths(graph, "a", answers) == [(into("twin"),), (out("twin"),)]


async def test_a_path_may_end_or_start_at_a_hub_but_not_lead_through_it() -> None:
    people = [(f"p{number}", "gender", "Male") for number in range(100, 900)]
    graph = TripleGraph([*people, ("p100", "parent", "p800"), ("p800", "parent", "p810")])
    assert await find_paths(graph, "Male", [GoldAnswer("p100", id="p100")]) == [(into("gender"),)]
    assert await find_paths(graph, "p100", [GoldAnswer("Male", id="Male")]) == [(out("gender"),)]
    assert await find_paths(graph, "p100", [GoldAnswer("p810", id="p810")]) == [(out("parent"), out("parent"))]
    assert await find_paths(graph, "p100", [GoldAnswer("p820", id="p820")]) == []


async def test_no_path_is_an_empty_list() -> None:
    assert await find_paths(FILMS, "nobody", [GoldAnswer("1979", id="1979")]) == []
    assert await find_paths(FILMS, "Scott", []) == []
    assert await rank_paths(FILMS, "Scott", [()], [GoldAnswer("Scott", id="Scott")]) == []


async def test_instantiate_follows_a_path_and_reports_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    path = [into("directed_by"), out("starred_actors")]
    assert await instantiate(FILMS, "Scott", path) == Neighbours(("Crowe", "Weaver"))
    assert await instantiate(FILMS, "Scott", [out("directed_by"), out("release_year")]) == Neighbours(())
    monkeypatch.setattr("pipeline.kg.paths.MAX_NEIGHBOURS", 1)
    assert await instantiate(FILMS, "Scott", path) == Neighbours(("Weaver",), truncated=True)


async def test_paths_of_the_dataset_win_over_shorter_ones_and_may_change_direction() -> None:
    answers = [GoldAnswer("Scott", id="Scott")]
    long_way = (out("starred_actors"), into("starred_actors"), out("directed_by"))
    assert await gold_paths(FILMS, "Alien", [long_way], answers) == [long_way]
    undirected = (out("directed_by"), out("release_year"))
    assert await gold_paths(FILMS, "Scott", [undirected], [GoldAnswer("1979", id="1979")]) == [
        (into("directed_by"), out("release_year"))
    ]
    assert await gold_paths(FILMS, "Alien", [(out("written_by"),)], answers) == [(out("directed_by"),)]
    assert await gold_paths(FILMS, "Alien", [long_way], answers, max_hops=2) == [(out("directed_by"),)]


async def test_for_a_count_leading_paths_are_found_and_no_search_is_made() -> None:
    graph, two = TripleGraph(FILMS.triples), [GoldAnswer("2")]
    known = [(into("directed_by"),), (into("directed_by"), out("written_by"))]
    assert await leading_paths(graph, "Scott", known, two) == known[:1]
    graph.calls.clear()
    assert await gold_paths(graph, "Scott", known, two) == []
    assert graph.calls["relations"] == 1, "one lookup checks that no answer is an entity; a search needs one per layer"


async def test_leading_paths_are_empty_if_an_answer_is_in_the_graph_or_no_path_reaches_a_node() -> None:
    known = [(into("directed_by"),)]
    for answer in (GoldAnswer("Weaver", id="Weaver"), GoldAnswer("Sigourney", aliases=("Weaver",))):
        graph = TripleGraph(FILMS.triples, names={"Weaver": "Weaver"})
        assert await leading_paths(graph, "Scott", known, [answer]) == []
        assert await gold_paths(graph, "Scott", known, [answer]) == [(into("directed_by"), out("starred_actors"))]
    assert await leading_paths(FILMS, "Scott", [], [GoldAnswer("2")]) == []
    assert await leading_paths(FILMS, "Scott", [(out("no_such_relation"),)], [GoldAnswer("2")]) == []


async def test_leading_paths_are_found_against_the_direction_that_is_given() -> None:
    assert await leading_paths(FILMS, "Scott", [(out("directed_by"),)], [GoldAnswer("2")]) == [(into("directed_by"),)]


async def test_a_literal_answer_is_found_by_redirected_paths_and_by_search() -> None:
    year = LiteralNode("1979", "http://www.w3.org/2001/XMLSchema#gYear")
    graph = TripleGraph([("Alien", "directed_by", "Scott"), ("Alien", "release_year", year)])
    path = (into("directed_by"), out("release_year"))
    for known in ([(out("directed_by"), out("release_year"))], [(out("written_by"),)], []):
        assert await gold_paths(graph, "Scott", known, [GoldAnswer("1979")]) == [path]


@given(
    st.sets(st.tuples(st.sampled_from("abcdef"), st.sampled_from("rs"), st.sampled_from("abcdef")), max_size=10),
    st.integers(1, 4),
)
async def test_the_search_finds_the_same_paths_as_an_exhaustive_search(
    triples: set[tuple[str, str, str]], max_hops: int
) -> None:
    graph = TripleGraph(triples)
    relations = [Relation(name, direction) for name in "rs" for direction in ("out", "in")]
    reaching: list[tuple[Relation, ...]] = []
    layer: list[tuple[Relation, ...]] = [()]
    for _ in range(max_hops):
        layer = [(*path, relation) for path in layer for relation in relations]
        reaching = [path for path in layer if "f" in (await instantiate(graph, "a", path)).nodes]
        if reaching:
            break
    found = await find_paths(graph, "a", [GoldAnswer("f", id="f")], max_hops=max_hops)
    assert set(found) <= set(reaching)
    assert len(found) == min(len(reaching), 16)
