"""The wording of the prompts of ArG: one template for all roles, since a role only continues the transcript (§4.8)."""

from __future__ import annotations

from pipeline.llm.prompt import Template
from pipeline.methods.templates import load_template

FINETUNED = Template(system="", user="{{question}}", assistant="{{text}}")
"""For a model trained on transcripts: it continues its own turn, which holds the transcript so far."""

PROMPTED = load_template(__file__, "prompted")
