"""GRBench, on the real question files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.grbench import GRBench
from pipeline.errors import UserError
from pipeline.types import GoldAnswer, Triple

COUNTS = {
    "amazon": 200,
    "dblp": 150,
    "goodreads": 240,
    "legal": 180,
    **{f"maple/{field}": 140 for field in ("Biology", "Chemistry", "Materials_Science", "Medicine", "Physics")},
}


@pytest.mark.parametrize(("domain", "count"), COUNTS.items())
def test_every_question_of_every_domain_is_read(shared_data: Path, domain: str, count: int) -> None:
    examples = list(default(GRBench, path=shared_data / "grbench", domain=domain).examples(pytest.fail))
    assert len(examples) == count
    assert len({example.question.id for example in examples}) == count
    assert all(len(example.gold.answers) == 1 for example in examples)


def test_ids_hold_domain_and_number(shared_data: Path) -> None:
    example = next(default(GRBench, path=shared_data / "grbench", domain="maple/Biology").examples(pytest.fail))
    assert example.question.id == "maple-Biology-0"
    assert example.question.meta == {"domain": "maple/Biology", "level": None}
    assert example.question.topic_entities == ()
    amazon = next(default(GRBench, path=shared_data / "grbench", domain="amazon").examples(pytest.fail))
    assert amazon.question.id == "amazon-0"
    assert amazon.gold.answers == (GoldAnswer("Dolica"),)


def test_the_path_may_be_the_folder_of_the_domain_or_the_file(shared_data: Path) -> None:
    folder = shared_data / "grbench" / "maple" / "Physics"
    for path in (folder, folder / "data.json.gz"):
        assert len(list(default(GRBench, path=path, domain="maple/Physics").examples(pytest.fail))) == 140


def test_the_folder_of_another_domain_is_refused(shared_data: Path) -> None:
    with pytest.raises(UserError, match=r"no GRBench questions of legal: looked for legal/data\.json"):
        default(GRBench, path=shared_data / "grbench" / "amazon", domain="legal").examples(pytest.fail)


def test_a_level_is_read_and_a_question_with_an_empty_answer_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"qid": "7", "question": "&quot;What?&quot;", "answer": "", "level": "easy"}))
    (example,) = default(GRBench, path=file, domain="biomedical").examples(pytest.fail)
    assert example.question.text == "&quot;What?&quot;"
    assert example.question.meta["level"] == "easy"
    assert example.gold.answers == ()


def test_the_graph_of_the_domain_is_read_as_triples(tmp_path: Path) -> None:
    graph = {"brand_nodes": {"b": {"features": {"name": "Dolica"}, "neighbors": {"item": ["i"]}}}}
    (tmp_path / "amazon").mkdir()
    (tmp_path / "amazon" / "graph.json").write_text(json.dumps(graph))
    for path in (tmp_path, tmp_path / "amazon"):
        assert Triple("b", "item", "i") in default(GRBench, path=path, domain="amazon").triples()
    with pytest.raises(UserError, match=r"amazon/legal holds no graph\.json"):
        default(GRBench, path=tmp_path / "amazon", domain="legal").triples()
