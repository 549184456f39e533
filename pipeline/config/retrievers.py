"""The retriever of a configuration, and where a preset of a paper does not run as published (specification §9.2)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from omegaconf import OmegaConf

from pipeline.config.composition import conf_dir, plain
from pipeline.imports import is_own

OTHER_RETRIEVER = "other retriever than published"
NO_REFERENCES = "no references"
_PUBLISHED = "retrieval/published"
_GRAPH_WITH_FEATURES = "grbenchgraph"


def retriever(resolved: Mapping[str, Any]) -> str | None:
    """Return the name of a configuration's retriever: its encoder, and that for relation names if it is another one.

    The configuration may be an older one or one of others: nothing is imported. None if it has no retriever.
    """
    section = resolved.get("retrieval")
    if not isinstance(section, Mapping):
        return None
    if not isinstance(section.get("encoder"), Mapping):
        return _class_name(section)
    main, relations = _encoder_names(section)
    return main if main == relations else f"{main}, relations by {relations}"


def departures(resolved: Mapping[str, Any]) -> tuple[str, ...]:
    """Say where a preset does not run as published: with another retriever, or without the references that it shows.

    Empty for a configuration that names no preset of the project, and for a method whose paper has no retriever of its
    own.
    """
    choices = _section(resolved.get("choices"))
    published = _published(str(choices.get("method")))
    if published is None or not _is_published(str(choices.get("experiment", "none"))):
        return ()
    section = _section(resolved.get("retrieval"))
    method = _section(resolved.get("method"))
    shows_references = bool(method.get("num_references"))
    found = {
        OTHER_RETRIEVER: _retrieves(method, _section(resolved.get("kg"))) and _ranking(section) != _ranking(published),
        NO_REFERENCES: shows_references and section.get("reference_base") is None,
    }
    return tuple(name for name, holds in found.items() if holds)


@cache
def _is_published(preset: str) -> bool:
    """Whether a preset is one of the project's: those of a user follow no paper."""
    return preset != "none" and (conf_dir() / "experiment" / f"{preset}.yaml").is_file()


def _retrieves(method: Mapping[str, Any], kg: Mapping[str, Any]) -> bool:
    """Return whether a method searches or ranks texts. PARoG without rounds does not.

    Nor does RAG without a graph (`hops: null`), or in a graph of triples, where it begins at the topic entities.
    """
    if "hops" in method:
        has_features = _class_name(kg) == _GRAPH_WITH_FEATURES or not is_own(str(kg.get("_target_")))
        return method["hops"] is not None and has_features
    return method.get("max_rounds") != 0


@cache
def _published(method: str) -> Mapping[str, Any] | None:
    """Return the section `retrieval` of the paper that a method comes from; None for a method without one."""
    file = conf_dir() / _PUBLISHED / f"{method}.yaml"
    if not file.is_file():
        return None
    parents = (conf_dir() / f"{name}.yaml" for name in ("retrieval/lexical", "retrieval/dense"))
    return plain(OmegaConf.merge(*map(OmegaConf.load, (*parents, file))))


def _ranking(section: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what decides how a retriever ranks. A model counts by its last name: a folder may hold a copy of it."""
    encoder, relations = _encoders(section)
    names = (name.rstrip("/").rpartition("/")[2] for name in _encoder_names(section))
    lengths = (each.get("unnormalised", False) for each in (encoder, relations))
    return (*names, *lengths, section.get("fusion"))


def _encoder_names(section: Mapping[str, Any]) -> tuple[str, str]:
    main, relations = _encoders(section)
    return _encoder_name(main), _encoder_name(relations)


def _encoders(section: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the sections of the encoder and of the one for relation names."""
    main = _section(section.get("encoder"))
    return main, _section(section.get("relation_encoder")) or main


def _section(value: object) -> Mapping[str, Any]:
    """Return a section of a saved configuration, which anybody may have written; empty for any other value."""
    return value if isinstance(value, Mapping) else {}


def _encoder_name(section: Mapping[str, Any]) -> str:
    return str(section["model"]) if section.get("model") else _class_name(section).removesuffix("encoder")


def _class_name(section: Mapping[str, Any]) -> str:
    return str(section.get("_target_", "")).rpartition(".")[2].lower()
