"""The tools of a method: call keys, the parsing policy, and trace steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import orjson
import pytest

from pipeline.config import default
from pipeline.engine.budget import Budget
from pipeline.engine.call_cache import CallCache
from pipeline.engine.question_record import QuestionRecord
from pipeline.engine.tools import QuestionGraph, QuestionModel, content_hash
from pipeline.errors import OverLimitError, ParseError, ServiceError
from pipeline.kg.interface import Neighbours, batch
from pipeline.llm.interface import OneModel
from pipeline.llm.prompt import Call, Candidate, Completion, Message, Prompt, Sampling, Template
from pipeline.types import LiteralNode, Relation

TEMPLATE = Template(system="Answer with yes or no.", user="Question: {{question}}")
GREEDY = Sampling()
WARM = Sampling(temperature=0.7)


@dataclass(frozen=True)
class YesNo(Prompt[bool]):
    """A minimal prompt."""

    role = "test.yes_no"
    question: str
    fixed: Template = TEMPLATE

    @property
    def template(self) -> Template:
        return self.fixed

    def inputs(self) -> dict[str, str]:
        return {"question": self.question}

    def parse(self, text: str) -> bool:
        if text not in {"yes", "no"}:
            raise ParseError("the reply is neither yes nor no")
        return text == "yes"

    def fallback(self, text: str) -> bool:
        return False


class ScriptedModel(OneModel):
    """A test double that replies from a list, in order, and keeps the calls."""

    def __init__(self, *replies: str | Exception, identity: str = "scripted") -> None:
        self.identity = identity
        self.calls: list[Call] = []
        self.candidates: tuple[Candidate, ...] = ()
        self._replies = list(replies)

    async def complete(self, call: Call) -> Completion:
        self.calls.append(call)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return Completion(reply, "stop", 10, 1, candidates=self.candidates)

    async def choose(self, call: Call) -> Completion:
        self.calls.append(call)
        return Completion(call.choices[0], probabilities={choice: 1 / len(call.choices) for choice in call.choices})


def model_of_question(
    model: ScriptedModel, *, seed: int = 0, made: Mapping[str, Completion] | None = None
) -> tuple[QuestionModel, QuestionRecord]:
    record = QuestionRecord(default(Budget), inf)
    cache = CallCache(made_in_this_run=made or {}, from_earlier_runs={})
    return QuestionModel(model, cache, record, seed=seed, on_template=lambda *_: None), record


async def test_a_good_reply_is_parsed_at_once() -> None:
    model = ScriptedModel("yes")
    llm, record = model_of_question(model)
    assert await llm.ask(YesNo("Is it?"), GREEDY) is True
    (step,) = record.steps
    assert (step.role, step.completion, step.error, step.shared) == ("test.yes_no", "yes", None, False)
    assert orjson.loads(step.inputs) == {"question": "Is it?"}
    assert record.counters.llm_calls == 1
    assert record.counters.prompt_tokens == 10


async def test_a_repeated_call_names_the_error_and_keeps_the_temperature() -> None:
    model = ScriptedModel("perhaps", "yes")
    llm, record = model_of_question(model)
    assert await llm.ask(YesNo("Is it?"), WARM) is True
    first, second = model.calls
    assert "neither yes nor no" in second.messages[-1].content
    assert second.messages[-1].content.startswith(first.messages[-1].content)
    assert second.sampling == first.sampling
    assert record.steps[0].error == "the reply is neither yes nor no"
    assert record.steps[1].parent == 0
    assert record.counters.parse_failures == 1


async def test_read_returns_the_completion_that_the_value_was_parsed_from() -> None:
    llm, _ = model_of_question(ScriptedModel("Well ...", "yes", "Hm."))
    value, completion = await llm.read(YesNo("Is it?"), GREEDY)
    assert (value, completion.text) == (True, "yes")
    value, completion = await llm.read(YesNo("Was it?"), GREEDY, retries=0)
    assert (value, completion.text) == (False, "Hm.")


async def test_after_the_retries_the_fallback_is_returned_and_every_text_is_in_the_trace() -> None:
    llm, record = model_of_question(ScriptedModel("a", "b", "c"))
    assert await llm.ask(YesNo("Is it?"), GREEDY, retries=2) is False
    assert [step.completion for step in record.steps if step.kind == "llm"] == ["a", "b", "c"]
    assert record.steps[-1].role == "parse_failed"
    assert record.counters.parse_failures == 3


async def test_a_reply_that_a_limit_of_the_method_refuses_is_not_unreadable() -> None:
    @dataclass(frozen=True)
    class Short(YesNo):
        def parse(self, text: str) -> bool:
            raise OverLimitError("the path is too long")

    model = ScriptedModel("a", "b")
    llm, record = model_of_question(model)
    assert await llm.ask(Short("Is it?"), GREEDY, retries=1) is False
    assert "the path is too long" in model.calls[1].messages[-1].content
    assert "over a limit" not in model.calls[1].messages[-1].content, "the model is told the defect alone"
    assert [step.error for step in record.steps[:2]] == ["over a limit of the method: the path is too long"] * 2
    assert record.steps[-1].role == "over_limit"
    assert record.counters.parse_failures == 0


async def test_equal_calls_of_a_question_are_different_samples() -> None:
    model = ScriptedModel("yes", "no", "yes")
    llm, record = model_of_question(model)
    assert [await llm.ask(YesNo("Is it?"), WARM) for _ in range(3)] == [True, False, True]
    assert len({call.key for call in model.calls}) == 3
    assert len({call.seed for call in model.calls}) == 3
    assert [orjson.loads(step.sampling)["ordinal"] for step in record.steps] == [0, 1, 2]


async def test_the_same_program_makes_the_same_keys() -> None:
    keys = []
    for _ in range(2):
        model = ScriptedModel("yes", "no")
        llm, _ = model_of_question(model)
        await llm.ask(YesNo("Is it?"), WARM)
        await llm.ask(YesNo("Is it not?"), WARM)
        keys.append([call.key for call in model.calls])
    assert keys[0] == keys[1]


def test_the_key_depends_on_everything_that_decides_an_answer() -> None:
    messages = (Message("user", "x"),)
    variants = [
        content_hash("m", messages, WARM, (), 0),
        content_hash("other model", messages, WARM, (), 0),
        content_hash("m", (Message("user", "y"),), WARM, (), 0),
        content_hash("m", (Message("system", "x"),), WARM, (), 0),
        content_hash("m", messages, Sampling(temperature=0.8), (), 0),
        content_hash("m", messages, Sampling(temperature=0.7, max_tokens=7), (), 0),
        content_hash("m", messages, Sampling(temperature=0.7, stop=("\n",)), (), 0),
        content_hash("m", messages, WARM, ("a", "b"), 0),
        content_hash("m", messages, WARM, (), 1),
    ]
    assert len(set(variants)) == len(variants)


def test_at_temperature_zero_two_seeds_share_their_calls() -> None:
    messages = (Message("user", "x"),)
    assert content_hash("m", messages, GREEDY, (), 0) == content_hash("m", messages, GREEDY, (), 1)


async def test_a_failed_call_is_a_step_with_its_error() -> None:
    llm, record = model_of_question(ScriptedModel(ServiceError("server is down")))
    with pytest.raises(ServiceError):
        await llm.ask(YesNo("Is it?"), GREEDY)
    assert record.steps[0].error == "ServiceError: server is down"
    assert record.steps[0].completion is None
    assert record.steps[0].duration_s > 0
    assert record.steps[0].own_s == 0, "pauses and further attempts are no time of a model that answered"
    assert record.finish().critical_s == 0


async def test_choose_returns_the_probabilities_and_traces_them() -> None:
    llm, record = model_of_question(ScriptedModel())
    assert await llm.choose(YesNo("Is it?"), ["yes", "no"], GREEDY) == {"yes": 0.5, "no": 0.5}
    assert orjson.loads(record.steps[0].probabilities) == {"yes": 0.5, "no": 0.5}


async def test_several_candidates_are_one_call_and_one_step() -> None:
    model = ScriptedModel("yes")
    model.candidates = (Candidate("yes", score=-0.5), Candidate("no", "length"))
    llm, record = model_of_question(model)
    beams = Sampling(candidates=2, search="beam")
    completion = await llm.complete(YesNo("Is it?"), beams)
    (step,) = record.steps
    assert completion.candidates == model.candidates
    assert orjson.loads(step.candidates or "") == [
        {"text": "yes", "finish_reason": "stop", "score": -0.5},
        {"text": "no", "finish_reason": "length", "score": None},
    ]
    assert orjson.loads(step.sampling or "")["sampling"] == {**orjson.loads(orjson.dumps(beams))}
    assert (record.counters.llm_calls, record.counters.completion_tokens) == (1, 1)


@pytest.mark.parametrize(("texts", "failures"), [(("yes", "maybe"), 0), (("perhaps", "maybe"), 1)])
async def test_a_reply_of_which_no_candidate_can_be_parsed_is_unreadable(texts: tuple[str, ...], failures: int) -> None:
    model = ScriptedModel(texts[0])
    model.candidates = tuple(map(Candidate, texts))
    llm, record = model_of_question(model)
    completion = await llm.complete(YesNo("Is it?"), Sampling(candidates=2, search="beam"))
    assert [candidate.text for candidate in completion.n_best] == list(texts), "the method still gets the texts"
    assert record.counters.parse_failures == failures
    assert bool(record.steps[0].error) is bool(failures)
    assert [step.role for step in record.steps[1:]] == ["parse_failed"] * failures


def test_candidates_count_in_the_key_and_one_candidate_keeps_the_old_key() -> None:
    messages = (Message("user", "Is it?"),)
    sampled = [
        Sampling(candidates=3, search="beam"),
        Sampling(candidates=5, search="beam"),
        Sampling(candidates=3, search="beam", length_penalty=0.5),
        Sampling(candidates=3, temperature=1.0),
        Sampling(temperature=1.0),
        Sampling(),
    ]
    hashes = {content_hash("model", messages, sampling, (), 0) for sampling in sampled}
    assert len(hashes) == len(sampled)
    # The key of version 0.1.0, so that its runs can be resumed and reused.
    assert content_hash("model", messages, Sampling(), (), 0).hex() == "f137b09c005717a8ad235b043c6b249b"
    assert content_hash("model", messages, Sampling(search="beam"), (), 0).hex() == "f137b09c005717a8ad235b043c6b249b"


async def test_the_exact_prompt_can_be_rebuilt_from_template_and_inputs() -> None:
    model = ScriptedModel("perhaps", "yes")
    llm, record = model_of_question(model)
    await llm.ask(YesNo("braces {{question}} and {question}?"), GREEDY)
    rebuilt = [TEMPLATE.render(orjson.loads(step.inputs)) for step in record.steps]
    assert rebuilt == [call.messages for call in model.calls]


class TinyGraph:
    """A test double with fixed answers."""

    async def relations(self, ids):
        return batch({id: [Relation("r", "out")] for id in ids}, queries=1, endpoint="http://replica")

    async def neighbours(self, hops, limit):
        return batch({hop: Neighbours(("a", "b"), truncated=True) for hop in hops}, queries=2)

    async def inverses(self):
        return {"r": "r_of", "r_of": "r"}


async def test_lookups_are_counted_and_traced() -> None:
    record = QuestionRecord(default(Budget), inf)
    graph = QuestionGraph(TinyGraph(), record)  # type: ignore[arg-type]
    await graph.relations(["m.1", "m.2"])
    await graph.neighbours([("m.1", Relation("r", "in"))], 500)
    relations, neighbours = record.steps
    assert (relations.role, relations.query, relations.rows, relations.endpoint) == (
        "relations",
        "m.1\nm.2",
        2,
        "http://replica",
    )
    assert (neighbours.query, neighbours.rows, neighbours.truncated) == ("m.1 in r", 2, True)
    assert (record.counters.kg_lookups, record.counters.kg_queries, record.counters.kg_rows) == (2, 3, 4)
    assert record.followed == {"r", "r_of"}  # the inverse states the same fact
    assert all(earlier.start_s <= later.start_s for earlier, later in pairwise(record.steps))


async def test_one_id_is_not_looked_up_letter_by_letter() -> None:
    graph = QuestionGraph(TinyGraph(), QuestionRecord(default(Budget), inf))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a lookup takes a list of ids, not one text: \['m\.1'\]"):
        await graph.relations("m.1")


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["m.1", LiteralNode("1987-02-05")], "a lookup takes ids, and '1987-02-05' is a literal: leave out nodes"),
        ({"m.1"}, "a lookup takes a list, not a set"),
        (iter(["m.1"]), "a lookup takes a list, not a list_iterator"),
    ],
)
async def test_what_cannot_be_looked_up_is_named(ids: Any, said: str) -> None:
    graph = QuestionGraph(TinyGraph(), QuestionRecord(default(Budget), inf))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"^{said}"):
        await graph.relations(ids)


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_below_one_is_refused(limit: int) -> None:
    graph = QuestionGraph(TinyGraph(), QuestionRecord(default(Budget), inf))  # type: ignore[arg-type]
    for lookup in (graph.neighbours([("m.1", Relation("r", "in"))], limit), graph.find_by_name(["Ann"], limit)):
        with pytest.raises(ValueError, match=f"^a lookup takes a limit of 1 or more, not {limit}$"):
            await lookup


async def test_an_empty_lookup_costs_nothing() -> None:
    record = QuestionRecord(default(Budget), inf)
    assert await QuestionGraph(TinyGraph(), record).relations([]) == {}  # type: ignore[arg-type]
    assert record.steps == []
    assert record.counters.kg_lookups == 0
