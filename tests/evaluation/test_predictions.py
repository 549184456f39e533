"""Scoring a predictions file."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.interface import Reject
from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import aggregate, group_equal_rows
from pipeline.evaluation.predictions import read_predictions, score_predictions
from pipeline.papers.paper_rules import compare_rules
from pipeline.papers.published_results import read_published_line
from pipeline.types import Example, Gold, GoldAnswer, Question, Rejected

EXAMPLES = [
    Example(Question("q1", "webqsp", "test", "?", meta={"hops": 1}), Gold(answers=(GoldAnswer("Lyon", "m.1"),))),
    Example(
        Question("q2", "webqsp", "test", "?", meta={"hops": 2}), Gold(answers=(GoldAnswer("Ann"), GoldAnswer("Bob")))
    ),
    Example(Question("q3", "webqsp", "test", "?", meta={"hops": 2}), Gold(answers=(GoldAnswer("7"),))),
    Example(Question("q4", "webqsp", "test", "?", meta={"hops": 2}), Gold()),
]
QUICK = default(ScoringConfig, bootstrap_resamples=500)


def write(folder: Path, *rows: object) -> Path:
    file = folder / "predictions.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows))
    return file


def rejecting(rejected: list[Rejected] | None = None) -> Reject:
    return (rejected if rejected is not None else []).append


def test_questions_without_a_prediction_can_be_left_out(tmp_path: Path) -> None:
    file = write(tmp_path, {"id": "q1", "answers": ["Lyon"]}, {"id": "q2", "answers": []})
    read = read_predictions(file, rejecting())
    whole, part = (
        score_predictions(read, EXAMPLES, method="x", scoring=QUICK, missing=missing)
        for missing in ("wrong", "left_out")
    )
    scores = [aggregate(group_equal_rows([each.frame]), scoring=QUICK)[0].scores["hits_at_1"] for each in (whole, part)]
    assert [(score.mean, score.questions) for score in scores] == [(pytest.approx(1 / 3), 3), (0.5, 2)]
    assert whole.remarks() == ["1 question without a readable prediction, counted as wrong: q3"]
    assert part.remarks() == ["1 question without a readable prediction, left out: q3"]


def test_predictions_have_scores_and_a_table_row(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"id": "q1", "answers": ["lyon"], "raw": "So: {Lyon}", "model": "ignored"},
        {"id": "q2", "answers": [{"text": "Ann"}, {"text": "Cy", "id": "m.9"}]},
        "",
        {"id": "q3", "answers": [7]},
    )
    scored = score_predictions(read_predictions(file, rejecting()), EXAMPLES, method="somebody", scoring=QUICK)
    (summary,) = aggregate(group_equal_rows([scored.frame]), scoring=QUICK)
    assert (summary.method, summary.questions, summary.failed, summary.empty_gold) == ("somebody", 4, 1, 1)
    assert summary.scores["hits_at_1"].mean == 1
    assert summary.scores["f1"].mean == pytest.approx((1 + 0.5 + 1) / 3)
    assert summary.scores["compat_tog_em"].mean == 1
    assert "answer_in_evidence" not in summary.scores
    assert [group.value for group in summary.breakdown["hops"]] == ["1", "2"]


def test_an_id_in_a_prediction_counts(tmp_path: Path) -> None:
    file = write(tmp_path, {"id": "q1", "answers": [{"text": "Lugdunum", "id": "m.1"}]})
    scored = score_predictions(read_predictions(file, rejecting()), EXAMPLES[:1], method="x", scoring=QUICK)
    assert scored.frame["hits_at_1"].to_list() == [1]


def test_a_missing_prediction_is_wrong(tmp_path: Path) -> None:
    file = write(tmp_path, {"id": "q1", "answers": ["Lyon"]})
    scored = score_predictions(read_predictions(file, rejecting()), EXAMPLES, method="x", scoring=QUICK)
    assert scored.frame["hits_at_1"].to_list() == [1, 0, 0, None]
    assert scored.missing == ["q2", "q3"], "q4 has no gold answers, and so no score"
    assert scored.remarks() == ["2 questions without a readable prediction, counted as wrong: q2, q3"]


def test_gold_answers_without_names_need_predictions_with_ids(tmp_path: Path) -> None:
    golds = {
        "only_id": (GoldAnswer("m.1", "m.1"),),
        "named": (GoldAnswer("Lyon", "m.1"),),
        "by_alias": (GoldAnswer("m.1", "m.1", ("Lyon",)),),
        "in_part": (GoldAnswer("m.1", "m.1"), GoldAnswer("Lyon", "m.2")),
        "none": (),
    }
    examples = [Example(Question(id, "own", "test", "?"), Gold(answers=answers)) for id, answers in golds.items()]
    for answer, told, hits in (
        ("Lyon", ["only_id"], [0, 1, 1, 1, None]),
        ("m.1", [], [1, 1, 1, 1, None]),
        ({"text": "Lyon", "id": "m.1"}, [], [1, 1, 1, 1, None]),
    ):
        file = write(tmp_path, *({"id": id, "answers": [answer]} for id in golds))
        scored = score_predictions(read_predictions(file, rejecting()), examples, method="x", scoring=QUICK)
        assert scored.unnamed == told
        assert scored.frame["hits_at_1"].to_list() == hits
    empty = write(tmp_path, {"id": "only_id", "answers": []}, {"id": "named", "answers": ["Lyon"]})
    assert score_predictions(read_predictions(empty, rejecting()), examples, method="x", scoring=QUICK).unnamed == []
    assert dataclasses.replace(scored, unnamed=["only_id"]).remarks() == [
        "1 question whose gold answers are ids without names, and whose prediction has no id, so that it cannot match: "
        "only_id"
    ]


def test_the_first_of_repeated_predictions_counts(tmp_path: Path) -> None:
    file = write(
        tmp_path, *({"id": id, "answers": [answer]} for id, answer in [("q1", "Nice"), ("q1", "Lyon"), ("q1", "Lyon")])
    )
    predictions = read_predictions(file, rejecting())
    scored = score_predictions(predictions, EXAMPLES[:1], method="x", scoring=QUICK)
    assert scored.frame["hits_at_1"].to_list() == [0]
    assert scored.repeated == ["q1", "q1"]
    tog = compare_rules(scored.lines)[0]
    assert (tog.mean, tog.questions) == (pytest.approx(2 / 3), 3)


def test_unknown_ids_are_reported(tmp_path: Path) -> None:
    file = write(tmp_path, *({"id": f"x{n}", "answers": []} for n in range(5)), {"id": "q1", "answers": ["Lyon"]})
    scored = score_predictions(read_predictions(file, rejecting()), EXAMPLES[:1], method="x", scoring=QUICK)
    assert scored.unknown == ["x0", "x1", "x2", "x3", "x4"]
    assert scored.remarks() == [
        "5 predictions ignored, for no question of the dataset: x0, x1, x2 …",
    ]
    assert len(scored.lines) == 1


def test_a_result_file_of_pog_or_tog_names_questions_by_their_text(tmp_path: Path) -> None:
    """A small file in the format of PoG's published results: its key is RawQuestion on WebQSP, else question."""
    rest = {"reasoning_chains": [[["Rhône", "river.city", "Lyon"]]], "call_num": 4, "total_token": 900, "time": 3.2}
    examples = [
        dataclasses.replace(example, question=dataclasses.replace(example.question, text=text))
        for example, text in zip(EXAMPLES, ["Which city?", "which people", "how many?", "what else?"], strict=True)
    ]
    file = write(
        tmp_path,
        {"RawQuestion": "which  CITY?", "results": '{"A": {"Sufficient": "Yes", "Answer": "Lyon"}, "R": "…"}', **rest},
        {"question": "which people", "results": '{"A": {"Sufficient": "Yes", "Answer": ["Ann", "Bob"]}}', **rest},
        {"question": "how many?", "results": "{Yes}. So the answer is {7}.", **rest},
        {"question": "not in the dataset", "results": "I cannot tell.", **rest},
    )
    scored = score_predictions(
        read_predictions(file, rejecting(), read_published_line), examples, method="pog", scoring=QUICK
    )
    assert scored.frame["answers"].to_list() == [["Lyon"], ["Ann", "Bob"], ["7"], []]
    assert scored.frame["f1"].to_list()[:3] == [1, 1, 1]
    assert (scored.missing, scored.unknown) == ([], ["not in the dataset"])
    pog = next(mean for mean in compare_rules(scored.lines) if mean.rule.system == "PoG")
    assert (pog.mean, pog.questions) == (1, 3)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{not json", "it is not valid JSON"),
        ('["q1"]', "it must be an object"),
        ({"answers": ["x"]}, "id is missing"),
        ({"id": "", "answers": ["x"]}, "id must not be empty"),
        ({"id": "q1"}, "answers is missing"),
        ({"id": "q1", "Answer": ["x"]}, "answers is missing, but there is 'Answer'"),
        ({"id": "q1", "answers": "Lyon"}, "answers must be a list"),
        ({"id": "q1", "answers": [None]}, "answers.0.text must be a text"),
        ({"id": "q1", "answers": [["x"]]}, "answers.0.text must be a text"),
        ({"id": "q1", "answers": [{"id": "m.1"}]}, "answers.0.text is missing"),
        ({"id": "q1", "answers": [], "raw": ["x"]}, "raw must be a text"),
    ],
)
def test_an_unreadable_line_is_rejected_with_its_number(tmp_path: Path, row: object, reason: str) -> None:
    rejected: list[Rejected] = []
    file = write(tmp_path, {"id": "q2", "answers": ["Ann"]}, row, {"id": "q3", "answers": ["7"]})
    predictions = read_predictions(file, rejecting(rejected))
    assert [(bad.file, bad.line) for bad in rejected] == [(str(file), 2)]
    assert reason in rejected[0].reason
    assert list(predictions.by_id) == ["q2", "q3"]


def test_bytes_that_are_not_utf8_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "predictions.jsonl"
    file.write_bytes(b'{"id": "q1", "answers": ["\xff"]}\n{"id": "q2", "answers": []}\n')
    rejected: list[Rejected] = []
    assert list(read_predictions(file, rejecting(rejected)).by_id) == ["q2"]
    assert rejected[0].line == 1


def test_a_number_counts_as_the_text_of_its_digits(tmp_path: Path) -> None:
    file = write(tmp_path, {"id": 7, "answers": [1994, {"text": 1995, "id": 8}]})
    (answer,) = read_predictions(file, rejecting()).by_id.values()
    assert [(each.text, each.id) for each in answer.predictions] == [("1994", None), ("1995", "8")]


def test_gzip_and_numeric_ids(tmp_path: Path) -> None:
    file = tmp_path / "predictions.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"id": 2101960008000, "answers": []}\n'))
    assert list(read_predictions(file, rejecting()).by_id) == ["2101960008000"]


def test_errors_explain_the_problem(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"predictions=.*nowhere\.jsonl is not a file"):
        read_predictions(tmp_path / "nowhere.jsonl", rejecting())
    with pytest.raises(UserError, match=r"has no readable prediction: line 1: it is not valid JSON [^0-9]*$"):
        read_predictions(write(tmp_path, "hello"), rejecting())
    with pytest.raises(UserError, match="has no readable prediction: it is empty"):
        read_predictions(write(tmp_path, ""), rejecting())
    with pytest.raises(
        UserError,
        match=r"no prediction has the id of a question .* has ids like 'q1', the predictions have ids like 'z9'",
    ):
        score_predictions(
            read_predictions(write(tmp_path, {"id": "z9", "answers": []}), rejecting()),
            EXAMPLES,
            method="x",
            scoring=QUICK,
        )


def test_the_gold_answers_of_webqsp_score_100_percent(tmp_path: Path, shared_data: Path) -> None:
    packed = (shared_data / "freebase-slice" / "webqsp.test.jsonl.gz").read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    examples = [
        Example(
            Question(row["id"], "webqsp", "test", row["question"]), Gold(answers=tuple(map(GoldAnswer, row["answers"])))
        )
        for row in rows
    ]
    file = write(tmp_path, *({"id": row["id"], "answers": row["answers"][::-1]} for row in rows))
    scored = score_predictions(read_predictions(file, rejecting()), examples, method="gold", scoring=QUICK)
    (summary,) = aggregate(group_equal_rows([scored.frame]), scoring=QUICK)
    assert (summary.questions, summary.empty_gold, summary.failed) == (820, 6, 0)
    assert {summary.scores[name].mean for name in ("hits_at_1", "f1", "exact_match", "compat_arg_f1")} == {1}
    assert summary.scores["hits_at_1"].questions == 814
