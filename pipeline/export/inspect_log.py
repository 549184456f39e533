"""Writes a configuration as a log of Inspect (`EvalLog`, version 2), which `inspect view` opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from pipeline.analysis.question_trace import StepTrace
from pipeline.export.exported_run import ExportedConfiguration, ExportedQuestion, own_file
from pipeline.traces.storage import writing

_STATUS = {True: "success", False: "started"}
_STOP_REASONS = {"stop": "stop", "length": "max_tokens"}
_GENERATION = ("temperature", "top_p", "max_tokens")


def write(exported: ExportedConfiguration, output: str) -> Iterator[str]:
    """Write `RUN-N.json` into a folder, one question after the other."""
    file = own_file(exported, output, "inspect", ".json")
    with writing(file) as opened:
        opened.write(orjson.dumps(_header(exported), option=orjson.OPT_SERIALIZE_NUMPY)[:-1])
        opened.write(b',"samples":[')
        for number, question in enumerate(exported.questions()):
            opened.write(b"," if number else b"")
            opened.write(orjson.dumps(_sample(exported, question), option=orjson.OPT_SERIALIZE_NUMPY))
        opened.write(b"]}")
    yield str(file)


def _header(exported: ExportedConfiguration) -> dict[str, Any]:
    summary, started = exported.summary, exported.started.isoformat()
    saved = exported.folder.read_summary() or {}
    ended = exported.after(saved.get("wall_s") or 0.0).isoformat()
    task = f"{summary.method} on {summary.dataset}"
    metadata = {"overrides": list(summary.overrides), "graph": exported.served["graph"], "label": summary.label}
    return {
        "version": 2,
        "status": _STATUS[bool(saved.get("complete"))],
        "eval": {
            "eval_id": f"{exported.run_id}-{exported.number}",
            "run_id": exported.run_id,
            "created": started,
            "task": task,
            "task_id": exported.name,
            "task_args": orjson.loads(orjson.dumps(exported.parameters, default=str)),
            "dataset": {"name": summary.dataset, "samples": summary.questions},
            "model": str(exported.served["model"]),
            "config": {"epochs": 1},
            "packages": {name: version for name, version in exported.metadata.get("versions", {}).items() if version},
            "metadata": metadata,
        },
        "plan": {"name": "plan", "steps": [{"solver": summary.method, "params": {}}], "config": {}},
        "results": {
            "total_samples": summary.questions,
            "completed_samples": summary.answered,
            "scores": [
                {
                    "name": name,
                    "scorer": "kgqa",
                    "scored_samples": score.questions,
                    "unscored_samples": summary.answered - score.questions,
                    "params": {},
                    "metrics": {
                        part: {"name": part, "value": float(value)}
                        for part, value in (("mean", score.mean), ("low", score.low), ("high", score.high))
                    },
                }
                for name, score in summary.scores.items()
            ],
        },
        "stats": {
            "started_at": started,
            "completed_at": ended,
            "model_usage": {str(exported.served["model"]): _usage(summary.counters)},
        },
    }


def _sample(exported: ExportedConfiguration, question: ExportedQuestion) -> dict[str, Any]:
    trace = question.trace
    row, model = trace.row, str(exported.served["model"])
    steps = zip(trace.steps, question.steps, strict=True)
    lost = {"lost": str(trace.loss), "stage": trace.loss.stage, "reason": trace.loss.reason} if trace.loss else {}
    explanation = f"lost: {trace.loss}" if trace.loss else None
    known = {name: row[name] for name in ("split", "type", "level", "hops") if row[name] is not None}
    failed = {"message": trace.error or trace.status, "traceback": trace.error or "", "traceback_ansi": ""}
    return {
        "id": trace.id,
        "epoch": 1,
        "input": trace.text,
        "target": list(trace.gold),
        "messages": [
            {"role": "user", "content": trace.text},
            {"role": "assistant", "content": question.reply, "model": model},
        ],
        "output": _output(model, question.reply, "stop", row),
        "scores": {
            name: {"value": float(value), "answer": (trace.answers or [""])[0], "explanation": explanation}
            for name, value in trace.scores.items()
        },
        "metadata": {"status": trace.status, "answers": list(trace.answers), **known, **lost},
        "events": [_event(exported, model, step, columns) for step, columns in steps],
        "model_usage": {model: _usage(row)},
        "started_at": exported.started.isoformat(),
        "completed_at": exported.after(row["wall_s"]).isoformat(),
        "total_time": float(row["wall_s"]),
        "working_time": float(row["critical_s"] or 0.0),
        **({"error": failed} if trace.status == "failed" else {}),
    }


def _event(exported: ExportedConfiguration, model: str, step: StepTrace, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step as an event of a model, of a tool, or of information."""
    start, end = columns["start_s"], columns["start_s"] + columns["duration_s"]
    common = {"timestamp": exported.after(start).isoformat(), "working_start": float(start)}
    taken = {"completed": exported.after(end).isoformat(), "working_time": float(columns["own_s"] or 0.0)}
    metadata = {"metadata": {"role": step.role, "step": step.number, "shared": step.shared}}
    if step.kind == "llm":
        sampling = orjson.loads(columns["sampling"] or "{}").get("sampling", {})
        call = {
            "event": "model",
            "model": model,
            "role": step.role,
            "input": [{"role": message.role, "content": message.content} for message in step.prompt],
            "tools": [],
            "tool_choice": "none",
            "config": {name: sampling[name] for name in _GENERATION if sampling.get(name) is not None},
            "output": _output(model, step.completion or "", columns["finish_reason"], columns),
            **({"cache": "read"} if step.shared else {}),
            **({"error": step.error} if step.error and step.completion is None else {}),
        }
        return {**call, **common, **taken, **metadata}
    if step.kind == "kg":
        arguments, result = {"query": step.query or ""}, f"{step.rows or 0} values"
        tool = {"event": "tool", "id": f"step-{step.number}", "function": step.role, "arguments": arguments}
        return {**tool, "result": result, **common, **taken, **metadata}
    return {"event": "info", "source": step.role, "data": dict(step.payload or {}), **common}


def _output(model: str, text: str, finish_reason: str | None, counted: Mapping[str, Any]) -> dict[str, Any]:
    stop = _STOP_REASONS.get(finish_reason or "", "unknown")
    choice = {"message": {"role": "assistant", "content": text, "model": model}, "stop_reason": stop}
    return {"model": model, "choices": [choice], "completion": text, "usage": _usage(counted)}


def _usage(counted: Mapping[str, Any]) -> dict[str, int]:
    read, written = (int(counted.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
