"""A prompt, a call and a served model for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.config import default
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.prompt import Call, Prompt, Sampling, Template

GREEDY = Sampling()
TEMPLATE = Template(system="Answer briefly.", user="{{question}}")


@dataclass(frozen=True)
class Ask(Prompt[str]):
    """A question whose reply is used unchanged. No simulator is registered for it."""

    role = "test.ask"
    question: str

    @property
    def template(self) -> Template:
        return TEMPLATE

    def inputs(self) -> dict[str, str]:
        return {"question": self.question}

    def parse(self, text: str) -> str:
        return text

    def fallback(self, text: str) -> str:
        return ""

    def write_as_oracle(self, gold_context: Any, error_rng: Any) -> str:
        raise AssertionError("no oracle is asked")

    def write_by_similarity(self, encoder: Any) -> str:
        raise AssertionError("no encoder is asked")


def call(question: str = "Who?", sampling: Sampling = GREEDY, *, seed: int = 7, choices: tuple[str, ...] = ()) -> Call:
    prompt = Ask(question)
    return Call(prompt, prompt.messages(), sampling, key="k", seed=seed, choices=choices)


def model(*servers: Any, **options: Any) -> EndpointModel:
    """Return a model with short pauses between rounds."""
    quick = {"backoff_s": 0.01, "timeout_s": 60.0, "max_retries": 3, "breaker_reset_s": 60.0}
    return default(EndpointModel, base_urls=tuple(server.url for server in servers), **(quick | options))
