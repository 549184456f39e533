"""A damaged or odd file of a run folder is one sentence that names it, or it changes nothing, in every command."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
import polars as pl
import pytest

from pipeline.cli.main import main
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import RecordedCalls
from tests.cli.odd_values import change_value
from tests.cli.support import Kgqa
from tests.support import LARGE, sampled

WORLD = ("dataset.triples=2000", "run.limit=6", "engine.shard_size=3", "evaluation.bootstrap_resamples=100")
FOLDER = "damaged"
FILES = {
    "run.yaml": f"{FOLDER}/run.yaml",
    "summary": f"{FOLDER}/summary.json",
    "shard": f"{FOLDER}/traces/shard-00000.parquet",
    "prompt": f"{FOLDER}/prompts/*.json",
    "journal": f"{FOLDER}/drafts/*.jsonl",
    "rejected": f"{FOLDER}/rejected.jsonl",
    "lock": f"{FOLDER}/lock",
}
COMMANDS = (
    f"report {FOLDER} output=page.html",
    f"compare {FOLDER} whole",
    f"show {FOLDER} ID",
    f"score {FOLDER}",
    f"capacity {FOLDER} +questions.synthetic=10",
    f"collect calls {FOLDER} output=calls.jsonl material.allow_test_split=true",
    f"evaluate {' '.join(WORLD)} llm=replay llm.run={FOLDER} run.dir=again",
    f"evaluate {' '.join(WORLD)} llm=oracle run.reuse=[{FOLDER}] run.dir=again",
    f"evaluate {FOLDER}/run.yaml",
)


def _change(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _become_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


def _without_first_key(content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(lines[:1] + lines[2:])


DAMAGE: Mapping[str, Callable[[Path], object]] = {
    "empty": _change(lambda _: b""),
    "truncated": _change(lambda content: content[: len(content) // 2]),
    "garbage": _change(lambda content: random.Random(5).randbytes(len(content))),
    "flipped bit": _change(_flip),
    "another type": _change(lambda _: b"[1, 2]\n"),
    "a number": _change(lambda _: b"7\n"),
    "an object": _change(lambda _: b'{"a": {"b": [null]}}\n'),
    "not UTF-8": _change(lambda content: content.replace(b"e", b"\xff")),
    "a line less": _change(_without_first_key),
    "no name": lambda path: path.unlink(),
    "renamed": lambda path: path.rename(path.with_name(path.name.replace("0000", "0007"))),
    "copied": lambda path: shutil.copy(path, path.with_stem(f"{path.stem} (1)")),
    "a folder": _become_folder,
    "a link to itself": _become_link,
}
READER = {
    "run.yaml": "compare",
    "summary": "score",
    "shard": "compare",
    "prompt": "show",
    "journal": f"evaluate {FOLDER}",
    "rejected": "score",
    "lock": f"evaluate {FOLDER}",
}
"""The command that reads a file soonest."""
MOVED = ("no name", "renamed", "copied")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "whole"
    assert main(["evaluate", *WORLD, "llm=oracle", f"run.dir={folder}"]) == 0
    for name in ("rejected.jsonl", "lock"):
        (folder / name).write_text('{"file": "questions"}\n')
    return folder


@pytest.fixture
def folder(whole: Path, kgqa: Kgqa) -> Path:
    """The current folder, with two copies of a run: one of them, `damaged`, has a journal for its second shard."""
    shutil.copytree(whole, "whole")
    shutil.copytree(whole, FOLDER)
    path = Path(FOLDER)
    shard = path / "traces/shard-00001.parquet"
    calls = RecordedCalls(path)
    lines = [
        orjson.dumps((f"{id} {calls.gold_of_replies(id)}", None, key, call.completion))
        for id in pl.read_parquet(shard)["question_id"]
        for key, call in calls.calls(id).items()
    ]
    (path / "drafts/shard-00001.0123abcd.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return path


def check(kgqa: Kgqa, command: str, question: str, named: str = FOLDER) -> None:
    """Run a command: it succeeds, or ends with one sentence that names the file."""
    shutil.rmtree("again", ignore_errors=True)
    done = kgqa(*command.replace("ID", question).split())
    if done.code not in (0, 3):
        assert named in done.sentence, (command, done.sentence)
        assert len(done.sentence) < 700


def break_file(file: str, damage: str, folder: Path) -> str:
    """Damage a file, and return what a sentence about it names."""
    if file in ("journal", "lock"):  # of a run in progress
        (folder / "traces/shard-00001.parquet").unlink()
        (folder / "summary.json").unlink()
    path = sorted(Path().glob(FILES[file]))[0]
    DAMAGE[damage](path)
    return FOLDER if damage in MOVED else path.name


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(0, marks=pytest.mark.smaller),
        pytest.param(2, marks=pytest.mark.exhaustive),
        pytest.param(len(COMMANDS), marks=LARGE),
    ],
)
@pytest.mark.parametrize("damage", sampled(DAMAGE, every=6))
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_one_sentence(file: str, damage: str, more: int, folder: Path, kgqa: Kgqa) -> None:
    """In the command that reads the file soonest, and in `more` others: over all damages, each command has its turn."""
    question = first_question(folder)
    named = break_file(file, damage, folder)
    start = 2 * list(DAMAGE).index(damage)
    others = [COMMANDS[number % len(COMMANDS)] for number in range(start, start + more)]
    soonest = next(command for command in COMMANDS if command.startswith(READER[file]))
    for command in (soonest, *others):
        check(kgqa, command, question, named)


def test_the_way_out_of_a_damaged_summary_is_one(folder: Path, kgqa: Kgqa) -> None:
    before = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text("{")
    assert "remove it, and kgqa evaluate damaged/run.yaml writes it again" in kgqa("score", FOLDER).sentence
    (folder / "summary.json").unlink()
    assert kgqa("evaluate", f"{FOLDER}/run.yaml").code == 0
    assert json.loads((folder / "summary.json").read_text())["points"] == before["points"]


@pytest.mark.parametrize("command", sampled(COMMANDS, every=4))
@pytest.mark.parametrize(
    ("source", "sentence"),
    [("other/traces/shard-00000.parquet", "belongs to another run"), (f"{FOLDER}/traces/shard-00001.parquet", "copy")],
)
def test_every_command_notices_a_shard_of_another_place(
    command: str, source: str, sentence: str, folder: Path, kgqa: Kgqa
) -> None:
    question = first_question(folder)
    assert kgqa("evaluate", *WORLD, "llm=oracle", "run.dir=other").code == 0
    shutil.copy(source, folder / "traces/shard-00000.parquet")
    said = kgqa(*command.replace("ID", question).split()).sentence
    assert "shard-00000.parquet" in said
    assert sentence in said


def test_a_changed_summary_is_noticed(folder: Path, kgqa: Kgqa) -> None:
    path = folder / "summary.json"
    text = path.read_text()
    path.write_text(text.replace('"questions": 6', '"questions": 9', 1))
    assert path.read_text() != text
    said = "summary.json is damaged (its digest does not match): remove it, and kgqa evaluate"
    assert said in kgqa("ls", FOLDER).out
    assert said in kgqa("score", FOLDER).sentence


def test_a_link_in_place_of_the_lock_leaves_its_file_as_it_is(folder: Path, kgqa: Kgqa) -> None:
    Path("precious").write_text("precious")
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(Path("precious").absolute())
    kgqa("evaluate", f"{FOLDER}/run.yaml")
    assert Path("precious").read_text() == "precious"


def test_a_step_cannot_name_a_file_outside_of_the_prompts(folder: Path) -> None:
    Path("outside.json").write_text('{"system": "", "user": "outside"}')
    with pytest.raises(UserError, match="no digest of a prompt"):
        RunFolder(folder).read_template("../../outside")


FIGURES = (
    f"compare {FOLDER} whole json=true",
    f"show {FOLDER} ID json=true",
    f"score {FOLDER} json=true",
    f"ls {FOLDER} json=true",
)
"""Commands whose figures must be those of the whole run, or they end with a sentence."""
SEEDS = (
    pytest.param(range(10), marks=pytest.mark.smaller),
    pytest.param(range(100), marks=pytest.mark.exhaustive),
    pytest.param(range(100, 5100), marks=LARGE),
)
"""Of changed run folders."""


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_changes_of_a_run_folder(seeds: range, folder: Path, kgqa: Kgqa) -> None:
    """A change of any file but run.yaml, which a user may edit, is a sentence, or it changes no figure."""
    question = first_question(folder)
    expected = {command: kgqa(*command.replace("ID", question).split()).out for command in FIGURES}
    for seed in seeds:
        chance = random.Random(seed)
        shutil.rmtree(folder)
        shutil.copytree("whole", folder)
        file = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size))
        content = bytearray(file.read_bytes())
        for _ in range(chance.choice([1, 1, 3, 20])):
            start = chance.randrange(max(1, len(content)))
            end = start + chance.choice([0, 1, 1, 1, 8])
            content[start:end] = chance.choice([b"", chance.randbytes(end - start), content[: end - start]])
        file.write_bytes(content)
        shutil.rmtree("again", ignore_errors=True)
        command = chance.choice((*COMMANDS, *FIGURES))
        done = kgqa(*command.replace("ID", question).split())
        assert done.code in (0, 3) or done.sentence, f"seed {seed}"
        if done.code == 0 and command in FIGURES and file.name != "run.yaml" and not json.loads(done.out)["notes"]:
            assert done.out == expected[command], f"seed {seed}: {file.name}, {command}"


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_values_in_a_run_folder(seeds: range, folder: Path, kgqa: Kgqa) -> None:
    """A file that is well formed, but holds another value somewhere, is a sentence or a result in every command."""
    question = first_question(folder)
    shutil.copytree(folder, "kept")
    for seed in seeds:
        chance = random.Random(seed)
        shutil.rmtree(folder)
        shutil.copytree("kept", folder)
        files = sorted(path for path in folder.rglob("*.*") if path.is_file() and path.name != "rejected.jsonl")
        file = chance.choice([*files, *folder.glob("traces/*")])
        change_value(file, chance)
        shutil.rmtree("again", ignore_errors=True)
        done = kgqa(*chance.choice((*COMMANDS, *FIGURES, "ls .")).replace("ID", question).split())
        assert done.code in (0, 3) or done.sentence, f"seed {seed}: {file}"


def first_question(folder: Path) -> str:
    return str(pl.read_parquet(folder / "traces/shard-00000.parquet")["question_id"][0])
