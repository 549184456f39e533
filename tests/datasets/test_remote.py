"""Data at URLs: on a stand-in of the Hugging Face Hub, on a web server and in a store in memory."""

from __future__ import annotations

import functools
import gzip
import http.server
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import constants

from pipeline.config import default
from pipeline.datasets import rog
from pipeline.datasets.custom import Custom
from pipeline.datasets.cwq import CWQ
from pipeline.datasets.grailqa import GrailQA
from pipeline.datasets.grbench import GRBench
from pipeline.datasets.interface import Dataset
from pipeline.datasets.metaqa import MetaQA
from pipeline.datasets.remote import local_copy, parse_path, versions
from pipeline.datasets.rog import RoG
from pipeline.datasets.webqsp import WebQSP
from pipeline.errors import UserError
from pipeline.kg.grbench import GRBenchGraph
from pipeline.types import Triple
from tests.datasets.hub import COMMIT, Hub, running_hub
from tests.support import KGQA, refuse

REPOSITORY = "rmanluo/RoG-webqsp"
URL = f"hf://datasets/{REPOSITORY}"
FACTS = b"Ann\tknows\tBo\n"
QUESTION = {"id": "q1", "question": "Whom does Ann know?", "topic_entities": ["Ann"], "answers": ["Bo"]}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        huggingface_hub.HfFileSystem.clear_instance_cache()
        rog._listed.cache_clear()
        rog._local_copy.cache_clear()
        yield hub
        huggingface_hub.HfFileSystem.clear_instance_cache()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the URL under which a web server shows it."""
    folder = tmp_path / "web"
    folder.mkdir()
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def in_memory(**files: str | bytes) -> str:
    """Write files to a new folder in memory, and return its URL."""
    url = f"memory://{uuid.uuid4().hex}"
    for name, content in files.items():
        with fsspec.open(f"{url}/{name.replace('__', '/').replace('_', '.')}", "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    return url


def parquet(*ids: str) -> bytes:
    rows = [
        {
            "id": id,
            "question": "Whom does Ann know?",
            "answer": ["Bo"],
            "q_entity": ["Ann"],
            "a_entity": ["Bo"],
            "graph": [["Ann", "knows", "Bo"]],
            "choices": [],
        }
        for id in ids
    ]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def published(hub: Hub) -> None:
    hub.files[REPOSITORY] = {
        "README.md": b"# RoG",
        "data/train-00000-of-00001.parquet": parquet("train"),
        "data/test-00000-of-00002.parquet": parquet("q1", "q2"),
        "data/test-00001-of-00002.parquet": parquet("q3"),
    }


def ids(dataset: Dataset) -> list[str]:
    return [example.question.id for example in dataset.examples(refuse)]


class TestHub:
    def test_rog_is_read_from_its_repository(self, hub: Hub) -> None:
        published(hub)
        dataset = default(RoG, path=URL)
        assert ids(dataset) == ["q1", "q2", "q3"]
        assert dataset.count() == 3
        assert list(dataset.question_triples("q3")) == [Triple("Ann", "knows", "Bo")]
        assert ids(pickle.loads(pickle.dumps(dataset))) == ["q1", "q2", "q3"]

    def test_only_the_files_of_the_split_are_downloaded_and_only_once(self, hub: Hub) -> None:
        published(hub)
        for _ in range(2):
            rog._local_copy.cache_clear()
            assert ids(default(RoG, path=URL)) == ["q1", "q2", "q3"]
        assert sorted(hub.downloads) == ["data/test-00000-of-00002.parquet", "data/test-00001-of-00002.parquet"]

    def test_one_file_is_named_with_a_revision(self, hub: Hub) -> None:
        published(hub)
        assert ids(default(RoG, path=f"{URL}@{COMMIT}/data/test-00001-of-00002.parquet")) == ["q3"]

    def test_the_cache_answers_without_a_network(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        published(hub)
        assert ids(default(RoG, path=URL)) == ["q1", "q2", "q3"]
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        hub.files.clear()
        assert ids(default(RoG, path=URL)) == ["q1", "q2", "q3"]
        assert versions({"path": URL}) == {URL: COMMIT}
        assert versions({"path": f"{URL}@{COMMIT}/data"}) == {f"{URL}@{COMMIT}/data": COMMIT}
        with pytest.raises(UserError, match=r"RoG-cwq is not in the cache of the Hub, and HF_HUB_OFFLINE forbids"):
            default(RoG, path="hf://datasets/rmanluo/RoG-cwq")

    def test_the_version_is_the_commit(self, hub: Hub) -> None:
        published(hub)
        assert versions({"path": URL, "name": "rog", "limit": 3}) == {URL: COMMIT}

    def test_a_private_repository(self, hub: Hub) -> None:
        with pytest.raises(UserError, match=r"no such repository, or it is private: .* set HF_TOKEN$"):
            ids(default(RoG, path="hf://datasets/someone/private"))
        assert versions({"path": "hf://datasets/someone/private"}) == {"hf://datasets/someone/private": None}

    def test_a_split_that_the_repository_does_not_have(self, hub: Hub) -> None:
        published(hub)
        with pytest.raises(UserError, match=f"dataset.path={URL} holds no RoG questions: looked for "):
            ids(default(RoG, path=URL, split="dev"))

    def test_a_hub_that_does_not_answer(self, hub: Hub, closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port}")
        with pytest.raises(UserError, match=f"{URL} cannot be reached: "):
            ids(default(RoG, path=URL))

    def test_a_run_names_the_dataset_alone(self, hub: Hub, tmp_path: Path) -> None:
        published(hub)
        command = [*KGQA, "evaluate", "dataset=rog", f"dataset.path={URL}", f"run.dir={tmp_path}/run"]
        environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        saved = yaml.safe_load((tmp_path / "run" / "run.yaml").read_text())
        assert saved["points"][0]["data"] == {URL: COMMIT}


def test_a_client_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UserError, match=r"needs s3fs: pip install 'kgqa-pipeline\[s3\]'$"):
        parse_path("s3://bucket/facts.tsv")


@pytest.mark.parametrize(
    "url", ["simplecache::http://ann:secret@x/y.tsv", "reference::http://x/y.json", "zip://y.tsv::http://x/y.zip"]
)
def test_a_store_inside_another_one_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="names a store inside another one") as refused:
        parse_path(url)
    assert "secret" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:UPath 'reference' filesystem not explicitly implemented")
@pytest.mark.parametrize("url", ["reference://x/y", "zip://y.tsv"])
def test_a_client_that_raises_anything_is_a_sentence(url: str) -> None:
    with pytest.raises(UserError, match=f"{url} cannot be read: "):
        parse_path(url)


class TestWebServer:
    def test_custom_files(self, web: tuple[Path, str], cache: Path) -> None:
        folder, url = web
        (folder / "facts.tsv.gz").write_bytes(gzip.compress(FACTS))
        (folder / "questions.jsonl").write_text(json.dumps(QUESTION))
        dataset = default(Custom, triples=f"{url}/facts.tsv.gz", questions=f"{url}/questions.jsonl")
        assert ids(dataset) == ["q1"]
        assert list(dataset.triples()) == [Triple("Ann", "knows", "Bo")]
        assert {file.name for file in cache.rglob("*.*")} >= {"facts.tsv.gz", "questions.jsonl"}

    def test_a_changed_file_is_downloaded_anew(self, web: tuple[Path, str]) -> None:
        folder, url = web
        facts = folder / "facts.tsv"
        facts.write_bytes(FACTS)
        before = versions({"triples": f"{url}/facts.tsv"})
        assert local_copy(parse_path(f"{url}/facts.tsv")).read_bytes() == FACTS
        facts.write_bytes(FACTS.replace(b"Bo", b"Cy"))
        os.utime(facts, (1, 1))
        assert local_copy(parse_path(f"{url}/facts.tsv")).read_bytes() == FACTS.replace(b"Bo", b"Cy")
        assert versions({"triples": f"{url}/facts.tsv"}) != before

    def test_a_folder(self, web: tuple[Path, str]) -> None:
        folder, url = web
        (folder / "MetaQA" / "1-hop").mkdir(parents=True)
        (folder / "MetaQA" / "kb.txt").write_text("Nine|directed_by|Ann\n")
        (folder / "MetaQA" / "1-hop" / "qa_test.txt").write_text("who directed [Nine]\tAnn\n")
        dataset = default(MetaQA, path=f"{url}/MetaQA")
        assert ids(dataset) == ["1hop-test-0"]
        assert list(dataset.triples()) == [Triple("Nine", "directed_by", "Ann")]
        assert ids(default(MetaQA, path=f"{url}/MetaQA/")) == ["1hop-test-0"]

    def test_a_missing_file(self, web: tuple[Path, str]) -> None:
        with pytest.raises(UserError, match=r"dataset.questions=http://.*/nothing.jsonl is not a file$"):
            default(Custom, triples="x", questions=f"{web[1]}/nothing.jsonl").examples(refuse)

    def test_a_server_that_does_not_answer(self, closed_port: int) -> None:
        with pytest.raises(UserError, match=rf"http://127.0.0.1:{closed_port}/x.tsv cannot be reached: "):
            default(Custom, triples=f"http://127.0.0.1:{closed_port}/x.tsv", questions="x").triples()

    @pytest.mark.parametrize("url", ["http://ann:secret@x/y.tsv", "https://x/y.tsv?token=secret"])
    def test_credentials_are_refused(self, url: str) -> None:
        with pytest.raises(UserError, match=r"^https?://… holds credentials") as refused:
            parse_path(url)
        assert "secret" not in str(refused.value)


class TestEveryDataset:
    def test_metaqa(self) -> None:
        url = in_memory(kb_txt="Nine|directed_by|Ann\n")
        with fsspec.open(f"{url}/1-hop/vanilla/qa_test.txt", "wb") as file:
            file.write(b"who directed [Nine]\tAnn\n")
        assert ids(default(MetaQA, path=url)) == ["1hop-test-0"]

    def test_cwq(self) -> None:
        rows = [{"ID": "c1", "question": "Who?", "answer": "Ann", "topic_entity": {"m.1": "Bo"}}]
        assert ids(default(CWQ, path=in_memory(cwq_json=json.dumps(rows)))) == ["c1"]

    def test_webqsp(self) -> None:
        rows = {"Questions": [{"QuestionId": "w1", "RawQuestion": "who?", "Parses": []}]}
        assert ids(default(WebQSP, path=in_memory(WebQSP_test_json=json.dumps(rows)))) == ["w1"]

    def test_grailqa(self) -> None:
        rows = [{"qid": 1, "question": "who?"}]
        assert ids(default(GrailQA, path=in_memory(graliqa_json=json.dumps(rows)))) == ["1"]

    def test_rog(self) -> None:
        assert ids(default(RoG, path=in_memory(data__test_parquet=parquet("q1")))) == ["q1"]

    async def test_grbench(self) -> None:
        node = {"features": {"title": "Nine"}, "neighbors": {}}
        url = in_memory(
            amazon__data_json=json.dumps({"qid": 0, "question": "who?", "answer": "Ann"}),
            amazon__graph_json=json.dumps({"item_nodes": {"n1": node}}),
        )
        assert ids(default(GRBench, path=url, domain="amazon")) == ["amazon-0"]
        async with default(GRBenchGraph, path=url, domain="amazon") as graph:
            assert await graph.labels(["n1"]) == {"n1": "Nine"}


def test_the_versions_of_lists_and_of_a_sampled_dataset_are_told() -> None:
    url = in_memory(a_txt="1", b_txt="2")
    files = [f"{url}/a.txt", f"{url}/b.txt"]
    found = versions({"dataset": {"aliases": [*files, "file:///x"], "triples": "facts.tsv", "limit": 3}})
    assert list(found) == files
    assert None not in found.values()


def test_the_version_of_a_folder_changes_with_its_files() -> None:
    url = in_memory(a_txt="1", b_txt="2")
    before = versions({"path": url})
    assert versions({"path": url}) == before
    with fsspec.open(f"{url}/b.txt", "wb") as file:
        file.write(b"3")
    assert versions({"path": url}) != before
