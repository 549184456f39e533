"""A Llama's checkpoint as CTranslate2 runs it: its weights put where that library wants them, in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ctranslate2
import numpy as np

from pipeline.errors import UserError
from pipeline.llm.checkpoint import Array, read_settings, read_weights

_ELSEWHERE = "serve it with vLLM (llm=endpoint or llm=serve)"

_ONLY = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "quantization_config": None}
"""Settings of which one value is known here."""


class Llama:
    """The model of a checkpoint: ids in, ids out."""

    def __init__(self, folder: Path, threads: int) -> None:
        """Load it, for as many batches at once as there are threads.

        Raises UserError for a checkpoint that cannot be read, or is no Llama as it was first published.
        """
        settings = read_settings(folder, "config.json")
        _check(folder, settings)
        try:
            specification = _specify(settings, read_weights(folder))
        except KeyError as missing:
            raise UserError(f"{folder} is no whole Llama: it lacks {missing}") from None
        with TemporaryDirectory(prefix="kgqa-llama-") as converted:
            specification.save(converted)
            self._generator = ctranslate2.Generator(
                converted, compute_type="float32", inter_threads=threads, intra_threads=1
            )
        self.vocabulary: int = specification.get_vocabulary_size()
        """Tokens that there are, some of them perhaps not in use."""
        self.context: int = settings.get("max_position_embeddings", 2048)
        """Tokens that it has room for, prompt and reply together."""
        ends = (read_settings(folder, "generation_config.json", required=False) or settings).get("eos_token_id")
        self.ends: frozenset[int] = frozenset() if ends is None else frozenset(np.atleast_1d(ends).tolist())
        """Tokens that end its turn, as far as its settings tell."""

    def write(
        self, prompts: Sequence[Sequence[int]], ends: Sequence[int], limit: int, *, logits: bool
    ) -> list[tuple[list[int], Array | None]]:
        """Go on from each prompt with the most probable ids, up to one of `ends` or to `limit`.

        Gives the ids of each, and if wanted their logits with shape (ids, vocabulary).
        """
        results = self._generator.generate_batch(
            [list(map(str, prompt)) for prompt in prompts],
            max_length=limit,
            end_token=list(ends),
            return_end_token=True,
            include_prompt_in_result=False,
            return_logits_vocab=logits,
        )
        written = [result.sequences_ids[0] for result in results]
        if not logits:
            return [(ids, None) for ids in written]
        # Where prompts differ in length, the logits of their ends are among them.
        scores = (np.asarray(result.logits[0]) for result in results)
        return [(ids, each[-len(ids) :]) for ids, each in zip(written, scores, strict=True)]


def _check(folder: Path, settings: Mapping[str, Any]) -> None:
    if (kind := settings.get("model_type")) != "llama":
        raise UserError(f"{folder} holds a model of type {kind}, and llm=embedded runs Llamas alone: {_ELSEWHERE}")
    for key, value in _ONLY.items():
        if (found := settings.get(key, value)) != value:
            raise UserError(f"{folder} has {key}={found}, which llm=embedded does not know: {_ELSEWHERE}")
    rope = _rope(settings)
    if (scaling := rope.get("rope_type", rope.get("type", "default"))) != "default":
        raise UserError(f"{folder} scales its positions ({scaling}), which llm=embedded does not know: {_ELSEWHERE}")


def _rope(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """How positions are encoded, as transformers writes it since its version 5 or did before."""
    return settings.get("rope_parameters") or settings.get("rope_scaling") or {}


def _specify(settings: Mapping[str, Any], weights: Mapping[str, Array]) -> Any:
    """What CTranslate2 loads. Raises KeyError for a weight or a setting that is not there.

    Its tokens are the decimals of their ids: to CTranslate2 a vocabulary is a list of texts that it does not look into.
    """
    from ctranslate2 import specs  # it imports torch where that is installed, which takes seconds

    heads = settings["num_attention_heads"]
    key_value_heads = settings.get("num_key_value_heads") or heads
    theta = _rope(settings).get("rope_theta") or settings.get("rope_theta") or 10_000
    model = specs.TransformerDecoderModelSpec.from_config(
        settings["num_hidden_layers"],
        heads,
        activation=specs.Activation.SWISH,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,  # all dimensions
        rotary_interleave=False,
        rotary_base=theta,
        num_heads_kv=None if key_value_heads == heads else key_value_heads,
        head_dim=settings.get("head_dim"),
    )
    decoder = model.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = weights["model.embed_tokens.weight"]
    decoder.layer_norm.gamma = weights["model.norm.weight"]
    tied = settings.get("tie_word_embeddings", False)
    decoder.projection.weight = weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
    for index, layer in enumerate(decoder.layer):
        _fill(layer, weights, f"model.layers.{index}")
    model.register_vocabulary([str(id) for id in range(len(decoder.embeddings.weight))])
    model.config.layer_norm_epsilon = settings["rms_norm_eps"]
    for token in ("bos_token", "eos_token", "unk_token"):  # each has to be one, and none is ever used
        setattr(model.config, token, str(0))
    model.validate()
    model.optimize()
    return model


def _fill(layer: Any, weights: Mapping[str, Array], name: str) -> None:
    attention, feed_forward = layer.self_attention, layer.ffn
    attention.layer_norm.gamma = weights[f"{name}.input_layernorm.weight"]
    projections = [weights[f"{name}.self_attn.{part}_proj.weight"] for part in "qkv"]
    attention.linear[0].weight = np.concatenate(projections)
    attention.linear[1].weight = weights[f"{name}.self_attn.o_proj.weight"]
    feed_forward.layer_norm.gamma = weights[f"{name}.post_attention_layernorm.weight"]
    feed_forward.linear_0.weight = weights[f"{name}.mlp.gate_proj.weight"]
    feed_forward.linear_0_noact.weight = weights[f"{name}.mlp.up_proj.weight"]
    feed_forward.linear_1.weight = weights[f"{name}.mlp.down_proj.weight"]
