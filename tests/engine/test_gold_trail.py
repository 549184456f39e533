"""The trail of the gold answers: what is noted of lookups, calls and selections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import pytest

from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.engine.gold_trail import GoldTrail
from pipeline.kg.interface import Batch, GraphLookups, Hop, Neighbours
from pipeline.traces.schema import Step
from pipeline.traces.trail import gold_paths_of, number_edges
from pipeline.types import Gold, GoldAnswer, LiteralNode, Relation

SPOUSE, BORN = Relation("spouse", "out"), Relation("born_in", "in")
GOLD = Gold((GoldAnswer("Oslo", "m.1", ("Kristiania",)),), {"ann": ((SPOUSE, BORN),)})


def events(trail: GoldTrail) -> list[tuple[object, ...]]:
    return [(event.event, event.edge, event.number, event.of, event.by) for event in trail.events]


def test_paths_with_one_beginning_share_its_edges() -> None:
    paths = [("ann", ("a", "b")), ("ann", ("a", "c")), ("bob", ("a",))]
    assert number_edges(paths) == [[0, 1], [0, 2], [3]]
    many = Gold((), {"ann": tuple((Relation(str(at), "out"),) for at in range(99))})
    assert len(gold_paths_of(many)) == 16


def test_a_walk_along_a_gold_path() -> None:
    trail = GoldTrail(GOLD)
    trail.list_relations(Step(0, "kg", "relations", 0.0), {"ann": [SPOUSE, Relation("child", "out")], "x": [SPOUSE]})
    trail.reach(Step(1, "kg", "neighbours", 0.0), {("ann", SPOUSE): Neighbours(("bob", "joe"))})
    trail.keep(1, nodes=["bob"])
    trail.reach(Step(2, "kg", "neighbours", 0.0), {("bob", BORN): Neighbours(("m.1", "m.2"))})
    assert events(trail) == [
        ("listed", 0, 1, 1, None),
        ("followed", 0, 1, 1, None),
        ("reached", 0, 2, None, None),
        ("kept", None, 0, None, None),
        ("kept", 1, 1, 2, None),
        ("followed", 1, 1, 2, None),
        ("reached", 1, 2, None, None),
        ("found", None, 1, None, None),
    ]


def test_a_node_whose_relations_lack_the_edge_does_not_pass_it_by() -> None:
    other = Relation("child", "out")
    trail = GoldTrail(GOLD)
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("ann", SPOUSE): Neighbours(("bob", "joe"))})
    trail.list_relations(Step(1, "kg", "relations", 0.0), {"bob": [other]})
    trail.reach(Step(2, "kg", "neighbours", 0.0), {("bob", other): Neighbours(("x",))})
    assert "passed" not in {event.event for event in trail.events}
    trail.reach(Step(3, "kg", "neighbours", 0.0), {("joe", other): Neighbours(("x",))})
    assert ("passed", 1, 1, 2, None) in events(trail), "nobody knows what joe has"


async def test_topic_entities_are_looked_up_only_if_no_lookup_of_the_method_shows_one() -> None:
    class StubGraph:
        """Knows only Ann, and counts what it is asked."""

        asked: ClassVar[list[str]] = []

        async def relations(self, ids: Sequence[str]) -> Batch[str, list[Relation]]:
            self.asked.extend(ids)
            return Batch({id: [SPOUSE] if id == "ann" else [] for id in ids})

    graph = cast("GraphLookups", StubGraph())
    for topics, number in ((["eva"], 0), (["eva", "ann"], 1)):
        trail = GoldTrail(GOLD, topics)
        trail.list_relations(Step(0, "kg", "relations", 0.0), {"eva": []})
        trail.reach(Step(1, "kg", "neighbours", 0.0), {("eva", SPOUSE): Neighbours(())})
        await trail.look_topics_up(1, graph)
        assert events(trail) == [("topics", None, number, None, None)]
    StubGraph.asked.clear()
    listing, reaching = GoldTrail(GOLD, ["ann"]), GoldTrail(GOLD, ["ann"])
    listing.list_relations(Step(0, "kg", "relations", 0.0), {"ann": [SPOUSE]})
    reaching.reach(Step(0, "kg", "neighbours", 0.0), {("ann", SPOUSE): Neighbours(("bob",))})
    for trail in (listing, reaching):
        await trail.look_topics_up(0, graph)
    assert StubGraph.asked == []


def test_an_edge_may_be_followed_by_its_inverse() -> None:
    trail = GoldTrail(GOLD)
    trail.use_inverses({"spouse": "partner", "partner": "spouse"})
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("ann", Relation("partner", "in")): Neighbours(("bob",))})
    assert events(trail)[0] == ("followed", 0, 1, 1, None)


def test_another_relation_passes_the_edge() -> None:
    trail = GoldTrail(GOLD)
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("ann", Relation("child", "out")): Neighbours(("bob",))})
    assert events(trail) == [("passed", 0, 1, 1, None)]


def test_names_are_whole_words_and_references_do_not_count() -> None:
    trail = GoldTrail(GOLD)
    step = Step(0, "llm", "x", 0.0)
    trail.show(step, {"facts": "Osloer, spouse_of, family.spouse, spouse.age", "references": "Oslo spouse"})
    assert events(trail) == []
    trail.show(step, {"facts": "spouse: Oslo or Kristiania."})
    assert events(trail) == [("shown", 0, None, None, None), ("shown", None, 2, None, None)]


def test_what_code_cuts_is_noted_only_if_it_concerns_the_gold_answers() -> None:
    trail = GoldTrail(GOLD)
    trail.cut(0, by="beam", nodes=["x", LiteralNode("5")], relations=[Relation("child", "out")], at=["ann"])
    assert events(trail) == []
    trail.cut(0, by="beam", nodes=["m.1", "ann"], relations=[SPOUSE], at=["ann"])
    assert events(trail) == [
        ("cut", None, 1, None, "beam"),
        ("cut", 0, 1, 1, "beam"),
        ("cut", 0, None, None, "beam"),
    ]


def test_a_depth_is_noted_whatever_it_cuts_because_it_may_end_the_search() -> None:
    trail = GoldTrail(GOLD)
    trail.cut(0, by="depth", nodes=[])
    trail.cut(0, by="depth", nodes=["x"])
    assert events(trail) == [("cut", None, 0, None, "depth")]


def test_the_answer_is_read_from_the_last_call_that_holds_it() -> None:
    trail = GoldTrail(GOLD)
    calls = [Step(at, "llm", "x", 0.0, completion=text) for at, text in enumerate(["no", "yes: Oslo", "done"])]
    trail.answer(calls, "Oslo")
    assert [event.step for event in trail.events] == [1]
    trail.answer([], "Oslo")
    assert len(trail.events) == 1


def test_the_answer_is_read_from_the_call_whose_reply_it_is_if_there_is_one() -> None:
    trail = GoldTrail(GOLD)
    calls = [Step(at, "llm", "x", 0.0, completion=text) for at, text in enumerate(["no", " no\n", "Relations: none"])]
    trail.answer(calls, "no")
    assert [event.step for event in trail.events] == [1]


def test_without_gold_paths_and_answers_nothing_is_noted() -> None:
    trail = GoldTrail(Gold())
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("ann", SPOUSE): Neighbours(("bob",))})
    trail.show(Step(1, "llm", "x", 0.0), {"facts": "Oslo"})
    assert events(trail) == []


def test_a_reply_that_gives_numbers_writes_the_relations_that_are_read_from_it() -> None:
    trail = GoldTrail(GOLD)
    step = Step(0, "llm", "x", 0.0)
    trail.write(step, "relation_1")
    trail.understand(step, {"picked": [("ann", SPOUSE)], "others": Neighbours(("bob",))})
    assert events(trail) == [("written", 0, None, None, None)]
    trail.write(step, "spouse")
    trail.understand(step, SPOUSE)
    assert len(trail.events) == 2, "what the text names is noted once"


@pytest.mark.parametrize(("value", "is_written"), [(1, True), ([1], True), ([], False), (True, False), ("1", False)])
def test_a_reply_read_as_numbers_alone_writes_the_shown_relation_that_is_followed_next(
    value: object, *, is_written: bool
) -> None:
    trail = GoldTrail(GOLD)
    call, lookup = Step(0, "llm", "x", 0.0), Step(1, "kg", "neighbours", 0.0)
    trail.show(call, {"relations": "1. spouse"})
    trail.write(call, "1")
    trail.understand(call, value)
    trail.reach(lookup, {("ann", SPOUSE): Neighbours(("bob",))})
    written = [(event.step, event.edge) for event in trail.events if event.event == "written"]
    assert written == ([(0, 0)] if is_written else [])


def test_a_shown_relation_that_is_not_followed_was_not_chosen_by_its_number() -> None:
    trail = GoldTrail(GOLD)
    call = Step(0, "llm", "x", 0.0)
    trail.show(call, {"relations": "1. spouse\n2. child"})
    trail.understand(call, 2)
    trail.reach(Step(1, "kg", "neighbours", 0.0), {("ann", Relation("child", "out")): Neighbours(("bob",))})
    assert "written" not in {event.event for event in trail.events}


DIRECTED, STARRED, ACTED = Relation("directed_by", "out"), Relation("starred", "out"), Relation("starred", "in")
FILMS = Gold(
    (GoldAnswer("Welles", "m.welles", ("Orson Welles",)), GoldAnswer("Ford", "m.ford")),
    {"kane": ((STARRED, ACTED, DIRECTED),)},
)
"""Directors of films with the actors of a film, one of whom directs as well."""


def test_a_gold_answer_on_the_way_to_others_is_not_found() -> None:
    trail = GoldTrail(FILMS)
    facts = {"facts": "(kane, starred, Orson Welles)"}
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("kane", STARRED): Neighbours(("m.welles", "m.cotten"))})
    trail.show(Step(1, "llm", "x", 0.0), facts)
    trail.keep(1, nodes=["m.welles"])
    trail.cut(1, by="beam", nodes=["m.welles"])
    assert [event for event in events(trail) if event[1] is None] == [("kept", None, 0, None, None)]
    trail.reach(Step(2, "kg", "neighbours", 0.0), {("m.welles", ACTED): Neighbours(("othello",))})
    trail.reach(Step(3, "kg", "neighbours", 0.0), {("othello", STARRED): Neighbours(("m.welles",))})
    assert "found" not in {event.event for event in trail.events}, "a walk back to the actor does not find the director"
    trail.show(Step(4, "llm", "x", 0.0), {"facts": "(kane, starred, Orson Welles), (x, directed_by, Ford)"})
    assert events(trail)[-1] == ("shown", None, 1, None, None), "only the other one is shown as an answer"
    trail.reach(Step(5, "kg", "neighbours", 0.0), {("othello", DIRECTED): Neighbours(("m.welles",))})
    trail.show(Step(6, "llm", "x", 0.0), facts)
    trail.show(Step(7, "llm", "x", 0.0), {"facts": "(othello, directed_by, Orson Welles)"})
    trail.show(Step(8, "llm", "x", 0.0), {"results": "the director is Orson Welles"})
    trail.show(Step(9, "llm", "x", 0.0), {"facts": "(kane, starred, Orson Welles), (x, directed_by, Hawks)"})
    now = [(event.step, event.event) for event in trail.events if event.edge is None and event.step > 4]
    assert now == [(5, "found"), (7, "shown"), (8, "shown")], "one prompt shows him as an actor only"


def test_a_node_named_like_a_gold_answer_may_be_on_the_way() -> None:
    trail = GoldTrail(FILMS)
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("kane", STARRED): Neighbours(("m.1",))})
    trail.name(Step(1, "kg", "labels", 0.0), {"m.1": "Welles", "kane": "Ford"})
    trail.show(Step(2, "llm", "x", 0.0), {"facts": "(kane, starred, Welles)"})
    assert {event.event for event in trail.events if event.edge is None} == set()
    trail.reach(Step(3, "kg", "neighbours", 0.0), {("m.1", DIRECTED): Neighbours(("m.welles",))})
    trail.show(Step(4, "llm", "x", 0.0), {"facts": "(kane, starred, Welles)"})
    assert {event.event for event in trail.events if event.edge is None} == {"found", "shown"}, "the names are equal"


def test_an_answer_off_the_gold_paths_is_found_also_where_a_path_leads_on_later() -> None:
    trail = GoldTrail(FILMS)
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("kane", DIRECTED): Neighbours(("m.welles",))})
    trail.reach(Step(1, "kg", "neighbours", 0.0), {("kane", STARRED): Neighbours(("m.welles",))})
    assert [event.step for event in trail.events if event.event == "found"] == [0, 1]


def test_an_answer_on_the_way_is_found_where_another_relation_leads_to_it_too() -> None:
    trail = GoldTrail(FILMS)
    both = {("kane", STARRED): Neighbours(("m.welles",)), ("kane", DIRECTED): Neighbours(("m.welles",))}
    trail.reach(Step(0, "kg", "neighbours", 0.0), both)
    assert "found" in {event.event for event in trail.events}, "it is shown as the director, too"


def test_the_end_of_a_short_path_is_found_although_a_longer_one_leads_on() -> None:
    trail = GoldTrail(Gold(GOLD.answers, {"ann": ((SPOUSE,), (SPOUSE, BORN))}))
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("ann", SPOUSE): Neighbours(("m.1",))})
    assert "found" in {event.event for event in trail.events}


class Marriages:
    """A graph in which ann and bob are married, and bob was born in Oslo; eva is married to them, too."""

    married = Relation("marriage", "out"), Relation("partner", "out")
    hops: ClassVar = {"ann": ["m"], "eva": ["m"], "m": ["ann", "bob"], "bob": ["m.1"]}

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        return Batch({hop: Neighbours(tuple(self.hops.get(hop[0], ()))) for hop in hops})

    async def labels(self, ids: Sequence[str]) -> Batch[str, str | None]:
        return Batch(dict.fromkeys(ids))


async def test_a_walk_that_returns_does_not_lead_to_a_gold_answer() -> None:
    trail = GoldTrail(Gold(GOLD.answers, {"ann": ((*Marriages.married, BORN),)}))
    first, second = Marriages.married
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("ann", first): Neighbours(("m",))})
    trail.reach(Step(1, "kg", "neighbours", 0.0), {("m", second): Neighbours(("ann", "bob"))})
    trail.keep(1, nodes=["ann"])
    assert ("kept", 2, 1, 2, None) in events(trail)
    await trail.look_ahead(9, cast("GraphLookups", Marriages()))
    assert ("kept", 2, 0, 1, None) in events(trail)


async def test_the_paths_that_were_begun_are_looked_up_first() -> None:
    others = tuple((Relation(f"other {number}", "out"), BORN) for number in range(6))
    first, second = Marriages.married
    trail = GoldTrail(Gold(GOLD.answers, {"ann": (*others, (first, second, BORN))}))
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("ann", first): Neighbours(("m",))})
    trail.reach(Step(1, "kg", "neighbours", 0.0), {("m", second): Neighbours(("ann", "bob"))})
    trail.keep(1, nodes=["ann"])
    await trail.look_ahead(9, cast("GraphLookups", Marriages()))
    assert ("kept", 14, 0, 1, None) in events(trail)


async def test_a_path_without_directions_gets_those_that_lead_to_a_gold_answer() -> None:
    class StubGraph:
        """Walt has a child and a parent."""

        async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
            return Batch({hop: Neighbours(("diane" if hop[1].direction == "out" else "elias",)) for hop in hops})

        async def labels(self, ids: Sequence[str]) -> Batch[str, str | None]:
            return Batch(dict.fromkeys(ids))

    child = Relation("child", "out")
    for gold, followed in (("diane", []), ("nobody", [("followed", 0, 1, 1, None), ("reached", 0, 1, None, None)])):
        paths = SparqlPaths((), {"walt": "walt"}, unverified=((child,),))
        trail = GoldTrail(Gold((GoldAnswer(gold, gold),), paths))
        assert not trail.has_directions
        await trail.find_directions(cast("GraphLookups", StubGraph()))
        trail.reach(Step(0, "kg", "neighbours", 0.0), {("walt", child.reversed): Neighbours(("elias",))})
        assert [each for each in events(trail) if each[0] in {"followed", "reached"}] == followed


@pytest.mark.parametrize(("truncated", "noted"), [(False, True), (True, False)])
async def test_a_path_without_a_gold_answer_at_its_end_is_noted_if_the_graph_shows_all(
    truncated: bool, noted: bool
) -> None:
    class StubGraph:
        """Everybody leads to joe, whose name is no gold answer."""

        async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
            return Batch({hop: Neighbours(("joe",), truncated=truncated) for hop in hops})

        async def labels(self, ids: Sequence[str]) -> Batch[str, str | None]:
            return Batch(dict.fromkeys(ids, "Joe"))

    for gold, is_noted in ((GOLD, noted), (Gold((GoldAnswer("the joe", "m.7"),), GOLD.paths), False)):
        trail = GoldTrail(gold)
        trail.reach(Step(0, "kg", "neighbours", 0.0), {("ann", SPOUSE): Neighbours(("joe",))})
        await trail.look_ahead(5, cast("GraphLookups", StubGraph()))
        assert (("no_way", 1, None, None, None) in events(trail)) is is_noted


async def test_a_prompt_about_a_node_that_leads_nowhere_does_not_show_the_edge() -> None:
    first, second = Marriages.married
    trail = GoldTrail(Gold(GOLD.answers, {"eva": ((first, second, BORN),)}))
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("eva", first): Neighbours(("m",))})
    trail.reach(Step(1, "kg", "neighbours", 0.0), {("m", second): Neighbours(("bob", "m.9"))})
    trail.name(Step(2, "kg", "labels", 0.0), {"m.9": "joe"})
    relations = {"relations": "born_in; child"}
    for number, entity in enumerate(["bob", "joe", "bob and joe", "all of them"], 3):
        trail.show(Step(number, "llm", "r", 0.0), {"entity": entity, **relations})
    await trail.look_ahead(9, cast("GraphLookups", Marriages()))
    assert [event.step for event in trail.events if (event.event, event.edge) == ("shown", 2)] == [3, 5, 6]


def test_gold_answers_without_a_name_are_noted_until_one_has_a_name() -> None:
    trail = GoldTrail(Gold(answers=(GoldAnswer("The Book", "m.1"), GoldAnswer("The Film", "m.2"))))
    trail.name(Step(1, "kg", "labels", 0.0), {"m.9": None})
    assert trail.events == []
    trail.name(Step(2, "kg", "labels", 0.0), {"m.1": None, "m.9": "Ann"})
    trail.name(Step(3, "kg", "labels", 0.0), {"m.2": "The Film"})
    trail.name(Step(4, "kg", "labels", 0.0), {"m.1": None})
    noted = [(each.step, each.number) for each in trail.events if each.event == "unnamed"]
    assert noted == [(2, 1), (3, 0)]


def test_nodes_to_count_need_no_name() -> None:
    trail = GoldTrail(Gold((GoldAnswer("1"),), {"ann": ((SPOUSE,),)}))
    trail.reach(Step(0, "kg", "neighbours", 0.0), {("ann", SPOUSE): Neighbours(("m.1",))})
    trail.name(Step(1, "kg", "labels", 0.0), {"m.1": None})
    assert "unnamed" not in {event.event for event in trail.events}
