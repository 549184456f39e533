"""Training texts: reading, splitting, and the tokens that carry loss."""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import transformers

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.training.llama import Checkpoint, LlamaShape, new_llama, train_tokenizer
from pipeline.training.sft.config import SFTConfig
from pipeline.training.sft.model import PLAIN_TEMPLATE, open_tokenizer
from pipeline.training.sft.prefix_packing import IGNORED
from pipeline.training.sft.texts import TrainingText, encode, read_texts, split
from pipeline.training.sft.worker import Task, prepare

WALK = (
    "[Retrieve Relation]<paragraph>film.actor.film</paragraph>film.actor.film[Fully Relevant][No Retrieval]Answer: Öst"
)


@pytest.fixture(scope="module")
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    return train_tokenizer([WALK, "who played in Nine Lanterns?"] * 10, 600)


def carried(text: TrainingText, tokenizer: transformers.PreTrainedTokenizerFast) -> str:
    """The text of the tokens that carry loss."""
    (item,) = encode([text], tokenizer, 1000, Counter())
    ids, labels = item["input_ids"].tolist(), item["labels"].tolist()
    pairs = list(zip(labels, [*ids[1:], IGNORED], strict=True))
    assert all(label in (IGNORED, following) for label, following in pairs)
    return str(tokenizer.decode([label for label in labels if label != IGNORED]))


def text(said: str, *loss: tuple[int, int]) -> TrainingText:
    return TrainingText(({"role": "user", "content": "who played in Nine Lanterns?"},), said, loss or ((0, len(said)),))


def test_the_whole_turn_and_its_end_carry_loss(tokenizer: transformers.PreTrainedTokenizerFast) -> None:
    assert carried(text(WALK), tokenizer) == f"{WALK}<|eot_id|>"


def test_a_base_model_without_a_chat_template_gets_a_plain_one_and_ends_its_turn(
    tokenizer: transformers.PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    base = deepcopy(tokenizer)
    base.chat_template = base.pad_token = None
    base.save_pretrained(tmp_path)
    opened = open_tokenizer(str(tmp_path), default(SFTConfig))
    assert carried(text(WALK), opened) == f"{WALK}{opened.eos_token}"
    (item,) = encode([text(WALK)], opened, 1000, Counter())
    assert tokenizer.decode(item["input_ids"]) == (
        f"{opened.bos_token}user:\nwho played in Nine Lanterns?\n\nassistant:\n{WALK}{opened.eos_token}"
    )
    opened.save_pretrained(tmp_path / "trained")
    assert transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "trained").chat_template == PLAIN_TEMPLATE


def test_a_base_model_that_cannot_end_its_turn_is_refused(
    tokenizer: transformers.PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    base = deepcopy(tokenizer)
    base.chat_template = base.eos_token = None
    base.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="neither a chat template nor an end-of-text token"):
        open_tokenizer(str(tmp_path), default(SFTConfig))


def test_loss_can_leave_out_paragraphs(tokenizer: transformers.PreTrainedTokenizerFast) -> None:
    inner = WALK.index("film"), WALK.index("</paragraph>")
    masked = text(WALK, (0, inner[0]), (inner[1], len(WALK)))
    assert carried(masked, tokenizer) == f"{WALK[: inner[0]]}{WALK[inner[1] :]}<|eot_id|>"


def test_the_prefix_of_a_turn_can_be_left_without_loss(tokenizer: transformers.PreTrainedTokenizerFast) -> None:
    begun = WALK.index("[No Retrieval]")
    assert carried(text(WALK, (begun, len(WALK))), tokenizer) == "[No Retrieval]Answer: Öst<|eot_id|>"


def test_the_token_ids_are_those_of_the_chat_template(tokenizer: transformers.PreTrainedTokenizerFast) -> None:
    (item,) = encode([text(WALK)], tokenizer, 1000, Counter())
    messages = [*text(WALK).messages, {"role": "assistant", "content": WALK}]
    assert item["input_ids"].tolist() == tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)


def test_long_texts_are_left_out_and_counted(tokenizer: transformers.PreTrainedTokenizerFast) -> None:
    dropped: Counter[str] = Counter()
    assert len(encode([text(WALK), text("Öst")], tokenizer, 30, dropped)) == 1
    assert dropped == {"longer than 30 tokens": 1}


def test_no_text_left_to_train_on_is_a_user_error(
    tokenizer: transformers.PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"question": "who?", "text": WALK}) + "\n", encoding="utf-8")
    task = Task(
        "llama",
        (file,),
        default(SFTConfig, max_tokens=5, evaluation_texts=0),
        texts_per_device=1,
        gpus=False,
        sharded=False,
    )
    shape = default(LlamaShape, vocabulary=600, layers=1)
    checkpoint = Checkpoint(new_llama(tokenizer, shape, seed=0), tokenizer)
    with pytest.raises(UserError, match=r"none of 1 text is left .* recipe\.max_tokens"):
        prepare(task, checkpoint)
    file.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=r"texts\.jsonl: no text to train on"):
        prepare(task, checkpoint)


@pytest.mark.parametrize("packed", [{"prefix_sharing": True}, {"row_tokens": 400}])
def test_texts_are_counted_and_not_the_sequences_in_which_they_are_packed(
    packed: dict[str, Any], tokenizer: transformers.PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"question": "who?", "text": f"walk {n}"}) + "\n" for n in range(6)))
    recipe = default(SFTConfig, max_tokens=400, evaluation_texts=0, **packed)
    task = Task("llama", (file,), recipe, texts_per_device=1, gpus=False, sharded=False)
    checkpoint = Checkpoint(new_llama(tokenizer, default(LlamaShape, vocabulary=600, layers=1), seed=0), tokenizer)
    prepared = prepare(task, checkpoint)
    assert len(prepared.training) < 6, "else nothing is packed"
    assert prepared.count == 6


def test_a_chat_template_that_changes_the_turn_is_refused(tokenizer: transformers.PreTrainedTokenizerFast) -> None:
    other = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        chat_template="{% for message in messages %}{{ message['content'] | upper }}{% endfor %}",
    )
    with pytest.raises(UserError, match="chat template"):
        encode([text(WALK)], other, 1000, Counter())


def test_all_row_formats_are_read(tmp_path: Path) -> None:
    rows = [
        {"question": "who?", "text": "Öst", "loss": [[0, 2]]},
        {"messages": [{"role": "user", "content": "who?"}], "text": "Öst"},
        {"messages": [{"role": "system", "content": "srp.judge"}, {"role": "assistant", "content": "Öst"}]},
    ]
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert list(read_texts([file])) == [
        TrainingText(({"role": "user", "content": "who?"},), "Öst", ((0, 2),)),
        TrainingText(({"role": "user", "content": "who?"},), "Öst", ((0, 3),)),
        TrainingText(({"role": "system", "content": "srp.judge"},), "Öst", ((0, 3),)),
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"question": "who?"}, "has no text"),
        ({"text": "Öst"}, "no 'question'"),
        ({"question": "who?", "text": "Öst", "loss": [[0, 9]]}, "a span of loss is outside"),
        ({"question": "who?", "text": ""}, "empty"),
        ({"messages": [{"role": "user", "content": "who?"}]}, "last message is not the assistant's"),
    ],
)
def test_an_invalid_row_is_reported_with_its_line(row: object, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"question": "who?", "text": "Öst"}) + "\n" + json.dumps(row), encoding="utf-8")
    with pytest.raises(UserError, match=rf"texts.jsonl, line 2 is not a training text: .*{problem}"):
        list(read_texts([file]))


def test_no_prompt_is_in_both_training_and_evaluation() -> None:
    texts = [text(str(number)) for number in range(3)]
    others = [TrainingText(({"role": "user", "content": str(number)},), "x", ((0, 1),)) for number in range(20)]
    training, evaluation = split([*texts, *others], 5, seed=3)
    assert len(evaluation) == 5
    assert not {t.messages[-1]["content"] for t in training} & {t.messages[-1]["content"] for t in evaluation}
    assert split([*texts, *others], 5, seed=3) == (training, evaluation)


def test_a_batch_that_cannot_be_divided_is_a_user_error() -> None:
    with pytest.raises(UserError, match=r"recipe\.batch_size=16 cannot be divided among workers\.count=3"):
        default(SFTConfig, batch_size=16).texts_per_device(3)
    assert default(SFTConfig, batch_size=16, gradient_accumulation=4).texts_per_device(2) == 2


def test_rows_shorter_than_the_longest_text_are_refused() -> None:
    with pytest.raises(UserError, match=r"recipe\.row_tokens=100 is less than recipe\.max_tokens=101"):
        default(SFTConfig, max_tokens=101, row_tokens=100)
    assert default(SFTConfig, max_tokens=101, row_tokens=101).branching
