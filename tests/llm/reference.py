"""Reference outputs of a checkpoint, computed with `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from pipeline.llm.prompt import Call, Message, Sampling
from tests.llm.support import Ask

CHAT = (Message("system", "Answer briefly."), Message("user", "Who wrote Nine Lanterns?"))
BEGUN = (*CHAT, Message("assistant", "[Retrieve Relation] book.book.author"))
SHORT = Sampling(max_tokens=12)


def call(
    messages: Sequence[Message], sampling: Sampling = SHORT, *, seed: int = 7, choices: Sequence[str] = ()
) -> Call:
    """Return a call with these messages."""
    return Call(Ask("?"), tuple(messages), sampling, key="k", seed=seed, choices=tuple(choices))


@dataclass(frozen=True)
class Reference:
    """A checkpoint in `transformers`, in float32."""

    model: transformers.LlamaForCausalLM
    tokenizer: transformers.PreTrainedTokenizerBase

    @classmethod
    def of(cls, folder: Path) -> Reference:
        """Load it from a folder."""
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return cls(model.eval(), transformers.AutoTokenizer.from_pretrained(folder))

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt's ids."""
        chat = [message._asdict() for message in messages]
        answered = messages[-1].role != "assistant"
        text = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=answered, continue_final_message=not answered
        )
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def next_logprobs(self, messages: Sequence[Message]) -> torch.Tensor:
        """Return the log-probability of each token as the next one."""
        return self.logprobs_after(self.ids(messages))

    def logprobs_after(self, ids: Sequence[int]) -> torch.Tensor:
        """Return the log-probability of each token after the given ones."""
        with torch.no_grad():
            return self.model(torch.tensor([list(ids)])).logits[0, -1].log_softmax(-1)

    def greedy(self, messages: Sequence[Message], count: int) -> list[int]:
        """Return the most probable continuation."""
        ids = self.ids(messages)
        written: list[int] = []
        for _ in range(count):
            written.append(int(self.logprobs_after([*ids, *written]).argmax()))
        return written

    def beams(self, messages: Sequence[Message], sampling: Sampling) -> list[tuple[float, list[int]]]:
        """Return the results of a beam search, best first, step by step as in the textbook."""
        prompt, width, end = self.ids(messages), sampling.candidates, self.tokenizer.eos_token_id
        beams: list[tuple[float, list[int]]] = [(0.0, [])]
        ended: list[tuple[float, list[int]]] = []
        for _ in range(sampling.max_tokens):
            grown = []
            for total, ids in beams:
                best = self.logprobs_after([*prompt, *ids]).topk(2 * width)
                pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                grown += [(total + value, [*ids, id]) for value, id in pairs]
            grown.sort(key=lambda beam: -beam[0])
            ended += [beam for beam in grown[: 2 * width] if beam[1][-1] == end]
            beams = [beam for beam in grown if beam[1][-1] != end][:width]
        scored = [(total / len(ids) ** sampling.length_penalty, ids) for total, ids in [*ended, *beams]]
        return sorted(scored, key=lambda beam: -beam[0])[:width]

    def probabilities(self, messages: Sequence[Message], choices: Sequence[str]) -> dict[str, float]:
        """Return the probabilities of some tokens as the next one; they sum to 1."""
        ids = [self.tokenizer.convert_tokens_to_ids(choice) for choice in choices]
        return dict(zip(choices, self.next_logprobs(messages)[ids].softmax(-1).tolist(), strict=True))
