"""Writes a configuration as OpenTelemetry spans by the conventions for generative AI, as OTLP in JSON.

Each question is a trace: the method is an agent (`invoke_agent`), its model calls are its children (`chat`), so are its
graph lookups (`execute_tool`), and its decisions are events. Ids follow from the run, so that a second export repeats
them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import orjson

from pipeline.analysis.question_trace import StepTrace
from pipeline.errors import ServiceError
from pipeline.export.source import VERSION, ExportedQuestion, Source, local_folder
from pipeline.text import counted
from pipeline.traces.storage import writing

_INTERNAL, _CLIENT = 1, 3
"""Kinds of spans."""
_ERROR = 2
_BATCH = 16
"""Questions in one request."""
_TIMEOUT_S = 30.0
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


def write(source: Source, output: str) -> Iterator[str]:
    """Write `RUN-N.jsonl` into a folder, one question per line, or send the spans to the collector at a URL.

    Raises ServiceError if the collector refuses them.
    """
    if output.startswith(("http://", "https://")):
        yield _send(source, output)
        return
    file = local_folder(output, "otel") / f"{source.name}.jsonl"
    with writing(file) as opened:
        for question in source.questions():
            opened.write(orjson.dumps(_request(source, [question]), option=orjson.OPT_APPEND_NEWLINE))
    yield str(file)


def _send(source: Source, url: str) -> str:
    questions, sent = source.questions(), 0
    while batch := list(islice(questions, _BATCH)):
        _post(f"{url.rstrip('/')}/v1/traces", orjson.dumps(_request(source, batch)))
        sent += len(batch)
    return f"{counted(sent, 'trace')} sent to {url}"


def _post(url: str, body: bytes) -> None:
    given = (pair.partition("=") for pair in os.environ.get(_HEADERS, "").split(",") if "=" in pair)
    headers = {name.strip(): value.strip() for name, _, value in given}
    request = Request(url, body, {**headers, "Content-Type": "application/json"})  # noqa: S310
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
            response.read()
    except (URLError, OSError) as error:
        raise ServiceError(f"{url} did not take the spans: {error}") from None


def _request(source: Source, questions: Sequence[ExportedQuestion]) -> dict[str, Any]:
    resource = {"service.name": "kgqa", "service.version": VERSION, "kgqa.run.id": source.run_id}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [
                    {
                        "scope": {"name": "kgqa-pipeline", "version": VERSION},
                        "spans": [span for question in questions for span in _spans(source, question)],
                    }
                ],
            }
        ]
    }


def _spans(source: Source, question: ExportedQuestion) -> Iterator[dict[str, Any]]:
    trace = question.trace
    trace_id = _id(16, source.run_id, source.number, trace.id)
    root = _id(8, trace_id, "root")
    taken = float(trace.row["wall_s"])
    yield {
        "traceId": trace_id,
        "spanId": root,
        "name": f"invoke_agent {trace.method}",
        "kind": _INTERNAL,
        **_times(source, 0.0, taken),
        "attributes": _attributes(_of_question(source, question)),
        "events": [
            _event(source, step, columns)
            for step, columns in zip(trace.steps, question.steps, strict=True)
            if step.kind == "decision"
        ],
        "status": {"code": _ERROR, "message": trace.error or ""} if trace.status == "failed" else {},
    }
    for step, columns in zip(trace.steps, question.steps, strict=True):
        if step.kind != "decision":
            yield _child(source, step, columns, trace_id, root)


def _of_question(source: Source, question: ExportedQuestion) -> dict[str, Any]:
    trace = question.trace
    lost = {"kgqa.loss.stage": trace.loss.stage, "kgqa.loss.reason": trace.loss.reason} if trace.loss else {}
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": trace.method,
        "gen_ai.provider.name": _provider(source),
        "gen_ai.request.model": str(source.served["model"]),
        "gen_ai.usage.input_tokens": trace.row["prompt_tokens"],
        "gen_ai.usage.output_tokens": trace.row["completion_tokens"],
        "gen_ai.input.messages": _messages([("user", trace.text)]),
        "gen_ai.output.messages": _messages([("assistant", question.reply)], "stop"),
        "kgqa.configuration": source.number,
        "kgqa.dataset": trace.dataset,
        "kgqa.graph": str(source.served["graph"]),
        "kgqa.question.id": trace.id,
        "kgqa.gold": list(trace.gold),
        "kgqa.answers": list(trace.answers),
        "kgqa.status": trace.status,
        **{f"kgqa.score.{name}": float(value) for name, value in trace.scores.items()},
        **lost,
    }


def _child(source: Source, step: StepTrace, columns: Mapping[str, Any], trace_id: str, parent: str) -> dict[str, Any]:
    name, attributes = _of_call(source, step, columns) if step.kind == "llm" else _of_lookup(step, columns)
    return {
        "traceId": trace_id,
        "spanId": _id(8, trace_id, step.number),
        "parentSpanId": parent,
        "name": name,
        "kind": _CLIENT,
        **_times(source, columns["start_s"], columns["start_s"] + columns["duration_s"]),
        "attributes": _attributes({**attributes, "kgqa.role": step.role, "kgqa.shared": step.shared}),
        "events": [],
        "status": {"code": _ERROR, "message": step.error} if step.error else {},
    }


def _of_call(source: Source, step: StepTrace, columns: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    model = str(source.served["model"])
    sampling = orjson.loads(columns["sampling"] or "{}").get("sampling", {})
    finished = columns["finish_reason"]
    replied = (
        {}
        if step.completion is None
        else {"gen_ai.output.messages": _messages([("assistant", step.completion)], finished or "stop")}
    )
    return f"chat {model}", {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider(source),
        "gen_ai.request.model": model,
        "gen_ai.request.temperature": sampling.get("temperature"),
        "gen_ai.request.top_p": sampling.get("top_p"),
        "gen_ai.request.max_tokens": sampling.get("max_tokens"),
        "gen_ai.request.stop_sequences": sampling.get("stop") or None,
        "gen_ai.usage.input_tokens": columns["prompt_tokens"],
        "gen_ai.usage.output_tokens": columns["completion_tokens"],
        "gen_ai.response.finish_reasons": [finished] if finished else None,
        "gen_ai.input.messages": _messages([(message.role, message.content) for message in step.prompt]),
        **replied,
    }


def _of_lookup(step: StepTrace, columns: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return f"execute_tool {step.role}", {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step.role,
        "gen_ai.tool.type": "datastore",
        "gen_ai.tool.call.id": str(step.number),
        "gen_ai.tool.call.arguments": orjson.dumps({"query": step.query}).decode(),
        "kgqa.rows": step.rows,
        "kgqa.queries": columns["queries"],
        "kgqa.truncated": columns["truncated"],
    }


def _provider(source: Source) -> str:
    """Return what answered: a simulated model, or the choice of `llm=`."""
    return str(source.summary.label or source.resolved["choices"].get("llm", "unknown"))


def _event(source: Source, step: StepTrace, columns: Mapping[str, Any]) -> dict[str, Any]:
    payload = orjson.dumps(step.payload or {}, default=str).decode()
    return {
        "timeUnixNano": _nanoseconds(source.after(columns["start_s"])),
        "name": step.role,
        "attributes": _attributes({"kgqa.payload": payload}),
    }


def _messages(messages: Sequence[tuple[str, str]], finished: str | None = None) -> str:
    """Return messages as the JSON document that the conventions define."""
    ending = {"finish_reason": finished} if finished else {}
    document = [{"role": role, "parts": [{"type": "text", "content": text}], **ending} for role, text in messages]
    return orjson.dumps(document).decode()


def _times(source: Source, start: float, end: float) -> dict[str, str]:
    return {
        "startTimeUnixNano": _nanoseconds(source.after(start)),
        "endTimeUnixNano": _nanoseconds(source.after(end)),
    }


def _nanoseconds(moment: datetime) -> str:
    return str(round(moment.timestamp() * 1_000_000) * 1_000)


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": list(map(_value, value))}}
    return {"stringValue": str(value)}


def _id(size: int, *parts: object) -> str:
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=size).hexdigest()
