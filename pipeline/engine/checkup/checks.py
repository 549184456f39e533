"""All checks, in the order in which their findings are read, and the way they are tried: none can hide another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pipeline.engine.checkup import graphs, machine, models, questions
from pipeline.engine.checkup.finding import Check, Finding, problem
from pipeline.engine.run import Point
from pipeline.errors import KgqaError, UserError

CHECKS = (
    Check("versions", machine.versions, "Install the package again: pip install --force-reinstall kgqa-pipeline."),
    Check("run folder", machine.run_folder, "Name another place by run.dir."),
    Check("open files", machine.descriptors, "Ask `ulimit -n` what is allowed."),
    Check("GPU", machine.gpu, "Ask nvidia-smi what is wrong with the driver."),
    Check("Ray", machine.ray_cluster, "Give the cluster and this machine the same versions of Ray and Python."),
    Check("model", models.models, "Look into the model server's log, and start it again."),
    Check("graph", graphs.graphs, "Look into the graph server's log, and start it again."),
    Check("dataset", questions.dataset, "Look at what dataset.path names."),
    Check("topic entities", questions.topic_entities, "Mend what is said of the graph and of the dataset."),
    Check("dry run", questions.dry_run, "Mend what is told above, and ask again.", patience_s=300),
)


async def examine(point: Point) -> AsyncIterator[tuple[str, list[Finding]]]:
    """The findings of one check after the other, each under what it looks at."""
    for check in CHECKS:
        yield check.subject, await _try(check, point)


async def _try(check: Check, point: Point) -> list[Finding]:
    try:
        async with asyncio.timeout(check.patience_s):
            return await check.look(point)
    except UserError as error:  # which says itself how to mend it
        return [problem(check.subject, "it stands in the way of a run", str(error))]
    except TimeoutError:
        return [problem(check.subject, f"no answer within {check.patience_s:g} s", check.mend)]
    except KgqaError as error:
        return [problem(check.subject, str(error), check.mend)]
    except Exception as error:  # noqa: BLE001 - whatever a check meets is a finding, and hides no other
        return [problem(check.subject, f"{type(error).__name__}: {error}", check.mend)]
