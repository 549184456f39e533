"""`kgqa reproduce`: every row of the papers' tables that has a preset, ours beside theirs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from rich.console import Console

from jobs import build_references
from jobs.cli import guard
from jobs.common import help_text, print_remarks, remark, wants_help
from pipeline import config
from pipeline.analysis.reproduction import (
    HEADINGS,
    Reproduced,
    by_table,
    cells,
    circumstances,
    labels_of,
    reproduce,
    rich_table,
    rows_of,
)
from pipeline.engine.run import compose_points, execute, run_dir
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import write_whole

_OWN = ("scale", "reproduce")
"""Sections of `conf/reproduce.yaml` that no point has."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The `reproduce` section of the configuration."""

    scale: Literal["smoke", "full"]
    seeds: tuple[int, ...] = Field(min_length=1)
    datasets: Mapping[str, tuple[str, ...] | None]
    stand_in: tuple[str, ...]

    def words(self) -> dict[str, tuple[str, ...] | None]:
        """What chooses each dataset; None for one that is left out."""
        missing = self.stand_in if self.scale == "smoke" else None
        return {name: missing if words is None else words for name, words in self.datasets.items()}


def main(argv: list[str]) -> int:
    """Run all rows as one run, print the published tables with ours beside, and write them into the run folder."""
    if wants_help(argv):
        print(help_text("kgqa reproduce [scale=smoke|full] [group=choice] [key=value] …", argv, name="reproduce"))
        return 0
    plan: Plan = config.build("reproduce", config.compose(argv, name="reproduce"))
    common = [word for word in argv if word.lstrip("+").partition("=")[0].partition(".")[0] not in _OWN]
    stood_in = [name for name, words in plan.datasets.items() if words is None and plan.scale == "smoke"]
    words_of = {**plan.words(), **_referenced(plan, stood_in, common)}
    rows = rows_of(words_of, plan.seeds, common, stood_in=stood_in)
    overrides = list(dict.fromkeys(point for row in rows for point in row.points))
    if not overrides:
        raise UserError("no dataset is at hand: name one by reproduce.datasets, or take scale=smoke")
    progress = Console(stderr=True)
    points = compose_points(overrides, progress)
    summaries = execute(points, progress)
    folder = RunFolder(run_dir(points))
    found = reproduce(rows, folder, overrides, config.build("evaluation", points[0].config))
    differing = circumstances(rows, summaries, folder.read_run() or {}, overrides)
    sections = list(by_table(found, labels_of(summaries)))
    _write(folder, sections, differing)
    console = Console()
    for title, lines in sections:
        console.print(rich_table(title, lines))
    remark(folder, summaries)
    print_remarks([*differing, f"{folder.path / 'reproduction.md'} and .json hold these tables"], console)
    return 0


def _referenced(plan: Plan, stood_in: Sequence[str], common: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The datasets that are stood in for, with SRP's references for the stand-in, built if they are not there yet."""
    named = any(word.startswith("retrieval.reference_base=") for word in (*common, *plan.stand_in))
    if named or not stood_in:
        return {}
    file = Path("references", "stand-in.jsonl").absolute()
    if not file.exists():
        choice = [word for word in plan.stand_in if word.startswith("dataset")]
        build_references.main([*choice, f"references.output={file}"])
    return dict.fromkeys(stood_in, (*plan.stand_in, f"retrieval.reference_base={file}"))


def _write(folder: RunFolder, sections: Sequence[tuple[str, list[Reproduced]]], differing: Sequence[str]) -> None:
    """`reproduction.md` for readers, `reproduction.json` for scripts."""
    text = ["# The papers' tables, and ours\n", *(f"- {line}" for line in differing), ""]
    for title, lines in sections:
        text += [f"## {title}\n", _line(HEADINGS), _line(["---"] * len(HEADINGS))]
        text += [*(_line(cells(line)) for line in lines), ""]
    write_whole(folder.path / "reproduction.md", "\n".join(text).encode())
    document: dict[str, Any] = {
        "circumstances": list(differing),
        "figures": [line.to_dict() for _, lines in sections for line in lines],
    }
    write_whole(folder.path / "reproduction.json", (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
