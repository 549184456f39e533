"""Whatever a model writes, a parser returns a value or complains with ParseError, and nothing is evaluated (§2.4)."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import ParseError
from pipeline.llm.oracle import damage
from pipeline.llm.prompt import Prompt
from pipeline.methods.arg.answers import AnswerSegment
from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.arg.relations import HypotheticalRelations, RelationSegment
from pipeline.methods.cot import AnswerAlone
from pipeline.methods.instance import Instance
from pipeline.methods.srp.answer import AnswerFromEvidence
from pipeline.methods.srp.edit import Edit
from pipeline.methods.srp.judge import Judge
from pipeline.methods.srp.path_generation import PathGeneration
from pipeline.methods.srp.relation_check import RelationCheck
from pipeline.types import Relation
from tests.methods.support import question, truth

ASKED = question("wer führte Regie bei “Amélie”?", "Amélie", "O’Hara", dataset="cwq")
KNOWN = truth(ASKED, ["Jeunet"], {"Amélie": ["film.directed_by"], "O’Hara": ["person.film -> film.directed_by"]})
FOUND = Instance("Amélie").then(Relation("film.directed_by", "out"), "Jeunet")
NAMES = {"Amélie": "Amélie", "Jeunet": "Jeunet"}
TOPIC = ASKED.topic_entities[0]
RELATIONS = ("film.directed_by", "film.genre")

PROMPTS: list[Prompt[Any]] = [
    RelationCheck(ASKED, TOPIC, RELATIONS, 2),
    PathGeneration(ASKED, {"Amélie": RELATIONS, "O’Hara": ("person.film",)}, paths_per_entity=3),
    Judge(ASKED, (FOUND, FOUND.first(0)), NAMES),
    Edit(ASKED, TOPIC, ("film.genre",), ((),), "no", (FOUND,), (), NAMES, (((), RELATIONS),)),
    AnswerFromEvidence(ASKED, (FOUND,), NAMES),
    AnswerAlone(ASKED),
    HypotheticalRelations(ASKED, False, "[Retrieve Relation]", (FOUND.first(0),)),
    RelationSegment(ASKED, True, "[Retrieve Relation]", RELATIONS, (FOUND.first(0),)),
    EntitySegment(ASKED, False, "[Retrieve Entity]", FOUND.first(0), RELATIONS[0], (FOUND,), NAMES, 5, 3),
    AnswerSegment(ASKED, False, "[Retrieve Relation]", (FOUND,), NAMES),
]

PIECES = [
    *("Path:", "Final Path:", "Thought:", "Goal:", "<HAVE_ANSWER>", "<NO_ANSWER>", "Retained sequences:", "answer is"),
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        '"',
        "'",
        "`",
        "```\n",
        "\\",
        "\\u12",
        ",",
        ":",
        ";",
        "|",
        "->",
        "→",
        "—>",
        "-",
        "\n",
    ),
    *(
        "1.",
        "2)",
        "0.5",
        "1e999",
        "-",
        "+",
        "9" * 60,
        "١٢",
        "null",
        "True",
        "NaN",
        "\x00",
        "\u2028",
        "\u202e",
        "😀",
        "“",
        "’",
    ),
    *(
        "Amélie",
        "AMÉLIE",
        "O’Hara",
        "Jeunet",
        "film.directed_by",
        "film.genre",
        "m.0abc",
        "{{question}}",
        "电影",
        "فيلم",
    ),
    *(
        "[Fully Relevant]",
        "[Partially]",
        "[Unreasonable]",
        "[Retrieve Relation]",
        "[Entity Retrieval]",
        "[No Retrieval]",
    ),
    *("Answer:", "[Not Useful]", "[Utility:", "[Utility: 3]", "<paragraph>", "</paragraph>", "Unknown Entity"),
    *("__import__('os').system('x')", "lambda: 0", "{'a': exit()}", "<cvt 1>", " " * 30, "{" * 30, "[" * 30),
]
TEXTS = st.text() | st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("".join)

EXAMPLES = settings(max_examples=2500, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(prompt: Prompt[Any], text: str) -> None:
    """Parse as the model port does: a ParseError with one line, or a value."""
    complaint = "none"
    try:
        prompt.parse(text)
    except ParseError as error:
        complaint = str(error)
    assert len(complaint.splitlines()) == 1
    prompt.fallback(text)


@pytest.fixture(autouse=True)
def _nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("model text was evaluated")

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "eval", refuse)
        patched.setattr("ast.literal_eval", refuse)
        yield


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@EXAMPLES
@given(text=TEXTS)
def test_random_and_hostile_text(prompt: Prompt[Any], text: str) -> None:
    read(prompt, text)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@EXAMPLES
@given(seed=st.integers(0, 2**32), slips=st.booleans(), data=st.data())
def test_damaged_replies(prompt: Prompt[Any], seed: int, slips: bool, data: st.DataObject) -> None:
    rng = Random(seed)
    text = damage(prompt.write_as_oracle(KNOWN, rng if slips else None), rng)
    at = data.draw(st.integers(0, len(text)))
    read(prompt, text)
    read(prompt, text[:at] + data.draw(st.sampled_from(PIECES)) + text[at:])


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@pytest.mark.parametrize("piece", PIECES)
def test_one_piece_over_and_over(prompt: Prompt[Any], piece: str) -> None:
    opening = "Final Path: Retained sequences:\n1. [<NO_ANSWER> answer is {"
    read(prompt, opening + piece * (100_000 // len(piece)))
