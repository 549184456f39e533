"""What a text names: whole names, and nodes behind some relations only."""

from __future__ import annotations

import pytest

from pipeline.engine.named_texts import stands_behind, stands_in


@pytest.mark.parametrize(
    ("text", "is_behind"),
    [
        ('[("kane", "starred", "Welles"), ("kane", "directed_by", "Ford")]', True),
        ('[("kane", "directed_by", "Ford"), ("kane", "starred", "Welles")]', True),
        ('[("kane", "starred", "Welles"), ("kane", "directed_by", "Welles")]', False),
        ("kane -> starred -> Welles -> ^starred -> othello -> directed_by -> Ford", True),
        ("kane -> starred -> Cotten -> ^starred -> othello -> directed_by -> Welles", False),
        ("directed_by: Ford, Hawks, Welles\nstarred: Welles", False),
        ("starred: Cotten, Welles\ndirected_by: Ford", True),
        ('("Welles", "directed_by", "kane"), ("kane", "starred", "Welles")', False),
        ("the film stars Welles", False),
        ("starred: Cotten\nWelles", True),
        ("starred: Cotten\ndirected_by:\nWelles", False),
    ],
)
def test_a_node_may_stand_behind_some_relations_only(text: str, is_behind: bool) -> None:
    assert stands_behind("Welles", text, {"starred", "unheard"}, but_not={"directed_by"}) is is_behind


@pytest.mark.parametrize(
    ("text", "stands"),
    [("a film.role b", False), ("a film.", True), ("unfilm film", True), ("film_2 films", False), ("", False)],
)
def test_a_part_of_a_longer_name_is_no_mention(text: str, stands: bool) -> None:
    assert stands_in("film", text) is stands
