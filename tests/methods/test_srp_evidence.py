"""What is shown and what is kept as evidence (methods.md §3.7, §3.9)."""

from __future__ import annotations

from pipeline.methods.instance import Instance
from pipeline.methods.srp.evidence import (
    Evidence,
    all_instances,
    longest_instances,
    merge,
    sequences_to_judge,
    structural_findings,
)
from pipeline.methods.srp.instantiation import Instantiation
from pipeline.types import Node
from tests.methods.support import chain, literal


def grounded(path: str, *, complete: tuple[Instance, ...] = (), partial: tuple[Instance, ...] = ()) -> Instantiation:
    nodes = {node for instance in complete + partial for node in instance.nodes if isinstance(node, str)}
    names = {node: None if node.startswith("m.") else node for node in nodes}
    length = max((instance.length for instance in complete + partial), default=0)
    return Instantiation(tuple(path.split()), complete, partial, length, names)


def test_findings_name_each_structural_defect() -> None:
    assert structural_findings(grounded("r", complete=(chain("a", "r", "b"),))) == ()
    assert structural_findings(grounded("", partial=(Instance("a"),))) == ("empty initial path",)
    assert structural_findings(grounded("r s", partial=(chain("a", "r", "b"),))) == ("relation s not instantiated",)
    assert structural_findings(grounded("r", partial=(Instance("a"),))) == ("relation r not instantiated",)
    both = grounded("r s", partial=(chain("a", "r", "m.1"), chain("a", "r", "b")))
    assert structural_findings(both) == ("<cvt></cvt> in the end", "relation s not instantiated")
    shorter = grounded("r s", complete=(chain("a", "r", "b", "s", "c"),), partial=(chain("a", "r", "m.1"),))
    assert structural_findings(shorter) == (), "only a longest chain counts"


def test_sequences_to_judge_end_named_and_are_capped_per_path() -> None:
    ends: list[Node] = ["b", "m.1", "c", literal("1999"), "d"]
    complete = (*(chain("a", "r", end) for end in ends), chain("a", "s", "e"))
    found = grounded("r", complete=complete, partial=(chain("a", "r", "f"),))
    assert [instance.end for instance in sequences_to_judge(found, 2)] == ["b", "c", "e"]
    assert [instance.end for instance in sequences_to_judge(found)] == ["b", "c", literal("1999"), "d", "e"]


def test_the_longest_instances_lose_their_unnamed_ends_and_their_repeats() -> None:
    complete = (chain("a", "r", "b", "s", "m.1"), chain("a", "r", "b", "s", "m.2"), chain("a", "r", "m.3", "s", "m.4"))
    found = grounded("r s", complete=complete, partial=(chain("a", "r", "c"),))
    assert longest_instances(found) == (chain("a", "r", "b"),)
    assert all_instances(found) == (*complete, chain("a", "r", "c"))
    assert longest_instances(grounded("", partial=(Instance("a"),))) == ()


def names(*instances: Instance) -> dict[str, str | None]:
    return {node: node for instance in instances for node in instance.nodes if isinstance(node, str)}


def evidence(*instances: Instance) -> Evidence:
    return Evidence(instances, names(*instances))


def test_one_entity_keeps_all_its_chains() -> None:
    chains = tuple(chain("a", "r", f"n{n}") for n in range(60))
    assert merge([evidence(*chains), Evidence()], cap=300).instances == chains


def test_chains_that_hold_a_common_entity_are_kept() -> None:
    merged = merge(
        [
            evidence(chain("a", "r", "x"), chain("a", "r", "y"), chain("a", "r", literal("1"))),
            evidence(chain("b", "s", "x", "t", "z"), chain("b", "s", "q"), chain("b", "s", literal("1"))),
            Evidence(),
        ],
        cap=300,
    )
    assert merged.instances == (chain("a", "r", "x"), chain("b", "s", "x", "t", "z")), "equal literals are no entity"
    assert merged.names["z"] == "z"
    assert not merged.exhausted


def test_without_a_common_entity_each_entity_keeps_its_share_only_when_there_are_many() -> None:
    def chains(topic: str, count: int) -> tuple[Instance, ...]:
        return tuple(chain(topic, "r", f"{topic}{n}") for n in range(count))

    many = merge([evidence(*chains("a", 45)), evidence(*chains("b", 6))], cap=300)
    assert many.instances == chains("a", 45)[:30] + chains("b", 6)
    few = merge([evidence(*chains("a", 44)), evidence(*chains("b", 6))], cap=300)
    assert len(few.instances) == 50


def test_three_entities_need_an_entity_that_all_three_share() -> None:
    merged = merge(
        [
            evidence(chain("a", "r", "x"), chain("a", "r", "y")),
            evidence(chain("b", "r", "x")),
            evidence(chain("c", "r", "z")),
        ],
        cap=300,
    )
    assert len(merged.instances) == 4


def test_the_cap_counts_facts_and_takes_from_the_entities_in_turn() -> None:
    merged = merge(
        [
            evidence(chain("a", "r", "1", "r", "2"), chain("a", "r", "3", "r", "4"), chain("a", "r", "5", "r", "6")),
            evidence(chain("b", "s", "7")),
        ],
        cap=5,
    )
    assert [instance.start for instance in merged.instances] == ["a", "a", "b"]
    assert merged.exhausted
    exact = merge([evidence(chain("a", "r", "1"), chain("a", "r", "2"))], cap=2)
    assert (len(exact.instances), exact.exhausted) == (2, False)


def test_an_exhausted_entity_makes_the_whole_exhausted() -> None:
    assert merge([Evidence(exhausted=True), evidence(chain("a", "r", "b"))], cap=9).exhausted
