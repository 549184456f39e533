"""Collects RoG's training data as a method over solved questions, without any model (specification §7.4).

For each question it finds the shortest relation paths to the gold answers, and what these paths lead to. A collection
is a run like any other. Its product is the event `collected`, or `rejected`, in each trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.kg.interface import GraphLookups
from pipeline.kg.paths import GoldNodes, find_paths, instantiate
from pipeline.llm.prompt import Prompt
from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.interface import Tools
from pipeline.methods.rendering import Printer
from pipeline.methods.rog import instances
from pipeline.methods.rog.read import ReadPaths
from pipeline.methods.rog.wording import Wording, read_wording
from pipeline.training.labelled import LabelledQuestion
from pipeline.types import Answer, EntityId, GoldAnswer, Prediction, Question


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class RoGCollection:
    """Finds gold relation paths and their instances. The keys are described in `conf/collect_rog.yaml`."""

    prompts: ClassVar[tuple[type[Prompt[object]], ...]] = ()
    name: str
    max_path_len: PositiveInt
    max_instances: PositiveInt
    reader_prompt_tokens: PositiveInt
    render: Literal["walk", "kg"]
    dedupe_paths: bool
    templates: str | None

    def __post_init__(self) -> None:
        """Read the file of templates, so that a mistake in it is found before the run."""
        _ = self.wording

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Record the gold relation paths of a question, and the lines that the reader is shown."""
        assert isinstance(question, LabelledQuestion), "training data is collected from solved questions"
        if question.unusable:
            tools.record("rejected", reason=question.unusable)
            return Answer(status="ok" if question.topic_entities else "no_topic_entity")
        paths = await self._gold_paths(question, tools.kg)
        limit = min(self.max_instances, tools.caps.max_frontier)
        found = await instances.instantiate(question.topic_entities, paths, tools.kg, max_instances=limit)
        gold = await GoldNodes.resolve(tools.kg, question.gold.answers)
        shown, lines = self._fit(question, found)
        tools.record(
            "collected",
            paths=paths,
            right=[sum(chain.end in gold for chain in chains) for chains in found.by_plan],
            instances=len(found.in_order),
            dropped=len(found.in_order) - len(shown),
            lines=lines,
            answers=[answer.name for answer in question.gold.answers],
        )
        return Answer(
            predictions=tuple(Prediction(answer.name, answer.id) for answer in question.gold.answers),
            evidence=tuple(chain.triples for chain in shown),
            names=found.names,
        )

    async def _gold_paths(self, question: LabelledQuestion, kg: GraphLookups) -> list[Path]:
        """Return the relations of all shortest paths from a topic entity to a gold answer, without directions."""
        topics = [topic.id for topic in question.topic_entities]
        found = await asyncio.gather(*(self._shortest(topic, question.gold.answers, kg) for topic in topics))
        return list(dict.fromkeys(path for paths in found for path in paths))

    async def _shortest(self, topic: EntityId, answers: Sequence[GoldAnswer], kg: GraphLookups) -> list[Path]:
        """Return the shortest paths from one entity to each answer, the shortest first.

        The answers that the shortest paths lead to are at that distance; the others are farther and searched for again.
        """
        paths: dict[Path, None] = {}
        left = list(answers)
        while left:
            found = await find_paths(kg, topic, left, max_hops=self.max_path_len)
            paths.update((tuple(relation.name for relation in path), None) for path in found)
            ends = await asyncio.gather(*(instantiate(kg, topic, path) for path in found))
            reached = {node for end in ends for node in end.nodes}
            gold = await asyncio.gather(*(GoldNodes.resolve(kg, [answer]) for answer in left))
            farther = [
                answer for answer, nodes in zip(left, gold, strict=True) if not any(node in nodes for node in reached)
            ]
            if len(farther) == len(left):
                break
            left = farther
        return list(paths)

    def _fit(self, question: Question, found: instances.Instances) -> tuple[tuple[GroundedPath, ...], tuple[str, ...]]:
        """Return the chains that the reader's prompt has room for, those of all paths in turn, and their lines."""
        printer = Printer(found.names)
        empty = ReadPaths(question, False, (), (), found.names, self.wording.read)
        room = self.reader_prompt_tokens - instances.tokens_of(message.content for message in empty.messages())
        if self.render == "walk":
            return instances.fit(found.in_turn, lambda chain: instances.walked(chain, printer), room)
        return instances.fit(found.in_turn, lambda chain: printer.chain(chain.triples), room)

    @property
    def wording(self) -> Wording:
        """The texts of the prompts."""
        return read_wording(self.templates)
