"""PARoG step by step: the calls that it makes, their inputs, and the effect of each option (specification §5)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.config import default
from pipeline.methods.parog import PARoG
from pipeline.methods.parog.aggregate import Aggregate
from pipeline.methods.parog.entities import SelectEntities
from pipeline.methods.parog.node_labels import SubgoalLabels
from pipeline.methods.parog.plan import SubGoal, write_plan
from pipeline.methods.parog.refine import Refine
from pipeline.methods.parog.relations import SelectRelations
from pipeline.methods.parog.tentative import AnswerTentatively
from pipeline.types import Answer, Question
from tests.methods.support import DictionaryGraph, FixedCaps, ScriptedTools, chain, literal, question, texts

BORDERS = [
    ("France", "borders", "Belgium"),
    ("France", "borders", "Spain"),
    ("Belgium", "airport", "m.a1"),
    ("m.a1", "serves", "Nijmegen"),
    ("Germany", "serves_nijmegen", "Nijmegen"),
    ("Belgium", "serves_nijmegen", "Nijmegen"),
    ("Belgium", "capital", "Brussels"),
    ("Belgium", "area", literal("30689")),
    ("Spain", "area", literal("505990")),
]
ASKED = question("which countries bordering France have an airport that serves Nijmegen?", "France", "Nijmegen")
FIND_1 = SubGoal(1, "Find the countries that border France")
PLAN = (
    FIND_1,
    SubGoal(2, "Find the countries with an airport serving Nijmegen"),
    SubGoal(3, "Keep the countries found in both 1 and 2", "conjunction", (1, 2)),
)
GUESS = '{"answers": ["Monaco"], "confidence": "medium"}'
ALL_CALLS = ["parog.tentative", "parog.relations", "parog.entities", "parog.refine"]


def refined(*answers: str, aligned: bool = True, done: bool = True, final: Sequence[str] | None = None) -> str:
    return json.dumps(
        {
            "aligned": aligned,
            "answers": answers,
            "done": done,
            "question_answered": final is not None,
            "final": final or [],
        }
    )


async def run(
    asked: Question, facts: Sequence[Any], replies: Mapping[str, Any], *, names: Any = None, **keys: Any
) -> tuple[Answer, ScriptedTools]:
    caps = keys.pop("caps", None)
    tools = ScriptedTools(DictionaryGraph(facts, names), replies, caps=caps)
    for limit in ("max_calls", "max_lookups"):
        setattr(tools.model if limit == "max_calls" else tools.graph, limit, keys.pop(limit, 10**9))
    return await default(PARoG, **keys).answer(asked, tools.tools), tools


def replies(**changed: Any) -> dict[str, Any]:
    """The replies for a plan of one sub-goal, the countries that border France; keyword arguments replace some."""
    defaults = {
        "plan": write_plan([FIND_1]),
        "tentative": GUESS,
        "relations": '{"France": ["borders"]}',
        "entities": '{"1": ["Belgium", "Spain"]}',
        "refine": refined("Belgium", "Spain"),
        "aggregate": 'Both border it. {"answers": ["Belgium", "Spain"]}',
    }
    return {f"parog.{role}": reply for role, reply in (defaults | changed).items()}


# The worked example


async def test_two_lookups_of_one_round_and_their_conjunction_take_ten_calls() -> None:
    script = {
        "parog.plan": write_plan(PLAN),
        "parog.tentative": GUESS,
        "parog.relations": ['{"France": ["borders"]}', '{"Nijmegen": ["^serves_nijmegen"]}'],
        "parog.entities": ['{"1": ["Belgium", "Spain"]}', '{"1": ["Belgium", "Germany"]}'],
        "parog.refine": [refined("Belgium", "Spain"), refined("Germany", "Belgium")],
        "parog.aggregate": 'Only Belgium is in both. {"answers": ["Belgium"]}',
    }
    answer, tools = await run(ASKED, BORDERS, script)
    assert texts(answer) == ["Belgium"]
    assert answer.predictions[0].id == "Belgium"
    assert answer.status == "ok"
    assert len(tools.model.roles) == 10, "1 plan, twice 1 tentative answer and a round of 3, 1 aggregation (§5.9)"
    assert sorted(tools.model.roles) == sorted(["parog.plan", *2 * ALL_CALLS, "parog.aggregate"])
    assert tools.payloads("step") == [{"subgoal": 3, "op": "conjunction", "by": "code", "answers": ["Belgium"]}]
    assert tools.graph.lookups == {"relations": 2, "neighbours": 2, "labels": 2}
    shown = tools.model.last("parog.aggregate").inputs()
    assert "3. Keep the countries found in both 1 and 2: Belgium" in shown["found"]


async def test_a_composition_starts_from_the_answers_it_depends_on() -> None:
    plan = write_plan([FIND_1, SubGoal(2, "Find the capitals of 1", "composition", (1,))])
    relations = ['{"France": ["borders"]}', '{"Belgium": ["capital"]}']
    script = replies(
        plan=plan, relations=relations, refine=[refined("Belgium"), refined("Brussels", final=["Brussels"])]
    )
    answer, tools = await run(ASKED, BORDERS, script)
    assert texts(answer) == ["Brussels"]
    assert [payload["frontier"] for payload in tools.payloads("relations_listed")] == [
        ["France", "Nijmegen"],
        ["France", "Nijmegen", "Belgium"],
    ]
    _, tools = await run(ASKED, BORDERS, script, seed_entities="topic")
    assert tools.payloads("relations_listed")[1]["frontier"] == ["France", "Nijmegen"]


async def test_a_tentative_answer_is_looked_up_by_name() -> None:
    plan = write_plan([FIND_1, SubGoal(2, "Find the capitals of 1", "composition", (1,))])
    script = replies(
        plan=plan, tentative='{"answers": ["Belgium", "Nowhere"]}', refine=refined(aligned=False), relations="{}"
    )
    _, tools = await run(question("which?", "France"), BORDERS, script)
    assert tools.graph.lookups["find_by_name"] == 1
    assert tools.payloads("relations_listed")[1]["frontier"] == ["France", "Belgium"]


# Trust, stopping, rounds (§5.3, §5.7)


async def test_irrelevant_facts_keep_the_tentative_answer() -> None:
    script = replies(refine=refined("Spain", aligned=False), aggregate="no JSON")
    answer, tools = await run(ASKED, BORDERS, script)
    assert texts(answer) == ["Monaco"], "the fallback of an unreadable aggregation is the last sub-goal's answers"
    assert tools.model.last("parog.aggregate").inputs()["facts"] == "none", "irrelevant facts are no evidence"
    answer, _ = await run(ASKED, BORDERS, script, fallback_to_tentative=False)
    assert texts(answer) == ["Spain"]
    script = replies(refine=refined(aligned=False), aggregate="no JSON")
    answer, _ = await run(ASKED, BORDERS, script, fallback_to_tentative=False)
    assert texts(answer) == ["Monaco"], "without a refined answer there is nothing else to trust"


@pytest.mark.parametrize("keys", [{}, {"split_refine": True}, {"fallback_to_tentative": False}])
async def test_irrelevant_facts_do_not_end_the_question(keys: dict[str, Any]) -> None:
    """A reader that finds the facts irrelevant cannot have the final answer from them."""
    split = {
        "align": '{"aligned": false}',
        "correct": '{"answers": []}',
        "suffice": '{"done": true, "question_answered": true, "final": ["Spain"]}',
    }
    script = replies(refine=refined(aligned=False, final=["Spain"]), aggregate='{"answers": ["Monaco"]}', **split)
    answer, tools = await run(ASKED, BORDERS, script, **keys)
    assert tools.model.roles[-1] == "parog.aggregate"
    assert texts(answer) == ["Monaco"]


async def test_the_text_of_an_unreadable_aggregation_is_not_the_text_of_the_answers() -> None:
    """ToG's rule would match a gold answer in a text that no answer was read from (§9.3)."""
    answer, _ = await run(ASKED, BORDERS, replies(aggregate="I do not find it."))
    assert (texts(answer), answer.raw) == (["Belgium", "Spain"], "")


async def test_a_refinement_that_answers_the_question_ends_the_run() -> None:
    plan = write_plan([FIND_1, SubGoal(2, "Find their capitals", "composition", (1,))])
    script = replies(plan=plan, refine=refined("Belgium", done=False, final=["Spain"]))
    answer, tools = await run(ASKED, BORDERS, script)
    assert (texts(answer), answer.raw) == (["Spain"], script["parog.refine"])
    assert tools.model.roles == ["parog.plan", *ALL_CALLS]
    assert {triple for chain in answer.evidence for triple in chain} == set(BORDERS[:2])
    answer, tools = await run(ASKED, BORDERS, script, stop_on_question_answered=False)
    assert tools.model.roles[-1] == "parog.aggregate"


@pytest.mark.parametrize("final", [[], ["null"], ["None"], ["m.0abc"], ["<unnamed 1>"], [None]])
async def test_an_empty_final_answer_does_not_end_the_run(final: list[Any]) -> None:
    _, tools = await run(ASKED, BORDERS, replies(refine=refined("Belgium", final=final)))
    assert tools.model.roles[-1] == "parog.aggregate"


async def test_each_round_starts_from_the_new_entities_up_to_max_rounds() -> None:
    facts = [("A", "next", "B"), ("B", "next", "C"), ("C", "next", "D"), ("D", "next", "E")]
    script = replies(relations=[f'{{"{name}": ["next"]}}' for name in "ABCD"], refine=refined(done=False))
    for rounds in (1, 2, 3):
        _, tools = await run(question("what is far?", "A"), facts, script, max_rounds=rounds)
        assert [one["frontier"] for one in tools.payloads("relations_listed")] == [["A"], ["B"], ["C"]][:rounds]
        assert tools.model.roles.count("parog.refine") == rounds


async def test_a_round_without_new_facts_is_refined_once_more_and_ends_the_sub_goal() -> None:
    script = replies(relations=['{"France": ["borders"]}', "{}"], refine=refined(done=False))
    _, tools = await run(ASKED, BORDERS, script)
    assert tools.model.roles.count("parog.relations") == 2
    assert tools.model.roles.count("parog.refine") == 2


async def test_max_refines_limits_refinements_but_not_rounds() -> None:
    facts = [("A", "next", "B"), ("B", "next", "C")]
    script = replies(relations=['{"A": ["next"]}', '{"B": ["next"]}', "{}"], refine=refined(done=False))
    _, tools = await run(question("what is far?", "A"), facts, script, max_refines=1)
    assert tools.model.roles.count("parog.refine") == 1
    assert len(tools.model.last("parog.aggregate").inputs()["facts"].splitlines()) == 2, (
        "the aggregation reads the later facts"
    )


async def test_without_rounds_the_tentative_answers_are_aggregated() -> None:
    answer, tools = await run(ASKED, BORDERS, replies(aggregate="no"), max_rounds=0)
    assert (texts(answer), answer.status) == (["Monaco"], "no_evidence")
    assert tools.graph.lookups.total() == 0
    assert set(tools.model.roles) == {"parog.plan", "parog.tentative", "parog.aggregate"}


# The initial answer, which error correction is measured by (§9.5)


def initial(answer: Answer) -> list[tuple[str, str | None]]:
    return [(prediction.text, prediction.id) for prediction in answer.initial or ()]


async def measured(script: Mapping[str, Any], **keys: Any) -> tuple[Answer, ScriptedTools]:
    return await run(ASKED, BORDERS, script, initial_answer=True, **keys)


async def test_the_initial_answer_aggregates_the_tentative_answers_after_the_answer() -> None:
    script = replies(aggregate=['{"answers": ["Belgium", "Spain"]}', '{"answers": ["Monaco"]}'])
    answer, tools = await measured(script)
    assert (texts(answer), initial(answer)) == (["Belgium", "Spain"], [("Monaco", None)])
    shown = last(tools, Aggregate).inputs()
    assert shown["found"] == "\n1. Find the countries that border France: Monaco"
    assert shown["facts"] == "none", "nothing of the graph"
    unmeasured, other = await run(ASKED, BORDERS, script)
    assert (texts(unmeasured), unmeasured.initial) == (texts(answer), None)
    assert tools.model.roles == [*other.model.roles, "parog.aggregate"]


async def test_a_tentative_answer_that_equals_a_final_one_has_its_node() -> None:
    answer, _ = await measured(replies(aggregate=['{"answers": ["Belgium"]}', '{"answers": ["belgium", "Monaco"]}']))
    assert initial(answer) == [("Belgium", "Belgium"), ("Monaco", None)]


async def test_the_initial_answer_of_a_question_that_ended_early_is_that_to_the_question() -> None:
    """Never that of a sub-goal of another kind: here, a country where a capital is asked for."""
    plan = write_plan([FIND_1, SubGoal(2, "Find the capitals of 1", "composition", (1,))])
    script = replies(
        plan=plan, tentative=[GUESS, '{"answers": ["Brussels"]}'], refine=refined("Belgium", final=["Brussels"])
    )
    answer, tools = await measured(script)
    assert initial(answer) == [("Brussels", None)]
    assert last(tools, AnswerTentatively).inputs() == {
        "question": ASKED.text,
        "known": "none",
        "goal": ASKED.text,
    }
    assert tools.model.roles[-1] == "parog.tentative"


async def test_a_tentative_answer_that_was_told_a_refined_one_is_asked_for_again() -> None:
    plan = write_plan([FIND_1, SubGoal(2, "Find the capitals of 1", "composition", (1,))])
    tentative = [GUESS, '{"answers": ["Brussels"]}', '{"answers": ["Monte Carlo"]}']
    relations = ['{"France": ["borders"]}', '{"Belgium": ["capital"]}']
    script = replies(plan=plan, tentative=tentative, relations=relations, refine=[refined("Belgium"), refined("Paris")])
    _, tools = await measured(script)
    assert tools.model.roles[-2:] == ["parog.tentative", "parog.aggregate"]
    assert last(tools, AnswerTentatively).inputs()["known"] == "\n1. Find the countries that border France: Monaco"
    assert "2. Find the capitals of 1: Monte Carlo" in last(tools, Aggregate).inputs()["found"]
    script = replies(plan=plan, tentative=tentative, relations=relations, refine=refined(aligned=False))
    _, tools = await measured(script)
    assert tools.model.roles.count("parog.tentative") == 2, "it was told a tentative answer: it counts"


async def test_set_operations_are_executed_on_tentative_answers() -> None:
    script = replies(
        plan=write_plan(PLAN),
        tentative=['{"answers": ["Belgium", "Spain"]}', '{"answers": ["Germany", "belgium"]}'],
        relations=['{"France": ["borders"]}', '{"Nijmegen": ["^serves_nijmegen"]}'],
        refine=refined("Spain"),
    )
    _, tools = await measured(script)
    assert tools.model.roles.count("parog.tentative") == 2
    assert last(tools, Aggregate).inputs()["found"].endswith("3. Keep the countries found in both 1 and 2: Belgium")


@pytest.mark.parametrize("changed", [{"refine": False}, {"max_rounds": 0}, {"max_refines": 0}])
async def test_without_refinement_there_is_no_initial_answer(changed: dict[str, Any]) -> None:
    answer, _ = await measured(replies(suffice=verdict(), read='{"answers": ["Spain"]}'), **changed)
    assert answer.initial is None


@pytest.mark.parametrize("calls", range(7))
async def test_an_exhausted_budget_leaves_no_initial_answer(calls: int) -> None:
    answer, _ = await measured(replies(), max_calls=calls)
    assert answer.initial is None


# Planners, ablations, variants (§5.8)


async def test_each_planner_has_its_own_prompt() -> None:
    _, tools = await run(ASKED, BORDERS, replies())
    trained = tools.model.last("parog.plan").messages()
    assert [message.role for message in trained] == ["user"]
    assert trained[0].content == ASKED.text, "a trained planner is shown the question alone (§7.3)"
    _, tools = await run(ASKED, BORDERS, replies(), planner="prompted")
    assert "conjunction" in tools.model.last("parog.plan").messages()[0].content
    _, tools = await run(ASKED, BORDERS, replies(), planner="none")
    assert "parog.plan" not in tools.model.roles
    assert tools.payloads("plan")[0]["whole_question"]
    assert tools.model.last("parog.refine").inputs()["goal"] == f"1. {ASKED.text}"


async def test_an_unreadable_plan_falls_back_to_the_whole_question() -> None:
    _, tools = await run(ASKED, BORDERS, replies(plan="Hm."))
    assert tools.model.roles.count("parog.plan") == 3
    assert tools.payloads("plan")[0]["whole_question"]
    assert len(tools.payloads("without_plan")) == 1


async def test_a_plan_that_is_the_question_itself_was_read() -> None:
    _, tools = await run(ASKED, BORDERS, replies(plan=write_plan([SubGoal(1, ASKED.text)])))
    assert tools.payloads("plan")[0]["whole_question"]
    assert not tools.payloads("without_plan")


def verdict(done: bool = True, final: Sequence[str] = ()) -> str:
    return json.dumps({"done": done, "question_answered": bool(final), "final": final})


async def test_without_refinement_a_reader_answers_from_the_facts() -> None:
    """The rounds of a sub-goal end as with refinement, so that one part is removed and not two (§5.8)."""
    script = replies(suffice=verdict(), read='{"answers": ["Spain"]}', aggregate="no")
    answer, tools = await run(ASKED, BORDERS, script, refine=False)
    assert tools.model.roles == [
        *("parog.plan", "parog.relations", "parog.entities", "parog.suffice", "parog.read"),
        *3 * ["parog.aggregate"],
    ]
    assert texts(answer) == ["Spain"]
    assert "Monaco" not in str(tools.model.last("parog.suffice").messages()), "there is no tentative answer"


async def test_without_refinement_rounds_continue_until_the_facts_suffice() -> None:
    facts = [("A", "next", "B"), ("B", "next", "C"), ("C", "next", "D")]
    relations = [f'{{"{name}": ["next"]}}' for name in "ABC"]
    script = replies(relations=relations, suffice=[verdict(done=False), verdict()], read='{"answers": ["C"]}')
    _, tools = await run(question("what is far?", "A"), facts, script, refine=False)
    assert [one["frontier"] for one in tools.payloads("relations_listed")] == [["A"], ["B"]]


async def test_without_refinement_facts_that_answer_the_question_end_it() -> None:
    answer, tools = await run(ASKED, BORDERS, replies(suffice=verdict(final=["Spain"])), refine=False)
    assert tools.model.roles[-1] == "parog.suffice"
    assert (texts(answer), answer.predictions[0].id) == (["Spain"], "Spain")


async def test_the_three_questions_can_be_asked_one_by_one() -> None:
    split = {"align": '{"aligned": true}', "correct": '{"answers": ["Spain"]}', "suffice": '{"done": true}'}
    answer, tools = await run(ASKED, BORDERS, replies(**split, aggregate="no"), split_refine=True)
    assert tools.model.roles[4:7] == ["parog.align", "parog.correct", "parog.suffice"]
    assert texts(answer) == ["Spain"]


async def test_relations_can_be_selected_entity_by_entity() -> None:
    _, tools = await run(ASKED, BORDERS, replies(), per_entity=True)
    selections = [prompt for prompt in tools.model.prompts if isinstance(prompt, SelectRelations)]
    asked = {tuple(offer.text for offer in prompt.offers) for prompt in selections}
    assert asked == {("France",), ("Nijmegen",)}


# Selection (§5.6)


async def test_relations_are_offered_by_similarity_with_the_named_entity_and_the_answers_found_first() -> None:
    facts = [("Ann", "one", "Rome"), ("Fox", "two", "Elm")]
    facts += [("Rome", "capital", "Oak"), ("Rome", "area", "Ash"), ("Rome", "mayor", "Ivy")]
    goals = [SubGoal(1, "Find what Ann has"), SubGoal(2, "Find the capital of 1 and Fox", "composition", (1,))]
    script = replies(plan=write_plan(goals), relations=['{"Ann": ["one"]}', "{}"], refine=refined("Rome"))
    _, tools = await run(question("q?", "Ann", "Fox"), facts, script, relation_prefilter=2)
    shown = last(tools, SelectRelations).inputs()
    assert shown["known"] == "\n1. Find what Ann has: Rome"
    lines = shown["relations"].splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Fox", "Rome", "Ann"]
    assert lines[1].startswith("Rome: capital; ")
    assert lines[1].count(";") == 1, "two of the four relations are offered"
    assert lines[1].endswith(" (2 less similar left out)")
    assert "left out" not in lines[0]


async def test_the_plan_is_shown_where_entities_are_selected() -> None:
    _, tools = await run(ASKED, BORDERS, replies())
    assert last(tools, SelectEntities).inputs()["plan"] == "1. Find the countries that border France"


async def test_the_limit_of_sub_goals_is_in_the_prompt() -> None:
    _, tools = await run(ASKED, BORDERS, replies(), planner="prompted", max_subgoals=4)
    assert "Write at most 4 sub-goals." in tools.model.last("parog.plan").messages()[0].content


async def test_only_offered_relations_are_followed_and_at_most_max_relations() -> None:
    facts = [("A", f"r{number}", "B") for number in range(9)]
    script = replies(relations=json.dumps({"A": ["made.up", *(f"r{number}" for number in range(9))]}), entities="{}")
    _, tools = await run(question("q?", "A"), facts, script)
    assert tools.payloads("relations_selected")[0]["relations"] == {"A": ["r0", "r1", "r2", "r3", "r4"]}


async def test_relations_are_ranked_by_similarity_if_no_reply_is_readable() -> None:
    script = replies(relations="dunno", plan=write_plan([SubGoal(1, "Find what it borders")]))
    _, tools = await run(ASKED, BORDERS, script, max_relations=1)
    assert tools.payloads("relations_selected")[0]["relations"]["France"] == ["borders"]


async def test_entities_are_ranked_by_similarity_if_no_reply_is_readable() -> None:
    script = replies(entities="dunno", plan=write_plan([SubGoal(1, "Find Spain")]))
    _, tools = await run(ASKED, BORDERS, script, width=1)
    assert [fact.end for fact in last(tools, Refine).facts] == ["Spain"]


async def test_no_call_is_made_where_there_is_no_choice() -> None:
    facts = [("A", "one", "B"), ("A", "number", literal("12")), ("A", "number", literal("13"))]
    _, tools = await run(question("q?", "A"), facts, replies(relations='{"A": ["one", "number"]}'))
    assert "parog.entities" not in tools.model.roles
    assert len(last(tools, Refine).facts) == 3


async def test_candidates_beyond_the_prefilter_are_not_shown() -> None:
    facts = [("A", "has", f"thing {number}") for number in range(30)] + [("A", "has", "France itself")]
    script = replies(relations='{"A": ["has"]}', plan=write_plan([SubGoal(1, "Find France")]))
    _, tools = await run(question("q?", "A"), facts, script, entity_prefilter=3)
    [group] = last(tools, SelectEntities).groups
    assert len(group.facts) == 3
    assert "France itself" in dict(group.facts)
    assert last(tools, SelectEntities).inputs()["groups"].endswith(" (28 less similar left out)")


async def test_a_sample_of_unnamed_nodes_is_kept() -> None:
    facts = [("A", "has", f"m.{number}") for number in range(30)]
    script = replies(relations=['{"A": ["has"]}', "{}"], refine=refined(done=False))
    drawn = []
    for _ in range(2):
        _, tools = await run(question("q?", "A"), facts, script, unnamed_sample=4, expand_cvt=False)
        drawn.append([fact.end for fact in last(tools, Refine).facts])
        assert "parog.entities" not in tools.model.roles
    assert len(drawn[0]) == 4
    assert drawn[0] == drawn[1]


async def test_entities_with_the_same_name_get_different_labels() -> None:
    facts = [("A", "knows", "m.1"), ("A", "knows", "m.2")]
    script = replies(
        relations='{"A": ["knows"]}',
        entities='{"1": ["Sam #2"]}',
        refine=refined("Sam #2"),
        aggregate='{"answers": ["Sam"]}',
    )
    answer, tools = await run(question("q?", "A"), facts, script, names={"m.1": "Sam", "m.2": "Sam", "A": "A"})
    assert [text for text, _ in last(tools, SelectEntities).groups[0].facts] == ["Sam", "Sam #2"]
    assert [(one.text, one.id) for one in answer.predictions] == [("Sam", "m.2")]


def test_labels_are_unique_and_link_back_to_their_nodes() -> None:
    labels = SubgoalLabels({"m.1": "Sam", "m.2": "sam", "m.3": "Sam #2", "m.4": None, "m.5": None})
    labels.add(labels.names)
    assert [labels.label(id) for id in labels.names] == [*("Sam", "sam #2", "Sam #2 #2", "<unnamed 1>", "<unnamed 2>")]
    assert labels.link("SAM #2").node == "m.2"
    assert labels.link("“Sam”").node == "m.1"
    assert labels.link("Tom").node is None


def test_rendering_a_prompt_assigns_no_labels() -> None:
    labels = SubgoalLabels({"m.1": "Sam", "m.2": "Sam"})
    prompt = Refine(question("q?"), FIND_1, (chain("m.1", "knows", "m.2"),), labels)
    with pytest.raises(KeyError):
        prompt.messages()
    labels.add_facts(prompt.facts)
    assert prompt.inputs()["facts"] == '[("Sam", "knows", "Sam #2")]'


FILMS = [
    ("Ann", "acted", "m.1"),
    ("m.1", "film", "The Salt Road"),
    ("m.1", "role", "Captain"),
    ("Ann", "born", "Mirra"),
]


async def test_mediators_are_followed_in_the_same_round() -> None:
    script = replies(
        relations='{"Ann": ["acted"]}', entities='{"1": ["The Salt Road"]}', refine=refined("The Salt Road")
    )
    _, tools = await run(question("q?", "Ann"), FILMS, script)
    assert (
        last(tools, SelectEntities).inputs()["groups"]
        == "1. Ann, acted / film: The Salt Road\n2. Ann, acted / role: Captain"
    )
    assert tools.model.last("parog.refine").inputs()["facts"] == '[("Ann", "acted / film", "The Salt Road")]'
    assert tools.graph.lookups == {"relations": 2, "neighbours": 2, "labels": 2}
    script = replies(relations=['{"Ann": ["acted"]}', '{"<unnamed 1>": ["film"]}', "{}"], refine=refined(done=False))
    _, tools = await run(question("q?", "Ann"), FILMS, script, expand_cvt=False)
    assert tools.model.roles.count("parog.relations") == 3, "without expand_cvt, a mediator takes a round of its own"


ISLES = ("Ash Isle", "Bay Isle", "Cliff Isle", "Dune Isle", "Elm Isle", "Fern Isle", "Gull Isle")


@pytest.mark.parametrize(
    ("goal", "keys", "expected"),
    [
        ("Find Gull Isle or Dune Isle", {"width": 2}, ["Dune Isle", "Gull Isle"]),
        ("Find Gull Isle or Dune Isle", {}, list(ISLES)),
    ],
)
async def test_the_width_keeps_the_entities_most_like_the_sub_goal(
    goal: str, keys: dict[str, Any], expected: list[str]
) -> None:
    """It limits the frontier and not the facts."""
    facts = [("A", "has", name) for name in ISLES] + [(name, "has", f"tree of {name}") for name in ISLES]
    script = replies(
        plan=write_plan([SubGoal(1, goal)]),
        relations=['{"A": ["has"]}', "{}"],
        entities=json.dumps({"1": ISLES}),
        refine=refined(done=False),
    )
    _, tools = await run(question("q?", "A"), facts, script, **keys)
    assert tools.payloads("relations_listed")[1]["frontier"] == expected


async def test_the_cap_of_a_frontier_keeps_the_entities_most_like_the_sub_goal() -> None:
    asked = question("what is on Gull Isle?", "Ash Isle", "Gull Isle")
    facts = [("Ash Isle", "has", "moss"), ("Gull Isle", "has", "fern")]
    _, tools = await run(asked, facts, replies(), planner="none", caps=FixedCaps(max_frontier=1))
    assert tools.payloads("relations_listed")[0]["frontier"] == ["Gull Isle"]
    assert tools.payloads("cap_hit")


async def test_the_width_keeps_the_picks_of_the_model_before_nodes_that_it_was_not_asked_about() -> None:
    facts = [("A", "one", "Gull Isle"), ("A", "many", "Bay Isle"), ("A", "many", "Dune Isle")]
    facts += [(isle, "has", f"tree of {isle}") for isle in ("Gull Isle", "Bay Isle", "Dune Isle")]
    script = replies(
        plan=write_plan([SubGoal(1, "Find Gull Isle")]),
        relations=['{"A": ["one", "many"]}', "{}"],
        entities='{"1": ["Dune Isle"]}',
        refine=refined(done=False),
    )
    _, tools = await run(question("q?", "A"), facts, script, width=1)
    assert tools.payloads("relations_listed")[1]["frontier"] == ["Dune Isle"]
    assert [fact.end for fact in last(tools, Refine).facts] == ["Dune Isle", "Gull Isle"]


async def test_below_a_set_operation_all_answers_are_explored_with_one_selection_of_relations() -> None:
    names = "BCDEFGH"
    facts = [("A", "has", name) for name in names] + [
        (name, "size", literal(str(size))) for size, name in enumerate(names, start=10)
    ]
    plan = [
        SubGoal(1, "Find what A has"),
        SubGoal(2, "Find the sizes of 1", "composition", (1,)),
        SubGoal(3, "Keep the largest", "superlative", (1, 2), "highest"),
    ]
    script = replies(
        plan=write_plan(plan),
        relations=['{"A": ["has"]}', '{"all 7 others": ["size"]}'],
        entities=json.dumps({"1": list(names)}),
        refine=[refined(*names), refined(*map(str, range(10, 17)))],
        aggregate='{"answers": ["H"]}',
    )
    _, tools = await run(question("q?", "A"), facts, script, width=2)
    assert tools.payloads("step")[0]["answers"] == ["H"]
    lines = last(tools, SelectRelations).inputs()["relations"].splitlines()
    assert lines == ["all 7 others (B; C; D; E; F; …): size; ^has", "A: has"]


async def test_below_a_set_operation_an_unreadable_selection_keeps_all_entities() -> None:
    facts = [("A", "has", name) for name in ISLES]
    plan = [SubGoal(1, "Find what A has"), SubGoal(2, "Keep the sunniest of 1", "superlative", (1,))]
    script = replies(plan=write_plan(plan), relations=['{"A": ["has"]}'], entities="unreadable", refine=refined(*ISLES))
    _, tools = await run(question("q?", "A"), facts, script, width=1)
    assert len(last(tools, Refine).facts) == len(ISLES)


async def test_a_set_operation_that_code_cannot_execute_is_left_to_the_model() -> None:
    plan = [
        FIND_1,
        SubGoal(2, "Keep the sunniest of 1", "superlative", (1,)),
        SubGoal(3, "Find the capital of 2", "composition", (2,)),
    ]
    aggregate = ['{"answers": ["Belgium"]}', '{"answers": ["Brussels"]}']
    script = replies(
        plan=write_plan(plan), relations=['{"France": ["borders"]}', '{"Belgium": ["capital"]}'], aggregate=aggregate
    )
    script["parog.refine"] = [refined("Belgium", "Spain"), refined("Brussels")]
    _, tools = await run(ASKED, BORDERS, script)
    first, second = (prompt for prompt in tools.model.prompts if isinstance(prompt, Aggregate))
    assert (first.inputs()["target"], second.inputs()["target"]) == ("sub-goal 2", "the question")
    assert tools.payloads("relations_listed")[1]["frontier"] == ["France", "Nijmegen", "Belgium"]
    _, tools = await run(ASKED, BORDERS, replies(plan=write_plan(plan[:2])))
    assert tools.model.roles.count("parog.aggregate") == 1, "the last operation is part of the final answer"


async def test_a_set_operation_on_sub_goals_without_answers_is_searched() -> None:
    script = replies(plan=write_plan(PLAN), tentative='{"answers": []}', refine=refined(aligned=False))
    _, tools = await run(ASKED, BORDERS, script)
    assert {payload["subgoal"] for payload in tools.payloads("tentative")} == {1, 2, 3}


# Edge cases


async def test_without_a_topic_entity_the_model_answers_from_its_own_knowledge() -> None:
    answer, tools = await run(question("what is it?"), BORDERS, replies(aggregate='{"answers": ["Paris"]}'))
    assert (texts(answer), answer.status) == (["Paris"], "no_topic_entity")
    assert tools.model.roles == ["parog.plan", "parog.tentative", "parog.aggregate"]
    script = replies(plan=write_plan([FIND_1, SubGoal(2, "Find their borders", "composition", (1,))]))
    script |= {"parog.tentative": '{"answers": ["France"]}', "parog.refine": refined("Spain", final=["Spain"])}
    answer, tools = await run(question("what is it?"), BORDERS, script)
    assert tools.model.roles[-1] == "parog.refine", "the question ends early"
    assert (texts(answer), answer.status) == (["Spain"], "no_topic_entity")


@pytest.mark.parametrize("calls", range(6))
async def test_an_exhausted_budget_of_calls_ends_in_an_answer(calls: int) -> None:
    answer, tools = await run(ASKED, BORDERS, replies(), max_calls=calls)
    assert tools.model.roles[-1] == "parog.aggregate"
    assert answer.status == ("budget_exhausted" if calls < 5 else "ok")


@pytest.mark.parametrize("lookups", range(4))
async def test_an_exhausted_budget_of_lookups_ends_in_an_answer(lookups: int) -> None:
    answer, tools = await run(ASKED, BORDERS, replies(), max_lookups=lookups)
    assert tools.model.roles[-1] == "parog.aggregate"
    assert answer.status == ("budget_exhausted" if lookups < 3 else "ok")


async def test_of_facts_beyond_the_cap_those_most_like_the_sub_goal_are_shown() -> None:
    plan = write_plan([SubGoal(1, "Is Spain among the countries that border France?")])
    _, tools = await run(ASKED, BORDERS, replies(plan=plan), caps=FixedCaps(max_evidence_triples=1))
    for prompt in (last(tools, Refine), last(tools, Aggregate)):
        assert prompt.inputs()["facts"].splitlines() == [
            '[("France", "borders", "Spain")]',
            "(1 less relevant facts are not shown)",
        ]
    assert tools.payloads("cap_hit")


async def test_all_sub_goals_of_a_wave_finish_before_the_run_ends() -> None:
    plan = write_plan([FIND_1, SubGoal(2, "Find who serves Nijmegen")])
    script = replies(plan=plan, refine=refined("Belgium", final=["Belgium"]))
    answer, tools = await run(ASKED, BORDERS, script)
    assert tools.model.roles.count("parog.refine") == 2, "both sub-goals were refined"
    assert texts(answer) == ["Belgium"]


def last(tools: ScriptedTools, kind: type[Any]) -> Any:
    return next(prompt for prompt in reversed(tools.model.prompts) if isinstance(prompt, kind))
