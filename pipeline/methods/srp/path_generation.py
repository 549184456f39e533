"""The prompt `srp.path_generation`: the initial relation paths of all topic entities (specification §3.5)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Template
from pipeline.methods.grounded_path import Path
from pipeline.methods.parsing import (
    LenientPrompt,
    Value,
    after_last_line_cue,
    looks_like_relation,
    match_key,
    read_literal,
    split_path,
)
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.srp.references import print_references
from pipeline.methods.templates import load_texts
from pipeline.retrieval.interface import Reference
from pipeline.types import Entity, EntityId, Question

_TEXTS = load_texts(__file__, "path_generation")


@dataclass(frozen=True)
class _Example:
    question: str
    relations: dict[str, list[str]]
    thought: str
    paths: dict[str, list[str]]

    def print(self, *, with_relations: bool) -> str:
        lines = [f"Question: {self.question}", f"Topic entities: {json.dumps(list(self.paths))}"]
        if with_relations:
            lines.append(f"Valuable relations: {json.dumps(self.relations)}")
        return "\n".join([*lines, f"Thought: {self.thought}", f"Path: {json.dumps(self.paths)}"])


_EXAMPLES = [_Example(**example) for example in _TEXTS["examples"]]
_EXAMPLES_SHOWN = {"webqsp": 3}
"""The number of few-shot examples by the kind of the dataset (§3.3); any other one gets all."""


def _template(examples: int, *, with_relations: bool) -> Template:
    shown = [example.print(with_relations=with_relations) for example in _EXAMPLES[:examples]]
    instruction = "\n".join([_TEXTS["instruction"], *([_TEXTS["on_relations"]] if with_relations else [])])
    offer = "Valuable relations: {{relations}}\n" * with_relations
    return Template(
        system="\n\n".join([instruction, "Examples", *shown]),
        user="{{references}}Question: {{question}}\nTopic entities: {{entities}}\n" + offer + "{{number}}Thought:",
    )


PATH_GENERATION = {
    (examples, with_relations): _template(examples, with_relations=with_relations)
    for examples in (3, 4)
    for with_relations in (True, False)
}


@dataclass(frozen=True)
class PathGeneration(LenientPrompt[dict[EntityId, tuple[Path, ...]]]):
    """Relation paths for all topic entities. The value lacks the entities for which none was read."""

    role: ClassVar[str] = "srp.path_generation"

    question: Question
    relations: Mapping[EntityId, tuple[str, ...]] | None
    """The relations that the relation check picked, best first; None when the check is switched off."""
    references: tuple[Reference, ...] = ()
    paths_per_entity: int = field(kw_only=True)
    max_path_len: int = field(kw_only=True)

    @property
    def template(self) -> Template:
        examples = _EXAMPLES_SHOWN.get(self.question.kind or "", len(_EXAMPLES))
        return PATH_GENERATION[examples, self.relations is not None]

    def inputs(self) -> dict[str, str]:
        names = [one_line(entity.name) for entity in self.question.topic_entities]
        inputs = {
            "references": print_references(self.references),
            "question": as_question(self.question.text),
            "entities": json.dumps(names, ensure_ascii=False),
            "number": f"Paths for each entity: up to {self.paths_per_entity}\n" if self.paths_per_entity > 1 else "",
        }
        if self.relations is not None:
            spelled = {match_key(name): name for name in reversed(names)}
            inputs["relations"] = json.dumps(
                {spelled[key]: relations for key, relations in self._offered_by_key.items()}, ensure_ascii=False
            )
        return inputs

    @property
    def offered_relations(self) -> list[tuple[str, ...]]:
        """The relations offered for each topic entity, in the order of the question."""
        relations = self.relations or {}
        return [tuple(relations.get(entity.id, ())) for entity in self.question.topic_entities]

    @property
    def _offered_by_key(self) -> dict[str, list[str]]:
        """The relations offered by the name of their topic entity, as replies are matched: equal names share a list."""
        found: dict[str, dict[str, None]] = {}
        for entity, relations in zip(self.question.topic_entities, self.offered_relations, strict=True):
            found.setdefault(match_key(entity.name), {}).update(dict.fromkeys(relations))
        return {key: list(relations) for key, relations in found.items()}

    def fallback(self, text: str) -> dict[EntityId, tuple[Path, ...]]:
        """Return no path: the method then starts each entity with its best relation."""
        return {}

    def read(self, text: str) -> dict[EntityId, tuple[Path, ...]]:
        plan = read_literal(after_last_line_cue(text, "Path:"), "{")
        assert isinstance(plan, dict), "a literal that opens with a brace is a dictionary"
        lists = {match_key(name): paths for name, paths in plan.items()}
        named = [(entity, key) for entity in self.question.topic_entities if (key := match_key(entity.name)) in lists]
        if not named:
            raise ParseError("the dictionary after 'Path:' names no topic entity")
        offered = self._offered_by_key
        read = {entity.id: self._read_paths(entity, lists[key], offered[key]) for entity, key in named}
        return {id: paths for id, paths in read.items() if paths}

    def _read_paths(self, entity: Entity, listed: Value, offered: Sequence[str]) -> tuple[Path, ...]:
        texts = listed if isinstance(listed, list) else [listed]
        read = (_relations_of(text, entity.name, offered) for text in texts if isinstance(text, str))
        distinct = dict.fromkeys(path[: self.max_path_len] for path in read if path)
        return tuple(distinct)[: self.paths_per_entity]


def _relations_of(text: str, name: str, offered: Sequence[str]) -> Path:
    """Return the relations of `name -> r1 -> r2`. The name may contain arrows, and a path may lack it.

    Without `offered` relations, a path lacks it if its first part is a dotted name.
    """
    text, name = text.strip(), one_line(name)
    parts = split_path(f"*{text[len(name) :]}" if text.startswith(name) else text)
    lacks_name = parts and (parts[0] in offered or (not offered and looks_like_relation(parts[0], ())))
    return tuple(parts if lacks_name else parts[1:])
