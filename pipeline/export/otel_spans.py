"""Writes a configuration as OpenTelemetry spans by the conventions for generative AI, as OTLP in JSON.

Each question is a trace: the method is an agent (`invoke_agent`), its model calls are its children (`chat`), so are its
graph lookups (`execute_tool`), and its decisions are events. Ids are computed from the id of the run, so a second
export has the same ids.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import orjson

from pipeline.analysis.question_trace import StepTrace
from pipeline.errors import ServiceError, UserError
from pipeline.export.exported_run import VERSION, ExportedConfiguration, ExportedQuestion, own_file
from pipeline.text import counted
from pipeline.traces.storage import writing

_INTERNAL, _CLIENT = 1, 3
"""Kinds of spans."""
_ERROR = 2
_BATCH = 16
"""Questions in one request."""
_TIMEOUT_S = 30.0
_ADDRESS = re.compile(r"[\w.-]+:\d+(/.*)?")
"""A host with a port."""
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


def write(exported: ExportedConfiguration, output: str) -> Iterator[str]:
    """Write `RUN-N.jsonl` into a folder, one question per line, or send the spans to the collector at a URL.

    Raises ServiceError if the collector refuses them, and UserError for the address of a collector that is no URL.
    """
    if _ADDRESS.fullmatch(output):
        raise UserError(f"output={output} is the address of a collector: write output=http://{output}")
    if output.startswith(("http://", "https://")):
        yield _send(exported, output)
        return
    file = own_file(exported, output, "otel", ".jsonl")
    with writing(file) as opened:
        for question in exported.questions():
            opened.write(orjson.dumps(_request(exported, [question]), option=orjson.OPT_APPEND_NEWLINE))
    yield str(file)


def _send(exported: ExportedConfiguration, url: str) -> str:
    questions, sent = exported.questions(), 0
    while batch := list(islice(questions, _BATCH)):
        _post(f"{url.rstrip('/')}/v1/traces", orjson.dumps(_request(exported, batch)))
        sent += len(batch)
    return f"{counted(sent, 'trace')} sent to {url}"


def _post(url: str, body: bytes) -> None:
    stored = os.environ.get(_HEADERS, "").strip()
    if not stored.isprintable():
        raise UserError(f"the environment variable {_HEADERS} has a line break inside: write NAME=VALUE,NAME=VALUE")
    given = (pair.partition("=") for pair in stored.split(",") if "=" in pair)
    headers = {name.strip(): value.strip() for name, _, value in given}
    request = Request(url, body, {**headers, "Content-Type": "application/json"})  # noqa: S310
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
            response.read()
    except (URLError, OSError) as error:
        raise ServiceError(f"{url} did not take the spans: {error}") from None


def _request(exported: ExportedConfiguration, questions: Sequence[ExportedQuestion]) -> dict[str, Any]:
    resource = {"service.name": "kgqa", "service.version": VERSION, "kgqa.run.id": exported.run_id}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [
                    {
                        "scope": {"name": "kgqa-pipeline", "version": VERSION},
                        "spans": [span for question in questions for span in _spans(exported, question)],
                    }
                ],
            }
        ]
    }


def _spans(exported: ExportedConfiguration, question: ExportedQuestion) -> Iterator[dict[str, Any]]:
    trace = question.trace
    trace_id = _id(16, exported.run_id, exported.number, trace.id)
    root = _id(8, trace_id, "root")
    taken = float(trace.row["wall_s"])
    yield {
        "traceId": trace_id,
        "spanId": root,
        "name": f"invoke_agent {trace.method}",
        "kind": _INTERNAL,
        **_times(exported, 0.0, taken),
        "attributes": _attributes(_of_question(exported, question)),
        "events": [
            _event(exported, step, columns)
            for step, columns in zip(trace.steps, question.steps, strict=True)
            if step.kind == "decision"
        ],
        "status": {"code": _ERROR, "message": trace.error or ""} if trace.status == "failed" else {},
    }
    for step, columns in zip(trace.steps, question.steps, strict=True):
        if step.kind != "decision":
            yield _child(exported, step, columns, trace_id, root)


def _of_question(exported: ExportedConfiguration, question: ExportedQuestion) -> dict[str, Any]:
    trace = question.trace
    lost = {"kgqa.loss.stage": trace.loss.stage, "kgqa.loss.reason": trace.loss.reason} if trace.loss else {}
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": trace.method,
        "gen_ai.provider.name": _provider(exported),
        "gen_ai.request.model": str(exported.served["model"]),
        "gen_ai.usage.input_tokens": trace.row["prompt_tokens"],
        "gen_ai.usage.output_tokens": trace.row["completion_tokens"],
        "gen_ai.input.messages": _messages([("user", trace.text)]),
        "gen_ai.output.messages": _messages([("assistant", question.reply)], "stop"),
        "kgqa.configuration": exported.number,
        "kgqa.dataset": trace.dataset,
        "kgqa.graph": str(exported.served["graph"]),
        "kgqa.question.id": trace.id,
        "kgqa.gold": list(trace.gold),
        "kgqa.answers": list(trace.answers),
        "kgqa.status": trace.status,
        **{f"kgqa.score.{name}": float(value) for name, value in trace.scores.items()},
        **lost,
    }


def _child(
    exported: ExportedConfiguration, step: StepTrace, columns: Mapping[str, Any], trace_id: str, parent: str
) -> dict[str, Any]:
    name, attributes = _of_call(exported, step, columns) if step.kind == "llm" else _of_lookup(step, columns)
    return {
        "traceId": trace_id,
        "spanId": _id(8, trace_id, step.number),
        "parentSpanId": parent,
        "name": name,
        "kind": _CLIENT,
        **_times(exported, columns["start_s"], columns["start_s"] + columns["duration_s"]),
        "attributes": _attributes({**attributes, "kgqa.role": step.role, "kgqa.shared": step.shared}),
        "events": [],
        "status": {"code": _ERROR, "message": step.error} if step.error else {},
    }


def _of_call(
    exported: ExportedConfiguration, step: StepTrace, columns: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    model = str(exported.served["model"])
    sampling = orjson.loads(columns["sampling"] or "{}").get("sampling", {})
    finished = columns["finish_reason"]
    replied = (
        {}
        if step.completion is None
        else {"gen_ai.output.messages": _messages([("assistant", step.completion)], finished or "stop")}
    )
    return f"chat {model}", {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider(exported),
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


def _provider(exported: ExportedConfiguration) -> str:
    """Return what answered: a simulated model, or the choice of `llm=`."""
    return str(exported.summary.simulated or exported.resolved["choices"].get("llm", "unknown"))


def _event(exported: ExportedConfiguration, step: StepTrace, columns: Mapping[str, Any]) -> dict[str, Any]:
    payload = orjson.dumps(step.payload or {}, default=str).decode()
    return {
        "timeUnixNano": _nanoseconds(exported.after(columns["start_s"])),
        "name": step.role,
        "attributes": _attributes({"kgqa.payload": payload}),
    }


def _messages(messages: Sequence[tuple[str, str]], finished: str | None = None) -> str:
    """Return messages as the JSON document that the conventions define."""
    ending = {"finish_reason": finished} if finished else {}
    document = [{"role": role, "parts": [{"type": "text", "content": text}], **ending} for role, text in messages]
    return orjson.dumps(document).decode()


def _times(exported: ExportedConfiguration, start: float, end: float) -> dict[str, str]:
    return {
        "startTimeUnixNano": _nanoseconds(exported.after(start)),
        "endTimeUnixNano": _nanoseconds(exported.after(end)),
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
