"""The prompt `arg.retrieval`: lets the model decide, before anything is retrieved, whether to retrieve at all.

See specification §4.5, retrieval on demand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.llm.prompt import Template
from pipeline.methods.arg.tokens import NO_RETRIEVAL, find_tokens
from pipeline.methods.arg.transcript import FINETUNED, Segment
from pipeline.methods.templates import load_template

MAX_TOKENS = 16
"""Enough for a retrieval token that the vocabulary of the model does not have as one token."""

_PROMPTED = load_template(__file__, "retrieval")
_BEGINNING = Template(system=FINETUNED.system, user=FINETUNED.user)
"""For a model trained on transcripts: its turn is still empty."""


@dataclass(frozen=True)
class RetrievalToken(Segment[bool]):
    """Whether the model declines to retrieve: the retrieval token at the beginning of a transcript."""

    role: ClassVar[str] = "arg.retrieval"
    explained = _PROMPTED

    transcript: str = ""

    @property
    def template(self) -> Template:
        return super().template if self.prompted else _BEGINNING

    def fallback(self, text: str) -> bool:
        """Retrieve."""
        return False

    def read(self, text: str) -> bool:
        """Return whether `[No Retrieval]` is the first retrieval token; every other reply retrieves."""
        return declines(text)


def declines(text: str) -> bool:
    """Return whether the first retrieval token of a text is `[No Retrieval]`."""
    return next((token.text == NO_RETRIEVAL for token in find_tokens(text) if token.kind == "retrieval"), False)
