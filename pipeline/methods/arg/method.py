"""ArG: a generator walks the graph and judges each step; token probabilities rank the beam (specification §4)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import ClassVar

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.methods.answer_linking import entity_names, link, search_status
from pipeline.methods.arg.answers import AnswerSegment
from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.arg.entity_level import judge_entities
from pipeline.methods.arg.leaves import answer_without_retrieval, force_answers
from pipeline.methods.arg.relation_level import judge_relations
from pipeline.methods.arg.relations import HypotheticalRelations, RelationSegment
from pipeline.methods.arg.retrieval import RetrievalToken
from pipeline.methods.arg.search import Search
from pipeline.methods.arg.settings import Settings
from pipeline.methods.arg.transcript import TokenChoice
from pipeline.methods.arg.tree import best_leaves
from pipeline.methods.exploration import record_cut_evidence
from pipeline.methods.grounded_path import within
from pipeline.methods.interface import Caps, Tools
from pipeline.types import Answer, Question


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ArG(Settings):
    """Active self-Reflection over knowledge Graph. Its hyper-parameters are described in `conf/method/arg.yaml`."""

    prompts: ClassVar = (
        RetrievalToken,
        HypotheticalRelations,
        RelationSegment,
        EntitySegment,
        AnswerSegment,
        TokenChoice,
    )

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Bound the calls (§4.9): at each hop for every node, group of relations, and relation of an entity.

        A group after which the model declines to retrieve takes one more call, and so does the root.
        """
        nodes = self.width or caps.max_frontier
        entities = max(len(question.topic_entities), self.max_tails_shown * self.cvt_fanout)
        groups = ceil(2 * self.retrieve_k / self.group_size)
        of_hop = nodes * (1 + 2 * groups + entities * self.group_size)
        return (1 + self.max_regenerate) * (1 + self.max_hops * of_hop + nodes)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Grow the tree hop by hop, force an answer at open nodes, and rank the leaves (specification §4.5)."""
        search = Search(self, question, tools)
        if question.topic_entities:
            await self._grow(search)
        if self.force_answer:
            await force_answers(search)
        return self._ranked_answer(search)

    async def _grow(self, search: Search) -> None:
        try:
            await self._begin(search)
            while search.is_open and search.depth < self.max_hops:
                search.depth += 1
                nodes = await judge_relations(search)
                if not search.exhausted:
                    await judge_entities(search, nodes)
            if not search.exhausted:
                search.record_cut("depth", search.frontier)
        except BudgetExhausted:
            search.exhausted = True

    async def _begin(self, search: Search) -> None:
        """Ask the model whether to retrieve. A root that declines becomes a leaf, and the search is over."""
        if self.retrieval == "always":
            return
        (token,) = await search.generate([RetrievalToken(search.question, self.prompted)])
        if token is not None and token.value:
            root, search.frontier, search.deepest = search.frontier, (), ()
            await answer_without_retrieval(search, root)

    def _ranked_answer(self, search: Search) -> Answer:
        """Return the answers of the best leaves, in their order (specification §4.7)."""
        ranked = best_leaves(search.leaves)
        leaves = ranked[: self.answer_leaves]
        walks = dict.fromkeys(walk for leaf in leaves for walk in leaf.walks if walk.length)
        kept = within(walks, search.tools.caps.max_evidence_triples)
        record_cut_evidence(search.tools, kept, walks)
        left_out = {walk.end for leaf in ranked[self.answer_leaves :] for walk in leaf.walks}
        search.tools.record("cut", by="beam", nodes=left_out - {walk.end for walk in walks})
        evidence = tuple(walk.triples for walk in kept)
        scores: dict[str, float] = {}
        for leaf in leaves:
            for text in leaf.answers.texts:
                scores.setdefault(text, leaf.score)
        linked = link(scores, (node for walk in walks for node in walk.nodes), search.names)
        status = search_status(search.question, evidence, exhausted=search.exhausted)
        search.tools.record(
            "answered",
            leaves=[[round(leaf.score, 6), list(leaf.answers.texts)] for leaf in leaves],
            of=len(search.leaves),
            status=status,
        )
        return Answer(
            predictions=tuple(replace(one, score=scores[one.text]) for one in linked),
            raw=leaves[0].answers.raw if leaves else "",
            evidence=evidence,
            names=entity_names(evidence, search.names),
            status=status,
        )
