"""MetaQA, read from the real files."""

from __future__ import annotations

import gzip
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.metaqa import MetaQA
from pipeline.errors import UserError
from pipeline.types import Entity, Example, GoldAnswer, Rejected, Relation
from tests.support import sampled

COUNTS = {
    (1, "dev"): 9992,
    (1, "test"): 9947,
    (2, "dev"): 14872,
    (2, "test"): 14872,
    (3, "dev"): 14274,
    (3, "test"): 14274,
}
EXACT = {
    (1, "dev"): 9478,
    (1, "test"): 9407,
    (2, "dev"): 14872,
    (2, "test"): 14872,
    (3, "dev"): 14274,
    (3, "test"): 14274,
}


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "metaqa"


@pytest.fixture(scope="module")
def graph(folder: Path) -> dict[tuple[str, Relation], set[str]]:
    edges: dict[tuple[str, Relation], set[str]] = defaultdict(set)
    for head, relation, tail in default(MetaQA, path=folder, hops=1).triples():
        edges[str(head), Relation(relation, "out")].add(str(tail))
        edges[str(tail), Relation(relation, "in")].add(str(head))
    return edges


def _reached(graph: dict[tuple[str, Relation], set[str]], example: Example) -> set[str]:
    """Follow the gold path; the topic is removed after the second hop, and only there."""
    ((topic, (path,)),) = example.gold.paths.items()
    nodes = {topic}
    for hop, relation in enumerate(path, start=1):
        nodes = {there for here in nodes for there in graph.get((here, relation), ())}
        if hop == 2:
            nodes.discard(topic)
    return nodes


def test_the_graph_is_read(folder: Path) -> None:
    triples = list(default(MetaQA, path=folder, hops=1).triples())
    assert len(set(triples)) == 133_582
    assert len({node for head, _, tail in triples for node in (head, tail)}) == 43_234
    assert len({relation for _, relation, _ in triples}) == 9


@pytest.mark.parametrize(("hops", "split"), sampled(COUNTS, every=6))
def test_every_question_and_its_gold_path_are_read(
    folder: Path, graph: dict[tuple[str, Relation], set[str]], hops: int, split: str
) -> None:
    examples = list(default(MetaQA, path=folder, hops=hops, split=split).examples(pytest.fail))
    assert len(examples) == COUNTS[hops, split]
    assert len({example.question.id for example in examples}) == len(examples)
    gold = [{answer.name for answer in example.gold.answers} for example in examples]
    reached = [_reached(graph, example) for example in examples]
    assert sum(one == other for one, other in zip(gold, reached, strict=True)) == EXACT[hops, split]
    assert sum(not one <= other for one, other in zip(gold, reached, strict=True)) <= 3
    assert all(len(path) == hops for example in examples for paths in example.gold.paths.values() for path in paths)


def test_a_question_is_read_in_full(folder: Path) -> None:
    example = next(default(MetaQA, path=folder, hops=2, name="metaqa-2hop").examples(pytest.fail))
    assert example.question.text == "which person directed the movies starred by John Krasinski"
    assert example.question.id == "2hop-test-0"
    assert example.question.dataset == "metaqa-2hop"
    assert example.question.topic_entities == (Entity("John Krasinski", "John Krasinski"),)
    assert example.question.meta == {"hops": 2, "type": "actor_to_movie_to_director"}
    assert example.gold.answers[0] == GoldAnswer("Nancy Meyers", id="Nancy Meyers")
    assert example.gold.paths == {
        "John Krasinski": ((Relation("starred_actors", "in"), Relation("directed_by", "out")),)
    }


def _write(folder: Path, name: str, text: str | bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def test_the_official_layout_is_read_plain_and_without_types(folder: Path, tmp_path: Path) -> None:
    for source, target in (("kb.txt.gz", "kb.txt"), ("1-hop/qa_test.txt.gz", "1-hop/vanilla/qa_test.txt")):
        _write(tmp_path, target, gzip.decompress((folder / source).read_bytes()))
    official, gzipped = default(MetaQA, path=tmp_path, hops=1), default(MetaQA, path=folder, hops=1)
    assert list(official.triples()) == list(gzipped.triples())
    pairs = zip(official.examples(pytest.fail), gzipped.examples(pytest.fail), strict=True)
    assert all(one.question.text == other.question.text and one.gold.paths == {} for one, other in pairs)
    shutil.copy(folder / "1-hop/qa_test_qtype.txt.gz", tmp_path / "1-hop")
    assert list(official.examples(pytest.fail)) == list(gzipped.examples(pytest.fail))


def test_malformed_lines_are_rejected(tmp_path: Path) -> None:
    rows = [
        b"who directed [[REC]]\tJaume Balaguero|Paco Plaza|Jaume Balaguero",
        b"no tab [here]",
        b"no topic\tanswer",
        b"empty []\tanswer",
        b"wrong order ]x[\tanswer",
        b"two [a]\ttabs\there",
        b"not utf-8 [\xff]\tanswer",
        b"",
        b"an [answer] is missing\t",
    ]
    _write(tmp_path, "1-hop/qa_test.txt", b"\n".join(rows) + b"\n")
    rejected: list[Rejected] = []
    first, last = default(MetaQA, path=tmp_path, hops=1).examples(rejected.append)
    assert first.question.text == "who directed [REC]"
    assert first.question.topic_entities[0].name == "[REC]"
    assert [answer.name for answer in first.gold.answers] == ["Jaume Balaguero", "Paco Plaza"]
    assert last.gold.answers == ()
    assert [row.line for row in rejected] == [2, 3, 4, 5, 6, 7, 8]
    assert rejected[5].reason == "not valid UTF-8"


def test_unknown_types_give_no_path_and_unequal_files_are_refused(tmp_path: Path) -> None:
    _write(tmp_path, "1-hop/qa_test.txt", "who [a]\tb\nwho [c]\td\n")
    _write(tmp_path, "1-hop/qa_test_qtype.txt", "movie_to_budget\nsomething\n")
    assert [example.gold.paths for example in default(MetaQA, path=tmp_path, hops=1).examples(pytest.fail)] == [{}, {}]
    for types in ("movie_to_year\n", "movie_to_year\n" * 3):
        _write(tmp_path, "1-hop/qa_test_qtype.txt", types)
        with pytest.raises(UserError, match="must have one line for each line of"):
            list(default(MetaQA, path=tmp_path, hops=1).examples(pytest.fail))


def test_errors_for_a_missing_split_or_graph_name_the_patterns(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"1-hop/qa_train\.txt or 1-hop/vanilla/qa_train\.txt"):
        default(MetaQA, path=folder, hops=1, split="train").examples(pytest.fail)
    with pytest.raises(UserError, match=r"MetaQA graph: looked for kb\.txt"):
        default(MetaQA, path=tmp_path, hops=1).triples()
