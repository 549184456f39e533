"""`kgqa reproduce`: run the rows of the papers' tables, and print scores next to the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.cli import build_references
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.cli.run_output import exit_code, run_notes
from pipeline.console import Console
from pipeline.engine.configuration import compose_configurations, run_dir
from pipeline.engine.run import execute
from pipeline.errors import UserError
from pipeline.evaluation.simulated import takes_time
from pipeline.papers.efficiency import HEADINGS as COST_HEADINGS
from pipeline.papers.efficiency import Efficiency, MachineLoad, efficiency, machine_load
from pipeline.papers.reproduction import (
    HEADINGS,
    ReproducedFigure,
    by_table,
    cells,
    circumstances,
    count_line,
    full_table,
    interval_text,
    is_of_method,
    labels_of,
    measured_tables,
    plan_figures,
    refuse_choices_of_rows,
    reproduce,
    summary_table,
    unit_text,
)
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import write_whole

_OWN_SECTIONS = ("scale", "reproduce")
"""Sections of `conf/reproduce.yaml` that the configuration of a run does not have."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The `reproduce` section of the configuration. The keys are described in `conf/reproduce.yaml`."""

    scale: Literal["smoke", "full"]
    methods: Annotated[tuple[str, ...], Field(min_length=1)] | None
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] | None
    datasets: Mapping[str, tuple[str, ...] | None]
    stand_in: tuple[str, ...]

    def overrides(self) -> dict[str, tuple[str, ...] | None]:
        """Return the overrides that choose each dataset; None for one that is left out."""
        missing = self.stand_in if self.scale == "smoke" else None
        return {name: missing if words is None else words for name, words in self.datasets.items()}


def run(arguments: Arguments) -> Output:
    """Run all rows as one run, and write the published tables with our numbers into the run folder."""
    common = [word for word in arguments.overrides if _section(word) not in _OWN_SECTIONS]
    refuse_choices_of_rows(common)
    # A key of one method is none of the method that is the default.
    own = replace(arguments, overrides=[word for word in arguments.overrides if not is_of_method(word)])
    plan: Plan = config.build("reproduce", own.compose())
    stood_in = [name for name, words in plan.datasets.items() if words is None and plan.scale == "smoke"]
    datasets = {**plan.overrides(), **_with_references(plan, stood_in, common)}
    planned = plan_figures(datasets, plan.seeds, common, methods=plan.methods, substituted=stood_in)
    overrides = list(dict.fromkeys(words for each in planned for words in each.configurations))
    if not overrides:
        raise UserError("no dataset is available: name one in reproduce.datasets, or use scale=smoke")
    progress = Console(stderr=True)
    configurations = compose_configurations(overrides, progress)
    folder = RunFolder(run_dir(configurations))
    was_complete = folder.read_summary() is not None and not configurations[0].config["run"]["restart"]
    with machine_load() as load:
        summaries = execute(configurations, progress)
    if was_complete or (folder.read_summary() or {}).get("resumed"):
        load = MachineLoad()  # it was measured during a part of the run only
    timed = [takes_time(*of) for of in zip(summaries, (each.config["llm"] for each in configurations), strict=True)]
    scoring = config.build("evaluation", configurations[0].config)
    found = reproduce(planned, folder, summaries, overrides, scoring, timed=timed)
    differing = [
        *(
            f"{word}: not as published, in the rows of each method with this key"
            for word in common
            if is_of_method(word)
        ),
        *circumstances(planned, summaries, folder.read_run() or {}, overrides),
    ]
    labels = labels_of(summaries)
    costs = efficiency(planned, folder, summaries, overrides, timed=timed)
    figures = {
        "circumstances": [*differing, str(load)],
        "figures": [line.to_dict() for line in found],
        "efficiency": [asdict(row) for row in costs],
        "machine": load.by_device(),
    }
    sections = list(by_table(found, labels))
    _write(folder, sections, costs, figures)
    written = (
        f"{folder.path / 'reproduction.md'} has all {len(sections) + bool(costs)} tables, with each row and its gap to "
        "the paper; reproduction.json has the same figures for scripts"
    )
    notes = [*run_notes(folder, summaries), *differing, count_line(found), written]
    return Output(
        {"run": str(folder.path), **figures},
        [summary] if (summary := summary_table(found, labels)).row_count else measured_tables(sections),
        notes,
        exit_code=exit_code(folder),
        full_tables=[full_table(title, lines) for title, lines in sections],
    )


def _section(override: str) -> str:
    return override.lstrip("+").partition("=")[0].partition(".")[0]


def _with_references(plan: Plan, stood_in: Sequence[str], common: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the overrides of the stand-in with references for SRP, built if they do not exist yet."""
    named = any(word.startswith("retrieval.reference_base=") for word in (*common, *plan.stand_in))
    if named or not stood_in:
        return {}
    file = Path("references", "stand-in.jsonl").absolute()
    if not file.exists():
        choice = [word for word in plan.stand_in if word.startswith("dataset")]
        build_references.run(Arguments("build_references", overrides=[*choice, f"references.output={file}"]))
    return dict.fromkeys(stood_in, (*plan.stand_in, f"retrieval.reference_base={file}"))


def _write(
    folder: RunFolder,
    sections: Sequence[tuple[str, Sequence[ReproducedFigure]]],
    costs: Sequence[Efficiency],
    figures: Mapping[str, Any],
) -> None:
    """Write `reproduction.md` for readers and `reproduction.json` for scripts."""
    text = ["# The papers' tables, reproduced\n", *(f"- {line}" for line in figures["circumstances"]), ""]
    for title, lines in sections:
        text += [
            f"## {title}\n",
            f"Numbers are in {unit_text(lines)}, {interval_text(lines)}.\n",
            _line(HEADINGS),
            _line(["---"] * len(HEADINGS)),
        ]
        text += [*(_line(cells(line)) for line in lines), ""]
    if costs:
        text += ["## R3-Cycle: efficiency and recovery, per question\n", _line(COST_HEADINGS)]
        text += [_line(["---"] * len(COST_HEADINGS)), *(_line(row.cells()) for row in costs), ""]
    write_whole(folder.path / "reproduction.md", "\n".join(text).encode())
    document = orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    write_whole(folder.path / "reproduction.json", document)


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"
