"""Writes a configuration in the schema of Every Eval Ever (0.3.0), with the graph and the rule that compares answers.

The layout of the folder is that of its database: `data/DATASET/DEVELOPER/MODEL/UUID.json`, and beside it the questions
in `UUID_samples.jsonl`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import orjson

from pipeline import config
from pipeline.export.exported_run import VERSION, ExportedConfiguration, ExportedQuestion, local_folder
from pipeline.report.labels import SCORES
from pipeline.traces.storage import make_folder, write_whole, writing

_VERSION = "0.3.0"
_LIBRARY = "kgqa-pipeline"
_SCORE = "hits_at_1"
"""The score of the single questions."""
_MATCH_RULE = (
    "an answer is right if it equals a gold answer or one of its aliases after normalisation (specification, 9.2)"
)
_MATCH_RULES = {
    "compat_tog_em": "an answer is right if it contains a gold answer, or the reverse",
    "compat_readi_hit": "the reply is right if it contains a gold answer",
    "rouge_l": "the longest common subsequence of words with the gold answer",
}
_OWN_RULES = ("compat_", "grbench_", "corrected_", "damaged_", "recovered_", "relation_", "supported_")
"""What the names of scores begin with that count by another rule: their definition says by which."""
_BINARY = frozenset({"hits_at_1", "hits_any", "exact_match"})


def write(exported: ExportedConfiguration, output: str) -> Iterator[str]:
    """Write the scores and the questions of a configuration."""
    root = local_folder(output, "every-eval-ever")
    model = _model_id(exported)
    parts = ["data", _safe(exported.summary.dataset), *map(_safe, model.split("/", 1))]
    folder = root.joinpath(*parts)
    for depth in range(1, len(parts) + 1):
        if not root.joinpath(*parts[:depth]).is_dir():
            make_folder(root.joinpath(*parts[:depth]))
    name = str(_uuid(exported))
    samples, identity = (
        folder / f"{name}_samples.jsonl",
        f"{exported.summary.dataset}.{exported.name}/{model}/{_moment(exported)}",
    )
    digest, count = hashlib.sha256(), 0
    with writing(samples) as opened:
        for question in exported.questions():
            if _SCORE in question.trace.scores:
                line = orjson.dumps(_sample(question, identity, model), option=orjson.OPT_APPEND_NEWLINE)
                digest.update(line)
                opened.write(line)
                count += 1
    document = _document(exported, identity, model)
    document["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": "/".join([*parts, samples.name]),
        "hash_algorithm": "sha256",
        "checksum": digest.hexdigest(),
        "total_rows": count,
    }
    write_whole(folder / f"{name}.json", orjson.dumps(document, option=orjson.OPT_INDENT_2))
    yield str(folder / f"{name}.json")
    yield str(samples)


def _document(exported: ExportedConfiguration, identity: str, model: str) -> dict[str, Any]:
    run = {"run": exported.run_id, "configuration": exported.number, "overrides": " ".join(exported.summary.overrides)}
    return {
        "schema_version": _VERSION,
        "evaluation_id": identity,
        "evaluation_timestamp": exported.started.isoformat(),
        "retrieved_timestamp": _moment(exported),
        "source_metadata": {
            "source_name": exported.name,
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "third_party",
            "additional_details": _texts(run),
        },
        "eval_library": {
            "name": _LIBRARY,
            "version": str(exported.metadata.get("versions", {}).get(_LIBRARY) or VERSION),
        },
        "model_info": _model_info(exported, model),
        "evaluation_results": [_result(exported, name) for name in exported.summary.scores],
    }


def _model_info(exported: ExportedConfiguration, model: str) -> dict[str, Any]:
    name = exported.summary.simulated
    roles = exported.served.get("roles") or {}
    return {
        "name": str(exported.served["model"]),
        "id": model,
        "developer": model.split("/", 1)[0],
        "additional_details": {
            "deployment_type": "self_deployed" if name else "unknown",
            "model_availability": "unknown",
            "is_language_model": "false" if name else "true",
            **_texts({f"role {role}": served for role, served in roles.items()}),
        },
    }


def _result(exported: ExportedConfiguration, name: str) -> dict[str, Any]:
    score, summary = exported.summary.scores[name], exported.summary
    heading, definition = SCORES.get(name, (name, name))
    binary = name in _BINARY
    return {
        "evaluation_result_id": name,
        "evaluation_name": summary.dataset,
        "source_data": {
            "dataset_name": summary.dataset,
            "source_type": "other",
            "additional_details": _texts(
                {key: value for key, value in exported.parameters.items() if key.startswith("dataset")}
            ),
        },
        "metric_config": {
            "evaluation_description": definition,
            "metric_id": f"kgqa.{name}",
            "metric_name": heading,
            "metric_unit": "proportion",
            "lower_is_better": False,
            "score_type": "binary" if binary else "continuous",
            "min_score": 0.0,
            "max_score": max(1.0, float(score.high)),  # RoG's F1 can be above 1
            "additional_details": {
                "match_rule": _MATCH_RULES.get(name, definition if name.startswith(_OWN_RULES) else _MATCH_RULE),
                "match_rule_keys": config.canonical(exported.resolved["evaluation"]),
            },
        },
        "score_details": {
            "score": float(score.mean),
            "uncertainty": {
                "confidence_interval": {
                    "lower": float(score.low),
                    "upper": float(score.high),
                    "confidence_level": float(summary.confidence),
                },
                "num_samples": score.questions,
            },
        },
        "generation_config": {
            "additional_details": {
                "method": summary.method,
                "graph": str(exported.served["graph"]),
                "retriever": str(summary.retriever or "none"),
                "departures": ", ".join(summary.departures),
                **_texts(
                    {key: value for key, value in exported.parameters.items() if key.startswith(("method", "budget"))}
                ),
            }
        },
    }


def _sample(question: ExportedQuestion, identity: str, model: str) -> dict[str, Any]:
    trace = question.trace
    messages = list(_messages(question))
    calls = sum(step.kind == "llm" for step in trace.steps)
    read, written = (int(trace.row[name] or 0) for name in ("prompt_tokens", "completion_tokens"))
    about = {"status": trace.status, "type": trace.row["type"], "hops": trace.row["hops"], "level": trace.row["level"]}
    about |= {"lost": str(trace.loss)} if trace.loss else {}
    digest = hashlib.sha256(orjson.dumps([trace.text, list(trace.gold)])).hexdigest()
    return {
        "schema_version": _VERSION,
        "evaluation_id": identity,
        "model_id": model,
        "evaluation_name": trace.dataset,
        "evaluation_result_id": _SCORE,
        "sample_id": trace.id,
        "sample_hash": digest,
        "interaction_type": "agentic",
        "input": {"raw": trace.text, "reference": list(trace.gold)},
        "output": None,
        "messages": messages,
        "answer_attribution": [
            {
                "turn_idx": len(messages) - 1,
                "source": f"messages[{len(messages) - 1}].content",
                "extracted_value": (trace.answers or [""])[0],
                "extraction_method": "custom",
                "is_terminal": True,
            }
        ],
        "evaluation": {
            "score": float(trace.scores[_SCORE]),
            "is_correct": trace.scores[_SCORE] >= 1,
            "num_turns": max(1, calls),
            "tool_calls_count": sum(step.kind == "kg" for step in trace.steps),
        },
        "token_usage": {"input_tokens": read, "output_tokens": written, "total_tokens": read + written},
        "performance": {"latency_ms": 1000 * float(trace.row["wall_s"])},
        "error": trace.error,
        "metadata": _texts({name: value for name, value in about.items() if value is not None}),
    }


def _messages(question: ExportedQuestion) -> Iterator[dict[str, Any]]:
    """Yield the prompts, replies and lookups of a question in order, and at the end its answer."""
    turns: list[dict[str, Any]] = [{"role": "user", "content": question.trace.text}]
    for step in question.trace.steps:
        if step.kind == "llm":
            turns += [{"role": message.role, "content": message.content} for message in step.prompt]
            turns.append({"role": "assistant", "content": step.completion})
        elif step.kind == "kg":
            call = {"id": str(step.number), "name": step.role, "arguments": {"query": step.query or ""}}
            turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
            turns.append({"role": "tool", "content": f"{step.rows or 0} values", "tool_call_id": [call["id"]]})
    turns.append({"role": "assistant", "content": question.reply})
    yield from ({"turn_idx": number, **turn} for number, turn in enumerate(turns))


def _model_id(exported: ExportedConfiguration) -> str:
    """Return `developer/model`; a simulated model is of this project."""
    model = str(exported.served["model"])
    if exported.summary.simulated:
        return f"{_LIBRARY}/{_safe(model)}"
    return model if re.fullmatch(r"[^/\s]+/[^/\s]+", model) else f"unknown/{_safe(model)}"


def _safe(name: str) -> str:
    """Return a name that is one part of a path and of an id."""
    return re.sub(r"[^\w.=,()-]+", "-", name).strip(".-") or "unknown"


def _moment(exported: ExportedConfiguration) -> str:
    return str(int(exported.started.timestamp()))


def _uuid(exported: ExportedConfiguration) -> UUID:
    """Return an id of version 4, as the schema wants it, that is the same in each export."""
    digest = hashlib.sha256(f"{exported.run_id}\0{exported.number}".encode()).digest()
    return UUID(bytes=digest[:16], version=4)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else config.canonical(value) for name, value in values.items()}
