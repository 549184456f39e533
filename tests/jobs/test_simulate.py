"""`kgqa simulate`: what goes in comes from runs or from the project, what comes out is tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from pipeline.analysis.simulation.demand import OWN, Demand, of_runs, read
from tests.jobs.support import Kgqa

SMALL = ("gpus=[1,8]", "questions={webqsp: 40, cwq: 40, grailqa: 40, metaqa: 40}")


def test_the_projects_own_demands_are_of_all_methods_on_all_datasets() -> None:
    demands = read(OWN)
    assert set(demands) == {"webqsp", "cwq", "grailqa", "metaqa"}
    assert all(set(methods) == {"srp", "arg", "parog", "r3"} for methods in demands.values())


def test_tables_in_80_columns(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = kgqa("simulate", *SMALL)
    assert shown.code == 0, shown.err
    assert shown.out.count("40 questions") == 4
    assert max(len(line) for line in shown.out.splitlines()[:-1]) <= 80
    assert "68 requests/s" in shown.out


def test_a_page(kgqa: Kgqa, tmp_path: Path) -> None:
    assert kgqa("simulate", *SMALL, "output=scale.md").out == "scale.md\n"
    page = (tmp_path / "scale.md").read_text()
    assert page.startswith("# A cluster on paper\n\nMade by `kgqa simulate output=scale.md`.")
    assert page.count("| method | 1 GPU | 8 GPUs |") == 4
    assert "| ingress | 68 requests/s |" in page


def test_what_a_users_own_runs_asked(kgqa: Kgqa, finished: Path, tmp_path: Path) -> None:
    shown = kgqa("simulate", finished, "+questions.sample=500", "save=demand.json", "gpus=[1]")
    assert shown.code == 0, shown.err
    assert "sample, 500 questions" in shown.out
    (found,) = of_runs([finished], ["sample"])["sample"].values()
    rows = pl.read_parquet(finished / "traces" / "*.parquet")
    assert sum(one.calls for one in found) == rows["llm_calls"].sum()
    assert sum(one.prompt_tokens for one in found) == rows["prompt_tokens"].sum()
    assert all(0 < one.rounds <= one.calls for one in found if one.calls)
    assert read(tmp_path / "demand.json")["sample"]["srp"] == found
    again = kgqa("simulate", "demand=demand.json", "+questions.sample=500", "gpus=[1]")
    assert again.out == shown.out


def test_mistakes(kgqa: Kgqa, finished: Path, tmp_path: Path) -> None:
    assert kgqa("simulate", finished).sentence.startswith("questions.sample must be given: how many questions")
    assert kgqa("simulate", finished, "demand=x.json").sentence.startswith("name runs or a file of what they asked")
    assert kgqa("simulate", "demand=x.json").sentence == "x.json cannot be read: No such file or directory"
    (tmp_path / "list.json").write_text(json.dumps([1]))
    assert kgqa("simulate", "demand=list.json").sentence.startswith("list.json holds no demands: make one with")
    assert kgqa("simulate", "gpus=[0]").sentence.startswith("gpus.0=0 is wrong")
    assert kgqa("simulate", "gpu=[1]").sentence.startswith("unknown key 'gpu'. Did you mean 'gpus'?")


def test_without_simpy_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['simpy'] = None; from jobs.cli import main; sys.exit(main(['simulate']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("kgqa: the simulation needs SimPy: pip install kgqa-pipeline[simulate]\n")


def test_calls_of_one_round_are_told_from_those_of_several(tmp_path: Path, kgqa: Kgqa) -> None:
    words = ("evaluate", "method=cot", "llm=oracle", "dataset.triples=2000", "run.limit=4", "llm.latency_s=0.01")
    assert kgqa(*words, "run.dir=one").code == 0
    (found,) = of_runs([tmp_path / "one"], [])["sample"].values()
    assert {(one.calls, one.rounds, one.entities) for one in found} == {(1, 1, 0)}
    assert isinstance(found[0], Demand)
