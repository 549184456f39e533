"""`parog.plan`: the plan of a question (specification §5.5, §7.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parog.plan import Plan, read_plan, whole_question
from pipeline.methods.parsing import parse_leniently
from pipeline.methods.rendering import as_question
from pipeline.types import Question

_TRAINED = Template(system="", user="{{question}}")
"""The prompt that the planner is trained on (§7.3): the question without instructions."""

_PROMPTED = Template(
    system="""\
You break a question down into sub-goals that can be looked up one at a time in a knowledge graph.

Reply with a JSON list. Each sub-goal is {"id": 1, "goal": "…", "op": "…", "uses": […]}: a number, one
sentence that says what to find, what kind of step it is, and the numbers of the sub-goals whose
answers it needs. The kinds of steps are
- lookup: find something from an entity that the question names;
- composition: go on from the answers of another sub-goal;
- filter: keep those answers of another sub-goal that a fact speaks for;
- conjunction: keep what several sub-goals have all found;
- comparative: keep those whose value is above or below a bound; add "keep": "above" or "below" and
  "bound": the value; a sub-goal before it has found the values;
- superlative: keep the one with the greatest or least value; add "keep": "highest" or "lowest"; a
  sub-goal before it has found the values;
- count: say how many answers another sub-goal has.
All sub-goals are of about the same size: one step each, six at most. The last one answers the question.

Examples

Question: what do people speak in the country that Tavin Orsa comes from?
[{"id": 1, "goal": "Find the country that Tavin Orsa comes from", "op": "lookup", "uses": []},
 {"id": 2, "goal": "Find the languages spoken in the country found in 1", "op": "composition", "uses": [1]}]

Question: which novels by Ysolde Crane are set in Port Hallow?
[{"id": 1, "goal": "Find the novels written by Ysolde Crane", "op": "lookup", "uses": []},
 {"id": 2, "goal": "Find the works set in Port Hallow", "op": "lookup", "uses": []},
 {"id": 3, "goal": "Keep the novels found in both 1 and 2", "op": "conjunction", "uses": [1, 2]}]

Question: which bridge over the Ondrel was opened first?
[{"id": 1, "goal": "Find the bridges over the Ondrel", "op": "lookup", "uses": []},
 {"id": 2, "goal": "Find when each bridge of 1 was opened", "op": "composition", "uses": [1]},
 {"id": 3, "goal": "Keep the bridge of 1 with the earliest date of 2", "op": "superlative", "uses": [1, 2],
  "keep": "lowest"}]

Question: how many of the films with Lirae Dobson run for more than two hours?
[{"id": 1, "goal": "Find the films in which Lirae Dobson plays", "op": "lookup", "uses": []},
 {"id": 2, "goal": "Find the running time in minutes of each film of 1", "op": "composition", "uses": [1]},
 {"id": 3, "goal": "Keep the films of 1 whose running time in 2 is above 120", "op": "comparative", "uses": [1, 2],
  "keep": "above", "bound": "120"},
 {"id": 4, "goal": "Count the films of 3", "op": "count", "uses": [3]}]""",
    user="Question: {{question}}",
)


@dataclass(frozen=True)
class MakePlan(Prompt[Plan]):
    """The plan of a question."""

    role: ClassVar[str] = "parog.plan"

    question: Question
    is_trained: bool = True
    """Whether the model was trained to plan: it is then shown the question alone."""
    max_subgoals: int = 6

    @property
    def template(self) -> Template:
        return _TRAINED if self.is_trained else _PROMPTED

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text)}

    def parse(self, text: str) -> Plan:
        plan = parse_leniently(read_plan, text)
        if len(plan) > self.max_subgoals:
            raise ParseError(f"the plan has {len(plan)} sub-goals, and {self.max_subgoals} are the most")
        return plan

    def fallback(self, text: str) -> Plan:
        """Return the plan with the question as its only sub-goal."""
        return whole_question(self.question)
