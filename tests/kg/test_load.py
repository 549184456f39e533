"""Graphs are converted and loaded completely or not at all, counted, and unchanged."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator

import pyoxigraph
import pytest

from pipeline.config import default
from pipeline.datasets.custom import Custom
from pipeline.datasets.metaqa import MetaQA
from pipeline.errors import UserError
from pipeline.kg import load
from pipeline.kg.load import Distinct, Summary, load_graph
from pipeline.rdf_terms import MAX_IRI_BYTES, Terms, literal_node
from pipeline.types import LiteralNode, Node, Rejected, Triple
from tests.kg.support import HOSTILE_FACTS, Facts
from tests.support import refuse


def counts(summary: Summary) -> tuple[int, int, int, int]:
    return tuple(one.count for one in (summary.triples, summary.entities, summary.relations, summary.literals))


def facts_in(store: pyoxigraph.Store) -> set[Triple]:
    terms = Terms()

    def node(term: pyoxigraph.NamedNode | pyoxigraph.Literal) -> Node:
        if isinstance(term, pyoxigraph.Literal):
            return literal_node(term.value, term.datatype.value if not term.language else None, term.language)
        return terms.node(term.value)

    return {Triple(node(quad.subject), node(quad.predicate), node(quad.object)) for quad in store}


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["ntriples", "oxigraph"])
def test_the_whole_metaqa_graph_can_be_loaded(shared_data, tmp_path, target):
    output, ticked = tmp_path / "graph", []
    dataset = default(MetaQA, path=shared_data / "metaqa", hops=1)
    summary = load_graph(dataset, target, output, reject=refuse, tick=ticked.append)
    assert counts(summary) == (133_582, 43_234, 9, 0)
    assert summary.read == sum(ticked) == 133_582
    stored = output.read_bytes().count(b"\n") if target == "ntriples" else len(pyoxigraph.Store(str(output)))
    assert stored == 133_582
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


@pytest.mark.exhaustive
def test_freebase_slice_round_trip(shared_data, tmp_path):
    folder = shared_data / "freebase-slice"
    dataset = default(Custom, triples=folder / "triples.tsv.gz", questions=folder / "webqsp.test.jsonl.gz")
    summary = load_graph(dataset, "oxigraph", tmp_path / "store", reject=refuse)
    assert counts(summary)[:2] == (100_939, 55_855)
    assert facts_in(pyoxigraph.Store(str(tmp_path / "store"))) == set(dataset.triples())


def test_hostile_names_and_texts_are_read_back_unchanged(tmp_path):
    load_graph(Facts(HOSTILE_FACTS), "oxigraph", tmp_path / "store", reject=refuse)
    assert facts_in(pyoxigraph.Store(str(tmp_path / "store"))) == set(HOSTILE_FACTS)


def test_unstorable_facts_are_rejected_with_their_number_and_reason(tmp_path):
    good, long = Triple("m.1", "a.b", "m.2"), "ü" * (MAX_IRI_BYTES // 6)
    bad = [
        (Triple(LiteralNode("5"), "a.b", "m.1"), "literal '5' is the head"),
        (Triple(long, "a.b", "m.1"), "longer than 1880 bytes as an IRI"),
        (Triple("m.1", long, "m.1"), "longer than 1880 bytes as an IRI"),
        (Triple("m.1", "a.b", LiteralNode("\ud83d")), "is not valid Unicode"),
        (Triple("m.1", "a.b", LiteralNode("x", lang="e n")), "'e n' is not a language tag"),
        (Triple("m.1", "a.b", LiteralNode("x", "urn:a> <urn:b")), "is not a datatype IRI"),
    ]
    rows: list[Rejected] = []
    facts = Facts([good, *(triple for triple, _ in bad), good])
    summary = load_graph(facts, "oxigraph", tmp_path / "store", reject=rows.append)
    assert (summary.read, summary.rejected, counts(summary)) == (8, 6, (1, 2, 1, 0))
    assert [(row.file, row.line) for row in rows] == [("graph of facts", line) for line in range(2, 8)]
    for row, (_, reason) in zip(rows, bad, strict=True):
        assert reason in row.reason
        assert len(row.reason) < 200
    assert facts_in(pyoxigraph.Store(str(tmp_path / "store"))) == {good}


def test_compressed_file_holds_the_same_bytes_every_time(tmp_path):
    facts = Facts([Triple("m.1", "a.b", "m.2"), Triple("m.1", "a.c", LiteralNode("x"))])
    written = []
    for name in ("plain.nt", "one.nt.gz", "two.nt.gz"):
        load_graph(facts, "ntriples", tmp_path / name, reject=refuse)
        written.append((tmp_path / name).read_bytes())
    assert written[1] == written[2]
    assert gzip.decompress(written[1]) == written[0]


@pytest.mark.parametrize("target", ["ntriples", "oxigraph"])
def test_a_failed_load_changes_no_file(tmp_path, target):
    def facts() -> Iterator[Triple]:
        yield from (Triple(f"m.{n}", "a.b", "m.2") for n in range(20_000))
        raise UserError("line 20001 is bad")

    with pytest.raises(UserError, match="line 20001"):
        load_graph(Facts(facts()), target, tmp_path / "graph", reject=refuse)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_overwritten(tmp_path):
    (tmp_path / "precious").write_text("")
    with pytest.raises(UserError, match="already exists; remove it or choose another output="):
        load_graph(Facts([]), "oxigraph", tmp_path, reject=refuse)


def test_a_missing_output_names_the_key(tmp_path):
    with pytest.raises(UserError, match="target=oxigraph needs output=, the folder"):
        load_graph(Facts([]), "oxigraph", None, reject=refuse)
    with pytest.raises(UserError, match=r"target=virtuoso needs .*kg\.endpoints="):
        load_graph(Facts([]), "virtuoso", None, reject=refuse)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"graph\.nt cannot be written"):
        load_graph(Facts([]), "ntriples", tmp_path / "file" / "graph.nt", reject=refuse)


def test_an_unreachable_server_is_named():
    with pytest.raises(
        UserError, match=r"http://127\.0\.0\.1:1/sparql cannot be reached .*: start the server, or set kg.endpoints"
    ):
        load_graph(
            Facts([Triple("a", "b", "c")]), "virtuoso", None, endpoints=["http://127.0.0.1:1/sparql"], reject=refuse
        )


def test_distinct_values_are_exact_while_few_and_estimated_when_many(monkeypatch):
    monkeypatch.setattr(load, "_EXACT", 1 << 12)
    few, many = Distinct(), Distinct()
    for n in range(4_000):
        few.add(("m", n))
        few.add(("m", n))
    for n in range(100_000):
        many.add(("m", n))
    assert (few.count, few.exact, str(few)) == (4_000, True, "4,000")
    assert not many.exact
    assert many.count == pytest.approx(100_000, rel=0.1)
    assert str(many).startswith("about ")


def test_oxigraph_reads_the_complete_stream():
    lines = [b"%d\n" % n for n in range(100_000)]
    stream = io.BufferedReader(load._Stream(lines), buffer_size=7)
    assert stream.read() == b"".join(lines)


def test_credentials_in_a_url_are_refused_without_showing_them():
    with pytest.raises(UserError, match="VIRTUOSO_PASSWORD") as caught:
        load.post([], ["http://dba:hunter2@127.0.0.1:8890/sparql"], timeout_s=1)
    assert "hunter2" not in str(caught.value)
