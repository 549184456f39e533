"""N(text) of specification §9.2 and the canonical literals of §8.5."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.normalisation import canonical_literal, normalise


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  The  Beatles ", "beatles"),
        ("Café Müller", "cafe muller"),
        ("ＡＢＣ①", "abc1"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("İstanbul", "istanbul"),
        ("U.S.", "us"),
        ("Valentine’s Day", "valentines day"),
        ("Spider-Man", "spider man"),
        ("1990–1995", "1990 1995"),
        ("New_York", "new york"),
        ("zero\u200bwidth", "zerowidth"),
        ("line\nbreak\ttab", "line break tab"),
        ("", ""),
        (" \u00a0\n", ""),
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    assert normalise(text) == normal


@pytest.mark.parametrize("text", ["$", "!!!", "?", "A", "The The", "–"])
def test_a_name_of_nothing_but_punctuation_or_articles_is_still_a_name(text: str) -> None:
    assert normalise(text)


def test_what_tells_answers_apart_is_not_punctuation() -> None:
    different = [
        "C",
        "C++",
        "C#",
        "-5",
        "5",
        "5.5",
        "55",
        "12",
        "12+",
        "0-6-0",
        "060",
        "2/3",
        "23",
        "1998-02-07",
        "19980207",
    ]
    assert len({normalise(text) for text in different}) == len(different)


def test_accents_can_be_kept() -> None:
    assert normalise("Beyoncé") == normalise("Beyonce")
    assert normalise("Beyoncé", strip_accents=False) != normalise("Beyonce", strip_accents=False)


def test_only_accents_are_stripped_not_the_vowels_of_other_scripts() -> None:
    assert normalise("ガ") != normalise("カ")
    assert normalise("हिन्दी") == "हिन्दी"
    assert normalise("각") == "각"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("5", "5"),
        ("5.0", "5"),
        ("5.50", "5.5"),
        ("+5", "5"),
        ("-5.10", "-5.1"),
        ("-0.0", "0"),
        (".50", "0.5"),
        ("1,234,567.80", "1234567.8"),
        ("1.5E-3", "0.0015"),
        ("2e6", "2000000"),
        ("08601", "08601"),
        ("100", "100"),
        ("0.1234567890123456789", "0.1234567890123456789"),
        ("2010", "2010"),
        ("2010Z", "2010"),
        ("2010-08:00", "2010"),
        ("1998-02", "1998-02"),
        ("1998-02-08:00", "1998-02"),
        ("1998-02-07", "1998-02-07"),
        ("1998-02-07Z", "1998-02-07"),
        ("1998-02-07-08:00", "1998-02-07"),
        ("1998-02-07T00:00:00-08:00", "1998-02-07"),
        ("1998-02-07 00:00:00", "1998-02-07"),
        ("-0044-03-15", "-0044-03-15"),
        ("98119-4114", "98119-4114"),
        ("1234-56", "1234-56"),
        ("12,34", "12,34"),
        ("1998 Winter Olympics", "1998 Winter Olympics"),
    ],
)
def test_canonical_literal(text: str, canonical: str) -> None:
    assert canonical_literal(text) == canonical


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("\u22125", "-5"),
        ("$1,234.50", "1234.5"),
        ("-0044-03-15", "-0044-03-15"),
        ("1998-02-07T00:00:00Z", "1998-02-07"),
        ("-5 °C", "-5 c"),
        ("5.50 metres", "5.50 metres"),
        ("3 - 0", "3 0"),
        ("(-5)", "-5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("($-5)", "-5"),
        ("((-5))", "-5"),
        ("(555)-1234", "555 1234"),
        ("½", "1 2"),
        ("100€-200€", "100 200"),
        ("Model B(-5)", "model b 5"),
    ],
)
def test_numbers_and_dates_keep_their_value(text: str, normal: str) -> None:
    assert normalise(text) == normal


def test_an_enormous_exponent_is_a_text() -> None:
    assert canonical_literal("1e999999999") == "1e999999999"


def test_a_megabyte_is_normalised() -> None:
    assert normalise("The Déjà-vu! " * 80_000) == " ".join(["deja vu"] * 80_000)


MESSY = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("aAtheé +-−–.,#$_/(){}019\u0301\u200b")), max_size=30
)


@given(MESSY, st.booleans())
def test_idempotent(text: str, strip_accents: bool) -> None:
    once = normalise(text, strip_accents=strip_accents)
    assert normalise(once, strip_accents=strip_accents) == once


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Z"]), max_size=10))
def test_only_a_blank_text_is_empty(text: str) -> None:
    assert bool(normalise(text)) == bool(text.strip())


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9))
def test_a_number_has_one_normal_form(number: object) -> None:
    assert float(normalise(f"{number:,}")) == float(number) == float(normalise(f"{number:E}"))  # type: ignore[str-format, arg-type]
