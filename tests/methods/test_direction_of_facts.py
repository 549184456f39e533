"""No prompt of any method prints a fact that was found from its object with subject and object exchanged (§3.6)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import pipeline
from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from tests.support import METHODS, sampled

FACTS = [
    ("Salt Road", "directed_by", "Ann Vell"),
    ("Nine Lanterns", "directed_by", "Ann Vell"),
    ("Salt Road", "spoken_language", "Aymara"),
    ("Nine Lanterns", "spoken_language", "Quechua"),
    ("Salt Road", "released_in", "Chile"),
    ("Nine Lanterns", "released_in", "Peru"),
    ("Orsa", "native_tongue", "Aymara"),
]
QUESTIONS = [
    ("Which films are directed by Ann Vell?", "Ann Vell", ["Salt Road", "Nine Lanterns"]),
    ("Whose native tongue is Aymara?", "Aymara", ["Orsa"]),
    ("Who has the native tongue of the film released in Chile?", "Chile", ["Orsa"]),
]
SWITCHES = {"dog": "method.directions=both", "rog": "method.render=kg"}
"""DoG follows facts from their objects only with its switch. Without its own, RoG prints walks without directions."""
CONFIGURATIONS = [
    *(f"method={method} {SWITCHES.get(method, '')}".strip() for method in METHODS),
    "experiment=readi",
    "experiment=r3_memory",
    "experiment=rag_2_hop",
    "method=pog method.calls=batched",
    "method=r3 method.calls_per_step=1",
    "method=r3 method.on_halt_guess=true method.depth=2",
    "method=arg method.generator=prompted",
]
_NOTHING_BETWEEN = r"[\s,;:.()\[\]\"'|>-]{1,12}"
"""Separators of the parts of a fact. A mark of direction, such as `<-` or `^`, is none of them."""


def prompts(words: list[str], folder: Path) -> Iterator[str]:
    execute([Configuration(tuple(words), config.compose(words))], Console(quiet=True))
    run = pipeline.open_run(folder)
    for id in run.questions.select("question_id").collect()["question_id"]:
        for step in run.question(id).steps:
            yield from (message.content for message in step.prompt if message.role != "system")


def printed_in_reverse(text: str) -> list[str]:
    found = []
    for head, relation, tail in FACTS:
        parts = (rf"(?:{re.escape(part)}|{re.escape(part.replace('_', ' '))})" for part in (tail, relation, head))
        found += [match[0] for match in re.finditer(_NOTHING_BETWEEN.join(parts), text)]
    return found


@pytest.mark.parametrize(
    "text",
    ["(Ann Vell, directed_by, Salt Road)", "Ann Vell -> directed by -> Salt Road", 'Ann Vell directed_by: ["Salt Road'],
)
def test_a_reversed_fact_is_recognised(text: str) -> None:
    assert printed_in_reverse(text)


@pytest.mark.parametrize("errors", sampled(["llm.error_rate=0", "llm.error_rate=0.4"], every=2))
@pytest.mark.parametrize("method", sampled(CONFIGURATIONS, every=2))
def test_no_incoming_edge_is_printed_against_the_direction_of_the_graph(
    method: str, errors: str, tmp_path: Path
) -> None:
    (tmp_path / "facts.tsv").write_text("".join("\t".join(fact) + "\n" for fact in FACTS), encoding="utf-8")
    rows = [
        {"id": f"q{number}", "question": text, "topic_entities": [topic], "answers": answers}
        for number, (text, topic, answers) in enumerate(QUESTIONS)
    ]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = [
        *method.split(),
        "dataset=custom",
        f"dataset.triples={tmp_path / 'facts.tsv'}",
        f"dataset.questions={tmp_path / 'questions.jsonl'}",
        "llm=oracle",
        errors,
        f"run.dir={tmp_path / 'run'}",
        "evaluation.bootstrap_resamples=100",
    ]
    texts = list(prompts(words, tmp_path / "run"))
    assert texts
    assert [(found, text) for text in texts if (found := printed_in_reverse(text))] == []
    if method != "method=cot" and errors == "llm.error_rate=0":
        assert any("Salt Road" in text for text in texts), "an incoming edge was shown"
