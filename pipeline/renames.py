"""Translates the names of older versions, so that old commands, run folders and configuration files keep working."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

KEYS: Mapping[str, str] = {
    "engine.share": "engine.dedupe_calls",
    "engine.max_replacements": "engine.max_worker_restarts",
    "kg.coalesce_ms": "kg.batch_window_ms",
    "kg.memo_entries": "kg.cache_size",
    "kg.namespace": "kg.vocabulary.namespace",
    "kg.opaque_ids": "kg.vocabulary.opaque_ids",
    "llm.prefix_routing": "llm.question_affinity",
    "llm.prompts": "llm.prompt_style",
    "run.halving": "run.early_stopping",
    "material.test_split": "material.allow_test_split",
    "collect.joined": "collect.merge_continuations",
    "collect.right_only": "collect.correct_only",
    "demand": "workload",
}
"""Dotted keys, old → new."""

CHOICES: Mapping[str, Mapping[str, str]] = {
    "dataset": {"sample": "synthetic"},
    "llm.prompt_style": {"compact": "inputs_only"},
}
"""Values, old → new, by the new name of their key."""

COMMANDS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("simulate",): ("capacity",),
    ("references",): ("build-references",),
    ("llm", "make"): ("init-model",),
    ("train", "resident"): ("train", "bundled-model"),
}
"""The first words of a command, old → new."""

TARGETS: Mapping[str, str] = {
    "jobs.build_references.Plan": "pipeline.cli.build_references.Plan",
    "jobs.compare.Plan": "pipeline.cli.compare.Plan",
    "jobs.estimate.Plan": "pipeline.cli.estimate.Plan",
    "jobs.reproduce.Plan": "pipeline.cli.reproduce.Plan",
    "jobs.simulate.Plan": "pipeline.cli.capacity.Plan",
    "pipeline.datasets.sample.SampleWorld": "pipeline.simulation.world.SyntheticWorld",
    "pipeline.engine.ledger.Budget": "pipeline.engine.budget.Budget",
    "pipeline.engine.question_record.Budget": "pipeline.engine.budget.Budget",
    "pipeline.evaluation.scoring.ScoringConfig": "pipeline.evaluation.config.ScoringConfig",
    "pipeline.evaluation.settings.Evaluation": "pipeline.evaluation.config.ScoringConfig",
    "pipeline.kg.virtuoso.ServerSettings": "pipeline.kg.virtuoso.VirtuosoConfig",
    "pipeline.llm.replay.Replay": "pipeline.traces.replay.Replay",
    "pipeline.llm.oracle.Oracle": "pipeline.simulation.oracle.Oracle",
    "pipeline.llm.similarity.Similarity": "pipeline.simulation.similarity.Similarity",
    "pipeline.training.calls.Selection": "pipeline.training.call_collection.Selection",
    "pipeline.training.distillation.Selection": "pipeline.training.call_collection.Selection",
    "pipeline.training.sft.recipe.LoRA": "pipeline.training.sft.config.LoRA",
    "pipeline.training.sft.recipe.Recipe": "pipeline.training.sft.config.SFTConfig",
    "pipeline.training.sft.recipe.Workers": "pipeline.training.sft.config.Workers",
    "pipeline.training.solved.Material": "pipeline.training.labelled.TrainingSource",
    "pipeline.training.solved.SolvedQuestions": "pipeline.training.labelled.LabelledQuestions",
}
"""Values of `_target_`, old → new."""

DEFAULT_NAMES: Mapping[str, tuple[str, str]] = {"pipeline.datasets.sample.SampleWorld": ("sample", "synthetic")}
"""The default `name` of a component, old → new, by its old `_target_`."""

_OVERRIDE = re.compile(r"(?P<sign>[+~]{0,2})(?P<key>[\w./@-]+)(?P<rest>=.*)?", re.DOTALL)


def current_override(word: str) -> tuple[str, str | None]:
    """Translate one override of a command line.

    Returns the override with today's names, and a sentence about the change; None if nothing was renamed.
    """
    match = _OVERRIDE.fullmatch(word)
    if match is None:
        return word, None
    sign, key, rest = match["sign"], match["key"], match["rest"] or ""
    new_key = KEYS.get(key, key)
    values = [_current_value(new_key, value) for value in rest.removeprefix("=").split(",")]
    new_rest = f"={','.join(values)}" if rest else ""
    if (new_key, new_rest) == (key, rest):
        return word, None
    if new_key != key:
        return f"{sign}{new_key}{new_rest}", f"{key} is now called {new_key}"
    return f"{sign}{key}{new_rest}", f"{key}{rest} is now written {key}{new_rest}"


def current_command(words: Iterable[str]) -> tuple[list[str], str | None]:
    """Translate the first words of a command line, as `current_override` does for one override."""
    given = list(words)
    for old, new in COMMANDS.items():
        if tuple(given[: len(old)]) == old:
            sentence = f"`kgqa {' '.join(old)}` is now called `kgqa {' '.join(new)}`"
            return [*new, *given[len(old) :]], sentence
    return given, None


def current_target(target: str) -> str:
    """Return the dotted path under which a class can be imported today."""
    return TARGETS.get(target, target)


def current_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resolved configuration with today's keys, values and targets."""
    renamed = _current_section(config, "")
    if "choices" in renamed:
        renamed["choices"] = {group: _current_value(group, choice) for group, choice in renamed["choices"].items()}
    llm = renamed.get("llm")
    if isinstance(llm, dict) and isinstance(llm.get("roles"), dict):
        llm["roles"] = {
            role: _current_section(keys, "llm.") if isinstance(keys, Mapping) else keys
            for role, keys in llm["roles"].items()
        }
    return renamed


def current_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a `run.yaml` with today's names."""
    configurations = [
        {
            **point,
            "overrides": [current_override(word)[0] for word in point.get("overrides", ())],
            "config": current_config(point["config"]),
        }
        for point in run["points"]
    ]
    return {**run, "points": configurations}


def _current_section(section: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in section.items():
        path = KEYS.get(f"{prefix}{key}", f"{prefix}{key}")
        name = path.removeprefix(prefix)
        if key == "_target_":
            renamed[name] = current_target(str(value))
            continue
        current = _current_section(value, f"{path}.") if isinstance(value, Mapping) else _current_value(path, value)
        part, dot, last = name.rpartition(".")
        if dot and name != key:  # the key has moved into a section below this one
            renamed[part] = {last: current, **renamed.get(part, {})}
        else:
            renamed[name] = {**renamed.get(name, {}), **current} if isinstance(current, Mapping) else current
    old, new = DEFAULT_NAMES.get(str(section.get("_target_")), (None, None))
    if old is not None and section.get("name") == old:
        renamed["name"] = new
    return renamed


def _current_value(key: str, value: Any) -> Any:
    return CHOICES.get(key, {}).get(value, value) if isinstance(value, str) else value
