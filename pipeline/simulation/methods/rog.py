"""Simulators of RoG's prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice, zip_longest
from random import Random

from pipeline.methods.grounded_path import Path
from pipeline.methods.rendering import names_of, one_line
from pipeline.methods.rog.plan import ListPaths, PlanPath, write_path
from pipeline.methods.rog.read import AnswerAlone, ReadPaths
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_paths import corrupted, gold_paths
from pipeline.simulation.methods.answering import UNKNOWN, right_or_wrong
from pipeline.simulation.registry import Simulator, simulates
from pipeline.simulation.similarity import ends_of_most_similar_path, rank_relations

_UNKNOWN_PATH: Path = ("unknown.relation",)


@simulates(PlanPath)
class PlanPathSimulator(Simulator[PlanPath]):
    """Plans gold paths, without having been trained."""

    def write_as_oracle(self, prompt: PlanPath, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the best gold path; with `error_rng`, a wrong one."""
        gold = _gold(gold_context)
        return write_path(next(_distractors(gold, error_rng)) if error_rng else [*gold, _UNKNOWN_PATH][0])

    def write_candidates_as_oracle(
        self, prompt: PlanPath, gold_context: GoldContext, error_rng: Random | None, rng: Random, count: int
    ) -> list[str]:
        """Write the gold paths, then wrong ones, then all of them again. With `error_rng`, the best path is missing."""
        gold = _gold(gold_context)
        wrong = [path for path in islice(_distractors(gold, rng), count) if path not in gold]
        distinct = dict.fromkeys([*(gold[1:] if error_rng else gold), *wrong, _UNKNOWN_PATH])
        return [write_path(path) for path in islice(cycle(distinct), count)]

    def write_by_similarity(self, prompt: PlanPath, encoder: LexicalEncoder) -> str:
        """Write the question as a relation: the policy knows no relations. `match=bind` finds the most similar one."""
        return write_path([one_line(prompt.question.text)])


def _gold(gold_context: GoldContext) -> list[Path]:
    """Return the gold paths of all topic entities: the best of each, then the second of each."""
    of_topics = (gold_paths(gold_context, topic.id) for topic in gold_context.question.topic_entities)
    return list(dict.fromkeys(path for each in zip_longest(*of_topics) for path in each if path is not None))


def _distractors(gold: Sequence[Path], rng: Random) -> Iterator[Path]:
    """Yield paths that are near to gold ones: too short, too long, or with another relation."""
    pool = {relation for path in gold for relation in path} | set(_UNKNOWN_PATH)
    while True:
        path = rng.choice(gold) if gold else _UNKNOWN_PATH
        wrong = [(*path, rng.choice(sorted(pool))), corrupted(path, pool, rng)]
        wrong += [path[:-1]] if len(path) > 1 else []
        yield rng.choice(wrong)


@simulates(ListPaths)
class ListPathsSimulator(Simulator[ListPaths]):
    """Lists gold paths that begin with an offered relation."""

    def write_as_oracle(self, prompt: ListPaths, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write these paths; with `error_rng`, wrong ones."""
        offered = {relation for relations in prompt.relations.values() for relation in relations}
        gold = [path for path in _gold(gold_context) if path[0] in offered]
        if error_rng:
            return _write_list(islice(_distractors(gold, error_rng), prompt.plans))
        return _write_list(gold[: prompt.plans] or [(relation,) for relation in sorted(offered)[:1]])

    def write_by_similarity(self, prompt: ListPaths, encoder: LexicalEncoder) -> str:
        """Write the offered relations that are most similar to the question as paths of one relation."""
        offered = sorted({relation for relations in prompt.relations.values() for relation in relations})
        ranking = rank_relations(offered, prompt.question.text, encoder)
        return _write_list((relation,) for relation in ranking[: prompt.plans])


def _write_list(paths: Iterable[Path]) -> str:
    return json.dumps(list(paths), ensure_ascii=False)


@simulates(ReadPaths)
class ReadPathsSimulator(Simulator[ReadPaths]):
    """Answers with nodes of the paths that the prompt shows."""

    def write_as_oracle(self, prompt: ReadPaths, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the gold answers among the paths. If there are none, or as an error, write another node."""
        shown = names_of((node for chain in prompt.chains for node in chain.nodes[1:]), prompt.names)
        return _write_answers(right_or_wrong(shown, gold_context, error_rng))

    def write_by_similarity(self, prompt: ReadPaths, encoder: LexicalEncoder) -> str:
        """Write the ends of the relation path that is most similar to the question."""
        ends = ends_of_most_similar_path(prompt.chains, prompt.names, prompt.question.text, encoder)
        return _write_answers(ends or [UNKNOWN])


def _write_answers(texts: Iterable[str]) -> str:
    """Write answers as the reader does. A list in JSON keeps names that begin like a bullet."""
    return json.dumps(list(texts), ensure_ascii=False)


@simulates(AnswerAlone)
class AnswerAloneSimulator(Simulator[AnswerAlone]):
    """Does not know the answer, so that a search that found nothing never counts as a success."""

    def write_as_oracle(self, prompt: AnswerAlone, gold_context: GoldContext, error_rng: Random | None) -> str:
        return UNKNOWN

    def write_by_similarity(self, prompt: AnswerAlone, encoder: LexicalEncoder) -> str:
        return UNKNOWN
