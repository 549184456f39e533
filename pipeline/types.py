"""The data types that all modules share. This module imports nothing else of the project.

A dataset yields an `Example`: a `Question` and its `Gold`. A method sees only the `Question` and returns an `Answer`,
which is scored as `Scores`. A node of a graph is identified by its id. Names are looked up, and several nodes may have
the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

EntityId: TypeAlias = str
"""A graph vertex: a Freebase MID (`m.…`, `g.…`), a GRBench node id, or a name where the graph's nodes are names."""

Direction: TypeAlias = Literal["out", "in"]
"""`out` follows an edge from subject to object, `in` from object to subject."""

Status: TypeAlias = Literal["ok", "no_topic_entity", "no_evidence", "budget_exhausted", "failed"]
"""How a question ended (specification §2.2). `failed` is set by the engine alone, never by a method."""

DatasetKind: TypeAlias = Literal["webqsp", "cwq", "grailqa", "metaqa", "grbench"]
"""A published dataset, whatever its name in tables. It decides defaults that follow the dataset (§4.4)."""

Scalar: TypeAlias = str | int | float | bool | None

RUNTIME_ONLY = "runtime only"
"""Marks a key of a component that says where or how fast it runs and never changes a result: a resume may change it.

Written in the annotation of the field: `threads: Annotated[PositiveInt, RUNTIME_ONLY] = 1`.
"""


@dataclass(frozen=True, slots=True)
class LiteralNode:
    """A literal vertex: a date, a number, a text. It has no outgoing relations."""

    value: str
    datatype: str | None = None
    """The datatype IRI, or None for a plain string."""
    lang: str | None = None
    """The language tag, or None."""


Node: TypeAlias = EntityId | LiteralNode


class Relation(NamedTuple):
    """A graph relation as seen from an entity: its name and the direction in which it is followed."""

    name: str
    direction: Direction

    @property
    def reversed(self) -> Relation:
        """The same relation, followed in the other direction."""
        return Relation(self.name, "in" if self.direction == "out" else "out")


RelationPath: TypeAlias = tuple[Relation, ...]
"""The relations of a walk, in order."""


class Triple(NamedTuple):
    """One fact, always in the graph's own order, independent of the direction in which it was found."""

    head: Node
    relation: str
    tail: Node


Chain: TypeAlias = tuple[Triple, ...]
"""Connected facts, in the order they were walked from a topic entity."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity mentioned in a question, given by the dataset (no linking at test time)."""

    id: EntityId
    name: str


@dataclass(frozen=True, slots=True)
class Question:
    """What a method may know about a question (specification §2.1). It never holds gold."""

    id: str
    """Unique inside (dataset, split)."""
    dataset: str
    split: str
    text: str
    topic_entities: tuple[Entity, ...] = ()
    meta: Mapping[str, Scalar] = field(default_factory=dict)
    """What scores are broken down by: `type`, `level`, `hops`, … (specification §9.6). Never gold."""
    kind: DatasetKind | None = None
    """The published dataset that it is from, whatever the name in tables: `webqsp`, `cwq`, …; None for another one."""


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """One accepted answer: any of its names, or its id, counts."""

    name: str
    id: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gold:
    """What only the scorer and the oracle may read."""

    answers: tuple[GoldAnswer, ...] = ()
    paths: Mapping[EntityId, tuple[tuple[Relation, ...], ...]] = field(default_factory=dict)
    """Relation paths from a topic entity to the answers, best first, where the dataset knows them."""
    sparql: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A row of a dataset."""

    question: Question
    gold: Gold


@dataclass(frozen=True, slots=True)
class Prediction:
    """One predicted answer."""

    text: str
    id: EntityId | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a method returns (specification §2.2)."""

    predictions: tuple[Prediction, ...] = ()
    """Ranked, best first; may be empty."""
    raw: str = ""
    """The last model text that the predictions were parsed from."""
    evidence: tuple[Chain, ...] = ()
    """The facts shown to the answering call."""
    names: Mapping[EntityId, str | None] = field(default_factory=dict)
    """Names of the entities in the evidence, as far as they were looked up."""
    status: Status = "ok"
    initial: tuple[Prediction, ...] | None = None
    """Ranked: the answers before self-reflection; None for methods without self-reflection (§9.5)."""
    first_attempt: Literal["finished", "halted"] | None = None
    """How the first of several attempts ended; None for methods with one attempt (§9.5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """All that is measured of one answer, each a column of the traces: in [0, 1] unless said otherwise.

    A None is left out of the mean. `pipeline/evaluation/metrics.py` computes them; `pipeline/report/labels.py`
    has their names and definitions.
    """

    hits_at_1: float | None = None
    """The first answer is a gold answer."""
    hits_any: float | None = None
    """Some answer is a gold answer."""
    precision: float | None = None
    """Share of the answers that are correct. Each gold answer makes at most one answer correct."""
    recall: float | None = None
    """Share of the gold answers that are found."""
    f1: float | None = None
    exact_match: float | None = None
    """The answers are the gold answers, no more and no less."""
    compat_tog_em: float | None = None
    compat_readi_hit: float | None = None
    compat_rog_hit: float | None = None
    compat_rog_f1: float | None = None
    """May exceed 1, like `compat_rog_precision`."""
    compat_arg_hit3: float | None = None
    compat_arg_f1: float | None = None
    rouge_l: float | None = None
    """GRBench only, like the next two."""
    grbench_em: float | None = None
    grbench_f1: float | None = None
    answer_in_evidence: float | None = None
    """Some gold answer is among the nodes of the evidence ("searching success")."""
    answer_supported: float | None = None
    """The correct first answer is among the nodes of the evidence ("reliable answering"); None if it is wrong."""
    faithfulness: float | None = None
    """Share of the answers, correct or not, among the nodes of the evidence; None without answers."""
    relation_recall: float | None = None
    """Relation recall (specification §9.5); None without a gold query, or for a method without a graph."""
    initial_hits_at_1: float | None = None
    """The first of the initial answers is a gold answer; None, like the next two, without initial answers."""
    corrected: float | None = None
    """`hits_at_1` where the initial answer was wrong, else None: its mean is the error-correction or recovery rate."""
    damaged: float | None = None
    """1 - `hits_at_1` where the initial answer was right, else None: its mean is the damage rate."""
    recovered_halted: float | None = None
    """Where the first attempt halted: a better final answer, by ROUGE-L on GRBench, else by hits_at_1."""
    recovered_incorrect: float | None = None
    """Where the first attempt finished with a wrong answer: a better final answer, by the same score."""
    corrected_tog_em: float | None = None
    """As `corrected`, by `compat_tog_em`: PARoG's error-correction rate."""
    damaged_tog_em: float | None = None
    """As `damaged`, by `compat_tog_em`."""
    supported_readi_hit: float | None = None
    """As `answer_supported`, where `compat_readi_hit` counts the answers as correct: SRP's reliable answering rate."""
    compat_rog_precision: float | None = None
    compat_rog_recall: float | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """An input row that could not be read."""

    file: str
    line: int
    """The number of the line, or of the row of a file without lines, such as Parquet or a JSON array; from 1."""
    reason: str
    unit: Literal["line", "row"] = "line"
    """What `line` counts."""

    def __str__(self) -> str:
        """Return the sentence about the row, which begins with its place."""
        return f"{self.file}, {self.unit} {self.line}: {self.reason}"
