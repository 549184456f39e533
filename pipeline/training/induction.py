"""A Llama that copies before it is trained: its first two layers begin with an induction circuit.

To repeat a name, a model has to find where the last token it wrote stood before, and write what stood behind it there.
Attention does that by a pair of heads (Olsson et al. 2022, "In-context Learning and Induction Heads"): one hands each
token the token before it; one in a later layer finds the place that was handed the current token, and repeats it. A
Llama of a few million weights spends most of a small budget until such a pair forms by itself, and until then has no
use for what a graph says. The pair can be written down, so it is. Like all other weights it is then trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import UserError

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from transformers import LlamaForCausalLM

_CONSTANT = 0.5
"""Length of what all embeddings have in common, their own part having length 1: what place is told by."""
_HANDED = 1.0
"""Length of what the first head writes, on that scale."""
_REPEATED = 5.0
"""Length of what the second head writes."""
_BEFORE = 4.5
"""Logits between the token before and its neighbours, in the first head."""
_MATCH = 18.0
"""Logits between the place that was handed the current token and the others, in the second head."""
_STEP = 0.05
"""Radians that a pair of dimensions has to turn by, from one position to the next, to tell the first head a place."""
_REACH = 150
"""Tokens over which the second head finds a place. A pair that turns further than a radian within them is not used."""


def write_induction(model: LlamaForCausalLM, generator: Generator) -> None:
    """Set up the two heads, and let all other parts of the layers write nothing at first, which would drown them.

    Raises UserError for a Llama with one layer or one head, or whose output head is not its embeddings.
    """
    import torch

    config = model.config
    width = config.hidden_size // config.num_attention_heads
    if config.num_hidden_layers < 2 or config.num_attention_heads < 2 or not config.tie_word_embeddings:
        raise UserError("a Llama begins with induction only with shape.tied=true, two layers and two heads at least")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        constant, *others = _orthonormal(config.hidden_size, generator)
        read = torch.stack(others[:width])
        repeated = _orthonormal(config.hidden_size, generator)[:width]
        handed = _apart_from(constant, _orthonormal(config.hidden_size, generator))[:width]
        embeddings = model.model.embed_tokens.weight
        unit = embeddings.norm(dim=1).mean()
        embeddings.copy_((_apart_from(constant, embeddings) + constant * _CONSTANT) * unit)
        _hand_on(model, constant, read, handed, unit)
        _repeat(model, read, handed, repeated, unit)


def _hand_on(model: LlamaForCausalLM, constant: Tensor, read: Tensor, handed: Tensor, unit: Tensor) -> None:
    """Have the first head of the first layer attend to the token before, and write what it reads of it as `handed`.

    Query and key are the same for all tokens, the query turned back by one position: they agree best one apart.
    """
    import torch

    attention, width, turns = model.model.layers[0].self_attn, len(read), _turns(model)
    length = (1 + _CONSTANT**2) ** 0.5
    seen = model.config.hidden_size**0.5 * _CONSTANT / length  # of the constant, in what the layer normalises
    scale = (_BEFORE * width**0.5 / (1 - turns.cos()).sum()) ** 0.5 / seen
    used = (turns > _STEP) * scale
    query, key = torch.cat([turns.cos() * used, -turns.sin() * used]), torch.cat([used, torch.zeros_like(used)])
    attention.q_proj.weight[:width] = torch.outer(query, constant)
    attention.k_proj.weight[:width] = torch.outer(key, constant)
    attention.v_proj.weight[:width] = read
    attention.o_proj.weight[:, :width] = handed.T * _HANDED * unit * length / width**0.5


def _repeat(model: LlamaForCausalLM, read: Tensor, handed: Tensor, repeated: Tensor, unit: Tensor) -> None:
    """Have the first head of the second layer attend to what was handed the current token, and write what it reads."""
    import torch

    attention, width, turns = model.model.layers[1].self_attn, len(read), _turns(model)
    used = (turns * _REACH < 1).repeat(2)
    length = (1 + _CONSTANT**2 + _HANDED**2) ** 0.5
    own, before = 1 / length, _HANDED * (model.config.hidden_size / width) ** 0.5 / length  # per direction
    scale = (_MATCH * width**0.5 / (int(used.sum()) * own * before)) ** 0.5
    attention.q_proj.weight[:width] = torch.where(used[:, None], read * scale, 0.0)
    attention.k_proj.weight[:width] = torch.where(used[:, None], handed * scale, 0.0)
    attention.v_proj.weight[:width] = repeated
    attention.o_proj.weight[:, :width] = repeated.T * _REPEATED * unit * length / width**0.5


def _turns(model: LlamaForCausalLM) -> Tensor:
    """By how many radians each pair of a head's dimensions is turned from one position to the next."""
    return model.model.rotary_emb.inv_freq.float()


def _apart_from(direction: Tensor, others: Tensor) -> Tensor:
    """Others without their part along a direction, of length 1."""
    import torch

    return torch.nn.functional.normalize(others - torch.outer(others @ direction, direction))


def _orthonormal(size: int, generator: Generator) -> Tensor:
    import torch

    return torch.linalg.qr(torch.randn(size, size, generator=generator)).Q
