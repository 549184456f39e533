"""RoG, Reasoning on Graphs: plan relation paths, follow them in the graph, read the answers (specification §16.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted, UserError
from pipeline.llm.prompt import Sampling
from pipeline.methods.answer_linking import answer_from_chains, entity_names, search_status
from pipeline.methods.answering import Answers
from pipeline.methods.concurrency import concurrently
from pipeline.methods.exploration import record_cut_evidence
from pipeline.methods.grounded_path import GroundedPath, Path, within
from pipeline.methods.interface import Caps, Tools
from pipeline.methods.rendering import Printer, node_name
from pipeline.methods.rog.instances import Instances, fit, instantiate, tokens_of, walked
from pipeline.methods.rog.plan import ListPaths, PlanPath, most_frequent, read_candidates
from pipeline.methods.rog.read import AnswerAlone, ReadPaths
from pipeline.methods.rog.wording import Wording, read_wording
from pipeline.types import Answer, EntityId, Prediction, Question

Planner: TypeAlias = Literal["finetuned", "sampled", "listed", "random", "none", "gold"]

_DRAWS_PER_PLAN = 4
"""Draws of `planner=sampled` for each plan that is kept."""
_OFFERED_RELATIONS = 50
"""Relations of each topic entity that `planner=listed` shows."""
_VOTED_ENDS = 5
"""End nodes that `reader=vote` answers with."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class RoG:
    """Reasoning on Graphs. Its hyper-parameters are described in `conf/method/rog.yaml`."""

    prompts: ClassVar = (PlanPath, ListPaths, ReadPaths, AnswerAlone)
    name: str
    plans: PositiveInt
    planner: Planner
    match: Literal["exact", "bind"]
    max_path_len: PositiveInt
    max_instances: PositiveInt
    reader: Literal["llm", "all", "vote"]
    render: Literal["walk", "kg"]
    reader_prompt_tokens: PositiveInt
    explain: bool
    templates: str | None
    temperature: NonNegativeFloat
    parse_retries: NonNegativeInt
    plan_max_tokens: PositiveInt
    reader_max_tokens: PositiveInt

    @model_validator(mode="after")
    def _check(self) -> RoG:
        """Refuse what contradicts itself."""
        if self.planner == "none" and self.reader != "llm":
            raise UserError(f"method.planner=none finds no paths that reader={self.reader} could answer from")
        _ = self._wording  # reads the file, so that a mistake in it is found before the run
        return self

    @property
    def uses_gold(self) -> bool:
        """Whether the plans are gold paths, which is an upper bound and no result."""
        return self.planner == "gold"

    @property
    def uses_graph(self) -> bool:
        """Whether anything is looked up."""
        return self.planner != "none"

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Return one call of the planner and one of the reader, with their retries (specification §16.2)."""
        planning = {"finetuned": 1, "sampled": 1, "listed": 1 + self.parse_retries}.get(self.planner, 0)
        return planning + (1 + self.parse_retries if self.reader == "llm" else 0)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Plan, follow the plans from each topic entity, and read the answers."""
        if self.planner == "none":
            return await self._answer_alone(question, tools)
        plans, exhausted = await self._plan(question, tools)
        found = await instantiate(
            question.topic_entities,
            plans,
            tools.kg,
            max_instances=min(self.max_instances, tools.caps.max_frontier),
        )
        for plan, chains in zip(plans, found.by_plan, strict=True):
            tools.record("instantiated", path=plan, complete=len(chains), truncated=found.truncated)
        ends = [chain.end for chains in found.by_plan for chain in chains]
        tools.record("kept", nodes=ends)
        tools.record("cut", by="plan", nodes=ends)
        exhausted |= found.exhausted
        if self.reader == "llm":
            return await self._read(question, tools, found, exhausted=exhausted)
        return self._answer_with_ends(question, tools, found, exhausted=exhausted)

    # Planning

    async def _plan(self, question: Question, tools: Tools) -> tuple[list[Path], bool]:
        """Return the distinct plans, best first, and whether a limit was met."""
        if not question.topic_entities:
            return [], False
        try:
            plans = await self._propose(question, tools)
            return (await _bound(plans, tools) if self.match == "bind" else plans), False
        except BudgetExhausted:
            return [], True

    async def _propose(self, question: Question, tools: Tools) -> list[Path]:
        if self.planner == "listed":
            return await self._list(question, tools)
        if self.planner == "random":
            return await self._draw_walks(question, tools)
        if self.planner == "gold":
            return await self._follow_gold(question, tools)
        return await self._generate(question, tools)

    async def _generate(self, question: Question, tools: Tools) -> list[Path]:
        """Ask a trained planner for candidates: the best ones of a beam search, or the most frequent draws."""
        drawn = self.planner == "sampled"
        count = self.plans * _DRAWS_PER_PLAN if drawn else self.plans
        limit = self.plan_max_tokens
        sampling = (
            Sampling(candidates=count, temperature=1.0, max_tokens=limit, logprobs=0)
            if drawn
            else Sampling(candidates=count, search="beam", max_tokens=limit)
        )
        prompt = PlanPath(question, self._wording.plan)
        completion = await tools.llm.complete(prompt, sampling)
        read = read_candidates(prompt, completion.n_best, max_path_len=self.max_path_len)
        paths = most_frequent(read) if drawn else list(dict.fromkeys(each.path for each in read if each.path))
        candidates = [
            {"text": each.candidate.text, "score": each.candidate.score, "path": each.path, "problem": each.problem}
            for each in read
        ]
        tools.record("plan", paths=paths[: self.plans], candidates=candidates)
        _record_too_long([each.too_long for each in read if each.too_long], question, tools)
        return paths[: self.plans]

    async def _list(self, question: Question, tools: Tools) -> list[Path]:
        """Show the relations at the topic entities to a model that was not trained to plan."""
        at = await tools.kg.relations([topic.id for topic in question.topic_entities])
        offered: dict[EntityId, tuple[str, ...]] = {}
        for id, relations in at.items():
            names = sorted({relation.name for relation in relations})
            ranking = await tools.retrieval.rank(question.text, names)
            offered[id] = tuple(names[index] for index in ranking[:_OFFERED_RELATIONS])
        sampling = Sampling(max_tokens=self.reader_max_tokens)
        listed = await tools.llm.ask(ListPaths(question, offered, self.plans), sampling, retries=self.parse_retries)
        paths = [path for path in listed if len(path) <= self.max_path_len]
        tools.record("plan", paths=paths)
        _record_too_long([path for path in listed if path not in paths], question, tools)
        return paths

    async def _draw_walks(self, question: Question, tools: Tools) -> list[Path]:
        """Draw walks of one relation from each topic entity."""
        at = await tools.kg.relations([topic.id for topic in question.topic_entities])
        rng = tools.rng("rog.plan")
        walks = [
            (rng.choice(at[topic.id]).name,)
            for topic in question.topic_entities
            for _ in range(self.plans)
            if at[topic.id]
        ]
        paths: list[Path] = list(dict.fromkeys(walks))
        tools.record("plan", paths=paths)
        return paths

    async def _follow_gold(self, question: Question, tools: Tools) -> list[Path]:
        """Return the gold paths of all topic entities, their best ones first."""
        assert tools.gold_paths is not None, "the engine provides them while `uses_gold` is true"
        gold = [tuple(hop.name for hop in path) for path in await tools.gold_paths()]
        paths = [path for path in dict.fromkeys(gold) if len(path) <= self.max_path_len][: self.plans]
        tools.record("plan", paths=paths)
        _record_too_long([path for path in gold if len(path) > self.max_path_len], question, tools)
        return paths

    # Answering

    async def _read(self, question: Question, tools: Tools, found: Instances, *, exhausted: bool) -> Answer:
        """Show the instances that fit into the prompt, those of all plans in turn. Ask also if there are none."""
        instances = found.in_turn
        chains = within(instances, tools.caps.max_evidence_triples)
        printer = Printer(found.names)
        empty = ReadPaths(question, self.explain, (), (), found.names, self._wording.read)
        room = self.reader_prompt_tokens - tokens_of(message.content for message in empty.messages())
        shown, lines = fit(chains, lambda chain: self._line(chain, printer), room)
        record_cut_evidence(tools, chains, instances, shown=shown)
        tools.record("context", shown=len(shown), dropped=len(found.in_order) - len(shown))
        ends = {chain.end for chain in found.in_order} - {chain.end for chain in shown}
        tools.record("cut", by="evidence", nodes=ends)
        prompt = ReadPaths(question, self.explain, lines, shown, found.names, self._wording.read)
        answers = await self._ask(prompt, tools)
        return answer_from_chains(question, answers, shown, found.names, exhausted=exhausted, record=tools.record)

    def _line(self, chain: GroundedPath, printer: Printer) -> str:
        return walked(chain, printer) if self.render == "walk" else printer.chain(chain.triples)

    async def _answer_alone(self, question: Question, tools: Tools) -> Answer:
        """Ask the model without any paths."""
        answers = await self._ask(AnswerAlone(question, self.explain, self._wording.alone), tools)
        tools.record("answered", answers=answers.texts, evidence=0, status="ok")
        return Answer(predictions=tuple(map(Prediction, answers.texts)), raw=answers.raw)

    async def _ask(self, prompt: ReadPaths | AnswerAlone, tools: Tools) -> Answers:
        sampling = Sampling(temperature=self.temperature, max_tokens=self.reader_max_tokens)
        return await tools.llm.ask(prompt, sampling, retries=self.parse_retries, last=True)

    def _answer_with_ends(self, question: Question, tools: Tools, found: Instances, *, exhausted: bool) -> Answer:
        """Answer with the named nodes at the ends of the instances, without a model."""
        named = [chain for chain in found.in_order if node_name(chain.end, found.names)]
        counts = Counter(chain.end for chain in named)
        chosen = counts.most_common(_VOTED_ENDS) if self.reader == "vote" else counts.items()
        evidence = tuple(chain.triples for chain in within(named, tools.caps.max_evidence_triples))
        record_cut_evidence(tools, evidence, named)
        status = search_status(question, evidence, exhausted=exhausted)
        predictions = tuple(
            Prediction(node_name(end, found.names) or "", end if isinstance(end, str) else None) for end, _ in chosen
        )
        tools.record("answered", answers=[each.text for each in predictions], evidence=len(evidence), status=status)
        names = entity_names(evidence, found.names)
        return Answer(predictions=predictions, evidence=evidence, names=names, status=status)

    @property
    def _wording(self) -> Wording:
        return read_wording(self.templates)


def _record_too_long(paths: Sequence[Path], question: Question, tools: Tools) -> None:
    """Record that `max_path_len` dropped paths: none of their relations is followed."""
    at = [topic.id for topic in question.topic_entities]
    tools.record("cut", by="depth", relations=[path[0] for path in paths], at=at)


async def _bound(plans: Sequence[Path], tools: Tools) -> list[Path]:
    """Replace each relation by the most similar one of the graph (specification §3.6). Drop a path without one."""
    relations = list(dict.fromkeys(relation for path in plans for relation in path))
    similar = await concurrently(tools.retrieval.relations(relation, 1) for relation in relations)
    nearest = {relation: names[0] for relation, names in zip(relations, similar, strict=True) if names}
    tools.record("bound", relations=nearest)
    bound = (tuple(nearest[relation] for relation in path) for path in plans if nearest.keys() >= set(path))
    return list(dict.fromkeys(bound))
