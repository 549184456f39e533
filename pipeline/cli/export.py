"""`kgqa export`: write a run in the format, or to the service, of another tool."""

from __future__ import annotations

from pipeline.analysis.runs import open_run
from pipeline.analysis.score_notes import score_notes
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.errors import UserError
from pipeline.export.exported_run import exported_configurations
from pipeline.export.formats import export


def run(arguments: Arguments) -> Output:
    """Write the configurations of a run, and print where they are."""
    if len(arguments.words) != 1:
        raise UserError("name one run folder: kgqa export RUN format=NAME")
    keys = arguments.compose()
    opened = open_run(arguments.words[0])
    exported = exported_configurations(opened, keys["configuration"])
    written = export(exported, keys["format"], keys["output"])
    return Output({"format": keys["format"], "written": written}, lines=written, notes=score_notes(opened.folder))
