"""Checks the questions: they are readable, their entities are in the graph, and one is answered from end to end."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from pipeline import config
from pipeline.console import Console
from pipeline.datasets.interface import Dataset
from pipeline.datasets.selection import Selection
from pipeline.engine.configuration import Configuration, run_dir
from pipeline.engine.doctor.finding import Finding, ok, problem, warning
from pipeline.engine.missing_nodes import MissingNodes, count_missing_nodes
from pipeline.engine.run import execute
from pipeline.evaluation.question_groups import MANY_REPEATED, count_repeated, repeated_text
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.fit_to_graph import fit_to_graph
from pipeline.kg.interface import KnowledgeGraph
from pipeline.kg.sparql import SparqlGraph
from pipeline.methods.interface import uses_graph
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.types import Example, Rejected

_ROWS = 200
"""The number of questions that are read."""
_NAMED = 20
"""The number of questions whose topic entities are checked for names."""
_INCOMPLETE = "Load the whole graph, or exclude the questions that it cannot answer."
_NO_TOPICS = "Give the topic entities of each question, or leave the questions without them out."
_NO_NAME = "Load the names of these nodes, choose their relation by kg.vocabulary.names, or leave the questions out."
_RENAME = "Do what the brackets say, unless no question needs these relations."
_SLOW = "See the latencies above: one of the servers is slow or overloaded."
SEE_ERROR = "See the error in full: kgqa evaluate with these keys and run.limit=1, then kgqa show."
"""What to do about a failed dry run if nothing else has failed."""
_INSTRUCTION_TUNED = "Serve an instruction-tuned model with its own chat template."
_MORE_TOKENS = (
    "They were cut off: allow replies more tokens (method.max_tokens, llm.max_new_tokens), or turn the model's "
    "reasoning off with llm.extra_body."
)
_DRY_RUN_S, _GRACE_S = 60, 30


async def dataset(configuration: Configuration) -> list[Finding]:
    """Check that the first questions can be read."""
    examples, rejected = await asyncio.to_thread(_first, configuration)
    source: Dataset = config.build("dataset", configuration.config)
    if not examples:
        return problem(
            "dataset",
            f"no question of {source.name} is selected",
            "See the keys that select questions, such as dataset.filter and dataset.types.",
        )
    if rejected:
        share = f"{len(rejected)} of the first {counted(len(examples) + len(rejected), 'row')}"
        found = f"{share} cannot be read, such as {rejected[0]}"
        if config.is_strict(configuration.config):
            return problem("dataset", found, "Fix these rows, or set dataset.strict=false: a run stops at the first.")
        return warning("dataset", found, "Fix these rows, or ignore them: a run lists them in its rejected.jsonl.")
    read = ok("dataset", f"{source.name} {source.split}: the first {counted(len(examples), 'question')} can be read")
    return [*read, *_repeated(examples)]


def _repeated(examples: Sequence[Example]) -> list[Finding]:
    """Warn of questions that repeat others."""
    questions = [example.question for example in examples]
    rows = {
        "dataset": [each.dataset for each in questions],
        "question_id": [each.id for each in questions],
        "question": [each.text for each in questions],
        "topic_entities": [[entity.id for entity in each.topic_entities] for each in questions],
        "meta": [orjson.dumps(dict(each.meta)).decode() for each in questions],
    }
    repeated = count_repeated(pl.DataFrame(rows))
    if repeated <= MANY_REPEATED * len(questions):
        return []
    said = repeated_text(repeated, f"the first {counted(len(questions), 'question')}")
    return warning("dataset", said, "Leave the copies out, or give equal questions one source.")


def _first(configuration: Configuration) -> tuple[list[Example], list[Rejected]]:
    source: Dataset = config.build("dataset", configuration.config)
    rejected: list[Rejected] = []
    selection = Selection.of_run(configuration.config["run"])
    selected = replace(selection, limit=selection.limit or _ROWS).select(source.examples(rejected.append))
    return list(selected), rejected


async def topic_entities(configuration: Configuration) -> list[Finding]:
    """Check that the topic entities and the gold answers of the first questions are in the graph."""
    examples, _ = await asyncio.to_thread(_first, configuration)
    method = config.build("method", configuration.config)
    if not uses_graph(method):
        return ok("topic entities", "the method does not use the graph")
    graph: KnowledgeGraph = config.build("kg", configuration.config)
    async with graph:
        found = replace(await count_missing_nodes(graph, iter(examples)), complete=False)
        names = await _names(graph, examples)
    golds = warning("gold answers", found.about_golds, _INCOMPLETE) if found.no_gold else []
    unnamed = warning("gold answers", found.about_unnamed, _NO_NAME) if found.unnamed else []
    hidden = [line for said in found.about_hidden for line in warning("relations", said, _RENAME)]
    return [*_topics(found), *golds, *unnamed, *hidden, *names]


async def _names(graph: KnowledgeGraph, examples: Sequence[Example]) -> list[Finding]:
    """Check that topic entities whose ids are no names have names in the languages of the vocabulary."""
    if not isinstance(graph, SparqlGraph | EmbeddedGraph):
        return []
    fitted = await asyncio.gather(*(fit_to_graph(example, graph) for example in examples[:_NAMED]))
    topics = dict.fromkeys(entity.id for example in fitted for entity in example.question.topic_entities)
    ids = [id for id, found in (await graph.relations(list(topics))).items() if found and not graph.terms.own_name(id)]
    named = await graph.named_in_languages(ids)
    if not ids or named:
        return []
    vocabulary = graph.vocabulary
    said = (await graph.labels(ids)).values()
    instead = "names in other languages" if any(said) else "no names"
    return warning(
        "names",
        f"none of {counted(len(ids), 'topic entity')} has a name in {', '.join(vocabulary.languages)} by "
        f"{', '.join((*vocabulary.names, *vocabulary.aliases))}: prompts will show {instead}",
        "Set kg.vocabulary.languages to the languages of the graph, or choose its vocabulary, such as "
        "kg/vocabulary=wikidata.",
    )


def _topics(found: MissingNodes) -> list[Finding]:
    if not found.without_topics:
        return _missing_topics(found)
    missing = _missing_topics(found) if found.no_topic else []
    return [*warning("topic entities", found.about_no_topics, _NO_TOPICS), *missing]


def _missing_topics(found: MissingNodes) -> list[Finding]:
    if not found.topics:
        return ok("topic entities", "the questions name none")
    if not found.no_topic:
        return ok("topic entities", f"those of {found.among} are in the graph")
    if found.topic_node is not None:
        given = f"{{'id': '{found.topic_node}', 'name': '{found.topic}'}}"
        return problem("topic entities", found.about_topics, f"Give the id in topic_entities, as in {given}.")
    if found.no_topic == found.topics:
        return problem(
            "topic entities",
            found.about_topics,
            "Name the graph of these questions (kg=, kg.endpoints, kg.store), and how its ids are written "
            "(kg/vocabulary, kg.vocabulary.namespace).",
        )
    return warning("topic entities", found.about_topics, _INCOMPLETE)


async def dry_run(configuration: Configuration) -> list[Finding]:
    """Answer one question from end to end, in a temporary run folder on the disk of `run.dir` if that is local."""
    folder = run_dir([configuration])
    above = next(parent for parent in folder.parents if parent.exists()) if isinstance(folder, Path) else None
    with tempfile.TemporaryDirectory(dir=above, prefix=".kgqa-doctor-") as scratch:
        return await asyncio.to_thread(_ask, configuration, Path(scratch) / "run")


def _ask(configuration: Configuration, folder: Path) -> list[Finding]:
    resolved = _of_one_question(configuration.config, folder)
    execute([Configuration(configuration.overrides, resolved)], Console(quiet=True))
    columns = ["status", "error", "answers", "llm_calls", "parse_failures", "replies_cut", "wall_s"]
    (row,) = pl.concat(read_shards(RunFolder(folder), columns)).to_dicts()
    if row["status"] != "ok" and row["wall_s"] >= _DRY_RUN_S:
        found = f"its question was not answered within {_DRY_RUN_S} s"
        if row["status"] != "failed":
            return warning("dry run", found, _SLOW)
        own = "" if row["error"].startswith("TimeoutError") else f": {row['error']}"  # which names limits of a run
        return problem("dry run", f"{found}{own}", _SLOW)
    if row["status"] == "failed":
        return problem("dry run", f"its question failed: {row['error']}", SEE_ERROR)
    if row["parse_failures"] * 2 >= max(1, row["llm_calls"]):
        return warning(
            "dry run",
            f"{row['parse_failures']} of {row['llm_calls']} replies could not be parsed",
            _MORE_TOKENS if row["replies_cut"] * 2 >= row["parse_failures"] else _INSTRUCTION_TUNED,
        )
    answer = f"'{row['answers'][0]}'" if row["answers"] else "nothing"
    return ok(
        "dry run", f"one question: {counted(row['llm_calls'], 'call')}, {row['wall_s']:.1f} s, answered with {answer}"
    )


def _of_one_question(resolved: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    run = {**resolved["run"], "dir": str(folder), "limit": 1, "early_stopping": None}
    engine = {key: 1 if key in ("concurrency", "workers") else value for key, value in resolved["engine"].items()}
    budget = {**resolved["budget"], "max_wall_s": _DRY_RUN_S, "grace_s": _GRACE_S}
    return {**resolved, "run": run, "engine": engine, "budget": budget}
