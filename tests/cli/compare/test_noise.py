"""`kgqa compare noise.questions=N`: differences within what a second run changes."""

from __future__ import annotations

import json
import shutil
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from pipeline.config import default
from pipeline.percentages import percentage
from pipeline.simulation.world import SyntheticWorld
from tests.cli.compare.support import evaluate, figures
from tests.cli.conftest import FixedReply, Kgqa, serving


class Shaky(FixedReply):
    """Always knows some questions, never knows others, and answers every fifth one at random."""

    def __init__(self, world: SyntheticWorld) -> None:
        super().__init__()
        examples = list(world.examples(lambda _: None))
        self._gold = {example.question.text: example.gold.answers[0].name for example in examples}
        self._index = {example.question.text: index for index, example in enumerate(examples)}
        self._saying = threading.Lock()
        self.said: dict[str, list[str]] = defaultdict(list)
        """The replies to each question, in order."""

    def text(self, asked: bytes) -> str:
        prompt = json.loads(asked)["messages"][-1]["content"]
        question = max((text for text in self._gold if text in prompt), key=len)
        index = self._index[question]
        with self._saying:
            turn = len(self.said[question])
            knows = Random(f"{index} {turn}").random() < 0.5 if self.is_shaky(index) else index % 2 == 0
            self.said[question].append(self._gold[question] if knows else "nobody knows")
        return f"{{{self.said[question][turn]}}}"

    @staticmethod
    def is_shaky(index: int) -> bool:
        return index % 5 == 0

    def turns(self, before: int, after: int) -> Sequence[int]:
        """Return how the score of each question changed between two of its turns."""
        right = ([said == self._gold[text] for said in of] for text, of in self.said.items())
        return [turns[after] - turns[before] for turns in right if len(turns) > after]


@pytest.mark.exhaustive
def test_differences_within_what_a_second_run_changes_are_noise(kgqa: Kgqa) -> None:
    model = Shaky(default(SyntheticWorld, triples=2000, questions=100))
    world = ("dataset.questions=100",)
    with serving(model) as url:
        words = (*world, "method=cot", "llm=endpoint", url)
        evaluate(kgqa, "run", *words)
        evaluate(kgqa, "twin", *words)
        evaluate(kgqa, "oracle", *world, "llm=oracle")
        found = figures(kgqa, "run", "twin", "oracle", "noise.questions=60")
        again = kgqa("compare", "run", "twin", "oracle", "noise.questions=60")
        assert model.requests == 260, "the noise run asks its sample anew, and once"
        evaluate(kgqa, "reusing", *words, "run.reuse=[run]")
        figures(kgqa, "reusing", "twin", "noise.questions=10")
        assert model.requests == 270, "and reuses nothing, whatever the base did"

    twin, oracle = found["points"]
    turns = model.turns(0, 1)
    assert twin["difference"] == pytest.approx(sum(turns) / 100)
    assert (twin["won"], twin["lost"]) == (turns.count(1), turns.count(-1))
    assert twin["difference"] != 0
    assert abs(twin["difference"]) <= twin["noise"]
    assert (twin["verdict"], oracle["verdict"]) == ("noise", "better")

    sample = model.turns(0, 2)
    changed = sum(map(abs, sample))
    assert 0 < changed < 12
    noise = found["noise"]
    assert (noise["questions"], noise["calls_repeated"], noise["calls_unrepeated"]) == (60, 60, 0)
    assert noise["calls_differing"] == changed
    assert noise["absolute"] == pytest.approx(changed / 60)
    assert noise["net"] == pytest.approx(sum(sample) / 60)
    assert noise["interval"][0] <= noise["net"] <= noise["interval"][1]

    text = " ".join(again.out.split())
    assert f"Of 60 repeated calls, {changed} returned a different text ({percentage(changed / 60)} %)" in text
    assert f"differences of up to {100 * twin['noise']:.1f} percentage points are noise" in text
    assert "nothing to run" in again.err
    assert kgqa("score", "run/noise/point-0-questions-60").code == 0, "it is a run folder like any other"


def test_a_deterministic_model_has_no_noise(runs: Path, kgqa: Kgqa) -> None:
    for name in ("good", "bad"):
        shutil.copytree(runs / name, name)
    shown = kgqa("compare", "good", "bad", "noise.questions=15")
    assert "noise: 15 questions of good:0 were run again" in shown.out
    assert shown.out.splitlines()[-1] == "the model is deterministic, and its noise is 0"
    found = figures(kgqa, "good", "bad", "noise.questions=15")
    assert (found["noise"]["absolute"], found["points"][0]["noise"], found["points"][0]["verdict"]) == (0, 0, "worse")


def test_no_more_questions_are_run_again_than_there_were(runs: Path, kgqa: Kgqa) -> None:
    for name in ("good", "bad"):
        shutil.copytree(runs / name, name)
    found = figures(kgqa, "good", "bad", "base=bad:0", "noise.questions=50")
    assert found["noise"]["questions"] == 40


def test_noise_is_not_measured_on_another_model(runs: Path, kgqa: Kgqa) -> None:
    for name in ("good", "bad"):
        shutil.copytree(runs / name, name)
    saved = Path("good/run.yaml")
    saved.write_text(saved.read_text().replace("model: oracle(error_rate=0.1", "model: oracle(error_rate=0.2"))
    said = kgqa("compare", "good", "bad", "noise.questions=15").sentence
    assert "began with the model oracle(error_rate=0.2,malformed_rate=0), but now it is oracle(error_rate=0.1" in said
    assert not list(Path("good/noise").rglob("*.parquet"))
