"""Fixtures that run `kgqa` as a user does: arguments in; exit code, stdout, stderr and run folder out."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.cli.main import main
from tests.cli.support import Kgqa, Outcome

WORLD = ("dataset.triples=2000", "run.limit=20", "evaluation.bootstrap_resamples=100")


@pytest.fixture
def kgqa(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kgqa:
    """`kgqa("evaluate", …)` runs in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str | Path) -> Outcome:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def evaluate(kgqa: Kgqa) -> Kgqa:
    """`evaluate(…)` runs twenty questions of a small world, into the folder `run` by default."""
    return lambda *words: kgqa("evaluate", *WORLD, "run.dir=run", *words)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with some wrong answers. Tests that write to it use a copy."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main(["evaluate", *WORLD, "llm=oracle", "llm.error_rate=0.4", f"run.dir={folder}"]) == 0
    return folder


class FixedReply:
    """A model server in a thread of this process that gives every prompt the same reply."""

    def __init__(
        self,
        *,
        holds_after: int | None = None,
        refuses_every: int | None = None,
        counts_tokens: bool = True,
        counts_none_every: int | None = None,
        says: str = "{Ada}",
    ) -> None:
        """Give the reply `says`. Hold replies after `holds_after` requests until `release`.

        Answer one in `refuses_every` with an error. One in `counts_none_every` comes without a count of tokens.
        """
        self._counts_none_every = counts_none_every
        self._says = says
        self.answers_as = "fixed"
        """The name of the model in each reply."""
        self._usage = {"usage": {"prompt_tokens": 9, "completion_tokens": 3}} if counts_tokens else {}
        self.requests = 0
        self.keys: set[str] = set()
        """Every Authorization header received."""
        self.holding = threading.Event()
        """Set when a request is held."""
        self._released = threading.Event()
        self._holds_after = holds_after
        self._refuses_every = refuses_every
        self._counting = threading.Lock()

    def release(self) -> None:
        """Answer the held requests, and hold no more."""
        self._released.set()

    def reply(self, key: str, asked: bytes) -> tuple[int, object]:
        """Return the status and body for one request."""
        with self._counting:
            self.requests += 1
            self.keys.add(key)
            number = self.requests
        if self._holds_after is not None and number > self._holds_after:
            self.holding.set()
            self._released.wait()
        if self._refuses_every and number % self._refuses_every == 0:
            return 400, {"error": {"message": f"no such thing for {key}"}}
        choice = {"index": 0, "message": {"role": "assistant", "content": self.text(asked)}, "finish_reason": "stop"}
        is_counted = not self._counts_none_every or number % self._counts_none_every
        return 200, {"model": self.answers_as, "choices": [choice], **(self._usage if is_counted else {})}

    def text(self, asked: bytes) -> str:
        """Return the reply of the model to a request."""
        return self._says


@contextmanager
def serving(model: FixedReply) -> Iterator[str]:
    """Serve on a free port; yields the override that uses the server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": [{"id": "fixed", "object": "model"}]})

        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            self._send(*model.reply(self.headers.get("Authorization", ""), asked))

        def _send(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 512  # a run opens hundreds of connections at once

        def handle_error(self, *_: object) -> None:
            pass  # the client went away while its reply was held

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"llm.base_urls=[http://127.0.0.1:{server.server_port}/v1]"
        finally:
            model.release()
            server.shutdown()
            thread.join()


@pytest.fixture
def model_server() -> Iterator[Callable[..., tuple[FixedReply, list[str]]]]:
    """`model_server(…)` starts a `FixedReply`, and returns it with the overrides that use it."""
    with ExitStack() as running:

        def start(**options: int) -> tuple[FixedReply, list[str]]:
            model = FixedReply(**options)
            return model, ["llm=endpoint", running.enter_context(serving(model))]

        yield start


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment of a `kgqa` in a process of its own."""
    return {**os.environ, "COLUMNS": "200"}
