"""Secrets are planted in the environment, servers ask for them and tell them back: no byte that is kept holds one."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from pipeline.config import default
from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.simulation.world import SyntheticWorld
from tests.cli.conftest import FixedReply, serving
from tests.support import KGQA

pytestmark = pytest.mark.exhaustive

SECRETS = {
    "OPENAI_API_KEY": "sk-planted-key",
    "VIRTUOSO_USER": "planteduser",
    "VIRTUOSO_PASSWORD": "plantedpassword",
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDID",
    "AWS_SECRET_ACCESS_KEY": "plantedawssecret",
    "AWS_SESSION_TOKEN": "plantedawstoken",
    "HF_TOKEN": "hf_plantedtoken",
}


class TellTale(FixedReply):
    """Says in every third answer who asked, as some gateways do, and refuses strangers."""

    def reply(self, key: str, asked: bytes) -> tuple[int, object]:
        if key != f"Bearer {SECRETS['OPENAI_API_KEY']}":
            return 401, {"error": {"message": f"{key} is not a known key"}}
        return super().reply(key, asked)


@pytest.fixture(scope="module")
def guarded_graph(virtuoso_factory: Callable[..., list[VirtuosoServer]]) -> str:
    """An endpoint that asks for the planted account."""
    [server] = virtuoso_factory(default(SyntheticWorld, triples=2000).triples())
    user, password = SECRETS["VIRTUOSO_USER"], SECRETS["VIRTUOSO_PASSWORD"]
    server._isql(f"USER_CREATE('{user}', '{password}'); GRANT SPARQL_SELECT TO \"{user}\";")
    return f"{server.endpoint}-auth"


@pytest.fixture
def short_folder() -> Iterator[str]:
    """The names of Ray's sockets lie below its folder, and have to be short."""
    with tempfile.TemporaryDirectory(prefix="kgqa") as folder:
        yield folder


def test_no_secret_is_kept_or_said(guarded_graph: str, short_folder: str, tmp_path: Path) -> None:
    said = []

    def kgqa(*words: str, code: int = 0, **environment: str) -> None:
        own = {**os.environ, **SECRETS, "RAY_TMPDIR": short_folder, **environment}
        done = subprocess.run([*KGQA, *words], cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        said.append(done.stdout + done.stderr)

    with serving(model := TellTale(refuses_every=3)) as base_url:
        run = ["dataset=synthetic", "dataset.triples=2000", "run.limit=12", "llm=endpoint", base_url, "engine=ray"]
        run += ["kg=sparql", f"kg.endpoints=[{guarded_graph}]", "run.max_equal_failures=null", "run.max_failed=1"]
        kgqa("sweep", *run, "method=srp,tog", "run.dir=run")
        kgqa("evaluate", *run, "run.dir=unknown", OPENAI_API_KEY="sk-planted-key-of-another")
        kgqa("evaluate", *run, "run.dir=refused", code=2, VIRTUOSO_PASSWORD="plantedpassword-of-another")
    assert f"Bearer {SECRETS['OPENAI_API_KEY']}" in model.keys
    kgqa("report", "run")
    kgqa("compare", "run")
    kgqa("score", "run")

    rows = pl.read_parquet(tmp_path / "run" / "traces" / "*.parquet")
    assert rows["error"].drop_nulls().str.contains("no such thing for Bearer <key>").any()
    refused = pl.read_parquet(tmp_path / "unknown" / "traces" / "*.parquet")["error"]
    assert refused.str.contains("Bearer <key> is not a known key").all()
    assert rows["kg_lookups"].sum() > 0
    kept = {file: file.read_bytes() for folder in (tmp_path, Path(short_folder)) for file in files(folder)}
    kept |= {file: str(pl.read_parquet(file).to_dicts()).encode() for file in kept if file.suffix == ".parquet"}
    assert (tmp_path / "run" / "report.html") in kept
    assert any("raylet" in file.name for file in kept), "Ray's logs"
    for secret in SECRETS.values():
        assert [file for file, content in kept.items() if secret.encode() in content] == []
        assert not [text for text in said if secret in text]


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
