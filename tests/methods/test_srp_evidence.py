"""The selection of chains to show and to keep as evidence (specification §3.7, §3.9)."""

from __future__ import annotations

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.srp.evidence import (
    Evidence,
    all_chains,
    candidate_relations,
    kept_first,
    longest_chains,
    merge,
    sample_of_each_path,
    sequences_to_judge,
    structural_findings,
)
from pipeline.methods.srp.instantiation import Instantiation
from pipeline.methods.srp.judge import Verdict
from pipeline.types import Node
from tests.methods.support import chain, literal


def instances(
    path: str, *, complete: tuple[GroundedPath, ...] = (), partial: tuple[GroundedPath, ...] = ()
) -> Instantiation:
    nodes = {node for path in complete + partial for node in path.nodes if isinstance(node, str)}
    names = {node: None if node.startswith("m.") else node for node in nodes}
    length = max((path.length for path in complete + partial), default=0)
    return Instantiation(tuple(path.split()), complete, partial, length, names)


def test_structural_findings_name_each_defect() -> None:
    assert structural_findings(instances("r", complete=(chain("a", "r", "b"),))) == ()
    assert structural_findings(instances("", partial=(GroundedPath("a"),))) == ("empty initial path",)
    assert structural_findings(instances("r s", partial=(chain("a", "r", "b"),))) == ("relation s not instantiated",)
    assert structural_findings(instances("r", partial=(GroundedPath("a"),))) == ("relation r not instantiated",)
    both = instances("r s", partial=(chain("a", "r", "m.1"), chain("a", "r", "b")))
    assert structural_findings(both) == ("<cvt></cvt> in the end", "relation s not instantiated")
    shorter = instances("r s", complete=(chain("a", "r", "b", "s", "c"),), partial=(chain("a", "r", "m.1"),))
    assert structural_findings(shorter) == (), "only a longest chain counts"


def test_sequences_to_judge_end_in_a_named_node_and_are_capped_per_path() -> None:
    ends: list[Node] = ["b", "m.1", "c", literal("1999"), "d"]
    complete = (*(chain("a", "r", end) for end in ends), chain("a", "s", "e"))
    found = instances("r", complete=complete, partial=(chain("a", "r", "f"), chain("a", "r", "m.2"), GroundedPath("a")))
    sequences = sequences_to_judge([found], found.names, partial=False)
    assert [path.end for path in sequences] == ["b", "c", literal("1999"), "d", "e"]
    assert [path.end for path in sample_of_each_path(sequences, 2)] == ["b", "c", "e"]
    everything = sequences_to_judge([found, found], found.names, partial=True)
    assert [path.end for path in everything] == ["b", "c", literal("1999"), "d", "e", "f"], "each once"


def test_sequences_that_differ_in_unnamed_nodes_alone_are_judged_once() -> None:
    complete = tuple(chain("a", "r", f"m.{n}", "s", end) for n, end in enumerate(["b", "b", "c"]))
    found = instances("r s", complete=complete)
    assert sequences_to_judge([found], found.names, partial=False) == (complete[0], complete[2])
    namesakes = {**found.names, "b": "Paris", "c": "Paris"}
    assert sequences_to_judge([found], namesakes, partial=False) == (complete[0], complete[2])


def test_the_editor_sees_first_what_was_kept_and_what_the_check_names() -> None:
    chains = tuple(chain("a", "r", f"n{n}") for n in range(5))
    verdict = Verdict(False, {each: each.first(int(each is chains[3])) for each in chains}, "Sequence 5 is odd.")
    assert [each.end for each in kept_first(chains, verdict)] == ["n3", "n4", "n0", "n1", "n2"]


def test_candidates_say_how_many_were_left_out() -> None:
    offered = {("r",): {"a", "b", "c"}, ("s",): {"a"}, ("t",): {"a"}}
    selected = candidate_relations(offered, ["c", "b", "a"], per_prefix=2, total=3)
    assert selected.by_path == ((("r",), ("c", "b")), (("s",), ("a",)))
    assert selected.left_out == 2


def test_the_longest_chains_are_cut_after_their_last_named_node_and_are_distinct() -> None:
    complete = (chain("a", "r", "b", "s", "m.1"), chain("a", "r", "b", "s", "m.2"), chain("a", "r", "m.3", "s", "m.4"))
    found = instances("r s", complete=complete, partial=(chain("a", "r", "c"),))
    assert longest_chains(found) == (chain("a", "r", "b"),)
    assert all_chains(found) == (*complete, chain("a", "r", "c"))
    assert longest_chains(instances("", partial=(GroundedPath("a"),))) == ()


def names(*chains: GroundedPath) -> dict[str, str | None]:
    return {node: node for chain in chains for node in chain.nodes if isinstance(node, str)}


def evidence(*chains: GroundedPath) -> Evidence:
    return Evidence(chains, names(*chains))


def test_a_single_entity_keeps_all_its_chains() -> None:
    chains = tuple(chain("a", "r", f"n{n}") for n in range(60))
    assert merge([evidence(*chains), Evidence()], max_facts=300).chains == chains


def test_chains_through_a_shared_entity_are_kept() -> None:
    merged = merge(
        [
            evidence(chain("a", "r", "x"), chain("a", "r", "y"), chain("a", "r", literal("1"))),
            evidence(chain("b", "s", "x", "t", "z"), chain("b", "s", "q"), chain("b", "s", literal("1"))),
            Evidence(),
        ],
        max_facts=300,
    )
    assert merged.chains == (chain("a", "r", "x"), chain("b", "s", "x", "t", "z")), "literals are not shared"
    assert merged.names["z"] == "z"
    assert not merged.exhausted


def test_without_a_shared_entity_chains_are_cut_per_entity_only_when_there_are_many() -> None:
    def chains(topic: str, count: int) -> tuple[GroundedPath, ...]:
        return tuple(chain(topic, "r", f"{topic}{n}") for n in range(count))

    many = merge([evidence(*chains("a", 45)), evidence(*chains("b", 6))], max_facts=300)
    assert many.chains == chains("a", 45)[:30] + chains("b", 6)
    assert many.left_out == 15
    few = merge([evidence(*chains("a", 44)), evidence(*chains("b", 6))], max_facts=300)
    assert len(few.chains) == 50


def test_a_shared_entity_must_be_shared_by_all_groups() -> None:
    merged = merge(
        [
            evidence(chain("a", "r", "x"), chain("a", "r", "y")),
            evidence(chain("b", "r", "x")),
            evidence(chain("c", "r", "z")),
        ],
        max_facts=300,
    )
    assert len(merged.chains) == 4


def test_the_cap_counts_facts_and_takes_chains_from_the_entities_in_turn() -> None:
    merged = merge(
        [
            evidence(chain("a", "r", "1", "r", "2"), chain("a", "r", "3", "r", "4"), chain("a", "r", "5", "r", "6")),
            evidence(chain("b", "s", "7")),
        ],
        max_facts=5,
    )
    assert [path.start for path in merged.chains] == ["a", "a", "b"]
    assert merged.exhausted
    exact = merge([evidence(chain("a", "r", "1"), chain("a", "r", "2"))], max_facts=2)
    assert (len(exact.chains), exact.exhausted, exact.left_out) == (2, False, 0)
    assert merged.left_out == 1


def test_merged_evidence_is_exhausted_when_one_part_is() -> None:
    assert merge([Evidence(exhausted=True), evidence(chain("a", "r", "b"))], max_facts=9).exhausted
