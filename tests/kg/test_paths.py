"""Relation paths: found from both ends, verified, the best first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.kg.paths import (
    answer_nodes,
    draw_walk,
    find_paths,
    gold_paths,
    instantiate,
    leading_paths,
    rank_paths,
    waypoints,
)
from pipeline.kg.port import Batch, Hop, Neighbours, batch, node_order
from pipeline.types import EntityId, GoldAnswer, LiteralNode, Node, Relation, Triple


class TripleGraph:
    """Lookups over a few triples, counted."""

    def __init__(self, triples: Iterable[tuple[str, str, Node]], names: dict[str, str] | None = None) -> None:
        self.triples = [Triple(*triple) for triple in triples]
        self.names = names or {}
        self.calls: Counter[str] = Counter()
        self._reached: defaultdict[Hop, set[Node]] = defaultdict(set)
        for head, relation, tail in self.triples:
            self._reached[head, Relation(relation, "out")].add(tail)
            if isinstance(tail, str):
                self._reached[tail, Relation(relation, "in")].add(head)

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        self.calls["relations"] += 1
        return batch({id: sorted(relation for entity, relation in self._reached if entity == id) for id in ids})

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        self.calls["neighbours"] += 1
        found = {hop: sorted(self._reached.get(hop, ()), key=node_order) for hop in hops}
        return batch({hop: Neighbours(tuple(nodes[:limit]), len(nodes) > limit) for hop, nodes in found.items()})

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        return batch({name: sorted(id for id, own in self.names.items() if own == name)[:limit] for name in names})


def out(name: str) -> Relation:
    return Relation(name, "out")


def into(name: str) -> Relation:
    return Relation(name, "in")


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


async def test_the_shortest_path_in_graph_direction() -> None:
    assert await find_paths(FILMS, "Scott", [GoldAnswer("1979", id="1979")]) == [
        (into("directed_by"), out("release_year"))
    ]


async def test_four_hops_take_two_lookups_per_layer_from_both_ends() -> None:
    graph = TripleGraph(FILMS.triples)
    paths = await find_paths(graph, "Weaver", [GoldAnswer("Crowe", id="Crowe")])
    assert paths == [(into("starred_actors"), out("directed_by"), into("directed_by"), out("starred_actors"))]
    assert graph.calls["relations"] == 4
    assert graph.calls["neighbours"] == 4 + 4  # the search, and following the one path found


async def test_max_hops_is_respected() -> None:
    for hops, found in ((3, 0), (4, 1)):
        assert len(await find_paths(FILMS, "Weaver", [GoldAnswer("Crowe", id="Crowe")], max_hops=hops)) == found


async def test_a_path_to_more_answers_comes_first_then_one_with_fewer_others() -> None:
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


async def test_the_topic_is_not_an_answer_at_no_distance() -> None:
    graph = TripleGraph([("a", "twin", "b"), ("b", "twin", "a")])
    answers = [GoldAnswer("a", id="a"), GoldAnswer("b", id="b")]
    assert await find_paths(graph, "a", answers) == [(into("twin"),), (out("twin"),)]


async def test_a_hub_is_reached_from_the_other_side_but_not_gone_through() -> None:
    people = [(f"p{number}", "gender", "Male") for number in range(100, 900)]
    graph = TripleGraph([*people, ("p100", "parent", "p800"), ("p800", "parent", "p810")])
    assert await find_paths(graph, "Male", [GoldAnswer("p100", id="p100")]) == [(into("gender"),)]
    assert await find_paths(graph, "p100", [GoldAnswer("Male", id="Male")]) == [(out("gender"),)]
    assert await find_paths(graph, "p100", [GoldAnswer("p810", id="p810")]) == [(out("parent"), out("parent"))]
    assert await find_paths(graph, "p100", [GoldAnswer("p820", id="p820")]) == []


async def test_nothing_to_find() -> None:
    assert await find_paths(FILMS, "nobody", [GoldAnswer("1979", id="1979")]) == []
    assert await find_paths(FILMS, "Scott", []) == []
    assert await rank_paths(FILMS, "Scott", [()], [GoldAnswer("Scott", id="Scott")]) == []


async def test_instantiate_follows_a_path_and_says_when_it_was_cut() -> None:
    path = [into("directed_by"), out("starred_actors")]
    assert await instantiate(FILMS, "Scott", path) == Neighbours(("Crowe", "Weaver"))
    assert await instantiate(FILMS, "Scott", path, limit=1) == Neighbours(("Weaver",), truncated=True)
    assert await instantiate(FILMS, "Scott", [out("directed_by"), out("release_year")]) == Neighbours(())


async def test_paths_of_the_dataset_count_before_shorter_ones_and_are_turned_when_undirected() -> None:
    answers = [GoldAnswer("Scott", id="Scott")]
    long_way = (out("starred_actors"), into("starred_actors"), out("directed_by"))
    assert await gold_paths(FILMS, "Alien", [long_way], answers) == [long_way]
    undirected = (out("directed_by"), out("release_year"))
    assert await gold_paths(FILMS, "Scott", [undirected], [GoldAnswer("1979", id="1979")]) == [
        (into("directed_by"), out("release_year"))
    ]
    assert await gold_paths(FILMS, "Alien", [(out("written_by"),)], answers) == [(out("directed_by"),)]
    assert await gold_paths(FILMS, "Alien", [long_way], answers, max_hops=2) == [(out("directed_by"),)]


async def test_paths_to_what_a_count_counts_lead_somewhere_but_are_not_gold_and_nothing_is_searched_for() -> None:
    graph, two = TripleGraph(FILMS.triples), [GoldAnswer("2")]
    known = [(into("directed_by"),), (into("directed_by"), out("written_by"))]
    assert await leading_paths(graph, "Scott", known, two) == known[:1]
    graph.calls.clear()
    assert await gold_paths(graph, "Scott", known, two) == []
    assert graph.calls["relations"] == 1, "to see that no entity is the answer; a search would ask once per layer"


async def test_a_dataset_is_not_trusted_about_an_answer_that_is_in_the_graph_or_without_a_path() -> None:
    known = [(into("directed_by"),)]
    for answer in (GoldAnswer("Weaver", id="Weaver"), GoldAnswer("Sigourney", aliases=("Weaver",))):
        graph = TripleGraph(FILMS.triples, names={"Weaver": "Weaver"})
        assert await leading_paths(graph, "Scott", known, [answer]) == []
        assert await gold_paths(graph, "Scott", known, [answer]) == [(into("directed_by"), out("starred_actors"))]
    assert await leading_paths(FILMS, "Scott", [], [GoldAnswer("2")]) == []
    assert await leading_paths(FILMS, "Scott", [(out("directed_by"),)], [GoldAnswer("2")]) == []


async def test_a_literal_answer_is_still_reached_by_turned_paths_and_by_search() -> None:
    year = LiteralNode("1979", "http://www.w3.org/2001/XMLSchema#gYear")
    graph = TripleGraph([("Alien", "directed_by", "Scott"), ("Alien", "release_year", year)])
    path = (into("directed_by"), out("release_year"))
    for known in ([(out("directed_by"), out("release_year"))], [(out("written_by"),)], []):
        assert await gold_paths(graph, "Scott", known, [GoldAnswer("1979")]) == [path]


@settings(deadline=None)
@given(
    st.sets(st.tuples(st.sampled_from("abcdef"), st.sampled_from("rs"), st.sampled_from("abcdef")), max_size=10),
    st.integers(1, 4),
)
async def test_equals_exhaustive_search(triples: set[tuple[str, str, str]], max_hops: int) -> None:
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


async def test_waypoints_are_the_nodes_from_which_a_path_goes_on_to_a_goal() -> None:
    graph = TripleGraph(
        [
            ("Scott", "made", "Alien"),
            ("Scott", "made", "Gladiator"),
            ("Scott", "made", "Legend"),
            ("Alien", "cast", "Weaver"),
            ("Gladiator", "cast", "Crowe"),
            ("Weaver", "born", LiteralNode("1949")),
            ("Crowe", "born", LiteralNode("1964")),
        ]
    )
    path = (out("made"), out("cast"), out("born"))
    goals = await answer_nodes(graph, [GoldAnswer("1949")])
    assert await waypoints(graph, "Scott", path, goals) == {"Alien", "Weaver"}
    assert await waypoints(graph, "Scott", path[:1], {"Alien"}) == set(), "neither the start nor the end"
    assert await waypoints(graph, "Scott", path, frozenset()) == set()
    assert await waypoints(graph, "Nobody", path, goals) == set()


async def test_a_drawn_walk_ends_in_a_goal_and_comes_to_no_node_twice() -> None:
    graph = TripleGraph(
        [
            *[("Alien", "starred", actor) for actor in ("Weaver", "Holm", "Skerritt")],
            *[(film, "starred", "Weaver") for film in ("Avatar", "Holes")],
            *[(film, "year", "1979") for film in ("Alien", "Avatar")],
            ("Holes", "year", "2003"),
        ]
    )
    path = (out("starred"), into("starred"), out("year"))
    drawn = {await draw_walk(graph, "Alien", path, {"1979", "2003"}, Random(seed)) for seed in range(20)}
    assert drawn == {("Weaver", "Avatar", "1979"), ("Weaver", "Holes", "2003")}
    assert await draw_walk(graph, "Alien", path, {"2003"}, Random(0)) == ("Weaver", "Holes", "2003")
    assert await draw_walk(graph, "Alien", path, {"1980"}, Random(0)) is None
    assert await draw_walk(graph, "Nobody", path, {"1979"}, Random(0)) is None


async def test_a_drawn_walk_comes_to_a_node_twice_where_there_is_no_other() -> None:
    graph = TripleGraph([("Alien", "starred", "Weaver"), ("Alien", "year", "1979")])
    path = (out("starred"), into("starred"), out("year"))
    assert await draw_walk(graph, "Alien", path, {"1979"}, Random(0)) == ("Weaver", "Alien", "1979")
