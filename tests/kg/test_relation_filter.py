"""One case per rule of the relation filter's table (specification §8.4)."""

from __future__ import annotations

import pytest

from pipeline.kg.relation_filter import NOTABLE_TYPES, RelationFilter
from tests.kg.support import FREEBASE


@pytest.mark.parametrize(
    ("relation", "kept"),
    [
        ("type.object.type", False),
        ("type.object.name", False),
        ("type.object.key", False),
        ("type.type.instance", False),
        ("type.property.reverse_property", False),
        ("common.topic.alias", False),
        (NOTABLE_TYPES, False),
        ("freebase.type_hints.mediator", False),
        ("kg.object_profile.prominent_type", False),
        ("user.tsegaran.random.taxonomy_subject.entry", False),
        ("wikipedia.en.title", False),
        ("http://www.w3.org/2000/01/rdf-schema#label", False),
        ("owl.sameAs", False),
        ("http://xmlns.com/foaf/0.1/name", False),
        ("dataworld.gardening_hint.last_referenced_by", False),
        ("base.popstra.celebrity.friendship", True),
        ("people.person.place_of_birth", True),
        ("typed.things", True),
        ("commonwealth.member.country", True),
        ("user", True),
        ("directed_by", True),
    ],
)
def test_relations_are_kept_or_filtered_by_their_names(relation: str, kept: bool) -> None:
    assert RelationFilter(FREEBASE).keeps(relation) is kept


def test_user_relations_can_be_kept() -> None:
    assert RelationFilter(FREEBASE, keep_user=True).keeps("user.alexander.philosophy")
    assert not RelationFilter(FREEBASE, keep_user=True).keeps("common.topic.image")


def test_notable_types_can_be_kept_without_the_rest_of_common() -> None:
    lenient = RelationFilter(FREEBASE, keep_notable_types=True)
    assert lenient.keeps(NOTABLE_TYPES)
    assert not lenient.keeps("common.topic.alias")


@pytest.mark.parametrize("keep_user", [True, False])
@pytest.mark.parametrize("keep_notable_types", [True, False])
def test_dropped_domains_contain_no_kept_relation(keep_user: bool, keep_notable_types: bool) -> None:
    hidden = RelationFilter(FREEBASE, keep_user, keep_notable_types)
    for start in hidden.dropped:
        assert not hidden.keeps(f"{start}anything.at_all")
    if keep_notable_types:
        assert "common." not in hidden.dropped
