"""Stores a configuration as a run of Weights & Biases, with its own client."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline.errors import ServiceError
from pipeline.export.exported_run import ExportedConfiguration
from pipeline.export.tracking import tracked_run

_LONGEST_TAG = 64


def write(exported: ExportedConfiguration, output: str) -> Iterator[str]:
    """Store the configuration in a project: `PROJECT` or `ENTITY/PROJECT`.

    `WANDB_MODE=offline` writes it to a folder of this machine, which `wandb sync` uploads. A run that is there already
    is continued, and gets the same figures again.
    """
    import wandb

    run = tracked_run(exported)
    entity, _, project = output.rpartition("/")
    try:
        stored = wandb.init(
            project=project,
            entity=entity or None,
            id=re.sub(r"[^\w-]", "-", run.id),
            name=run.name,
            config=dict(run.parameters),
            notes=run.tags.get("note"),
            tags=[value[:_LONGEST_TAG] for name, value in run.tags.items() if name in {"method", "dataset", "label"}],
            resume="allow",
            reinit="create_new",
        )
        stored.summary.update(dict(run.metrics))
        stored.config.update({f"kgqa.{name}": value for name, value in run.tags.items()}, allow_val_change=True)
        where = stored.dir
        stored.finish()
    except wandb.Error as error:
        raise ServiceError(f"output={output}: Weights & Biases says: {error}") from None
    yield f"{run.name} is a run of the project {output}, in {where}"
