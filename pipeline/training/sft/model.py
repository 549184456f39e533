"""Opens the model to fine-tune, adds tokens and an adapter, and reads the trained model from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import UserError
from pipeline.net.hub import only_cached
from pipeline.training.llama import REFLECTION_TOKENS, Checkpoint
from pipeline.training.sft.config import LoRA, SFTConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PLAIN_TEMPLATE = (
    "{{ bos_token or '' }}"
    "{% for message in messages %}"
    "{{ message['role'] + ':\\n' + message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '\\n\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\\n' }}{% endif %}"
)
"""The layout of a model that has none: a turn is its role and its text, and the model's turn ends with the end-of-text
token, at which every server stops."""
_ADAPTER = "adapter_model.safetensors"


def open_base(name: str, sft_config: SFTConfig, *, blocks: bool = False) -> Checkpoint:
    """Open the base model in single precision, with rows for added tokens. Raises UserError like `open_tokenizer`.

    New rows start as the mean of the others. `blocks` makes the model read block masks (`block_mask`).
    """
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = open_tokenizer(name, sft_config)
    with _opening(name):
        attention = {"attn_implementation": "flex_attention"} if blocks else {}
        model = AutoModelForCausalLM.from_pretrained(
            name, dtype=torch.float32, local_files_only=only_cached(name), **attention
        )
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=True)
    return Checkpoint(model, tokenizer)


def open_tokenizer(name: str, sft_config: SFTConfig) -> PreTrainedTokenizerBase:
    """Open the tokenizer of a model (a folder or a name on the Hub) and add missing reflection tokens.

    A base model without a chat template, such as Meta-Llama-3-8B, gets a plain one, which is written with the trained
    model. Raises UserError if the model cannot be opened, or has neither a chat template nor an end-of-text token.
    """
    from tokenizers import AddedToken
    from transformers import AutoTokenizer

    with _opening(name):
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=only_cached(name))
    if tokenizer.chat_template is None:
        if tokenizer.eos_token is None:
            raise UserError(f"model={name} has neither a chat template nor an end-of-text token to end its turn with")
        tokenizer.chat_template = PLAIN_TEMPLATE
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token  # padding carries no loss, so any token will do
    wanted = REFLECTION_TOKENS if sft_config.reflection_tokens else ()
    missing = [token for token in wanted if len(tokenizer.tokenize(token)) != 1]
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in missing])
    return tokenizer


@contextmanager
def _opening(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise UserError(f"model={name} cannot be opened: {str(error).splitlines()[0]}") from None


def with_adapter(model: PreTrainedModel, adapter: LoRA, seed: int) -> Any:
    """Wrap a model so that only a low-rank adapter, the embeddings and the output head are trained."""
    import torch
    from peft import LoraConfig, get_peft_model

    tied = bool(model.config.tie_word_embeddings)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        modules_to_save=["embed_tokens"] if tied else ["embed_tokens", "lm_head"],
        ensure_weight_tying=tied,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def read_trained(name: str, sft_config: SFTConfig, folder: Path) -> Checkpoint:
    """Read the model of a training checkpoint; an adapter is merged into the weights of the base model."""
    import torch
    from transformers import AutoModelForCausalLM

    if (folder / _ADAPTER).exists():
        from peft import PeftModel

        base = open_base(name, sft_config)
        return Checkpoint(PeftModel.from_pretrained(base.model, str(folder)).merge_and_unload(), base.tokenizer)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config.use_cache = True  # it was off for training
    return Checkpoint(model, open_tokenizer(name, sft_config))
