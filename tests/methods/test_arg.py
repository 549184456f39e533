"""ArG as an algorithm (specification §4), on a graph in memory with a scripted model."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.llm.prompt import Completion, Prompt, Sampling
from pipeline.methods.arg import ArG
from pipeline.methods.arg.tree import Node, relation_beam
from pipeline.types import Triple
from tests.methods.support import DictionaryGraph, FixedCaps, ScriptedTools, question, score_without, texts

NATIONALITY, BORN, CAPITAL, LANGUAGE = "person.nationality", "person.born_in", "country.capital", "country.language"
FACTS = [
    ("Ann", NATIONALITY, "Annland"),
    ("Ann", BORN, "Mirra"),
    ("Annland", CAPITAL, "Ann City"),
    ("Annland", LANGUAGE, "Annish"),
]
FULLY, PARTIALLY, NOT = "[Fully Relevant]", "[Partially Relevant]", "[Unrelevant]"
REASONABLE, ON = "[Fully Reasonable]", "[Retrieve Relation]"


def answers(*texts: str, utility: int = 5) -> str:
    return "[No Retrieval]Answer: " + ";".join(f"{text}[Fully Useful]" for text in texts) + f"[Utility:{utility}]"


def relevant(prompt: Any, *names: str) -> str:
    return "".join(f"{name}{FULLY if name in names else NOT}" for name in prompt.group) + "[Retrieve Entity]"


class Generator:
    """A model that labels what each prompt offers.

    `follows` are the relevant relations, except the one that led here. `ends` is the end of the segment, by relation.
    """

    def __init__(self, follows: Sequence[str], ends: Mapping[str, str], hypo: str = f"{NATIONALITY}{FULLY}") -> None:
        self.follows = follows
        self.ends = ends
        self.hypo = hypo

    def __call__(self, prompt: Prompt[Any]) -> str:
        shown: Any = prompt
        match prompt.role:
            case "arg.retrieval":
                return ON
            case "arg.hypo":
                return self.hypo
            case "arg.relations":
                led_here = {walk.path[-1] for walk in shown.walks if walk.length}
                return relevant(shown, *(relation for relation in self.follows if relation not in led_here))
            case "arg.entities":
                names = list(shown.shown_tails)
                end = self.ends.get(shown.relation, f"{REASONABLE}{ON}")
                return "".join(f"{name}{FULLY}" for name in names) + end
        return " forced[Fully Useful][Utility:4]"


TWO_HOPS = Generator([NATIONALITY, CAPITAL], {CAPITAL: f"{REASONABLE}{answers('Ann City')}"})


async def run(
    arg: ArG, write: Any = TWO_HOPS, *, facts: Any = FACTS, topics: Sequence[str] = ("Ann",), **tools: Any
) -> Any:
    script = ScriptedTools(DictionaryGraph(facts), write=write, **tools)
    return script, await arg.answer(question("which capital?", *topics), script.tools)


# The worked example: two hops, in the layout of specification §4.3


async def test_the_worked_example_takes_eight_calls_and_six_lookups() -> None:
    replies = {
        "arg.retrieval": ON,
        "arg.hypo": [f"{NATIONALITY}{FULLY}[Retrieve Entity]", f"{CAPITAL}{FULLY}[Retrieve Entity]"],
        "arg.relations": [
            f"{NATIONALITY}{FULLY}{BORN}{NOT}[Retrieve Entity]",
            f"{CAPITAL}{FULLY}{LANGUAGE}{PARTIALLY}{NATIONALITY}{NOT}[Retrieve Entity]",
        ],
        "arg.entities": [
            f"Annland{FULLY}{REASONABLE}{ON}",
            f"Ann City{FULLY}{REASONABLE}{answers('Ann City')}",
            f"Annish{PARTIALLY}[Partially Reasonable]{answers('Annish', utility=2)}",
        ],
    }
    script = ScriptedTools(DictionaryGraph(FACTS), replies)
    answer = await default(ArG).answer(question("which capital?", "Ann"), script.tools)
    level = ["arg.hypo", "arg.relations", "arg.entities"]
    assert script.model.roles == ["arg.retrieval", *level, *level, "arg.entities"]
    assert script.graph.lookups == {"relations": 2, "neighbours": 2, "labels": 2}
    assert texts(answer) == ["Ann City", "Annish"]
    assert [prediction.id for prediction in answer.predictions] == ["Ann City", "Annish"]
    best, worse = (prediction.score for prediction in answer.predictions)
    assert best == pytest.approx((1 + 1) / 2 + 1 + 0.5 * 2)
    assert worse == pytest.approx((1 + 0.5 * 0.5 * 0.5) / 2 + 1 + 0.5 * 0.5)
    assert answer.evidence[0] == (Triple("Ann", NATIONALITY, "Annland"), Triple("Annland", CAPITAL, "Ann City"))
    assert (answer.status, answer.raw) == ("ok", "Answer: Ann City[Fully Useful][Utility:5]")
    text = script.model.prompts[5].messages()[-1].content
    assert text == (
        f"[Retrieve Relation]<paragraph>{NATIONALITY};{BORN}</paragraph>{NATIONALITY}{FULLY}{BORN}{NOT}"
        f"[Retrieve Entity]<paragraph>(Ann, {NATIONALITY}, Annland)</paragraph>Annland{FULLY}{REASONABLE}"
        f"[Retrieve Relation]<paragraph>{CAPITAL};{LANGUAGE};{NATIONALITY}</paragraph>"
    )


async def test_sampling_stops_where_a_paragraph_begins() -> None:
    script, _ = await run(default(ArG, temperature=0.2, max_new_tokens=7, top_p=0.9, logprobs=5))
    stops = dict(zip(script.model.roles, script.model.samplings, strict=True))
    assert stops["arg.hypo"] == Sampling(0.2, 7, 0.9, ("[Retrieve Entity]",), 5)
    assert stops["arg.relations"] == stops["arg.entities"] == Sampling(0.2, 7, 0.9, ("<paragraph>",), 5)


# Calls and lookups (specification §4.9)


def wide(relations: int, tails: int) -> list[Any]:
    """Facts in which every relation of Ann leads to its own nodes, and every second relation leads on from each."""
    first = [(f"r{r}", f"n{r}.{t}") for r in range(relations) for t in range(tails)]
    deeper = [(end, f"s{r}", f"{end}/{r}") for _, end in first for r in range(relations)]
    return [*(("Ann", relation, end) for relation, end in first), *deeper]


@pytest.mark.parametrize("beam", [1, 2, 3, 0])
async def test_calls_and_lookups_follow_from_the_beam_width(beam: int) -> None:
    relations, tails = 4, 2
    everything = Generator([f"{kind}{n}" for kind in "rs" for n in range(relations)], {})
    script, _ = await run(default(ArG, beam=beam, max_hops=2), everything, facts=wide(relations, tails))
    nodes = min(beam or relations, relations)
    assert Counter(script.model.roles) == {
        "arg.retrieval": 1,
        "arg.hypo": 1 + nodes,
        "arg.relations": 1 + nodes,
        "arg.entities": relations + nodes * tails * relations,
        "arg.answer": beam or nodes * tails * relations,
    }
    assert script.graph.lookups == {"relations": 2, "neighbours": 2, "labels": 2}


@pytest.mark.parametrize(("k", "groups"), [(3, 2), (5, 2), (10, 3)])
async def test_relations_are_judged_in_groups_of_a_limited_size(k: int, groups: int) -> None:
    facts = [("Ann", f"relation.number.{n}", "x") for n in range(12)]
    script, _ = await run(default(ArG, retrieve_k=k, hypo=False, group_size=4 if k > 3 else 2), facts=facts)
    shown = [prompt.group for prompt in script.model.prompts if prompt.role == "arg.relations"]
    assert len(shown) == groups
    assert sum(map(len, shown)) == k


async def test_two_runs_give_the_same_answer_and_events() -> None:
    everything = Generator([f"{kind}{n}" for kind in "rs" for n in range(4)], {})
    runs = [await run(default(ArG, max_hops=2), everything, facts=wide(4, 2)) for _ in range(2)]
    assert runs[0][1] == runs[1][1]
    assert runs[0][0].events == runs[1][0].events


# Relation retrieval (specification §4.5.1)


async def retrieved(arg: ArG, **changed: Any) -> list[str]:
    script, _ = await run(arg, **changed)
    return script.payloads("relations_listed")[0]["retrieved"][0]


LIKE_THE_QUESTION = [("Ann", "x.which_capital", "y"), ("Ann", "z.nationality", "y"), ("Ann", "z.nothing", "y")]


@pytest.mark.parametrize(
    ("switches", "offered"),
    [
        ({}, ["x.which_capital", "z.nationality"]),
        ({"hypo": False}, ["x.which_capital"]),
        ({"naive_retriever": False}, ["z.nationality"]),
    ],
)
async def test_each_retriever_finds_its_own_relations(switches: dict[str, bool], offered: list[str]) -> None:
    assert await retrieved(default(ArG, retrieve_k=1, **switches), facts=LIKE_THE_QUESTION) == offered


async def test_without_hypo_no_hypothetical_relations_are_requested() -> None:
    script, _ = await run(default(ArG, hypo=False))
    assert "arg.hypo" not in script.model.roles


async def test_without_relations_at_the_entity_all_relations_of_the_graph_are_searched() -> None:
    script, answer = await run(default(ArG), facts=[("Bob", "r", "x")])
    assert script.payloads("relations_listed")[0]["retrieved"] == [["which capital?", "person nationality"]]
    assert answer.status == "no_evidence"


async def test_the_relation_of_the_last_hop_is_only_offered_in_its_other_direction() -> None:
    facts = [("Film", "actor", "Ann"), ("Ann", "actor", "Zed"), ("Other", "actor", "Ann"), ("Ann", "born", "x")]

    def write(prompt: Any) -> str:
        everything = Generator(["actor", "born"], {})
        return relevant(prompt, *prompt.group) if prompt.role == "arg.relations" else everything(prompt)

    script, _ = await run(default(ArG, max_hops=2), write, facts=facts, topics=("Film",))
    second = script.payloads("relations_listed")[1]["retrieved"][0]
    assert sorted(second) == ["actor", "born"]
    heads = [prompt.tails for prompt in script.model.prompts if prompt.role == "arg.entities"]
    assert {walk.end for tails in heads[1:] for walk in tails} == {"Film", "Other", "x"}, "not Zed, by the same edge"


async def test_an_unnamed_node_is_not_left_by_the_inverse_of_the_last_relation() -> None:
    facts = [("Ann", "film", "m.1"), ("m.1", "movie", "Salt"), ("m.1", "film", "m.2")]
    script, _ = await run(default(ArG, max_hops=2), Generator(["film", "movie"], {}), facts=facts)
    assert script.payloads("relations_listed")[1]["retrieved"] == [["movie"]]


# Retrieval on demand (specification §4.5)


async def test_a_root_that_declines_retrieval_answers_at_once() -> None:
    replies = {"arg.retrieval": "[No Retrieval]Answer: Paris", "arg.answer": " Paris[Partially Useful][Utility:3]"}
    script = ScriptedTools(DictionaryGraph(FACTS), replies)
    answer = await default(ArG, force_answer=False).answer(question("which capital?", "Ann"), script.tools)
    assert script.model.roles == ["arg.retrieval", "arg.answer"]
    asked, answered = script.model.prompts
    assert [message.role for message in asked.messages()] == ["user"], "the model begins its own turn"
    assert script.model.samplings[0].max_tokens == 16
    assert answered.messages()[-1].content == "[No Retrieval]Answer:"
    assert (texts(answer), answer.predictions[0].score) == (["Paris"], pytest.approx(1 + 0.5 * 1))
    assert (answer.status, script.graph.lookups.total()) == ("no_evidence", 0)
    assert script.payloads("retrieval_declined") == [{"hop": 0, "nodes": 1}]


async def test_a_declined_root_without_a_readable_answer_is_asked_once() -> None:
    script = ScriptedTools(DictionaryGraph(FACTS), {"arg.retrieval": "[No Retrieval]", "arg.answer": "[Utility:1]"})
    answer = await default(ArG).answer(question("which capital?", "Ann"), script.tools)
    assert (script.model.roles, answer.predictions) == (["arg.retrieval", "arg.answer"], ())


@pytest.mark.parametrize("reply", ["", "[Retrieve Entity]", "[Retrieve Relation][No Retrieval]", "I would say Paris"])
async def test_every_other_reply_at_the_root_retrieves(reply: str) -> None:
    script = ScriptedTools(DictionaryGraph(FACTS), {"arg.retrieval": reply}, write=TWO_HOPS)
    assert texts(await default(ArG).answer(question("which capital?", "Ann"), script.tools)) == ["Ann City"]
    assert script.payloads("retrieval_declined") == []


@pytest.mark.parametrize(("retrieval", "given"), [("model", ["Annland"]), ("always", ["Ann City"])])
async def test_a_branch_that_declines_after_its_relations_is_answered_unless_each_branch_retrieves(
    retrieval: Any, given: list[str]
) -> None:
    def write(prompt: Any) -> str:
        if prompt.role == "arg.relations" and prompt.walks[0].length:
            return f"{CAPITAL}{FULLY}{answers('Annland')}"
        return " Annland[Fully Useful][Utility:5]" if prompt.role == "arg.answer" else TWO_HOPS(prompt)

    script, answer = await run(default(ArG, retrieval=retrieval), write)
    assert texts(answer) == given
    assert ("arg.retrieval" in script.model.roles) == (retrieval == "model")
    if retrieval == "model":
        assert script.model.last("arg.answer").messages()[-1].content.endswith(f"{CAPITAL}{FULLY}[No Retrieval]Answer:")
        assert script.payloads("retrieval_declined") == [{"hop": 2, "nodes": 1}]
        assert answer.predictions[0].score == pytest.approx(1 + 1 + 0.5 * 2), "with the score of the first hop"


# Parsing, filters and leaves


async def test_unrelevant_relations_are_not_followed() -> None:
    script, answer = await run(default(ArG), Generator([], {}))
    assert script.model.roles == ["arg.retrieval", "arg.hypo", "arg.relations", "arg.answer"]
    assert (texts(answer), answer.status) == (["forced"], "no_evidence")


async def test_without_relevant_tails_the_next_hop_starts_from_the_same_entities_with_other_relations() -> None:
    def write(prompt: Any) -> str:
        if prompt.role == "arg.entities" and prompt.relation == NATIONALITY:
            return f"Annland{NOT}{REASONABLE}{ON}"
        return Generator([NATIONALITY, BORN], {BORN: f"{REASONABLE}{answers('Mirra')}"})(prompt)

    script, answer = await run(default(ArG, beam=1, max_hops=2), write)
    assert script.payloads("relations_listed")[1]["retrieved"] == [[BORN]]
    assert texts(answer) == ["Mirra"]


async def test_a_branch_whose_tails_are_all_unrelevant_ends_by_choice() -> None:
    ends = {NATIONALITY: f"{REASONABLE}{ON}", BORN: f"{REASONABLE}{answers('Mirra')}"}

    def write(prompt: Any) -> str:
        if prompt.role == "arg.entities" and prompt.relation == NATIONALITY:
            return f"Annland{NOT}{REASONABLE}{ON}"
        return Generator([NATIONALITY, BORN], ends)(prompt)

    script, answer = await run(default(ArG, on_all_unrelevant="end"), write)
    assert script.payloads("expanded")[0]["grown"] == []
    assert (script.model.roles.count("arg.relations"), texts(answer)) == (1, ["Mirra"])


async def test_an_answer_beside_unrelevant_tails_is_kept() -> None:
    _, answer = await run(
        default(ArG, on_all_unrelevant="end"),
        lambda prompt: (
            f"Annland{NOT}{REASONABLE}{answers('guess')}"
            if prompt.role == "arg.entities"
            else Generator([NATIONALITY], {})(prompt)
        ),
    )
    assert texts(answer) == ["guess"]


@pytest.mark.parametrize(("choice", "given"), [("leaf", ["guess"]), ("drop", ["forced"])])
async def test_an_unreasonable_path_is_a_leaf_or_dropped(choice: Any, given: list[str]) -> None:
    ends = {NATIONALITY: f"[Unreasonable]{answers('guess')}"}
    script, answer = await run(default(ArG, on_unreasonable=choice), Generator([NATIONALITY], ends))
    assert texts(answer) == given
    assert script.model.roles.count("arg.hypo") == 1


async def test_an_unreasonable_path_without_answers_is_not_followed() -> None:
    script, _ = await run(default(ArG), Generator([NATIONALITY], {NATIONALITY: f"[Unreasonable]{ON}"}))
    assert script.model.roles.count("arg.relations") == 1


async def test_an_incomplete_segment_is_a_leaf_without_an_answer() -> None:
    script, answer = await run(default(ArG, force_answer=False), Generator([NATIONALITY], {NATIONALITY: REASONABLE}))
    assert script.payloads("expanded")[0]["leaves"] == 1
    assert (answer.predictions, answer.status) == ((), "no_evidence")


async def test_a_segment_that_cannot_be_parsed_is_regenerated_max_regenerate_times() -> None:
    broken = Generator([NATIONALITY], {NATIONALITY: REASONABLE})
    counts = [
        (await run(default(ArG, max_regenerate=n), broken))[0].model.roles.count("arg.entities") for n in (0, 1, 2)
    ]
    assert counts == [1, 2, 3]


async def test_at_the_depth_limit_an_answer_is_forced_unless_switched_off() -> None:
    script, answer = await run(default(ArG, max_hops=1))
    assert (script.model.roles.count("arg.answer"), texts(answer)) == (1, ["forced"])
    assert answer.evidence == ((Triple("Ann", NATIONALITY, "Annland"),),)
    script, answer = await run(default(ArG, max_hops=1, force_answer=False))
    assert ("arg.answer" in script.model.roles, texts(answer)) == (False, [])


async def test_unnamed_nodes_are_shown_as_one_placeholder() -> None:
    facts = [*(("Ann", "film", f"m.{n}") for n in range(5)), *((f"m.{n}", "movie", f"Film {n}") for n in range(5))]
    follow = Generator(["film", "movie"], {"movie": f"{REASONABLE}{answers('x')}"})
    script, answer = await run(default(ArG), follow, facts=facts)
    first, *others = [prompt for prompt in script.model.prompts if prompt.role == "arg.entities"]
    assert first.text_so_far.endswith("<paragraph>(Ann, film, Unknown Entity)</paragraph>")
    assert [prompt.source.end for prompt in others] == ["m.0", "m.1", "m.2"]
    assert {node for chain in answer.evidence for fact in chain for node in fact} >= {"m.0", "Film 0"}


@pytest.mark.parametrize(("order", "shown"), [("connected", ["n8", "n9"]), ("id", ["n0", "n1"])])
async def test_tails_with_more_relations_are_shown_first_unless_ordered_by_id(order: Any, shown: list[str]) -> None:
    facts = [*(("Ann", NATIONALITY, f"n{n}") for n in range(10)), ("n8", "a", "x"), ("n9", "a", "x")]
    script, _ = await run(default(ArG, tail_order=order, max_tails_shown=2), facts=facts)
    prompt: Any = next(prompt for prompt in script.model.prompts if prompt.role == "arg.entities")
    assert list(prompt.by_name)[:2] == shown
    assert script.graph.lookups["relations"] == 2, "the next hop reuses the relations that the order needs"


# Scores and the answer list (specification §4.6, §4.7)


TWO_LEAVES = Generator(
    [NATIONALITY, BORN],
    {
        NATIONALITY: f"[Partially Reasonable]{answers('Annland', 'both', utility=5)}",
        BORN: f"{REASONABLE}{answers('Mirra', 'both', utility=2)}",
    },
)


async def scored(**changed: Any) -> dict[str, float | None]:
    _, answer = await run(default(ArG, **changed), TWO_LEAVES)
    return {prediction.text: prediction.score for prediction in answer.predictions}


@pytest.mark.parametrize(
    ("changed", "annland", "mirra"),
    [
        ({}, 0.5 + 1 + 1, 1 + 1 + 0.25),
        ({"k1": 2.0, "k2": 0.0}, 1 + 1, 2 + 1),
        ({"score": score_without("rationality")}, 1 + 1 + 1, 1 + 1 + 0.25),
        ({"score": score_without("relevance")}, 0.5 + 1 + 1, 1 + 1 + 0.25),
        ({"score": score_without("utility")}, 0.5 + 1, 1 + 1),
        ({"score": score_without("sequence")}, 0.5 + 1, 1 + 0.25),
        ({"score": score_without("relevance", "rationality", "sequence")}, 1 + 1, 1 + 0.25),
        ({"utility_weights": "linear"}, 0.5 + 1 + 0.5, 1 + 1 + 0.2),
        ({"seq_score": "mean_logprob"}, 0.5 + 0 + 1, 1 + 0 + 0.25),
        ({"aggregate": "code"}, 0.25 + 0.5 + 1, 0.5 + 0.5 + 0.25),
        ({"aggregate": "code", "score_at": "leaf"}, 0.25 + 1 + 1, 0.5 + 1 + 0.25),
        ({"probabilities": "hard"}, 0.5 + 0.5, 1 + 0.2),
    ],
)
async def test_each_term_of_the_score_counts_as_specified(
    changed: dict[str, Any], annland: float, mirra: float
) -> None:
    found = await scored(**changed)
    assert (found["Annland"], found["Mirra"]) == pytest.approx((annland, mirra))
    assert list(found) == (["Annland", "both", "Mirra"] if annland >= mirra else ["Mirra", "both", "Annland"])


# S_seq: a model that writes three tokens with probabilities of its own

EACH = {"certain": (0.0, 0.0), "doubtful": (math.log(0.5), math.log(0.125))}
"""The log-probabilities of the two halves of a segment of tails."""


def doubting(script: ScriptedTools, doubted: str) -> None:
    """Let the scripted model report probabilities of 0.5 and 0.125 for the segments of one relation, else of 1."""
    complete = script.model._complete

    async def weighed(prompt: Any, sampling: Any, *, last: bool) -> Completion:
        text = (await complete(prompt, sampling, last=last)).text
        doubtful = getattr(prompt, "relation", "") == doubted or doubted in getattr(prompt, "group", ())
        first, second = EACH["doubtful" if doubtful else "certain"]
        half = len(text) // 2
        return Completion(text, logprobs=({text[:half]: first}, {text[half:]: second}))

    script.model._complete = weighed  # type: ignore[method-assign]


async def scores_of(doubted: str, write: Any = TWO_HOPS, **changed: Any) -> list[float | None]:
    script = ScriptedTools(DictionaryGraph(FACTS), write=write)
    doubting(script, doubted)
    answer = await default(ArG, **changed).answer(question("which capital?", "Ann"), script.tools)
    return [prediction.score for prediction in answer.predictions]


@pytest.mark.parametrize(
    ("changed", "score"),
    [
        # Two hops with S_rel · S_rat = 1. The mean probability is √(0.5 · 0.125) = 0.25 in the first segment, else 1.
        ({}, 1 + (0.25 + 1) / 2 + 1),
        ({"score_at": "leaf"}, 1 + 1 + 1),
        ({"seq_score": "cumulative"}, 1 + (0.5 * 0.125 + 1) / 2 + 1),
        ({"seq_score": "mean_logprob"}, 1 + (math.log(0.25) + 0) / 2 + 1),
        ({"seq_score": "none"}, 1 + 0 + 1),
        ({"score": score_without("sequence")}, 1 + 0 + 1),
        ({"aggregate": "sum"}, 2 + (0.25 + 1) + 1),
        ({"aggregate": "code"}, (0.5 + 1) / 3 + (0.125 + 1) / 3 + 1),
    ],
)
async def test_the_probability_of_a_segment_counts_at_every_hop_or_at_the_leaf(
    changed: dict[str, Any], score: float
) -> None:
    assert await scores_of(NATIONALITY, **changed) == [pytest.approx(score)]


async def test_the_text_of_a_forced_answer_counts_as_one_more_segment() -> None:
    (score,) = await scores_of(NATIONALITY, Generator([NATIONALITY], {}), max_hops=1)
    assert score == pytest.approx(1 + (0.25 + 1) / 2 + 0.5 * 1.5)


async def test_the_beam_sees_the_probability_of_a_segment_at_every_hop() -> None:
    """Both relations are equally relevant. The doubtful one comes first, and loses the only place of the beam."""
    both = Generator([NATIONALITY, BORN], {})
    for score_at, kept in (("every_hop", "Mirra"), ("leaf", "Annland")):
        script = ScriptedTools(DictionaryGraph(FACTS), write=both)
        doubting(script, NATIONALITY)
        await default(ArG, beam=1, max_hops=1, score_at=score_at).answer(question("which?", "Ann"), script.tools)
        forced: Any = script.model.last("arg.answer")
        assert [walk.end for walk in forced.walks] == [kept]


# The rank of groups of relations (specification §4.6)


def group(name: str, relevance: float, *, path: float = 0.0, mean_logprob: float = 0.0) -> Node:
    return Node("", (), score=path, relations={name: relevance, "weaker": relevance / 2}, mean_logprob=mean_logprob)


GROUPS = [
    group("first", 0.2, path=0.5, mean_logprob=-0.9),
    group("second", 0.9, path=0.1, mean_logprob=-0.1),
    group("third", 0.6, path=0.5, mean_logprob=-0.2),
]
"""By path score plus relevance: 0.7, 1.0, 1.1. By path score plus mean log-probability: -0.4, 0.0, 0.3."""


@pytest.mark.parametrize(
    ("rank", "removed", "order"),
    [
        ("relevance", (), ["third", "second", "first"]),
        ("relevance", ("relevance",), ["first", "third", "second"]),
        ("parent", (), ["third", "first", "second"]),
        ("parent", ("relevance",), ["first", "third", "second"]),
        ("parent_seq", (), ["third", "second", "first"]),
        ("parent_seq", ("relevance",), ["third", "second", "first"]),
        ("parent_seq", ("sequence",), ["first", "third", "second"]),
    ],
)
def test_groups_of_relations_are_ranked_without_any_score_that_was_removed(
    rank: Any, removed: tuple[str, ...], order: list[str]
) -> None:
    ranked = relation_beam(GROUPS, 0, rank, score_without(*removed))
    assert [next(iter(node.relations)) for node in ranked] == order
    assert relation_beam(GROUPS, 2, rank, score_without(*removed)) == ranked[:2]


@pytest.mark.parametrize(("rank", "followed"), [("relevance", BORN), ("parent", BORN), ("parent_seq", NATIONALITY)])
async def test_without_relevance_the_search_keeps_the_order_of_retrieval(rank: Any, followed: str) -> None:
    """The second group is fully relevant and the first one partially, with a relation per group and a beam of one."""

    def write(prompt: Any) -> str:
        if prompt.role == "arg.relations":
            label = FULLY if BORN in prompt.group else PARTIALLY
            return f"{prompt.group[0]}{label}[Retrieve Entity]"
        return Generator([], {})(prompt)

    followed_by: dict[bool, list[str]] = {}
    for relevance in (True, False):
        arg = default(
            ArG,
            beam=1,
            group_size=1,
            max_hops=1,
            relation_rank=rank,
            score=score_without(*() if relevance else ("relevance",)),
        )
        script, _ = await run(arg, write)
        followed_by[relevance] = [prompt.relation for prompt in script.model.prompts if prompt.role == "arg.entities"]
    assert followed_by == {True: [followed], False: [NATIONALITY]}


async def test_answers_come_from_the_best_leaves() -> None:
    assert list(await scored(answer_leaves=1)) == ["Annland", "both"]
    assert list(await scored(answer_leaves=3)) == ["Annland", "both", "Mirra"]


# Probabilities (specification §4.6, §4.8)


async def test_a_model_without_log_probabilities_is_an_error_that_names_the_fix() -> None:
    script = ScriptedTools(DictionaryGraph(FACTS), write=TWO_HOPS)
    complete = script.model._complete

    async def silent(prompt: Any, sampling: Any, *, last: bool) -> Completion:
        return Completion((await complete(prompt, sampling, last=last)).text)

    script.model._complete = silent  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"method\.probabilities=hard"):
        await default(ArG).answer(question("which capital?", "Ann"), script.tools)
    answer = await default(ArG, probabilities="hard").answer(question("which capital?", "Ann"), script.tools)
    assert texts(answer) == ["Ann City"]
    assert script.model.samplings[-1].logprobs is None


async def test_exact_probabilities_are_requested_for_classes_that_were_not_fully_reported() -> None:
    script = ScriptedTools(DictionaryGraph(FACTS), write=TWO_HOPS)
    asked: list[tuple[str, tuple[str, ...]]] = []

    async def choose(prompt: Any, choices: Sequence[str], sampling: Sampling) -> dict[str, float]:
        asked.append((prompt.messages()[-1].content, tuple(choices)))
        rest = 0.2 / (len(choices) - 1)
        return {choice: 0.8 if choice == prompt.token.text else rest for choice in choices}

    script.model.choose = choose  # type: ignore[method-assign]
    answer = await default(ArG, probabilities="exact").answer(question("which capital?", "Ann"), script.tools)
    tokens = 2 + 2 + 3 + 3  # two relations, a tail and the path; three relations, a tail, the path and the utility
    assert len(asked) == tokens
    assert asked[0][0].endswith(f"</paragraph>{NATIONALITY}")
    s = 0.8 + 0.5 * 0.1
    utility = 0.8 * 2 + 0.05 * (0 + 0.5 + 1 + 1.5)
    assert answer.predictions[0].score == pytest.approx(s * s * s + 1 + 0.5 * utility)


# No topic entity, limits, and pickling


@pytest.mark.parametrize("generator", ["finetuned", "prompted"])
async def test_without_a_topic_entity_the_model_answers_alone(generator: Any) -> None:
    script, answer = await run(default(ArG, generator=generator), topics=())
    assert script.model.roles == ["arg.answer"]
    assert (texts(answer), answer.status) == (["forced"], "no_topic_entity")
    assert script.graph.lookups.total() == 0


@pytest.mark.parametrize("calls", range(8))
async def test_a_cap_on_calls_forces_one_answer(calls: int) -> None:
    script = ScriptedTools(DictionaryGraph(FACTS), write=TWO_HOPS)
    script.model.max_calls = calls
    answer = await default(ArG).answer(question("which capital?", "Ann"), script.tools)
    assert texts(answer) == (["Ann City"] if calls == 7 else ["forced"])
    assert len(script.model.roles) == (7 if calls == 7 else calls + 1)
    assert answer.status == ("ok" if calls == 7 else "budget_exhausted")
    assert bool(answer.evidence) == (calls >= 4)


@pytest.mark.parametrize("lookups", range(6))
async def test_a_cap_on_lookups_forces_one_answer(lookups: int) -> None:
    script = ScriptedTools(DictionaryGraph(FACTS), write=TWO_HOPS)
    script.graph.max_lookups = lookups
    answer = await default(ArG).answer(question("which capital?", "Ann"), script.tools)
    assert (texts(answer), answer.status) == (["forced"], "budget_exhausted")


async def test_segments_written_before_a_cap_still_count() -> None:
    script = ScriptedTools(DictionaryGraph(FACTS), write=TWO_LEAVES)
    script.model.max_calls = 4
    answer = await default(ArG).answer(question("which capital?", "Ann"), script.tools)
    assert len(answer.predictions) == 2
    assert answer.status == "budget_exhausted"


async def test_the_hops_of_a_level_are_capped() -> None:
    script, _ = await run(
        default(ArG, max_hops=1), Generator(["r0", "r1"], {}), facts=wide(2, 1), caps=FixedCaps(max_frontier=1)
    )
    assert script.model.roles.count("arg.entities") == 1
    assert script.payloads("cap_hit") == [{"cap": "max_frontier"}]


async def test_evidence_is_capped() -> None:
    script, answer = await run(default(ArG), caps=FixedCaps(max_evidence_triples=1))
    assert answer.evidence == ()
    assert script.payloads("cap_hit") == [{"cap": "max_evidence_triples"}]


def test_a_method_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(default(ArG, beam="exhaustive"))) == default(ArG, beam="exhaustive")
