"""Tests the parser of every prompt class of every method with 100,000 texts (specification §2.4).

`make test` shares out as many texts among all parsers. The prompt classes are found by importing all of
`pipeline.methods`. Prompts come from every method and preset, which answer a few questions with an erring oracle.
Replies come from simulated models and from real ones. So the parsers of a new method are tested without a change here.
A prompt class that is never asked fails `test_every_prompt_class_is_asked`.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import pkgutil
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
from hypothesis import settings

import pipeline.methods
from pipeline.config import build, compose, conf_dir, default
from pipeline.datasets.grbench import GRBench
from pipeline.engine.budget import Budget
from pipeline.engine.call_cache import CallCache
from pipeline.engine.question import ConfigurationRuntime, run_question
from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.grbench import GRBenchGraph
from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.interface import Model
from pipeline.llm.prompt import Call, Completion, Prompt
from pipeline.simulation.oracle import Oracle, damage
from pipeline.simulation.similarity import Similarity
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.schema import TraceRow
from pipeline.types import Example
from tests.methods.grbench_world import write_grbench
from tests.methods.hostile import read
from tests.support import LARGE, refuse, sampled

TEXTS = 100_000
"""The number of texts that each parser reads in a large test, and that all read together in one of `make test`."""
INSTANCES = 12
"""The number of prompts of each class that are used in turn."""
LONG = 20_000
"""The number of characters of the long texts."""
_PUNCTUATION = re.compile(r"[^\w\s]\s?")


def prompt_classes() -> list[type[Prompt[Any]]]:
    """Return every prompt class of `pipeline.methods` that has a role."""
    for module in pkgutil.walk_packages(pipeline.methods.__path__, "pipeline.methods."):
        importlib.import_module(module.name)

    def subclasses_of(parent: type[Any]) -> Iterator[type[Any]]:
        for child in parent.__subclasses__():
            yield child
            yield from subclasses_of(child)

    found = {cls for cls in subclasses_of(Prompt) if cls.__module__.startswith("pipeline.methods")}
    return sorted((cls for cls in found if hasattr(cls, "role")), key=lambda cls: (cls.__module__, cls.__name__))


CLASSES = prompt_classes()
EACH = -(-TEXTS * settings().max_examples // 100 // len(CLASSES))
"""The number of texts that each parser reads in `make test`."""

PIECES = (
    # parts of the formats
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
    # many scripts
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
class RecordingBackend:
    """A model backend that records each prompt and reply, by prompt class."""

    backend: Any
    recorded: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]] = field(default_factory=lambda: defaultdict(list))
    label: str | None = None

    @property
    def identity(self) -> str:
        return str(self.backend.identity)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Model:
        return _RecordingModel(self.backend.for_question(example, kg), self.recorded)


@dataclass
class _RecordingModel:
    model: Model
    recorded: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]]

    def identity_of(self, role: str) -> str:
        return self.model.identity_of(role)

    async def complete(self, call: Call) -> Completion:
        return self._keep(call, await self.model.complete(call))

    async def choose(self, call: Call) -> Completion:
        return self._keep(call, await self.model.choose(call))

    def _keep(self, call: Call, completion: Completion) -> Completion:
        self.recorded[type(call.prompt)].append((call.prompt, completion.text))
        return completion


SWITCHES = (
    "method=arg method.probabilities=exact",
    "method=r3 method.calls_per_step=1",
    "method=r3 method.on_halt_guess=true method.step_limit=1",
)
"""Configurations with calls that no preset makes."""


@cache
def configured_methods() -> list[Any]:
    """Return every method, preset and switch. Those that differ only in their name are returned once."""
    choices = [f"method={file.stem}" for file in sorted((conf_dir() / "method").glob("*.yaml"))]
    choices += [f"experiment={file.stem}" for file in sorted((conf_dir() / "experiment").glob("*.yaml"))]
    methods = [build("method", _composed(choice)) for choice in (*choices, *SWITCHES)]
    return list({replace(method, name=type(method).__name__): method for method in methods}.values())


def _composed(choice: str) -> Any:
    try:
        return compose(choice.split())
    except UserError as error:  # a preset needs a path that is not read here
        missing, _, _ = str(error).partition(" must be given")
        return compose([choice, *(f"{key}=/data" for key in missing.split(", "))])


async def answer_all(
    backend: Any, budget: Budget, examples: list[Example], graph: Any = None
) -> tuple[RecordingBackend, list[TraceRow]]:
    """Let every method and preset answer the examples. Return the recorded calls and the rows."""
    recording, rows = RecordingBackend(backend), []
    graph = graph or default(EmbeddedGraph, dataset=default(SyntheticWorld, triples=2000))
    retrieval = build("retrieval", _composed("retrieval=lexical"))
    async with graph, retrieval:
        for method in configured_methods():
            configuration = ConfigurationRuntime(
                [(0, method.name)], method, recording, graph, retrieval, default(ScoringConfig), budget, seed=0
            )
            for example in examples:
                cache = CallCache(made_in_this_run={}, from_earlier_runs={})
                rows.append(await run_question(example, configuration, cache, lambda role, template: None))
    return recording, rows


def sample() -> list[Example]:
    """Return a question of each type, and one without a topic entity."""
    examples = list(islice(default(SyntheticWorld, triples=2000).examples(refuse), 8))
    return [*examples, replace(examples[0], question=replace(examples[0].question, topic_entities=()))]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]]:
    """The prompts of each class that were asked, each with the reply of a simulated model."""
    erring = default(Oracle, error_rate=0.3, malformed_rate=0.1)
    runs = [(erring, default(Budget), sample()), (default(Similarity), default(Budget), sample()[:3])]
    runs += [(default(Oracle), default(Budget, max_kg_queries=few), sample()[:2]) for few in (0, 1, 3)]
    books = tmp_path_factory.mktemp("grbench")
    write_grbench(books, books=60)
    asked = list(islice(default(GRBench, path=books, domain="goodreads").examples(refuse), 8))
    graphs = [*[None] * len(runs), default(GRBenchGraph, path=books, domain="goodreads")]
    runs.append((erring, default(Budget), asked))
    everything: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]] = defaultdict(list)
    for (backend, budget, examples), graph in zip(runs, graphs, strict=True):
        recording, _ = asyncio.run(answer_all(backend, budget, examples, graph))
        for cls, pairs in recording.recorded.items():
            everything[cls] += pairs
    return everything


def texts(replies: list[str], foreign_replies: list[str], rng: Random) -> Iterator[str]:
    """Yield endless texts: damaged replies, replies to other prompts, sequences of pieces, and noise."""
    makers: tuple[Callable[[], str], ...] = (
        lambda: damage(rng.choice(replies), rng),
        lambda: _cut(rng.choice(replies), rng),
        lambda: _spliced(rng.choice(replies), rng.choice(PIECES), rng),
        lambda: _spliced(rng.choice(replies), rng.choice(replies), rng),
        lambda: _scrambled(rng.choice(replies), rng),
        lambda: rng.choice(replies).translate(
            {ord(letter): rng.choice(PIECES) for letter in rng.choices("aeiou[{(\"'1", k=2)}
        ),
        lambda: _cut(rng.choice(foreign_replies), rng),
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


def test_every_prompt_class_is_asked(recorded: dict[type[Prompt[Any]], Any]) -> None:
    """Every parser is tested with prompts that occur in runs."""
    assert [cls.__qualname__ for cls in CLASSES if cls not in recorded] == []


@pytest.fixture(scope="module")
def natural(shared_data: Path) -> dict[str, list[str]]:
    """Replies that language models have written, by the role of the prompt."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted((shared_data / "replies").glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                found[row["role"]].append(row["completion"] or "")
    return found


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(EACH, marks=pytest.mark.smaller),
        pytest.param(TEXTS // 10, marks=pytest.mark.exhaustive),
        pytest.param(TEXTS, marks=LARGE),
    ],
)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.role}-{cls.__name__}")
def test_a_parser_returns_a_value_or_raises_a_parse_error(
    cls: type[Prompt[Any]],
    count: int,
    recorded: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]],
    natural: dict[str, list[str]],
) -> None:
    rng = Random(f"{cls.__module__}.{cls.__qualname__}")
    pairs = recorded[cls]
    prompts = [prompt for prompt, _ in rng.sample(pairs, min(INSTANCES, len(pairs)))]
    replies = [text for _, text in rng.sample(pairs, min(200, len(pairs))) if text] or ["{Ada}"]
    replies += natural.get(cls.role, [])
    foreign_replies = [text for other in recorded.values() for _, text in other[:20]]
    foreign_replies += [text for others in natural.values() for text in others]
    damaged = islice(texts(replies, foreign_replies, rng), count)
    outcomes = Counter(read(prompts[number % len(prompts)], text) for number, text in enumerate(damaged))
    assert outcomes.total() == count
    assert outcomes[True], "some of the texts can be parsed"


@pytest.mark.parametrize("cls", sampled(CLASSES), ids=lambda cls: f"{cls.role}-{cls.__name__}")
def test_a_very_long_text_is_read_like_any_other(
    cls: type[Prompt[Any]], recorded: dict[type[Prompt[Any]], list[tuple[Prompt[Any], str]]]
) -> None:
    """Repeat one piece after a punctuation mark of a reply: no nesting and no length may break a parser."""
    rng = Random(f"long {cls.__qualname__}")
    prompt, reply = max(recorded[cls], key=lambda pair: len(pair[1]))
    for piece in ("[", "{", "(", *rng.sample(PIECES, 6)):
        positions = [match.end() for match in _PUNCTUATION.finditer(reply)] or [0]
        for at in (0, positions[-1], *rng.choices(positions, k=6)):
            read(prompt, reply[:at] + piece * (LONG // len(piece)) + reply[at:])


@pytest.mark.exhaustive
@pytest.mark.parametrize("error_rate", [0.0, 0.15])
def test_every_reply_of_an_oracle_can_be_used(error_rate: float) -> None:
    """An oracle may be wrong. Its replies are unreadable only where `malformed_rate` makes them so."""
    _, rows = asyncio.run(answer_all(default(Oracle, error_rate=error_rate), default(Budget), sample()))
    unread = [(row.method, step.role, step.error) for row in rows for step in row.steps if step.kind == "llm"]
    assert len(unread) > 1000
    assert [each for each in unread if each[-1]] == []


def test_every_failure_is_recorded_with_its_raw_text() -> None:
    _, rows = asyncio.run(answer_all(default(Oracle, malformed_rate=1.0), default(Budget), sample()[:2]))
    assert not [row.error for row in rows if row.error]
    failures = 0
    for row in rows:
        failed = [step for step in row.steps if step.kind == "llm" and step.error]
        failures += len(failed)
        assert row.counters.parse_failures == len(failed)
        assert all(step.completion is not None for step in failed)
    assert failures > 20
