"""Configuration: composed by Hydra, checked with one clear sentence per mistake, and built into components.

A resolved configuration is a plain nested dictionary. Each section with a `_target_` builds one component; its other
keys are the component's arguments. `run.yaml` holds the resolved configuration, so a saved run is a command.
"""

from pipeline.config.composition import (
    HYDRA_ERRORS,
    complete,
    compose,
    conf_dir,
    describe,
    key_of,
    required,
    running_hydra,
    show,
    user_conf_dirs,
)
from pipeline.config.construction import build, build_plain, build_whole, check, default, import_target
from pipeline.config.identity import canonical, deciding_keys, drift, identity_hash, key_without_name
from pipeline.config.keys import SECTIONS, flatten
from pipeline.config.models import models, prompt_styles
from pipeline.config.retrievers import departures, retriever
from pipeline.config.trust import refuse_untrusted, refuse_untrusted_words

__all__ = [
    "HYDRA_ERRORS",
    "SECTIONS",
    "build",
    "build_plain",
    "build_whole",
    "canonical",
    "check",
    "complete",
    "compose",
    "conf_dir",
    "deciding_keys",
    "default",
    "departures",
    "describe",
    "drift",
    "flatten",
    "identity_hash",
    "import_target",
    "key_of",
    "key_without_name",
    "models",
    "prompt_styles",
    "refuse_untrusted",
    "refuse_untrusted_words",
    "required",
    "retriever",
    "running_hydra",
    "show",
    "user_conf_dirs",
]
