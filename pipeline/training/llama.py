"""Creates small Llamas: a tokenizer trained on the project's texts, random weights, and a chat template.

With random weights a Llama writes nonsense, but everything around it can be tested: the server that loads it, tokens,
chat template, log-probabilities and stop strings. Needs `pip install 'kgqa-pipeline[train]'`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import pydantic.dataclasses
from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt

import pipeline.methods
from pipeline.datasets.interface import Dataset, Reject
from pipeline.errors import UserError
from pipeline.llm.prompt import Template
from pipeline.methods.arg.tokens import CLASSES, CLOSE, OPEN
from pipeline.training.induction import write_induction

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

REFLECTION_TOKENS = (*chain.from_iterable(CLASSES.values()), OPEN, CLOSE)
"""ArG's tokens, each a single token of the vocabulary. They are normal tokens: no decoder skips them."""

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]

_BEGIN, _END_OF_TEXT, _END_OF_TURN, _ROLE, _END_OF_ROLE = _CONTROL = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
)
"""Control tokens, named as in Llama 3."""
_ROPE_BASE = 500_000.0
"""As in Llama 3. Half of a head's dimensions hardly turn within a prompt and encode the token, not its position."""

_CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    f"{{{{ '{_ROLE}' + message['role'] + '{_END_OF_ROLE}\\n\\n' + message['content'] + '{_END_OF_TURN}' }}}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '{_ROLE}assistant{_END_OF_ROLE}\\n\\n' }}}}{{% endif %}}"
)
"""A turn is the role between two control tokens, a blank line, the unchanged text, and the end of the turn."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class LlamaShape:
    """The shape of a Llama. Its defaults are in `conf/init_model.yaml`."""

    vocabulary: Annotated[int, Field(ge=512)]
    """Number of tokens, including control and reflection tokens. A small corpus may give fewer."""
    hidden_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    """Attention heads; each has `hidden_size / heads` dimensions."""
    key_value_heads: PositiveInt
    context: PositiveInt
    """Tokens of prompt and reply together."""
    tied: bool
    """Use the embeddings as output head. A small model then learns to copy names much sooner, because the mapping from
    input to output already exists for each token."""
    induction: bool
    """Initialise two heads that copy (`pipeline/training/induction.py`); for a model that will be trained."""
    spread: PositiveFloat
    """Standard deviation of the weights. With the usual 0.02 a small model finds all tokens about equally probable.
    That is right for a model that will be trained, but wrong for a substitute of a trained one."""


@dataclass(frozen=True)
class Checkpoint:
    """A model and its tokenizer."""

    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast

    def save(self, folder: Path, precision: Precision = "float32") -> None:
        """Write a Hugging Face checkpoint: safetensors, configuration, tokenizer and chat template."""
        import torch
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.model.to(getattr(torch, precision)).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def make_llama(dataset: Dataset, reject: Reject, shape: LlamaShape, seed: int, texts: Iterable[str] = ()) -> Checkpoint:
    """Create a Llama with random weights and a tokenizer trained on a dataset, on all prompts and on `texts`.

    The same dataset, texts, shape and seed give the same checkpoint. Raises UserError for an impossible shape.
    """
    tokenizer = train_tokenizer(chain(training_texts(dataset, reject), texts), shape.vocabulary)
    return Checkpoint(new_llama(tokenizer, shape, seed), tokenizer)


def training_texts(dataset: Dataset, reject: Reject) -> Iterator[str]:
    """Yield the questions and relation names of a dataset, and the fixed texts of all prompts of all methods."""
    for example in dataset.examples(reject):
        yield example.question.text
    yield from sorted({triple.relation for triple in dataset.triples()})
    for template in _templates():
        yield from filter(None, (template.system, template.user, template.assistant))


def train_tokenizer(
    texts: Iterable[str], vocabulary: int, added: Sequence[str] = REFLECTION_TOKENS
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer, with the `added` texts as single tokens.

    A space belongs to the word before it, and each punctuation mark is a token of its own, so a name has the same
    tokens between commas, brackets or reflection tokens. A small model learns to copy names only under this condition.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(r"[\p{L}_]+ ?|\p{N}{1,3} ?|[^\s\p{L}\p{N}_] ?|\s+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_BEGIN} $A", pair=f"{_BEGIN} $A $B", special_tokens=[(_BEGIN, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(added),
        special_tokens=list(_CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in added])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=_BEGIN,
        eos_token=_END_OF_TURN,
        pad_token=_END_OF_TEXT,
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def new_llama(tokenizer: PreTrainedTokenizerFast, shape: LlamaShape, seed: int) -> LlamaForCausalLM:
    """Create an untrained Llama for a tokenizer. Raises UserError for an impossible shape."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if shape.hidden_size % shape.heads or shape.heads % shape.key_value_heads:
        raise UserError(
            f"a Llama of hidden_size={shape.hidden_size} cannot have heads={shape.heads} and key_value_heads="
            f"{shape.key_value_heads}: each must be a multiple of the next"
        )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=3 * shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        max_position_embeddings=shape.context,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        rope_parameters={"rope_type": "default", "rope_theta": _ROPE_BASE},
        initializer_range=shape.spread,
        tie_word_embeddings=shape.tied,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    if shape.induction:
        write_induction(model, torch.Generator().manual_seed(seed))
    return model


def _templates() -> list[Template]:
    """Return the templates of all methods: of their prompt classes, and constants of their modules."""
    found: dict[str, Template] = {}
    for module in pkgutil.walk_packages(pipeline.methods.__path__, "pipeline.methods."):
        for value in vars(importlib.import_module(module.name)).values():
            values = value.values() if isinstance(value, dict) else (value, getattr(value, "template", None))
            found |= {each.digest: each for each in values if isinstance(each, Template)}
    return [found[digest] for digest in sorted(found)]
