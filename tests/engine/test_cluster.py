"""Starting a Ray cluster on this machine, without starting one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any, ClassVar

import pytest
import ray
from ray._private.node import Node
from ray._private.services import ProcessInfo

from pipeline.engine.cluster import joined
from pipeline.errors import ServiceError

ENGINE = {"workers": 1, "cpus_per_worker": 1}


class Starts:
    """A stand-in for `ray.init` that fails so many times as Ray does on a busy machine."""

    def __init__(self, failures: int, message: str = "The current node timed out during startup.") -> None:
        self.left, self.message, self.calls = failures, message, 0

    def __call__(self, *_: Any, **__: Any) -> None:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise Exception(self.message)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)


def test_a_start_that_is_too_slow_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", starts := Starts(failures=2))
    with joined(ENGINE) as is_own:
        assert is_own
    assert starts.calls == 3


def test_the_environment_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray asks for a token there. It would go to every process that this one starts, whichever cluster they join."""

    def start(*_: Any, **__: Any) -> None:
        os.environ["RAY_AUTH_MODE"] = "token"

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(ray, "init", start)
    before = dict(os.environ)
    with joined(ENGINE):
        assert {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} <= os.environ.keys()
    assert dict(os.environ) == before


def test_a_machine_that_is_too_busy_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", starts := Starts(failures=9))
    with pytest.raises(ServiceError, match="Ray did not start on this machine within 30 seconds, 3 times in a row"):
        joined(ENGINE).__enter__()
    assert starts.calls == 3


def test_another_error_of_ray_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", starts := Starts(failures=1, message="no such port"))
    with pytest.raises(Exception, match="no such port"):
        joined(ENGINE).__enter__()
    assert starts.calls == 1


class SlowNode(Node):
    """Starts a process, as Ray does, and then gives up."""

    started: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self) -> None:
        self.removal_lock = threading.Lock()
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.started.append(process)
        nothing = dict.fromkeys(ProcessInfo._fields[1:])
        self.all_processes = {"raylet": [ProcessInfo(process, **nothing)]}
        raise Exception("The current node timed out during startup.")


def test_the_processes_of_a_start_that_failed_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", lambda *_, **__: SlowNode())
    try:
        with pytest.raises(ServiceError):
            joined(ENGINE).__enter__()
        assert len(SlowNode.started) == 3
        assert all(process.poll() is not None for process in SlowNode.started)
    finally:
        for process in SlowNode.started:
            process.kill()
            process.wait()
