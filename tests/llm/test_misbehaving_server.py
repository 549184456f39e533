"""Runs whose model server breaks the protocol: every question is answered elsewhere, or fails with a reason."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.errors import ServiceError, UserError
from pipeline.llm.prompt import STORED_COMPLETION, Completion, Sampling
from pipeline.traces.folder import RunFolder
from tests.llm.conftest import FakeOpenAIServer
from tests.llm.misbehaving_server import GOOD, ODD, UNUSABLE, Mode, reply, serving
from tests.llm.support import call, model
from tests.support import sampled

QUESTIONS = 3
HEALTHY = reply()


def run(folder: Path, *modes: Mode) -> pl.DataFrame:
    """Answer questions with one server per mode, and return their rows."""
    with ExitStack() as servers:
        urls = ",".join(servers.enter_context(serving(mode)) for mode in modes)
        words = (
            *("method=cot", "dataset.triples=2000", f"run.limit={QUESTIONS}", f"run.dir='{folder}'"),
            *("llm=endpoint", f"llm.base_urls=[{urls}]", "llm.max_retries=2", "llm.backoff_s=0.01"),
            *("llm.max_backoff_s=0.05", "llm.timeout_s=2", "llm.max_reply_mb=1", "evaluation.bootstrap_resamples=100"),
        )
        execute((Configuration(words, config.compose(words)),), Console(quiet=True))
    return pl.concat(pl.read_parquet(path) for path in RunFolder(folder).traces)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The answers of a healthy server."""
    rows = run(tmp_path_factory.mktemp("healthy") / "run", HEALTHY)
    assert rows["status"].to_list() == ["ok"] * QUESTIONS
    return rows["answers"].to_list()


@pytest.mark.parametrize("mode", sampled(UNUSABLE))
def test_a_second_server_answers_every_question(mode: str, tmp_path: Path, answers: list[list[str]]) -> None:
    rows = run(tmp_path / "run", UNUSABLE[mode][0], HEALTHY)
    assert rows["status"].to_list() == ["ok"] * QUESTIONS
    assert rows["answers"].to_list() == answers


@pytest.mark.parametrize("mode", sampled(UNUSABLE))
def test_without_another_server_every_question_fails_with_a_reason(
    mode: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken, reason = UNUSABLE[mode]
    rows = run(tmp_path / "run", broken)
    assert rows["status"].to_list() == ["failed"] * QUESTIONS
    said = rf"(ServiceError|RequestRefused): no model server gave a usable answer.*({reason})"
    for error in rows["error"]:
        assert re.match(said, error, re.DOTALL), error
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("mode", ODD)
def test_an_unusual_reply_is_read(mode: str, tmp_path: Path, answers: list[list[str]]) -> None:
    rows = run(tmp_path / "run", ODD[mode])
    assert rows["answers"].to_list() == answers


async def test_an_unusable_reply_is_a_failure_of_its_server(servers: list[Any], caplog: Any) -> None:
    broken, good, _ = servers
    broken.default = broken.say(7)
    async with model(broken, good, breaker_failures=3) as llm:
        for number in range(40):
            assert (await llm.complete(call(str(number)))).text == "hello"
        stats, _ = llm.server_stats
        assert (stats.failures, stats.healthy) == (3, False)
    assert len(broken.bodies) == 3
    assert "is unhealthy: unusable reply (choices.0.message.content" in caplog.text


@pytest.mark.parametrize("cards", [None, [7], [{"id": 7}], [{"id": "llama", "max_model_len": "8k"}]])
async def test_an_unusable_list_of_models_is_a_user_error(server: Any, cards: Any) -> None:
    server.cards = cards
    with pytest.raises(UserError, match="no model server can be used: no list of models"):
        await model(server).__aenter__()


class Served:
    """A model behind a server whose next replies are chosen, for tests that are not asynchronous."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._server = FakeOpenAIServer()
        self._runner.run(self._server.start())
        self._model = model(self._server, max_retries=0, breaker_failures=10**9)
        self._runner.run(self._model.__aenter__())

    def complete(self, body: bytes) -> Completion:
        """Return the completion that is read from a reply. Raises ServiceError."""
        self._server.default = self._server.answer_with(body)
        return self._runner.run(self._model.complete(call(sampling=Sampling(logprobs=1))))

    def close(self) -> None:
        self._runner.run(self._model.__aexit__())
        self._runner.run(self._server.stop())
        self._runner.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    one = Served()
    yield one
    one.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)
POSITION = {"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -1.0}]}
WHOLE = GOOD | {"choices": [GOOD["choices"][0] | {"logprobs": {"content": [POSITION]}}]}


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    for key, inside in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from _paths(inside, (*path, key))


def _replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


@given(st.sampled_from(list(_paths(WHOLE))), JSON)
def test_a_changed_reply_is_read_into_a_storable_completion_or_refused(
    served: Served, path: tuple[str | int, ...], new: Any
) -> None:
    _check(served, orjson.dumps(_replaced(WHOLE, path, new)))


@given(st.data())
def test_a_damaged_reply_is_read_into_a_storable_completion_or_refused(served: Served, data: st.DataObject) -> None:
    whole = orjson.dumps(WHOLE)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    _check(served, whole[:start] + data.draw(st.binary(max_size=4)) + whole[end:])


def _check(served: Served, body: bytes) -> None:
    try:
        completion = served.complete(body)
    except ServiceError:
        return
    pa.array([completion.text, completion.finish_reason], pa.string())
    pa.array([completion.prompt_tokens, completion.completion_tokens], pa.int32())
    stored = orjson.loads(orjson.dumps(completion))
    assert STORED_COMPLETION.validate_python(stored) == completion
