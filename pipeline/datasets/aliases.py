"""Reads alias files: further names that count as right, for answers and for questions (specification §9.3, §10.3).

A file is a JSON object of texts or lists of texts, plain or gzipped:

| key | value |
| --- | --- |
| a name or an id | its aliases |
| the text or the id of a question | names of its answer, for questions with one answer |

PoG distributes one file of each kind for CWQ, and one of names for WebQSP.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipeline.datasets.files import read_json
from pipeline.datasets.remote import AnyPath
from pipeline.errors import UserError
from pipeline.types import Entity, Example, GoldAnswer

Aliases = Mapping[str, Sequence[str]]


def read_aliases(files: Sequence[AnyPath]) -> Aliases:
    """Return the aliases of all files by their key. Raises UserError for a file that is no such object."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        content = read_json(file)
        if not isinstance(content, dict):
            raise UserError(f"{file} is no file of aliases: it should be an object of names with lists of aliases")
        for key, value in content.items():
            names = [value] if isinstance(value, str) else value
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise UserError(
                    f"{file} is no file of aliases: the value of {key!r} is neither a text nor a list of texts"
                )
            found[key] += filter(None, names)
    return dict(found)


def with_aliases(example: Example, aliases: Aliases) -> Example:
    """Return the example with further names of its answers, and a name for topic entities that have only an id."""
    if not aliases:
        return example
    question = example.question
    topics = tuple(_named(entity, aliases) for entity in question.topic_entities)
    given = example.gold.answers
    of_question = (*aliases.get(question.text, ()), *aliases.get(question.id, ())) if len(given) == 1 else ()
    answers = tuple(_with_more(answer, of_question, aliases) for answer in given)
    return Example(replace(question, topic_entities=topics), replace(example.gold, answers=answers))


def _with_more(answer: GoldAnswer, names: Sequence[str], aliases: Aliases) -> GoldAnswer:
    known = [answer.name, *answer.aliases, *names]
    of_names = [alias for name in (answer.id, *known) if name for alias in aliases.get(name, ())]
    more = dict.fromkeys([*known, *of_names])
    del more[answer.name]
    return replace(answer, aliases=tuple(more))


def _named(entity: Entity, aliases: Aliases) -> Entity:
    names = aliases.get(entity.id, ()) if entity.name == entity.id else ()
    return Entity(entity.id, names[0]) if names else entity
