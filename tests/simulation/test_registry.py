"""The registry of simulators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.llm.prompt import Prompt, Template
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.oracle import Oracle
from pipeline.simulation.registry import Simulator, simulates, simulator_of, write_as_oracle, write_by_similarity
from pipeline.simulation.similarity import Similarity
from tests.methods.support import gold_context, question

KNOWN = gold_context(question("Who?"), ["Ada"], {})


@dataclass(frozen=True)
class Unsimulated(Prompt[str]):
    """A prompt without a simulator."""

    question: str
    role = "test.unsimulated"
    template = Template(system="", user="{{question}}")

    def inputs(self) -> dict[str, str]:
        return {"question": self.question}

    def parse(self, text: str) -> str:
        return text

    def fallback(self, text: str) -> str:
        return ""


@dataclass(frozen=True)
class HalfSimulated(Unsimulated):
    """A prompt to which only the oracle can reply."""


@simulates(HalfSimulated)
class OracleOnly(Simulator[HalfSimulated]):
    """Writes a gold answer."""

    def write_as_oracle(self, prompt: HalfSimulated, gold_context: GoldContext, error_rng: Random | None) -> str:
        return gold_context.gold.answers[0].name


@pytest.mark.parametrize(
    ("reply", "model", "function"),
    [
        (lambda prompt: write_as_oracle(prompt, KNOWN, None), "oracle", "write_as_oracle"),
        (lambda prompt: write_by_similarity(prompt, LexicalEncoder()), "similarity", "write_by_similarity"),
    ],
)
def test_a_prompt_without_a_simulator_is_refused_with_a_sentence(reply: Any, model: str, function: str) -> None:
    with pytest.raises(UserError) as refused:
        reply(Unsimulated("Who?"))
    assert str(refused.value) == (
        f"llm={model} cannot answer test.unsimulated: no simulator of Unsimulated has `{function}`. Write a class with "
        "@simulates(Unsimulated) and list its module in llm.simulators (docs/extending.md), or use a language model"
    )


def test_a_simulator_may_implement_one_method() -> None:
    assert write_as_oracle(HalfSimulated("Who?"), KNOWN, None) == "Ada"
    with pytest.raises(UserError, match="`write_by_similarity`"):
        write_by_similarity(HalfSimulated("Who?"), LexicalEncoder())


def test_a_subclass_of_a_prompt_uses_the_simulator_of_its_base() -> None:
    @dataclass(frozen=True)
    class Variant(HalfSimulated):
        """A prompt without a simulator of its own."""

    assert isinstance(simulator_of(Variant("Who?")), OracleOnly)

    @simulates(Variant)
    class OfVariant(OracleOnly):
        """Replies to the variant."""

    assert isinstance(simulator_of(Variant("Who?")), OfVariant)
    assert type(simulator_of(HalfSimulated("Who?"))) is OracleOnly, "the base keeps its own"


@pytest.mark.parametrize("model", [Oracle, Similarity])
def test_the_modules_in_llm_simulators_are_imported(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"simulators_of_{model.__name__.lower()}"
    (tmp_path / f"{module}.py").write_text("from pathlib import Path\n\nPath('imported').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    default(model, simulators=(module,))
    assert (tmp_path / "imported").exists()


def test_an_exception_while_a_module_is_imported_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "failing_simulators.py"
    file.write_text("import pydantic\n\nx = 1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"failing_simulators cannot be imported: ZeroDivisionError: .*line 3\)$"):
        default(Oracle, simulators=("failing_simulators",))


@pytest.mark.parametrize("model", [Oracle, Similarity])
def test_a_module_that_cannot_be_imported_is_named(model: Any) -> None:
    with pytest.raises(UserError, match=r"llm\.simulators: no_such_module cannot be imported: No module named"):
        default(model, simulators=("no_such_module",))
