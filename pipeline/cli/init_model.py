"""`kgqa init-model`: write a small Llama with random weights, for tests and smoke runs."""

from __future__ import annotations

from pathlib import Path

from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/init_model.yaml`."""

    output: str
    texts: tuple[str, ...]
    seed: int


def run(arguments: Arguments) -> Output:
    """Create the Llama that the configuration describes, and write it."""
    from pipeline.engine.rejections import Rejections
    from pipeline.training.llama import make_llama
    from pipeline.training.sft.texts import read_texts

    composed = arguments.compose()
    plan = config.build_own(Plan, composed)
    output = Path(plan.output)
    if output.exists():
        raise UserError(f"{output} already exists: give another output=")
    dataset = config.build("dataset", composed)
    with Rejections(Path(f"{output}.rejected.jsonl"), strict=config.is_strict(composed)) as rejections:
        texts = (part for text in read_texts(map(Path, plan.texts)) for part in text.parts)
        made = make_llama(dataset, rejections.add, config.build("shape", composed), plan.seed, texts)
    made.save(output)
    weights, tokens = made.model.num_parameters(), len(made.tokenizer)
    figures = {"output": str(output), "weights": weights, "tokens": tokens}
    return Output(figures, lines=[f"{output}: a Llama of {weights:,} weights and {tokens:,} tokens"])
