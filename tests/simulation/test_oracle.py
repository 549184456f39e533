"""The oracle knows the gold context, errs at the given rates, and does so reproducibly."""

from __future__ import annotations

import asyncio
import gc
import math
import pickle
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipeline.config import default
from pipeline.datasets.custom import Custom
from pipeline.datasets.metaqa import MetaQA
from pipeline.errors import ParseError, UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.llm.prompt import Call, Sampling
from pipeline.simulation.gold_context import GoldContext, find_gold_context
from pipeline.simulation.oracle import Oracle, QuestionOracle, damage
from pipeline.simulation.registry import Simulator, simulates
from pipeline.types import Entity, Example, Gold, GoldAnswer, LiteralNode, Node, Question, Relation, Triple
from tests.llm.support import Ask
from tests.support import refuse

GOLD = Gold(answers=(GoldAnswer("Ada Lovelace", id="m.ada", aliases=("Countess of Lovelace",)), GoldAnswer("1815.0")))
EXAMPLE = Example(Question("q1", "test", "dev", "Who wrote the first program?"), GOLD)


class Quoted(Ask):
    """Expects the answer in brackets and quotes."""

    role = "test.quoted"

    def parse(self, text: str) -> str:
        if not (text.startswith('["') and text.endswith('"]') and text.count("\n") == 0):
            raise ParseError("not a name in brackets")
        return text[2:-2]


@simulates(Quoted)
class QuotedSimulator(Simulator[Quoted]):
    """Replies with the first gold answer, or errs with another name."""

    def write_as_oracle(self, prompt: Quoted, gold_context: GoldContext, error_rng: Random | None) -> str:
        gold = gold_context.gold.answers[0].name
        return f'["{error_rng.choice(["Charles Babbage", "Alan Turing"]) if error_rng else gold}"]'


@dataclass(frozen=True)
class Labelled(Quoted):
    """Expects a name and a label."""


@simulates(Labelled)
class LabelledSimulator(Simulator[Labelled]):
    alternatives = (("[Good]", "[Fair]", "[Poor]"),)

    def write_as_oracle(self, prompt: Labelled, gold_context: GoldContext, error_rng: Random | None) -> str:
        return "name[Good]"


@dataclass(frozen=True)
class Aided(Quoted):
    """Also shows references."""

    references: str

    def inputs(self) -> dict[str, str]:
        return {"question": self.question, "references": self.references}


@simulates(Aided)
class AidedSimulator(QuotedSimulator):
    seed_excluded_inputs = frozenset({"references"})


def call(seed: int, choices: tuple[str, ...] = ()) -> Call:
    prompt = Quoted("Who?")
    return Call(prompt, prompt.messages(), Sampling(), key=str(seed), seed=seed, choices=choices, nonce=str(seed))


class NoGraph:
    """Stands in for the graph of a question without topic entities, for which no lookup is made."""

    def __init__(self, fingerprint: str = "0-0") -> None:
        self.fingerprint = fingerprint


def oracle_of_example(**options: Any) -> QuestionOracle:
    kg: Any = NoGraph()
    return default(Oracle, **options).for_question(EXAMPLE, kg)


NAMES = ("Ada Lovelace", "Charles Babbage", "Alan Turing")


def parsed(text: str) -> str | None:
    try:
        return Quoted("Who?").parse(text)
    except ParseError:
        return None


async def replies(oracle: QuestionOracle, count: int = 2000) -> list[str]:
    return [(await oracle.complete(call(seed))).text for seed in range(count)]


class TestCompleting:
    async def test_a_perfect_model_writes_the_gold_answer(self) -> None:
        assert set(await replies(oracle_of_example(), 50)) == {'["Ada Lovelace"]'}

    async def test_errors_are_well_formed_and_occur_at_the_given_rate(self) -> None:
        wrong = [
            name
            for text in await replies(oracle_of_example(error_rate=0.15))
            if (name := parsed(text)) != "Ada Lovelace"
        ]
        assert len(wrong) / 2000 == pytest.approx(0.15, abs=0.03)
        assert set(wrong) == {"Charles Babbage", "Alan Turing"}

    async def test_damage_occurs_at_the_given_rate_in_every_form(self) -> None:
        damaged = [text for text in await replies(oracle_of_example(malformed_rate=0.3)) if text != '["Ada Lovelace"]']
        assert len(damaged) / 2000 == pytest.approx(0.3, abs=0.04)
        assert "" in damaged
        assert '"Ada Lovelace"' in damaged
        assert "[\u201dAda Lovelace\u201d]" in damaged
        assert any(text.startswith("```") for text in damaged)
        assert sum(parsed(text) is None for text in damaged) > 300

    async def test_damage_does_not_change_which_calls_err(self) -> None:
        both = await replies(oracle_of_example(error_rate=0.5, malformed_rate=0.5))
        only_errors = await replies(oracle_of_example(error_rate=0.5))
        pairs = [(parsed(text), parsed(other)) for text, other in zip(both, only_errors, strict=True)]
        assert all(name in (None, other) for name, other in pairs)
        assert {other for name, other in pairs if name is None} == {other for _, other in pairs}

    async def test_replies_do_not_depend_on_the_order_of_calls(self) -> None:
        options = {"error_rate": 0.3, "malformed_rate": 0.3}
        forwards = await replies(oracle_of_example(**options), 200)
        oracle = oracle_of_example(**options)
        backwards = [(await oracle.complete(call(seed))).text for seed in reversed(range(200))]
        assert forwards == backwards[::-1]
        assert len(set(forwards)) > 5

    async def test_a_repeated_call_gets_the_same_reply(self) -> None:
        oracle, asked = oracle_of_example(error_rate=0.5), call(3)
        assert {(await oracle.complete(asked)).text for _ in range(5)} == {(await oracle.complete(call(3))).text}

    async def test_candidates_are_a_right_reply_and_then_wrong_ones(self) -> None:
        drawn = replace(call(3), sampling=Sampling(candidates=4, search="beam"))
        found = await oracle_of_example().complete(drawn)
        texts = [each.text for each in found.candidates]
        assert texts[0] == found.text == '["Ada Lovelace"]'
        assert len(texts) == 4
        assert set(texts[1:]) <= {'["Charles Babbage"]', '["Alan Turing"]'}
        assert found.completion_tokens == sum(-(-len(text) // 4) for text in texts)

    async def test_candidates_are_damaged_one_by_one(self) -> None:
        oracle = oracle_of_example(malformed_rate=0.3)
        drawn = [replace(call(seed), sampling=Sampling(candidates=4, search="beam")) for seed in range(500)]
        found = [each.text for one in drawn for each in (await oracle.complete(one)).candidates]
        readable = sum(text in {f'["{name}"]' for name in NAMES} for text in found)
        assert readable / 2000 == pytest.approx(0.7, abs=0.04)

    async def test_tokens_are_estimated_at_four_characters_each(self) -> None:
        completion = await oracle_of_example().complete(call(1))
        assert completion.completion_tokens == -(-len('["Ada Lovelace"]') // 4)
        assert completion.prompt_tokens > 0


class TestChoosing:
    CHOICES = ("Alan Turing", "Ada Lovelace", "Charles Babbage")

    async def test_a_perfect_model_is_certain(self) -> None:
        completion = await oracle_of_example().choose(call(1, self.CHOICES))
        assert completion.text == "Ada Lovelace"
        assert completion.probabilities == {"Alan Turing": 0, "Ada Lovelace": 1, "Charles Babbage": 0}

    async def test_an_erring_model_is_calibrated_and_splits_the_rest_evenly(self) -> None:
        oracle = oracle_of_example(error_rate=0.2)
        completions = [await oracle.choose(call(seed, self.CHOICES)) for seed in range(2000)]
        sure: list[float] = []
        for completion in completions:
            probabilities = dict(completion.probabilities or {})
            sure.append(probabilities.pop(completion.text))
            first, second = probabilities.values()
            assert first == second == pytest.approx((1 - sure[-1]) / 2)
        right = [completion.text == "Ada Lovelace" for completion in completions]
        assert sum(right) / 2000 == pytest.approx(0.8, abs=0.03)
        assert (min(sure), max(sure)) == (pytest.approx(0.6, abs=0.01), pytest.approx(1, abs=0.01))
        for low in (0.6, 0.7, 0.8, 0.9):
            of_these = [is_right for is_right, certain in zip(right, sure, strict=True) if low <= certain < low + 0.1]
            assert sum(of_these) / len(of_these) == pytest.approx(low + 0.05, abs=0.06), (
                "it is right as often as its probabilities say"
            )

    async def test_a_choice_that_begins_like_a_longer_one_is_not_preferred(self) -> None:
        assert (await oracle_of_example().choose(call(1, ("Ada", "Ada Lovelace")))).text == "Ada Lovelace"

    async def test_a_reply_that_mentions_no_choice_raises(self) -> None:
        with pytest.raises(ValueError, match=r"reply to test.quoted mentions none of \('yes', 'no'\)"):
            await oracle_of_example().choose(call(1, ("yes", "no")))


class TestLogprobs:
    async def test_alternatives_share_the_error_probability_of_a_token(self) -> None:
        prompt = Labelled("Who?")
        asked = Call(prompt, prompt.messages(), Sampling(logprobs=20), key="k", seed=0)
        name, label = (await oracle_of_example(error_rate=0.3).complete(asked)).logprobs or ()
        assert set(label) == {"[Good]", "[Fair]", "[Poor]"}
        assert next(iter(label)) == "[Good]"
        assert sum(map(math.exp, label.values())) == pytest.approx(1)
        assert label["[Fair]"] == label["[Poor]"] < label["[Good]"] == name["name"]
        assert (await oracle_of_example().complete(asked)).logprobs == ({"name": 0.0}, {"[Good]": 0.0})

    @pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9, 1.0])
    async def test_errs_at_every_rate(self, rate: float) -> None:
        wrong = sum(parsed(text) != "Ada Lovelace" for text in await replies(oracle_of_example(error_rate=rate)))
        assert wrong / 2000 == pytest.approx(rate, abs=0.03)


class TestCommonDraws:
    """Two variants of a method that differ only in excluded inputs, such as references, meet the same errors."""

    @staticmethod
    def asked(question: str, references: str, nonce: str) -> Call:
        prompt = Aided(question, references)
        return Call(prompt, prompt.messages(), Sampling(), key=references, seed=hash(references), nonce=nonce)

    async def test_excluded_inputs_change_no_draw_and_all_others_do(self) -> None:
        oracle = oracle_of_example(error_rate=0.5, malformed_rate=0.5)

        async def texts(question: str, references: str, nonces: range) -> list[str]:
            calls = [self.asked(question, references, str(nonce)) for nonce in nonces]
            return [(await oracle.complete(call)).text for call in calls]

        plain = await texts("Who?", "", range(50))
        assert await texts("Who?", "Similar: …", range(50)) == plain
        assert await texts("Whom?", "", range(50)) != plain
        assert await texts("Who?", "", range(50, 100)) != plain


class TestGoldContext:
    CONTEXT = GoldContext(EXAMPLE.question, GOLD, {})

    @pytest.mark.parametrize("text", ["ada lovelace", "The Countess of Lovelace", "Ada  Lovelace.", "1815"])
    def test_names_and_aliases_match_in_normal_form(self, text: str) -> None:
        assert self.CONTEXT.is_answer(text)

    def test_ids_match(self) -> None:
        assert self.CONTEXT.is_answer(id="m.ada")
        assert self.CONTEXT.is_answer("someone", id="m.ada")
        assert not self.CONTEXT.is_answer("someone", id="m.other")
        assert not self.CONTEXT.is_answer()

    def test_ids_among_aliases_match(self) -> None:
        known = GoldContext(EXAMPLE.question, Gold((GoldAnswer("2014 World Series", aliases=("m.0117q3yz",)),)), {})
        assert known.is_answer("World Series", id="m.0117q3yz")
        assert not known.is_answer("World Series", id="m.other")

    def test_nodes_match_by_id_name_or_value(self) -> None:
        assert self.CONTEXT.is_answer_node("m.ada", None)
        assert self.CONTEXT.is_answer_node("m.other", "Ada Lovelace")
        assert self.CONTEXT.is_answer_node(LiteralNode("1815", "http://www.w3.org/2001/XMLSchema#integer"), None)
        assert not self.CONTEXT.is_answer_node("m.other", None)
        assert not self.CONTEXT.is_answer_node(LiteralNode("1816"), "Ada Lovelace")

    def test_for_a_count_the_counted_nodes_are_sought(self) -> None:
        one, another = LiteralNode("1815"), LiteralNode("1816")
        assert [self.CONTEXT.is_sought(node, None) for node in (one, another)] == [True, False]
        counting = replace(self.CONTEXT, counted=frozenset({another}))
        assert [counting.is_sought(node, None) for node in (one, another)] == [False, True]


def test_identity_holds_the_rates_and_label_is_oracle() -> None:
    oracle = default(Oracle, error_rate=0.15, latency_s=0.5)
    assert (oracle.identity, oracle.label) == ("oracle(error_rate=0.15,malformed_rate=0)", "oracle")
    assert oracle_of_example(error_rate=0.15).identity == oracle.identity


@pytest.mark.parametrize("options", [{"error_rate": 1.5}, {"malformed_rate": -0.1}, {"latency_s": -1}, {"rate": 0.1}])
def test_invalid_values_are_rejected(options: dict[str, float]) -> None:
    with pytest.raises(UserError):
        default(Oracle, **options)


def test_a_fresh_oracle_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(default(Oracle, error_rate=0.15))) == default(Oracle, error_rate=0.15)


def test_damage_accepts_an_empty_text() -> None:
    for seed in range(200):
        assert isinstance(damage("", Random(seed)), str)


class Family:
    """A small graph: Ada's parents and half-sister, where her mother was born, and an island far away."""

    def triples(self) -> Iterator[Triple]:
        yield Triple("Ada", "people.person.parents", "Annabella")
        yield Triple("Ada", "people.person.parents", "Byron")
        yield Triple("Medora", "people.person.parents", "Byron")
        yield Triple("Annabella", "people.person.place_of_birth", "London")
        yield Triple("London", "location.location.people_born_here", "Turing")
        yield Triple("Island", "location.location.containedby", "Ocean")


CHILD_OF = Relation("people.person.parents", "out")
PARENT_OF = Relation("people.person.parents", "in")
BORN_IN = Relation("people.person.place_of_birth", "out")


class TestFindingTheGoldContext:
    @pytest.fixture
    async def kg(self) -> AsyncIterator[EmbeddedGraph]:
        async with default(EmbeddedGraph, dataset=Family()) as graph:
            yield graph

    async def paths(self, kg: EmbeddedGraph, topic: str, answer: str, *given: tuple[Relation, ...]) -> object:
        question = Question("q", "test", "dev", "?", topic_entities=(Entity(topic, topic),))
        gold = Gold(answers=(GoldAnswer(answer, id=answer),), paths={topic: given})
        return (await find_gold_context(Example(question, gold), kg)).paths[topic]

    async def test_a_dataset_path_that_reaches_an_answer_is_used(self, kg: EmbeddedGraph) -> None:
        longer = (CHILD_OF, PARENT_OF, CHILD_OF, BORN_IN)
        assert await self.paths(kg, "Ada", "London", longer) == (longer,)

    async def test_a_dataset_path_that_reaches_no_answer_is_dropped(self, kg: EmbeddedGraph) -> None:
        assert await self.paths(kg, "Ada", "London", (CHILD_OF,), (CHILD_OF, BORN_IN)) == ((CHILD_OF, BORN_IN),)

    async def test_directions_of_an_undirected_path_are_found(self, kg: EmbeddedGraph) -> None:
        undirected = (Relation(BORN_IN.name, "out"), Relation(CHILD_OF.name, "out"))
        assert await self.paths(kg, "London", "Ada", undirected) == ((Relation(BORN_IN.name, "in"), PARENT_OF),)

    async def test_without_a_usable_path_the_shortest_is_searched(self, kg: EmbeddedGraph) -> None:
        assert await self.paths(kg, "Ada", "London") == ((CHILD_OF, BORN_IN),)
        assert await self.paths(kg, "Ada", "London", (Relation("no.such.relation", "out"),)) == ((CHILD_OF, BORN_IN),)

    async def test_an_unreachable_answer_has_no_path(self, kg: EmbeddedGraph) -> None:
        assert await self.paths(kg, "Ada", "Island", (CHILD_OF,)) == ()
        assert await self.paths(kg, "Ada", "Nobody") == ()

    async def test_a_dataset_path_is_trusted_if_no_answer_is_in_the_graph(self, kg: EmbeddedGraph) -> None:
        dead_end = (CHILD_OF, CHILD_OF)
        assert await self.paths(kg, "Ada", "Nobody", dead_end, (CHILD_OF,)) == ((CHILD_OF,),)

    async def test_counted_nodes_are_the_ends_of_the_paths(self, kg: EmbeddedGraph) -> None:
        async def counted(answer: str, *paths: tuple[Relation, ...], topics: tuple[str, ...] = ("Ada",)) -> set[Node]:
            question = Question("q", "test", "dev", "How many?", topic_entities=tuple(Entity(id, id) for id in topics))
            gold = Gold((GoldAnswer(answer),), {id: (path,) for id, path in zip(topics, paths, strict=True)})
            return set((await find_gold_context(Example(question, gold), kg)).counted)

        assert await counted("2", (CHILD_OF,)) == {"Annabella", "Byron"}
        assert await counted("2", (CHILD_OF,), (Relation(BORN_IN.name, "in"),), topics=("Ada", "London")) == set()
        assert await counted("1", (CHILD_OF,), (Relation(BORN_IN.name, "in"),), topics=("Ada", "London")) == {
            "Annabella"
        }
        assert await counted("1", (CHILD_OF, PARENT_OF)) == {"Medora"}, "she is not among her own siblings"
        assert await counted("1979", (CHILD_OF,)) == set()
        assert await counted("Byron", (CHILD_OF,)) == set()
        assert await counted("2", (CHILD_OF, CHILD_OF)) == set()
        parents_of_siblings = (CHILD_OF, PARENT_OF, CHILD_OF)
        assert await counted("2", parents_of_siblings, topics=("Medora",)) == {"Annabella", "Byron"}
        assert await counted("1", parents_of_siblings, topics=("Medora",)) == {"Annabella"}, (
            "without Medora's own parent"
        )

    async def test_waypoints_are_the_inner_nodes_that_lead_to_a_sought_node(self, kg: EmbeddedGraph) -> None:
        async def waypoints(answer: str, *given: tuple[Relation, ...]) -> set[Node]:
            question = Question("q", "test", "dev", "?", topic_entities=(Entity("Ada", "Ada"),))
            gold = Gold((GoldAnswer(answer),), {"Ada": given})
            return set((await find_gold_context(Example(question, gold), kg)).waypoints)

        assert await waypoints("London", (CHILD_OF, BORN_IN)) == {"Annabella"}, (
            "only the parent that the path goes through"
        )
        assert await waypoints("London") == {"Annabella"}, "also on a searched path"
        assert await waypoints("Byron", (CHILD_OF,)) == set(), "an answer is not a waypoint"
        assert await waypoints("1", (CHILD_OF, PARENT_OF)) == {"Byron"}, "for a count, towards the counted nodes"
        assert await waypoints("Island", (CHILD_OF,)) == set()

    @pytest.mark.exhaustive
    async def test_metaqa_paths_are_those_of_its_question_types(self, shared_data: Path) -> None:
        dataset = default(MetaQA, path=shared_data / "metaqa", hops=2)
        examples = list(islice(dataset.examples(refuse), 40))
        async with default(EmbeddedGraph, dataset=dataset) as graph:
            contexts = [await find_gold_context(example, graph) for example in examples]
        assert [dict(context.paths) for context in contexts] == [dict(example.gold.paths) for example in examples]

    @pytest.mark.exhaustive
    async def test_directions_of_real_freebase_paths_are_found(self, shared_data: Path) -> None:
        folder = shared_data / "freebase-slice"
        dataset = default(
            Custom,
            triples=folder / "triples.tsv.gz",
            questions=folder / "webqsp.test.jsonl.gz",
            filter={"gold_relation_path_in_slice": True},
        )
        examples = list(islice(dataset.examples(refuse), 60))
        async with default(EmbeddedGraph, dataset=dataset) as graph:
            contexts = [await find_gold_context(example, graph) for example in examples]
        assert all(any(context.paths.values()) for context in contexts)


class TestSharingTheGoldContext:
    """Configurations of a run ask the same question at the same time."""

    @pytest.fixture
    def lookups(self, monkeypatch: pytest.MonkeyPatch) -> list[object]:
        """The graphs on which a gold context was looked up."""
        made: list[object] = []

        async def find(example: Example, kg: object, *, foresight: bool) -> GoldContext:
            made.append(kg)
            await asyncio.sleep(0)
            return GoldContext(example.question, example.gold, {})

        monkeypatch.setattr("pipeline.simulation.oracle.find_gold_context", find)
        return made

    async def test_configurations_share_one_lookup_which_is_made_at_the_first_call(self, lookups: list[object]) -> None:
        kg: Any = NoGraph()
        oracle = default(Oracle, error_rate=0.5)
        bound = [oracle.for_question(EXAMPLE, kg) for _ in range(3)]
        assert lookups == []
        await asyncio.gather(*(one.complete(call(seed)) for seed in range(10) for one in bound))
        assert lookups == [kg]

    async def test_other_graphs_are_looked_up_separately(self, lookups: list[object]) -> None:
        first: Any = NoGraph("1-a")
        second: Any = NoGraph("1-b")
        other_limits: Any = NoGraph("1-b")
        oracle = default(Oracle)
        bound = [oracle.for_question(EXAMPLE, kg) for kg in (first, second, other_limits)]
        for one in bound:
            await one.complete(call(1))
        assert lookups == [first, second, other_limits], "also another backend over the same facts"

    @pytest.mark.parametrize(
        "different", [{"dataset": "other"}, {"split": "train"}, {"text": "Who wrote the last one?"}]
    )
    async def test_the_same_id_in_another_dataset_is_another_question(self, different: dict[str, str]) -> None:
        kg: Any = NoGraph()
        other = Example(replace(EXAMPLE.question, **different), Gold((GoldAnswer("Grace Hopper"),)))  # type: ignore[arg-type]
        oracle = default(Oracle)
        bound = [oracle.for_question(example, kg) for example in (EXAMPLE, other, EXAMPLE)]
        replies = [(await one.complete(call(1))).text for one in bound]
        assert replies == ['["Ada Lovelace"]', '["Grace Hopper"]', '["Ada Lovelace"]']

    async def test_nothing_is_kept_after_the_question(self, lookups: list[object]) -> None:
        kg: Any = NoGraph()
        graph = weakref.ref(kg)
        oracle = default(Oracle)
        await oracle.for_question(EXAMPLE, kg).complete(call(1))
        lookups.clear()
        del kg
        gc.collect()
        assert graph() is None
        assert not oracle._lookups

    async def test_a_cancelled_lookup_is_repeated_by_the_next_configuration(
        self, lookups: list[object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        under_way = asyncio.Event()

        async def hang(example: Example, kg: object, *, foresight: bool) -> GoldContext:
            lookups.append(kg)
            under_way.set()
            return await asyncio.Future() if len(lookups) == 1 else GoldContext(example.question, example.gold, {})

        monkeypatch.setattr("pipeline.simulation.oracle.find_gold_context", hang)
        kg: Any = NoGraph()
        oracle = default(Oracle)
        one, other = (asyncio.create_task(oracle.for_question(EXAMPLE, kg).complete(call(1))) for _ in range(2))
        await under_way.wait()
        one.cancel()
        assert (await other).text == '["Ada Lovelace"]'
        assert lookups == [kg, kg]
