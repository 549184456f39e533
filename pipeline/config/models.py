"""The models of a configuration: one for each role in `llm.roles`, and one for all other roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.config.defaults import runner_keys
from pipeline.config.keys import ModelKeys
from pipeline.llm.role_sections import section_of


def models(llm: Mapping[str, Any]) -> dict[str | None, dict[str, Any]]:
    """Return the section that builds the model of each role in `llm.roles`, and under None that of all other roles.

    The runner's own keys are left out: roles that differ only in these share a model.
    """
    own = ModelKeys.model_fields
    return {role: {key: keys[key] for key in keys if key not in own} for role, keys in llm_by_role(llm).items()}


def prompt_styles(llm: Mapping[str, Any]) -> dict[str | None, str]:
    """Return `full` or `inputs_only` for each of the roles of `models`."""
    return {role: runner_keys("llm", keys)["prompt_style"] for role, keys in llm_by_role(llm).items()}


def llm_by_role(llm: Mapping[str, Any]) -> dict[str | None, dict[str, Any]]:
    """Return the whole `llm` section of each role in `llm.roles`, and under None that of all other roles."""
    return {role: section_of(role, llm) for role in (None, *(llm.get("roles") or ()))}
