"""Several candidates of one prompt, found by a beam search of the model (specification §16.2)."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.llm.embedded.chat import Chat
from pipeline.llm.embedded.reply import Ends, Round
from pipeline.llm.prompt import Candidate, Sampling


class Beams:
    """The candidates of one prompt. One round of the model finds all of them."""

    def __init__(self, chat: Chat, prompt: list[int], sampling: Sampling, ends: Ends) -> None:
        """Start without candidates. `sampling` asks for a beam search, which has no stop strings."""
        self.context = prompt
        """The ids that the next token depends on."""
        self.candidates: tuple[Candidate, ...] = ()
        """The best first."""
        self.tokens = 0
        """Generated tokens of all candidates."""
        self.seconds = 0.0
        self._chat = chat
        self._ends = ends
        self.next_round = Round(
            ends.tokens, sampling.max_tokens, False, beams=sampling.candidates, length_penalty=sampling.length_penalty
        )

    @property
    def finish_reason(self) -> str | None:
        """The reason of the best candidate; None if there are no candidates yet."""
        return self.candidates[0].finish_reason if self.candidates else None

    def add(self, found: Sequence[tuple[list[int], float]]) -> None:
        """Add the result of the round: the ids and the score of each candidate."""
        self.tokens = sum(len(ids) for ids, _ in found)
        self.candidates = tuple(self._candidate(ids, score) for ids, score in found)

    def _candidate(self, ids: Sequence[int], score: float) -> Candidate:
        ended = bool(ids) and ids[-1] in self._ends.turn
        read = self._chat.reader(self.context)
        text = "".join(read(id) for id in (ids[:-1] if ended else ids))
        return Candidate(text, "stop" if ended else "length", score)
