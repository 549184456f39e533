"""Reads the texts of prompts from the `prompts.yaml` beside the modules that fill in and parse them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pipeline.llm.prompt import Template
from pipeline.text import load_yaml


def load_template(module: str, name: str) -> Template:
    """Return a template of the `prompts.yaml` beside a module, given the module's `__file__`."""
    return Template(**load_texts(module, name))


def load_texts(module: str, name: str) -> dict[str, Any]:
    """Return an entry of that file as it is, for a template that is composed of parts."""
    texts: dict[str, Any] = _read(Path(module).with_name("prompts.yaml"))[name]
    return texts


@cache
def _read(file: Path) -> Any:
    return load_yaml(file.read_text(encoding="utf-8"))
