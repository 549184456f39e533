"""GRBench graphs in the official format, with all peculiarities that are known to break loaders."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import config
from pipeline.config import default
from pipeline.datasets import grbench_file
from pipeline.datasets.grbench_file import find_graph, graph_triples, labelled_text, read_nodes
from pipeline.errors import UserError
from pipeline.kg.grbench import GRBenchGraph
from pipeline.kg.grbench_store import build_store, open_store
from pipeline.types import LiteralNode, Relation, Triple

ODD = "op-\t'x\"] ⊙ %20 <b>\x00"

GRAPH = {
    "paper_nodes": {
        "p1": {
            "features": {"title": "Grün & “Blau”", "abstract": "", "year": 2001, "label": ["a", "b, c"], "open": True},
            "neighbors": {"author": ["a2", "a1"], "venue": ["v1"], "reference": ["p2", "gone", "gone"], "cited_by": []},
        },
        "p2": {"features": {"title": "Second"}, "neighbors": {"author": ["a1"], "cited_by": ["p1"]}},
        ODD: {"features": {"title": ""}, "neighbors": {"author": ["a1"]}},
        "bare": {},
    },
    "author_nodes": {
        "a1": {"features": {"name": "Second"}, "neighbors": {"paper": ["p1", "p2", ODD]}},
        "a2": {"features": {"name": "Ann 😀", "organization": float("nan")}, "neighbors": {"paper": ["p1"]}},
    },
    "venue_nodes": {"v1": {"features": {"name": "VLDB"}, "neighbors": {"paper": ["p1"]}}},
    "Side Effect_nodes": {"s1": {"features": {"name": "sleep"}, "neighbors": {"Compound-causes-Side Effect": ["p1"]}}},
    "opinion_cluster_nodes": {"opc-1": {"features": {"syllabus": "Held."}, "neighbors": {"docket": ["d-1"]}}},
    "docket_nodes": {"d-1": {"features": {"pacer_case_id": 77}, "neighbors": {"court": ["scotus"]}}},
    "court_nodes": {
        "scotus": {"features": {"full_name": "Supreme Court"}, "neighbors": {"docket": ["1", "2"]}},
    },
}

WriteGraph = Callable[[Any], Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteGraph:
    """Write a graph as Python's json does by default: NaN bare, non-ASCII escaped."""

    def write(graph: Any) -> Path:
        file = tmp_path / "graph.json"
        file.write_text(graph if isinstance(graph, str) else json.dumps(graph), encoding="utf-8")
        return file

    return write


@pytest.fixture
async def graph(write):
    async with default(GRBenchGraph, path=write(GRAPH)) as graph:
        yield graph


async def test_relations_in_both_directions(graph):
    found = await graph.relations(["p1", "gone", ODD, "bare", "nobody"])
    assert found["p1"] == sorted(
        [
            *(Relation(name, "out") for name in ("author", "venue", "reference")),
            *(Relation(name, "in") for name in ("paper", "cited_by", "Compound-causes-Side Effect")),
        ]
    )
    assert found["gone"] == [Relation("reference", "in")]
    assert found[ODD] == [Relation("author", "out"), Relation("paper", "in")]
    assert found["bare"] == found["nobody"] == []


async def test_neighbours_are_sorted_distinct_and_truncated(graph):
    out, back = ("p1", Relation("reference", "out")), ("a1", Relation("author", "in"))
    found = await graph.neighbours([out, back, ("p1", Relation("nothing", "out"))], 2)
    assert found[out].nodes == ("gone", "p2")
    assert not found[out].truncated
    assert found[back].nodes == tuple(sorted(["p1", "p2", ODD])[:2])
    assert found[back].truncated
    assert found["p1", Relation("nothing", "out")].nodes == ()


async def test_names_types_and_mediators(graph):
    ids = ["p1", "a2", "gone", ODD, "opc-1", "d-1", "scotus", "bare"]
    assert await graph.labels(ids) == {
        "p1": "Grün & “Blau”",
        "a2": "Ann 😀",
        "gone": None,
        ODD: None,
        "opc-1": "Held.",
        "d-1": "77",
        "scotus": "Supreme Court",
        "bare": None,
    }
    assert await graph.types(["s1", "opc-1", "gone"]) == {
        "s1": ["Side Effect"],
        "opc-1": ["opinion_cluster"],
        "gone": [],
    }
    assert await graph.mediators(["p1", ODD, "gone", "bare"]) == {"p1": False, ODD: True, "gone": False, "bare": False}


async def test_find_by_name_is_exact(graph):
    found = await graph.find_by_name(["Second", "second", "77", "\ud800"], 10)
    assert found == {"Second": ["a1", "p2"], "second": [], "77": ["d-1"], "\ud800": []}
    assert await graph.find_by_name(["Second"], 1) == {"Second": ["a1"]}


async def test_features_and_degrees(graph):
    features = (await graph.features(["p1"]))["p1"]
    assert features == GRAPH["paper_nodes"]["p1"]["features"]
    found = await graph.features(["a2", "gone"])
    assert found == {"a2": {"name": "Ann 😀", "organization": None}, "gone": None}
    degrees = await graph.degrees(["p1", "p2", "gone", "bare"])
    assert degrees["p1"] == {"author": 2, "venue": 1, "reference": 3, "cited_by": 0}
    assert (degrees["p2"].get("venue"), degrees["gone"], degrees["bare"]) == (None, None, {})


async def test_text_nodes_are_all_nodes_with_a_text(graph):
    assert [id for id, _ in graph.text_nodes()] == ["p1", "p2", "a1", "a2", "v1", "s1", "opc-1", "d-1", "scotus"]
    assert dict(graph.text_nodes())["d-1"] == "77"
    labelled = dict(graph.text_nodes(labelled=True))
    assert labelled.keys() == dict(graph.text_nodes()).keys()
    assert (labelled["a2"], labelled["scotus"]) == ("name: Ann 😀", "full_name: Supreme Court")
    assert labelled_text("author", {"organization": "X", "name": "Ann"}) == "name: Ann. organization: X"
    assert labelled_text("docket", {"pacer_case_id": 7, "case_name": "A v. B"}) == "pacer_case_id: 7. case_name: A v. B"
    for names in (False, True):
        assert await graph.texts(list(labelled), labelled=names) == dict(graph.text_nodes(labelled=names))


async def test_the_vocabulary_is_all_edge_types(graph):
    assert await graph.relation_names() == sorted(
        ["author", "venue", "reference", "cited_by", "paper", "docket", "court", "Compound-causes-Side Effect"]
    )


async def test_half_a_surrogate_pair_does_not_fail(write):
    text = '{"paper_nodes": {"x\\ud83d": {"features": {"title": "t\\ud83d", "\\udc00": 1}, "neighbors": {}}}}'
    async with default(GRBenchGraph, path=write(text)) as graph:
        assert list((await graph.labels(["x\ufffd", "x\ud83d"])).values()) == ["t\ufffd", None]


async def test_gzip_is_the_same_graph_under_the_same_fingerprint(graph, tmp_path):
    zipped = tmp_path / "amazon" / "graph.json.gz"
    zipped.parent.mkdir()
    zipped.write_bytes(gzip.compress(json.dumps(GRAPH).encode()))
    async with default(GRBenchGraph, path=tmp_path, domain="amazon") as other:
        assert other.fingerprint == graph.fingerprint
        assert await other.labels(["p1"]) == await graph.labels(["p1"])


async def test_the_store_is_rebuilt_only_if_the_graph_changes(write, tmp_path):
    file = write(GRAPH)
    async with default(GRBenchGraph, path=file) as graph:
        first = graph.fingerprint
    store = tmp_path / "graph.json.sqlite"
    built = store.stat().st_ino
    async with default(GRBenchGraph, path=file):
        assert store.stat().st_ino == built
    write({"paper_nodes": GRAPH["paper_nodes"]})
    async with default(GRBenchGraph, path=file) as graph:
        assert graph.fingerprint != first
        assert await graph.labels(["a1"]) == {"a1": None}


def test_concurrent_processes_build_the_store_once(write, tmp_path):
    file, store = write(GRAPH), tmp_path / "s.sqlite"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        inodes = pool.starmap(_inode_after_open, [(file, store)] * 4)
    assert len(set(inodes)) == 1


def _inode_after_open(graph: Path, store: Path) -> int:
    open_store(graph, store).close()
    return store.stat().st_ino


async def test_graph_object_pickles_before_it_is_opened(write):
    async with pickle.loads(pickle.dumps(default(GRBenchGraph, path=write(GRAPH)))) as graph:
        assert await graph.types(["a1"]) == {"a1": ["author"]}


async def test_configured_by_the_dataset(tmp_path):
    (tmp_path / "dblp").mkdir()
    (tmp_path / "dblp" / "graph.json").write_text(json.dumps(GRAPH))
    settings = config.compose(["dataset=grbench", "dataset.domain=dblp", f"dataset.path={tmp_path}"])
    async with config.build("kg", settings) as graph:
        assert await graph.types(["a1"]) == {"a1": ["author"]}


def test_triples_hold_features_and_neighbours(write):
    triples = list(graph_triples(write(GRAPH)))
    assert Triple("p1", "type.object.type", "paper") in triples
    assert Triple("p1", "type.object.name", LiteralNode("Grün & “Blau”", lang="en")) in triples
    assert [triple.tail for triple in triples if triple[:2] == ("p1", "label")] == [
        LiteralNode("a"),
        LiteralNode("b, c"),
    ]
    assert Triple("p1", "year", LiteralNode("2001")) in triples
    assert Triple("p1", "open", LiteralNode("true")) in triples
    assert Triple("p1", "reference", "gone") in triples
    assert not [triple for triple in triples if triple.relation == "organization"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a_nodes": {"x": {}}, "b_nodes": {"x": {}}}', r"the id 'x' occurs twice \(a and b\)"),
        ('{"a_nodes": {"x": {}, "x": {}}}', r"the id 'x' occurs twice \(a and a\)"),
        ('{"papers": {"x": {}}}', r"top-level key 'papers' should be a node type followed by '_nodes'"),
        ('{"a_nodes": {"x": []}}', r"a node 'x' should be an object"),
        ('{"a_nodes": {"x": {"features": []}}}', r"'features' of a node 'x' should be an object"),
        ('{"a_nodes": {"x": {"neighbors": ["y"]}}}', r"'neighbors' of a node 'x' should be an object"),
        ('{"a_nodes": {"x": {"neighbors": {"e": "y"}}}}', r"neighbors 'e' of a node 'x' should be a list of node ids"),
        ('{"a_nodes": {"x": {"neighbors": {"e": [1]}}}}', r"neighbors 'e' of a node 'x' should be a list of node ids"),
        ('{"a_nodes": {"x": {}}', r"expected '}' at character 21 \(the end of the file\)"),
        ('{"a_nodes": {"x": {"features": {"t": "cut', r"Unterminated string.* at character 37"),
        ('{"a_nodes": {"x": {}}} {}', r"more text after the graph"),
        ('{"a_nodes": {1: {}}}', r"expected a key in double quotes"),
        ('{"a_nodes": {"x": {"features": {"n": 1e}}}}', r"not a GRBench graph"),
        ('{"a_nodes": {"x": ' + "[" * 100_000, r"not a GRBench graph"),
        ('{"a_nodes": {"x": {"features": {"n": ' + "1" * 5000 + "}}}}", r"not a GRBench graph"),
        ('[{"a_nodes": {}}]', r"expected '\{' at character 0"),
        ("", r"expected '\{' at character 0 \(the end of the file\)"),
    ],
)
def test_a_malformed_graph_is_a_user_error(write, tmp_path, text, sentence):
    with pytest.raises(UserError, match=sentence):
        open_store(write(text), tmp_path / "store")
    assert {path.name for path in tmp_path.iterdir()} <= {"graph.json", "store.lock"}


def test_bad_bytes_and_bad_gzip_are_refused(tmp_path):
    file = tmp_path / "graph.json"
    for content in (b'{"a_nodes": {"x\xff": {}}}', gzip.compress(b'{"a_nodes": {}}' * 100)[:-20]):
        file.write_bytes(content)
        with pytest.raises(UserError, match=r"graph\.json cannot be read"):
            list(read_nodes(file))


def test_missing_graph_says_where_to_put_it(tmp_path):
    (tmp_path / "data.json").write_text("")
    with pytest.raises(UserError, match=r"holds no graph\.json or graph\.json\.gz: .* next to the data\.json"):
        find_graph(tmp_path / "data.json", "legal")


def test_graph_is_found_from_the_folder_the_domain_and_the_questions(tmp_path):
    folder = tmp_path / "maple" / "Physics"
    folder.mkdir(parents=True)
    (folder / "data.json.gz").write_bytes(b"")
    (folder / "graph.json").write_text("{}")
    for path in (tmp_path, folder, folder / "graph.json", folder / "data.json.gz"):
        assert find_graph(path, "maple/Physics") == folder / "graph.json"
    assert find_graph(folder) == folder / "graph.json"
    with pytest.raises(UserError, match="holds no"):
        find_graph(folder, "legal")


def test_unwritable_store_names_the_key(write, tmp_path):
    with pytest.raises(UserError, match=r"cannot be written .*kg\.store="):
        open_store(write(GRAPH), tmp_path / "no" / "such" / "folder")


def test_a_large_graph_is_streamed(tmp_path):
    file = tmp_path / "graph.json"
    with file.open("w") as stream:
        stream.write('{"a_nodes": {')
        stream.write(", ".join(f'"{n}": {{"features": {{"name": "{"x" * 3000}"}}}}' for n in range(10_000)))
        stream.write("}}")
    tracemalloc.start()
    build_store(file, tmp_path / "store")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < file.stat().st_size / 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=5,
)
IDS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
NODES = st.fixed_dictionaries(
    {},
    optional={
        "features": st.dictionaries(IDS, JSON, max_size=3),
        "neighbors": st.dictionaries(IDS, st.lists(IDS, max_size=4), max_size=3),
    },
)


@given(st.dictionaries(IDS, NODES, max_size=6), st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_the_streaming_parser_gives_the_results_of_json_load(tmp_path_factory, nodes, chunk, indent, ascii_only):
    file = tmp_path_factory.getbasetemp() / "property.json"
    text = json.dumps({"a_nodes": nodes}, indent=indent, ensure_ascii=ascii_only)
    file.write_text(text, encoding="utf-8")
    expected = json.loads(text)["a_nodes"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grbench_file, "_CHUNK", chunk)
        read = {node.id: node for node in read_nodes(file)}
    assert read.keys() == expected.keys()
    for id, content in expected.items():
        assert read[id].neighbors == content.get("neighbors", {})
        assert read[id].features == content.get("features", {})
