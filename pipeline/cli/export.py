"""`kgqa export`: write a run in the format, or to the service, of another tool."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.analysis.runs import open_run
from pipeline.analysis.score_notes import single_run_notes
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.console import progress
from pipeline.errors import UserError
from pipeline.export.exported_run import exported_configurations
from pipeline.export.formats import export, find_format


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/export.yaml`."""

    format: str
    output: str | None
    configuration: int | None


def run(arguments: Arguments) -> Output:
    """Write the configurations of a run, and print where they are."""
    if len(arguments.words) != 1:
        raise UserError("name one run folder: kgqa export RUN format=NAME")
    plan = config.build_own(Plan, arguments.compose())
    find_format(plan.format)  # before the long work
    opened = open_run(arguments.words[0])
    with progress("exporting the questions: a run of many questions takes minutes") as shown:
        task = shown.add_task("exporting the questions", total=None)
        exported = exported_configurations(opened, plan.configuration, lambda: shown.advance(task))
        shown.update(task, total=sum(each.summary.answered for each in exported))
        written = export(exported, plan.format, plan.output)
    return Output(
        {"format": plan.format, "written": written},
        lines=written,
        notes=single_run_notes(opened.folder),
    )
