"""Every parser of every method, present and future, against at least 100,000 texts (methods.md §2.4).

The prompt classes are found by importing the whole of `pipeline.methods`, their instances by letting every method and
preset answer a few questions with an oracle that errs. So whoever adds a method finds its parsers tested here; a prompt
that is never asked fails `test_every_prompt_class_is_asked`.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from random import Random
from typing import Any, Self

import pytest

import pipeline.methods
from pipeline.config import build, compose, conf_dir
from pipeline.datasets.sample import SampleWorld
from pipeline.engine.ledger import Budget
from pipeline.engine.memo import Memo
from pipeline.engine.question import Setting, run_question
from pipeline.errors import UserError
from pipeline.evaluation.settings import DEFAULT
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.port import KnowledgeGraph
from pipeline.llm.oracle import Oracle, damage
from pipeline.llm.port import Model
from pipeline.llm.prompt import Call, Completion, Prompt
from pipeline.llm.similarity import Similarity
from pipeline.traces.schema import TraceRow
from pipeline.types import Example
from tests.methods.hostile import read
from tests.support import refuse

TEXTS_IN_ALL = 100_000
INSTANCES = 12
"""Instances of a prompt class that are tried in turn."""
LONG = 20_000
"""Characters of the long texts."""
_MARK = re.compile(r"[^\w\s]\s?")


def prompt_classes() -> list[type[Prompt[Any]]]:
    """Every prompt class of `pipeline.methods` that is asked, which is one with a role."""
    for module in pkgutil.walk_packages(pipeline.methods.__path__, "pipeline.methods."):
        importlib.import_module(module.name)

    def below(parent: type[Any]) -> Iterator[type[Any]]:
        for child in parent.__subclasses__():
            yield child
            yield from below(child)

    found = {cls for cls in below(Prompt) if cls.__module__.startswith("pipeline.methods")}
    return sorted((cls for cls in found if hasattr(cls, "role")), key=lambda cls: (cls.__module__, cls.__name__))


CLASSES = prompt_classes()
EACH = -(-TEXTS_IN_ALL // len(CLASSES))
"""Texts that each parser reads."""

PIECES = (
    # what the formats are made of
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        '"',
        "'",
        "`",
        "```\n",
        "\\",
        "\\u12",
        "\\N{",
        ",",
        ":",
        ";",
        "|",
        "/",
        "#",
    ),
    *("->", "→", "—>", "-", "=", "\n", "\r\n", "\t", "1.", "2)", "0.5", "1e999", "-7", "9" * 60, "null", "True", "NaN"),
    # cues
    *(
        "Path:",
        "Final Path:",
        "Thought:",
        "Action:",
        "Finish[",
        "Answer:",
        "answer is",
        "Plan:",
        "{Yes}",
        "{No}",
        "Scores:",
    ),
    *("<HAVE_ANSWER>", "<NO_ANSWER>", "Retained sequences:", "[Fully Relevant]", "[No Retrieval]", "[Utility:5]"),
    *("<paragraph>", "<cvt 1>", "{{question}}", "{0}", "%s", "$x"),
    # hostile
    *(
        "__import__('os').system('x')",
        "lambda: 0",
        "{'a': exit()}",
        "<script>",
        "'; DROP",
        "{" * 30,
        "[" * 30,
        " " * 30,
    ),
    *("\x00", "\x1b[2J", "\u2028", "\u202e", "\ufeff", "\u200b", "\ud800", "\U0010ffff", "a\u0301\u0301\u0301"),
    # many tongues
    *(
        "电影",
        "فيلم",
        "चलचित्र",
        "фильм",
        "ภาพยนตร์",
        "영화",
        "סרט",
        "ß",
        "İ",
        "ﬁ",
        "😀👨‍👩‍👧",
        "「答え」",
        "：",
        "，",
        "（",
        "１２",
        "١٢",
    ),
    *("“", "”", "’", "«", "»", "…", "–", "−", "é", "e\u0301"),
)


@dataclass
class Listening:
    """A model that keeps what it was asked and what it replied, by prompt class."""

    backend: Any
    heard: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]] = field(default_factory=lambda: defaultdict(list))
    label: str | None = None

    @property
    def identity(self) -> str:
        return str(self.backend.identity)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Model:
        return _ListeningModel(self.backend.for_question(example, kg), self.heard)


@dataclass
class _ListeningModel:
    model: Model
    heard: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]]

    def identity_of(self, role: str) -> str:
        return self.model.identity_of(role)

    async def complete(self, call: Call) -> Completion:
        return self._keep(call, await self.model.complete(call))

    async def choose(self, call: Call) -> Completion:
        return self._keep(call, await self.model.choose(call))

    def _keep(self, call: Call, completion: Completion) -> Completion:
        self.heard[type(call.prompt)].append((call.prompt, completion.text))
        return completion


SWITCHES = (
    "method=arg method.probabilities=exact",
    "method=r3 method.calls_per_step=1",
    "method=r3 method.on_halt_guess=true method.step_limit=1",
)
"""Calls that no preset makes."""


@cache
def configured_methods() -> list[Any]:
    """Every method, preset and switch; those that differ in nothing but their name once."""
    choices = [f"method={file.stem}" for file in sorted((conf_dir() / "method").glob("*.yaml"))]
    choices += [f"experiment={file.stem}" for file in sorted((conf_dir() / "experiment").glob("*.yaml"))]
    methods = [build("method", _composed(choice)) for choice in (*choices, *SWITCHES)]
    return list({replace(method, name=type(method).__name__): method for method in methods}.values())


def _composed(choice: str) -> Any:
    try:
        return compose(choice.split())
    except UserError as error:  # of what a preset needs beside its method, a path that is not read here
        missing, _, _ = str(error).partition(" must be given")
        return compose([choice, *(f"{key}=/data" for key in missing.split(", "))])


async def answer_all(backend: Any, budget: Budget, examples: list[Example]) -> tuple[Listening, list[TraceRow]]:
    """Every method and preset answers the examples; what was asked, and the rows."""
    listening, rows = Listening(backend), []
    graph = EmbeddedGraph(dataset=SampleWorld(triples=2000))
    retrieval = build("retrieval", _composed("retrieval=lexical"))
    async with graph, retrieval:
        for method in configured_methods():
            setting = Setting([(0, method.name)], method, listening, graph, retrieval, DEFAULT, budget, seed=0)
            for example in examples:
                memo = Memo(made={}, reused={}, on_call=lambda key, completion: None)
                rows.append(await run_question(example, setting, memo, lambda role, template: None))
    return listening, rows


def sample() -> list[Example]:
    """A question of each type, and one without a topic entity."""
    examples = list(islice(SampleWorld(triples=2000).examples(refuse), 8))
    return [*examples, replace(examples[0], question=replace(examples[0].question, topic_entities=()))]


@pytest.fixture(scope="module")
def heard() -> dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]]:
    """Per prompt class the prompts that were asked, each with a reply that a simulated model gave."""
    erring = Oracle(error_rate=0.3, malformed_rate=0.1)
    runs = [(erring, Budget(), sample()), (Similarity(), Budget(), sample()[:3])]
    runs += [(Oracle(), Budget(max_kg_queries=few), sample()[:2]) for few in (0, 1, 3)]
    everything: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]] = defaultdict(list)
    for backend, budget, examples in runs:
        listening, _ = asyncio.run(answer_all(backend, budget, examples))
        for cls, pairs in listening.heard.items():
            everything[cls] += pairs
    return everything


def texts(replies: list[str], strangers: list[str], rng: Random) -> Iterator[str]:
    """Texts without end: replies spoilt in many ways, replies to other prompts, heaps of pieces, and noise."""
    makers: tuple[Callable[[], str], ...] = (
        lambda: damage(rng.choice(replies), rng),
        lambda: _cut(rng.choice(replies), rng),
        lambda: _spliced(rng.choice(replies), rng.choice(PIECES), rng),
        lambda: _spliced(rng.choice(replies), rng.choice(replies), rng),
        lambda: _scrambled(rng.choice(replies), rng),
        lambda: rng.choice(replies).translate(
            {ord(letter): rng.choice(PIECES) for letter in rng.choices("aeiou[{(\"'1", k=2)}
        ),
        lambda: _cut(rng.choice(strangers), rng),
        lambda: "".join(rng.choices(PIECES, k=rng.randrange(30))),
        lambda: _cut(rng.choice(replies), rng) + "".join(rng.choices(PIECES, k=rng.randrange(8))),
        lambda: "".join(
            chr(rng.choice((rng.randrange(128), rng.randrange(0x110000)))) for _ in range(rng.randrange(40))
        ),
    )
    while True:
        yield rng.choice(makers)()


def _cut(text: str, rng: Random) -> str:
    one, other = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    return rng.choice((text[:other], text[one:], text[one:other]))


def _spliced(text: str, piece: str, rng: Random) -> str:
    one, other = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    return text[:one] + piece + text[rng.choice((one, other)) :]


def _scrambled(text: str, rng: Random) -> str:
    letters = list(text)
    for _ in range(min(len(letters), rng.randrange(1, 6))):
        letters[rng.randrange(len(letters))] = rng.choice(("", rng.choice(PIECES), rng.choice(letters)))
    return "".join(letters)


def test_every_prompt_class_is_asked(heard: dict[type[Prompt[Any]], Any]) -> None:
    """So every parser is tested on prompts that really occur."""
    assert [cls.__qualname__ for cls in CLASSES if cls not in heard] == []


def test_there_are_enough_texts() -> None:
    assert len(CLASSES) * EACH >= TEXTS_IN_ALL
    assert len(CLASSES) >= 10


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.role}-{cls.__name__}")
def test_a_parser_gives_a_value_or_a_complaint(
    cls: type[Prompt[Any]], heard: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]]
) -> None:
    rng = Random(f"{cls.__module__}.{cls.__qualname__}")
    pairs = heard[cls]
    prompts = [prompt for prompt, _ in rng.sample(pairs, min(INSTANCES, len(pairs)))]
    replies = [text for _, text in rng.sample(pairs, min(200, len(pairs))) if text] or ["{Ada}"]
    strangers = [text for other in heard.values() for _, text in other[:20]]
    spoilt = islice(texts(replies, strangers, rng), EACH)
    outcomes = Counter(read(prompts[number % len(prompts)], text) for number, text in enumerate(spoilt))
    assert outcomes.total() == EACH
    assert outcomes[True], "some of the texts are close to what the parser reads"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.role}-{cls.__name__}")
def test_a_very_long_text_is_read_like_any_other(
    cls: type[Prompt[Any]], heard: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]]
) -> None:
    """A reply in which one piece is said over and over behind a mark of its format: no depth or length is too much."""
    rng = Random(f"long {cls.__qualname__}")
    prompt, reply = max(heard[cls], key=lambda pair: len(pair[1]))
    for piece in ("[", "{", "(", *rng.sample(PIECES, 6)):
        marks = [found.end() for found in _MARK.finditer(reply)] or [0]
        for at in (0, marks[-1], *rng.choices(marks, k=6)):
            read(prompt, reply[:at] + piece * (LONG // len(piece)) + reply[at:])


def test_every_failure_is_recorded_with_its_raw_text() -> None:
    _, rows = asyncio.run(answer_all(Oracle(malformed_rate=1.0), Budget(), sample()[:2]))
    assert not [row.error for row in rows if row.error]
    complaints = 0
    for row in rows:
        failed = [step for step in row.steps if step.kind == "llm" and step.error]
        complaints += len(failed)
        assert row.counters.parse_failures == len(failed)
        assert all(step.completion is not None for step in failed)
    assert complaints > 20
