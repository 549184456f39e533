"""A prompt for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.llm.prompt import Prompt, Template

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
