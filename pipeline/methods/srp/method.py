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
from pipeline.methods.rendering import Names, Printer, fit
from pipeline.methods.srp.answer import AnswerFromEvidence, AnswerWithoutEvidence
from pipeline.methods.srp.entity_search import EditBudget, EntitySearch, Round
from pipeline.methods.srp.evidence import (
    Candidates,
    Evidence,
    candidate_relations,
    kept_first,
    merge,
    sample_of_each_path,
    sequences_to_judge,
    structural_findings,
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
    mask_references: bool
    references_in: tuple[GuidedCall, ...]
    relation_check: bool
    relation_check_max: PositiveInt
    relation_top_k: PositiveInt
    paths_per_entity: PositiveInt
    max_path_len: PositiveInt
    bind_top_k: PositiveInt
    frontier_per_layer: PositiveInt
    judge: bool | Literal["structural"]
    judge_sequences: Literal["complete", "all"]
    judge_samples_per_path: PositiveInt
    judge_sequence_tokens: PositiveInt
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
        """Bound the calls (§3.11): the initial paths of an entity are judged together, and each edit is judged."""
        of_entity = int(self.relation_check) + 1 + 2 * self._new_budget().limit
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
        masked = self.mask_references
        return await tools.retrieval.references(question, self.num_references, random=at_random, masked=masked)

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
        """Return the best first relations of an entity. Without more of them than wanted, the model is not asked."""
        names = sorted({relation.name for relation in around})
        if not names:
            return ()
        picked: list[str] = []
        scores: dict[str, float] = {}
        if len(names) > self.relation_top_k:
            scores = await self._ask_for_relations(state, entity, names)
            picked = list(scores)
        picked = picked or (await state.rank(names))[: self.relation_top_k]
        state.tools.record("relations_selected", entity=entity.id, relations=picked, scores=scores, offered=len(names))
        return tuple(picked)

    async def _ask_for_relations(self, state: QuestionState, entity: Entity, names: Sequence[str]) -> dict[str, float]:
        if len(names) > self.relation_check_max:
            ranking = await state.rank(names)
            offered = ranking[: self.relation_check_max]
            state.tools.record("cut", by="similarity", relations=ranking[self.relation_check_max :], at=[entity.id])
        else:
            offered = list(names)
        prompt = RelationCheck(
            question=state.question,
            entity=entity,
            relations=tuple(offered),
            top_k=self.relation_top_k,
            left_out=len(names) - len(offered),
            references=self._references_for("relation_check", state),
        )
        return await self._ask(state, prompt, self.max_tokens_plan)

    async def _generate_paths(
        self, state: QuestionState, relations: Mapping[EntityId, tuple[str, ...]] | None
    ) -> dict[EntityId, tuple[Path, ...]]:
        """Return the initial paths of every topic entity. An entity without one starts with its best relation."""
        references = self._references_for("path_generation", state)
        prompt = PathGeneration(
            state.question,
            relations,
            references,
            paths_per_entity=self.paths_per_entity,
            max_path_len=self.max_path_len,
        )
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
            return [await self._search(state, entity, paths[entity.id], shared) for entity in state.entities]
        return await concurrently(
            self._search(state, entity, paths[entity.id], self._new_budget()) for entity in state.entities
        )

    async def _search(
        self, state: QuestionState, entity: Entity, paths: tuple[Path, ...], budget: EditBudget
    ) -> Evidence:
        """Retrieve, judge and edit until an answer is found, the edits are used up or the editor proposes no path."""
        search = EntitySearch(entity)
        try:
            while paths and budget.may_search:
                current = Round(await concurrently(self._instantiate(state, entity, path) for path in paths))
                search.rounds.append(current)
                await self._judge(state, entity, current)
                edited = None
                if not current.verdict.have and budget.may_edit:
                    edited = await self._edit(state, search, current)
                elif not current.verdict.have:
                    state.tools.record("cut", by="depth", nodes=current.ends)
                paths = (edited,) if edited is not None and budget.spend() else ()
        except BudgetExhausted:
            search.exhausted = True
        return search.evidence(pruned=self.judge is not False and self.answer_evidence == "pruned")

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

    async def _judge(self, state: QuestionState, entity: Entity, current: Round) -> None:
        """Decide whether the paths of a round, judged together, lead to the answer (§3.7)."""
        partial = self.judge is True and self.judge_sequences == "all"
        sequences = sequences_to_judge(current.found, current.names, partial=partial)
        current.shown = self._shown_to_the_judge(sequences, current.names) if self.judge is True else sequences
        hidden = {sequence.end for sequence in sequences} - {sequence.end for sequence in current.shown}
        state.tools.record("cut", by="cap", nodes=hidden)
        if self.judge is True and current.shown:
            prompt = Judge(
                question=state.question,
                entity=entity,
                sequences=current.shown,
                names=current.names,
                left_out=len(sequences) - len(current.shown),
                references=self._references_for("judge", state),
            )
            retries = min(1, self.parse_retries)
            current.verdict = await self._ask(state, prompt, self.max_tokens_judge, retries=retries)
        else:
            current.verdict = Verdict(have=self.judge is False or (self.judge == "structural" and bool(sequences)))
        state.tools.record(
            "judged",
            entity=entity.id,
            have=current.verdict.have,
            shown=len(current.shown),
            retained=len(current.verdict.retained),
            hallucinated=current.verdict.invalid_items,
            findings=structural_findings(current.to_edit),
        )

    def _shown_to_the_judge(self, sequences: Sequence[GroundedPath], names: Names) -> tuple[GroundedPath, ...]:
        """Return a sample of each relation path or, with `judge_sequences=all`, what its limit of tokens allows."""
        if self.judge_sequences == "complete":
            return sample_of_each_path(sequences, self.judge_samples_per_path)
        printer = Printer(names)
        return fit(sequences, lambda chain: printer.chain(chain.triples), self.judge_sequence_tokens)

    async def _edit(self, state: QuestionState, search: EntitySearch, current: Round) -> Path | None:
        """Return a path that was not tried, or None when the editor proposes none (§3.8)."""
        path, verdict = current.to_edit, current.verdict
        grounded = kept_first((chain for each in current.found for chain in each.complete), verdict)
        partial = kept_first(path.partial, verdict)
        prompt = Edit(
            question=state.question,
            entity=search.entity,
            path=path.path,
            tried=tuple(tried for tried in search.tried if tried != path.path),
            message=" ".join(filter(None, (verdict.message, *structural_findings(path)))),
            grounded=grounded,
            partial=partial,
            names=current.names,
            pruned=verdict.pruned,
            known=frozenset().union(*(each.known for each in current.found)),
            references=self._references_for("edit", state),
            max_path_len=self.max_path_len,
            shown_grounded=self.shown_grounded,
            shown_partial=self.shown_partial,
        )
        shown = dict.fromkeys((*prompt.shown, *grounded[: self.shown_grounded], *partial[: self.shown_partial]))
        candidates = await self._candidates(state, self._extensible(search.entity, verdict, tuple(shown)))
        prompt = replace(prompt, candidates=candidates.by_path, left_out=candidates.left_out)
        edited = await self._ask(state, prompt, self.max_tokens_other)
        state.tools.record("edited", entity=search.entity.id, path=edited)
        return edited

    def _extensible(self, entity: Entity, verdict: Verdict, shown: Sequence[GroundedPath]) -> tuple[GroundedPath, ...]:
        """Return the chains whose ends offer relations: what the judge kept, the longest first, and those shown.

        When a model judges and keeps nothing, the topic entity is among them, so that a wrong first relation can be
        replaced (§3.8).
        """
        pruned = sorted(verdict.pruned.values(), key=lambda chain: -chain.length)
        first = (GroundedPath(entity.id),) if self.judge is True and not verdict.retained else ()
        return (*pruned, *shown, *first)

    async def _candidates(self, state: QuestionState, chains: Sequence[GroundedPath]) -> Candidates:
        """Return the relations that extend each path of the chains, the most similar to the question first.

        A path of the greatest length is not extended.
        """
        extensible = [chain for chain in chains if len(chain.path) < self.max_path_len]
        dropped = {chain.end for chain in chains} - {chain.end for chain in extensible}
        state.tools.record("cut", by="depth", nodes=dropped)
        ends = [(chain.path, chain.end) for chain in extensible if isinstance(chain.end, str)]
        around = await state.tools.kg.relations(list(dict.fromkeys(end for _, end in ends)))
        offered: dict[Path, set[str]] = {}
        for path, end in ends:
            offered.setdefault(path, set()).update(relation.name for relation in around[end])
        ranking = await state.rank(sorted(set().union(*offered.values())))
        return candidate_relations(offered, ranking, self.candidates_per_prefix, self.candidates_total)

    def _new_budget(self) -> EditBudget:
        return EditBudget(5, discard_from=4) if self.compat_readi_budget else EditBudget(self.max_edits)

    # Answering (§3.10)

    async def _answer(self, state: QuestionState, evidence: Evidence) -> Answer:
        """Answer from the evidence. Without any, ask the model alone."""
        prompt = (
            AnswerFromEvidence(state.question, evidence.chains, evidence.names, left_out=evidence.left_out)
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
