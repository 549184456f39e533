"""Counts the tokens of training texts by role, to see what a mixture costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from rich.table import Table
from rich.text import Text

from pipeline.datasets.files import lines
from pipeline.evaluation.score_tables import plain_table
from pipeline.training.sft.prefix_packing import IGNORED
from pipeline.training.sft.texts import label, read_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MOST_TEXTS = 400
"""Texts of a role whose tokens are counted: enough for a mean."""


@dataclass
class RoleTokens:
    """The tokens of the texts of one role."""

    texts: int = 0
    questions: int = 0
    """Different questions."""
    counted: int = 0
    """Texts whose tokens were counted."""
    tokens: int = 0
    loss: int = 0
    """Tokens that carry loss."""
    longest: int = 0

    def add(self, labels: Iterable[int]) -> None:
        """Count the tokens of one text."""
        carried = [each != IGNORED for each in labels]
        self.counted += 1
        self.tokens += len(carried)
        self.loss += sum(carried)
        self.longest = max(self.longest, len(carried))


def count_tokens(files: Iterable[Path], tokenizer: PreTrainedTokenizerBase) -> Mapping[str, RoleTokens]:
    """Count the texts of files by role, and the tokens of the first `_MOST_TEXTS` of each role.

    Rows without a role are walks.
    """
    roles: dict[str, RoleTokens] = {}
    questions: dict[str, set[str]] = {}
    for _, line in chain.from_iterable(map(lines, files)):
        row = orjson.loads(line)
        role = row.get("role", "arg.walk")
        counts = roles.setdefault(role, RoleTokens())
        counts.texts += 1
        asked = questions.setdefault(role, set())
        asked.add(f"{row.get('dataset')} {row.get('id')}")
        counts.questions = len(asked)
        if counts.counted < _MOST_TEXTS:
            _, labels = label(read_text(row), tokenizer)
            counts.add(labels)
    return roles


def token_table(roles: Mapping[str, RoleTokens], title: str) -> Table:
    """Return the counts as a table: texts and texts per question, and means of the tokens per text."""
    shown = plain_table(title)
    shown.add_column("role", overflow="fold")
    for name in ("texts", "per question", "prompt tokens", "loss tokens", "longest"):
        shown.add_column(name, justify="right")
    for name, role in sorted(roles.items()):
        prompt, loss = (role.tokens - role.loss) / role.counted, role.loss / role.counted
        per_question = role.texts / role.questions
        shown.add_row(
            Text(name), f"{role.texts:,}", f"{per_question:.1f}", f"{prompt:,.0f}", f"{loss:.0f}", f"{role.longest:,}"
        )
    return shown
