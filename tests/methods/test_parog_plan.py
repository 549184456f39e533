"""PARoG's plans and set operations: reading, rejecting and executing them (specification §5.5)."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.errors import ParseError
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parog.plan import SubGoal, read_plan, under_set_operations, waves, write_plan
from pipeline.methods.parog.planning import MakePlan
from pipeline.methods.parog.set_operations import execute, is_executable
from pipeline.methods.parog.subgoal_result import SubgoalAnswer, SubgoalResult
from pipeline.types import LiteralNode, Relation
from tests.methods.support import question

PLAN = (
    SubGoal(1, "Find the countries that border France"),
    SubGoal(2, "Find the countries with an airport serving Nijmegen"),
    SubGoal(3, "Keep the countries found in both 1 and 2", "conjunction", (1, 2)),
)
SPECIFICATION = """\
[{"id": 1, "goal": "Find the countries that border France", "op": "lookup", "uses": []},
 {"id": 2, "goal": "Find the countries with an airport serving Nijmegen", "op": "lookup", "uses": []},
 {"id": 3, "goal": "Keep the countries found in both 1 and 2", "op": "conjunction", "uses": [1, 2]}]"""


def test_the_plan_of_the_specification_is_read_and_written() -> None:
    assert read_plan(SPECIFICATION) == PLAN
    assert write_plan(PLAN) == SPECIFICATION


def test_keep_and_bound_survive_a_round_trip() -> None:
    plan = (SubGoal(1, "Find x"), SubGoal(2, "Keep some", "comparative", (1,), "above", "1991"))
    assert read_plan(write_plan(plan)) == plan
    assert read_plan('[{"goal": "x"}, {"goal": "y", "op": "comparative", "keep": "above", "bound": 2.5}]')[
        1
    ] == SubGoal(2, "y", "comparative", (1,), "above", "2.5")


@pytest.mark.parametrize(
    "text",
    [
        f"Here is the plan:\n```json\n{SPECIFICATION}\n```\nGood luck!",
        SPECIFICATION.replace('"', "“"),
        SPECIFICATION.replace('"', "'"),
        f'{{"plan": {SPECIFICATION}}}',
    ],
)
def test_a_plan_is_found_between_other_text_and_with_other_quotes(text: str) -> None:
    assert MakePlan(question("q?"), max_subgoals=6).parse(text) == PLAN


@pytest.mark.parametrize(
    "text",
    [
        '["Find the films of Ann", "Find who directed the films of step 1", "Count the people of #2"]',
        "1. Find the films of Ann\n2. Find who directed the films of step 1\n3) Count the people of #2",
    ],
)
def test_sentences_get_ids_by_position_and_dependencies_by_their_words(text: str) -> None:
    assert [(one.id, one.op, one.uses) for one in read_plan(text)] == [
        (1, "lookup", ()),
        (2, "composition", (1,)),
        (3, "count", (2,)),
    ]


@pytest.mark.parametrize(
    "sentence", ["Intersect (1) and (2)", "Keep what both 1 and 2 have", "Keep what steps 1 and 2 have in common"]
)
def test_a_conjunction_is_recognised_by_its_words(sentence: str) -> None:
    plan = read_plan(f'["Find a", "Find b", "{sentence}"]')
    assert (plan[2].op, plan[2].uses) == ("conjunction", (1, 2))


def test_an_operation_without_dependencies_uses_the_sub_goal_before_it() -> None:
    plan = read_plan('[{"id": 1, "goal": "a", "op": "lookup"}, {"id": 2, "goal": "b", "op": "superlative"}]')
    assert [one.uses for one in plan] == [(), (1,)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("I do not know.", "neither a JSON list"),
        ("[]", "empty"),
        ('[{"id": 1, "goal": "a", "op": "guess"}]', "unknown op 'guess'"),
        ('[{"id": 1, "op": "lookup"}]', "no goal"),
        ('[{"id": 1, "goal": "a", "uses": [7]}]', "no sub-goal 7"),
        ('[{"id": 1, "goal": "a"}, {"id": 1, "goal": "b"}]', "same id"),
        ('[{"id": 1, "goal": "a", "uses": [2]}, {"id": 2, "goal": "b", "uses": [1]}]', "waits for itself"),
        ('[{"id": 1, "goal": "a", "uses": [1]}]', "waits for itself"),
        (str([f"Find {n}" for n in range(7)]), "7 sub-goals, and 6"),
        ("[1, 2]", "neither an object nor a sentence"),
    ],
)
def test_a_plan_that_cannot_be_executed_is_rejected(text: str, complaint: str) -> None:
    with pytest.raises(ParseError, match=complaint):
        MakePlan(question("q?"), max_subgoals=6).parse(text)


def test_sub_goals_of_one_wave_do_not_depend_on_each_other() -> None:
    assert [[one.id for one in wave] for wave in waves(PLAN)] == [[1, 2], [3]]


def test_indirect_dependencies_of_a_set_operation_are_found() -> None:
    chain = (SubGoal(1, "a"), SubGoal(2, "b", "composition", (1,)), SubGoal(3, "c", "count", (2,)))
    assert under_set_operations(chain) == {1, 2}
    assert under_set_operations(chain[:2]) == frozenset()


# Set operations

DATE = Relation("film.date", "out")


def answers(*names: str) -> tuple[SubgoalAnswer, ...]:
    return tuple(SubgoalAnswer(name.removeprefix("~"), None if name.startswith("~") else f"m.{name}") for name in names)


def result(id: int, *names: str) -> SubgoalResult:
    return SubgoalResult(SubGoal(id, "x"), answers(*names), names={f"m.{name}": name for name in names})


def values(id: int, **of: str) -> SubgoalResult:
    facts = tuple(GroundedPath(f"m.{name}").then(DATE, LiteralNode(value)) for name, value in of.items())
    found = tuple(SubgoalAnswer(value, LiteralNode(value)) for value in of.values())
    return SubgoalResult(SubGoal(id, "y"), found, facts, {f"m.{name}": name for name in of})


def run(used: list[SubgoalResult], op: Any, keep: Any = None, bound: str | None = None) -> list[str] | None:
    selected = execute(SubGoal(9, "z", op, tuple(one.subgoal.id for one in used), keep, bound), used)
    return None if selected is None else [answer.text for answer in selected]


def test_a_conjunction_keeps_the_common_answers() -> None:
    assert run([result(1, "A", "B", "C"), result(2, "C", "D", "A")], "conjunction") == ["A", "C"]
    assert run([result(1, "A"), result(2, "B")], "conjunction") is None


def test_a_conjunction_compares_by_id_else_by_name() -> None:
    namesake = SubgoalResult(SubGoal(2, "x"), (SubgoalAnswer("A", "m.other"),))
    assert run([result(1, "A"), namesake], "conjunction") is None
    unlinked = SubgoalResult(SubGoal(2, "x"), (SubgoalAnswer("the k"),))
    common = execute(SubGoal(3, "z", "conjunction", (1, 2)), [unlinked, result(1, "K")])
    assert common == (SubgoalAnswer("K", "m.K"),), "the answer with a node is kept"


def test_a_union_has_each_answer_once_and_needs_one_list() -> None:
    used = [result(1, "Ann", "Bob"), result(2, "~bob", "Cid")]
    assert run(used, "union") == ["Ann", "Bob", "Cid"]
    union = SubGoal(3, "Put 1 and 2 together", "union", (1, 2))
    assert is_executable(union, [result(1), result(2, "Ann")])
    assert not is_executable(union, [result(1), result(2)])


def test_a_bound_may_be_the_answer_of_a_sub_goal() -> None:
    used = [values(2, Ann="1990", Bob="1970"), result(3, "1980")]
    assert run(used, "comparative", "below", "#3") == ["Bob"]
    assert run(used, "comparative", "below", "#4") is None
    assert run([used[0], result(3, "1980", "1985")], "comparative", "below", "#3") is None


def test_a_count_is_the_number_of_answers() -> None:
    assert run([result(1, "A", "B", "C")], "count") == ["3"]
    assert run([result(1, "A"), result(2, "B")], "count") is None


@pytest.mark.parametrize(
    ("keep", "bound", "kept"),
    [
        ("highest", None, ["C"]),
        ("lowest", None, ["A"]),
        ("above", "1991", ["C"]),
        ("above", "1990-12-31", ["B", "C"]),
        ("below", "1991-05-03", ["A"]),
        ("above", "2020", None),
        (None, None, None),
    ],
)
def test_dates_are_compared_at_the_precision_that_both_have(
    keep: Any, bound: str | None, kept: list[str] | None
) -> None:
    used = [result(1, "A", "B", "C"), values(2, A="1903", B="1991-05-03", C="1992-01")]
    assert run(used, "comparative" if bound else "superlative", keep, bound) == kept


def test_numbers_are_compared_as_numbers() -> None:
    used = [result(1, "A", "B"), values(2, A="9.50", B="10")]
    assert run(used, "superlative", "highest") == ["B"]
    assert run(used, "comparative", "below", "9.6") == ["A"]
    assert run([result(1, "A", "B"), values(2, A="9", B="tall")], "superlative", "highest") is None


def test_only_the_entities_among_the_answers_are_compared() -> None:
    used = [result(1, "A", "B"), values(2, A="1", B="2", C="3")]
    assert run(used, "superlative", "highest") == ["B"]
    assert run(used[1:], "superlative", "highest") == ["C"], (
        "without entities among the answers, the subjects of the values"
    )


def test_a_value_belongs_to_the_entity_that_facts_lead_back_to() -> None:
    facts = (
        GroundedPath("m.A").then(Relation("film.director", "out"), "m.D"),
        GroundedPath("m.D").then(Relation("person.height", "out"), LiteralNode("2")),
        GroundedPath("m.B").then(DATE, LiteralNode("1")),
    )
    heights = SubgoalResult(SubGoal(2, "y"), (SubgoalAnswer("2"), SubgoalAnswer("1")), facts)
    assert run([result(1, "A", "B"), heights], "superlative", "highest") == ["A"]


def test_a_value_that_is_no_answer_is_ignored() -> None:
    two = values(2, A="1", B="5")
    one = SubgoalResult(two.subgoal, two.answers[:1], two.facts)
    assert run([result(1, "A", "B"), one], "superlative", "highest") == ["A"]


def test_in_a_graph_without_literals_values_are_entities() -> None:
    def named(id: int, *names: str, **of: str) -> SubgoalResult:
        facts = tuple(GroundedPath(name).then(DATE, value) for name, value in of.items())
        called = {name: name for name in (*names, *of, *of.values())}
        return SubgoalResult(SubGoal(id, "x"), tuple(SubgoalAnswer(name, name) for name in names), facts, called)

    used = [named(1, "1984", "Brazil"), named(2, "1956", "1985", **{"1984": "1956", "Brazil": "1985"})]
    assert run(used, "superlative", "highest") == ["Brazil"]
    assert run(used, "comparative", "below", "1960") == ["1984"], "1984 is a film here: the other answers are films"
    titled = SubgoalResult(SubGoal(1, "x"), (SubgoalAnswer("The Old Mill", "1984"),), names={"1984": "The Old Mill"})
    dated = SubgoalResult(
        SubGoal(2, "y"), (SubgoalAnswer("7", LiteralNode("7")),), (GroundedPath("1984").then(DATE, LiteralNode("7")),)
    )
    assert run([titled, dated], "superlative", "highest") == ["The Old Mill"], "an id that is a number is not a value"
