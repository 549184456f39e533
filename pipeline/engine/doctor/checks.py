"""Runs all checks in the order of the table. A failure of one check never hides another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from pipeline.engine.configuration import Configuration
from pipeline.engine.doctor import graphs, machine, models, questions
from pipeline.engine.doctor.finding import Check, Finding, problem
from pipeline.errors import KgqaError, UserError, single_errors

_DRY_RUN = "dry run"
_SERVERS = ("model", "graph")
"""The checks of what the dry run would wait for until its time limit."""
_FIRST_FIX = "Fix the problems above, and run kgqa doctor again."

CHECKS = (
    Check("versions", machine.versions, "Install the package again: pip install --force-reinstall kgqa-pipeline."),
    Check("run folder", machine.run_folder, "Name another folder in run.dir."),
    Check("open files", machine.descriptors, "See the limit with `ulimit -n`."),
    Check("GPU", machine.gpu, "See what nvidia-smi reports about the driver."),
    Check("Ray", machine.ray_cluster, "Install the same versions of Ray and Python on the cluster and here."),
    Check("model", models.models, "See the log of the model server, and restart it."),
    Check("graph", graphs.graphs, "See the log of the graph server, and restart it."),
    Check("node search", graphs.node_search, "Remove the folder nodes-… in retrieval.cache_dir: it is damaged."),
    Check("dataset", questions.dataset, "See whether dataset.path is correct."),
    Check("topic entities", questions.topic_entities, "Fix the problems of the graph and of the dataset."),
    Check(_DRY_RUN, questions.dry_run, questions.SEE_ERROR, timeout_s=300),
)


async def examine(configuration: Configuration) -> AsyncIterator[tuple[str, list[Finding]]]:
    """Yield the subject and the findings of each check.

    The dry run is not tried if no model server or no graph server works: it would wait long for them.
    """
    named: dict[str, str] = {}
    is_vain = False
    for check in CHECKS:
        if check.subject == _DRY_RUN and is_vain:
            yield check.subject, [Finding("stopped", _DRY_RUN, "not tried", _FIRST_FIX)]
            continue
        findings = [_stopped(each, named) for each in await _run(check, configuration)]
        is_vain |= check.subject in _SERVERS and _is_useless(findings)
        named |= {text: each.subject for each in findings for text in (each.found, each.fix) if each.level == "problem"}
        yield check.subject, findings


def _is_useless(findings: Sequence[Finding]) -> bool:
    """Whether there is a problem, and nothing that works."""
    return {each.level for each in findings} <= {"problem", "stopped"} and bool(findings)


def _stopped(finding: Finding, named: Mapping[str, str]) -> Finding:
    """Refer to the earlier problem that has the same cause: one fault stops several checks, and counts once.

    The dry run needs all that is checked before it. `named` is the subject of each sentence that was printed as a
    problem.
    """
    if finding.level != "problem" or (finding.fix not in named and not (named and finding.subject == _DRY_RUN)):
        return finding
    fix = f"Fix the problem of {named[finding.fix]} above." if finding.fix in named else _FIRST_FIX
    return replace(finding, level="stopped", fix=fix)


async def _run(check: Check, configuration: Configuration) -> list[Finding]:
    try:
        async with asyncio.timeout(check.timeout_s):
            return await check.run(configuration)
    except TimeoutError:
        return problem(check.subject, f"no answer within {check.timeout_s:g} s", check.fix)
    except Exception as error:  # noqa: BLE001 - any error of a check is a finding
        return _finding(check, error)


def _finding(check: Check, error: Exception) -> list[Finding]:
    """Return the finding of a check that has ended with an error, or with a group of errors of its tasks."""
    known = next((each for each in single_errors(error) if isinstance(each, KgqaError)), None)
    if isinstance(known, UserError):  # its message says how to fix it
        return problem(check.subject, "it prevents a run", str(known))
    cause = next(single_errors(error), error)
    return problem(check.subject, str(known) if known else f"{type(cause).__name__}: {cause}", check.fix)
