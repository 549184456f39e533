"""A user's folder with a dataset and a method, for tests of what changes between two runs of a command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.cli.main import main

CITIES = {"Aland": "Arta", "Borland": "Bexley", "Cetland": "Corvo", "Dunland": "Dora", "Erland": "Essa"}
COMMAND = (
    *("evaluate", "dataset=custom", "dataset.triples=facts.tsv", "dataset.questions=questions.jsonl"),
    "engine.shard_size=2",
)
METHOD = """
from helper import best
from pydantic.dataclasses import dataclass
from pipeline.types import Answer, Prediction, Relation


@dataclass
class Capital:
    name: str

    async def answer(self, question, tools):
        topics = [entity.id for entity in question.topic_entities]
        found = await tools.kg.neighbours([(topic, Relation("capital", "out")) for topic in topics], 5)
        return Answer(predictions=tuple(Prediction(best(each.nodes)) for each in found.values()))
"""


class Project:
    """A user's folder with a dataset and a method, and the command that runs them."""

    def __init__(self, folder: Path, output: Callable[[], tuple[str, str]]) -> None:
        self.folder = folder
        self._output = output
        self.write_facts(CITIES)
        self.write_questions(CITIES)

    def write_facts(self, cities: dict[str, str]) -> None:
        lines = [f"{country}\tcapital\t{city}\n" for country, city in cities.items()]
        (self.folder / "facts.tsv").write_text("".join(lines))

    def write_questions(
        self, cities: dict[str, str], text: str = "What is the capital of {}?", **labels: str | int
    ) -> None:
        rows = [
            {"id": country, "question": text.format(country), "topic_entities": [country], "answers": [city], **labels}
            for country, city in cities.items()
        ]
        (self.folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write_method(self, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, tuple[str, ...]]:
        """Write a method of two modules, and return their folder and the words that choose the method."""
        code, choices = self.folder / "code", self.folder / "conf" / "method"
        code.mkdir()
        (code / "capital.py").write_text(METHOD)
        (code / "helper.py").write_text("def best(nodes):\n    return nodes[0]\n")
        monkeypatch.syspath_prepend(str(code))
        for name in ("capital", "helper"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        choices.mkdir(parents=True)
        (choices / "capital.yaml").write_text("_target_: capital.Capital\nname: capital\n")
        return code, ("method=capital",)

    def write_simulator(self, monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[Path, tuple[str, ...]]:
        """Write a module of simulators of this name, and return its file and the words that use it."""
        file = self.folder / "code" / f"{name}.py"
        file.parent.mkdir()
        file.write_text("# writes replies\n")
        monkeypatch.syspath_prepend(str(file.parent))
        return file, ("method=srp", "llm=oracle", f"llm.simulators=[{name}]")

    def run(self, *words: str, folder: str = "runs/r", code: int = 0) -> str:
        """Run the command, which must end with this exit code, and return all that it prints.

        As in a new process, the modules of the folder are imported anew.
        """
        self._output()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]
        assert main([*COMMAND, f"run.dir={folder}", *words]) == code
        return self.said()

    def said(self) -> str:
        """Return all that was printed since the last time, in one line."""
        return " ".join("".join(self._output()).split())

    def summary(self, folder: str = "runs/r") -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.folder / folder / "summary.json").read_text())
        return summary

    def rows(self, folder: str = "runs/r") -> pl.DataFrame:
        return pl.read_parquet(self.folder / folder / "traces/*.parquet").sort("question_id")
