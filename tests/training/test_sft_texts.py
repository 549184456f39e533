"""What training texts are read from, and which of their tokens carry loss."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from pipeline.errors import UserError
from pipeline.training.llama import Checkpoint, LlamaShape, new_llama, train_tokenizer
from pipeline.training.sft.recipe import Recipe
from pipeline.training.sft.texts import TrainingText, encode, read_texts, split
from pipeline.training.sft.trees import IGNORED
from pipeline.training.sft.worker import Task, prepare

WALK = (
    "[Retrieve Relation]<paragraph>film.actor.film</paragraph>film.actor.film[Fully Relevant][No Retrieval]Answer: Öst"
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer([WALK, "who played in Nine Lanterns?"] * 10, 600)


def carried(text: TrainingText, tokenizer: PreTrainedTokenizerFast) -> str:
    """The text of the tokens that carry loss."""
    (item,) = encode([text], tokenizer, 1000, Counter())
    ids, labels = item["input_ids"].tolist(), item["labels"].tolist()
    pairs = list(zip(labels, [*ids[1:], IGNORED], strict=True))
    assert all(label in (IGNORED, following) for label, following in pairs)
    return str(tokenizer.decode([label for label in labels if label != IGNORED]))


def text(said: str, *loss: tuple[int, int]) -> TrainingText:
    return TrainingText(({"role": "user", "content": "who played in Nine Lanterns?"},), said, loss or ((0, len(said)),))


def test_the_whole_turn_and_its_end_carry_loss(tokenizer: PreTrainedTokenizerFast) -> None:
    assert carried(text(WALK), tokenizer) == f"{WALK}<|eot_id|>"


def test_loss_can_leave_out_paragraphs(tokenizer: PreTrainedTokenizerFast) -> None:
    inner = WALK.index("film"), WALK.index("</paragraph>")
    masked = text(WALK, (0, inner[0]), (inner[1], len(WALK)))
    assert carried(masked, tokenizer) == f"{WALK[: inner[0]]}{WALK[inner[1] :]}<|eot_id|>"


def test_what_is_begun_for_the_model_carries_no_loss(tokenizer: PreTrainedTokenizerFast) -> None:
    begun = WALK.index("[No Retrieval]")
    assert carried(text(WALK, (begun, len(WALK))), tokenizer) == "[No Retrieval]Answer: Öst<|eot_id|>"


def test_a_text_is_the_prompt_that_a_server_would_render(tokenizer: PreTrainedTokenizerFast) -> None:
    (item,) = encode([text(WALK)], tokenizer, 1000, Counter())
    messages = [*text(WALK).messages, {"role": "assistant", "content": WALK}]
    assert item["input_ids"].tolist() == tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)


def test_long_texts_are_left_out_and_counted(tokenizer: PreTrainedTokenizerFast) -> None:
    dropped: Counter[str] = Counter()
    assert len(encode([text(WALK), text("Öst")], tokenizer, 30, dropped)) == 1
    assert dropped == {"longer than 30 tokens": 1}


def test_nothing_left_to_train_on_is_said(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"question": "who?", "text": WALK}) + "\n", encoding="utf-8")
    task = Task("llama", (file,), Recipe(max_tokens=5, evaluation_texts=0), share=1, gpus=False, sharded=False)
    shape = LlamaShape(vocabulary=600, layers=1)
    with pytest.raises(UserError, match=r"of 1 texts none is left .* recipe\.max_tokens"):
        prepare(task, Checkpoint(new_llama(tokenizer, shape, seed=0), tokenizer))


def test_a_template_that_changes_the_turn_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    other = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        chat_template="{% for message in messages %}{{ message['content'] | upper }}{% endfor %}",
    )
    with pytest.raises(UserError, match="chat template"):
        encode([text(WALK)], other, 1000, Counter())


def test_all_kinds_of_rows_are_read(tmp_path: Path) -> None:
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
        ({"question": "who?", "text": "Öst", "loss": [[0, 9]]}, "its loss lies outside"),
        ({"question": "who?", "text": ""}, "empty"),
        ({"messages": [{"role": "user", "content": "who?"}]}, "do not end with the assistant's"),
    ],
)
def test_a_row_that_is_no_text_is_named(row: object, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"question": "who?", "text": "Öst"}) + "\n" + json.dumps(row), encoding="utf-8")
    with pytest.raises(UserError, match=rf"texts.jsonl, line 2 is no training text: .*{problem}"):
        list(read_texts([file]))


def test_no_prompt_is_both_trained_and_measured_on() -> None:
    texts = [text(str(number)) for number in range(3)]
    others = [TrainingText(({"role": "user", "content": str(number)},), "x", ((0, 1),)) for number in range(20)]
    training, evaluation = split([*texts, *others], 5, seed=3)
    assert len(evaluation) == 5
    assert not {t.messages[-1]["content"] for t in training} & {t.messages[-1]["content"] for t in evaluation}
    assert split([*texts, *others], 5, seed=3) == (training, evaluation)


def test_a_batch_that_cannot_be_shared_out_is_said() -> None:
    with pytest.raises(UserError, match=r"recipe\.batch_size=16 cannot be shared out among workers=3"):
        Recipe(batch_size=16).share(3)
    assert Recipe(batch_size=16, gradient_accumulation=4).share(2) == 2
