"""RAG: one search, one answer from what surrounds the node that was found (specification §16.1).

With `hops` 0, 1 and 2 these are the baselines text RAG, 1-hop RAG and 2-hop RAG of the R3-Cycle paper, and with
`hops=null` its column of the model alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.kg.interface import AttributeLookups
from pipeline.llm.prompt import Sampling
from pipeline.methods.answer_linking import entity_names, link
from pipeline.methods.answering import Answers
from pipeline.methods.exploration import record_cut_evidence
from pipeline.methods.grounded_path import within
from pipeline.methods.interface import Caps, Tools
from pipeline.methods.rag import facts, nodes
from pipeline.methods.rag.nodes import Order
from pipeline.methods.rag.read import ReadFacts, ReadNodes
from pipeline.methods.rendering import Printer, fit
from pipeline.types import Answer, Chain, Prediction, Question, Status


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class RAG:
    """Retrieval-augmented generation. Its hyper-parameters are described in `conf/method/rag.yaml`."""

    prompts: ClassVar = (ReadNodes, ReadFacts)
    name: str
    hops: Literal[0, 1, 2] | None
    centres: PositiveInt
    index_text: Literal["labelled", "plain"]
    neighbours_per_edge: PositiveInt
    context_tokens: PositiveInt
    two_hop: Literal["rings", "compat"]
    order: Order
    expand_cvt: bool
    temperature: NonNegativeFloat
    max_tokens: PositiveInt
    parse_retries: NonNegativeInt

    @property
    def uses_graph(self) -> bool:
        """Whether anything is looked up."""
        return self.hops is not None

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Return one call with all its retries (specification §16.1)."""
        return 1 + self.parse_retries

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Collect what surrounds the question, cut it to `context_tokens`, and ask once."""
        if tools.attributes is not None:
            return await self._from_nodes(question, tools, tools.attributes)
        return await self._from_facts(question, tools)

    async def _from_nodes(self, question: Question, tools: Tools, attributes: AttributeLookups) -> Answer:
        """Answer from nodes with features."""
        found = nodes.Nodes([], None, as_published=False)
        if self.hops is not None:
            domain = str(question.meta.get("domain") or "").partition("/")[0]
            found = await nodes.collect(
                await self._centres(question, tools),
                domain,
                tools,
                attributes,
                hops=self.hops,
                per_edge=self.neighbours_per_edge,
                as_published=self.two_hop == "compat",
            )
        texts = found.in_order(self.order)
        shown = fit(texts, lambda node: "\n".join(node.lines), self.context_tokens)
        tools.record("cut", by="evidence", nodes=[node.id for node in texts[len(shown) :]])
        tools.record("context", shown=len(shown), dropped=len(texts) - len(shown))
        answers = await self._ask(ReadNodes(question, shown), tools)
        read = tuple((fact,) for node in shown for fact in node.facts)
        evidence = read[: tools.caps.max_evidence_triples]
        record_cut_evidence(tools, evidence, read)
        status = self._status(shown, exhausted=found.exhausted)
        tools.record("answered", answers=answers.texts, evidence=len(evidence), status=status)
        return Answer(
            predictions=tuple(map(Prediction, answers.texts)),
            raw=answers.raw,
            evidence=evidence,
            names=entity_names(evidence, {node.id: node.name for node in shown}),
            status=status,
        )

    async def _centres(self, question: Question, tools: Tools) -> list[str]:
        """Return the nodes to start from: those that the dataset names, or else the most similar to the question."""
        named = [topic.id for topic in question.topic_entities]
        return named or await tools.retrieval.nodes(question.text, self.centres, labelled=self.index_text == "labelled")

    async def _from_facts(self, question: Question, tools: Tools) -> Answer:
        """Answer from the facts around the topic entities of a graph of triples (specification §16.1)."""
        found = facts.Facts({})
        if self.hops is not None:
            found = await facts.collect(
                question, tools, hops=self.hops, per_relation=self.neighbours_per_edge, expand_cvt=self.expand_cvt
            )
        collected = found.in_order(self.order)
        chains = within(collected, tools.caps.max_evidence_triples)
        printer = Printer(found.names)
        shown = fit(chains, lambda chain: printer.chain(chain.triples), self.context_tokens)
        tools.record("cut", by="evidence", nodes=[node for chain in chains[len(shown) :] for node in chain.nodes])
        record_cut_evidence(tools, chains, collected, shown=shown)
        tools.record("context", shown=len(shown), dropped=len(chains) - len(shown))
        answers = await self._ask(ReadFacts(question, shown, found.names), tools)
        evidence: tuple[Chain, ...] = tuple(chain.triples for chain in shown)
        status = self._status(shown, exhausted=found.exhausted)
        if self.uses_graph and not question.topic_entities:
            status = "no_topic_entity"
        tools.record("answered", answers=answers.texts, evidence=len(evidence), status=status)
        return Answer(
            predictions=link(answers.texts, (node for chain in shown for node in chain.nodes), found.names),
            raw=answers.raw,
            evidence=evidence,
            names=entity_names(evidence, found.names),
            status=status,
        )

    def _status(self, shown: Sequence[object], *, exhausted: bool) -> Status:
        if exhausted:
            return "budget_exhausted"
        return "ok" if shown or not self.uses_graph else "no_evidence"

    async def _ask(self, prompt: ReadNodes | ReadFacts, tools: Tools) -> Answers:
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        return await tools.llm.ask(prompt, sampling, retries=self.parse_retries, last=True)
