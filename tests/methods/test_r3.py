"""R3-Cycle on graphs of triples: the worked example, its cost, and the effect of every option (specification §6)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import pytest

from pipeline.config import default
from pipeline.errors import ContextOverflow
from pipeline.llm.prompt import Prompt
from pipeline.methods.interface import table_name
from pipeline.methods.r3 import R3
from pipeline.methods.r3.reflect import Reflect
from pipeline.methods.r3.step_prompts import NextAction, Thought, Turn
from pipeline.simulation.registry import write_as_oracle
from pipeline.types import Prediction, Triple
from tests.methods.support import DictionaryGraph, ScriptedTools, gold_context, literal, question, texts

FACTS = [
    ("m.ann", "people.person.nationality", "m.land"),
    ("m.land", "location.country.capital", "m.city"),
    ("m.land", "location.country.founded", literal("1402")),
    ("m.ann", "film.actor.film", "m.r1"),
    ("m.ann", "film.actor.film", "m.r2"),
    ("m.r1", "film.performance.film", "m.f1"),
    ("m.r2", "film.performance.film", "m.f2"),
    ("Tiger, Dragon", "directed_by", "Bob"),
    *(("m.land", "location.country.towns", f"m.t{n:03}") for n in range(150)),
]
NAMES = {"m.ann": "Ann", "m.land": "Annland", "m.city": "Ann City", "m.f1": "The Salt Road", "m.f2": "Nine Lanterns"}
ASKED = question("which capital?", "m.ann", names=NAMES)
KNOWN = gold_context(ASKED, ["Ann City"], {"m.ann": ["people.person.nationality -> location.country.capital"]})
THOUGHT = "I go on."
WAY = [
    "RetrieveNode[Ann]",
    "NeighbourCheck[m.ann, people.person.nationality]",
    "NeighbourCheck[m.land, location.country.capital]",
    "Finish[Ann City]",
]
ACCEPT = '{"verdict": "accept", "why": "it is"}'
REJECT = '{"verdict": "reject", "why": "it is not"}'
REFLECTION = {
    "root_cause": "It went astray.",
    "category": "loop",
    "advice": ["Go by the nationality."],
    "avoid": ["Relations[m.ann]"],
    "retry": True,
}


def graph() -> DictionaryGraph:
    return DictionaryGraph(FACTS, NAMES)


def scripted(
    *actions: str,
    verify: str | Sequence[str] = ACCEPT,
    reflect: str | None = None,
    graph: DictionaryGraph | None = None,
    **options: Any,
) -> ScriptedTools:
    replies: Mapping[str, Any] = {
        "r3.thought": THOUGHT,
        "r3.action": list(actions),
        "r3.verify": verify,
        "r3.reflect": reflect or json.dumps(REFLECTION),
        "r3.guess": "So the answer is {Ann City}.",
    }
    return ScriptedTools(graph or DictionaryGraph(FACTS, NAMES), replies, **options)


def actions(tools: ScriptedTools) -> list[NextAction]:
    return [prompt for prompt in tools.model.prompts if isinstance(prompt, NextAction)]


# The worked example


async def test_a_failed_attempt_is_reflected_on_and_retried() -> None:
    tools = scripted("RetrieveNode[Ann]", "Relations[m.ann]", "Finish[Annland]", *WAY, verify=[REJECT, ACCEPT])
    answer = await default(R3).answer(ASKED, tools.tools)
    assert answer.predictions == (Prediction("Ann City", "m.city"),)
    assert (answer.raw, answer.status) == ("Finish[Ann City]", "ok")
    assert answer.evidence == (
        (Triple("m.ann", "people.person.nationality", "m.land"),),
        (Triple("m.land", "location.country.capital", "m.city"),),
    )
    assert answer.names == {"m.ann": None, "m.land": "Annland", "m.city": "Ann City"} | {"m.ann": "Ann"}
    one, two = ["r3.thought", "r3.action"] * 3, ["r3.thought", "r3.action"] * 4
    assert tools.model.roles == [*one, "r3.verify", "r3.reflect", *two], "6 + 1 + 1 + 8 calls (§6.12)"
    assert dict(tools.graph.lookups) == {"relations": 1, "neighbours": 2, "labels": 2}


async def test_the_retry_starts_from_an_empty_scratchpad_with_the_advice() -> None:
    tools = scripted("RetrieveNode[Ann]", "Finish[Annland]", *WAY, verify=REJECT)
    await default(R3).answer(ASKED, tools.tools)
    retry = actions(tools)[2]
    assert retry.turn.steps == ()
    text = retry.messages()[-1].content
    assert text == (
        "Question: which capital?\nAn earlier attempt failed: It went astray.\nAdvice: Go by the nationality.\n"
        "Avoid: Relations[m.ann]\nThought 1: I go on.\nAction 1:"
    )
    assert "Annland" not in text


async def test_the_prompt_of_a_step_shows_the_scratchpad() -> None:
    tools = scripted(*WAY)
    await default(R3).answer(ASKED, tools.tools)
    text = actions(tools)[2].messages()[-1].content
    assert text == (
        "Question: which capital?\nThought 1: I go on.\nAction 1: RetrieveNode[Ann]\nObservation 1: Found: "
        'm.ann "Ann".\nThought 2: I go on.\n'
        "Action 2: NeighbourCheck[m.ann, people.person.nationality]\nObservation 2: "
        'm.ann -> people.person.nationality: [m.land "Annland"].\nThought 3: I go on.\nAction 3:'
    )
    assert {sampling.temperature for sampling in tools.model.samplings} == {0.0}
    assert all("\n" not in sampling.stop for sampling in tools.model.samplings), "a reply may begin with a line break"


# Cost (specification §6.12)


@pytest.mark.parametrize(("calls_per_step", "expected"), [(2, 2 * 4 + 1), (1, 4 + 1)])
async def test_a_perfect_model_needs_the_minimum_of_calls(calls_per_step: int, expected: int) -> None:
    tools = ScriptedTools(graph(), write=lambda prompt: write_as_oracle(prompt, KNOWN, None))
    answer = await default(R3, calls_per_step=calls_per_step).answer(ASKED, tools.tools)
    assert (texts(answer), len(tools.model.roles)) == (["Ann City"], expected)


async def test_the_longest_question_makes_51_calls() -> None:
    """Two attempts halt, after 10 and 15 steps, with one reflection. The last attempt is not verified."""
    tools = scripted("Relations[m.ann]")
    answer = await default(R3).answer(ASKED, tools.tools)
    assert len(tools.model.roles) == 20 + 1 + 30
    assert (texts(answer), answer.status) == ([], "no_evidence")


@pytest.mark.parametrize(
    "line",
    [" ".join(["NeighbourCheck[m.land, location.country.capital]", WAY[1]]), "NodeDegree[m.ann, film.actor.film]"],
)
async def test_a_line_is_at_most_three_batched_lookups(line: str) -> None:
    tools = scripted(line, "Finish[x]")
    await default(R3).answer(ASKED, tools.tools)
    assert tools.graph.lookups.total() <= 3
    assert max(tools.graph.lookups.values()) == 1


# The tools (specification §6.10)


async def observed(line: str, cap: int = 2000) -> str:
    tools = scripted(line, "Finish[x]")
    await default(R3, observation_cap=cap).answer(ASKED, tools.tools)
    return actions(tools)[1].turn.steps[0].observation


@pytest.mark.parametrize(
    ("line", "observation"),
    [
        ("RetrieveNode[ann]", 'Found: m.ann "Ann".'),
        ("RetrieveNode[Nine Lanterns]", 'Found: m.f2 "Nine Lanterns".'),
        ("RetrieveNode[Anne]", 'No node is called "Anne". The most similar: [m.ann "Ann"].'),
        ("RetrieveNode[]", 'No node is found for "". Try another text.'),
        ("Relations[m.r1]", "m.r1 -> [film.performance.film]. m.r1 <- [film.actor.film]."),
        ("Relations[m.no]", 'There is no node "m.no", or it has no relations.'),
        ("NodeFeature[m.ann, name]", "m.ann -> name: Ann."),
        ("NodeFeature[m.land, location.country.founded]", 'm.land -> location.country.founded: ["1402"].'),
        ("NodeFeature[m.land, location.country.capital]", 'm.land -> location.country.capital: [m.city "Ann City"].'),
        ("NodeFeature[m.land, height]", "There is no node m.land, or it has no relation height."),
        ("NodeFeature[m.r1, name]", 'There is no node "m.r1", or it has no feature "name".'),
        ("NodeDegree[m.ann, film.actor.film]", "m.ann -> degree of film.actor.film: 2."),
        ("NeighbourCheck[m.f1, film.performance.film]", "m.f1 <- film.performance.film: [m.r1]."),
        ("NeighbourCheck[Tiger, Dragon, directed_by]", '"Tiger, Dragon" -> directed_by: [Bob].'),
        ('NeighbourCheck["Tiger, Dragon", directed_by]', '"Tiger, Dragon" -> directed_by: [Bob].'),
        ("NeighbourCheck[Bob, directed_by]", 'Bob <- directed_by: ["Tiger, Dragon"].'),
        ("NeighbourCheck[m.ann, x]", "There is no node m.ann, or it has no relation x."),
        ("NeighbourCheck[m.ann]", "NeighbourCheck takes two arguments: a node id, a comma and a neighbour type."),
        (
            "Look[m.ann]",
            "There is no tool Look. The tools are RetrieveNode, Relations, NodeFeature, NeighbourCheck, "
            "NodeDegree, Finish.",
        ),
        ("I wonder.", "This is no action. Write a tool and its arguments in brackets, as in RetrieveNode[keyword]."),
        (
            "Relations[m.no] Relations[m.f1]",
            'There is no node "m.no", or it has no relations. m.f1 <- [film.performance.film].',
        ),
        (
            "NeighbourCheck[m.r1, film.performance.film] NeighbourCheck[m.r2, film.performance.film]",
            'm.r1 -> film.performance.film: [m.f1 "The Salt Road"]. m.r2: [m.f2 "Nine Lanterns"].',
        ),
    ],
)
async def test_each_action_has_its_observation(line: str, observation: str) -> None:
    assert await observed(line) == observation


async def test_hints_after_an_error_are_a_choice() -> None:
    for hints, ending in ((False, "relation x."), (True, "relation x. Relations[id] lists what a node has.")):
        tools = scripted("NeighbourCheck[m.ann, x]", "Finish[x]")
        await default(R3, error_hints=hints).answer(ASKED, tools.tools)
        assert actions(tools)[1].turn.steps[0].observation.endswith(ending)


async def test_an_old_list_of_relations_is_cut_to_those_most_like_the_question() -> None:
    many = [("m.hub", f"r.n{number:02}", "m.x") for number in range(14)]
    facts = [*many, ("m.hub", "r.capital", "m.city")]
    tools = scripted("Relations[m.hub]", "NodeDegree[m.hub, r.n01]", "Finish[x]", graph=DictionaryGraph(facts, NAMES))
    await default(R3).answer(ASKED, tools.tools)
    latest, old = (prompt.inputs()["scratchpad"] for prompt in actions(tools)[1:])
    assert "Observation 1: m.hub -> [r.capital, " in latest
    assert latest.count("r.n") == 14
    assert ", …] (15 in all).\nThought 2" in old
    assert old.partition("Thought 2")[0].count("r.n") == 9


async def test_the_last_turns_are_counted_and_do_not_change_earlier_prompts() -> None:
    tools = scripted("Relations[m.ann]")
    await default(R3, step_limit=5, max_retries=0).answer(ASKED, tools.tools)
    told = [prompt.inputs()["turns"] for prompt in actions(tools)]
    last = "(This is the last turn: finish now.)\n"
    assert told == ["", "", "(3 turns are left.)\n", "(2 turns are left.)\n", last]
    assert last in actions(tools)[-1].messages()[-1].content


async def test_the_check_sees_long_lists_and_lookups_that_failed_but_no_lists_of_relations() -> None:
    towns = "NeighbourCheck[m.land, location.country.towns]"
    tools = scripted("Relations[m.land]", "NeighbourCheck[m.ann, x]", towns, "Finish[Ann City]")
    await default(R3).answer(ASKED, tools.tools)
    path = tools.model.last("r3.verify").inputs()["path"].splitlines()
    assert path[0] == 'NeighbourCheck "m.ann, x": nothing'
    assert path[1].startswith('"m.land" -> location.country.towns: m.t000, ')
    assert path[1].endswith("m.t099, … (150 in all)")
    assert len(path) == 2


@pytest.mark.parametrize(
    "reply",
    [
        "I look for her.",
        "\nI look for her.",
        "Thought 2: I look for her.",
        "\n Thought 2: I look for her. Action 2: x[]",
    ],
)
def test_a_leading_line_break_and_an_echoed_label_are_no_part_of_a_thought(reply: str) -> None:
    assert Thought(Turn(ASKED, "triples")).parse(reply) == "I look for her."


async def test_a_long_observation_is_cut_and_reports_the_true_count() -> None:
    text = await observed("NeighbourCheck[m.land, location.country.towns]", cap=200)
    assert text.endswith("m.t016, …] (150 in all).")
    assert len(text) <= 210
    tools = scripted("NeighbourCheck[m.land, location.country.towns]", "Finish[x]", verify=REJECT)
    await default(R3, observation_cap=200).answer(ASKED, tools.tools)
    reflect = tools.model.last("r3.reflect")
    assert isinstance(reflect, Reflect)
    assert "m.t149" in reflect.log[0], "the log is not cut"


async def test_actions_before_finish_are_executed_as_one_step() -> None:
    tools = scripted(f"{WAY[0]} {WAY[2]} Finish[Ann City]")
    answer = await default(R3).answer(ASKED, tools.tools)
    assert answer.predictions == (Prediction("Ann City", "m.city"),)
    assert len(tools.model.roles) == 3


# Failure signals (specification §6.6)


async def attempts(signal: str, *line: str, known: bool | None = None, **options: Any) -> int:
    verdict = None if known is None else lambda predictions: known
    tools = scripted(*line, verify=REJECT, gold_feedback=verdict)
    await default(R3, failure_signal=signal, **options).answer(ASKED, tools.tools)
    if signal != "self_judge":
        assert "r3.verify" not in tools.model.roles
    return len(tools.payloads("attempt_end"))


@pytest.mark.parametrize(
    ("signal", "line", "made"),
    [
        ("none", ["Finish[nonsense]"], 1),
        ("none", ["Relations[m.ann]"], 2),
        ("self_judge", ["Finish[nonsense]"], 2),
        ("rules", ["Finish[nonsense]"], 2),
        ("rules", ["Finish[]"], 2),
        ("rules", [WAY[1], WAY[2], "Finish[m.city]"], 2),
        ("rules", [WAY[1], WAY[2], "Finish[m.city, m.land]"], 2),
        ("rules", [WAY[1], WAY[2], "Finish[Ann City]"], 1),
        ("rules", [WAY[1], "NeighbourCheck[m.ann, x]", "Finish[Annland]"], 2),
        ("rules", ["NeighbourCheck[m.ann, film.actor.film]", "Finish[2]"], 1),
        ("rules", ["NeighbourCheck[m.ann, film.actor.film]", "Finish[7]"], 2),
    ],
)
async def test_each_failure_signal_decides_about_a_retry(signal: str, line: list[str], made: int) -> None:
    assert await attempts(signal, *line) == made


@pytest.mark.parametrize(("right", "made"), [(True, 1), (False, 2)])
async def test_the_gold_signal_is_one_bit_and_adds_oracle_to_the_name(right: bool, made: int) -> None:
    assert await attempts("gold", "Finish[nonsense]", known=right) == made
    assert table_name(default(R3, failure_signal="gold")) == "r3 (oracle)"
    assert not default(R3).uses_gold


async def test_a_verdict_that_cannot_be_parsed_accepts() -> None:
    tools = scripted("Finish[Annland]", verify="Hm.")
    answer = await default(R3).answer(ASKED, tools.tools)
    assert (texts(answer), tools.model.roles.count("r3.verify")) == (["Annland"], 3)


# Reflection and the step budget (specification §6.4, §6.7)


@pytest.mark.parametrize(
    ("changed", "limits"),
    [
        ({}, [4, 6]),
        ({"max_retries": 3}, [4, 6, 6, 6]),
        ({"max_retries": 3, "extension_base": "previous"}, [4, 6, 9, ceil(13.5)]),
        ({"halted_extension": 1.0}, [4, 8]),
        ({"adaptive_steps": False}, [4, 4]),
        ({"max_retries": 0}, [4]),
    ],
)
async def test_a_retry_after_halting_has_an_extended_step_limit(changed: dict[str, Any], limits: list[int]) -> None:
    tools = scripted("Relations[m.ann]")
    await default(R3, step_limit=4, **changed).answer(ASKED, tools.tools)
    assert [end["limit"] for end in tools.payloads("attempt_end")] == limits
    assert tools.model.roles.count("r3.reflect") == len(limits) - 1


async def test_a_retry_after_a_wrong_answer_has_its_own_extension() -> None:
    for extension, limit in ((0.0, 4), (0.5, 6)):
        tools = scripted("Finish[x]", verify=REJECT)
        await default(R3, step_limit=4, incorrect_extension=extension).answer(ASKED, tools.tools)
        assert [end["limit"] for end in tools.payloads("attempt_end")] == [4, limit]


@pytest.mark.parametrize(("force", "made"), [(False, 1), (True, 2)])
async def test_a_reflection_may_rule_out_a_retry_unless_forced(force: bool, made: int) -> None:
    tools = scripted("Finish[x]", verify=REJECT, reflect=json.dumps({**REFLECTION, "retry": False}))
    await default(R3, force_retry=force).answer(ASKED, tools.tools)
    assert len(tools.payloads("attempt_end")) == made


async def test_a_reflection_that_cannot_be_parsed_is_used_as_advice() -> None:
    tools = scripted("Finish[x]", verify=REJECT, reflect="Look for\nthe country first.")
    await default(R3, parse_retries=0).answer(ASKED, tools.tools)
    guidance = actions(tools)[-1].turn.guidance
    assert guidance is not None
    assert (guidance.advice, guidance.retry) == (("Look for the country first.",), True)


# Ablations (specification §6.11)


async def test_each_ablation_changes_what_the_prompts_show() -> None:
    async def run(**changed: Any) -> tuple[str, str]:
        tools = scripted(WAY[0], WAY[1], "Finish[Annland]", verify=REJECT)
        await default(R3, **changed).answer(ASKED, tools.tools)
        reflections = [prompt for prompt in tools.model.prompts if isinstance(prompt, Reflect)]
        return actions(tools)[2].messages()[-1].content, "".join(one.messages()[-1].content for one in reflections)

    digest = 'Known so far:\n"Ann" -> search: m.ann "Ann"\n"m.ann" -> people.person.nationality: m.land "Annland"\n'
    step, look = await run()
    assert "Known so far" not in step
    assert "Observation 2: m.ann -> people.person.nationality: " in look
    step, look = await run(memory=False)
    assert "Known so far" not in step
    assert "incorrect, with the answer Annland" in look
    assert "m.land" not in look
    step, look = await run(reflection=False, max_retries=0)
    assert (digest in step, look) == (True, "")
    step, _ = await run(reflection=False, memory_digest_lines=1)
    assert "m.land" in step.partition("Thought 1")[0]
    assert "search" not in step.partition("Thought 1")[0]
    assert "Known so far:\n(1 earlier lookups are left out)\n" in step
    step, look = await run(memory=False, reflection=False, max_retries=0)
    assert ("Known so far" in step, look) == (False, "")


async def test_without_reflection_a_retry_has_no_guidance() -> None:
    tools = scripted("Finish[x]", verify=REJECT)
    await default(R3, reflection=False).answer(ASKED, tools.tools)
    assert tools.model.roles == [*["r3.thought", "r3.action"], "r3.verify", *["r3.thought", "r3.action"]]
    assert actions(tools)[1].turn.guidance is None


# Context overflow, budgets, and the answer that is returned (specification §6.8, §6.9)


async def test_a_prompt_over_the_context_limit_halts_and_halves_the_observation_cap() -> None:
    tools = scripted("NeighbourCheck[m.land, location.country.towns]")
    fixed = sum(len(message.content) for message in Thought(Turn(ASKED, "triples")).messages())
    await default(R3, context_limit=fixed // 4 + 400, observation_cap=1000).answer(ASKED, tools.tools)
    ends = tools.payloads("attempt_end")
    assert [end["reason"] for end in ends] == ["context", "context"]
    assert [end["limit"] for end in ends] == [10, 15]
    assert ends[0]["steps"] < ends[1]["steps"]


async def test_a_context_overflow_of_the_model_halts_the_attempt() -> None:
    def write(prompt: Prompt[Any]) -> str:
        if "Observation 1" in prompt.messages()[-1].content:
            raise ContextOverflow("too long")
        return "Relations[m.ann]"

    tools = ScriptedTools(graph(), {"r3.reflect": json.dumps(REFLECTION)}, write=write)
    answer = await default(R3).answer(ASKED, tools.tools)
    assert [(end["reason"], end["steps"]) for end in tools.payloads("attempt_end")] == [("context", 1)] * 2
    assert tools.payloads("cap_hit") == [{"cap": "context"}] * 2, "a table counts the question among those at a limit"
    assert answer.predictions == ()


async def test_a_model_for_which_no_prompt_is_short_enough_fails_the_question() -> None:
    def write(prompt: Prompt[Any]) -> str:
        raise ContextOverflow("too long")

    with pytest.raises(ContextOverflow, match="too long"):
        await default(R3).answer(ASKED, ScriptedTools(graph(), write=write).tools)


async def test_an_attempt_too_long_for_reflection_is_the_last() -> None:
    def write(prompt: Prompt[Any]) -> str:
        if isinstance(prompt, Reflect):
            raise ContextOverflow("too long")
        return write_as_oracle(prompt, gold_context(ASKED, ["Atlantis"], {}), None)

    tools = ScriptedTools(graph(), write=write)
    answer = await default(R3).answer(ASKED, tools.tools)
    assert (texts(answer), len(tools.payloads("attempt_end"))) == (["unknown"], 1)


async def test_the_log_of_a_long_attempt_is_cut_in_the_middle() -> None:
    tools = scripted(*["NeighbourCheck[m.land, location.country.towns]"] * 9, "Finish[x]", verify=REJECT)
    await default(R3, context_limit=2500).answer(ASKED, tools.tools)
    text = tools.model.last("r3.reflect").inputs()["memory"]
    assert len(text) < 10_500
    assert "Thought 1:" in text


async def test_the_answer_of_the_first_attempt_is_kept_if_the_retry_halts() -> None:
    tools = scripted("Finish[Annland]", "Relations[m.ann]", verify=REJECT)
    assert texts(await default(R3).answer(ASKED, tools.tools)) == ["Annland"]


@pytest.mark.parametrize(("guess", "expected"), [(False, []), (True, ["Ann City"])])
async def test_a_fallback_answer_is_requested_if_no_attempt_finished(guess: bool, expected: list[str]) -> None:
    tools = scripted(WAY[1])
    answer = await default(R3, on_halt_guess=guess, max_retries=0).answer(ASKED, tools.tools)
    assert texts(answer) == expected
    assert tools.model.roles.count("r3.guess") == guess


@pytest.mark.parametrize("calls", [0, 1, 5, 6, 7, 9])
async def test_a_cap_on_calls_ends_with_the_best_answer_so_far(calls: int) -> None:
    tools = scripted(WAY[0], WAY[1], "Finish[Annland]", *WAY, verify=REJECT)
    tools.model.max_calls = calls
    answer = await default(R3).answer(ASKED, tools.tools)
    assert answer.status == "budget_exhausted"
    assert texts(answer) == (["Annland"] if calls >= 6 else [])
    guessed = await default(R3, on_halt_guess=True).answer(ASKED, tools.tools)
    assert texts(guessed) == ["Ann City"]


async def test_a_cap_on_lookups_ends_with_the_best_answer_so_far() -> None:
    tools = scripted(*WAY)
    tools.graph.max_lookups = 2
    answer = await default(R3).answer(ASKED, tools.tools)
    assert (answer.status, answer.predictions) == ("budget_exhausted", ())
    assert answer.evidence == ((Triple("m.ann", "people.person.nationality", "m.land"),),)


async def test_without_a_topic_entity_nodes_are_found_by_name() -> None:
    tools = scripted("RetrieveNode[Annland]", WAY[2], "Finish[Ann City]")
    answer = await default(R3).answer(question("capital of Annland?"), tools.tools)
    assert (texts(answer), answer.status) == (["Ann City"], "ok")
    lost = await default(R3).answer(question("?"), scripted("Finish[x]").tools)
    assert lost.status == "no_topic_entity"


async def test_evidence_is_capped() -> None:
    tools = scripted("NeighbourCheck[m.land, location.country.towns]", "Finish[x]")
    answer = await default(R3, observation_cap=10_000).answer(ASKED, tools.tools)
    assert len(answer.evidence) == 150


# The initial answer, from which the recovery rate is computed (specification §9.5)


async def test_the_initial_answer_is_that_of_the_first_attempt() -> None:
    tools = scripted("Finish[Annland]", *WAY, verify=REJECT)
    answer = await default(R3).answer(ASKED, tools.tools)
    assert (texts(answer), answer.initial) == (["Ann City"], (Prediction("Annland"),))
    assert answer.first_attempt == "finished"
    tools = scripted(*WAY, "Finish[Annland]", verify=REJECT)
    answer = await default(R3).answer(ASKED, tools.tools)
    assert (texts(answer), answer.initial) == (["Annland"], (Prediction("Ann City", "m.city"),))


async def test_a_halted_first_attempt_has_an_empty_initial_answer() -> None:
    answer = await default(R3, step_limit=2).answer(ASKED, scripted(*WAY[:3], "Finish[Ann City]").tools)
    assert (texts(answer), answer.initial) == (["Ann City"], ())
    assert answer.first_attempt == "halted"


async def test_a_guess_after_a_halted_attempt_is_no_answer_of_that_attempt() -> None:
    stop = '{"root_cause": "r", "category": "c", "advice": "a", "avoid": [], "retry": false}'
    tools = scripted("Relations[m.ann]", reflect=stop)
    answer = await default(R3, on_halt_guess=True, step_limit=1).answer(ASKED, tools.tools)
    assert len(tools.payloads("attempt_end")) == 1
    assert (texts(answer), answer.initial, answer.first_attempt) == (["Ann City"], (), "halted")


async def test_without_a_retry_the_initial_answer_is_the_answer() -> None:
    for method, line in ((default(R3), WAY), (default(R3, on_halt_guess=True, failure_signal="none"), WAY)):
        answer = await method.answer(ASKED, scripted(*line).tools)
        assert answer.initial == answer.predictions == (Prediction("Ann City", "m.city"),)
    without_retries = await default(R3, max_retries=0).answer(ASKED, scripted(*WAY).tools)
    assert without_retries.initial is without_retries.first_attempt is None


async def test_samples_vote_on_the_initial_answer_too() -> None:
    line = ["Finish[a]", "Finish[x]", "Finish[b]", "Finish[x]", "Finish[b]", "Finish[x]"]
    answer = await default(R3, samples=3).answer(ASKED, scripted(*line, verify=REJECT).tools)
    assert texts(answer) == ["x"]
    assert answer.initial == (Prediction("b", score=2 / 3),)


async def test_the_initial_answer_does_not_depend_on_gold_feedback() -> None:
    for right, final in ((True, "Annland"), (False, "Ann City")):
        tools = scripted("Finish[Annland]", *WAY, gold_feedback=lambda predictions, right=right: right)
        answer = await default(R3, failure_signal="gold").answer(ASKED, tools.tools)
        assert (texts(answer), answer.initial) == ([final], (Prediction("Annland"),))


# Samples


async def test_samples_are_drawn_at_a_temperature_and_vote() -> None:
    tools = scripted("Finish[a]", "Finish[b]", "Finish[b]")
    answer = await default(R3, samples=3).answer(ASKED, tools.tools)
    assert answer.predictions == (Prediction("b", score=2 / 3),)
    assert answer.raw == "Finish[b]"
    drawn = [
        sampling.temperature
        for prompt, sampling in zip(tools.model.prompts, tools.model.samplings, strict=True)
        if prompt.role == "r3.action"
    ]
    assert drawn == [0.7] * 3


# Simulated models


async def test_the_oracle_answers_unknown_if_the_facts_are_missing() -> None:
    known = gold_context(ASKED, ["Atlantis"], {"m.ann": ["people.person.nationality -> location.country.capital"]})
    tools = ScriptedTools(graph(), write=lambda prompt: write_as_oracle(prompt, known, None))
    assert texts(await default(R3).answer(ASKED, tools.tools)) == ["unknown"]
