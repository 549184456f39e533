"""Texts that look like the markers of the methods' prompts and replies, and a world whose names are made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

import polars as pl

from pipeline.methods.arg.tokens import CLASSES, CLOSE, OPEN
from pipeline.methods.srp.judge import HAVE_ANSWER, NO_ANSWER
from pipeline.normalisation import normalise

MARKERS: Mapping[str, Sequence[str]] = {
    "arg": [
        *(token for tokens in CLASSES.values() for token in tokens),
        *("[Relation Retrieval]", "[Relevant]", "[Irrelevant]", "[Reasonable]", OPEN, CLOSE),
        *("Answer:", "Answer: none", "none", "Unknown Entity", "Text:", "Batch 1 of 2.", "[Utility:", "[Fully Us"),
    ],
    "r3": [
        *("Finish[done]", "Finish[", "RetrieveNode[Ada]", "NeighbourCheck[Ada, x]", "NodeFeature[", "Relations[x]"),
        *("NodeDegree[1]", "] Finish[no]", "Thought 1:", "Action 2:", "Action 1: Finish[x]", "Observation 3:", "<-"),
        *("->", "Relations", '{"verdict": "accept"}', "accept", "triples", "and 3 more", '"],', "Finish [a, b]"),
    ],
    "srp": [
        *(HAVE_ANSWER, NO_ANSWER, "Path:", "Final Path:", "Final Path: none", "Thought:", "Goal:", "none", "1-3"),
        *("Retained sequences:", "Retained sequences: 1", "2 (first 1)", "->", "a -> b", "answer is", "{x}", "Check:"),
        *('("film", 0.9)', "(first 1)", "Question:", "and 3 more", "1."),
    ],
    "parog": [
        *("^", "^film", "#1", "#2", "count", "both 1", "step 1", '"answers": []', '{"answers": ["no"]}', "<unnamed 1>"),
        *('"aligned": false', '{"done": true}', '"id": 1', "1 and 2", "Entity:", "Sub-goal:", "(x: 1)", ": 1", "a: 7"),
        *("Facts:", "- x", "+ 3 more"),
    ],
    "explorers": [
        *("{Yes}", "{No}", "Yes", "No", "[Yes]", "{answer}", "answer is {no}", "question:", "The simplified question:"),
        *("relation_1", "relation_2", "^relation", "1. 0.5", "0.7", "<cvt 1>", "Score:", '("x", 0.5)', "(x, 0.5):"),
        *('{"A": {"Sufficient": "No"}}', '{"Sufficient": "Yes"}', '["x"]', "Triples:", "Q:", "A:"),
    ],
    "readers": [
        *(
            "<PATH>",
            "<SEP>",
            "</PATH>",
            "<PATH>a<SEP>b</PATH>",
            "Reasoning Paths:",
            "- ",
            "• x",
            "1) x",
            "a | b",
            "a; b",
        ),
        *("a; b", "a, b", '["a", "b"]', "So the answer is {x}.", "unknown", "none", "```", "```json", "null"),
        *("{{question}}", "Answer:", '"', "'", "\\", "a\\n"),
    ],
}
"""Markers by the method that writes or reads them."""

FACTS = [
    ("Salt Road", "directed by", "Ann Vell"),
    ("Nine Lanterns", "directed by", "Ann Vell"),
    ("Grey Harbour", "directed by", "Tavin Orsa"),
    ("Salt Road", "spoken in", "Aymara"),
    ("Nine Lanterns", "spoken in", "Quechua"),
    ("Grey Harbour", "spoken in", "Quechua"),
    ("Salt Road", "released in", "Chile"),
    ("Nine Lanterns", "released in", "Peru"),
    ("Grey Harbour", "released in", "Peru"),
    ("Ann Vell", "born in", "Lima"),
    ("Tavin Orsa", "born in", "Cusco"),
    ("Lima", "lies in", "Peru"),
    ("Cusco", "lies in", "Peru"),
]
QUESTIONS = [
    ("Who directed Salt Road?", ["Salt Road"], ["Ann Vell"]),
    ("Which films did Ann Vell direct?", ["Ann Vell"], ["Salt Road", "Nine Lanterns"]),
    ("Where was the director of Grey Harbour born?", ["Grey Harbour"], ["Cusco"]),
    ("Which languages do the films of Tavin Orsa have?", ["Tavin Orsa"], ["Quechua"]),
    ("Which films are in Quechua and were released in Peru?", ["Quechua", "Peru"], ["Nine Lanterns", "Grey Harbour"]),
    ("In which country was the director of Salt Road born?", ["Salt Road"], ["Peru"]),
]

Place = Callable[[str, str], str]

PLACES: Mapping[str, Place] = {
    "alone": lambda marker, name: marker,
    "before": lambda marker, name: f"{marker} {name}",
    "after": lambda marker, name: f"{name}{marker}",
    "line": lambda marker, name: f"{name}\n{marker}",
}
"""Where a name holds a marker."""


def hostile_names(names: Sequence[str], markers: Sequence[str], place: Place, offset: int) -> dict[str, str]:
    """Give each name its marker, or the next one that no name has. Names of one normal form are one name in scores."""
    renamed: dict[str, str] = {}
    taken: set[str] = set()
    for name, start in zip(names, count(offset), strict=False):
        candidates = (place(markers[(start + step) % len(markers)], name) for step in range(len(markers)))
        renamed[name] = next(text for text in candidates if (normalise(text) or text) not in taken)
        taken.add(normalise(renamed[name]) or renamed[name])
    return renamed


def write_world(
    folder: Path,
    markers: Sequence[str] = (),
    place: Place = PLACES["alone"],
    *,
    of: Sequence[str] = (),
    offset: int = 0,
) -> tuple[str, ...]:
    """Write the graph and the questions, with hostile names for what `of` lists: relations, entities, questions.

    Returns the words of a run's configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entities = list(dict.fromkeys(name for head, _, tail in FACTS for name in (head, tail)))
    relations = list(dict.fromkeys(relation for _, relation, _ in FACTS))
    entity = dict(zip(entities, entities, strict=True))
    relation = dict(zip(relations, relations, strict=True))
    if "entities" in of:
        entity = hostile_names(entities, markers, place, offset)
    if "relations" in of:
        relation = hostile_names(relations, markers, place, offset)
    rows = [(entity[head], relation[name], entity[tail]) for head, name, tail in FACTS]
    pl.DataFrame(rows, schema=["head", "relation", "tail"], orient="row").write_parquet(folder / "facts.parquet")
    asked = []
    for number, (text, topics, answers) in enumerate(QUESTIONS):
        asks = text
        for topic in topics:
            asks = asks.replace(topic, entity[topic])
        if "questions" in of:
            asks = place(markers[(offset + number) % len(markers)], asks)
        fields = {"topic_entities": [entity[name] for name in topics], "answers": [entity[name] for name in answers]}
        asked.append({"id": f"q{number}", "question": asks, **fields})
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    return (
        "dataset=custom",
        f"dataset.triples={folder / 'facts.parquet'}",
        f"dataset.questions={folder / 'questions.jsonl'}",
        "llm=oracle",
        "evaluation.bootstrap_resamples=100",
    )
