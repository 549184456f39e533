"""Checks of model servers and graph servers: each finding with its fix."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from pipeline import config
from pipeline.engine.doctor.finding import Finding
from pipeline.engine.doctor.graphs import graphs, node_search
from pipeline.engine.doctor.models import models
from pipeline.methods.arg.tokens import CLASSES
from pipeline.types import Triple
from tests.engine.doctor.support import point, worst
from tests.llm.conftest import FakeOpenAIServer

FACTS = [Triple(f"m.{number}", "a.b", f"m.{number + 1}") for number in range(40)]
TOKENS = [token for members in CLASSES.values() for token in members]
ARG = ("method=arg", "llm.approximate_choices=false")
LETTERS = {"A": 65, "B": 66}


def at(*servers: FakeOpenAIServer) -> list[str]:
    return ["llm=endpoint", f"llm.base_urls=[{','.join(server.url for server in servers)}]"]


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level for finding in findings]


def weighing(*, hides: bool = False, ids: bool = True) -> Any:
    """A server that reports the log-probabilities of listed tokens, if it knows ids, and may hide special tokens."""

    async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        listed = body.get("logprob_token_ids") if ids else None
        text = "" if hides and "allowed_token_ids" in body else "A"
        reported = [{"token": f"token_id:{id}", "logprob": -1.0} for id in listed or ()]
        content = [{"token": "A", "logprob": -1.0, "top_logprobs": reported}]
        return await FakeOpenAIServer.say(text, logprobs={"content": content})(request, body)

    return behave


class TestModels:
    async def test_a_good_server(self, server: FakeOpenAIServer) -> None:
        server.cards[0]["max_model_len"] = 8192
        server.vocabulary, server.default = LETTERS, weighing()
        found = await models(point(*at(server)))
        assert levels(found) == ["ok", "ok"]
        assert found[0].found.startswith("up, serves llama, a trivial call took 0.")
        assert found[0].found.endswith(" s, context of 8,192 tokens")
        assert found[1].found == "computes exact probabilities of choices"

    async def test_one_of_two_is_down(self, servers: list[FakeOpenAIServer]) -> None:
        up, down, _ = servers
        await down.stop()
        level, found, fix = worst(await models(point(*at(up, down))))
        assert (level, found) == ("problem", "it cannot be used")
        assert fix.endswith("start one there, or set llm.base_urls to a running one")
        await down.start()

    async def test_a_server_that_lists_its_models_and_fails(self, server: FakeOpenAIServer) -> None:
        server.default = FakeOpenAIServer.fail(500, "CUDA out of memory")
        level, found, fix = worst(await models(point(*at(server))))
        assert level == "problem"
        assert fix == "See its log. Restart it, or try again later if it only has too many requests."
        assert "CUDA out of memory" in found

    async def test_a_server_that_lists_its_models_and_refuses_the_key(
        self, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MY_KEY", "wrong")
        server.default = FakeOpenAIServer.fail(401, "invalid api key")
        level, found, fix = worst(await models(point(*at(server), "llm.api_key_env=MY_KEY")))
        assert (level, found) == ("problem", "it cannot be used")
        assert fix.endswith("answered 401: invalid api key; put a valid key into the variable MY_KEY")

    async def test_a_key_with_a_line_break_names_its_variable(
        self, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MY_KEY", "sk-first\nsk-second")
        _, _, fix = worst(await models(point(*at(server), "llm.api_key_env=MY_KEY")))
        assert fix == "the environment variable MY_KEY is no API key: it has a line break inside"

    async def test_servers_of_different_models(self, servers: list[FakeOpenAIServer]) -> None:
        one, other, _ = servers
        other.cards = [{"id": "llama", "root": "other-checkpoint"}]
        level, found, fix = worst(await models(point(*at(one, other))))
        assert (level, fix) == ("problem", "Name servers of one model in llm.base_urls.")
        assert "other-checkpoint" in found

    async def test_the_model_of_a_role_is_checked_too(self, servers: list[FakeOpenAIServer]) -> None:
        one, other, _ = servers
        words = [*at(one), f"llm.roles={{parog.plan: {{base_urls: ['{other.url}'], model: planner}}}}"]
        level, _, fix = worst(await models(point("method=parog", *words)))
        assert level == "problem"
        assert fix.startswith(f"{other.url} serves llama, not llm.model=planner")

    async def test_exact_choices_that_are_needed_and_not_available(self, server: FakeOpenAIServer) -> None:
        server.vocabulary = LETTERS | {token: 1000 + n for n, token in enumerate(TOKENS)}
        server.default = weighing(ids=False)
        level, found, fix = worst(await models(point(*ARG, "method.probabilities=exact", *at(server))))
        assert (level, found) == (
            "problem",
            "it cannot compute exact probabilities of choices, which method.probabilities=exact needs",
        )
        assert "serve the model with a vLLM that supports logprob_token_ids" in fix

    async def test_exact_choices_that_are_not_needed(self, server: FakeOpenAIServer) -> None:
        found = await models(point(*at(server)))
        assert levels(found) == ["ok", "ok"]
        assert "which this method does not need" in found[1].found

    async def test_estimated_choices_are_labelled(self, server: FakeOpenAIServer) -> None:
        server.default = weighing()
        found = await models(point(*at(server), "llm.approximate_choices=true"))
        assert "estimates the probabilities" in found[1].found

    async def test_reflection_tokens_that_are_one_token_each(self, server: FakeOpenAIServer) -> None:
        server.vocabulary, server.default = LETTERS | {token: 1000 + n for n, token in enumerate(TOKENS)}, weighing()
        found = await models(point(*ARG, *at(server)))
        assert found[-1] == Finding("ok", found[-1].subject, "each of ArG's 17 reflection tokens is one token")
        held = [body["allowed_token_ids"] for body in server.bodies if "allowed_token_ids" in body]
        assert held == [[1000]]

    async def test_reflection_tokens_that_are_several_tokens(self, server: FakeOpenAIServer) -> None:
        server.vocabulary, server.default = LETTERS | dict.fromkeys(TOKENS[2:], 1000), weighing()
        assert worst(await models(point(*ARG, *at(server)))) == (
            "problem",
            "2 of ArG's 17 reflection tokens are several tokens for it: [Retrieve Relation] is 19, "
            "[Retrieve Entity] is 17",
            "Serve a model that was trained on these tokens, or set method.generator=prompted.",
        )
        assert levels(await models(point(*ARG, "method.generator=prompted", *at(server)))) == ["ok", "ok"]

    async def test_reflection_tokens_that_are_omitted_from_replies(self, server: FakeOpenAIServer) -> None:
        server.vocabulary = LETTERS | {token: 1000 + n for n, token in enumerate(TOKENS)}
        server.default = weighing(hides=True)
        level, _, fix = worst(await models(point(*ARG, *at(server))))
        assert (level, fix) == ("problem", "Set llm.extra_body={skip_special_tokens: false}.")

    async def test_a_server_that_does_not_report_its_tokens(
        self, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def refuse(self: object, request: web.Request) -> web.Response:
            await request.read()
            return web.Response(status=404, body=orjson.dumps({"detail": "Not Found"}))

        await server.stop()
        monkeypatch.setattr(FakeOpenAIServer, "_tokenize", refuse)
        await server.start()
        level, found, fix = worst(await models(point(*ARG, *at(server))))
        assert (level, fix) == ("warning", "Serve the model on vLLM, whose /tokenize reports it.")
        assert found.startswith("it does not report whether ArG's 17 reflection tokens are in its vocabulary")

    async def test_a_llama_in_this_process(self, llama: Path) -> None:
        found = await models(point(*ARG[:1], "llm=embedded", f"llm.model={llama}"))
        assert levels(found) == ["ok", "ok", "ok"]
        assert re.fullmatch(
            r"up, serves llama@\w{8}, a trivial call took \d\.\d\d s, context of 8,192 tokens", found[0].found
        )
        assert found[1].found == "computes exact probabilities of choices"
        assert found[2].found == "each of ArG's 17 reflection tokens is one token"

    async def test_a_llama_in_this_process_whose_reflection_tokens_are_special(
        self, llama: Path, tmp_path: Path
    ) -> None:
        folder = Path(shutil.copytree(llama, tmp_path / "special"))
        tokenizer = orjson.loads((folder / "tokenizer.json").read_bytes())
        for token in tokenizer["added_tokens"]:
            token["special"] = True
        (folder / "tokenizer.json").write_bytes(orjson.dumps(tokenizer))
        level, found, _ = worst(await models(point(*ARG[:1], "llm=embedded", f"llm.model={folder}")))
        assert level == "problem"
        assert "omits reflection tokens from its replies" in found

    async def test_a_missing_llama(self) -> None:
        level, found, fix = worst(await models(point("llm=embedded", "llm.model=nowhere")))
        assert (level, found) == ("problem", "it cannot be used")
        assert fix.startswith("llm.model=nowhere is not a folder on this machine")

    async def test_a_simulated_model_is_labelled(self) -> None:
        (finding,) = await models(point("llm=oracle"))
        assert finding.found == "oracle: no language model, answers in this process"


def asking(*endpoints: Any) -> list[str]:
    return ["kg=sparql", f"kg.endpoints=[{','.join(endpoint.url for endpoint in endpoints)}]"]


class TestGraphs:
    async def test_the_graph_of_the_dataset(self) -> None:
        (finding,) = await graphs(point())
        assert finding.level == "ok"
        assert "fingerprint 2" in finding.found

    async def test_a_good_server(self, oxigraph_endpoint: Any) -> None:
        first, second = await graphs(point(*asking(await oxigraph_endpoint(FACTS))))
        assert (first.level, second.level) == ("ok", "ok")
        assert first.found.startswith("up, 40 facts, fingerprint 40-")
        assert "query style values, 10,000 rows a query" in first.found
        assert second.found == "SPARQLWrapper reads it too"

    @pytest.mark.parametrize(
        ("status", "text", "found"),
        [
            (406, "only tables here", "SPARQLWrapper fails: HTTPError"),
            (200, '"yes"', "SPARQLWrapper fails: TypeError"),
            (200, '{"boolean": false}', "SPARQLWrapper gets no fact"),
        ],
    )
    async def test_a_server_that_other_programs_cannot_read(
        self, status: int, text: str, found: str, oxigraph_endpoint: Any
    ) -> None:
        async def fault(query: str) -> web.Response | None:
            return web.Response(status=status, text=text) if "ASK" in query else None

        assert worst(await graphs(point(*asking(await oxigraph_endpoint(FACTS, fault=fault))))) == (
            "warning",
            found,
            "Runs do not need it; scripts of your own that use it will fail as well.",
        )

    async def test_servers_that_hold_different_facts(self, oxigraph_endpoint: Any) -> None:
        one, other = await oxigraph_endpoint(FACTS), await oxigraph_endpoint(FACTS[1:])
        level, found, fix = worst(await graphs(point(*asking(one, other))))
        assert (level, fix) == ("problem", "Load them all from one database (kgqa graph serve).")
        assert f"at {one.url}" in found

    async def test_a_server_that_truncates_results(self, oxigraph_endpoint: Any) -> None:
        assert worst(await graphs(point(*asking(await oxigraph_endpoint(FACTS, max_rows=30))))) == (
            "warning",
            "it truncates results at 30 rows, so large results take several queries",
            "Set ResultSetMaxRows in its virtuoso.ini to 10000 or more.",
        )

    async def test_a_server_that_is_up_and_fails(self, oxigraph_endpoint: Any) -> None:
        async def fault(query: str) -> web.Response | None:
            return web.Response(status=400, text="no space left") if "GROUP BY" in query else None

        level, found, fix = worst(await graphs(point(*asking(await oxigraph_endpoint(FACTS, fault=fault)))))
        assert (level, fix) == ("problem", "See its log: it must answer this machine.")
        assert "no space left" in found

    async def test_a_query_style_that_the_server_answers_wrongly(self, oxigraph_endpoint: Any) -> None:
        async def fault(query: str) -> web.Response | None:
            return web.Response(status=400, text="VALUES is unknown") if "VALUES" in query else None

        words = [*asking(await oxigraph_endpoint(FACTS, fault=fault)), "kg.values_style=values"]
        assert worst(await graphs(point(*words))) == (
            "problem",
            "it answers queries of the style values wrongly or too slowly",
            "Set kg.values_style=auto, which selects filter_in.",
        )


class TestNodeSearch:
    """The search over the nodes of a GRBench graph."""

    @pytest.fixture
    def words(self, tmp_path: Path) -> list[str]:
        nodes = {f"p{number}": {"features": {"title": f"Paper {number}"}, "neighbors": {}} for number in range(200)}
        graph = tmp_path / "dblp" / "graph.json"
        graph.parent.mkdir()
        graph.write_bytes(orjson.dumps({"paper_nodes": nodes}))
        found = ["kg=grbench", f"kg.path={graph}", "kg.domain=dblp", "retrieval=lexical"]
        return [*found, f"retrieval.cache_dir={tmp_path}/cache"]

    @pytest.mark.parametrize(
        ("exact_up_to", "expected"),
        [
            (200, "exact, over 200 nodes"),
            (
                199,
                "approximate, over 200 nodes: recall@1 1.000, recall@10 1.000 against exact search with 200 shortened",
            ),
        ],
    )
    async def test_says_what_is_stored(self, words: list[str], exact_up_to: int, expected: str) -> None:
        configuration = point(*words, f"retrieval.exact_up_to={exact_up_to}")
        (before,) = await node_search(configuration)
        assert before.found == "no index is stored: the first search encodes the texts of all nodes"
        async with config.build("kg", configuration.config) as graph:
            await config.build("retrieval", configuration.config).for_graph(graph).nodes("Paper 7", 1)
        (after,) = await node_search(configuration)
        assert (after.level, after.found[: len(expected)]) == ("ok", expected)

    async def test_a_low_recall_is_a_warning(self, words: list[str], tmp_path: Path) -> None:
        configuration = point(*words, "retrieval.exact_up_to=0")
        async with config.build("kg", configuration.config) as graph:
            await config.build("retrieval", configuration.config).for_graph(graph).nodes("Paper 7", 1)
        (file,) = tmp_path.rglob("recall.json")  # noqa: ASYNC240
        file.write_bytes(orjson.dumps({"probes": 1, "at_1": 0.5, "at_10": 0.4, "queries": 200}))
        assert worst(await node_search(configuration))[0] == "warning"
        assert worst(await node_search(configuration))[2] == (
            "Set retrieval.exact_up_to=200 for exact search, if memory allows."
        )

    async def test_other_graphs_have_none(self) -> None:
        assert await node_search(point()) == []
