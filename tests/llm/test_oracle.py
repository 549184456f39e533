"""The oracle: it knows the truth, errs at the given rates, and does so the same way every time."""

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
from pydantic import ValidationError

from pipeline.datasets.custom import Custom
from pipeline.datasets.metaqa import MetaQA
from pipeline.errors import ParseError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.llm.oracle import Oracle, QuestionOracle, Truth, damage, find_truth
from pipeline.llm.prompt import Call, Sampling
from pipeline.types import Entity, Example, Gold, GoldAnswer, LiteralNode, Node, Question, Relation, Triple
from tests.llm.support import Ask
from tests.support import refuse

GOLD = Gold(answers=(GoldAnswer("Ada Lovelace", id="m.ada", aliases=("Countess of Lovelace",)), GoldAnswer("1815.0")))
EXAMPLE = Example(Question("q1", "test", "dev", "Who wrote the first program?"), GOLD)


class Quoted(Ask):
    """Wants the answer in brackets and quotes; a slip is another name."""

    role = "test.quoted"

    def parse(self, text: str) -> str:
        if not (text.startswith('["') and text.endswith('"]') and text.count("\n") == 0):
            raise ParseError("not a name in brackets")
        return text[2:-2]

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        name = truth.gold.answers[0].name if slip is None else slip.choice(["Charles Babbage", "Alan Turing"])
        return f'["{name}"]'


def call(seed: int, choices: tuple[str, ...] = ()) -> Call:
    prompt = Quoted("Who?")
    return Call(prompt, prompt.messages(), Sampling(), key=str(seed), seed=seed, choices=choices, nonce=str(seed))


def bound(**options: Any) -> QuestionOracle:
    """An oracle of a question without topic entities, which needs no graph."""
    return Oracle(**options).for_question(EXAMPLE, None)  # type: ignore[arg-type]


def parsed(text: str) -> str | None:
    try:
        return Quoted("Who?").parse(text)
    except ParseError:
        return None


async def replies(oracle: QuestionOracle, count: int = 2000) -> list[str]:
    return [(await oracle.complete(call(seed))).text for seed in range(count)]


class TestCompleting:
    async def test_a_perfect_model_writes_the_truth(self) -> None:
        assert set(await replies(bound(), 50)) == {'["Ada Lovelace"]'}

    async def test_errs_at_the_given_rate_in_well_formed_text(self) -> None:
        wrong = [name for text in await replies(bound(error_rate=0.15)) if (name := parsed(text)) != "Ada Lovelace"]
        assert len(wrong) / 2000 == pytest.approx(0.15, abs=0.03)
        assert set(wrong) == {"Charles Babbage", "Alan Turing"}

    async def test_damages_text_at_the_given_rate_in_every_way(self) -> None:
        spoilt = [text for text in await replies(bound(malformed_rate=0.3)) if text != '["Ada Lovelace"]']
        assert len(spoilt) / 2000 == pytest.approx(0.3, abs=0.04)
        assert "" in spoilt
        assert '"Ada Lovelace"' in spoilt
        assert "[\u201dAda Lovelace\u201d]" in spoilt
        assert any(text.startswith("```") for text in spoilt)
        assert sum(parsed(text) is None for text in spoilt) > 300

    async def test_errors_and_damage_are_drawn_apart(self) -> None:
        both = await replies(bound(error_rate=0.5, malformed_rate=0.5))
        only_errors = await replies(bound(error_rate=0.5))
        pairs = [(parsed(text), parsed(other)) for text, other in zip(both, only_errors, strict=True)]
        assert all(name in (None, other) for name, other in pairs)
        assert {other for name, other in pairs if name is None} == {other for _, other in pairs}

    async def test_the_same_calls_get_the_same_replies_in_any_order(self) -> None:
        options = {"error_rate": 0.3, "malformed_rate": 0.3}
        forwards = await replies(bound(**options), 200)
        oracle = bound(**options)
        backwards = [(await oracle.complete(call(seed))).text for seed in reversed(range(200))]
        assert forwards == backwards[::-1]
        assert len(set(forwards)) > 5

    async def test_one_call_asked_twice_is_answered_alike(self) -> None:
        oracle, asked = bound(error_rate=0.5), call(3)
        assert {(await oracle.complete(asked)).text for _ in range(5)} == {(await oracle.complete(call(3))).text}

    async def test_tokens_are_estimated_at_four_characters_each(self) -> None:
        completion = await bound().complete(call(1))
        assert completion.completion_tokens == -(-len('["Ada Lovelace"]') // 4)
        assert completion.prompt_tokens > 0


class TestChoosing:
    CHOICES = ("Alan Turing", "Ada Lovelace", "Charles Babbage")

    async def test_a_perfect_model_is_certain(self) -> None:
        completion = await bound().choose(call(1, self.CHOICES))
        assert completion.text == "Ada Lovelace"
        assert completion.probabilities == {"Alan Turing": 0, "Ada Lovelace": 1, "Charles Babbage": 0}

    async def test_an_erring_one_leaves_the_rest_to_the_others_and_prefers_wrongly_at_its_rate(self) -> None:
        oracle = bound(error_rate=0.2)
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
                "it is as often right as it says"
            )

    async def test_a_longer_choice_is_not_mistaken_for_its_beginning(self) -> None:
        assert (await bound().choose(call(1, ("Ada", "Ada Lovelace")))).text == "Ada Lovelace"

    async def test_a_text_without_any_choice_is_a_bug_that_shows(self) -> None:
        with pytest.raises(ValueError, match=r"writes for test.quoted names none of \('yes', 'no'\)"):
            await bound().choose(call(1, ("yes", "no")))


class TestDoubt:
    async def test_the_doubt_is_on_every_token_and_shared_by_its_alternatives(self) -> None:
        @dataclass(frozen=True)
        class Labelled(Quoted):
            alternatives = (("[Good]", "[Fair]", "[Poor]"),)

            def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
                return "name[Good]"

        prompt = Labelled("Who?")
        asked = Call(prompt, prompt.messages(), Sampling(logprobs=20), key="k", seed=0)
        name, label = (await bound(error_rate=0.3).complete(asked)).logprobs or ()
        assert set(label) == {"[Good]", "[Fair]", "[Poor]"}
        assert next(iter(label)) == "[Good]"
        assert sum(map(math.exp, label.values())) == pytest.approx(1)
        assert label["[Fair]"] == label["[Poor]"] < label["[Good]"] == name["name"]
        assert (await bound().complete(asked)).logprobs == ({"name": 0.0}, {"[Good]": 0.0})

    @pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9, 1.0])
    async def test_errs_at_every_rate(self, rate: float) -> None:
        wrong = sum(parsed(text) != "Ada Lovelace" for text in await replies(bound(error_rate=rate)))
        assert wrong / 2000 == pytest.approx(rate, abs=0.03)


class TestCommonDraws:
    """Two variants of a method that differ in an aid alone meet the same errors."""

    @staticmethod
    def asked(question: str, references: str, nonce: str) -> Call:
        @dataclass(frozen=True)
        class Aided(Quoted):
            aids = frozenset({"references"})
            references: str

            def inputs(self) -> dict[str, str]:
                return {"question": self.question, "references": self.references}

        prompt = Aided(question, references)
        return Call(prompt, prompt.messages(), Sampling(), key=references, seed=hash(references), nonce=nonce)

    async def test_aids_change_no_draw_and_all_else_does(self) -> None:
        oracle = bound(error_rate=0.5, malformed_rate=0.5)

        async def texts(question: str, references: str, nonces: range) -> list[str]:
            calls = [self.asked(question, references, str(nonce)) for nonce in nonces]
            return [(await oracle.complete(call)).text for call in calls]

        plain = await texts("Who?", "", range(50))
        assert await texts("Who?", "Similar: …", range(50)) == plain
        assert await texts("Whom?", "", range(50)) != plain
        assert await texts("Who?", "", range(50, 100)) != plain


class TestTruth:
    TRUTH = Truth(EXAMPLE.question, GOLD, {})

    @pytest.mark.parametrize("text", ["ada lovelace", "The Countess of Lovelace", "Ada  Lovelace.", "1815"])
    def test_knows_names_and_aliases_in_any_dress(self, text: str) -> None:
        assert self.TRUTH.is_answer(text)

    def test_knows_ids(self) -> None:
        assert self.TRUTH.is_answer(id="m.ada")
        assert self.TRUTH.is_answer("someone", id="m.ada")
        assert not self.TRUTH.is_answer("someone", id="m.other")
        assert not self.TRUTH.is_answer()

    def test_knows_ids_among_aliases(self) -> None:
        known = Truth(EXAMPLE.question, Gold((GoldAnswer("2014 World Series", aliases=("m.0117q3yz",)),)), {})
        assert known.is_answer("World Series", id="m.0117q3yz")
        assert not known.is_answer("World Series", id="m.other")

    def test_knows_nodes(self) -> None:
        assert self.TRUTH.is_answer_node("m.ada", None)
        assert self.TRUTH.is_answer_node("m.other", "Ada Lovelace")
        assert self.TRUTH.is_answer_node(LiteralNode("1815", "http://www.w3.org/2001/XMLSchema#integer"), None)
        assert not self.TRUTH.is_answer_node("m.other", None)
        assert not self.TRUTH.is_answer_node(LiteralNode("1816"), "Ada Lovelace")

    def test_what_is_counted_is_sought_instead_of_the_number(self) -> None:
        one, another = LiteralNode("1815"), LiteralNode("1816")
        assert [self.TRUTH.is_sought(node, None) for node in (one, another)] == [True, False]
        counting = replace(self.TRUTH, counted=frozenset({another}))
        assert [counting.is_sought(node, None) for node in (one, another)] == [False, True]


def test_the_rates_are_part_of_the_identity_and_the_label_says_oracle() -> None:
    oracle = Oracle(error_rate=0.15, latency_s=0.5)
    assert (oracle.identity, oracle.label) == ("oracle(error_rate=0.15,malformed_rate=0)", "oracle")
    assert bound(error_rate=0.15).identity == oracle.identity


@pytest.mark.parametrize("options", [{"error_rate": 1.5}, {"malformed_rate": -0.1}, {"latency_s": -1}, {"rate": 0.1}])
def test_wrong_values_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Oracle(**options)


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(Oracle(error_rate=0.15))) == Oracle(error_rate=0.15)


def test_damage_takes_any_text() -> None:
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


class TestFindingTheTruth:
    @pytest.fixture
    async def kg(self) -> AsyncIterator[EmbeddedGraph]:
        async with EmbeddedGraph(dataset=Family()) as graph:
            yield graph

    async def paths(self, kg: EmbeddedGraph, topic: str, answer: str, *given: tuple[Relation, ...]) -> object:
        question = Question("q", "test", "dev", "?", topic_entities=(Entity(topic, topic),))
        gold = Gold(answers=(GoldAnswer(answer, id=answer),), paths={topic: given})
        return (await find_truth(Example(question, gold), kg)).paths[topic]

    async def test_a_path_of_the_dataset_counts_when_it_reaches_an_answer(self, kg: EmbeddedGraph) -> None:
        longer = (CHILD_OF, PARENT_OF, CHILD_OF, BORN_IN)
        assert await self.paths(kg, "Ada", "London", longer) == (longer,)

    async def test_a_path_that_reaches_none_is_left_out(self, kg: EmbeddedGraph) -> None:
        assert await self.paths(kg, "Ada", "London", (CHILD_OF,), (CHILD_OF, BORN_IN)) == ((CHILD_OF, BORN_IN),)

    async def test_a_path_without_directions_is_turned_the_way_that_it_goes(self, kg: EmbeddedGraph) -> None:
        undirected = (Relation(BORN_IN.name, "out"), Relation(CHILD_OF.name, "out"))
        assert await self.paths(kg, "London", "Ada", undirected) == ((Relation(BORN_IN.name, "in"), PARENT_OF),)

    async def test_without_a_usable_path_the_shortest_is_found(self, kg: EmbeddedGraph) -> None:
        assert await self.paths(kg, "Ada", "London") == ((CHILD_OF, BORN_IN),)
        assert await self.paths(kg, "Ada", "London", (Relation("no.such.relation", "out"),)) == ((CHILD_OF, BORN_IN),)

    async def test_an_answer_out_of_reach_has_no_path(self, kg: EmbeddedGraph) -> None:
        assert await self.paths(kg, "Ada", "Island", (CHILD_OF,)) == ()
        assert await self.paths(kg, "Ada", "Nobody") == ()

    async def test_a_path_of_the_dataset_is_trusted_when_no_answer_is_in_the_graph(self, kg: EmbeddedGraph) -> None:
        astray = (CHILD_OF, CHILD_OF)
        assert await self.paths(kg, "Ada", "Nobody", astray, (CHILD_OF,)) == ((CHILD_OF,),)

    async def test_what_a_count_counts_is_where_its_path_leads(self, kg: EmbeddedGraph) -> None:
        async def counted(answer: str, *paths: tuple[Relation, ...], topics: tuple[str, ...] = ("Ada",)) -> set[Node]:
            question = Question("q", "test", "dev", "How many?", topic_entities=tuple(Entity(id, id) for id in topics))
            gold = Gold((GoldAnswer(answer),), {id: (path,) for id, path in zip(topics, paths, strict=True)})
            return set((await find_truth(Example(question, gold), kg)).counted)

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
        assert await counted("1", parents_of_siblings, topics=("Medora",)) == {"Annabella"}, "others than her own"

    async def test_the_waypoints_are_the_nodes_that_lead_on_to_what_is_sought(self, kg: EmbeddedGraph) -> None:
        async def waypoints(answer: str, *given: tuple[Relation, ...]) -> set[Node]:
            question = Question("q", "test", "dev", "?", topic_entities=(Entity("Ada", "Ada"),))
            gold = Gold((GoldAnswer(answer),), {"Ada": given})
            return set((await find_truth(Example(question, gold), kg)).waypoints)

        assert await waypoints("London", (CHILD_OF, BORN_IN)) == {"Annabella"}, (
            "of her parents the one it leads through"
        )
        assert await waypoints("London") == {"Annabella"}, "on a path that was searched for too"
        assert await waypoints("Byron", (CHILD_OF,)) == set(), "an answer is no waypoint"
        assert await waypoints("1", (CHILD_OF, PARENT_OF)) == {"Byron"}, "where a count is sought, to what it counts"
        assert await waypoints("Island", (CHILD_OF,)) == set()

    async def test_metaqa_paths_are_those_of_its_question_types(self, shared_data: Path) -> None:
        dataset = MetaQA(path=shared_data / "metaqa", hops=2)
        examples = list(islice(dataset.examples(refuse), 40))
        async with EmbeddedGraph(dataset=dataset) as graph:
            truths = [await find_truth(example, graph) for example in examples]
        assert [dict(truth.paths) for truth in truths] == [dict(example.gold.paths) for example in examples]

    async def test_undirected_paths_of_real_freebase_questions_are_turned_round(self, shared_data: Path) -> None:
        folder = shared_data / "freebase-slice"
        dataset = Custom(
            triples=folder / "triples.tsv.gz",
            questions=folder / "webqsp.test.jsonl.gz",
            filter={"gold_relation_path_in_slice": True},
        )
        examples = list(islice(dataset.examples(refuse), 60))
        async with EmbeddedGraph(dataset=dataset) as graph:
            truths = [await find_truth(example, graph) for example in examples]
        assert all(any(truth.paths.values()) for truth in truths)


class TestSharingTheTruth:
    """The points of a run ask about the same question at the same time."""

    @pytest.fixture
    def lookups(self, monkeypatch: pytest.MonkeyPatch) -> list[object]:
        asked: list[object] = []

        async def find(example: Example, kg: object) -> Truth:
            asked.append(kg)
            await asyncio.sleep(0)
            return Truth(example.question, example.gold, {})

        monkeypatch.setattr("pipeline.llm.oracle.find_truth", find)
        return asked

    async def test_it_is_looked_up_once_for_all_points_and_only_when_asked_for(self, lookups: list[object]) -> None:
        kg: Any = Family()
        oracles = [Oracle(error_rate=rate).for_question(EXAMPLE, kg) for rate in (0.0, 0.5, 1.0)]
        assert lookups == []
        await asyncio.gather(*(oracle.complete(call(seed)) for seed in range(10) for oracle in oracles))
        assert lookups == [kg]

    async def test_it_is_not_shared_between_graphs_or_questions(self, lookups: list[object]) -> None:
        first: Any = Family()
        second: Any = Family()
        asked = [(EXAMPLE, first), (EXAMPLE, second), (replace(EXAMPLE), second)]
        oracles = [Oracle().for_question(example, kg) for example, kg in asked]
        for oracle in oracles:
            await oracle.complete(call(1))
        assert lookups == [first, second, second]

    async def test_nothing_is_kept_once_the_question_is_done(self, lookups: list[object]) -> None:
        kg: Any = Family()
        graph = weakref.ref(kg)
        await Oracle().for_question(EXAMPLE, kg).complete(call(1))
        lookups.clear()
        del kg
        gc.collect()
        assert graph() is None

    async def test_a_point_that_gives_up_leaves_the_look_up_to_the_others(
        self, lookups: list[object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        under_way = asyncio.Event()

        async def hang(example: Example, kg: object) -> Truth:
            lookups.append(kg)
            under_way.set()
            return await asyncio.Future() if len(lookups) == 1 else Truth(example.question, example.gold, {})

        monkeypatch.setattr("pipeline.llm.oracle.find_truth", hang)
        kg: Any = Family()
        one, other = (asyncio.create_task(Oracle().for_question(EXAMPLE, kg).complete(call(1))) for _ in range(2))
        await under_way.wait()
        one.cancel()
        assert (await other).text == '["Ada Lovelace"]'
        assert lookups == [kg, kg]
