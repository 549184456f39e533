"""Creating small Llamas. `tests/integration/models/test_vllm.py` serves them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from pipeline.cli.main import main
from pipeline.config import default
from pipeline.errors import UserError
from pipeline.simulation.world import SyntheticWorld
from pipeline.training.llama import REFLECTION_TOKENS, LlamaShape, make_llama, training_texts
from tests.support import refuse


def test_the_tokenizer_learns_from_questions_relations_and_prompts() -> None:
    texts = list(training_texts(default(SyntheticWorld, triples=1000, questions=10), refuse))
    assert len([text for text in texts if text.endswith("?")]) >= 5
    assert "people.person.place_of_birth" in texts
    assert any("Topic entities: {{entities}}" in text for text in texts)


def test_the_same_seed_gives_the_same_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["init-model", "dataset.triples=1000", "dataset.questions=20", "shape.layers=1", "shape.vocabulary=1024"]
    for output, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert main([*words, f"seed={seed}", f"output={tmp_path / output}"]) == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    assert len(tokenizer) == model.config.vocab_size == 1024
    assert all(len(tokenizer.tokenize(token)) == 1 for token in REFLECTION_TOKENS)
    assert main(["init-model", f"output={tmp_path / 'a'}"]) == 2
    assert "already exists: give another output=" in capsys.readouterr().err


def test_an_impossible_shape_is_a_user_error() -> None:
    with pytest.raises(UserError, match="hidden_size=128 cannot have heads=3"):
        make_llama(default(SyntheticWorld, triples=1000, questions=1), refuse, default(LlamaShape, heads=3), seed=0)


def test_an_untrained_llama_with_induction_repeats_a_sequence() -> None:
    dataset, tokens = (
        default(SyntheticWorld, triples=1000, questions=1),
        torch.randint(100, 700, (40,), generator=seeded()),
    )
    repeated = {}
    for induction in (False, True):
        shape = default(LlamaShape, vocabulary=768, heads=2, tied=True, induction=induction, spread=0.08)
        model = make_llama(dataset, refuse, shape, seed=0).model.eval()
        with torch.no_grad():
            written = model(input_ids=torch.cat([tokens, tokens])[None]).logits[0].argmax(-1)
        repeated[induction] = int((written[40:79] == tokens[1:]).sum())
    assert repeated[False] <= 2
    assert repeated[True] >= 30


@pytest.mark.parametrize("lacking", [{"layers": 1}, {"heads": 1, "key_value_heads": 1}, {"tied": False}])
def test_induction_needs_two_layers_two_heads_and_tied_embeddings(lacking: dict[str, int]) -> None:
    shape = default(LlamaShape, **{"vocabulary": 768, "tied": True, "induction": True, **lacking})
    with pytest.raises(UserError, match=r"shape\.induction=true needs"):
        make_llama(default(SyntheticWorld, triples=1000, questions=1), refuse, shape, seed=0)


def test_a_name_has_the_same_tokens_in_every_context() -> None:
    dataset = default(SyntheticWorld, triples=1000, questions=20)
    tokenizer = make_llama(dataset, refuse, default(LlamaShape, vocabulary=1024), seed=0).tokenizer
    name = tokenizer.tokenize("Ada Orsa")
    for text in ("(Ada Orsa, directed_by, x)", "(x, directed_by, Ada Orsa);", "</paragraph>Ada Orsa[Unrelevant]"):
        tokens = tokenizer.tokenize(text)
        assert any(tokens[place : place + len(name)] == name for place in range(len(tokens)))


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)
