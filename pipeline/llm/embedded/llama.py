"""Converts a Llama checkpoint to CTranslate2 and runs it in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ctranslate2
import numpy as np

from pipeline.errors import UserError
from pipeline.llm.checkpoint import Array, read_config, read_weights

_ADVICE = "serve it with vLLM (llm=endpoint or llm=serve)"

_SUPPORTED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "quantization_config": None}
"""Configuration keys for which only one value is supported."""


class Llama:
    """The model of a checkpoint, from token ids to token ids."""

    def __init__(self, folder: Path, threads: int) -> None:
        """Load the model for `threads` concurrent batches.

        Raises UserError for a checkpoint that cannot be read or is not a Llama with the original architecture.
        """
        config = read_config(folder, "config.json")
        _check(folder, config)
        try:
            specification = _specify(config, read_weights(folder))
        except KeyError as missing:
            raise UserError(f"{folder} is not a complete Llama checkpoint: {missing} is missing") from None
        with TemporaryDirectory(prefix="kgqa-llama-") as converted:
            specification.save(converted)
            self._generator = ctranslate2.Generator(
                converted, compute_type="float32", inter_threads=threads, intra_threads=1
            )
        self.vocabulary: int = specification.get_vocabulary_size()
        """Number of tokens, including unused ones."""
        self.context: int = config.get("max_position_embeddings", 2048)
        """Length of the context in tokens, for prompt and reply together."""
        ends = (read_config(folder, "generation_config.json", required=False) or config).get("eos_token_id")
        self.ends: frozenset[int] = frozenset() if ends is None else frozenset(np.atleast_1d(ends).tolist())
        """Tokens that end the model's turn according to its configuration."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        ends: Sequence[int],
        limit: int,
        *,
        logits: bool,
        stops: Callable[[int], bool],
    ) -> list[tuple[list[int], Array | None]]:
        """Continue each prompt with the most probable ids up to one of `ends`, at most `limit` ids.

        `stops` says after each id, by the index of its prompt, whether to end there. A thread of CTranslate2 calls it.
        Return the ids per prompt and, if requested, their logits with shape (ids, vocabulary).
        """
        results = self._continue(
            prompts, ends, limit, return_logits_vocab=logits, callback=lambda step: stops(step.batch_id)
        )
        generated = [result.sequences_ids[0] for result in results]
        if not logits:
            return [(ids, None) for ids in generated]
        # If the prompts differ in length, the logits include those of the ends of longer prompts.
        scores = (np.asarray(result.logits[0]) for result in results)
        return [(ids, each[-len(ids) :]) for ids, each in zip(generated, scores, strict=True)]

    def search(
        self, prompts: Sequence[Sequence[int]], ends: Sequence[int], limit: int, *, width: int, length_penalty: float
    ) -> list[list[tuple[list[int], float]]]:
        """Continue each prompt with a beam search. Return the `width` best continuations and their scores, best first.

        A continuation ends with one of `ends`, or has `limit` ids. Its score is the sum of the log-probabilities of its
        ids, divided by their number to the power of `length_penalty`. CTranslate2 cannot stop a beam search.
        """
        beams = {"beam_size": width, "num_hypotheses": width, "length_penalty": length_penalty, "return_scores": True}
        results = self._continue(prompts, ends, limit, **beams)
        return [list(zip(result.sequences_ids, result.scores, strict=True)) for result in results]

    def _continue(
        self, prompts: Sequence[Sequence[int]], ends: Sequence[int], limit: int, **options: Any
    ) -> Sequence[Any]:
        """Return CTranslate2's results, whose ids hold the end but not the prompt."""
        return self._generator.generate_batch(  # type: ignore[no-any-return]
            [list(map(str, prompt)) for prompt in prompts],
            max_length=limit,
            end_token=list(ends),
            return_end_token=True,
            include_prompt_in_result=False,
            **options,
        )


def _check(folder: Path, config: Mapping[str, Any]) -> None:
    if (kind := config.get("model_type")) != "llama":
        raise UserError(f"{folder} contains a model of type {kind}, but llm=embedded runs only Llamas; {_ADVICE}")
    for key, value in _SUPPORTED.items():
        if (found := config.get(key, value)) != value:
            raise UserError(f"{folder} has {key}={found}, which llm=embedded does not support; {_ADVICE}")
    rope = _rope(config)
    if (scaling := rope.get("rope_type", rope.get("type", "default"))) != "default":
        raise UserError(f"{folder} scales its positions ({scaling}), which llm=embedded does not support; {_ADVICE}")


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of position encoding, as transformers 5 or an earlier version writes it."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _specify(config: Mapping[str, Any], weights: Mapping[str, Array]) -> Any:
    """Return the model as CTranslate2 loads it. Raises KeyError for a missing weight or configuration key.

    The text of each token is its id in decimal, because CTranslate2 does not use the texts of a vocabulary.
    """
    from ctranslate2 import specs  # imports torch if it is installed, which takes seconds

    heads = config["num_attention_heads"]
    key_value_heads = config.get("num_key_value_heads") or heads
    theta = _rope(config).get("rope_theta") or config.get("rope_theta") or 10_000
    model = specs.TransformerDecoderModelSpec.from_config(
        config["num_hidden_layers"],
        heads,
        activation=specs.Activation.SWISH,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,  # all dimensions
        rotary_interleave=False,
        rotary_base=theta,
        num_heads_kv=None if key_value_heads == heads else key_value_heads,
        head_dim=config.get("head_dim"),
    )
    decoder = model.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = weights["model.embed_tokens.weight"]
    decoder.layer_norm.gamma = weights["model.norm.weight"]
    tied = config.get("tie_word_embeddings", False)
    decoder.projection.weight = weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
    for index, layer in enumerate(decoder.layer):
        _fill(layer, weights, f"model.layers.{index}")
    model.register_vocabulary([str(id) for id in range(len(decoder.embeddings.weight))])
    model.config.layer_norm_epsilon = config["rms_norm_eps"]
    for token in ("bos_token", "eos_token", "unk_token"):  # required, but never used
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
