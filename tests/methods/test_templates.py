"""The files with the texts of prompts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pipeline.methods import templates
from pipeline.methods.r3.reflect import CATEGORIES, Reflect
from pipeline.methods.srp.judge import HAVE_ANSWER, NO_ANSWER, RETAINED, Judge

PACKAGE = Path(templates.__file__).parents[1]
FILES = sorted(PACKAGE.rglob("prompts.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_every_text_is_used_by_one_module(file: Path) -> None:
    sources = [module.read_text("utf-8") for module in file.parent.glob("*.py")]
    loaded = [name for source in sources for name in re.findall(r'load_te\w+\(__file__, "(\w+)"\)', source)]
    assert sorted(loaded) == sorted(yaml.safe_load(file.read_text("utf-8")))


def test_a_template_without_a_system_text_has_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "prompts.yaml").write_text("plan:\n  user: '{{question}}'\n")
    template = templates.load_template(str(tmp_path / "plan.py"), "plan")
    assert (template.system, template.user) == ("", "{{question}}")


def test_the_texts_ask_for_what_the_parsers_read() -> None:
    assert all(word in Judge.template.system for word in (HAVE_ANSWER, NO_ANSWER, RETAINED))
    assert all(category in Reflect.template.system for category in CATEGORIES)
