"""Simulators of SRP's prompts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.grounded_path import Path
from pipeline.methods.parsing import split_path
from pipeline.methods.rendering import one_line, print_path, quoted
from pipeline.methods.srp.judge import HAVE_ANSWER, NO_ANSWER, Judge, print_retained
from pipeline.methods.srp.path_edit import NO_PATH, Edit
from pipeline.methods.srp.path_generation import PathGeneration
from pipeline.methods.srp.relation_check import RelationCheck
from pipeline.retrieval.interface import Reference
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_paths import corrupted, gold_paths, gold_prefix_length, hops_to_answer
from pipeline.simulation.registry import Simulator, simulates
from pipeline.simulation.similarity import most_similar_path, rank_relations


@simulates(RelationCheck)
class RelationCheckSimulator(Simulator[RelationCheck]):
    """Picks the first relations of gold paths."""

    seed_excluded_inputs: ClassVar[frozenset[str]] = frozenset({"references"})

    def write_as_oracle(self, prompt: RelationCheck, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the first relations of gold paths. With `error_rng`: those of the references, then wrong ones."""
        good = {path[0] for path in gold_paths(gold_context, prompt.entity.id)}
        if error_rng:
            imitated = [path[0] for path in _reference_paths(prompt.references) if path[0] in prompt.relations]
            wrong = [relation for relation in prompt.relations if relation not in good]
            error_rng.shuffle(wrong)
            return _write_picked(prompt, [*imitated, *wrong, *prompt.relations])
        first = [relation for relation in prompt.relations if relation in good]
        return _write_picked(prompt, [*first, *prompt.relations])

    def write_by_similarity(self, prompt: RelationCheck, encoder: LexicalEncoder) -> str:
        return _write_picked(prompt, rank_relations(prompt.relations, prompt.question.text, encoder))


def _write_picked(prompt: RelationCheck, ranking: Iterable[str]) -> str:
    picked = list(dict.fromkeys(ranking))[: prompt.top_k]
    weights = range(len(picked), 0, -1)
    pairs = zip(picked, weights, strict=True)
    return "\n".join(f"({quoted(relation)}, {weight / sum(weights):.3f}): chosen" for relation, weight in pairs)


@simulates(PathGeneration)
class PathGenerationSimulator(Simulator[PathGeneration]):
    """Plans gold paths."""

    seed_excluded_inputs: ClassVar[frozenset[str]] = frozenset({"references"})

    def write_as_oracle(self, prompt: PathGeneration, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the gold paths that begin with an offered relation. With `error_rng`: the best one, corrupted."""
        gold = {entity.id: gold_paths(gold_context, entity.id) for entity in prompt.question.topic_entities}
        pool = {relation for paths in gold.values() for path in paths for relation in path}
        pool.update(*prompt.offered_relations)
        plan: dict[str, list[Path]] = {}
        for entity, offered in zip(prompt.question.topic_entities, prompt.offered_relations, strict=True):
            paths = gold[entity.id]
            if prompt.relations is not None:
                paths = [path for path in paths if path[0] in offered] or [(relation,) for relation in offered[:1]]
            plan[entity.name] = [corrupted(path, pool, error_rng) for path in paths[:1]] if error_rng else paths
        return _write_plan(plan)

    def write_by_similarity(self, prompt: PathGeneration, encoder: LexicalEncoder) -> str:
        """Write the most similar offered relation of each entity as a path of one hop, for the editor to extend."""
        plan = {}
        for entity, offered in zip(prompt.question.topic_entities, prompt.offered_relations, strict=True):
            best = rank_relations(offered, prompt.question.text, encoder)[:1]
            plan[entity.name] = [(relation,) for relation in best]
        return _write_plan(plan)


def _write_plan(plan: Mapping[str, Sequence[Path]]) -> str:
    paths = {one_line(name): [print_path(name, path) for path in paths] for name, paths in plan.items()}
    return f"I follow the facts from each entity to the answer.\nPath: {json.dumps(paths, ensure_ascii=False)}"


@simulates(Judge)
class JudgeSimulator(Simulator[Judge]):
    """Recognises gold answers and gold paths in the sequences."""

    seed_excluded_inputs: ClassVar[frozenset[str]] = frozenset({"references"})

    def write_as_oracle(self, prompt: Judge, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write HAVE and the parts that lead to gold answers, else NO and the parts on gold paths.

        With `error_rng`, write the opposite verdict.
        """
        answering = [hops_to_answer(sequence, prompt.names, gold_context) for sequence in prompt.sequences]
        have = any(answering)
        if error_rng and have:
            return _write_verdict(prompt, have=False, lengths=[0] * len(answering))
        if error_rng:
            chosen = error_rng.choice(prompt.sequences)
            lengths = [sequence.length if sequence is chosen else 0 for sequence in prompt.sequences]
            return _write_verdict(prompt, have=True, lengths=lengths)
        if have:
            return _write_verdict(prompt, have=True, lengths=answering)
        on_gold_paths = [gold_prefix_length(sequence, gold_context) for sequence in prompt.sequences]
        return _write_verdict(prompt, have=False, lengths=on_gold_paths)

    def write_by_similarity(self, prompt: Judge, encoder: LexicalEncoder) -> str:
        """Write HAVE and the sequences of the most similar path: similarity cannot detect that an answer is missing."""
        best = most_similar_path([sequence.path for sequence in prompt.sequences], prompt.question.text, encoder)
        lengths = [sequence.length if sequence.path == best else 0 for sequence in prompt.sequences]
        return _write_verdict(prompt, have=True, lengths=lengths)


def _write_verdict(prompt: Judge, *, have: bool, lengths: Sequence[int]) -> str:
    """Write a verdict that retains the first `lengths[i]` facts of sequence i."""
    thought = "These sequences lead to what is asked for." if have else "None of them reaches what is asked for."
    return f"{thought} {HAVE_ANSWER if have else NO_ANSWER}\n{print_retained(lengths, prompt.sequences)}"


@simulates(Edit)
class EditSimulator(Simulator[Edit]):
    """Edits towards a gold path. Where no path is left, it proposes none."""

    seed_excluded_inputs: ClassVar[frozenset[str]] = frozenset({"references"})

    def write_as_oracle(self, prompt: Edit, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write a gold path that was not tried. With `error_rng`, a path of a reference, else a wrong offered one."""
        gold = gold_paths(gold_context, prompt.entity.id)
        if error_rng:
            imitated = _acceptable(prompt, _reference_paths(prompt.references))[:1]
            wrong = [path for path in _offered_paths(prompt) if path not in gold]
            return _write_edit(prompt, error_rng.choice(imitated or wrong or [None]))
        return _write_edit(prompt, next(iter(_acceptable(prompt, gold)), None))

    def write_by_similarity(self, prompt: Edit, encoder: LexicalEncoder) -> str:
        """Write the offered path whose last relation is most similar to the question."""
        offered = _offered_paths(prompt)
        best = rank_relations([path[-1] for path in offered], prompt.question.text, encoder)[:1]
        return _write_edit(prompt, next((path for path in offered if path[-1] in best), None))


def _offered_paths(prompt: Edit) -> list[Path]:
    """Return the acceptable paths that end in an offered relation."""
    extended = ((*prefix, relation) for prefix, relations in prompt.candidates for relation in relations)
    return _acceptable(prompt, extended)


def _acceptable(prompt: Edit, paths: Iterable[Path]) -> list[Path]:
    """Return the distinct paths that the method accepts: new ones, of relations that it knows.

    The limit of their length does not count: no prompt shows it, so configurations with other limits share the reply.
    """
    unlimited = replace(prompt, max_path_len=sys.maxsize)
    return [path for path in dict.fromkeys(paths) if _is_read(unlimited, path)]


def _is_read(prompt: Edit, path: Path) -> bool:
    try:
        return prompt.parse(_write_edit(prompt, path)) == path
    except ParseError:
        return False


def _write_edit(prompt: Edit, path: Path | None) -> str:
    thought = "No other path is left." if path is None else "Another path may lead to the answer."
    final_path = NO_PATH if path is None else print_path(prompt.entity.name, path)
    return f"{one_line(prompt.question.text)}\nThought: {thought}\nFinal Path: {final_path}"


def _reference_paths(references: Sequence[Reference]) -> list[Path]:
    """Return the relation paths of the references, nearest first."""
    paths = (tuple(split_path(text)[1:]) for reference in references for text in reference.paths.values())
    return [path for path in paths if path]
