"""The algorithm of SRP on a graph in memory with a scripted model (specification §3)."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import pytest

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.methods.srp import SRP
from pipeline.retrieval.interface import Reference
from pipeline.types import Triple
from tests.methods.support import DictionaryGraph, FixedCaps, PlainRetrieval, ScriptedTools, literal, question

ROLES = "tv.tv_actor.starring_roles"
ACTOR, FILM, PERFORMANCE_ACTOR = "film.actor.film", "film.performance.film", "film.performance.actor"
NATIONALITY, CAPITAL, LEADER = "people.person.nationality", "location.country.capital", "location.country.leader"


def picked(*relations: str) -> str:
    return "\n".join(f"('{relation}', {1 / (rank + 2)}): because" for rank, relation in enumerate(relations))


def plan(**paths: str) -> str:
    lists = ", ".join(f'"{name}": ["{name} -> {path}"]' for name, path in paths.items())
    return f"Thought: I see.\nPath: {{{lists}}}"


def no(*retained: str) -> str:
    return "Not there. <NO_ANSWER>\nRetained sequences:\n" + "\n".join(retained)


def yes(*retained: str) -> str:
    return "There. <HAVE_ANSWER>\nRetained sequences:\n" + "\n".join(retained)


def edited(path: str) -> str:
    return f"Goal: it. Thought: so.\nFinal Path: {path}"


# The worked example of §3.12


async def test_the_worked_example_takes_six_calls_two_instantiations_and_one_edit() -> None:
    graph = DictionaryGraph(
        [
            ("carmen electra", "actor.film", "m.0cg8r04"),
            ("m.0cg8r04", "performance.actor", "carmen electra"),
            ("m.0cg8r04", "performance.film", "Naked Movie"),
            ("carmen electra", "appearing_in_film.films", "m.other"),
            ("carmen electra", "person.gender", "Female"),
            ("carmen electra", "person.profession", "Actor"),
        ]
    )
    first_triple = '1. [("carmen electra", "actor.film", "<cvt 1>")]'
    whole = '1. [("carmen electra", "actor.film", "<cvt 1>"), ("<cvt 1>", "performance.film", "Naked Movie")]'
    script = ScriptedTools(
        graph,
        {
            "srp.relation_check": "('actor.film', 0.4): plays\n('appearing_in_film.films', 0.3): appears",
            "srp.path_generation": 'Path: {"carmen electra": ["carmen electra -> actor.film -> performance.actor"]}',
            "srp.judge": [no(first_triple), yes(whole)],
            "srp.edit": edited("carmen electra -> actor.film -> performance.film"),
            "srp.answer": "She plays in it. So the answer is {Naked Movie}.",
        },
    )

    answer = await default(SRP).answer(
        question("which films has Carmen Electra been in", "carmen electra"), script.tools
    )

    assert [(prediction.text, prediction.id) for prediction in answer.predictions] == [("Naked Movie", "Naked Movie")]
    assert answer.status == "ok"
    assert answer.evidence == (
        (
            Triple("carmen electra", "actor.film", "m.0cg8r04"),
            Triple("m.0cg8r04", "performance.film", "Naked Movie"),
        ),
    )
    assert answer.names == {"carmen electra": "carmen electra", "m.0cg8r04": None, "Naked Movie": "Naked Movie"}
    assert len(script.model.roles) == 6
    assert len(script.payloads("instantiated")) == 2
    assert len(script.payloads("edited")) == 1
    offered = dict(script.model.last("srp.edit").candidates)
    assert next(iter(offered)) == ("actor.film",), "the end of the retained chain comes first"
    assert set(offered["actor.film",]) == {"actor.film", "performance.actor", "performance.film"}
    assert "Not there." in script.model.last("srp.edit").message
    assert script.payloads("relations_selected")[0]["relations"] == ["actor.film", "appearing_in_film.films"]


# Calls and lookups (§3.11)


def country(person: str) -> list[tuple[str, str, str]]:
    return [(person, NATIONALITY, f"{person}land"), (f"{person}land", CAPITAL, f"{person} City")]


def biography(person: str) -> list[tuple[str, str, str]]:
    """More relations than the relation check asks for, so that it is called."""
    return [*country(person), *((person, f"people.person.hobby_{n}", "Chess") for n in range(3))]


async def run(
    srp: SRP, *people: str, facts: list[Any] | None = None, text: str = "which capital?", **replies: Any
) -> tuple[ScriptedTools, Any]:
    graph = DictionaryGraph(facts if facts is not None else [fact for person in people for fact in biography(person)])
    defaults = {
        "srp.relation_check": picked(NATIONALITY),
        "srp.path_generation": plan(**dict.fromkeys(people, f"{NATIONALITY} -> {CAPITAL}")),
        "srp.judge": yes(),
        "srp.answer": "So the answer is {it}.",
        "srp.edit": "I give up.",
        "srp.answer_cot": "So the answer is {a guess}.",
    }
    script = ScriptedTools(graph, defaults | {f"srp.{role}": reply for role, reply in replies.items()})
    return script, await srp.answer(question(text, *people), script.tools)


@pytest.mark.parametrize("topics", [1, 2, 3])
async def test_the_best_case_costs_two_calls_per_topic_entity_and_two_more(topics: int) -> None:
    people = ["Ann", "Bob", "Cid"][:topics]
    script, _ = await run(default(SRP), *people)
    assert len(script.model.roles) == 2 * topics + 2
    assert script.graph.lookups == {"relations": 1 + 2 * topics, "neighbours": 2 * topics, "labels": topics}


@pytest.mark.parametrize("edits", [0, 1, 2, 3])
async def test_the_calls_and_lookups_of_an_entity_whose_edits_never_help(edits: int) -> None:
    retries = [edited(f"Ann -> {NATIONALITY} -> {CAPITAL}{'.x' * n}") for n in range(1, 4)]
    script, answer = await run(default(SRP, max_edits=edits), "Ann", judge=no(), edit=retries)
    topics, judged, layers = 1, 1, 2 + 2 * edits  # an edited path here is never whole, so it is not judged by a call
    assert len(script.model.roles) == topics + 1 + judged + edits + 1
    assert script.graph.lookups["labels"] == 1 + edits, "one for the names of each instantiation"
    assert script.graph.lookups["relations"] == 1 + layers + edits, "topic entities, layers, and what edits are offered"
    assert script.graph.lookups["neighbours"] == 2 + edits, "the second layer of an edited path has no move"
    assert answer.status == "ok"


async def test_three_judged_edits_cost_ten_calls() -> None:
    facts = [*biography("Ann"), *(("Annland", f"a.b.{n}", f"node {n}") for n in range(3))]
    retries = [edited(f"Ann -> {NATIONALITY} -> a.b.{n}") for n in range(3)]
    script, _ = await run(default(SRP), "Ann", facts=facts, judge=no(), edit=retries)
    assert Counter(script.model.roles) == {
        "srp.relation_check": 1,
        "srp.path_generation": 1,
        "srp.judge": 4,
        "srp.edit": 3,
        "srp.answer": 1,
    }


async def test_all_calls_have_the_same_temperature_and_each_its_own_token_limit() -> None:
    script, _ = await run(
        default(SRP, temperature=0.7, max_tokens_plan=1, max_tokens_judge=2, max_tokens_other=3), "Ann"
    )
    drawn = zip(script.model.roles, script.model.samplings, strict=True)
    assert {role: (sampling.temperature, sampling.max_tokens) for role, sampling in drawn} == {
        "srp.relation_check": (0.7, 1),
        "srp.path_generation": (0.7, 1),
        "srp.judge": (0.7, 2),
        "srp.answer": (0.7, 3),
    }


# Statuses and limits


async def test_without_a_topic_entity_the_model_answers_alone() -> None:
    script, answer = await run(default(SRP))
    assert script.model.roles == ["srp.answer_cot"]
    assert script.graph.lookups.total() == 0
    assert (answer.status, answer.predictions[0].text) == ("no_topic_entity", "a guess")


async def test_without_evidence_the_model_answers_alone() -> None:
    script, answer = await run(default(SRP, max_edits=0), "Ann", facts=[])
    assert script.model.roles == ["srp.path_generation", "srp.answer_cot"], "no relation to check, nothing to judge"
    assert (answer.status, answer.evidence) == ("no_evidence", ())


@pytest.mark.parametrize(("cap", "roles"), [(1, ["srp.answer_cot"]), (3, ["srp.answer"]), (4, ["srp.answer"])])
async def test_after_a_limit_on_calls_the_answer_comes_from_the_evidence_so_far(cap: int, roles: list[str]) -> None:
    graph = DictionaryGraph(biography("Ann"))
    replies = {
        "srp.relation_check": picked(NATIONALITY),
        "srp.path_generation": plan(Ann=f"{NATIONALITY} -> {CAPITAL}"),
        "srp.judge": no(f'1. [("Ann", "{NATIONALITY}", "Annland")]'),
        "srp.edit": edited(f"Ann -> {NATIONALITY} -> {LEADER}"),
        "srp.answer": "So the answer is {Annland}.",
        "srp.answer_cot": "So the answer is {a guess}.",
    }
    script = ScriptedTools(graph, replies)
    script.model.max_calls = cap
    answer = await default(SRP).answer(question("which capital?", "Ann"), script.tools)
    assert answer.status == "budget_exhausted"
    assert script.model.roles[cap:] == roles, "only the answering call is made after the limit"
    assert bool(answer.evidence) == (roles == ["srp.answer"])


@pytest.mark.parametrize("cap", range(8))
async def test_after_a_limit_on_lookups_the_answer_comes_from_the_evidence_so_far(cap: int) -> None:
    graph = DictionaryGraph([*country("Ann"), *country("Bob")])
    graph.max_lookups = cap
    script = ScriptedTools(
        graph,
        {
            "srp.relation_check": picked(NATIONALITY),
            "srp.path_generation": plan(Ann=NATIONALITY, Bob=NATIONALITY),
            "srp.judge": yes(),
            "srp.answer": "So the answer is {it}.",
            "srp.answer_cot": "So the answer is {a guess}.",
        },
    )
    answer = await default(SRP).answer(question("which country?", "Ann", "Bob"), script.tools)
    needed = 1 + 2 * 3
    assert answer.status == ("ok" if cap >= needed else "budget_exhausted")
    assert answer.predictions


async def test_the_cap_on_evidence_takes_from_every_entity_in_turn() -> None:
    people = ["Ann", "Bob"]
    facts = [(person, NATIONALITY, f"{person} land {n}") for person in people for n in range(5)]
    graph = DictionaryGraph(facts)
    script = ScriptedTools(
        graph,
        {
            "srp.relation_check": picked(NATIONALITY),
            "srp.path_generation": plan(Ann=NATIONALITY, Bob=NATIONALITY),
            "srp.judge": yes(),
            "srp.answer": "So the answer is {it}.",
        },
        caps=FixedCaps(max_evidence_triples=3),
    )
    answer = await default(SRP).answer(question("which countries?", *people), script.tools)
    assert [chain[0].tail for chain in answer.evidence] == ["Ann land 0", "Ann land 1", "Bob land 0"]
    assert answer.status == "budget_exhausted"
    assert ("cap_hit", {"cap": "max_evidence_triples"}) in script.events


# Planning (§3.5)


async def test_an_unreadable_relation_check_falls_back_to_the_encoder() -> None:
    facts = [("Ann", relation, "x") for relation in ("a.b.shoe_size", "people.person.capital_of_home", "c.d.hobby")]
    script, _ = await run(default(SRP, relation_top_k=1), "Ann", facts=facts, relation_check="no idea")
    assert script.model.roles.count("srp.relation_check") == 3, "asked again twice"
    assert script.payloads("relations_selected")[0]["relations"] == ["people.person.capital_of_home"]


async def test_too_many_relations_are_cut_to_the_most_similar_ones() -> None:
    facts = [("Ann", f"a.b.r{n}", "x") for n in range(6)] + [("Ann", "z.z.capital", "x"), ("Ann", "a.a.capital", "x")]
    script, _ = await run(default(SRP, relation_check_max=2), "Ann", facts=facts, relation_check=picked("z.z.capital"))
    assert script.model.last("srp.relation_check").relations == ("a.a.capital", "z.z.capital")


async def test_an_entity_without_a_path_starts_with_its_best_relation_or_else_with_editing() -> None:
    facts = [("Ann", LEADER, "x"), ("Ann", NATIONALITY, "Annland")]
    script, answer = await run(default(SRP), "Ann", "Bob", facts=facts, path_generation="I cannot.")
    assert script.payloads("path_generated")[0]["paths"] == {"Ann": ((LEADER,),), "Bob": ((),)}
    assert script.payloads("path_generated")[0]["missing"] == ["Ann", "Bob"]
    findings = {payload["entity"]: payload["findings"] for payload in script.payloads("judged")}
    assert findings == {"Ann": (), "Bob": ("empty initial path",)}
    assert answer.status == "ok"


async def test_an_empty_path_is_edited_from_the_relations_of_its_entity() -> None:
    script, answer = await run(
        default(SRP, relation_check=False),
        "Ann",
        facts=country("Ann"),
        path_generation="I cannot.",
        edit=edited(f"Ann -> {NATIONALITY} -> {CAPITAL}"),
    )
    edit = script.model.last("srp.edit")
    assert (edit.message, edit.candidates) == ("empty initial path", (((), (NATIONALITY,)),))
    assert [triple.relation for triple in answer.evidence[0]] == [NATIONALITY, CAPITAL]


async def test_without_the_relation_check_no_relation_is_offered_and_no_lookup_is_made() -> None:
    script, _ = await run(default(SRP, relation_check=False), "Ann")
    assert "srp.relation_check" not in script.model.roles
    assert script.graph.lookups["relations"] == 2
    text = "".join(message.content for message in script.model.last("srp.path_generation").messages())
    assert "aluable relations" not in text


TWO_PATHS = f'Path: {{"Ann": ["Ann -> {NATIONALITY}", "Ann -> {LEADER}", "Ann -> a.b.c"]}}'


async def test_the_initial_paths_of_an_entity_are_judged_in_one_call() -> None:
    facts = [("Ann", NATIONALITY, "Annland"), ("Ann", LEADER, "Zed"), ("Ann", "a.b.c", "y")]
    script, answer = await run(
        default(SRP, paths_per_entity=2), "Ann", facts=facts, path_generation=TWO_PATHS, judge=yes("1", "2")
    )
    assert script.model.roles == ["srp.path_generation", "srp.judge", "srp.answer"]
    assert [payload["path"] for payload in script.payloads("instantiated")] == [(NATIONALITY,), (LEADER,)]
    judged = script.model.last("srp.judge").messages()[-1].content
    assert f'1. [("Ann", "{NATIONALITY}", "Annland")]\n2. [("Ann", "{LEADER}", "Zed")]\n' in judged
    assert [chain[0].tail for chain in answer.evidence] == ["Annland", "Zed"]


async def test_the_initial_path_of_which_most_was_kept_is_edited_and_the_others_count_as_tried() -> None:
    facts = [("Ann", NATIONALITY, "Annland"), ("Ann", LEADER, "Zed"), ("Zed", "a.b.d", "x")]
    script, answer = await run(
        default(SRP, paths_per_entity=2, max_edits=2),
        "Ann",
        facts=facts,
        path_generation=TWO_PATHS,
        judge=[no("2"), yes("1")],
        edit=[edited(NATIONALITY), edited(f"{LEADER} -> a.b.d")],
    )
    prompt = script.model.last("srp.edit")
    assert (prompt.path, prompt.tried) == ((LEADER,), ((NATIONALITY,),))
    assert "was tried before" in script.model.complaints[0]
    assert [payload["path"] for payload in script.payloads("instantiated")][2:] == [(LEADER, "a.b.d")]
    assert [chain[-1].tail for chain in answer.evidence] == ["x"], "what was kept of the first round begins this chain"


async def test_no_relation_check_is_made_when_no_more_relations_are_there_than_wanted() -> None:
    script, _ = await run(default(SRP), "Ann", facts=[("Ann", NATIONALITY, "x"), ("Ann", CAPITAL, "y")])
    assert "srp.relation_check" not in script.model.roles
    selected = script.payloads("relations_selected")[0]
    assert (selected["relations"], selected["scores"]) == ([CAPITAL, NATIONALITY], {}), "ranked by the encoder"
    assert script.model.last("srp.path_generation").relations == {"Ann": (CAPITAL, NATIONALITY)}


# References (§3.3)

SOLVED = Reference("who rules X?", "who rules *?", {"X": "X -> a.b -> c.d"}, ("one", "two", "three", "four"))


@pytest.mark.parametrize(
    ("where", "guided"),
    [
        (None, {"srp.relation_check", "srp.judge", "srp.edit"}),
        (("path_generation",), {"srp.path_generation"}),
        ((), set()),
    ],
)
async def test_references_are_shown_in_the_configured_calls(where: Any, guided: set[str]) -> None:
    graph = DictionaryGraph(biography("Ann"))
    replies = {
        "srp.relation_check": picked(NATIONALITY),
        "srp.path_generation": plan(Ann=f"{NATIONALITY} -> {CAPITAL}"),
        "srp.judge": no(),
        "srp.edit": edited(f"Ann -> {NATIONALITY}"),
        "srp.answer": "So the answer is {it}.",
    }
    script = ScriptedTools(graph, replies, retrieval=PlainRetrieval(base=[SOLVED]))
    await default(SRP, max_edits=1, **({} if where is None else {"references_in": where})).answer(
        question("which capital?", "Ann"), script.tools
    )
    texts = {prompt.role: prompt.messages()[-1].content for prompt in script.model.prompts}
    assert {role for role, text in texts.items() if "who rules X?" in text and "X -> a.b -> c.d" in text} == guided
    if "srp.judge" in guided:
        assert "Answers: one; two; three\n" in texts["srp.judge"]
        assert "Answers:" not in texts["srp.edit"]


async def test_references_are_requested_as_configured() -> None:
    for srp, asked in (
        (default(SRP, num_references=0), []),
        (default(SRP, reference_selection="random", num_references=2), [(2, True, False)]),
        (default(SRP), [(4, False, False)]),
        (default(SRP, mask_references=True), [(4, False, True)]),
    ):
        script, _ = await run(srp, "Ann")
        assert script.retrieval.asked == asked


# The judge and its switches (§3.7, §3.9, §12)


async def test_a_judge_without_a_verdict_is_asked_once_more_and_then_read_as_no() -> None:
    script, answer = await run(default(SRP, max_edits=0), "Ann", judge="Hard to say.")
    assert script.model.roles.count("srp.judge") == 2
    assert script.payloads("judged")[0]["have"] is False
    assert len(answer.evidence) == 1, "the longest instances remain"


async def test_a_have_without_valid_retained_items_keeps_all_sequences() -> None:
    script, answer = await run(default(SRP), "Ann", judge=yes('1. [("Ann", "made.up", "Annland")]'))
    assert script.payloads("judged")[0]["hallucinated"] == (1,)
    assert [triple.tail for triple in answer.evidence[0]] == ["Annland", "Ann City"]


async def test_pruned_evidence_is_what_the_judge_retained_and_instances_are_everything() -> None:
    facts = [*country("Ann"), ("Ann", NATIONALITY, "Elsewhere")]
    verdict = yes(f'1. [("Ann", "{NATIONALITY}", "Annland")]')
    _, pruned = await run(default(SRP), "Ann", facts=facts, judge=verdict)
    assert [[triple.tail for triple in chain] for chain in pruned.evidence] == [["Annland"]]
    _, instances = await run(default(SRP, answer_evidence="instances"), "Ann", facts=facts, judge=verdict)
    assert [[triple.tail for triple in chain] for chain in instances.evidence] == [
        ["Annland", "Ann City"],
        ["Elsewhere"],
    ]


async def test_without_a_judge_one_retrieval_is_the_evidence() -> None:
    facts = [*biography("Ann"), ("Ann", NATIONALITY, "Elsewhere")]
    script, answer = await run(default(SRP, judge=False), "Ann", facts=facts)
    assert script.model.roles == ["srp.relation_check", "srp.path_generation", "srp.answer"]
    assert len(answer.evidence) == 2


async def test_the_structural_judge_edits_only_incomplete_paths_and_unnamed_ends() -> None:
    srp = default(SRP, judge="structural", max_edits=1)
    whole, answer = await run(srp, "Ann")
    assert whole.model.roles == ["srp.relation_check", "srp.path_generation", "srp.answer"]
    assert len(answer.evidence) == 1

    facts = [("Ann", ACTOR, "m.1"), ("m.1", FILM, "A Film")]
    role = edited(f"Ann -> {ACTOR} -> {FILM}")
    unnamed, answer = await run(srp, "Ann", facts=facts, path_generation=plan(Ann=ACTOR), edit=role)
    assert unnamed.model.last("srp.edit").message == "<cvt></cvt> in the end"
    assert answer.evidence[0][-1].tail == "A Film"

    path = plan(Ann=f"{NATIONALITY} -> {LEADER}")
    missing, answer = await run(srp, "Ann", path_generation=path, edit=edited(f"Ann -> {NATIONALITY} -> {CAPITAL}"))
    assert missing.model.last("srp.edit").message == f"relation {LEADER} not instantiated"
    assert answer.evidence[0][-1].tail == "Ann City"


# The editor and its budget (§3.8)


async def test_an_editor_without_a_new_path_ends_the_search_of_its_entity() -> None:
    script, answer = await run(default(SRP), "Ann", judge=no(), edit=edited(f"Ann -> {NATIONALITY} -> {CAPITAL}"))
    assert script.model.roles.count("srp.edit") == 3
    assert all("the current path" in complaint for complaint in script.model.complaints)
    assert script.payloads("edited") == [{"entity": "Ann", "path": None}]
    assert answer.evidence


async def test_after_the_budget_the_longest_instances_follow_what_was_retained() -> None:
    facts = [*country("Ann"), ("Annland", "a.b.role", "m.1"), ("Ann", NATIONALITY, "Elsewhere")]
    facts += [("Ann", "a.b.friend", "m.2"), ("Ann", "a.b.friend", "Zoe")]
    replies = {
        "facts": facts,
        "path_generation": plan(Ann=NATIONALITY),
        "judge": [no(f'1. [("Ann", "{NATIONALITY}", "Annland")]'), no()],
        "edit": [edited("Ann -> a.b.friend"), edited(f"Ann -> {NATIONALITY} -> a.b.role")],
    }
    script, answer = await run(default(SRP, max_edits=2), "Ann", **replies)
    assert [chain[0].tail for chain in answer.evidence] == ["Annland", "Zoe", "Elsewhere"]
    _, last = await run(default(SRP, max_edits=1, answer_evidence="instances"), "Ann", **replies)
    assert [chain[0].tail for chain in last.evidence] == ["Annland", "Zoe"], "the longest instances of the last path"
    script, _ = await run(default(SRP, max_edits=1), "Ann", **(replies | {"edit": replies["edit"][1]}))
    assert script.payloads("judged")[1]["shown"] == 0, "the edited path ends in an unnamed node"


async def test_the_editor_is_offered_relations_by_prefix_up_to_its_limits() -> None:
    facts = [
        *(("Ann", NATIONALITY, f"land {n}") for n in range(3)),
        *((f"land {n}", f"geo.land.r{n}{m}", "x") for n in range(3) for m in range(4)),
    ]
    script, _ = await run(
        default(SRP, max_edits=1, candidates_per_prefix=5, candidates_total=7, shown_grounded=2),
        "Ann",
        facts=facts,
        path_generation=plan(Ann=NATIONALITY),
        judge=no(),
        edit=edited("Ann -> geo.land.r00"),
    )
    edit = script.model.last("srp.edit")
    assert [(prefix, len(relations)) for prefix, relations in edit.candidates] == [((), 1), ((NATIONALITY,), 5)]
    assert "\n(1 more were found)\n" in edit.messages()[-1].content
    offered = {relation for _, relations in edit.candidates for relation in relations}
    assert not any(relation.startswith("geo.land.r2") for relation in offered), "only the ends of what is shown"


async def test_relations_are_offered_behind_each_line_though_many_chains_have_the_text_of_one() -> None:
    facts = [("Ann", ACTOR, f"m.{n}") for n in range(8)] + [("Ann", ROLES, f"m.tv{n}") for n in range(2)]
    facts += [(f"m.{n}", FILM, "A Film") for n in range(8)] + [(f"m.tv{n}", "tv.role.series", "It") for n in range(2)]
    script = ScriptedTools(
        DictionaryGraph(facts),
        {
            "srp.relation_check": picked(ACTOR),
            "srp.path_generation": plan(Ann=ACTOR),
            "srp.edit": edited(f"Ann -> {ROLES} -> tv.role.series"),
            "srp.answer": "So the answer is {it}.",
        },
        retrieval=PlainRetrieval(bound={ACTOR: [ACTOR, ROLES]}),
    )
    await default(SRP, max_edits=1, judge="structural").answer(question("which series?", "Ann"), script.tools)
    edit = script.model.last("srp.edit")
    assert [line.count("<cvt></cvt>") for line in edit.inputs()["facts"].splitlines()[1:]] == [1, 1]
    assert "tv.role.series" in dict(edit.candidates)[ROLES,]


async def test_the_total_of_offered_relations_is_shared_by_the_prefixes_in_order() -> None:
    facts = [
        ("Ann", NATIONALITY, "Annland"),
        *(("Annland", f"geo.r{n}", "x") for n in range(4)),
        ("Ann", ACTOR, "m.1"),
        *(("m.1", f"role.r{n}", "x") for n in range(4)),
    ]
    graph = DictionaryGraph(facts)
    script = ScriptedTools(
        graph,
        {
            "srp.relation_check": picked(NATIONALITY),
            "srp.path_generation": plan(Ann=NATIONALITY),
            "srp.judge": no(f'1. [("Ann", "{NATIONALITY}", "Annland")]'),
            "srp.edit": edited(f"Ann -> {ACTOR}"),
            "srp.answer": "So the answer is {it}.",
        },
        retrieval=PlainRetrieval(bound={NATIONALITY: [NATIONALITY, ACTOR]}),
    )
    srp = default(SRP, max_edits=1, candidates_total=7, candidates_per_prefix=5)
    await srp.answer(question("which land?", "Ann"), script.tools)
    sizes = [(prefix, len(relations)) for prefix, relations in script.model.last("srp.edit").candidates]
    assert sizes == [((NATIONALITY,), 5), ((ACTOR,), 2)]


WRONG = [*country("Ann"), ("Ann", "people.person.children", "Edda"), ("Annland", "a.b.c", "x")]


@pytest.mark.parametrize(
    ("kept", "offered"),
    [
        (f'1. [("Ann", "{NATIONALITY}", "Annland")]', [(NATIONALITY,), (NATIONALITY, CAPITAL)]),
        ("1. []", [(), (NATIONALITY, CAPITAL)]),
    ],
)
async def test_candidates_are_the_relations_at_the_tails_of_the_pruned_sequences_first(
    kept: str, offered: list[Any]
) -> None:
    """The topic entity is the tail of a sequence of which nothing is kept."""
    changed = edited(f"Ann -> {NATIONALITY}")
    script, _ = await run(default(SRP, max_edits=1), "Ann", facts=WRONG, judge=no(kept), edit=changed)
    candidates = dict(script.model.last("srp.edit").candidates)
    assert list(candidates) == offered
    assert set(candidates[offered[0]]) == (
        {NATIONALITY, CAPITAL, "a.b.c"} if offered[0] else {NATIONALITY, "people.person.children"}
    )


async def test_without_a_sequence_to_judge_the_topic_entity_offers_its_relations_last() -> None:
    broken = plan(Ann=f"{NATIONALITY} -> {LEADER}")
    changed = edited(f"Ann -> {NATIONALITY} -> {CAPITAL}")
    script, _ = await run(default(SRP), "Ann", facts=WRONG, path_generation=broken, edit=changed)
    assert [prefix for prefix, _ in script.model.last("srp.edit").candidates] == [(NATIONALITY,), ()]
    readi = default(SRP, judge="structural")
    script, _ = await run(readi, "Ann", facts=WRONG, path_generation=broken, edit=changed)
    assert [prefix for prefix, _ in script.model.last("srp.edit").candidates] == [(NATIONALITY,)], "nobody judges"


async def test_the_editor_sees_the_sequences_of_which_most_was_kept_first() -> None:
    facts = [("Ann", NATIONALITY, f"land {n}") for n in range(3)]
    verdict = no(f'3. [("Ann", "{NATIONALITY}", "land 2")]')
    srp = default(SRP, max_edits=1, shown_grounded=1)
    script, _ = await run(srp, "Ann", facts=facts, path_generation=plan(Ann=NATIONALITY), judge=verdict)
    assert f'whole path:\n3. [("Ann", "{NATIONALITY}", "land 2")]\n(2 more were found)\n' in (
        script.model.last("srp.edit").messages()[-1].content
    )


async def test_what_the_judge_kept_of_an_earlier_path_comes_back_after_have() -> None:
    facts = [*(("Ann", NATIONALITY, f"land {n}") for n in range(3)), ("land 2", CAPITAL, "City")]
    kept = no(*(f'{n + 1}. [("Ann", "{NATIONALITY}", "land {n}")]' for n in (0, 2)))
    found = yes(f'1. [("Ann", "{NATIONALITY}", "land 2"), ("land 2", "{CAPITAL}", "City")]')
    _, answer = await run(
        default(SRP),
        "Ann",
        facts=facts,
        path_generation=plan(Ann=NATIONALITY),
        judge=[kept, found],
        edit=edited(f"Ann -> {NATIONALITY} -> {CAPITAL}"),
    )
    tails = [[triple.tail for triple in chain] for chain in answer.evidence]
    assert tails == [["land 2", "City"], ["land 0"]], "a chain that another one begins with is not repeated"


async def test_a_wrong_first_relation_is_mended_by_an_edit() -> None:
    """The profession of a man is looked for by way of his children, and then among his own relations."""
    facts = [
        ("Tavin", "people.person.children", "Edda"),
        ("Edda", "people.person.profession", "Glazier"),
        ("Tavin", "people.person.profession", "Ferryman"),
        *(("Tavin", f"people.person.other_{n}", "x") for n in range(20)),
    ]
    script, answer = await run(
        default(SRP),
        "Tavin",
        facts=facts,
        text="what is Tavin by profession?",
        relation_check=picked("people.person.children"),
        path_generation=plan(Tavin="people.person.children -> people.person.profession"),
        judge=["This is about his daughter. <NO_ANSWER>\nRetained sequences: none", yes("1")],
        edit=edited("Tavin -> people.person.profession"),
    )
    edit = script.model.last("srp.edit")
    shown = edit.messages()[-1].content
    assert '1. [] cut away: [("Tavin", "people.person.children", "Edda"), ("Edda",' in shown
    assert "people.person.profession" in dict(edit.candidates)[()], "the topic entity offers its own relations"
    assert "\nTavin: " in shown
    assert "less similar relations left out)" in shown
    assert [[triple.tail for triple in chain] for chain in answer.evidence] == [["Ferryman"]]
    assert script.model.roles.count("srp.edit") == 1


async def test_all_sequences_are_judged_by_choice_partial_ones_included_up_to_a_limit_of_tokens() -> None:
    facts = [*(("Ann", NATIONALITY, f"land {n:02}") for n in range(30)), ("land 00", CAPITAL, "City")]
    path = plan(Ann=f"{NATIONALITY} -> {CAPITAL}")

    async def judged(srp: SRP) -> tuple[int, str]:
        script, _ = await run(srp, "Ann", facts=facts, path_generation=path)
        prompt = script.model.last("srp.judge")
        return len(prompt.sequences), prompt.messages()[-1].content

    assert (await judged(default(SRP)))[0] == 1, "one chain takes the whole path"
    everything, text = await judged(default(SRP, judge_sequences="all"))
    assert everything == 30
    assert "more were found" not in text
    some, text = await judged(default(SRP, judge_sequences="all", judge_sequence_tokens=100))
    assert 1 < some < 12
    assert f"({30 - some} more were found)" in text


async def test_the_judge_sees_sequences_that_differ_in_unnamed_nodes_once_and_how_many_were_left_out() -> None:
    facts = [("Ann", ACTOR, f"m.{n}") for n in range(6)] + [(f"m.{n}", FILM, f"Film {n // 2}") for n in range(6)]
    srp = default(SRP, judge_samples_per_path=2)
    script, _ = await run(srp, "Ann", facts=facts, path_generation=plan(Ann=f"{ACTOR} -> {FILM}"))
    text = script.model.last("srp.judge").messages()[-1].content
    assert text.count("Film 0") == text.count("Film 1") == 1
    assert "\n(1 more were found)\n" in text
    assert {"by": "cap", "nodes": {"Film 2"}} in script.payloads("cut"), "the trail says what the judge was not shown"


def ring(people: tuple[str, ...]) -> list[Any]:
    return [(person, f"a.b.r{n}", f"{person} {n}") for person in people for n in range(9)]


async def rounds(srp: SRP, *people: str) -> list[int]:
    """Return the number of retrievals of each entity when no path ever answers."""
    graph = DictionaryGraph(ring(people))
    edits = iter(range(1, 9))

    def write(prompt: Any) -> str:
        tried = {path for payload in script.payloads("instantiated") for path in [payload["path"]]}
        return edited(next(path for path in (f"a.b.r{n}" for n in edits) if (path,) not in tried))

    script = ScriptedTools(
        graph,
        {
            "srp.relation_check": picked("a.b.r0"),
            "srp.path_generation": plan(**dict.fromkeys(people, "a.b.r0")),
            "srp.judge": no(),
            "srp.answer": "So the answer is {it}.",
        },
        write=write,
    )
    await srp.answer(question("which?", *people), script.tools)
    counted = Counter(payload["entity"] for payload in script.payloads("instantiated"))
    return [counted[person] for person in people]


async def test_edit_budgets_are_per_entity_per_question_or_readis() -> None:
    assert await rounds(default(SRP, max_edits=2), "Ann", "Bob", "Cid") == [3, 3, 3]
    assert await rounds(default(SRP, max_edits=2, edit_budget_scope="per_question"), "Ann", "Bob", "Cid") == [3, 1, 1]
    assert await rounds(default(SRP, compat_readi_budget=True), "Ann", "Bob", "Cid") == [4, 1, 0]


async def test_readis_fourth_edit_is_made_and_discarded() -> None:
    script, _ = await run(
        default(SRP, compat_readi_budget=True),
        "Ann",
        facts=ring(("Ann",)),
        path_generation=plan(Ann="a.b.r0"),
        judge=no(),
        edit=[edited(f"a.b.r{n}") for n in range(1, 6)],
    )
    assert script.model.roles.count("srp.edit") == 4
    assert len(script.payloads("instantiated")) == 4


# Several topic entities (§3.9), and names


async def test_chains_through_a_shared_entity_are_compared_by_id_not_by_name() -> None:
    names = {"e.1": "Paris", "e.2": "Paris", "e.3": "Oslo", "e.4": "Rome"}
    facts = [("Ann", "r.visits", id) for id in ("e.1", "e.3")] + [
        ("Bob", "r.visits", id) for id in ("e.2", "e.3", "e.4")
    ]
    graph = DictionaryGraph(facts, names)
    script = ScriptedTools(
        graph,
        {
            "srp.relation_check": picked("r.visits"),
            "srp.path_generation": plan(Ann="r.visits", Bob="r.visits"),
            "srp.judge": yes(),
            "srp.answer": "So the answer is {Oslo; Paris}.",
        },
    )
    answer = await default(SRP).answer(question("which city do both visit?", "Ann", "Bob"), script.tools)
    assert answer.evidence == ((Triple("Ann", "r.visits", "e.3"),), (Triple("Bob", "r.visits", "e.3"),))
    assert [(prediction.text, prediction.id) for prediction in answer.predictions] == [("Oslo", "e.3"), ("Paris", None)]


async def test_an_answer_gets_an_id_only_when_exactly_one_entity_has_the_name() -> None:
    names = {"e.1": "Paris", "e.2": "Paris", "e.3": "Oslo"}
    facts = [("Ann", "r.visits", id) for id in names] + [("Ann", "r.visits", literal("1999-01-01T00:00:00Z"))]
    graph = DictionaryGraph(facts, names)
    script = ScriptedTools(
        graph,
        {
            "srp.relation_check": picked("r.visits"),
            "srp.path_generation": plan(Ann="r.visits"),
            "srp.judge": yes(),
            "srp.answer": "So the answer is {paris; OSLO; 1999-01-01; Bern}.",
        },
    )
    answer = await default(SRP).answer(question("where?", "Ann"), script.tools)
    assert [prediction.id for prediction in answer.predictions] == [None, "e.3", None, None]


async def test_an_incoming_fact_is_shown_with_the_graphs_subject_and_object() -> None:
    facts = [("Film", "film.directed_by", "Ann")]
    script, answer = await run(default(SRP), "Ann", facts=facts, path_generation=plan(Ann="film.directed_by"))
    assert '[("Film", "film.directed_by", "Ann")]' in script.model.last("srp.judge").messages()[-1].content
    assert answer.evidence == ((Triple("Film", "film.directed_by", "Ann"),),)


# The dataclass


def test_a_method_is_picklable_and_refuses_wrong_values() -> None:
    assert pickle.loads(pickle.dumps(default(SRP, max_edits=1))) == default(SRP, max_edits=1)
    for wrong in ({"max_path_len": 0}, {"judge": "maybe"}, {"references_in": ["answer"]}, {"max_edit": 3}):
        with pytest.raises(UserError):
            default(SRP, **wrong)
