"""The prompt that `kgqa doctor` asks each model. Its simulator needs nothing else of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.llm.prompt import Prompt, Template

CHOICES = ("A", "B")
"""Choices that are one token each in every vocabulary."""
_TEMPLATE = Template(system="You answer with one letter.", user="{{question}}")


@dataclass(frozen=True)
class TrivialPrompt(Prompt[str]):
    """The shortest possible call."""

    role: ClassVar[str] = "doctor.trivial"
    template = _TEMPLATE

    def inputs(self) -> dict[str, str]:
        return {"question": "Is this A or B?"}

    def parse(self, text: str) -> str:
        return text

    def fallback(self, text: str) -> str:
        return text
