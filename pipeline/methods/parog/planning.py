"""`parog.plan`: the plan of a question (specification §5.5, §7.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pipeline.errors import OverLimitError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parog.plan import Plan, read_plan
from pipeline.methods.parsing import parse_leniently
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question

_TRAINED = Template(system="", user="{{question}}")
"""The prompt that the planner is trained on (§7.3): the question without instructions."""

_PROMPTED = load_template(__file__, "plan")


@dataclass(frozen=True)
class MakePlan(Prompt[Plan | None]):
    """The plan of a question; None when no reply could be read."""

    role: ClassVar[str] = "parog.plan"

    question: Question
    is_trained: bool = True
    """Whether the model was trained to plan: it is then shown the question alone."""
    max_subgoals: int = field(kw_only=True)

    @property
    def template(self) -> Template:
        return _TRAINED if self.is_trained else _PROMPTED

    def inputs(self) -> dict[str, str]:
        asked = {"question": as_question(self.question.text)}
        return asked if self.is_trained else {**asked, "max_subgoals": str(self.max_subgoals)}

    def parse(self, text: str) -> Plan:
        plan = parse_leniently(read_plan, text)
        if len(plan) > self.max_subgoals:
            raise OverLimitError(f"the plan has {len(plan)} sub-goals, and {self.max_subgoals} are the most")
        return plan

    def fallback(self, text: str) -> Plan | None:
        """Return None: the question is then its own only sub-goal."""
        return None
