"""SRP: plan relation paths from solved questions, retrieve, judge what came back, edit the path (methods.md §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.concluding import entity_names, link, search_status
from pipeline.methods.concurrency import concurrently
from pipeline.methods.instance import Instance, Path
from pipeline.methods.port import Tools
from pipeline.methods.srp.answer import AnswerFromEvidence, AnswerWithoutEvidence
from pipeline.methods.srp.edit import Edit
from pipeline.methods.srp.evidence import (
    Evidence,
    all_instances,
    candidate_relations,
    join,
    longest_instances,
    merge,
    sequences_to_judge,
    structural_findings,
)
from pipeline.methods.srp.instantiation import Instantiation, instantiate
from pipeline.methods.srp.judge import Judge, Verdict
from pipeline.methods.srp.path_generation import PathGeneration
from pipeline.methods.srp.relation_check import RelationCheck
from pipeline.retrieval.port import Reference
from pipeline.retrieval.relations import as_text
from pipeline.types import Answer, Entity, EntityId, Question, Relation

T = TypeVar("T")

GuidedCall: TypeAlias = Literal["relation_check", "path_generation", "judge", "edit"]
"""A call that can be shown references."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SRP:
    """Self-Reflective Planning. Its hyper-parameters are described in `conf/method/srp.yaml`."""

    name: str = "srp"
    temperature: NonNegativeFloat = 0.3
    num_references: NonNegativeInt = 4
    reference_selection: Literal["nearest", "random"] = "nearest"
    references_in: tuple[GuidedCall, ...] = ("relation_check", "judge", "edit")
    relation_check: bool = True
    relation_check_max: PositiveInt = 200
    relation_top_k: PositiveInt = 3
    paths_per_entity: PositiveInt = 1
    max_path_len: PositiveInt = 4
    bind_top_k: PositiveInt = 5
    frontier_per_layer: PositiveInt = 150
    judge: bool | Literal["structural"] = True
    judge_samples_per_path: PositiveInt = 15
    max_edits: NonNegativeInt = 3
    edit_budget_scope: Literal["per_entity", "per_question"] = "per_entity"
    compat_readi_budget: bool = False
    shown_grounded: NonNegativeInt = 5
    shown_partial: NonNegativeInt = 15
    candidates_per_prefix: PositiveInt = 15
    candidates_total: PositiveInt = 35
    answer_evidence: Literal["pruned", "instances"] = "pruned"
    parse_retries: NonNegativeInt = 2
    max_tokens_plan: PositiveInt = 4096
    max_tokens_judge: PositiveInt = 4096
    max_tokens_other: PositiveInt = 2048

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Find evidence from every topic entity, and answer from it (§3.4)."""
        case = _Case(question, await self._references(question, tools), tools)
        return await self._answer(case, await self._find_evidence(case))

    async def _find_evidence(self, case: _Case) -> Evidence:
        if not case.entities:
            return Evidence()
        try:
            relations = await self._check_relations(case)
            paths = await self._generate_paths(case, relations)
        except BudgetExhausted:
            return Evidence(exhausted=True)
        explored = await self._explore(case, paths)
        evidence = merge(explored, case.tools.caps.max_evidence_triples)
        if evidence.exhausted and not any(entity.exhausted for entity in explored):
            case.tools.record("cap_hit", cap="max_evidence_triples")
        return evidence

    # Planning (§3.5)

    async def _references(self, question: Question, tools: Tools) -> Sequence[Reference]:
        if not self.num_references or not question.topic_entities:
            return ()
        at_random = self.reference_selection == "random"
        return await tools.retrieval.references(question, self.num_references, random=at_random)

    async def _check_relations(self, case: _Case) -> dict[EntityId, tuple[str, ...]] | None:
        """R0: the best first relations of each topic entity; None when the check is switched off."""
        if not self.relation_check:
            return None
        around = await case.tools.kg.relations([entity.id for entity in case.entities])
        picked = await concurrently(self._pick_relations(case, entity, around[entity.id]) for entity in case.entities)
        return {entity.id: relations for entity, relations in zip(case.entities, picked, strict=True)}

    async def _pick_relations(self, case: _Case, entity: Entity, around: Sequence[Relation]) -> tuple[str, ...]:
        names = sorted({relation.name for relation in around})
        if not names:
            return ()
        if len(names) > self.relation_check_max:
            names = sorted((await case.rank(names))[: self.relation_check_max])
        top_k = min(self.relation_top_k, len(names))
        prompt = RelationCheck(case.question, entity, tuple(names), top_k, self._shown(case, "relation_check"))
        scored = await self._ask(case, prompt, self.max_tokens_plan)
        picked = list(scored) or (await case.rank(names))[:top_k]
        case.tools.record("relations_selected", entity=entity.id, relations=picked, scores=scored, offered=len(names))
        return tuple(picked)

    async def _generate_paths(
        self, case: _Case, relations: Mapping[EntityId, tuple[str, ...]] | None
    ) -> dict[EntityId, tuple[Path, ...]]:
        """The initial paths of every topic entity; one that got none starts with its best single relation."""
        references = self._shown(case, "path_generation")
        prompt = PathGeneration(case.question, relations, references, self.paths_per_entity, self.max_path_len)
        planned = await self._ask(case, prompt, self.max_tokens_plan)
        best = {entity.id: (relations or {}).get(entity.id, ())[:1] for entity in case.entities}
        paths = {id: planned.get(id, (single,)) for id, single in best.items()}
        case.tools.record("path_generated", paths=paths, missing=[id for id in paths if id not in planned])
        return paths

    # Retrieve, judge, edit (§3.4, §3.6–3.8)

    async def _explore(self, case: _Case, paths: Mapping[EntityId, tuple[Path, ...]]) -> list[Evidence]:
        """Explore from every topic entity: all at once, or in turn where they share one count of edits."""
        if self.compat_readi_budget or self.edit_budget_scope == "per_question":
            shared = self._budget()
            return [await self._explore_entity(case, entity, paths[entity.id], shared) for entity in case.entities]
        return await concurrently(
            self._explore_entity(case, entity, paths[entity.id], self._budget()) for entity in case.entities
        )

    async def _explore_entity(
        self, case: _Case, entity: Entity, paths: Sequence[Path], budget: _EditBudget
    ) -> Evidence:
        """Follow each initial path of one topic entity that no earlier one has been edited into."""
        tried: list[Path] = []
        evidence = [
            await self._follow(case, entity, path, tried, budget)
            for path in paths
            if path not in tried and budget.may_retrieve
        ]
        return join(evidence)

    async def _follow(
        self, case: _Case, entity: Entity, path: Path, tried: list[Path], budget: _EditBudget
    ) -> Evidence:
        """Retrieve, judge and edit until the answer is there, the edits are spent or the editor is at a loss."""
        found, exhausted = Instantiation(), False
        retained: tuple[Instance, ...] = ()
        names: dict[EntityId, str | None] = {}
        try:
            while True:
                tried.append(path)
                found = await self._instantiate(case, entity, path)
                names.update(found.names)
                verdict = await self._judge(case, entity, found)
                if verdict.have:
                    return Evidence(self._supporting(found, verdict), names)
                retained = verdict.retained or retained
                if not budget.may_edit:
                    break
                edited = await self._edit(case, entity, tried, found, verdict)
                if edited is None or not budget.spend():
                    break
                path = edited
        except BudgetExhausted:
            exhausted = True
        return Evidence((*retained, *longest_instances(found)), names, exhausted)

    async def _instantiate(self, case: _Case, entity: Entity, path: Path) -> Instantiation:
        """Bind each relation to the graph's most similar ones, and walk along them (§3.6)."""
        tools = case.tools
        bound = await concurrently(tools.retrieval.relations(relation, self.bind_top_k) for relation in path)
        tools.record("bound", entity=entity.id, relations=dict(zip(path, bound, strict=True)))
        frontier = min(self.frontier_per_layer, tools.caps.max_frontier)
        found = await instantiate(entity, path, bound, tools.kg, frontier=frontier)
        tools.record(
            "instantiated",
            entity=entity.id,
            path=path,
            grounded=found.grounded,
            complete=len(found.complete),
            partial=len(found.partial),
            truncated=found.truncated,
        )
        return found

    async def _judge(self, case: _Case, entity: Entity, found: Instantiation) -> Verdict:
        """Whether the answer is there, and what to tell the editor if it is not (§3.7)."""
        shown = self._sequences(found)
        verdict = Verdict(have=self.judge is False or (self.judge == "structural" and bool(shown)))
        if self.judge is True and shown:
            prompt = Judge(case.question, shown, found.names, self._shown(case, "judge"))
            verdict = await self._ask(case, prompt, self.max_tokens_judge, retries=min(1, self.parse_retries))
        findings = structural_findings(found)
        case.tools.record(
            "judged",
            entity=entity.id,
            have=verdict.have,
            shown=len(shown),
            retained=len(verdict.retained),
            hallucinated=verdict.hallucinated,
            findings=findings,
        )
        return replace(verdict, message=" ".join(filter(None, (verdict.message, *findings))))

    async def _edit(
        self, case: _Case, entity: Entity, tried: Sequence[Path], found: Instantiation, verdict: Verdict
    ) -> Path | None:
        """A path that was not tried, or None when the editor has none to offer (§3.8)."""
        grounded, partial = found.complete[: self.shown_grounded], found.partial[: self.shown_partial]
        prompt = Edit(
            question=case.question,
            entity=entity,
            path=found.path,
            tried=tuple(path for path in tried if path != found.path),
            message=verdict.message,
            grounded=grounded,
            partial=partial,
            names=found.names,
            candidates=await self._candidates(case, (*verdict.retained, *partial, *grounded)),
            known=found.known,
            references=self._shown(case, "edit"),
            max_path_len=self.max_path_len,
        )
        edited = await self._ask(case, prompt, self.max_tokens_other)
        case.tools.record("edited", entity=entity.id, path=edited)
        return edited

    async def _candidates(self, case: _Case, chains: Sequence[Instance]) -> tuple[tuple[Path, tuple[str, ...]], ...]:
        """The relations at the ends of chains by the path that leads there, the most similar to the question first."""
        ends = [(chain.path, chain.end) for chain in chains if isinstance(chain.end, str)]
        around = await case.tools.kg.relations(list(dict.fromkeys(end for _, end in ends)))
        offered: dict[Path, set[str]] = {}
        for path, end in ends:
            offered.setdefault(path, set()).update(relation.name for relation in around[end])
        ranking = await case.rank(sorted(set().union(*offered.values())))
        return candidate_relations(offered, ranking, self.candidates_per_prefix, self.candidates_total)

    def _sequences(self, found: Instantiation) -> tuple[Instance, ...]:
        """What can answer: for a model to read only so many of each path, for a structural check all."""
        return sequences_to_judge(found, self.judge_samples_per_path if self.judge is True else None)

    def _supporting(self, found: Instantiation, verdict: Verdict) -> tuple[Instance, ...]:
        """The evidence after HAVE (§3.9); without a judge, everything that was retrieved."""
        if self.judge is False or self.answer_evidence == "instances":
            return all_instances(found)
        return verdict.retained or self._sequences(found)

    def _budget(self) -> _EditBudget:
        return _EditBudget(5, discard_from=4) if self.compat_readi_budget else _EditBudget(self.max_edits)

    # Answering (§3.10)

    async def _answer(self, case: _Case, evidence: Evidence) -> Answer:
        """Answer from the evidence, or from the model's own knowledge where there is none."""
        prompt = (
            AnswerFromEvidence(case.question, evidence.instances, evidence.names)
            if evidence.instances
            else AnswerWithoutEvidence(case.question)
        )
        answers = await self._ask(case, prompt, self.max_tokens_other, last=True)
        nodes = (node for instance in evidence.instances for node in instance.nodes)
        facts = tuple(instance.triples for instance in evidence.instances)
        status = search_status(case.question, facts, exhausted=evidence.exhausted)
        case.tools.record("answered", answers=answers.texts, evidence=len(facts), status=status)
        return Answer(
            predictions=link(answers.texts, nodes, evidence.names),
            raw=answers.raw,
            evidence=facts,
            names=entity_names(facts, evidence.names),
            status=status,
        )

    def _shown(self, case: _Case, call: GuidedCall) -> tuple[Reference, ...]:
        """The references, if this call is to see them."""
        return tuple(case.references) if call in self.references_in else ()

    async def _ask(
        self, case: _Case, prompt: Prompt[T], max_tokens: int, *, retries: int | None = None, last: bool = False
    ) -> T:
        sampling = Sampling(temperature=self.temperature, max_tokens=max_tokens)
        retries = self.parse_retries if retries is None else retries
        return await case.tools.llm.ask(prompt, sampling, retries=retries, last=last)


@plain_dataclass(frozen=True, slots=True)
class _Case:
    """A question, and all there is to work on it with."""

    question: Question
    references: Sequence[Reference]
    tools: Tools

    @property
    def entities(self) -> tuple[Entity, ...]:
        return self.question.topic_entities

    async def rank(self, relations: Sequence[str]) -> list[str]:
        """The relations, the most similar to the question by the sentence encoder first."""
        texts = [as_text(relation) for relation in relations]
        return [relations[place] for place in await self.tools.retrieval.rank(self.question.text, texts)]


@plain_dataclass
class _EditBudget:
    """How many edits may still be made."""

    limit: int
    discard_from: int | None = None
    """The ancestor's budget (§3.8): its loops stop at this edit and discard the path, and none starts at the limit."""
    spent: int = 0

    @property
    def may_retrieve(self) -> bool:
        """Whether an initial path may be retrieved at all."""
        return self.discard_from is None or self.may_edit

    @property
    def may_edit(self) -> bool:
        return self.spent < self.limit

    def spend(self) -> bool:
        """Count one edit, and say whether its path may be retrieved."""
        self.spent += 1
        return self.discard_from is None or self.spent < self.discard_from
