"""The texts of RoG's fine-tuned prompts: the project's own, or those of a user's file (specification §16.2)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import yaml

from pipeline.errors import UserError
from pipeline.llm.prompt import Template
from pipeline.methods.templates import load_template
from pipeline.text import load_yaml

_INPUTS = {"plan": {"question"}, "read": {"paths", "question", "explain"}, "alone": {"question", "explain"}}
"""The inputs that each text may have a place for."""


@dataclass(frozen=True)
class Wording:
    """A text for each prompt that a model may have been fine-tuned on."""

    plan: Template
    read: Template
    alone: Template


OWN = Wording(
    plan=load_template(__file__, "plan"),
    read=load_template(__file__, "read"),
    alone=load_template(__file__, "alone"),
)


@cache
def read_wording(file: str | None) -> Wording:
    """Read the texts of a YAML file with the entries `plan`, `read` and `alone`, each with `user` and maybe `system`.

    None gives the project's own. Raises UserError if there is no such file, or it has another form.
    """
    if file is None:
        return OWN
    try:
        entries = load_yaml(Path(file).expanduser().read_text(encoding="utf-8"))
        templates = {each.name: Template(**entries[each.name]) for each in fields(Wording)}
        for name, template in templates.items():
            template.render(dict.fromkeys(_INPUTS[name], ""))
    except OSError as error:
        raise UserError(f"method.templates={file} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, AttributeError, KeyError) as error:
        listed = "; ".join(f"{name} with places for {', '.join(sorted(inputs))}" for name, inputs in _INPUTS.items())
        raise UserError(
            f"method.templates={file} must be a YAML file with the entries {listed}, each with a text `user` and "
            f"maybe `system` ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no text'})"
        ) from None
    return Wording(**templates)
