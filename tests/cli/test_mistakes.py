"""Mistakes of users: each prints one sentence on stderr, which says how to fix it, and ends with exit code 2."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.cli.main import guard
from pipeline.errors import OUTAGE, ServiceError
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from pipeline.types import Example, Rejected
from tests.cli.support import Kgqa
from tests.support import KGQA

QUESTION = {"id": "q1", "question": "Who is Ann's son?", "topic_entities": ["Ann"], "answers": ["Bob"]}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("method.beam_widht=2", "unknown key 'method.beam_widht'. Did you mean 'method.beam_width'?"),
        ("method.widht=2", "unknown key 'method.widht'. Did you mean 'method.beam_width'?"),
        ("method=tog method.widht=2", "unknown key 'method.widht'. Did you mean 'method.width'?"),
        ("method.limit=2", "unknown key 'method.limit'. Did you mean 'run.limit'?"),
        ("method.nonsense=2", "unknown key 'method.nonsense'."),
        ("method=parog method.subgoals=2", "unknown key 'method.subgoals'. Did you mean 'method.max_subgoals'?"),
        ("depht=2", "unknown key 'depht'. Did you mean 'method.depth'?"),
        ("limit=2", "unknown key 'limit'. Did you mean 'run.limit'?"),
        ("depth=2", "unknown key 'depth'. Did you mean 'method.depth'?"),
        ("metod=srp", "unknown key 'metod'. Did you mean 'method'?"),
        ("llm.base_urls=[http://gpu1/v1]", "unknown key 'llm.base_urls'. It is a key of llm=endpoint."),
        ("+method.new=1", "unknown key 'method.new'."),
        ("+run.new=1", "unknown key 'run.new'."),
        ("+methd=arg", "unknown key 'methd'. Did you mean 'method'?"),
        ("++foo=1", "unknown key 'foo'."),
        ("+foo.bar=1", "unknown key 'foo.bar'."),
        ("+foo=1 --cfg job", "unknown key 'foo'."),
        ("+foo=1 --help", "unknown key 'foo'."),
        ("seed=1", "unknown key 'seed'. Did you mean 'run.seed'?"),
        ("datset=custom", "unknown key 'datset'. Did you mean 'dataset'?"),
        ("method.Depth=2", "unknown key 'method.Depth'. Did you mean 'method.depth'?"),
        ("method=SRP", "there is no method=SRP. Did you mean 'srp'?"),
        ("llm=null", "there is no llm=null. Known: embedded, endpoint, oracle, "),
        ("engine=3", "there is no engine=3. Known: local, ray"),
        ("llm={a:1}", "there is no llm={a:1}. Known: embedded, "),
        ("method=spr", "there is no method=spr. Did you mean 'srp'? Known: arg, cot, "),
        ("engine=ry", "there is no engine=ry. Did you mean 'ray'? Known: local, ray"),
        ("experiment=reedi", "there is no experiment=reedi. Did you mean 'readi'?"),
        ("method.depth=deep", "method.depth='deep' is wrong: input should be a valid integer"),
        (
            "method=rag method.depth=3",
            "method.depth=3 sets method.hops of rag, and method.hops=3 is wrong: input should be 0, 1 or 2",
        ),
        ("run.limit=many", "run.limit='many' is wrong: input should be a valid integer"),
        ("run.limit=1e3", "run.limit=1000.0 is wrong: input should be a valid integer, written run.limit=1000"),
        ("llm=oracle llm.error_rate=15%", "input should be a valid number, written llm.error_rate=0.15"),
        (
            "dataset.triples=facts.tsv",
            "valid integer, unable to parse string as an integer. It is a text with dataset=custom",
        ),
        ("run.limit=", "run.limit='' is wrong: input should be a valid integer"),
        (
            "dataset=custom dataset.triples=a dataset.questions=b dataset.name=5",
            "dataset.name=5 is wrong: input should be",
        ),
        ("llm=endpoint llm.base_urls=[]", "llm.base_urls=[] is wrong: input should be a list with at least one value"),
        ("run.early_stopping=10", "run.early_stopping drops configurations that fall behind: a run of one has none"),
        ("run.dir=", "run.dir='' is wrong: name a folder, or leave out the key"),
        ("run.seed=x", "run.seed='x' is wrong"),
        ("run.reuse=runs/x", "run.reuse='runs/x' is wrong: input should be a list, written run.reuse=[a,b]"),
        (
            "llm=endpoint llm.base_urls=http://gpu1/v1",
            "llm.base_urls='http://gpu1/v1' is wrong: input should be a list, written llm.base_urls=[a,b]",
        ),
        ("method.judge=maybe", "method.judge='maybe' is wrong: input should be true or false or 'structural'"),
        ("engine.concurrency=x", "engine.concurrency='x' is wrong"),
        (
            "engine.metrics_port=80000",
            "engine.metrics_port=80000 is wrong: input should be less than or equal to 65535",
        ),
        ("engine.log=xml", "engine.log='xml' is wrong: input should be 'text' or 'json'"),
        ("dataset.strict=maybe", "dataset.strict='maybe' is wrong: input should be true or false"),
        ("budget.max_llm_calls=x", "budget.max_llm_calls='x' is wrong"),
        ("budget=3", "budget=3 is wrong: it should be a section with keys of its own"),
        ("~method", "method=None is wrong: it should be a section with keys of its own"),
        ("retrieval.encoder=x", "retrieval.encoder='x' is wrong"),
        ("+retrieval.encoder.model=x", "unknown key 'retrieval.encoder.model'."),
        ("method.depth=0", "method.depth=0 is wrong: input should be greater than 0"),
        ("run.limit=0", "run.limit=0 is wrong: input should be greater than 0"),
        ("engine.concurrency=0", "engine.concurrency=0 is wrong: input should be greater than 0"),
        ("engine.shard_size=-1", "engine.shard_size=-1 is wrong: input should be greater than 0"),
        ("engine=ray engine.workers=0", "engine.workers=0 is wrong: input should be greater than 0"),
        ("engine.name=spark", "engine.name='spark' is wrong: input should be 'local' or 'ray'"),
        ("llm=oracle llm.error_rate=2", "llm.error_rate=2 is wrong: input should be less than or equal to 1"),
        ("evaluation.confidence=95", "evaluation.confidence=95 is wrong: input should be less than 1"),
        ("dataset.types=[sums]", "dataset.types.0='sums' is wrong: input should be '1-hop', '2-hop'"),
        ("method.depth=1,2", "'method.depth=1,2': write a list as key=[1,2]"),
        (
            "method=[srp,arg]",
            "method=[srp,arg]: method takes one choice, as in method=srp; kgqa sweep method=srp,arg takes several",
        ),
        ("llm=oracle,similarity", "llm takes one choice, as in llm=oracle; kgqa sweep llm=oracle,similarity takes"),
        ("experiment=[readi,srp_no_reference]", "experiment takes one choice, as in experiment=readi; kgqa sweep"),
        ("kg/vocabulary=[freebase]", "kg/vocabulary=[freebase]: kg/vocabulary takes one choice, as in kg/vocabulary="),
        ("engine=[]", "engine=[]: engine takes one choice, as in engine=…"),
        ("runs/x", "'runs/x' is not of the form key=value, and not the run.yaml of a run"),
        (
            "method tog",
            "'method' is not of the form key=value, and not the run.yaml of a run. Did you mean 'method=tog'?",
        ),
        (
            "method = tog",
            "'method' is not of the form key=value, and not the run.yaml of a run. Did you mean 'method=tog'?",
        ),
        ("--hepl", "'--hepl' is not of the form key=value, and kgqa has no such flag. Did you mean '--help'?"),
        (
            "method=srp ~method.depth",
            "method.max_path_len=${.depth} cannot be resolved (Interpolation key 'depth' not found): "
            "leave out ~method.depth, as other keys need that one",
        ),
        (
            "--run.limit=3",
            "'--run.limit=3' is not of the form key=value, and kgqa has no such flag. Did you mean run.limit=3?",
        ),
        ("--limit 10", "'--limit' is not of the form key=value, and kgqa has no such flag. Did you mean run.limit=10?"),
        (
            "--method tog",
            "'--method' is not of the form key=value, and kgqa has no such flag. Did you mean method=tog?",
        ),
        ("--verbose", "'--verbose' is not of the form key=value, and kgqa has no such flag."),
        ("dataset.types=[1-hop", "'dataset.types=[1-hop' is not of the form key=value"),
        (
            "run.dir=größe[1",
            """ is not of the form key=value: check its brackets and quotes, or write 'run.dir="größe[1"' for""",
        ),
        ("method.depth=${nope}", "method.depth=${nope} cannot be resolved"),
        ("kg=grbench", "kg.domain=${dataset.domain} cannot be resolved"),
        (
            "kg=subgraph",
            "kg=subgraph needs a dataset with a graph per question, such as dataset=rog; synthetic has none",
        ),
        ("llm=replay", "llm.run must be given, as in llm.run=…. The folder of the earlier run"),
        ("+method.widht=1", "unknown key 'method.widht'. Did you mean 'method.beam_width'?"),
        ("+run.limt=1", "unknown key 'run.limt'. Did you mean 'run.limit'?"),
        ("+engine.concurency=1", "unknown key 'engine.concurency'. Did you mean 'engine.concurrency'?"),
        ("+llm.reply_style=1", "unknown key 'llm.reply_style'."),
        (
            "llm=endpoint llm.base_urls=[http://gpu1/v1,http://gpu1/v1/]",
            "llm.base_urls names http://gpu1/v1/ more than once: name each server once",
        ),
        (
            "kg=sparql kg.endpoints=[http://a/sparql,http://b/sparql,http://a/sparql]",
            "kg.endpoints names http://a/sparql more than once: name each server once",
        ),
        ("llm=endpoint llm.base_urls=[gpu1]", "'gpu1' is not a URL; write it as http://HOST:PORT/v1"),
        (
            "method._target_=nowhere.Method",
            "method._target_=nowhere.Method cannot be imported: No module named 'nowhere'; put the folder of nowhere "
            "on PYTHONPATH",
        ),
        ("method._target_=Method", "method._target_=Method cannot be imported"),
        ("method._target_=pipeline.methods.srp.Nothing", "has no attribute 'Nothing'"),
    ],
)
def test_a_wrong_argument_is_reported_before_anything_is_written(
    words: str, sentence: str, evaluate: Kgqa, tmp_path: Path
) -> None:
    assert sentence in evaluate(*words.split()).sentence
    assert list(tmp_path.iterdir()) == []


def test_the_key_of_a_wrong_value_is_named_alone_if_it_follows_no_other_one(kgqa: Kgqa) -> None:
    said = kgqa("evaluate", "method=rag", "method.hops=3").sentence
    assert said == "method.hops=3 is wrong: input should be 0, 1 or 2"


def test_required_keys_of_a_dataset_are_named(kgqa: Kgqa) -> None:
    assert kgqa("evaluate", "dataset=metaqa").sentence.startswith(
        "dataset.path must be given, as in dataset.path=…. The folder as "
    )
    both = kgqa("evaluate", "dataset=custom").sentence
    assert both.startswith("dataset.questions, dataset.triples must be given, as in dataset.questions=…. The file of ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("dataset=metaqa dataset.path=/nowhere", "dataset.path=/nowhere is not a folder with 1-hop MetaQA questions"),
        ("dataset=webqsp dataset.path=/nowhere", "dataset.path=/nowhere is not a folder with WebQSP questions"),
        ("dataset=rog dataset.path=/nowhere", "dataset.path=/nowhere is not a folder with RoG questions"),
        ("dataset=custom dataset.triples=x dataset.questions=/nowhere", "dataset.questions=/nowhere is not a file"),
        ("dataset=synthetic kg.store=/nowhere", "create it with `kgqa graph load target=oxigraph output=/nowhere`"),
        (
            "dataset=synthetic kg=grbench kg.path=/nowhere kg.domain=dblp",
            "/nowhere holds no graph.json or graph.json.gz",
        ),
        ("dataset=synthetic run.reuse=[/nowhere]", "/nowhere has no run.yaml: name the folder of an earlier run"),
        (
            "dataset=synthetic llm=replay llm.run=/nowhere",
            "/nowhere has no run.yaml: name the folder of an earlier run",
        ),
        ("dataset=synthetic retrieval.reference_base=/nowhere", "there is no reference base at /nowhere"),
        (
            "dataset=synthetic llm=serve llm.model=/nowhere",
            "/nowhere is not a folder on this machine; choose the folder of a checkpoint",
        ),
    ],
)
def test_a_missing_file_is_named(words: str, sentence: str, kgqa: Kgqa) -> None:
    assert sentence in kgqa("evaluate", *words.split(), "run.limit=2", "run.dir=run").sentence


def test_the_triples_of_a_dataset_are_missing(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text(json.dumps(QUESTION))
    said = kgqa("evaluate", "dataset=custom", "dataset.triples=graph.tsv", "dataset.questions=questions.jsonl").sentence
    assert said == "dataset.triples=graph.tsv is not a file"


def test_a_model_server_that_is_down(evaluate: Kgqa, closed_port: int) -> None:
    said = evaluate("llm=endpoint", f"llm.base_urls=[http://127.0.0.1:{closed_port}/v1]").sentence
    assert f"no model server can be used: http://127.0.0.1:{closed_port}/v1" in said
    assert "set llm.base_urls" in said


def test_a_ray_address_without_a_port(evaluate: Kgqa) -> None:
    said = evaluate("engine=ray", "engine.address=nonsense").sentence
    assert said == "the Ray address nonsense is not of the form HOST:PORT: correct engine.address"


def test_a_graph_server_that_is_down(evaluate: Kgqa, closed_port: int) -> None:
    said = evaluate("kg=sparql", f"kg.endpoints=[http://127.0.0.1:{closed_port}/sparql]").sentence
    assert f"no graph server answers at http://127.0.0.1:{closed_port}/sparql" in said
    assert "kgqa graph serve" in said


def test_a_saved_configuration_that_is_not_there_is_named(kgqa: Kgqa) -> None:
    for words in (["nowhere.yaml"], ["nowhere.yaml", "method=srp"]):
        assert kgqa("evaluate", *words).sentence == "nowhere.yaml cannot be read: No such file or directory"


def test_a_saved_configuration_takes_no_other_keys(kgqa: Kgqa) -> None:
    Path("run.yaml").touch()
    said = kgqa("evaluate", "run.yaml", "run.limit=3").sentence
    assert said.startswith("run.yaml holds the whole configuration: remove the other arguments")


def test_a_resume_that_drifted_names_the_keys(finished: Path, evaluate: Kgqa) -> None:
    words = ("llm=oracle", "llm.error_rate=0.4", f"run.dir={finished}")
    said = evaluate(*words, "method.retries=1", "dataset.seed=8").sentence
    assert said.startswith(f"{finished} holds another run. What differs: ")
    differing = re.findall(r"([\w.]+): (\S+) → (\S+?)(?:;|\. |$)", said)
    assert set(differing) >= {("dataset.seed", "7", "8"), ("method.retries", "3", "1"), ("method.max_edits", "3", "1")}
    assert evaluate(*words).code == 0


def test_a_key_without_a_value_drifts_from_null(finished: Path, evaluate: Kgqa) -> None:
    said = evaluate("llm=oracle", "llm.error_rate=0.4", f"run.dir={finished}", "run.sample=3").sentence
    assert "run.sample: null → 3" in said


def test_a_key_that_drifted_in_every_configuration_is_named_once(kgqa: Kgqa) -> None:
    words = ("sweep", "llm=oracle", "method.depth=1,2,3", "run.limit=2", "run.dir=sweep")
    assert kgqa(*words).code == 0
    said = kgqa(*words, "budget.max_evidence_triples=7").sentence
    assert said.count("budget.max_evidence_triples: ") == 1


def test_another_method_in_the_folder_of_a_run_is_named_without_its_keys(finished: Path, evaluate: Kgqa) -> None:
    said = evaluate("llm=oracle", "llm.error_rate=0.4", f"run.dir={finished}", "method=arg", "dataset.seed=8").sentence
    assert "What differs: method: srp → arg; dataset.seed: 7 → 8" in said
    assert "method." not in said


def test_a_run_folder_that_cannot_be_created(evaluate: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = evaluate("run.dir=file/run").sentence
    assert said == f"run.dir={tmp_path / 'file' / 'run'} cannot be created: Not a directory; name another run.dir"


@pytest.mark.parametrize("content", ["points: [", "hello", b"\xff\xfe"])
def test_a_run_folder_with_a_damaged_run_yaml(content: str | bytes, evaluate: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert "run.yaml is not the run.yaml of a run" in evaluate(f"run.dir={tmp_path / 'run'}").sentence


def test_a_folder_with_traces_but_no_run_yaml_is_refused(finished: Path, evaluate: Kgqa, tmp_path: Path) -> None:
    shutil.copytree(finished / "traces", tmp_path / "run" / "traces")
    assert "holds traces but no run.yaml" in evaluate(f"run.dir={tmp_path / 'run'}").sentence


def test_a_new_run_names_a_file_of_others_in_its_folder(evaluate: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".hidden").touch()
    assert "holds other files" not in evaluate("run.limit=2").err
    (tmp_path / "run" / "notes.txt").touch()
    assert "holds other files" not in evaluate("run.limit=2").err, "the run has begun before"
    (tmp_path / "run" / "run.yaml").unlink()
    again = evaluate("run.limit=2", "run.restart=true")
    assert f"{tmp_path / 'run'} holds other files, such as notes.txt\n" in again.err
    assert (tmp_path / "run" / "notes.txt").exists()


def test_a_run_folder_inside_another_is_noted(finished: Path, evaluate: Kgqa) -> None:
    inner = evaluate("run.limit=2", f"run.dir={finished / 'inner'}")
    assert (
        f"{finished / 'inner'} is inside the run folder {finished}: kgqa ls there or above does not list it\n"
        in inner.err
    )
    assert "is inside the run folder" not in evaluate("run.limit=2").err


def test_a_dataset_without_a_question(monkeypatch: pytest.MonkeyPatch, evaluate: Kgqa) -> None:
    monkeypatch.setattr(SyntheticWorld, "examples", lambda dataset, reject: iter(()))
    assert evaluate("run.dir=run").sentence.startswith("the dataset has no question to answer")

    def unreadable(dataset: SyntheticWorld, reject: Callable[[Rejected], None]) -> Iterator[Example]:
        reject(Rejected("q.jsonl", 7, "it has no id"))
        return iter(())

    monkeypatch.setattr(SyntheticWorld, "examples", unreadable)
    said = evaluate("run.dir=run").sentence
    assert said.endswith(". 1 row could not be read; q.jsonl, line 7: it has no id"), said
    assert not Path("run").exists()


@pytest.mark.parametrize(
    "content",
    [
        "points: [",
        "hello",
        "a: 1",
        "points: []",
        "points: [{overrides: [], config: {}}]",
        "points: [{overrides: [], config: {run: {dir: null}}}]",
        "points: [{overrides: [], config: {run: {dir: null, limit: 3, seed: 0, reuse: []}}}]",
        b"\xff\xfe",
    ],
)
def test_a_file_that_is_not_a_saved_run(content: str | bytes, kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    said = kgqa("evaluate", "run.yaml").sentence
    assert "run.yaml is not the run.yaml of a run" in said or "must be given" in said or "budget=None is wrong" in said


def test_a_missing_saved_run(kgqa: Kgqa) -> None:
    assert kgqa("evaluate", "nowhere/run.yaml").sentence == "nowhere/run.yaml cannot be read: No such file or directory"


@pytest.mark.parametrize("part", ["summary.json", "traces"])
def test_a_part_of_a_run_folder_in_place_of_its_run_yaml(part: str, finished: Path, kgqa: Kgqa) -> None:
    said = kgqa("evaluate", finished / part).sentence
    assert said.endswith(
        f"{part} is in a run folder: name the run.yaml beside it, as in kgqa evaluate {finished}/run.yaml"
    )


@pytest.mark.parametrize("words", [[], ["run.limit=3"]])
def test_a_run_folder_in_place_of_its_run_yaml(words: list[str], finished: Path, kgqa: Kgqa) -> None:
    said = kgqa("evaluate", finished, *words).sentence
    assert said == f"{finished} is a run folder: name its file, as in kgqa evaluate {finished}/run.yaml"


def test_scoring_a_folder_without_a_complete_run(finished: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    assert kgqa("score", "nowhere").sentence == "nowhere is not a run folder: it does not exist (see kgqa ls)"
    shutil.copytree(finished, tmp_path / "half")
    (tmp_path / "half" / "summary.json").unlink()
    shutil.rmtree(tmp_path / "half" / "traces")
    begun = "half holds no finished shard yet: its run has begun, and kgqa evaluate half/run.yaml continues it"
    assert kgqa("score", "half").sentence == kgqa("compare", "half").sentence == begun
    with RunFolder(Path("half")).held():
        assert kgqa("score", "half").sentence == "half holds no finished shard yet: its run is still running"
    assert kgqa("evaluate", "half/run.yaml").code == 0
    assert kgqa("score", "half").code == 0
    shutil.rmtree(tmp_path / "half" / "traces")
    (tmp_path / "half" / "run.yaml").unlink()
    assert kgqa("collect", "calls", "half", "output=x").sentence == ("half is not a run folder: no run has begun in it")
    assert "evaluation.confidence=2 is wrong" in kgqa("score", finished, "evaluation.confidence=2").sentence
    assert "this command has no group 'engine'" in kgqa("score", finished, "engine=ray").sentence


def test_scoring_missing_predictions(kgqa: Kgqa) -> None:
    said = kgqa("score", "predictions=nowhere.jsonl", "dataset=synthetic").sentence
    assert said.startswith("predictions=nowhere.jsonl is not a file")
    assert "name a run folder or a file of predictions" in kgqa("score", "dataset=synthetic").sentence
    assert kgqa("score", "prediction=x").sentence == "unknown key 'prediction'. Did you mean 'predictions'?"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("evaluat", "there is no command 'evaluat'. Did you mean 'evaluate'?"),
        ("--evaluate", "there is no command '--evaluate'. Did you mean 'evaluate'?"),
        ("graph lode", "kgqa graph has no 'lode'. Did you mean 'load'?"),
        ("graph load target=x", "target='x' is wrong: input should be 'ntriples', 'oxigraph' or 'virtuoso'"),
        ("graph load method=srp", "this command has no group 'method'. It has dataset, kg, kg/vocabulary."),
        ("graph load method.depth=2", "this command has no group 'method'. It has dataset, kg, kg/vocabulary."),
        (
            "graph load dataset=metaqa engine=ray --help",
            "this command has no group 'engine'. It has dataset, kg, kg/vocabulary.",
        ),
        ("graph load targt=oxigraph", "unknown key 'targt'. Did you mean 'target'?"),
        ("graph load +method=srp", "this command has no group 'method'. It has dataset, kg, kg/vocabulary."),
        ("graph load +targt=oxigraph", "unknown key 'targt'. Did you mean 'target'?"),
        ("ls +tga=x", "unknown key 'tga'. Did you mean 'tag'?"),
        ("ls sort=hits", "unknown key 'sort'. Known: tag"),
        ("capacity questions.synthetic=1000", "unknown key 'questions.synthetic'. +questions.synthetic=… adds it."),
        ("capacity questions.webqps=9", "unknown key 'questions.webqps'. Did you mean 'questions.webqsp'?"),
        ("estimate +foo=1", "unknown key 'foo'. --help lists the keys."),
        ("sweep +foo=1,2", "unknown key 'foo'."),
        (
            "sweep method=[srp,arg]",
            "method takes one choice, as in method=srp; kgqa sweep method=srp,arg takes several",
        ),
        ("sweep method.depth=range(3,3)", "method.depth has no values: range(3,3) is empty"),
        ("graph load dataset=[synthetic,metaqa]", "dataset takes one choice, as in dataset=synthetic"),
        ("sweep llm=null", "there is no llm=null. Known: embedded, "),
        ("sweep run.dir=größe[1", "is not of the form key=value or key=value,value: check its brackets and quotes, or"),
        (
            "sweep method.depth=[1,2] dataset.triples=2000",
            "input should be a valid integer. For several values, write method.depth=1,2",
        ),
        ("graph serve llm=oracle", "this command has no group 'llm'. It has dataset, kg, kg/vocabulary."),
        ("graph serve replicas=0", "replicas=0 is wrong: input should be greater than 0"),
        ("build-references run.limit=x", "run.limit='x' is wrong"),
        (
            "score predictions=x.jsonl engine=ray",
            "this command has no group 'engine'. It has dataset, evaluation, kg, kg/vocabulary.",
        ),
        ("build-references references.clusters=0", "references.clusters=0 is wrong: input should be greater than 0"),
        ("benchmark nothing", "there is no benchmark 'nothing'"),
        ("evaluate llm=x --help", "there is no llm=x"),
    ],
)
def test_the_other_commands(words: str, sentence: str, kgqa: Kgqa) -> None:
    assert sentence in kgqa(*words.split()).sentence


@pytest.mark.parametrize(
    "words",
    [
        *(f"losses run {wrong}" for wrong in ("groups=0", "groups=many", "groups=null", "by=7", "configuration={a:1}")),
        *(f"show run ID {wrong}" for wrong in ("step=one", "calls=maybe", "configuration=first", "configuration=null")),
        *(f"view run {wrong}" for wrong in ("port=-1", "port=65536", "port=web", "open=maybe")),
        *(f"export run format=otel {wrong}" for wrong in ("configuration=all", "output=[a]")),
        *(f"compare run {wrong}" for wrong in ("top=0", "score=7", "flips=[1]")),
        *(f"score predictions=p.jsonl {wrong}" for wrong in ("peers=maybe", "name=[a]")),
        *(f"graph load {wrong}" for wrong in ("output=[a]", "target=rdf")),
        *(f"graph serve {wrong}" for wrong in ("database=[a]", "replicas=one")),
        *(f"init-model {wrong}" for wrong in ("output=[a]", "seed=x", "texts=7")),
        *(f"train arg model=m texts=t output=o {wrong}" for wrong in ("output=[a]", "model=[m]", "texts=7")),
        *(f"train improve model=m configurations=c output=o {wrong}" for wrong in ("output=[a]", "rounds=many")),
        *(f"train bundled-model metaqa=m output=o {wrong}" for wrong in ("metaqa=[m]", "limit=0")),
        "collect arg output=[a]",
        "collect corrections run output=[a]",
    ],
)
def test_a_wrong_value_of_a_commands_own_key_is_named(words: str, finished: Path, kgqa: Kgqa) -> None:
    *command, wrong = words.replace("run", str(finished)).replace("ID", "sample-test-000000").split()
    key, _, _ = wrong.partition("=")
    assert re.match(rf"{key}=.+ is wrong: input should be ", kgqa(*command, wrong).sentence)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("llm=oracle method=cot run.limit=2", ["run.limit is given more than once: run.limit=20 is ignored"]),
        ("method=srp method=cot llm=oracle llm=oracle", ["method is given more than once: method=srp is ignored"]),
        (
            "method=cot table=t.csv table=t2.md llm=oracle json=true json=false",
            [
                "table is given more than once: table=t.csv is ignored",
                "json is given more than once: json=true is ignored",
            ],
        ),
    ],
)
def test_a_key_with_two_values_is_named(words: str, said: list[str], evaluate: Kgqa) -> None:
    done = evaluate(*words.split())
    assert done.code == 0
    assert [line for line in done.err.splitlines() if "more than once" in line] == said


@pytest.mark.parametrize("bad_row", [2, 40], ids=["in the first shard", "in the last"])
def test_a_strict_run_stops_at_a_malformed_row(bad_row: int, kgqa: Kgqa, tmp_path: Path) -> None:
    rows = [json.dumps({**QUESTION, "id": f"q{number}"}) for number in range(1, 41)]
    rows[bad_row - 1] = '{"id": "half'
    (tmp_path / "questions.jsonl").write_text("\n".join(rows))
    (tmp_path / "graph.tsv").write_text("Ann\tson\tBob\n")
    words = ("dataset=custom", "dataset.triples=graph.tsv", "dataset.questions=questions.jsonl", "run.dir=run")
    small = ("engine.shard_size=4", "engine.concurrency=4", "evaluation.bootstrap_resamples=100")
    said = kgqa("evaluate", *words, *small, "dataset.strict=true").sentence
    assert f"questions.jsonl, line {bad_row}: it is not valid JSON" in said
    assert "dataset.strict=false skips such rows" in said
    assert kgqa("evaluate", *words, *small).code == 0, "the run continues in the same folder"


def test_a_bug_is_not_reported_as_a_user_error(monkeypatch: pytest.MonkeyPatch, kgqa: Kgqa) -> None:
    monkeypatch.setattr("pipeline.cli.evaluate.run", lambda arguments: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        kgqa("evaluate")


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch, kgqa: Kgqa) -> None:
    def fails(arguments: object) -> None:
        raise ExceptionGroup("lanes", [OSError(28, "No space left on device", "run/traces/shard-00000.parquet")])

    monkeypatch.setattr("pipeline.cli.evaluate.run", fails)
    assert kgqa("evaluate").sentence == "run/traces/shard-00000.parquet: No space left on device"


@pytest.mark.exhaustive
def test_a_job_script_reports_the_same_error_as_the_command(environment: dict[str, str], tmp_path: Path) -> None:
    script = str(Path(__file__).parents[2] / "jobs" / "evaluate.py")
    for command in ([*KGQA, "evaluate"], [sys.executable, script]):
        ended = subprocess.run(
            [*command, "run.limt=3"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        said = "kgqa: unknown key 'run.limt'. Did you mean 'run.limit'?\n"
        assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)


def test_control_characters_of_a_server_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def job(_: list[str]) -> int:
        raise ServiceError("http://127.0.0.1 answered 500: \x1b]0;mine\x07 [red]no[/red]")

    assert guard(job, []) == OUTAGE
    assert capsys.readouterr().err == "kgqa: http://127.0.0.1 answered 500: \ufffd]0;mine\ufffd [red]no[/red]\n"


@pytest.mark.parametrize("command", ["evaluate", "doctor"])
def test_a_wrong_value_in_a_run_yaml_is_named_with_its_file(
    command: str, finished: Path, kgqa: Kgqa, tmp_path: Path
) -> None:
    file = tmp_path / "copy/run.yaml"
    shutil.copytree(finished, file.parent)
    file.write_text(re.sub(r"max_edits: \d+", "max_edits: many", file.read_text()))
    said = kgqa(command, file).sentence
    assert said.startswith(f"{file}: method.max_edits='many' is wrong")
    assert said.count(str(file)) == 1


def test_questions_that_cannot_be_read_leave_no_run_folder(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text("Berlin\tcapital_of\tGermany\n")
    (tmp_path / "q.jsonl").write_text('{"id": "q", "question": "?", "topic_entities": "Berlin", "answers": ["x"]}\n')
    words = ("dataset=custom", "dataset.triples=facts.tsv", "dataset.questions=q.jsonl", "llm=oracle", "run.dir=run")
    assert "topic_entities" in kgqa("evaluate", *words).sentence
    assert not (tmp_path / "run").exists()


def test_a_database_is_not_built_in_a_folder_that_is_in_use(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    said = kgqa("graph", "serve", "dataset.triples=2000", "database=full").sentence
    assert said == "database=full is no folder with a virtuoso.db, and is not empty: name a new folder"
