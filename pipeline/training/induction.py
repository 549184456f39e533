"""Initialises a Llama with an induction circuit in its first two layers, so that it can copy before it is trained.

To repeat a name, a model must find an earlier occurrence of the last token it wrote and write the token that followed
there. A pair of attention heads does this (Olsson et al. 2022, "In-context Learning and Induction Heads"): a
previous-token head copies to each position the token before it; an induction head in a later layer attends to the
position that received the current token, and repeats its token. A Llama of a few million weights spends most of a small
training budget before such a pair forms, and until then cannot use the facts of a graph. Therefore the pair is
constructed here. Then it is trained like all other weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import UserError

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from transformers import LlamaForCausalLM

_CONSTANT_LENGTH = 0.5
"""Length of the component that all embeddings share, relative to their own part; positions are computed from it."""
_COPIED_LENGTH = 1.0
"""Length of the output of the first head, on the same scale."""
_REPEATED_LENGTH = 5.0
"""Length of the output of the second head."""
_PREVIOUS_MARGIN = 4.5
"""Logit margin of the previous token over its neighbours, in the first head."""
_MATCH_MARGIN = 18.0
"""Logit margin of a position that received the current token, in the second head."""
_MIN_TURN_RADIANS = 0.05
"""Per position: the first head uses only pairs of dimensions that the rotary embedding turns by more."""
_REACH_TOKENS = 150
"""Range of the second head in tokens. Pairs that turn by more than a radian within it are not used."""


def write_induction(model: LlamaForCausalLM, generator: Generator) -> None:
    """Set up the two heads, and zero the output of all other parts of the layers, which would drown their signal.

    Raises UserError for a Llama with one layer, one head, or an output head of its own.
    """
    import torch

    config = model.config
    width = config.hidden_size // config.num_attention_heads
    if config.num_hidden_layers < 2 or config.num_attention_heads < 2 or not config.tie_word_embeddings:
        raise UserError("shape.induction=true needs shape.tied=true and at least two layers and two heads")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        constant, *others = _orthonormal(config.hidden_size, generator)
        read = torch.stack(others[:width])
        repeated = _orthonormal(config.hidden_size, generator)[:width]
        copied = _orthogonal_to(constant, _orthonormal(config.hidden_size, generator))[:width]
        embeddings = model.model.embed_tokens.weight
        unit = embeddings.norm(dim=1).mean()
        embeddings.copy_((_orthogonal_to(constant, embeddings) + constant * _CONSTANT_LENGTH) * unit)
        _set_previous_token_head(model, constant, read, copied, unit)
        _set_induction_head(model, read, copied, repeated, unit)


def _set_previous_token_head(
    model: LlamaForCausalLM, constant: Tensor, read: Tensor, copied: Tensor, unit: Tensor
) -> None:
    """Make the first head of the first layer attend to the previous token and write its `read` part as `copied`.

    Query and key are the same for all tokens, but the query is turned back by one position, so that they match best at
    distance one.
    """
    import torch

    attention, width, turns = model.model.layers[0].self_attn, len(read), _turns(model)
    length = (1 + _CONSTANT_LENGTH**2) ** 0.5
    seen = (
        model.config.hidden_size**0.5 * _CONSTANT_LENGTH / length
    )  # size of the constant after the layer's normalisation
    scale = (_PREVIOUS_MARGIN * width**0.5 / (1 - turns.cos()).sum()) ** 0.5 / seen
    used = (turns > _MIN_TURN_RADIANS) * scale
    query, key = torch.cat([turns.cos() * used, -turns.sin() * used]), torch.cat([used, torch.zeros_like(used)])
    attention.q_proj.weight[:width] = torch.outer(query, constant)
    attention.k_proj.weight[:width] = torch.outer(key, constant)
    attention.v_proj.weight[:width] = read
    attention.o_proj.weight[:, :width] = copied.T * _COPIED_LENGTH * unit * length / width**0.5


def _set_induction_head(model: LlamaForCausalLM, read: Tensor, copied: Tensor, repeated: Tensor, unit: Tensor) -> None:
    """Make the first head of the second layer attend where the current token was copied to, and repeat from there."""
    import torch

    attention, width, turns = model.model.layers[1].self_attn, len(read), _turns(model)
    used = (turns * _REACH_TOKENS < 1).repeat(2)
    length = (1 + _CONSTANT_LENGTH**2 + _COPIED_LENGTH**2) ** 0.5
    own, before = 1 / length, _COPIED_LENGTH * (model.config.hidden_size / width) ** 0.5 / length  # per direction
    scale = (_MATCH_MARGIN * width**0.5 / (int(used.sum()) * own * before)) ** 0.5
    attention.q_proj.weight[:width] = torch.where(used[:, None], read * scale, 0.0)
    attention.k_proj.weight[:width] = torch.where(used[:, None], copied * scale, 0.0)
    attention.v_proj.weight[:width] = repeated
    attention.o_proj.weight[:, :width] = repeated.T * _REPEATED_LENGTH * unit * length / width**0.5


def _turns(model: LlamaForCausalLM) -> Tensor:
    """Return by how many radians each pair of a head's dimensions turns from one position to the next."""
    return model.model.rotary_emb.inv_freq.float()


def _orthogonal_to(direction: Tensor, others: Tensor) -> Tensor:
    """Return the other vectors without their component along a direction, normalised."""
    import torch

    return torch.nn.functional.normalize(others - torch.outer(others @ direction, direction))


def _orthonormal(size: int, generator: Generator) -> Tensor:
    import torch

    return torch.linalg.qr(torch.randn(size, size, generator=generator)).Q
