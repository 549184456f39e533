"""What tables say of answers that no language model gave, or whose probabilities are estimated."""

from __future__ import annotations

import pytest

from pipeline.evaluation.simulated import answered_by, label_lines, label_meaning
from pipeline.llm.interface import APPROXIMATE, simulated


@pytest.mark.parametrize(
    ("label", "name", "answerer"),
    [
        (None, None, "a language model"),
        (APPROXIMATE, None, f"a language model, {APPROXIMATE}"),
        ("similarity", "similarity", "similarity: no language model"),
        ("oracle", "oracle", "oracle: no language model, replies from the gold answers"),
        (f"{APPROXIMATE}, oracle", "oracle", "oracle: no language model, replies from the gold answers"),
    ],
)
def test_a_model_whose_choices_are_estimated_is_a_language_model(
    label: str | None, name: str | None, answerer: str
) -> None:
    assert simulated(label) == name
    assert answered_by(label) == answerer


def test_each_kind_of_label_has_a_line_of_its_own() -> None:
    estimated = "probabilities of choices are estimated (llm.approximate_choices)"
    assert label_lines([None]) == []
    assert label_lines([APPROXIMATE, None]) == [estimated] == [label_meaning(APPROXIMATE)]
    assert label_lines([APPROXIMATE, "oracle"]) == ["not the answers of a language model: oracle", estimated]
