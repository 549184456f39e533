"""Exported runs: each format has every question, call and score of the run, in the places where its tool reads them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import polars as pl
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from pipeline.analysis.runs import Run, open_run
from pipeline.cli.main import main
from pipeline.errors import ServiceError, UserError
from pipeline.export.exported_run import ExportedConfiguration, exported_configurations
from pipeline.export.formats import FORMATS, export
from pipeline.export.otel_spans import write
from pipeline.export.tracking import TrackedRun, tracked_run
from pipeline.extras import require
from tests.support import rewrite_shard


def counts(run: Run) -> dict[str, int]:
    """The number of steps of each kind."""
    return dict(run.steps.group_by("kind").agg(pl.len()).collect().iter_rows())


@pytest.mark.parametrize("format", ["inspect", "otel"])
def test_a_file_of_another_run_with_the_same_folder_name_is_kept(
    exported: ExportedConfiguration, output: Path, format: str
) -> None:
    (file,) = export([exported], format, str(output))
    assert export([exported], format, str(output)) == [file], "its own file is written again"
    other = replace(exported, metadata={**exported.metadata, "id": "another-id"})
    with pytest.raises(UserError, match="is of another run whose folder has the same name"):
        export([other], format, str(output))


def test_an_inspect_log_has_every_sample_event_and_score(
    run: Run, exported: ExportedConfiguration, output: Path
) -> None:
    (file,) = export([exported], "inspect", str(output))
    log = json.loads(Path(file).read_text())
    assert (log["version"], log["status"], log["eval"]["task"]) == (2, "success", "srp on synthetic")
    questions = {row["question_id"]: row for row in run.questions.collect().iter_rows(named=True)}
    assert [sample["id"] for sample in log["samples"]] == list(questions)
    kinds = {"model": "llm", "tool": "kg", "info": "decision"}
    events = [event["event"] for sample in log["samples"] for event in sample["events"]]
    assert {kind: events.count(event) for event, kind in kinds.items()} == counts(run)
    for sample in log["samples"]:
        row = questions[sample["id"]]
        assert sample["target"] == row["gold"]
        assert sample["scores"]["hits_at_1"]["value"] == row["hits_at_1"]
        usage = sample["model_usage"][log["eval"]["model"]]
        assert usage["total_tokens"] == row["prompt_tokens"] + row["completion_tokens"]
        assert ("lost" in sample["metadata"]) == (row["hits_at_1"] == 0)
    calls = [event for sample in log["samples"] for event in sample["events"] if event["event"] == "model"]
    completions = run.calls.collect()["completion"].to_list()
    assert [call["output"]["completion"] for call in calls] == completions
    assert all(call["input"][-1]["content"] for call in calls)
    (score,) = [each for each in log["results"]["scores"] if each["name"] == "hits_at_1"]
    assert score["metrics"]["mean"]["value"] == exported.summary.scores["hits_at_1"].mean


def spans_of(file: str) -> Iterator[dict[str, Any]]:
    """The spans of a file of OTLP, which the messages of the protocol take as they are."""
    for line in Path(file).read_text().splitlines():
        document = json.loads(line)
        spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        yield from json.loads(json.dumps(spans))
        for span in spans:  # protobuf's own JSON has bytes in base64, OTLP's in hexadecimal
            for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        ParseDict(document, ExportTraceServiceRequest())


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def test_spans_follow_the_conventions_for_generative_ai(
    run: Run, exported: ExportedConfiguration, output: Path
) -> None:
    (file,) = export([exported], "otel", str(output))
    spans = list(spans_of(file))
    by_operation: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        by_operation.setdefault(attributes(span)["gen_ai.operation.name"], []).append(span)
    found = counts(run)
    expected = {"invoke_agent": 8, "chat": found["llm"], "execute_tool": found["kg"]}
    assert {operation: len(each) for operation, each in by_operation.items()} == expected
    conventions = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    assert {key for span in spans for key in attributes(span) if key.startswith("gen_ai.")} <= conventions
    assert sum(len(span["events"]) for span in spans) == found["decision"]
    roots = {span["spanId"]: span for span in by_operation["invoke_agent"]}
    for span in (*by_operation["chat"], *by_operation["execute_tool"]):
        root = roots[span["parentSpanId"]]
        assert root["traceId"] == span["traceId"]
        assert root["startTimeUnixNano"] <= span["startTimeUnixNano"] <= span["endTimeUnixNano"]
    tokens = sum(int(attributes(span)["gen_ai.usage.input_tokens"]) for span in by_operation["chat"])
    assert tokens == run.questions.select(pl.col("prompt_tokens").sum()).collect().item()
    assert len({span["spanId"] for span in spans}) == len(spans)
    again = list(spans_of(export([exported], "otel", str(output))[0]))
    assert again == spans, "a second export repeats the ids"


class Collector(BaseHTTPRequestHandler):
    """A collector that takes spans, or refuses them."""

    taken: ClassVar[list[tuple[str, bytes]]] = []
    code = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.path, body))
        self.send_response(self.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize("address", ["127.0.0.1:4318", "collector.example:4318/v1"])
def test_an_address_without_a_scheme_is_no_folder(address: str, exported: ExportedConfiguration) -> None:
    with pytest.raises(UserError, match=rf"is the address of a collector: write output=http://{address}$"):
        list(write(exported, address))
    assert not Path(address).exists()


def test_headers_with_a_line_break_are_refused(
    exported: ExportedConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret\nx=y")
    with pytest.raises(
        UserError, match=r"^the environment variable OTEL_EXPORTER_OTLP_HEADERS has a line break inside"
    ):
        list(write(exported, "http://127.0.0.1:9"))


def test_spans_are_sent_to_a_collector(exported: ExportedConfiguration, output: Path) -> None:
    Collector.taken, Collector.code = [], 200
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        (line,) = export([exported], "otel", url)
        assert line == f"8 traces sent to {url}"
        Collector.code = 503
        with pytest.raises(ServiceError, match=r"did not take the spans: HTTP Error 503"):
            list(write(exported, url))
        server.shutdown()
    (file,) = export([exported], "otel", str(output))
    first_path, body = Collector.taken[0]
    sent = json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert first_path == "/v1/traces"
    assert sent == list(spans_of(file))


def test_every_eval_ever_has_the_graph_the_match_rule_and_every_question(
    run: Run, exported: ExportedConfiguration, output: Path
) -> None:
    written = list(map(Path, export([exported], "every-eval-ever", str(output))))
    document = json.loads(written[0].read_text())
    lines = [json.loads(line) for line in written[1].read_text().splitlines()]
    questions = {row["question_id"]: row for row in run.questions.collect().iter_rows(named=True)}
    assert {line["sample_id"]: line["evaluation"]["score"] for line in lines} == {
        id: row["hits_at_1"] for id, row in questions.items()
    }
    assert {line["evaluation_id"] for line in lines} == {document["evaluation_id"]}
    assert {line["model_id"] for line in lines} == {document["model_info"]["id"]}
    for line in lines:
        assert [turn["turn_idx"] for turn in line["messages"]] == list(range(len(line["messages"])))
        assert line["output"] is None
    details = document["detailed_evaluation_results"]
    assert details["total_rows"] == len(lines) == 8
    assert details["checksum"] == hashlib.sha256(written[1].read_bytes()).hexdigest()
    pattern = (
        r"data/[^/]+/[^/]+/[^/]+/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}_samples\.jsonl"
    )
    assert re.fullmatch(pattern, details["file_path"])
    assert output / details["file_path"] == written[1]
    results = {each["evaluation_result_id"]: each for each in document["evaluation_results"]}
    assert results.keys() == exported.summary.scores.keys()
    hits = results["hits_at_1"]
    assert hits["score_details"]["score"] == exported.summary.scores["hits_at_1"].mean
    assert hits["generation_config"]["additional_details"]["graph"] == exported.served["graph"]
    assert "normalisation" in hits["metric_config"]["additional_details"]["match_rule"]
    texts = [hits["generation_config"]["additional_details"], *(line["metadata"] for line in lines)]
    assert all(isinstance(value, str) for of_one in texts for value in of_one.values())


def test_the_hook_gets_parameters_scores_costs_and_tags(exported: ExportedConfiguration) -> None:
    tracked = tracked_run(exported)
    assert tracked.parameters["method"] == "srp"
    assert tracked.parameters["llm.error_rate"] == "0.4"
    assert tracked.metrics["hits_at_1"] == exported.summary.scores["hits_at_1"].mean
    assert tracked.metrics["hits_at_1.low"] <= tracked.metrics["hits_at_1"] <= tracked.metrics["hits_at_1.high"]
    assert tracked.metrics["per_question.llm_calls"] == exported.summary.counters["llm_calls"] / 8
    assert tracked.tags.items() >= {"label": "oracle", "tags": "exported", "graph": exported.served["graph"]}.items()
    assert isinstance(tracked, TrackedRun)


def test_what_is_exported_tells_other_gold_answers_and_other_code_apart(run: Run, tmp_path: Path) -> None:
    def digests(folder: Path) -> list[str]:
        (exported,) = exported_configurations(open_run(folder), None)
        return [exported.parameters[name] for name in ("dataset.gold_digest", "code_digest")]

    gold, code = digests(Path(str(run.folder.path)))
    for name in ("same", "edited"):
        shutil.copytree(str(run.folder.path), tmp_path / name)
    assert digests(tmp_path / "same") == [gold, code]
    shard = next((tmp_path / "edited/traces").iterdir())
    rows = pl.read_parquet(shard)
    rewrite_shard(shard, rows.with_columns(pl.lit(["Nowhere"]).alias("gold")))
    saved = (tmp_path / "edited/run.yaml").read_text()
    digest = run.metadata["points"][0]["sources"]["pipeline.methods.srp.SRP"]
    (tmp_path / "edited/run.yaml").write_text(saved.replace(digest, "another"))
    assert not {gold, code} & set(digests(tmp_path / "edited"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("format=inspekt", "there is no format=inspekt. Did you mean 'inspect'?"),
        ("format=inspect configuration=7", "has no configuration 7: its highest is 0"),
        ("format=inspect output=s3://bucket/x", "output=s3://bucket/x: format=inspect writes to a folder"),
        ("", "format must be given, as in format=…. The format: inspect (logs for Inspect), otel ("),
    ],
)
def test_mistakes_are_one_sentence(
    words: str, sentence: str, run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["export", str(run.folder.path), *words.split()]) == 2
    assert sentence in capsys.readouterr().err


def test_a_missing_format_names_all_of_them(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run.folder.path)]) == 2
    said = capsys.readouterr().err
    assert [name for name in FORMATS if f" {name}" not in said] == []


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if each.extra is None])
def test_the_command_writes_into_the_run_folder(name: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run.folder.path), f"format={name}"]) == 0
    written = capsys.readouterr().out.splitlines()
    assert written
    assert all(Path(line).is_relative_to(run.folder.path / name) and Path(line).is_file() for line in written)


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if each.extra is None])
def test_the_progress_counts_each_question(name: str, run: Run, output: Path) -> None:
    watched: list[None] = []
    export(exported_configurations(run, None, lambda: watched.append(None)), name, str(output))
    assert len(watched) == 8


def test_a_missing_client_is_one_sentence(exported: ExportedConfiguration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.extras.find_spec", lambda name: None)
    for name in ("mlflow", "wandb"):
        with pytest.raises(UserError, match=rf"format={name} needs {name}.*: pip install 'kgqa-pipeline\[{name}\]'"):
            export([exported], name, None)


def test_sources_are_the_configurations_of_a_run(run: Run) -> None:
    assert [each.number for each in exported_configurations(run, None)] == [0]
    require("hf", "the tests")
