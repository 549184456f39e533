"""Waypoints and random walks along gold relation paths."""

from __future__ import annotations

from random import Random

from pipeline.kg.paths import GoldNodes
from pipeline.simulation.gold_path_search import draw_walk, waypoints
from pipeline.types import GoldAnswer, LiteralNode
from tests.kg.support import TripleGraph, into, out


async def test_waypoints_are_the_inner_nodes_from_which_a_path_reaches_a_goal() -> None:
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
    goals = await GoldNodes.resolve(graph, [GoldAnswer("1949")])
    assert await waypoints(graph, "Scott", path, goals) == {"Alien", "Weaver"}
    assert await waypoints(graph, "Scott", path[:1], {"Alien"}) == set(), "neither the start nor the end"
    assert await waypoints(graph, "Scott", path, frozenset()) == set()
    assert await waypoints(graph, "Nobody", path, goals) == set()


async def test_a_drawn_walk_ends_at_a_goal_and_visits_no_node_twice() -> None:
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


async def test_a_drawn_walk_revisits_a_node_only_if_no_goal_can_be_reached_otherwise() -> None:
    graph = TripleGraph([("Alien", "starred", "Weaver"), ("Alien", "year", "1979")])
    path = (out("starred"), into("starred"), out("year"))
    assert await draw_walk(graph, "Alien", path, {"1979"}, Random(0)) == ("Weaver", "Alien", "1979")
