"""SRP: plan relation paths, retrieve their facts, judge the facts, edit the paths (specification §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.answer_linking import answer_from_chains
from pipeline.methods.concurrency import concurrently
from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.interface import Caps, Tools
from pipeline.methods.srp.answer import AnswerFromEvidence, AnswerWithoutEvidence
from pipeline.methods.srp.evidence import (
    Evidence,
    all_chains,
    candidate_relations,
    join,
    kept_first,
    longest_chains,
    merge,
    sequences_to_judge,
    structural_findings,
    without_beginnings,
)
from pipeline.methods.srp.instantiation import Instantiation, instantiate
from pipeline.methods.srp.judge import Judge, Verdict
from pipeline.methods.srp.path_edit import Edit
from pipeline.methods.srp.path_generation import PathGeneration
from pipeline.methods.srp.relation_check import RelationCheck
from pipeline.retrieval.interface import Reference
from pipeline.retrieval.relations import as_text
from pipeline.types import Answer, Entity, EntityId, Question, Relation

T = TypeVar("T")

GuidedCall: TypeAlias = Literal["relation_check", "path_generation", "judge", "edit"]
"""A call whose prompt can show references."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SRP:
    """Self-Reflective Planning. Its hyper-parameters are described in `conf/method/srp.yaml`."""

    prompts: ClassVar = (PathGeneration, RelationCheck, Judge, Edit, AnswerFromEvidence, AnswerWithoutEvidence)
    name: str
    temperature: NonNegativeFloat
    num_references: NonNegativeInt
    reference_selection: Literal["nearest", "random"]
    references_in: tuple[GuidedCall, ...]
    relation_check: bool
    relation_check_max: PositiveInt
    relation_top_k: PositiveInt
    paths_per_entity: PositiveInt
    max_path_len: PositiveInt
    bind_top_k: PositiveInt
    frontier_per_layer: PositiveInt
    judge: bool | Literal["structural"]
    judge_samples_per_path: PositiveInt
    max_edits: NonNegativeInt
    edit_budget_scope: Literal["per_entity", "per_question"]
    compat_readi_budget: bool
    shown_grounded: NonNegativeInt
    shown_partial: NonNegativeInt
    candidates_per_prefix: PositiveInt
    candidates_total: PositiveInt
    answer_evidence: Literal["pruned", "instances"]
    parse_retries: NonNegativeInt
    max_tokens_plan: PositiveInt
    max_tokens_judge: PositiveInt
    max_tokens_other: PositiveInt

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Bound the calls (§3.11): each path is judged once and may be edited in vain, and each edit is judged."""
        edits = 2 * self._new_budget().limit
        of_entity = int(self.relation_check) + 2 * self.paths_per_entity + edits
        return (1 + self.parse_retries) * (len(question.topic_entities) * of_entity + 2)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Search for evidence from every topic entity, and answer from it (§3.4)."""
        state = QuestionState(question, await self._references(question, tools), tools)
        return await self._answer(state, await self._find_evidence(state))

    async def _find_evidence(self, state: QuestionState) -> Evidence:
        if not state.entities:
            return Evidence()
        try:
            relations = await self._check_relations(state)
            paths = await self._generate_paths(state, relations)
        except BudgetExhausted:
            return Evidence(exhausted=True)
        explored = await self._explore(state, paths)
        evidence = merge(explored, state.tools.caps.max_evidence_triples)
        ends = {chain.end for entity in explored for chain in entity.chains}
        state.tools.record("cut", by="evidence", nodes=ends - {chain.end for chain in evidence.chains})
        if evidence.exhausted and not any(entity.exhausted for entity in explored):
            state.tools.record("cap_hit", cap="max_evidence_triples")
        return evidence

    # Planning (§3.5)

    async def _references(self, question: Question, tools: Tools) -> Sequence[Reference]:
        if not self.num_references or not question.topic_entities:
            return ()
        at_random = self.reference_selection == "random"
        return await tools.retrieval.references(question, self.num_references, random=at_random)

    async def _check_relations(self, state: QuestionState) -> dict[EntityId, tuple[str, ...]] | None:
        """Return R0, the best first relations of each topic entity; None when the check is switched off."""
        if not self.relation_check:
            return None
        around = await state.tools.kg.relations([entity.id for entity in state.entities])
        picked = await concurrently(self._pick_relations(state, entity, around[entity.id]) for entity in state.entities)
        return {entity.id: relations for entity, relations in zip(state.entities, picked, strict=True)}

    async def _pick_relations(
        self, state: QuestionState, entity: Entity, around: Sequence[Relation]
    ) -> tuple[str, ...]:
        names = sorted({relation.name for relation in around})
        if not names:
            return ()
        if len(names) > self.relation_check_max:
            ranking = await state.rank(names)
            state.tools.record("cut", by="similarity", relations=ranking[self.relation_check_max :], at=[entity.id])
            names = sorted(ranking[: self.relation_check_max])
        top_k = min(self.relation_top_k, len(names))
        prompt = RelationCheck(
            state.question, entity, tuple(names), top_k, self._references_for("relation_check", state)
        )
        scored = await self._ask(state, prompt, self.max_tokens_plan)
        picked = list(scored) or (await state.rank(names))[:top_k]
        state.tools.record("relations_selected", entity=entity.id, relations=picked, scores=scored, offered=len(names))
        return tuple(picked)

    async def _generate_paths(
        self, state: QuestionState, relations: Mapping[EntityId, tuple[str, ...]] | None
    ) -> dict[EntityId, tuple[Path, ...]]:
        """Return the initial paths of every topic entity. An entity without one starts with its best relation."""
        references = self._references_for("path_generation", state)
        prompt = PathGeneration(state.question, relations, references, self.paths_per_entity, self.max_path_len)
        planned = await self._ask(state, prompt, self.max_tokens_plan)
        best = {entity.id: (relations or {}).get(entity.id, ())[:1] for entity in state.entities}
        paths = {id: planned.get(id, (single,)) for id, single in best.items()}
        state.tools.record("path_generated", paths=paths, missing=[id for id in paths if id not in planned])
        return paths

    # Retrieving, judging, editing (§3.4, §3.6–3.8)

    async def _explore(self, state: QuestionState, paths: Mapping[EntityId, tuple[Path, ...]]) -> list[Evidence]:
        """Search from all topic entities: concurrently, or one after the other when they share one edit budget."""
        if self.compat_readi_budget or self.edit_budget_scope == "per_question":
            shared = self._new_budget()
            return [await self._explore_entity(state, entity, paths[entity.id], shared) for entity in state.entities]
        return await concurrently(
            self._explore_entity(state, entity, paths[entity.id], self._new_budget()) for entity in state.entities
        )

    async def _explore_entity(
        self, state: QuestionState, entity: Entity, paths: Sequence[Path], budget: _EditBudget
    ) -> Evidence:
        """Follow the initial paths of one topic entity, except those that an earlier one was edited into."""
        tried: list[Path] = []
        evidence: list[Evidence] = []
        for path in paths:
            if path in tried or not budget.may_retrieve:
                continue
            found = await self._follow(state, entity, path, tried, budget)  # adds each path it retrieves to `tried`
            evidence.append(found)
        return join(evidence)

    async def _follow(
        self, state: QuestionState, entity: Entity, path: Path, tried: list[Path], budget: _EditBudget
    ) -> Evidence:
        """Retrieve, judge and edit until an answer is found, the edits are used up or the editor proposes no path.

        Adds every path that it retrieves to `tried`.
        """
        searched: list[Instantiation] = []
        kept: tuple[GroundedPath, ...] = ()
        exhausted = False
        names: dict[EntityId, str | None] = {}
        try:
            while True:
                tried.append(path)
                instances = await self._instantiate(state, entity, path)
                searched.append(instances)
                names.update(instances.names)
                verdict = await self._judge(state, entity, instances)
                if verdict.have:
                    return Evidence(self._supporting(instances, verdict, kept), names)
                kept = (*verdict.retained, *kept)
                if not budget.may_edit:
                    break
                edited = await self._edit(state, entity, tried, instances, verdict)
                if edited is None or not budget.spend():
                    break
                path = edited
        except BudgetExhausted:
            exhausted = True
        return Evidence(self._unsatisfying(searched, kept), names, exhausted)

    async def _instantiate(self, state: QuestionState, entity: Entity, path: Path) -> Instantiation:
        """Bind each relation of the path to the most similar ones of the graph, and walk along them (§3.6)."""
        tools = state.tools
        bound = await concurrently(tools.retrieval.relations(relation, self.bind_top_k) for relation in path)
        tools.record("bound", entity=entity.id, relations=dict(zip(path, bound, strict=True)))
        frontier = min(self.frontier_per_layer, tools.caps.max_frontier)
        instances = await instantiate(entity, path, bound, tools.kg, frontier=frontier)
        tools.record("cut", by="cap", nodes=instances.dropped)
        tools.record(
            "instantiated",
            entity=entity.id,
            path=path,
            grounded=instances.max_length,
            complete=len(instances.complete),
            partial=len(instances.partial),
            truncated=instances.truncated,
        )
        return instances

    async def _judge(self, state: QuestionState, entity: Entity, instances: Instantiation) -> Verdict:
        """Decide whether the instances contain the answer, and describe to the editor what is wrong (§3.7)."""
        shown = self._sequences(instances)
        verdict = Verdict(have=self.judge is False or (self.judge == "structural" and bool(shown)))
        if self.judge is True and shown:
            prompt = Judge(state.question, shown, instances.names, self._references_for("judge", state))
            verdict = await self._ask(state, prompt, self.max_tokens_judge, retries=min(1, self.parse_retries))
        findings = structural_findings(instances)
        state.tools.record(
            "judged",
            entity=entity.id,
            have=verdict.have,
            shown=len(shown),
            retained=len(verdict.retained),
            hallucinated=verdict.invalid_items,
            findings=findings,
        )
        return replace(verdict, message=" ".join(filter(None, (verdict.message, *findings))))

    async def _edit(
        self, state: QuestionState, entity: Entity, tried: Sequence[Path], instances: Instantiation, verdict: Verdict
    ) -> Path | None:
        """Return a path that was not tried, or None when the editor proposes none (§3.8)."""
        grounded = kept_first(instances.complete, verdict.pruned)
        shown = (*grounded[: self.shown_grounded], *instances.partial[: self.shown_partial])
        prompt = Edit(
            question=state.question,
            entity=entity,
            path=instances.path,
            tried=tuple(path for path in tried if path != instances.path),
            message=verdict.message,
            grounded=grounded,
            partial=instances.partial,
            names=instances.names,
            candidates=await self._candidates(state, self._extensible(entity, verdict, shown)),
            pruned=verdict.pruned,
            known=instances.known,
            references=self._references_for("edit", state),
            max_path_len=self.max_path_len,
            shown_grounded=self.shown_grounded,
            shown_partial=self.shown_partial,
        )
        edited = await self._ask(state, prompt, self.max_tokens_other)
        state.tools.record("edited", entity=entity.id, path=edited)
        return edited

    def _extensible(self, entity: Entity, verdict: Verdict, shown: Sequence[GroundedPath]) -> tuple[GroundedPath, ...]:
        """Return the chains whose ends offer relations: what the judge kept, the longest first, and the chains shown.

        When a model judges and keeps nothing, the topic entity is among them, so that a wrong first relation can be
        replaced (§3.8).
        """
        pruned = sorted(verdict.pruned.values(), key=lambda chain: -chain.length)
        first = (GroundedPath(entity.id),) if self.judge is True and not verdict.retained else ()
        return (*pruned, *shown, *first)

    async def _candidates(
        self, state: QuestionState, chains: Sequence[GroundedPath]
    ) -> tuple[tuple[Path, tuple[str, ...]], ...]:
        """Return the relations that extend each path of the chains, the most similar to the question first."""
        ends = [(chain.path, chain.end) for chain in chains if isinstance(chain.end, str)]
        around = await state.tools.kg.relations(list(dict.fromkeys(end for _, end in ends)))
        offered: dict[Path, set[str]] = {}
        for path, end in ends:
            offered.setdefault(path, set()).update(relation.name for relation in around[end])
        ranking = await state.rank(sorted(set().union(*offered.values())))
        return candidate_relations(offered, ranking, self.candidates_per_prefix, self.candidates_total)

    def _sequences(self, instances: Instantiation) -> tuple[GroundedPath, ...]:
        """Return the chains that can answer: for a model a sample of each path, for the structural check all."""
        return sequences_to_judge(instances, self.judge_samples_per_path if self.judge is True else None)

    def _supporting(
        self, instances: Instantiation, verdict: Verdict, kept: Sequence[GroundedPath]
    ) -> tuple[GroundedPath, ...]:
        """Return the evidence after a HAVE verdict (§3.9), with what the judge kept of earlier paths.

        Without a judge, return everything that was retrieved.
        """
        if self.judge is False or self.answer_evidence == "instances":
            return all_chains(instances)
        return without_beginnings((*(verdict.retained or self._sequences(instances)), *kept))

    def _unsatisfying(
        self, searched: Sequence[Instantiation], kept: Sequence[GroundedPath]
    ) -> tuple[GroundedPath, ...]:
        """Return the evidence when no verdict was HAVE (§3.9): what the judge kept, then the longest instances.

        The last path comes first. The paths before it are left out if the evidence is not pruned.
        """
        paths = searched[-1:] if self.answer_evidence == "instances" else searched[::-1]
        return without_beginnings((*kept, *(chain for instances in paths for chain in longest_chains(instances))))

    def _new_budget(self) -> _EditBudget:
        return _EditBudget(5, discard_from=4) if self.compat_readi_budget else _EditBudget(self.max_edits)

    # Answering (§3.10)

    async def _answer(self, state: QuestionState, evidence: Evidence) -> Answer:
        """Answer from the evidence. Without any, ask the model alone."""
        prompt = (
            AnswerFromEvidence(state.question, evidence.chains, evidence.names)
            if evidence.chains
            else AnswerWithoutEvidence(state.question)
        )
        answers = await self._ask(state, prompt, self.max_tokens_other, last=True)
        question, chains, names = state.question, evidence.chains, evidence.names
        record = state.tools.record
        return answer_from_chains(question, answers, chains, names, exhausted=evidence.exhausted, record=record)

    def _references_for(self, call: GuidedCall, state: QuestionState) -> tuple[Reference, ...]:
        """Return the references that the prompt of this call shows."""
        return tuple(state.references) if call in self.references_in else ()

    async def _ask(
        self,
        state: QuestionState,
        prompt: Prompt[T],
        max_tokens: int,
        *,
        retries: int | None = None,
        last: bool = False,
    ) -> T:
        sampling = Sampling(temperature=self.temperature, max_tokens=max_tokens)
        retries = self.parse_retries if retries is None else retries
        return await state.tools.llm.ask(prompt, sampling, retries=retries, last=last)


@plain_dataclass(frozen=True, slots=True)
class QuestionState:
    """A question, its references and the tools to answer it."""

    question: Question
    references: Sequence[Reference]
    tools: Tools

    @property
    def entities(self) -> tuple[Entity, ...]:
        return self.question.topic_entities

    async def rank(self, relations: Sequence[str]) -> list[str]:
        """Return the relations ranked by the sentence encoder, the most similar to the question first."""
        texts = [as_text(relation) for relation in relations]
        return [relations[index] for index in await self.tools.retrieval.rank(self.question.text, texts)]


@plain_dataclass
class _EditBudget:
    """Counts the edits of one topic entity, or of several that share a budget."""

    limit: int
    discard_from: int | None = None
    """Readi's budget (§3.8): this edit ends the loop and its path is discarded; at `limit`, no further loop starts."""
    spent: int = 0

    @property
    def may_retrieve(self) -> bool:
        """Whether the loop of another initial path may start."""
        return self.discard_from is None or self.may_edit

    @property
    def may_edit(self) -> bool:
        return self.spent < self.limit

    def spend(self) -> bool:
        """Count one edit. Return whether its path may be retrieved."""
        self.spent += 1
        return self.discard_from is None or self.spent < self.discard_from
