"""DoG: answers from the facts of one hop at a time, and debates how to make the question one hop shorter (§16.4).

A prompting baseline of the PARoG paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.answer_linking import answer_from_chains
from pipeline.methods.answering import Answers
from pipeline.methods.dog.alone import AnswerAlone
from pipeline.methods.dog.debate import DEBATERS, Criticise, Rewrite, Simplify, simplified_question
from pipeline.methods.dog.enough import Enough
from pipeline.methods.dog.expansion import Directions, expand, followed
from pipeline.methods.dog.relations import Choice, ChooseRelations
from pipeline.methods.exploration import MAX_TAILS, fact_text, most_relevant_facts
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import Caps, Tools
from pipeline.retrieval.relations import as_text
from pipeline.types import Answer, EntityId, Prediction, Question, Relation

T = TypeVar("T")

_MOST_WITHOUT_REPLY = 3
"""Relations that are followed when no reply can be read: those most similar to the question."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class DoG:
    """Debate on Graph. Its hyper-parameters are described in `conf/method/dog.yaml`."""

    prompts: ClassVar = (ChooseRelations, Enough, Simplify, Criticise, Rewrite, AnswerAlone)
    name: str
    max_turns: PositiveInt
    debaters: Annotated[NonNegativeInt, Field(le=len(DEBATERS))]
    topic: Literal["first", "all"]
    directions: Directions
    max_paths: PositiveInt
    final: Literal["alone", "gold_retry"]
    temperature: NonNegativeFloat
    max_tokens: PositiveInt
    debate_max_tokens: PositiveInt
    parse_retries: NonNegativeInt

    @property
    def uses_gold(self) -> bool:
        """Whether a wrong answer is noticed by the gold answers, as in the published code: an upper bound."""
        return self.final == "gold_retry"

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Return two calls per turn and the last one, with their retries, and the debates between turns (§16.4)."""
        return (1 + self.parse_retries) * (2 * self.max_turns + 1) + self.debaters * (self.max_turns - 1)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Follow relations turn by turn until the facts of one turn suffice to answer."""
        topics = question.topic_entities if self.topic == "all" else question.topic_entities[:1]
        search = _Search(question, tools, names={topic.id: topic.name for topic in question.topic_entities})
        search.start_at([topic.id for topic in topics])
        tools.record("cut", by="cap", nodes=[topic.id for topic in question.topic_entities[len(topics) :]])
        try:
            answers = await self._explore(search)
        except BudgetExhausted:
            answers, search.exhausted = None, True
        if answers is None:
            return self._result(search, await self._answer_alone(search), ())
        if self.uses_gold and not self._is_right(search, answers):
            second = await self._answer_alone(search)
            if self._is_right(search, second):
                return self._result(search, second, ())
        return self._result(search, answers, search.shown)

    async def _explore(self, search: _Search) -> Answers | None:
        """Return the answers as soon as the facts of a turn suffice to give them; None if they never do."""
        for search.turn in range(1, self.max_turns + 1):
            offered = await self._offer(search)
            if not offered:
                return None
            picked = await self._choose(search, tuple(offered))
            chains = await self._follow(search, [(id, relation) for relation in picked for id in offered[relation]])
            if not chains:
                return None
            answers = await self._judge(search, chains)
            if answers is not None:
                return answers
            search.move(chains)
            if not search.frontier:
                return None
            if search.turn < self.max_turns:
                await self._debate(search)
        search.tools.record("cut", by="depth", nodes=search.frontier)
        return None

    # One hop

    async def _offer(self, search: _Search) -> dict[Relation, list[EntityId]]:
        """Return the relations of all entities of the turn, sorted, each with the entities that have it."""
        around = await search.tools.kg.relations(search.frontier)
        offered: dict[Relation, list[EntityId]] = {}
        for id in search.frontier:
            for relation in followed(around[id], self.directions):
                offered.setdefault(relation, []).append(id)
        left_out = {relation for id in search.frontier for relation in around[id]} - offered.keys()
        search.tools.record("cut", by="cap", relations=sorted(left_out), at=search.frontier)
        return {relation: offered[relation] for relation in sorted(offered)}

    async def _choose(self, search: _Search, relations: tuple[Relation, ...]) -> Sequence[Relation]:
        """Ask which relations to follow. If no reply can be read, take those most similar to the question."""
        names = tuple(search.names.get(id) or id for id in search.frontier)
        prompt = ChooseRelations(search.asked, names, relations, search.frontier_walks)
        choice = await self._ask(search, prompt)
        if choice is None:
            ranking = await search.tools.retrieval.rank(search.asked.text, [as_text(each.name) for each in relations])
            choice = Choice(tuple(relations[index] for index in ranking[:_MOST_WITHOUT_REPLY]))
        search.record(
            "relations_selected",
            relations=[tuple(each) for each in choice.picked],
            offered=len(relations),
            hallucinated=choice.unknown,
        )
        return choice.picked

    async def _follow(self, search: _Search, hops: Sequence[tuple[EntityId, Relation]]) -> tuple[GroundedPath, ...]:
        """Return the facts of the turn."""
        limit = min(MAX_TAILS, search.tools.caps.max_frontier)
        found = await expand(hops, search.tools.kg, limit=limit, directions=self.directions)
        search.names.update({id: name for id, name in found.names.items() if id not in search.names})
        search.record("expanded", hops=len(hops), chains=len(found.chains), truncated=found.truncated)
        return found.chains

    async def _judge(self, search: _Search, chains: Sequence[GroundedPath]) -> Answers | None:
        """Return the answers if the facts of the turn, as many as may be shown, suffice; else None."""
        most_similar = await self._most_similar(search, chains)
        search.shown = await most_relevant_facts(most_similar, search.asked.text, search.names, search.tools)
        answers = await self._ask(search, Enough(search.asked, search.shown, search.names))
        left_out = len(chains) - len(search.shown)
        search.record("judged", have=answers is not None, chains=len(search.shown), left_out=left_out)
        return answers

    async def _most_similar(self, search: _Search, chains: Sequence[GroundedPath]) -> Sequence[GroundedPath]:
        """Return at most `max_paths` chains, in their order: those most similar to the question of the turn."""
        if len(chains) <= self.max_paths:
            return chains
        texts = [fact_text(chain, search.names) for chain in chains]
        ranking = await search.tools.retrieval.rank(search.asked.text, texts)
        search.tools.record("cut", by="evidence", nodes=[chains[index].end for index in ranking[self.max_paths :]])
        return [chains[index] for index in sorted(ranking[: self.max_paths])]

    # The debate

    async def _debate(self, search: _Search) -> None:
        """Let the roles speak in turn; the last one writes the question of the next turn."""
        speeches: list[tuple[str, str]] = []
        for speaker, prompt in DEBATERS[: self.debaters]:
            speech = await self._ask(search, prompt(search.asked, search.shown, search.names, tuple(speeches)))
            speeches.append((speaker, speech))
        if speeches:
            text = simplified_question(speeches[-1][1], search.asked.text)
            if text != search.asked.text:
                search.record("edited", question=text, before=search.asked.text)
            search.asked = replace(search.asked, text=text)

    # Answering

    async def _answer_alone(self, search: _Search) -> Answers:
        """Ask the model alone. This one call is made even after a limit of the budget was met."""
        return await self._ask(search, AnswerAlone(search.question), last=True)

    def _is_right(self, search: _Search, answers: Answers) -> bool:
        assert search.tools.gold_feedback is not None, "the engine provides it while `uses_gold` is true"
        return search.tools.gold_feedback(tuple(map(Prediction, answers.texts)), one_is_enough=True)

    def _result(self, search: _Search, answers: Answers, chains: Sequence[GroundedPath]) -> Answer:
        return answer_from_chains(
            search.question, answers, chains, search.names, exhausted=search.exhausted, record=search.tools.record
        )

    async def _ask(self, search: _Search, prompt: Prompt[T], *, last: bool = False) -> T:
        debates = isinstance(prompt, Simplify | Criticise | Rewrite)
        limit = self.debate_max_tokens if debates else self.max_tokens
        sampling = Sampling(temperature=self.temperature, max_tokens=limit)
        return await search.tools.llm.ask(prompt, sampling, retries=self.parse_retries, last=last)


@plain_dataclass
class _Search:
    """The state of one question's search."""

    question: Question
    tools: Tools
    names: dict[EntityId, str | None]
    asked: Question = field(init=False)
    """The question, with its text of this turn."""
    turn: int = 0
    shown: tuple[GroundedPath, ...] = ()
    """The facts of the last turn that the model saw."""
    exhausted: bool = False
    _walks: dict[EntityId, dict[tuple[object, ...], GroundedPath]] = field(default_factory=dict)
    """Each entity of the turn, with the walks to it from topic entities, one for each sequence of relations."""

    def __post_init__(self) -> None:
        self.asked = self.question

    @property
    def frontier(self) -> list[EntityId]:
        """The entities of the turn."""
        return list(self._walks)

    @property
    def frontier_walks(self) -> tuple[GroundedPath, ...]:
        """The walks to the entities of the turn, one for each sequence of relations."""
        return tuple({key: walk for walks in self._walks.values() for key, walk in walks.items()}.values())

    def start_at(self, topics: Sequence[EntityId]) -> None:
        """Begin at topic entities."""
        self._walks = {topic: {(topic,): GroundedPath(topic)} for topic in topics}

    def move(self, chains: Sequence[GroundedPath]) -> None:
        """Make the entities at the ends of the chains those of the next turn, as many as the budget allows."""
        ends = list(dict.fromkeys(chain.end for chain in chains if isinstance(chain.end, str)))
        kept = ends[: self.tools.caps.max_frontier]
        if len(kept) < len(ends):
            self.tools.record("cap_hit", cap="max_frontier")
            self.tools.record("cut", by="cap", nodes=ends[len(kept) :])
        walks: dict[EntityId, dict[tuple[object, ...], GroundedPath]] = {id: {} for id in kept}
        for chain in chains:
            if chain.end in walks:
                for walk in self._walks[chain.start].values():
                    longer = GroundedPath(walk.start, (*walk.steps, *chain.steps))
                    key = (longer.start, *(step.relation for step in longer.steps))
                    walks[chain.entity].setdefault(key, longer)
        self._walks = walks
        self.tools.record("kept", nodes=[*kept, *(chain.end for chain in chains if not isinstance(chain.end, str))])

    def record(self, event: str, /, **payload: object) -> None:
        """Record an event of the current turn."""
        self.tools.record(event, turn=self.turn, **payload)
