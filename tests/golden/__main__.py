"""Record or compare the golden runs: `python -m tests.golden record|compare [NAME …]`.

A golden run is every method on the first questions of one dataset, answered by one simulated model. For each question
it holds the answers and the keys of all model calls. A call key is a hash of the rendered prompt, the model and the
sampling, so equal keys mean that every prompt is equal to the byte.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import polars as pl

from pipeline.cli.main import main as kgqa

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent
_QUESTIONS = 16

_MODELS = {
    "oracle": ["llm=oracle"],
    "erring_oracle": ["llm=oracle", "llm.error_rate=0.2", "llm.malformed_rate=0.1"],
    "similarity": ["llm=similarity"],
}


class GoldenRun(NamedTuple):
    """One dataset under one simulated model; all methods, or all presets, run as one sweep."""

    name: str
    configurations: list[str]
    words: list[str]

    @property
    def file(self) -> Path:
        """Where the run is recorded."""
        return _HERE / f"{self.name}.jsonl"


def golden_runs() -> list[GoldenRun]:
    """Every dataset with every simulated model."""
    data = Path(os.environ.get("KGQA_SHARED_DATA", _ROOT.parent / "shared" / "data"))
    freebase = data / "freebase-slice"
    metaqa = ["dataset=metaqa", f"dataset.path={data / 'metaqa'}"]
    datasets = {
        "synthetic": ["dataset=synthetic"],
        **{f"metaqa_{hops}hop": [*metaqa, f"dataset.hops={hops}"] for hops in (1, 2, 3)},
        "cwq_slice": [
            "dataset=custom",
            f"dataset.triples={freebase / 'triples.tsv.gz'}",
            f"dataset.questions={freebase / 'cwq.test.jsonl.gz'}",
            f"dataset.inverses={freebase / 'relations.tsv.gz'}",
            "dataset.filter={gold_pattern_in_slice: true}",
        ],
    }
    methods, presets = (
        [f"{group}={file.stem}" for file in sorted((_ROOT / "conf" / group).glob("*.yaml"))]
        for group in ("method", "experiment")
    )
    return [
        *(
            GoldenRun(f"{dataset}.{model}", methods, [*words, *more])
            for dataset, words in datasets.items()
            for model, more in _MODELS.items()
        ),
        GoldenRun("presets.erring_oracle", presets, [*datasets["synthetic"], *_MODELS["erring_oracle"]]),
    ]


def run(golden: GoldenRun, folder: Path) -> str:
    """Run the sweep in `folder`; give the lines of its golden file."""
    points = folder / "points.txt"
    points.write_text("".join(f"{line}\n" for line in golden.configurations), "utf-8")
    words = [*golden.words, f"run.limit={_QUESTIONS}", f"run.dir={folder / 'run'}"]
    # In this process, which composes and parses what the runs have in common once.
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
        code = kgqa(["sweep", str(points), *words])
    if code:
        sys.exit(f"{golden.name}: kgqa sweep failed\n{said.getvalue()}")
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in _records(golden, folder / "run"))


def _records(golden: GoldenRun, folder: Path) -> Iterator[dict[str, object]]:
    rows = pl.read_parquet(folder / "traces" / "*.parquet").sort("point", "question_id")
    for row in rows.iter_rows(named=True):
        keys = sorted(step["key"][:12] for step in row["steps"] if step["kind"] == "llm")
        yield {
            "configuration": golden.configurations[row["point"]],
            "question": row["question_id"],
            "status": row["status"],
            "answers": row["answers"],
            "calls": keys,
        }


def main(action: str, *names: str) -> int:
    """Record or compare the golden runs of these names, or all; exit code 1 when one differs."""
    differing = 0
    for golden in golden_runs():
        if names and golden.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = run(golden, Path(folder))
        if action == "record":
            golden.file.write_text(found, "utf-8")
            print(f"{golden.name}: recorded")
            continue
        expected = golden.file.read_text("utf-8")
        differing += found != expected
        print(f"{golden.name}: {'equal' if found == expected else 'DIFFERENT'}", flush=True)
        lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), "recorded", "found", n=0, lineterm="")
        print("".join(f"  {line[:300]}\n" for line in list(lines)[:8]), end="")
    return 1 if differing else 0


if __name__ == "__main__":
    if sys.argv[1:2] not in (["record"], ["compare"]):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
