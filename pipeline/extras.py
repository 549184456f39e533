"""The optional dependencies of the package: the modules that each extra installs, and the error for a missing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from pipeline.errors import UserError

_MODULES: Mapping[str, Sequence[str]] = {
    "benchmark": ("openai", "psutil", "grpc_reflection"),
    "dense": ("sentence_transformers",),
    "gpu": ("vllm",),
    "hf": ("huggingface_hub",),
    "mlflow": ("mlflow",),
    "optuna": ("hydra_plugins.hydra_optuna_sweeper", "optuna"),
    "s3": ("s3fs",),
    "train": ("accelerate", "peft", "safetensors", "torch", "transformers"),
    "wandb": ("wandb",),
}
"""The modules without which nothing that needs the extra works."""
_INSTEAD = {"gpu": ", or 'kgqa-pipeline[cpu-server]' without a GPU"}


def require(extra: str, needed_by: str) -> None:
    """Raise UserError, which says how to install the extra, if one of its modules is missing. Imports nothing."""
    if missing := [module for module in _MODULES[extra] if find_spec(module) is None]:
        raise UserError(f"{needed_by} needs {', '.join(missing)}: {installation(extra)}")


def installation(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'kgqa-pipeline[{extra}]'{_INSTEAD.get(extra, '')}"
