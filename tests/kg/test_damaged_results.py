"""Damaged results of graph servers: they are read into rows that can be stored, or refused."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.kg.results import Row, Select, UnexpectedResult, numbers, parse_result
from pipeline.rdf_terms import FREEBASE, Terms

TERMS = Terms()
ENTITIES = frozenset({f"{FREEBASE}m.1", f"{FREEBASE}m.2"})
QUERY = Select("", ("e", "v", "n"), 5, (ENTITIES.issuperset, None, numbers))
STANDARD = (
    f'?e\t?v\t?n\n<{FREEBASE}m.1>\t"Ada \\"L.\\" \\u00e9\\U0001f600 λ"@en\t12\n'
    f"<{FREEBASE}m.2>\t<{FREEBASE}people.person%3Aname>\t3\n"
).encode()
VIRTUOSO = (
    f'"e"\t"v"\t"n"\n"{FREEBASE}m.1"\t"Ada ""L."" λ\nbyte"\t12\n"{FREEBASE}m.2"\t"{FREEBASE}a%3Ab"\t3\n'
).encode()
PARTS = st.binary(max_size=4) | st.sampled_from(
    [
        rb"\ud83d",
        rb"\Uffffffff",
        rb"\U00110000",
        b"\xed\xa0\xbd",
        b"\xed\xa0\xbd\xed\xb8\x80",
        b"%ED%A0%80",
        b'"',
        b"\t",
        b"\n",
    ]
)


def check(body: bytes) -> None:
    """Read a result as a lookup does: its rows have the form of the query, and an Arrow column can hold each value."""
    try:
        rows = parse_result(body, QUERY)
    except UnexpectedResult:
        return
    assert len(rows) <= QUERY.limit
    for entity, value, number in rows:
        assert entity in ENTITIES
        assert int(number) < 1 << 63
        node = TERMS.node(value)
        pa.array([value, node if isinstance(node, str) else node.value], pa.string())


@pytest.mark.parametrize("whole", [STANDARD, VIRTUOSO])
def test_the_whole_result_is_read(whole: bytes) -> None:
    assert [number for *_, number in parse_result(whole, QUERY)] == ["12", "3"]


@given(st.sampled_from([STANDARD, VIRTUOSO]), st.data())
def test_a_damaged_result_is_refused_or_can_be_stored(whole: bytes, data: st.DataObject) -> None:
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    check(whole[:start] + data.draw(PARTS) + whole[end:])


@given(st.lists(st.tuples(st.integers(0, 300), PARTS), max_size=4))
@example([(40, rb"\Uffffffff")])
@example([(40, rb"\ud83d")])
@example([(40, b"\xed\xa0\xbd")])
def test_a_result_with_stray_parts_is_refused_or_can_be_stored(insertions: list[tuple[int, bytes]]) -> None:
    body = STANDARD
    for at, part in insertions:
        body = body[:at] + part + body[at:]
    check(body)


@pytest.mark.parametrize("rows", ["\n\n", "<a>\n1\n", "<a>\t1\n<b>\n2\n", "<a\n>\t1\n", "<a>\t1\t<b>\t2\n"])
def test_lines_that_are_no_rows_are_refused(rows: str) -> None:
    with pytest.raises(UnexpectedResult, match="damaged table"):
        parse_result(f"?e\t?n\n{rows}".encode(), Select("", ("e", "n"), 5, (None, None)))


def test_two_surrogates_are_one_character_and_a_lone_one_is_replaced() -> None:
    query = Select("", ("v",), 3, (None,))
    expected: list[Row] = [("😀\ufffd",)]
    assert parse_result(b'?v\n"\xed\xa0\xbd\xed\xb8\x80\xed\xa0\xbd"\n', query) == expected
    assert parse_result(b'?v\n"\\ud83d\\ude00\\ud83d"\n', query) == expected


def test_an_iri_that_no_writer_makes_is_a_literal() -> None:
    assert not isinstance(TERMS.node(f"{FREEBASE}%ED%A0%80"), str)


LARGE = [
    *((b"?v\n", piece) for piece in (b"<", b'"', b'""x', b'"\\', b'<"', b"x<", b"\n", b"\t", b'"\n"x')),
    *((b'"v"\n', piece) for piece in (b'"x', b'""x', b'"<', b"\n", b"\t", b'"\n"x')),
]


@pytest.mark.parametrize(("header", "piece"), LARGE)
def test_a_large_table_of_any_text_is_refused_at_once(header: bytes, piece: bytes) -> None:
    """A second look at each rest of the table would take hours."""
    with pytest.raises(UnexpectedResult, match="damaged table"):
        parse_result(header + piece * (3_000_000 // len(piece)), Select("", ("v",), 5, (None,)))


def test_no_more_cells_are_read_than_a_result_can_have() -> None:
    body = b"?v\n" + b"\n" * 2_000_000
    tracemalloc.start()
    try:
        with pytest.raises(UnexpectedResult, match="more than 5 rows"):
            parse_result(body, Select("", ("v",), 5, (None,)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(body)
