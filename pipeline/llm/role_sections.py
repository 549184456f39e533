"""The section of a configuration that describes the model of one role, and its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def section_of(role: str | None, llm: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole `llm` section of a role in `llm.roles`; under None that of all other roles."""
    own = (llm.get("roles") or {}).get(role) or {}
    inherited = {} if "_target_" in own else llm  # another kind of model has other keys
    return {**inherited, **own, "roles": None}


def is_embedded(section: Mapping[str, Any]) -> bool:
    """Whether a section, perhaps of an older run, is that of `llm=embedded`, which runs on the processor."""
    return str(section.get("_target_", "")).endswith(".EmbeddedModel")
