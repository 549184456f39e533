"""An oracle as fast as the node it runs on, which notes there whose questions it was asked."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.kg.interface import KnowledgeGraph
from pipeline.simulation.oracle import Oracle, QuestionOracle
from pipeline.types import Example


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class NodeOracle(Oracle):
    """Takes its latency from `KGQA_TEST_LATENCY_S`, and appends question ids to the file `KGQA_TEST_NODE`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.latency_s = float(os.environ.get("KGQA_TEST_LATENCY_S", "0"))

    def for_question(self, example: Example, kg: KnowledgeGraph) -> QuestionOracle:
        with Path(os.environ["KGQA_TEST_NODE"]).open("a") as file:
            file.write(f"{example.question.id}\n")
        return super().for_question(example, kg)
