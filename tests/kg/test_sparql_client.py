"""Balancing, failover, probes, hedging and refused queries, with scripted HTTP servers."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from pipeline.config import conf_dir
from pipeline.errors import ServiceError, UserError
from pipeline.kg import sparql_client
from pipeline.kg.results import MEDIA_TYPE, Select
from pipeline.kg.sparql_client import SparqlClient, check_endpoints
from pipeline.net import replicated_client
from pipeline.net.server import Server
from tests.support import until

RESULT = '"x"\n1\n'
QUERY = Select("q", ("x",), 10, (None,))


@dataclass
class Replica:
    """A server with scripted responses."""

    name: str
    status: int = 200
    text: str = RESULT
    content_type: str = MEDIA_TYPE
    body: bytes | None = None
    """Sent in place of the text."""
    delay: float = 0.0
    gate: asyncio.Event | None = None
    """Queries wait for it; probes do not."""
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    """Not even probes are answered."""
    closes: bool = False
    """Connections are closed without a reply."""
    fails: bool = False
    """All queries are answered with status 500, also probes."""
    asked: int = 0
    probed: int = 0
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        query = (await request.post())["query"]
        if self.hangs:
            await asyncio.sleep(3600)
        if self.closes:
            assert request.transport
            request.transport.close()
        if query == sparql_client._PROBE.text:
            self.probed += 1
            return web.Response(text=RESULT, content_type=MEDIA_TYPE, status=500 if self.fails else 200)
        self.asked += 1
        if self.gate:
            await self.gate.wait()
        await asyncio.sleep(self.delay)
        if self.fails:
            return web.Response(text=self.text, status=500)
        headers = {"Content-Type": self.content_type, **self.headers}
        if self.body is not None:
            return web.Response(status=self.status, body=self.body, headers=headers)
        return web.Response(status=self.status, text=self.text, headers=headers)


ReplicaFactory = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def replica() -> AsyncIterator[ReplicaFactory]:
    servers: list[TestServer] = []

    async def start(name: str, *, port: int | None = None, **options: Any) -> Replica:
        one = Replica(name, **options)
        app = web.Application()
        app.router.add_post("/sparql", one.answer)
        server = TestServer(app, port=port)
        servers.append(server)
        await server.start_server(shutdown_timeout=0.1)
        one.url = str(server.make_url("/sparql"))
        return one

    yield start
    await asyncio.gather(*(server.close() for server in servers))


BACKOFF_S, PROBE_INTERVAL_S = sparql_client._BACKOFF_S, sparql_client._PROBE_INTERVAL_S
"""Read before the fixture makes the pauses shorter."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use short pauses."""
    monkeypatch.setattr(sparql_client, "_BACKOFF_S", (0.01, 0.05))
    monkeypatch.setattr(sparql_client, "_PROBE_INTERVAL_S", 0.02)
    monkeypatch.setattr(sparql_client, "_PROBE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(replicated_client, "_FIRST_HEDGE_S", 0.1)


def pool(
    *urls: str,
    max_inflight: int = 8,
    timeout_s: float = 5,
    retries: int = 8,
    hedge: float | None = None,
    max_reply_mb: float = 1,
) -> SparqlClient:
    return SparqlClient(
        urls,
        max_inflight=max_inflight,
        timeout_s=timeout_s,
        retries=retries,
        hedge=hedge,
        max_reply_mb=max_reply_mb,
    )


async def test_requests_go_to_the_server_with_the_fewest_outstanding_requests(replica: ReplicaFactory) -> None:
    gate = asyncio.Event()
    one, two = await replica("one", gate=gate), await replica("two", gate=gate)
    async with pool(one.url, two.url) as both:
        asking = [asyncio.create_task(both.ask(QUERY)) for _ in range(12)]
        await until(lambda: one.asked + two.asked == 12)
        assert (one.asked, two.asked) == (6, 6)
        gate.set()
        replies = await asyncio.gather(*asking)
    assert {reply.endpoint for reply in replies} == {one.url, two.url}


async def test_the_number_of_concurrent_requests_is_limited(replica: ReplicaFactory) -> None:
    gate = asyncio.Event()
    one = await replica("one", gate=gate)
    async with pool(one.url, max_inflight=3) as alone:
        asking = [asyncio.create_task(alone.ask(QUERY)) for _ in range(9)]
        await asyncio.sleep(0.1)
        assert one.asked == 3
        gate.set()
        await asyncio.gather(*asking)
    assert one.asked == 9


async def test_a_dead_server_loses_no_answer_and_is_used_again_after_recovery(replica: ReplicaFactory) -> None:
    port = unused_port()
    one = await replica("one")
    dead = f"http://127.0.0.1:{port}/sparql"
    async with pool(one.url, dead) as both:
        assert [endpoint.healthy for endpoint in both.servers] == [True, False]
        replies = await asyncio.gather(*(both.ask(QUERY) for _ in range(20)))
        assert {reply.endpoint for reply in replies} == {one.url}
        back = await replica("back", port=port)
        await until(lambda: both.servers[1].healthy)
        await asyncio.gather(*(both.ask(QUERY) for _ in range(20)))
    assert back.asked


async def test_requests_survive_an_outage_of_all_servers(
    replica: ReplicaFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparql_client, "_BACKOFF_S", (0.05, 5.0))
    port = unused_port()
    one = await replica("one", status=503)
    async with pool(one.url, f"http://127.0.0.1:{port}/sparql", retries=8) as both:
        asking = [asyncio.create_task(both.ask(QUERY)) for _ in range(5)]
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in asking)
        await replica("two", port=port)
        assert len(await asyncio.wait_for(asyncio.gather(*asking), 20)) == 5


async def test_a_server_error_is_retried_on_another_server(replica: ReplicaFactory) -> None:
    broken, sound = (
        await replica("broken", status=500, text="Virtuoso 40001 Error SR172: deadlock"),
        await replica("ok"),
    )
    async with pool(broken.url, sound.url) as both:
        for _ in range(8):
            assert (await both.ask(QUERY)).endpoint == sound.url
    assert broken.asked


async def ask_until_set_aside(both: SparqlClient, sound: Replica) -> None:
    """Ask until the first of two servers is unhealthy. The second one must answer every query."""
    for _ in range(50):
        assert (await both.ask(QUERY)).endpoint == sound.url
        if not both.servers[0].healthy:
            return
    raise AssertionError("the first server is still asked")


@pytest.mark.parametrize("status", [503, 507])
async def test_a_server_that_fails_several_queries_is_set_aside(replica: ReplicaFactory, status: int) -> None:
    broken, sound = await replica("broken", status=status), await replica("ok")
    async with pool(broken.url, sound.url) as both:
        await ask_until_set_aside(both, sound)
        assert broken.asked == 3
        assert both.servers[0].problem.startswith(f"{broken.url} answered {status}")


@pytest.mark.parametrize("text", ["Internal Server Error", "Virtuoso 08C04 Error CL...: no connection"])
async def test_a_server_that_answers_500_to_all_queries_is_set_aside(replica: ReplicaFactory, text: str) -> None:
    broken, sound = await replica("broken"), await replica("ok")
    async with pool(broken.url, sound.url) as both:
        broken.fails, broken.text = True, text
        await ask_until_set_aside(both, sound)
        assert both.servers[0].problem == "status 500"
        assert broken.asked == 1
        broken.fails = False
        await until(lambda: both.servers[0].healthy)


async def test_a_server_that_answers_500_to_one_query_stays(replica: ReplicaFactory) -> None:
    odd = await replica("odd", status=500, text="no such function")
    async with pool(odd.url, retries=3) as alone:
        with pytest.raises(ServiceError, match="no such function"):
            await alone.ask(QUERY)
        assert alone.servers[0].healthy
    assert odd.asked == 4


async def test_a_server_that_closes_every_connection_is_set_aside(replica: ReplicaFactory) -> None:
    broken, sound = await replica("broken"), await replica("ok")
    async with pool(broken.url, sound.url) as both:
        broken.closes = True
        await ask_until_set_aside(both, sound)
        assert both.servers[0].problem == "ServerDisconnectedError: Server disconnected"
        broken.closes = False
        await until(lambda: both.servers[0].healthy)


async def test_a_permanent_failure_is_reported_with_the_servers_message(replica: ReplicaFactory) -> None:
    broken = await replica("broken", status=500, text="Virtuoso 40001 Error SR172: deadlock")
    async with pool(broken.url, retries=3) as alone:
        with pytest.raises(ServiceError, match="SR172"):
            await alone.ask(QUERY)
    assert broken.asked == 4


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "Virtuoso 37000 Error SP030: SPARQL compiler, line 1: syntax error"),
        (500, "Virtuoso 22023 Error SR353: Sorted TOP clause specifies more then 17000 rows to sort."),
        (401, "who are you?"),
    ],
)
async def test_a_refused_query_is_sent_to_each_server_once(replica: ReplicaFactory, status: int, text: str) -> None:
    one, two = await replica("one", status=status, text=text), await replica("two", status=status, text=text)
    async with pool(one.url, two.url) as both:
        with pytest.raises(ServiceError, match=text[:20]):
            await both.ask(QUERY)
        assert all(endpoint.healthy for endpoint in both.servers)
    assert (one.asked, two.asked) == (1, 1)


async def test_a_procedure_that_is_just_being_created_is_asked_for_again(replica: ReplicaFactory) -> None:
    text = "Virtuoso 42000 Error SR186:SECURITY: No permission to execute procedure DB.DBA.SPARQL_BINDINGS_VIEW_C_2_IMP"
    new = await replica("new", status=500, text=text)
    async with pool(new.url, retries=3) as alone:
        with pytest.raises(ServiceError, match="SR186"):
            await alone.ask(QUERY)
    assert new.asked == 4


async def test_a_hung_server_is_unhealthy_until_it_answers_probes(replica: ReplicaFactory) -> None:
    hung, sound = await replica("hung"), await replica("sound")
    async with pool(hung.url, sound.url, timeout_s=0.2) as both:
        hung.hangs = True
        replies = await asyncio.gather(*(both.ask(QUERY) for _ in range(10)))
        assert {reply.endpoint for reply in replies} == {sound.url}
        assert not both.servers[0].healthy
        hung.hangs = False
        await until(lambda: both.servers[0].healthy)


async def test_requests_survive_a_time_in_which_all_servers_hang(replica: ReplicaFactory) -> None:
    hung = [await replica("one"), await replica("two")]
    async with pool(*(one.url for one in hung), timeout_s=0.1) as both:
        for one in hung:
            one.hangs = True
        asking = [asyncio.create_task(both.ask(QUERY)) for _ in range(10)]
        await until(lambda: not any(endpoint.healthy for endpoint in both.servers))
        for one in hung:
            one.hangs = False
        assert len(await asyncio.gather(*asking)) == 10


async def test_a_recovered_server_that_fails_the_admission_check_gets_no_requests(
    replica: ReplicaFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replicated_client, "_REJECTED_RECHECK_S", 0.02)
    port = unused_port()
    one = await replica("one")
    compatible: set[str] = set()

    async def incompatibility(server: Server) -> str | None:
        return None if server.url in compatible else "it holds another graph"

    async with pool(one.url, f"http://127.0.0.1:{port}/sparql", retries=2) as both:
        both.admit_by(incompatibility, both.healthy_servers)
        two = await replica("two", port=port)
        await until(lambda: "stays unhealthy: it holds another graph" in caplog.text)
        assert {(await both.ask(QUERY)).endpoint for _ in range(20)} == {one.url}
        both.mark_unhealthy(both.servers[0], "it is down")
        with pytest.raises(ServiceError, match=f"{two.url} is unhealthy: it holds another graph"):
            await both.ask(QUERY)
        assert not two.asked, "not even when it is the only one"
        compatible.add(two.url)
        await until(lambda: both.servers[1].healthy)
        assert (await both.ask(QUERY)).endpoint == two.url


async def test_a_query_that_is_too_slow_on_two_servers_is_not_retried(replica: ReplicaFactory) -> None:
    one, two = await replica("one", delay=30), await replica("two", delay=30)
    async with pool(one.url, two.url, timeout_s=0.1) as both:
        with pytest.raises(ServiceError, match=r"did not answer within kg\.timeout_s="):
            await both.ask(QUERY)
    assert one.asked + two.asked == 2


async def test_a_slow_request_is_hedged(replica: ReplicaFactory) -> None:
    slow, fast = await replica("slow", gate=asyncio.Event()), await replica("fast")
    async with pool(slow.url, fast.url, hedge=0.9) as both:
        replies = await asyncio.wait_for(asyncio.gather(*(both.ask(QUERY) for _ in range(24))), 10)
        assert {reply.endpoint for reply in replies} == {fast.url}
        assert slow.asked, "each query has chosen one of both at random"
        assert not both.servers[0].outstanding


async def test_the_hedging_delay_is_a_quantile_of_the_latencies(replica: ReplicaFactory) -> None:
    one, two = await replica("one"), await replica("two")
    async with pool(one.url, two.url, hedge=0.9) as both:
        for _ in range(300):
            await both.ask(QUERY)
        both._latencies.extend(range(200))
        assert both._hedge_delay(0.9) == 179
        assert both._hedge_delay(0.5) == 99


async def test_without_hedging_a_slow_request_is_sent_once(replica: ReplicaFactory) -> None:
    one, two = await replica("one", delay=0.3), await replica("two", delay=0.3)
    async with pool(one.url, two.url, hedge=None) as both:
        await both.ask(QUERY)
    assert one.asked + two.asked == 1


async def test_headers_of_incomplete_results_are_read() -> None:
    async def answer(request: web.Request) -> web.Response:
        mark = str((await request.post())["query"])
        headers = {mark: "1"} if mark.startswith("X-") else {}
        return web.Response(text=RESULT, content_type=MEDIA_TYPE, headers=headers)

    app = web.Application()
    app.router.add_post("/sparql", answer)
    async with TestServer(app) as server, pool(str(server.make_url("/sparql"))) as alone:
        cut, late, whole = [
            await alone.ask(replace(QUERY, text=text)) for text in ("X-SPARQL-MaxRows", "X-SQL-State", "q")
        ]
    assert [(reply.row_limit_hit, reply.time_limit_hit) for reply in (cut, late, whole)] == [
        (True, False),
        (False, True),
        (False, False),
    ]


async def test_it_is_a_user_error_if_no_server_answers() -> None:
    with pytest.raises(UserError, match="kgqa graph serve"):
        await pool(f"http://127.0.0.1:{unused_port()}/sparql").__aenter__()


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("127.0.0.1:8890/sparql", "is not a URL"),
        ("ftp://127.0.0.1/sparql", "is not a URL"),
        ("dba:secret@127.0.0.1:8890/sparql", "is not a URL"),
        ("http://dba:secret@127.0.0.1:8890/sparql", "VIRTUOSO_PASSWORD"),
        ("http://127.0.0.1:8890/sparql?access_token=secret", "VIRTUOSO_PASSWORD"),
    ],
)
def test_invalid_urls_are_refused(url: str, fix: str) -> None:
    with pytest.raises(UserError, match=fix) as error:
        check_endpoints([url])
    assert "secret" not in str(error.value)


async def test_a_cancelled_request_is_no_longer_outstanding(replica: ReplicaFactory) -> None:
    one = await replica("one", gate=asyncio.Event())
    async with pool(one.url, hedge=0.5) as alone:
        asking = asyncio.create_task(alone.ask(QUERY))
        await until(lambda: one.asked)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.sleep(0.01)
        assert alone.servers[0].outstanding == 0


LIES = {
    "a page": {"text": "<html><body>Welcome</body></html>", "content_type": "text/html"},
    "a page as a table": {"text": "<html>\n<body>Welcome</body>\n</html>\n"},
    "no table": {"text": RESULT, "content_type": "application/json"},
    "nothing": {"text": ""},
    "other columns": {"text": '"y"\n1\n'},
    "a damaged row": {"text": '"x"\n"1\n'},
    "too many rows": {"text": RESULT + 20 * "1\n"},
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_server_that_sends_something_else_is_not_believed(replica: ReplicaFactory, lie: str) -> None:
    sound, liar = await replica("sound"), await replica("liar", **LIES[lie])
    async with pool(sound.url, liar.url) as both:
        replies = await asyncio.gather(*(both.ask(QUERY) for _ in range(20)))
        assert {reply.endpoint for reply in replies} == {sound.url}
        assert both.servers[1].failures == liar.asked > 0
    async with pool(liar.url, retries=0) as alone:
        with pytest.raises(ServiceError, match=f"{liar.url} sent"):
            await alone.ask(QUERY)


async def test_a_server_that_sends_a_page_at_the_start_is_named(replica: ReplicaFactory) -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<html></html>", content_type="text/html")

    app = web.Application()
    app.router.add_post("/sparql", page)
    async with TestServer(app) as server:
        url = str(server.make_url("/sparql"))
        with pytest.raises(UserError, match=f"no graph server answers at {url} .it sent text/html"):
            await pool(url).__aenter__()
        sound = await replica("sound")
        async with pool(sound.url, url) as both:
            assert both.servers[1].problem == "it sent text/html and not text/tab-separated-values"


@pytest.mark.parametrize("rejected", [0, 1, None])
async def test_results_of_two_servers_are_compared_by_sample(
    replica: ReplicaFactory, monkeypatch: pytest.MonkeyPatch, rejected: int | None
) -> None:
    """A server that leaves rows out is found by its results, and rejected by the admission check."""
    monkeypatch.setattr(sparql_client, "_COMPARE_EVERY", 5)
    whole, partial = await replica("whole"), await replica("partial", text='"x"\n')
    async with pool(whole.url, partial.url) as both:

        async def admission(server: Server) -> str | None:
            return "it holds another graph" if rejected is not None and server is both.servers[rejected] else None

        both.admit_by(admission, both.servers)
        for _ in range(4):
            await both.ask(QUERY)
        if rejected is None:  # nobody knows which result is right
            with pytest.raises(ServiceError, match="different results for the same query"):
                await both.ask(QUERY)
        else:
            assert (await both.ask(QUERY)).endpoint == both.servers[1 - rejected].url
            assert not both.servers[rejected].healthy


async def test_equal_results_of_two_servers_are_no_problem(
    replica: ReplicaFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparql_client, "_COMPARE_EVERY", 5)
    one, two = await replica("one"), await replica("two")
    async with pool(one.url, two.url) as both:
        for _ in range(10):
            await both.ask(QUERY)
    assert one.asked + two.asked == 12


async def test_a_result_above_the_limit_is_asked_for_twice_and_fails_only_its_query(replica: ReplicaFactory) -> None:
    one, two = await replica("one", text="x" * 2_000_000), await replica("two", text="x" * 2_000_000)
    async with pool(one.url, two.url) as both:
        with pytest.raises(ServiceError, match=r"did not keep its answer below kg\.max_reply_mb=1"):
            await both.ask(QUERY)
        assert one.asked + two.asked == 2
        assert all(server.healthy for server in both.servers)
        one.text = two.text = RESULT
        assert (await both.ask(QUERY)).rows == [("1",)]


async def test_a_small_body_that_is_large_when_decoded_is_not_read(replica: ReplicaFactory) -> None:
    one = await replica("one", body=gzip.compress(b"x" * 2_000_000), headers={"Content-Encoding": "gzip"})
    async with pool(one.url) as alone:
        with pytest.raises(ServiceError, match=r"kg\.max_reply_mb=1"):
            await alone.ask(QUERY)


async def test_a_server_that_asks_for_a_pause_gets_no_queries_and_the_other_one_all(replica: ReplicaFactory) -> None:
    resting = await replica("one", status=503, headers={"Retry-After": "86400"})
    other = await replica("two")
    async with pool(resting.url, other.url, retries=0) as both:
        both._policy = replace(both._policy, max_backoff_s=60)
        replies = [await both.ask(QUERY) for _ in range(20)]
    assert {reply.endpoint for reply in replies} == {other.url}
    assert resting.asked <= 1


def test_the_comment_on_retries_states_the_thresholds_of_the_client() -> None:
    text = " ".join((conf_dir() / "kg/sparql.yaml").read_text().replace("\n# ", " ").split())
    first, longest = BACKOFF_S
    assert f"The pauses between rounds double from {first} to {longest:g} seconds" in text
    assert (sparql_client._MAX_FAILURES, PROBE_INTERVAL_S) == (3, 0.5)
    assert "unhealthy after three failures in a row, and is probed every half second" in text
