"""The rules of published code: one section per row of the table in specification §9.1, with the errors it names."""

from __future__ import annotations

import pytest
from rich.console import Console

from pipeline.evaluation.paper_metrics import rog_scores
from pipeline.papers import paper_rules
from pipeline.types import Answer, Entity, Example, Gold, GoldAnswer, Prediction, Question


def example(*golds: str, aliases: tuple[str, ...] = (), topics: bool = True, id: str = "q") -> Example:
    entities = (Entity("m.0", "Topic"),) if topics else ()
    answers = tuple(GoldAnswer(gold, aliases=aliases) for gold in golds)
    return Example(Question(id, "webqsp", "test", "what?", entities), Gold(answers=answers))


def scores(example: Example, *answers: str, raw: str = "") -> dict[tuple[str, str], float | None]:
    values = paper_rules.scores_by_rule(example, Answer(tuple(map(Prediction, answers)), raw=raw))
    return {(rule.system, rule.metric): value for rule, value in zip(paper_rules.RULES, values, strict=True)}


# ToG: the first {…} block, else the whole text; equal, or either inside the other, without blanks and case.


def test_tog_ignores_spaces_and_case_and_matches_both_ways() -> None:
    assert paper_rules.tog("{new YORK}", ["New York"])
    assert paper_rules.tog("{York}", ["New York"])
    assert paper_rules.tog("{New York City}", ["New York"])
    assert not paper_rules.tog("{Boston}", ["New York"])


def test_tog_reads_its_own_yes_as_the_answer() -> None:
    assert not paper_rules.tog("{Yes}. The answer is {New York}.", ["New York"])
    assert paper_rules.tog("{Yes}. The answer is {New York}.", ["Yes Minister"])


def test_tog_counts_an_empty_answer_as_correct() -> None:
    assert paper_rules.tog("{}", ["New York"])
    assert paper_rules.tog("", ["New York"])


def test_tog_drops_the_last_letter_of_an_unclosed_block() -> None:
    assert paper_rules.tog("It is {NYC", ["NY"])
    assert not paper_rules.readi("It is {NYC", ["NYC"])


def test_tog_uses_the_whole_text_without_a_block() -> None:
    assert paper_rules.tog("It was New York, I think.", ["New York"])


def test_tog_counts_lines_so_a_question_can_count_twice() -> None:
    right, wrong = Answer((Prediction("Lyon"),)), Answer((Prediction("Nice"),))
    means = paper_rules.compare_rules([(example("Lyon"), right), (example("Lyon"), right), (example("Lyon"), wrong)])
    tog = next(mean for mean in means if mean.rule.system == "ToG")
    assert (tog.mean, tog.questions) == (pytest.approx(2 / 3), 3)


# PoG: JSON A.Answer, else a regular expression, else the whole text; a list is turned into text; aliases enlarge gold.


@pytest.mark.parametrize(
    "text",
    [
        '{"A": {"Sufficient": "Yes", "Answer": "New York"}, "R": "because"}',
        '{"A": {"Sufficient": "Yes", "Answer": ["Boston", "New York"]}}',
        'So: {"A": {"Sufficient": "Yes", "Answer": "New York"',
        "New York, probably",
    ],
)
def test_pog_finds_its_answer(text: str) -> None:
    assert paper_rules.pog(text, ["New York"])


def test_pog_reads_only_the_answer_where_it_can() -> None:
    assert not paper_rules.pog('{"A": {"Sufficient": "No", "Answer": "Boston"}, "R": "not New York"}', ["New York"])
    assert paper_rules.pog('{"A": broken, "R": "not New York"}', ["New York"])


def test_pog_turns_a_list_into_text_so_a_short_name_matches_inside_another() -> None:
    assert paper_rules.pog('{"A": {"Answer": ["Bahamas"]}}', ["Ham"])
    assert not paper_rules.pog('{"A": {"Answer": ["York"]}}', ["New York"])


def test_pog_reads_a_missing_answer_as_the_word_none() -> None:
    assert paper_rules.pog('{"A": {"Answer": null}}', ["None of the Above"])


def test_pog_accepts_aliases_and_tog_does_not() -> None:
    scored = scores(example("New York City", aliases=("Big Apple",)), raw="{Big Apple}")
    assert scored["PoG", "EM"] == 1
    assert scored["ToG", "EM"] == 0


# Readi and the SRP lineage: as ToG, but the gold must be inside the prediction; no topic entity, not counted.


def test_readi_matches_one_way() -> None:
    assert paper_rules.readi("{New York City}", ["New York"])
    assert not paper_rules.readi("{York}", ["New York"])
    assert not paper_rules.readi("{}", ["New York"])
    assert not paper_rules.readi("{Yes} {New York}", ["New York"])


def test_readi_skips_questions_without_a_topic_entity() -> None:
    assert scores(example("Lyon"), raw="{Lyon}")["Readi", "Hit@1"] == 1
    assert scores(example("Lyon", topics=False), raw="{Lyon}")["Readi", "Hit@1"] is None
    assert scores(example("Lyon", aliases=("Lugdunum",)), raw="{Lugdunum}")["Readi", "Hit@1"] == 1


# StructGPT: the whole text in lower case holds a gold or an alias.


def test_structgpt_searches_the_whole_text() -> None:
    assert paper_rules.structgpt("It is not NEW YORK.", ["new york"])
    assert not paper_rules.structgpt("NewYork", ["New York"])
    assert scores(example("New York City", aliases=("NYC",)), raw="nyc")["StructGPT", "Hit@1"] == 1


# DoG: the text holds a gold, without blanks and case; asked again when the gold says it was wrong.


def test_dog_has_a_second_attempt_because_of_the_gold_answer() -> None:
    assert paper_rules.dog(["Boston"], ["New York"]) is False
    assert paper_rules.dog(["Boston", "then newyork"], ["New York"]) is True
    assert paper_rules.dog(["New York"], ["New York City"]) is False


# RoG: hit when any gold is inside the joined lines, F1 from the same joined string.


def test_rog_drops_punctuation_and_articles() -> None:
    assert rog_scores(["the U.S.A"], ["USA"]).hit


def test_rog_matches_across_lines() -> None:
    assert rog_scores(["He was born in New", "York"], ["New York"]).hit


def test_rog_finds_golds_inside_other_words() -> None:
    assert rog_scores(["Marion"], ["Mario"]).hit


def test_rog_precision_and_recall_count_different_things() -> None:
    one_line_for_all = rog_scores(["Ann, Bob, Cy"], ["Ann", "Bob", "Cy"]).f1
    assert one_line_for_all == pytest.approx(1.5)
    three_lines_one_gold = rog_scores(["Ann", "Ann!", "ann"], ["Ann"]).f1
    assert three_lines_one_gold == pytest.approx(2 / (3 + 1))


def test_rog_hit_is_any_hit_over_all_lines() -> None:
    scored = scores(example("Lyon"), raw="Paris\nNice\nLyon")
    assert scored["RoG", "Hit"] == 1
    assert scored["RoG", "F1"] == pytest.approx(2 / 4)


def test_rog_always_finds_a_gold_of_articles_only() -> None:
    assert scores(example("The"), raw="Paris")["RoG", "Hit"] == 1


# GNN-RAG: RoG's code, and Hit@1 on the first line.


def test_gnn_rag_hit1_uses_the_first_line() -> None:
    assert scores(example("Lyon"), raw="in Lyon\nParis")["GNN-RAG", "Hit@1"] == 1
    assert scores(example("Lyon"), raw="Paris\nLyon")["GNN-RAG", "Hit@1"] == 0


# SubgraphRAG: only lines with `ans:`; one to one; Hit@1 on the first of them.


def test_subgraphrag_reads_only_answer_lines() -> None:
    raw = "Lyon is a city.\nans: none\nans: not available\nans: Paris\nans: Paris\nans: Lyon"
    scored = scores(example("Lyon", "Paris"), raw=raw)
    assert scored["SubgraphRAG", "Hit@1"] == 1
    assert scored["SubgraphRAG", "F1"] == 1
    assert scores(example("Lyon"), raw=raw)["SubgraphRAG", "Hit@1"] == 0
    assert scores(example("Lyon"), raw="Lyon")["SubgraphRAG", "F1"] == 0


def test_subgraphrag_matches_one_to_one_where_rog_does_not() -> None:
    lines = ["ans: Ann, Bob, Cy"]
    assert paper_rules.subgraphrag_f1(lines, ["Ann", "Bob", "Cy"]) == pytest.approx(2 / 4)
    assert rog_scores(lines, ["Ann", "Bob", "Cy"]).f1 > 1


def test_subgraphrag_uses_answers_as_lines_without_a_text() -> None:
    assert scores(example("Lyon", "Nice"), "Lyon", "Nice")["SubgraphRAG", "F1"] == 1


# ArG: labels to the letter; empty gold is a hit; precision 1 when nothing was predicted.


def test_arg_matches_exactly() -> None:
    assert paper_rules.arg_hit(["Paris", "Lyon"], ["Lyon"])
    assert not paper_rules.arg_hit(["lyon"], ["Lyon"])
    assert not paper_rules.arg_hit(["Lyon."], ["Lyon"])


def test_arg_counts_a_question_without_gold_as_a_hit() -> None:
    assert scores(example(), "Lyon")["ArG", "Hit@1"] == 1
    assert scores(example(), "Lyon")["ArG", "F1"] is None


def test_arg_f1_of_an_empty_answer_is_zero_although_its_precision_is_one() -> None:
    assert paper_rules.arg_f1([], ["Lyon"]) == 0
    assert paper_rules.arg_f1(["Lyon", "Paris"], ["Lyon"]) == pytest.approx(2 / 3)


# AoG: a part of the text resembles a gold; questions without gold are left out.


@pytest.mark.parametrize(
    ("text", "gold", "resembles"),
    [
        ("Boston, new york!", "New-York City", False),
        ("York", "New York", True),
        ("New York City", "york", True),
        ("Beyonce", "Beyoncé", True),
        ("around 1998", "1998-02-07", False),
        ("in 1998, or so", "7 February 1998", True),
        ("World War Two Begins", "World War Two Ends Begins", True),
        ("one two three four", "one two three five", True),
        ("alpha beta gamma", "alpha beta delta epsilon", False),
        ("Dostoyevsky", "Dostoevsky", True),
        ("Chekhov", "Gorky", False),
        (",;|", "Gorky", False),
    ],
)
def test_aog_similarity(text: str, gold: str, resembles: bool) -> None:
    assert paper_rules.aog(text, [gold]) is resembles


def test_aog_excludes_questions_without_gold() -> None:
    assert paper_rules.aog("Lyon", []) is None
    means = paper_rules.compare_rules([(example(), Answer((Prediction("Lyon"),))), (example("Lyon"), Answer())])
    counted = {(mean.rule.system, mean.rule.metric): mean.questions for mean in means}
    assert counted["AoG", "accuracy"] == counted["ArG", "F1"] == 1
    assert counted["ArG", "Hit@1"] == counted["ToG", "EM"] == 2


# Graph-CoT: exact match of the library (nothing is normalised) and ROUGE-L of the final text.


def test_graph_cot() -> None:
    exact, lower, turned = (
        scores(example("Ann, Bob, Cy"), *reply)
        for reply in (["Ann", "Bob", "Cy"], ["ann", "bob", "cy"], ["Cy", "Bob", "Ann"])
    )
    assert (exact["Graph-CoT", "EM"], exact["Graph-CoT", "ROUGE-L"]) == (1, 1)
    assert (lower["Graph-CoT", "EM"], lower["Graph-CoT", "ROUGE-L"]) == (0, 1)
    assert turned["Graph-CoT", "ROUGE-L"] == pytest.approx(1 / 3)


# All together: one answer, as many verdicts as rules.


def test_one_answer_is_correct_by_some_rules_and_wrong_by_others() -> None:
    scored = scores(example("New York City"), "York", raw="It is {York}.")
    assert {system for (system, _), value in scored.items() if value == 1} == {"ToG", "AoG"}


def test_without_lines_there_is_no_mean() -> None:
    assert {(mean.mean, mean.questions) for mean in paper_rules.compare_rules([])} == {(None, 0)}


def test_the_table_has_a_criterion_and_a_mean_per_rule() -> None:
    means = paper_rules.compare_rules([(example("New York City"), Answer((Prediction("York"),), raw="{York}"))])
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(paper_rules.rules_table(means))
    text = console.export_text()
    assert "first {…} block and a gold contain one another" in text
    assert text.count(" 100 ") == 2
