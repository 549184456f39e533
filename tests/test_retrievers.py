"""The name of a configuration's retriever, and what a preset lacks of its paper."""

from __future__ import annotations

import pytest

from pipeline import config

NEITHER = ("other retriever than published", "no references")


@pytest.mark.parametrize(
    ("words", "name", "departures"),
    [
        (["experiment=srp"], "lexical", NEITHER),
        (["experiment=srp", "retrieval.reference_base=r.jsonl"], "lexical", NEITHER[:1]),
        (["experiment=srp_no_reference"], "lexical", NEITHER[:1]),
        (
            ["experiment=srp", "retrieval=published"],
            "all-MiniLM-L6-v2, relations by facebook/contriever",
            NEITHER[1:],
        ),
        (
            ["experiment=readi", "retrieval=published", "retrieval.relation_encoder.unnormalised=false"],
            "all-MiniLM-L6-v2, relations by facebook/contriever",
            NEITHER[:1],
        ),
        (["experiment=arg", "retrieval=dense"], "all-MiniLM-L6-v2, relations by facebook/contriever", NEITHER[:1]),
        (["experiment=arg_width_1", "retrieval=published"], "BAAI/bge-large-en-v1.5", ()),
        (
            ["experiment=arg", "retrieval=published", "retrieval.encoder.model=/m/bge-large-en-v1.5/"],
            "/m/bge-large-en-v1.5/",  # a copy of the model
            (),
        ),
        (["experiment=parog", "retrieval=published"], "sentence-transformers/msmarco-distilbert-base-tas-b", ()),
        (["experiment=graph_cot", "retrieval=published"], "all-mpnet-base-v2", ()),
        (["experiment=rag_1_hop", "retrieval=published"], "all-mpnet-base-v2", ()),
        (["experiment=rag_1_hop", "dataset=grbench", "dataset.path=x"], "lexical", NEITHER[:1]),
        (["experiment=rag_1_hop", "kg._target_=mine.Features"], "lexical", NEITHER[:1]),
        (["experiment=rag_1_hop"], "lexical", ()),  # in a graph of triples, it begins at the topic entities
        (["experiment=rag_no_graph"], "lexical", ()),  # it ranks nothing
        (["experiment=parog_prior_only"], "lexical", ()),
        (["experiment=tog", "retrieval=published"], "lexical", ()),
        (["method=srp"], "lexical", ()),  # no preset: it claims nothing
    ],
)
def test_presets_have_the_retriever_of_their_paper(words: list[str], name: str, departures: tuple[str, ...]) -> None:
    composed = config.compose(words)
    assert (config.retriever(composed), config.departures(composed)) == (name, departures)


def test_every_method_of_a_paper_has_a_published_retriever() -> None:
    folder = config.conf_dir() / "retrieval" / "published"
    assert {file.stem for file in folder.glob("*.yaml")} == {"srp", "arg", "parog", "pog", "r3", "rag"}


def test_the_collection_of_training_texts_retrieves_as_its_method_does() -> None:
    for name, model in (("collect_arg", "BAAI/bge-large-en-v1.5"), ("build_references", "all-MiniLM-L6-v2")):
        given = ["retrieval=published", *(["output=texts.jsonl"] if name == "collect_arg" else [])]
        assert config.compose(given, name=name)["retrieval"]["encoder"]["model"] == model


def test_a_configuration_of_others_is_named_without_importing_anything() -> None:
    own = {"retrieval": {"_target_": "their.module.Searcher", "url": "x"}, "method": {}}
    assert config.retriever(own) == "searcher"
    assert config.retriever({"retrieval": None}) is None
    assert config.departures({**own, "choices": {"method": "arg", "experiment": "arg"}}) == NEITHER[:1]


@pytest.mark.parametrize("damaged", [float("nan"), 3, "text", [1], True])
@pytest.mark.parametrize("key", ["encoder", "relation_encoder"])
def test_a_damaged_section_is_named_all_the_same(key: str, damaged: object) -> None:
    composed = config.compose(["experiment=srp", "retrieval=published"])
    composed = {**composed, "retrieval": {**composed["retrieval"], key: damaged}}
    assert config.retriever(composed)
    assert isinstance(config.departures(composed), tuple)
    assert config.departures({**composed, "choices": damaged, "method": damaged, "retrieval": damaged}) == ()
