"""The pages as the server sends them: only to this machine, with nothing from elsewhere, and with all texts as text."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from pipeline.analysis.losses import STAGE_TEXTS
from pipeline.traces.folder import RunFolder
from pipeline.viewer import index as module
from pipeline.viewer.index import RunIndex
from pipeline.viewer.index_queries import question_url
from pipeline.viewer.render_page import MOST_CHARACTERS
from pipeline.viewer.server import Viewer, open_indexes
from tests.support import rewrite_shard
from tests.viewer.support import HOSTILE, LONG, METHODS

LAST = len(METHODS) - 1
"""The configuration with long completions."""


async def client(index: RunIndex) -> TestClient:
    client = TestClient(TestServer(Viewer([index]).application(), host="127.0.0.1"))
    await client.start_server()
    return client


@pytest.fixture
async def pages(index: RunIndex) -> AsyncIterator[TestClient]:
    started = await client(index)
    yield started
    await started.close()


@pytest.fixture(scope="session")
def hostile_index(hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> RunIndex:
    index = RunIndex(RunFolder(hostile), "run", tmp_path_factory.mktemp("cache"))
    index.update()
    return index


@pytest.fixture
async def hostile_pages(hostile_index: RunIndex) -> AsyncIterator[TestClient]:
    started = await client(hostile_index)
    yield started
    await started.close()


class _Elements(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(page: str) -> None:
    """No script but our own file, no event handler, no address of another machine, no character that controls."""
    for tag, attributes in _Elements(page).found:
        assert tag not in {"iframe", "img", "object", "embed", "base", "style", "foreignobject"}
        assert tag != "script" or attributes.get("src") == "/-/script.js"
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            assert (attributes.get(name) or "/").startswith("/") or attributes[name] == "#main"
            assert not (attributes.get(name) or "").startswith("//")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


async def test_each_page_is_harmless_and_has_the_headers(pages: TestClient, index: RunIndex) -> None:
    ids = index.scan().filter(pl.col("stage").is_not_null()).group_by("configuration").first().collect()
    assert ids.height == len(METHODS), "each method has a wrong question"
    urls = [question_url("run", row["configuration"], row["question_id"]) for row in ids.iter_rows(named=True)]
    for url in ("/", "/compare", "/?outcome=wrong&sort=calls", *urls, f"{urls[0]}?beside=run%2F3&step=1"):
        reply = await pages.get(url)
        assert reply.status == 200
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert_harmless(await reply.text())


async def test_a_stage_of_loss_says_what_did_not_happen(pages: TestClient) -> None:
    page = await (await pages.get("/?outcome=wrong")).text()
    for stage, text in STAGE_TEXTS.items():
        assert f'<option value="{stage}">{text.heading}</option>' in page
    named = re.findall("lost at: ([a-z ]+) <b>", page) + re.findall('<span class="stage">([a-z ]+)', page)
    assert set(named) <= {text.heading for text in STAGE_TEXTS.values()}
    assert len(named) > 2


async def test_a_page_that_was_opened_follows_new_scores_and_a_new_run(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    index = RunIndex(RunFolder(copy), "run", tmp_path / "cache")
    index.update()
    id = str(index.scan().select("question_id").first().collect().item())
    pages = await client(index)
    address = question_url("run", 0, id)
    assert "another question" not in await (await pages.get(address)).text()
    for shard in (copy / "traces").iterdir():
        rewrite_shard(shard, pl.read_parquet(shard).with_columns(pl.lit("another question").alias("question")))
    index.update()
    assert "another question" in await (await pages.get(address)).text()
    metadata = RunFolder(copy).require_run()
    RunFolder(copy).write_run({**metadata, "id": "0123456789abcdef", "note": "begun again"})
    index.update()
    assert index.metadata["note"] == "begun again"
    await pages.close()


async def test_shares_of_several_configurations_say_that_they_are_of_all(pages: TestClient) -> None:
    said = "several runs or configurations together"
    assert said in await (await pages.get("/")).text()
    assert said not in await (await pages.get("/?configuration=1")).text()


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "", "[::2]"]
)
async def test_another_host_name_is_refused(name: str, pages: TestClient) -> None:
    for path in ("/", "/state", "/-/script.js", "/run/0/sample-test-000000"):
        reply = await pages.get(path, headers={"Host": name})
        assert reply.status == 421
        assert "sample" not in await reply.text()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost:8377", "LOCALHOST", "[::1]:80", "[::1]"])
async def test_the_names_of_this_machine_are_answered(name: str, pages: TestClient) -> None:
    assert (await pages.get("/state", headers={"Host": name})).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_changed(method: str, pages: TestClient) -> None:
    reply = await pages.request(method, "/")
    assert reply.status == 405
    assert "Content-Security-Policy" in reply.headers


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/?nothing=1",
            "/?page=x",
            "/run/99/x",
            "/run/0/none",
            "/other/0/x",
            "/-/pages.py",
            "/-/..%2Fserver.py",
            "/x",
            "/run",
        ),
        *("/compare?a=x", "/run/0/sample-test-000000?beside=x", "/run/0/%00", "/run/x/y"),
    ],
)
async def test_what_is_not_there_is_a_page_that_says_so(path: str, pages: TestClient) -> None:
    reply = await pages.get(path)
    assert reply.status == 404
    text = await reply.text()
    assert "Traceback" not in text
    assert "To the list of questions" in text


async def test_the_open_step_is_that_of_the_address_or_the_one_that_lost_the_answer(
    pages: TestClient, index: RunIndex
) -> None:
    tog = METHODS.index("tog")
    row = index.scan().filter(configuration=tog, outcome="wrong").first().collect().row(0, named=True)
    trace = index.question(row["question_id"], tog)
    assert trace.loss is not None
    url = question_url("run", tog, row["question_id"])
    assert f">Step {trace.loss.step}: " in await (await pages.get(url)).text()
    page = await (await pages.get(f"{url}?step=0")).text()
    assert f">Step 0: <bdi>{trace.steps[0].role}</bdi>" in page
    assert html.escape(str(trace.loss)) in page
    assert page.count('class="box') > 5


async def test_hostile_texts_are_text(hostile_pages: TestClient, hostile_index: RunIndex) -> None:
    rows = hostile_index.scan().filter(configuration=0).collect()
    id, text = rows["question_id"][0], html.escape(HOSTILE.partition(" a")[0])
    shown = [
        *(
            "/",
            "/compare?show=all",
            f"/?text={quote(HOSTILE)}",
            f"/run/{quote(HOSTILE)}/x",
            f"/?stage={quote(HOSTILE)}",
        ),
        *(question_url("run", 0, id, step=step) for step in (0, 1, 2)),
        question_url("run", 0, id, beside="run/1", other_step=1),
    ]
    for url in shown:
        page = await (await hostile_pages.get(url)).text()
        assert_harmless(page)
        assert "49" not in re.findall(r"\b49\b", page) or "7 * 7" in page
    page = await (await hostile_pages.get(question_url("run", 0, id, step=1))).text()
    assert page.replace("&#34;", "&quot;").replace("&#39;", "&#x27;").count(text) > 5


async def test_a_long_completion_is_cut_until_all_is_asked_for(
    hostile_pages: TestClient, hostile_index: RunIndex
) -> None:
    id = hostile_index.scan().filter(configuration=LAST).first().collect()["question_id"][0]
    url = question_url("run", LAST, id, step=0)
    page = await (await hostile_pages.get(url)).text()
    assert f"The first {MOST_CHARACTERS:,} characters." in page
    assert len(page) < 10 * MOST_CHARACTERS
    assert f"Show all {len(HOSTILE) + LONG:,}" in page
    every = await (await hostile_pages.get(f"{url}&all=true")).text()
    assert "x" * LONG in every


async def test_new_shards_appear(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "growing"
    (folder / "traces").mkdir(parents=True)
    for name in ("run.yaml", "prompts"):
        (folder / name).symlink_to(run / name)
    (index,) = open_indexes([folder], tmp_path / "cache")
    pages = await client(index)
    try:
        assert "There is no question yet" in await (await pages.get("/")).text()
        shard = min((run / "traces").iterdir())
        (folder / "traces" / shard.name).write_bytes(shard.read_bytes())
        for _ in range(200):
            state = await (await pages.get("/state")).json()
            if state["rows"]:
                break
            await asyncio.sleep(0.1)
        rows = 4 * len(METHODS)
        assert state == {"rows": rows, "progress": f"{rows} not complete", "growing": True}
        page = await (await pages.get("/")).text()
        assert "sample-test-000000" in page
        assert f'data-state="{rows} not complete"' in page
    finally:
        await pages.close()


def test_runs_with_one_name_get_numbers(run: Path, tmp_path: Path) -> None:
    paths = [tmp_path / place / "run" for place in "abc"]
    for path in paths:
        path.parent.mkdir()
        path.symlink_to(run)
    assert [each.name for each in open_indexes(paths, tmp_path / "cache")] == ["run", "run-2", "run-3"]


async def test_the_application_ends_while_a_table_is_computed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (index,) = open_indexes([run], tmp_path / "cache")
    reached, held = threading.Event(), threading.Event()

    def slow(*_: object) -> Iterator[pl.DataFrame]:
        reached.set()
        held.wait(30)
        yield from ()

    monkeypatch.setattr(module, "_read_shard", slow)
    started = await client(index)
    assert await asyncio.to_thread(reached.wait, 30)
    closing = asyncio.create_task(started.close())
    await asyncio.sleep(0.1)
    held.set()
    await asyncio.wait_for(closing, 10)
    assert index.state.shards < index.state.finished, "it did not go on with the other shards"


async def test_a_comparison_without_a_common_question_says_why(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    for shard in (copy / "traces").iterdir():
        renamed = pl.col("question_id") + pl.when(pl.col("point") == 1).then(pl.lit("-other")).otherwise(pl.lit(""))
        rewrite_shard(shard, pl.read_parquet(shard).with_columns(renamed))
    index = RunIndex(RunFolder(copy), "run", tmp_path / "cache")
    index.update()
    pages = await client(index)
    reason = "No question has been answered in both: they have other questions"
    assert reason in await (await pages.get("/compare?a=run/0&b=run/1")).text()
    assert reason not in await (await pages.get("/compare?a=run/0&b=run/2")).text()
    assert "No question with this text." in await (await pages.get("/compare?a=run/0&b=run/2&text=unknown")).text()
    await pages.close()


async def test_a_comparison_of_other_questions_and_another_graph_says_so(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    is_other = (pl.col("point") == 1) & (pl.col("question_id") == pl.col("question_id").min())
    edited = pl.when(is_other).then(pl.lit("another question")).otherwise(pl.col("question")).alias("question")
    shard = sorted((copy / "traces").iterdir())[0]
    rewrite_shard(shard, pl.read_parquet(shard).with_columns(edited))
    metadata = yaml.safe_load((copy / "run.yaml").read_text())
    metadata["served"][2]["graph"] = "another"
    (copy / "run.yaml").write_text(yaml.safe_dump(metadata))
    index = RunIndex(RunFolder(copy), "run", tmp_path / "cache")
    index.update()
    pages = await client(index)
    questions = "1 question has another text or other gold answers in B."
    assert questions in await (await pages.get("/compare?a=run/0&b=run/1")).text()
    graph = await (await pages.get("/compare?a=run/0&b=run/2")).text()
    assert "the two asked different graphs." in graph
    assert questions not in graph
    assert 'class="notice"' not in await (await pages.get("/compare?a=run/0&b=run/3")).text()
    await pages.close()
