"""Prints facts and earlier answers for the prompts of PARoG."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.json_replies import print_list
from pipeline.methods.parog.node_labels import SubgoalLabels
from pipeline.methods.parog.subgoal_result import SubgoalResult
from pipeline.methods.rendering import one_line, print_facts


def print_found(facts: Iterable[GroundedPath], labels: SubgoalLabels, left_out: int) -> str:
    """Return one line per fact, and how many more were found; `none` without facts."""
    lines = list(dict.fromkeys(print_facts([labels.fact(fact)]) for fact in facts)) or ["none"]
    return "\n".join([*lines, *([f"({left_out} less relevant facts are not shown)"] if left_out else [])])


def print_answers(results: Iterable[SubgoalResult], labels: SubgoalLabels, limit: int = 20) -> str:
    """Return one line per sub-goal with its first answers, each after a line break; `none` without sub-goals."""
    lines = (
        f"\n{result.subgoal.id}. {one_line(result.subgoal.goal)}: "
        f"{print_list((one_line(labels.answer(answer)) for answer in result.answers), limit)}"
        for result in results
    )
    return "".join(lines) or "none"
