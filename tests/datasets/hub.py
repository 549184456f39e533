"""A stand-in of the Hugging Face Hub: the parts of its HTTP interface that `huggingface_hub` asks for a dataset."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40


class Hub:
    """Datasets by repository and path, and the paths that were downloaded."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.downloads: list[str] = []
        self.url = ""


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serve an empty Hub on a free port."""
    hub = Hub()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, hub)) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, hub: Hub, *args: Any) -> None:
        self.hub = hub
        super().__init__(*args)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        repo = "/".join(path.removeprefix("api/").split("/")[1:3])
        if repo not in self.hub.files:
            self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif path.startswith("api/"):
            self.describe(repo, path.removeprefix(f"api/datasets/{repo}").strip("/"))
        else:
            self.send_file(repo, path.removeprefix(f"datasets/{repo}/resolve/").partition("/")[2])

    def describe(self, repo: str, question: str) -> None:
        if question.startswith("tree/"):
            folder = "/".join(question.split("/")[2:])
            self.answer(200, json.dumps(list(self.listing(repo, folder))).encode())
        else:
            self.answer(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": [], "tags": []}).encode())

    def listing(self, repo: str, folder: str) -> Iterator[dict[str, object]]:
        prefix = f"{folder}/" if folder else ""
        below = {name.removeprefix(prefix) for name in self.hub.files[repo] if name.startswith(prefix)}
        for name in sorted({each.partition("/")[0] for each in below}):
            if content := self.hub.files[repo].get(prefix + name):
                yield {"type": "file", "path": prefix + name, "size": len(content), "oid": _etag(content)}
            else:
                yield {"type": "directory", "path": prefix + name, "oid": "0" * 40}

    def send_file(self, repo: str, name: str) -> None:
        content = self.hub.files[repo].get(name)
        if content is None:
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        if self.command == "GET":
            self.hub.downloads.append(name)
        self.answer(200, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{_etag(content)}"'})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
