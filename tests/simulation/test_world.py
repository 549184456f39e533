"""The synthetic world: its gold equals the result of its SPARQL, and it is reproducible everywhere at any size."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from pyoxigraph import NamedNode, QuerySolutions, RdfFormat, Store

from pipeline.config import conf_dir, default
from pipeline.datasets.interface import Dataset
from pipeline.errors import UserError
from pipeline.normalisation import normalise
from pipeline.rdf_terms import FREEBASE, Terms
from pipeline.simulation.world import SyntheticWorld
from pipeline.simulation.world import world as world_module
from pipeline.simulation.world.facts import INVERSES, MEDIATORS, XSD
from pipeline.simulation.world.language import phrase
from pipeline.simulation.world.phrases import MEASURES, STEPS
from pipeline.simulation.world.questions import QUESTION_TYPES, Deck
from pipeline.types import EntityId, Example, LiteralNode, Node, Rejected, Relation, Triple

SPLITS = ("train", "dev", "test")
WORLDS = {"one region": 5_000, "several regions": 20_000}


def examples(world: SyntheticWorld) -> list[Example]:
    return list(world.examples(fail))


def fail(rejected: Rejected) -> None:
    pytest.fail(f"a generated question was rejected: {rejected}")


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest) -> SyntheticWorld:
    return default(SyntheticWorld, triples=WORLDS[request.param], questions=1_600)


@pytest.fixture(scope="module")
def asked(world: SyntheticWorld) -> list[Example]:
    return examples(world)


@pytest.fixture(scope="module")
def graph(world: SyntheticWorld) -> Graph:
    return Graph(world.triples())


class Graph:
    """An independent index of the whole graph, to check the generator against."""

    def __init__(self, triples: Iterable[Triple]) -> None:
        self.triples = list(triples)
        self.edges: defaultdict[tuple[Node, Relation], list[Node]] = defaultdict(list)
        self.names: dict[EntityId, str] = {}
        self.types: defaultdict[EntityId, set[str]] = defaultdict(set)
        for head, relation, tail in self.triples:
            assert isinstance(head, str)
            self.edges[head, Relation(relation, "out")].append(tail)
            self.edges[tail, Relation(relation, "in")].append(head)
            if relation in {"type.object.name", "common.topic.alias"} and isinstance(tail, LiteralNode):
                self.names.setdefault(head, tail.value)
            if relation == "type.object.type":
                assert isinstance(tail, str)
                self.types[head].add(tail)

    def ends(self, start: EntityId, path: Iterable[Relation]) -> set[Node]:
        """The nodes that a relation path reaches without returning to a named entity."""
        chains: set[tuple[Node, ...]] = {(start,)}
        for relation in path:
            chains = {
                (*chain, node)
                for chain in chains
                for node in self.edges[chain[-1], relation]
                if node not in chain or node not in self.names
            }
        return {chain[-1] for chain in chains}


def oxigraph(triples: Iterable[Triple]) -> Store:
    store, terms = Store(), Terms()
    store.bulk_load("".join(map(terms.n_triple, triples)).encode(), RdfFormat.N_TRIPLES)
    return store


def selected(store: Store, sparql: str) -> list[str]:
    """The single column of a query's result: ids, and the values of literals."""
    solutions = store.query(sparql)
    assert isinstance(solutions, QuerySolutions)
    terms = [solution[0] for solution in solutions]
    return [term.value.removeprefix(FREEBASE) if isinstance(term, NamedNode) else term.value for term in terms]


def gold_ids(example: Example) -> list[str]:
    return [answer.id or answer.name for answer in example.gold.answers]


class TestGold:
    def test_sparql_returns_exactly_the_gold_answers_on_the_whole_graph(
        self, world: SyntheticWorld, asked: list[Example]
    ) -> None:
        store = oxigraph(world.triples())
        tested = Counter(example.question.meta["type"] for example in asked)
        assert set(tested) == set(QUESTION_TYPES)
        for example in asked:
            assert example.gold.sparql is not None
            found = selected(store, example.gold.sparql)
            assert sorted(found) == sorted(gold_ids(example)), example

    @settings(max_examples=12)
    @given(size=st.integers(1_000, 3_000), seed=st.integers(0, 10_000), split=st.sampled_from(SPLITS))
    def test_sparql_returns_the_gold_answers_in_any_small_world(self, size: int, seed: int, split: str) -> None:
        world = default(SyntheticWorld, triples=size, seed=seed, split=split, questions=48)
        store = oxigraph(world.triples())
        for example in examples(world):
            assert example.gold.sparql is not None
            assert sorted(selected(store, example.gold.sparql)) == sorted(gold_ids(example)), example

    def test_paths_lead_to_the_answers(self, graph: Graph, asked: list[Example]) -> None:
        for example in asked:
            type = str(example.question.meta["type"])
            gold = {answer.id or answer.name for answer in example.gold.answers}
            reached = []
            assert list(example.gold.paths) == [entity.id for entity in example.question.topic_entities]
            for topic, paths in example.gold.paths.items():
                (path,) = paths
                ends = {node if isinstance(node, str) else node.value for node in graph.ends(topic, path)}
                reached.append(ends)
            if type.endswith("-hop"):
                assert gold == reached[0]
            elif type == "count":
                assert gold == {str(len(reached[0]))}
            elif type == "conjunction":
                assert gold == reached[0] & reached[1]
            else:
                assert gold < reached[0]

    def test_answers_have_the_names_of_their_entities(self, graph: Graph, asked: list[Example]) -> None:
        for example in asked:
            for answer in example.gold.answers:
                if answer.id is not None:
                    assert answer.name == graph.names[answer.id]
                    assert all(
                        LiteralNode(alias, None, "en") in graph.edges[answer.id, Relation("common.topic.alias", "out")]
                        for alias in answer.aliases
                    )
        assert any(answer.aliases for example in asked for answer in example.gold.answers)
        assert any(answer.id is None for example in asked for answer in example.gold.answers)

    def test_answers_are_never_topics_nor_mediators(self, graph: Graph, asked: list[Example]) -> None:
        for example in asked:
            ids = {answer.id for answer in example.gold.answers}
            assert ids.isdisjoint(example.gold.paths)
            assert all(graph.types[id].isdisjoint(MEDIATORS) for id in ids if id)


class TestQuestions:
    def test_hops_count_relations_and_mediators(self, graph: Graph, asked: list[Example]) -> None:
        for example in asked:
            meta = example.question.meta
            lengths = {len(path) for (path,) in example.gold.paths.values()}
            assert meta["hops"] == max(lengths)
            assert set(meta) == {"type", "hops", "mediators"}, "what a method may see must not hold gold"
            if str(meta["type"]).endswith("-hop"):
                assert meta["type"] == f"{meta['hops']}-hop"
                assert len(example.gold.paths) == 1
        assert {example.question.meta["mediators"] for example in asked} >= {0, 1, 2}
        directions = {step.direction for e in asked for (path,) in e.gold.paths.values() for step in path}
        assert directions == {"in", "out"}

    def test_the_text_mentions_every_topic_by_name(self, graph: Graph, asked: list[Example]) -> None:
        for example in asked:
            assert all(entity.name in example.question.text for entity in example.question.topic_entities)
            assert all(entity.name == graph.names[entity.id] for entity in example.question.topic_entities)
            assert example.question.text[-1] in "?."

    def test_conjunctions_need_both_branches(self, graph: Graph, asked: list[Example]) -> None:
        large = 0
        conjunctions = [example for example in asked if example.question.meta["type"] == "conjunction"]
        for example in conjunctions:
            branches = [graph.ends(topic, path) for topic, (path,) in example.gold.paths.items()]
            assert len(branches) == 2
            assert len(example.gold.answers) < min(map(len, branches))
            large += max(map(len, branches)) > 15
        assert large > len(conjunctions) / 10

    def test_answer_sets_are_mostly_small_and_sometimes_large(self, asked: list[Example]) -> None:
        sizes = [len(example.gold.answers) for example in asked]
        assert min(sizes) == 1
        assert sum(size <= 30 for size in sizes) > 0.97 * len(sizes)
        assert sum(size > 10 for size in sizes) > 0.02 * len(sizes)

    def test_one_relation_path_has_several_wordings(self) -> None:
        wordings: defaultdict[object, set[str]] = defaultdict(set)
        for example in examples(default(SyntheticWorld, types=["1-hop"], questions=2_000)):
            (topic,), ((path,),) = example.question.topic_entities, example.gold.paths.values()
            wordings[path].add(example.question.text.replace(topic.name, "*"))
        often = [texts for path, texts in wordings.items() if path[0].name == "people.person.place_of_birth"]
        assert len(often) == 1
        assert len(often[0]) == 3
        assert sum(len(texts) > 1 for texts in wordings.values()) > 0.9 * len(wordings)

    def test_ids_and_texts_are_distinct(self, world: SyntheticWorld, asked: list[Example]) -> None:
        assert len({example.question.id for example in asked}) == len(asked)
        assert len({example.question.text for example in asked}) > 0.95 * len(asked)
        assert asked[123].question.id == "sample-test-000123"
        assert {(e.question.dataset, e.question.split) for e in asked} == {(world.name, world.split)}

    def test_types_are_balanced_in_every_prefix(self, asked: list[Example]) -> None:
        seen = Counter(dict.fromkeys(QUESTION_TYPES, 0))
        for example in asked:
            seen[example.question.meta["type"]] += 1
            assert max(seen.values()) - min(seen.values()) <= 1

    def test_a_question_does_not_depend_on_the_number_of_questions(
        self, world: SyntheticWorld, asked: list[Example]
    ) -> None:
        few = default(SyntheticWorld, triples=world.size, questions=100)
        assert examples(few) == asked[:100]

    def test_selecting_types_does_not_change_their_questions(self, world: SyntheticWorld, asked: list[Example]) -> None:
        kept = ("count", "2-hop")
        some = examples(default(SyntheticWorld, triples=world.size, questions=100, types=kept))
        assert some == [example for example in asked if example.question.meta["type"] in kept][:100]

    def test_splits_share_the_graph_and_no_question(self) -> None:
        worlds = [default(SyntheticWorld, split=split) for split in SPLITS]
        assert len({digest(world.triples()) for world in worlds}) == 1
        questions = [
            (example.gold.sparql, normalise(example.question.text)) for world in worlds for example in examples(world)
        ]
        queries, texts = ({question[part] for question in questions} for part in (0, 1))
        assert len(queries) == len(questions)
        assert len(texts) > 0.998 * len(questions), "texts differ too, except for a few namesakes"


class TestGraph:
    def test_ids_look_like_freebase_ids_and_facts_are_distinct(self, graph: Graph) -> None:
        assert len(set(graph.triples)) == len(graph.triples)
        ids = {id for id in graph.types if not id.startswith(("film.", "people."))}
        assert {id[:3] for id in ids} == {"m.0", "g.1"}
        assert all(set(id[3:]) <= set("0123456789bcdfghjklmnpqrstvwxyz_") for id in ids)

    def test_inverse_relations_hold_in_both_directions(self, graph: Graph) -> None:
        facts = set(graph.triples)
        for head, relation, tail in graph.triples:
            if relation in INVERSES:
                assert Triple(tail, INVERSES[relation], head) in facts

    def test_mediators_are_unnamed_and_flagged_by_their_type(self, graph: Graph) -> None:
        flagged = {head for head, relation, _ in graph.triples if relation == "freebase.type_hints.mediator"}
        assert flagged == set(MEDIATORS)
        mediators = [id for id, types in graph.types.items() if types & flagged]
        assert len(mediators) > 50
        assert not any(id in graph.names for id in mediators)
        assert all(id in graph.names for id in graph.types if id not in set(mediators))

    def test_labels_repeat_and_contain_special_characters(self) -> None:
        labels = Counter(Graph(default(SyntheticWorld).triples()).names.values())
        assert sum(count > 1 for count in labels.values()) >= 5
        text = "".join(labels)
        assert all(character in text for character in "\"'{}<>[],&éö")

    def test_literals_of_all_kinds_occur(self, graph: Graph) -> None:
        literals = [tail for _, _, tail in graph.triples if isinstance(tail, LiteralNode)]
        datatypes = {literal.datatype for literal in literals if literal.datatype}
        assert datatypes == {XSD + t for t in ("date", "gYear", "gYearMonth", "integer", "decimal", "boolean")}
        assert {literal.lang for literal in literals} >= {None, "en", "fr", "tr"}

    def test_relations_that_the_filter_drops_and_keeps_occur(self, graph: Graph) -> None:
        relations = {relation for _, relation, _ in graph.triples}
        domains = {relation.split(".")[0] for relation in relations}
        assert {"common", "freebase", "kg", "type", "user", "base"} <= domains
        assert "common.topic.notable_types" in relations

    def test_hubs_have_very_many_edges(self) -> None:
        degrees = Counter(
            tail for _, _, tail in default(SyntheticWorld, triples=100_000).triples() if isinstance(tail, str)
        )
        named = Graph(islice(default(SyntheticWorld).triples(), 500)).names
        hubs = {named[id]: degree for id, degree in degrees.most_common(60) if id in named}
        assert hubs["Male"] > 500
        assert hubs["Drama"] > 100

    @pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
    def test_size_is_met_within_ten_percent(self, size: int) -> None:
        assert sum(1 for _ in default(SyntheticWorld, triples=size).triples()) == pytest.approx(size, rel=0.1)

    @settings(max_examples=30)
    @given(size=st.integers(1_000, 20_000), seed=st.integers(0, 2**31))
    def test_any_size_and_seed_is_met(self, size: int, seed: int) -> None:
        assert sum(1 for _ in default(SyntheticWorld, triples=size, seed=seed).triples()) == pytest.approx(
            size, rel=0.1
        )


class TestStreams:
    @pytest.mark.parametrize("stream", ["triples", "examples"])
    @pytest.mark.exhaustive
    def test_memory_does_not_grow_with_the_world(self, stream: str) -> None:
        def peak(size: int) -> int:
            world = default(SyntheticWorld, triples=size, questions=size // 50)
            items: Iterator[object] = world.triples() if stream == "triples" else world.examples(fail)
            tracemalloc.start()
            for _ in items:
                pass
            highest = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return highest

        peak(40_000)  # has more regions than are cached; fills process-wide caches, such as compiled patterns
        assert peak(200_000) < 1.25 * peak(40_000)

    @pytest.mark.exhaustive
    def test_the_world_is_the_same_in_every_process(self) -> None:
        here = digest(default(SyntheticWorld).triples()) + digest(default(SyntheticWorld).examples(fail))
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import test_world as t; w = t.default(t.SyntheticWorld);"
            "print(t.digest(w.triples()) + t.digest(w.examples(t.fail)))"
        )
        for hash_seed in ("1", "2"):
            there = subprocess.run(
                [sys.executable, "-c", code, str(Path(__file__).parent)],
                env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                text=True,
                check=True,
            )
            assert there.stdout.strip() == here

    def test_another_seed_is_another_world(self) -> None:
        assert digest(default(SyntheticWorld, seed=1).triples()) != digest(default(SyntheticWorld, seed=2).triples())
        assert digest(default(SyntheticWorld, seed=1).examples(fail)) != digest(
            default(SyntheticWorld, seed=2).examples(fail)
        )

    def test_a_written_world_is_read_back(self, tmp_path: Path) -> None:
        kept = default(SyntheticWorld, triples=2_000, questions=80, path=tmp_path / "world")
        fresh = default(SyntheticWorld, triples=2_000, questions=80)
        for _ in ("written", "read back"):
            assert list(kept.triples()) == list(fresh.triples())
            assert examples(kept) == examples(fresh)
        assert sorted(file.suffix for file in (tmp_path / "world").iterdir()) == [".jsonl", ".jsonl"]

    def test_a_written_world_is_not_generated_again(self, tmp_path: Path) -> None:
        world = default(SyntheticWorld, triples=2_000, path=tmp_path)
        list(world.triples())
        (file,) = tmp_path.glob("*.triples.jsonl")
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:10]))
        assert len(list(world.triples())) == 10

    def test_worlds_of_other_keys_do_not_share_files(self, tmp_path: Path) -> None:
        worlds = [
            default(SyntheticWorld, triples=1_000, questions=8, path=tmp_path),
            default(SyntheticWorld, triples=1_000, questions=8, path=tmp_path, seed=8),
            default(SyntheticWorld, triples=2_000, questions=8, path=tmp_path),
        ]
        others = [default(SyntheticWorld, triples=1_000, questions=8, path=tmp_path, split="dev")]
        others += [default(SyntheticWorld, triples=1_000, questions=8, path=tmp_path, types=["count"])]
        assert len({digest(world.triples()) for world in worlds}) == 3
        assert len({digest(world.examples(fail)) for world in worlds + others}) == 5

    def test_an_interrupted_write_leaves_no_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def breaks(*args: object) -> object:
            raise KeyboardInterrupt

        monkeypatch.setattr(world_module, "build_region", breaks)
        with pytest.raises(KeyboardInterrupt):
            list(default(SyntheticWorld, path=tmp_path).triples())
        assert list(tmp_path.iterdir()) == []

    def test_the_dataset_can_be_pickled(self) -> None:
        world: Dataset = default(SyntheticWorld, triples=2_000, questions=8)
        assert list(pickle.loads(pickle.dumps(world)).examples(fail)) == list(world.examples(fail))


class TestInvalidConfigurations:
    @pytest.mark.parametrize(
        ("key", "value"),
        [("triples", 999), ("questions", 0), ("split", "validation"), ("types", ["5-hop"]), ("sise", 1)],
    )
    def test_an_invalid_value_names_its_key(self, key: str, value: object) -> None:
        with pytest.raises(UserError, match=rf"dataset\.{key}"):
            default(SyntheticWorld, **{key: value})

    def test_writing_without_a_writable_path_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UserError, match="cannot be written"):
            list(default(SyntheticWorld, path=tmp_path / "file").triples())

    def test_a_world_without_questions_of_a_type_is_a_user_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(world_module.DECKS, "count", Deck([]))
        with pytest.raises(UserError, match="has no count question"):
            examples(default(SyntheticWorld))

    def test_the_configuration_holds_the_defaults(self) -> None:
        section = OmegaConf.to_container(OmegaConf.load(conf_dir() / "dataset" / "synthetic.yaml"))
        assert isinstance(section, dict)
        assert section.pop("_target_") == "pipeline.simulation.world.SyntheticWorld"
        assert section.pop("strict") is False
        assert default(SyntheticWorld, **section) == default(SyntheticWorld)


class TestLanguage:
    @given(thing=st.text(min_size=1), plural_thing=st.booleans(), plural_answer=st.booleans(), other=st.booleans())
    def test_a_phrase_contains_its_subject_verbatim_and_no_inflections(
        self, thing: str, plural_thing: bool, plural_answer: bool, other: bool
    ) -> None:
        for template in (template for step in STEPS for template in (*step.ask, *step.noun, *step.clause)):
            said = phrase(template, thing, plural_thing=plural_thing, plural_answer=plural_answer, other=other)
            assert thing in said
            assert not set("[]<>|(){}") & set(said.replace(thing, "", 1))

    def test_every_template_has_one_slot_for_its_subject(self) -> None:
        templates = [template for step in STEPS for template in (*step.ask, *step.noun, *step.clause)]
        templates += [template for measure in MEASURES for template in (measure.more, measure.less)]
        assert all(template.count("{}") == 1 for template in templates)

    @given(size=st.integers(1, 3_000))
    def test_draws_visit_every_candidate_once(self, size: int) -> None:
        stride = world_module._stride(size)
        assert len({number * stride % size for number in range(size)}) == size


def digest(items: Iterable[object]) -> str:
    content = hashlib.sha256()
    for item in items:
        content.update(repr(item).encode())
    return content.hexdigest()
