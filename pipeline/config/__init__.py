"""Configuration: composed by Hydra, checked with one clear sentence per mistake, and built into components.

A resolved configuration is a plain nested dictionary. Each section with a `_target_` builds one component; its other
keys are the component's arguments. `run.yaml` holds the resolved configuration, so a saved run is a command.
"""

from pipeline.config.composition import HYDRA_ERRORS as HYDRA_ERRORS
from pipeline.config.composition import complete as complete
from pipeline.config.composition import compose as compose
from pipeline.config.composition import conf_dir as conf_dir
from pipeline.config.composition import describe as describe
from pipeline.config.composition import key_of as key_of
from pipeline.config.composition import keys_of as keys_of
from pipeline.config.composition import required as required
from pipeline.config.composition import running_hydra as running_hydra
from pipeline.config.composition import show as show
from pipeline.config.composition import user_conf_dirs as user_conf_dirs
from pipeline.config.construction import build as build
from pipeline.config.construction import build_own as build_own
from pipeline.config.construction import build_plain as build_plain
from pipeline.config.construction import build_whole as build_whole
from pipeline.config.construction import check as check
from pipeline.config.construction import default as default
from pipeline.config.construction import import_target as import_target
from pipeline.config.identity import canonical as canonical
from pipeline.config.identity import deciding_keys as deciding_keys
from pipeline.config.identity import drift as drift
from pipeline.config.identity import has_one_value as has_one_value
from pipeline.config.identity import identity_hash as identity_hash
from pipeline.config.identity import key_without_name as key_without_name
from pipeline.config.identity import written as written
from pipeline.config.keys import QUESTION_KEYS as QUESTION_KEYS
from pipeline.config.keys import SECTIONS as SECTIONS
from pipeline.config.keys import flatten as flatten
from pipeline.config.keys import is_strict as is_strict
from pipeline.config.keys import with_sections as with_sections
from pipeline.config.models import models as models
from pipeline.config.models import prompt_styles as prompt_styles
from pipeline.config.overrides import literal_value as literal_value
from pipeline.config.overrides import not_an_override as not_an_override
from pipeline.config.overrides import override as override
from pipeline.config.overrides import readable as readable
from pipeline.config.overrides import shell_override as shell_override
from pipeline.config.overrides import wrong_flag as wrong_flag
from pipeline.config.retrievers import departures as departures
from pipeline.config.retrievers import retriever as retriever
from pipeline.config.trust import refuse_untrusted as refuse_untrusted
from pipeline.config.trust import refuse_untrusted_words as refuse_untrusted_words
