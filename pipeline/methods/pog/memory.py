"""The prompt `pog.memory`: what is known of each sub-objective after a round (specification §16.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.parsing import LenientPrompt, Value, read_records
from pipeline.methods.pog.facts import ShownFacts, Status, print_status
from pipeline.methods.pog.selection import by_number
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.templates import load_template
from pipeline.types import Question

NOTHING = "nothing is known yet"
"""The sentence of a sub-objective before the first round."""


@dataclass(frozen=True)
class UpdateStatus(LenientPrompt[Status]):
    """The status of each sub-objective, from the previous one and the facts of a round."""

    role: ClassVar[str] = "pog.memory"
    template = load_template(__file__, "memory")

    question: Question
    status: Status
    """The previous status of each sub-objective; at least one."""
    facts: ShownFacts
    """The facts of the round."""

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "status": print_status(self.status),
            "facts": str(self.facts),
        }

    def fallback(self, text: str) -> Status:
        """Return the previous status."""
        return self.status

    def read(self, text: str) -> Status:
        """Read an object from the number of a sub-objective to its sentence. Numbers left out keep their sentence."""
        records = read_records(text)
        if not records:
            raise ParseError("there is no JSON object")
        sentences = {number: _sentence(value) for number, value in by_number(records[-1], len(self.status)).items()}
        if not any(sentences.values()):
            raise ParseError("the JSON object has no sentence for the number of a sub-objective")
        numbered = enumerate(self.status, start=1)
        return tuple((objective, sentences.get(number) or known) for number, (objective, known) in numbered)


def _sentence(value: Value) -> str:
    parts = value if isinstance(value, list) else [value]
    return one_line("; ".join(str(part) for part in parts if isinstance(part, (str, int, float))))
