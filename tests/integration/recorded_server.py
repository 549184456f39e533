"""A test double for a model server: an OpenAI-compatible endpoint that replies to each prompt as an earlier run did.

It is started as a process of its own and outlives the runs that are killed, so its log counts what they really asked:
one line per request, the hash of the messages. `python recorded_server.py REPLIES LOG [LATENCY_S]` prints its port.
REPLIES is a file that `write_replies` has written: the server starts without importing the pipeline.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import sys
from pathlib import Path

import orjson
from aiohttp import web


def prompt_hash(messages: list[dict[str, str]]) -> str:
    """One hash per prompt text, whoever sends it."""
    return hashlib.sha256(orjson.dumps([[m["role"], m["content"]] for m in messages])).hexdigest()


def write_replies(run: Path, file: Path) -> Path:
    """Write the reply to each prompt of a run to a file, and return the file."""
    import polars as pl

    from pipeline.traces.folder import RunFolder
    from pipeline.traces.reader import RecordedCalls

    recorded = RecordedCalls(run)
    questions = pl.scan_parquet(RunFolder(run).traces).select("question_id").collect()["question_id"]
    calls = [call for question in questions for call in recorded.calls(question).values()]
    replies = {
        prompt_hash([{"role": m.role, "content": m.content} for m in recorded.messages(call)]): call.completion.text
        for call in calls
    }
    file.write_bytes(orjson.dumps(replies))
    return file


def serve(replies: dict[str, str], log: Path, latency_s: float) -> None:
    """Serve until killed."""
    journal = log.open("ab", buffering=0)

    async def complete(request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        hashed = prompt_hash(body["messages"])
        journal.write(hashed.encode() + b"\n")
        if hashed not in replies:
            return web.json_response({"error": {"message": "this prompt was never recorded"}}, status=400)
        await asyncio.sleep(latency_s)
        message = {"role": "assistant", "content": replies[hashed]}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        return web.json_response(
            {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        )

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "recorded", "object": "model"}]})

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", complete), web.get("/v1/models", models)])
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    web.run_app(app, sock=listener, print=None)


if __name__ == "__main__":
    serve(orjson.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]), float(sys.argv[3]))
