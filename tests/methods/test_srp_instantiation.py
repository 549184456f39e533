"""The instances of a relation path (specification §3.6)."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.srp.instantiation import Instantiation, instantiate
from pipeline.types import Entity, LiteralNode, Relation, Triple
from tests.methods.support import DictionaryGraph, literal

ANN = Entity("Ann", "Ann")


async def walk(
    graph: DictionaryGraph, path: str, bound: Sequence[Sequence[str]] | None = None, frontier: int = 150
) -> Instantiation:
    relations = tuple(path.split()) if path else ()
    return await instantiate(ANN, relations, bound or [[name] for name in relations], graph, frontier=frontier)


def nodes(chains: Sequence[GroundedPath]) -> list[tuple[object, ...]]:
    return [
        tuple(node.value if isinstance(node, LiteralNode) else node for node in chain.nodes[1:]) for chain in chains
    ]


async def test_relations_are_followed_in_both_directions_and_facts_keep_the_graphs_order() -> None:
    found = await walk(DictionaryGraph([("Ann", "parent", "Bob"), ("Cid", "parent", "Ann")]), "parent")
    assert [chain.triples for chain in found.complete] == [
        (Triple("Cid", "parent", "Ann"),),
        (Triple("Ann", "parent", "Bob"),),
    ]
    assert [chain.steps[0].relation for chain in found.complete] == [
        Relation("parent", "in"),
        Relation("parent", "out"),
    ]
    assert (found.max_length, found.partial) == (1, ())


async def test_lookups_are_batched_per_layer_whatever_the_fan_out() -> None:
    facts = [("Ann", "r", f"n{n}") for n in range(40)] + [(f"n{n}", "s", f"o{n}") for n in range(40)]
    graph = DictionaryGraph(facts)
    found = await walk(graph, "r s")
    assert len(found.complete) == 40
    assert graph.lookups == {"relations": 2, "neighbours": 2, "labels": 1}


async def test_a_similar_relation_is_not_used_twice_in_a_chain() -> None:
    graph = DictionaryGraph([("Ann", "r", "x"), ("x", "s", "y"), ("x", "r", "z")])
    found = await walk(graph, "r t", bound=[["r", "s"], ["s", "r"]])
    assert nodes(found.complete) == [("x", "y")]


async def test_the_predicted_relation_may_be_used_twice() -> None:
    graph = DictionaryGraph([("Ann", "parents", "Bob"), ("Bob", "parents", "Cid")])
    found = await walk(graph, "parents parents")
    assert nodes(found.complete) == [("Bob", "Ann"), ("Bob", "Cid")]


async def test_a_predicted_relation_outside_its_binding_is_not_followed() -> None:
    found = await walk(DictionaryGraph([("Ann", "r", "x")]), "r", bound=[["s"]])
    assert found.complete == ()
    assert nodes(found.partial) == [()]
    assert (found.max_length, found.known) == (0, {"r", "s"})


async def test_a_chain_without_a_matching_relation_is_a_partial_instance() -> None:
    graph = DictionaryGraph([("Ann", "r", "x"), ("Ann", "r", "y"), ("y", "s", "z"), ("x", "t", "w")])
    found = await walk(graph, "r s u")
    assert nodes(found.partial) == [("y", "z"), ("x",)], "the longest first"
    assert (found.complete, found.max_length) == ((), 2)
    assert found.known == {"r", "s", "t", "u"}


async def test_a_chain_that_ends_in_a_literal_is_a_complete_instance() -> None:
    graph = DictionaryGraph([("Ann", "r", literal("1999")), ("Ann", "r", "x"), ("x", "s", "y")])
    found = await walk(graph, "r s")
    assert nodes(found.complete) == [("1999",), ("x", "y")]
    assert found.max_length == 2


async def test_the_empty_path_has_one_instance_without_hops() -> None:
    graph = DictionaryGraph([("Ann", "r", "x")])
    found = await walk(graph, "")
    assert found.partial == (GroundedPath("Ann"),)
    assert (found.complete, found.max_length) == ((), 0)


async def test_an_entity_that_is_not_in_the_graph_has_one_instance_without_hops() -> None:
    graph = DictionaryGraph([])
    found = await walk(graph, "r s")
    assert found.partial == (GroundedPath("Ann"),)
    assert graph.lookups == {"relations": 1, "labels": 1}, "nothing is looked up for an empty layer"


async def test_a_layer_is_cut_at_the_frontier_with_the_closest_relations_first() -> None:
    facts = [("Ann", "near", f"n{n}") for n in range(3)] + [("Ann", "far", f"f{n}") for n in range(3)]
    found = await walk(DictionaryGraph(facts), "near", bound=[["far", "near"]], frontier=4)
    assert nodes(found.complete) == [("n0",), ("n1",), ("n2",), ("f0",)]
    assert found.truncated
    assert not (await walk(DictionaryGraph(facts), "near", frontier=4)).truncated


async def test_a_hub_does_not_fill_a_layer() -> None:
    facts = [("Ann", "r", node) for node in ("hub", "small")]
    facts += [("hub", "s", f"h{n:02}") for n in range(50)] + [("small", "s", "wanted")]
    found = await walk(DictionaryGraph(facts), "r s", frontier=5)
    assert nodes(found.complete)[:3] == [("hub", "h00"), ("small", "wanted"), ("hub", "h01")]
    assert len(found.complete) == 5


async def test_moves_beyond_the_frontier_are_cut_but_do_not_end_their_chains() -> None:
    facts = [("Ann", "r", f"n{n}") for n in range(6)] + [(f"n{n}", "s", f"o{n}") for n in range(6)]
    found = await walk(DictionaryGraph(facts), "r s", frontier=6)
    assert len(found.complete) == 6
    cut = await walk(DictionaryGraph(facts), "r s", bound=[["r"], ["s", "x"]], frontier=3)
    assert nodes(cut.complete) == [("n0", "o0"), ("n1", "o1"), ("n2", "o2")]
    assert (cut.partial, cut.truncated) == ((), True)


async def test_a_u_turn_at_an_unnamed_node_is_cut() -> None:
    graph = DictionaryGraph([("Ann", "plays", "m.1"), ("Bob", "plays", "m.1"), ("Bob", "plays", "m.2")])
    found = await walk(graph, "plays plays")
    assert nodes(found.complete) == [("m.1", "Bob")]
    alone = await walk(DictionaryGraph([("Ann", "plays", "m.1")]), "plays plays")
    assert (alone.complete, nodes(alone.partial), alone.max_length) == ((), [("m.1",)], 1)


async def test_a_u_turn_at_a_named_node_is_allowed() -> None:
    found = await walk(DictionaryGraph([("Film", "starring", "Ann")]), "starring starring")
    assert nodes(found.complete) == [("Film", "Ann")]


async def test_an_unnamed_topic_entity_has_the_name_in_the_question() -> None:
    graph = DictionaryGraph([("m.9", "r", "x")])
    found = await instantiate(Entity("m.9", "Nina"), ("r",), [["r"]], graph, frontier=9)
    assert found.names == {"m.9": "Nina", "x": "x"}
    assert found.is_named("x")
    assert not found.is_named("m.8")
    assert found.is_named(literal("7"))


async def test_an_edge_that_two_inverse_relations_state_is_taken_once_by_the_closer_one() -> None:
    facts = [("Ann", "plays", f"m.{n}") for n in range(3)] + [(f"m.{n}", "played_by", "Ann") for n in range(3)]
    facts += [(f"m.{n}", "in_film", f"Film {n}") for n in range(3)]
    found = await walk(DictionaryGraph(facts), "plays in_film", bound=[["plays", "played_by"], ["in_film"]])
    assert nodes(found.complete) == [(f"m.{n}", f"Film {n}") for n in range(3)]
    assert {chain.path for chain in found.complete} == {("plays", "in_film")}


async def test_relations_to_other_nodes_or_of_one_direction_are_no_copies() -> None:
    graph = DictionaryGraph([("Ann", "r", "x"), ("x", "s", "Ann"), ("y", "s", "Ann"), ("Ann", "t", "x")])
    found = await walk(graph, "r", bound=[["r", "s", "t"]])
    assert [(chain.path, chain.end) for chain in found.complete] == [
        (("r",), "x"),
        (("s",), "x"),
        (("s",), "y"),
        (("t",), "x"),
    ]


async def test_a_chain_that_leads_back_over_an_unnamed_node_is_kept_only_without_others() -> None:
    loop = [("Ann", "plays", "m.1"), ("m.1", "played_by", "Ann")]
    alone = await walk(DictionaryGraph(loop), "plays played_by")
    assert nodes(alone.complete) == [("m.1", "Ann")], "the judge sees what is wrong with the path (§3.12)"
    others = await walk(
        DictionaryGraph([*loop, ("m.1", "in_film", "Film")]),
        "plays played_by",
        bound=[["plays"], ["played_by", "in_film"]],
    )
    assert nodes(others.complete) == [("m.1", "Film")]
