"""Requests inside the pipeline, and how the one that breaks a step is found among them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pegboard_contracts.engine import Submission
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar.remainder import remainder

from pegboard_backends._openvino.detokenizer import Detokenizer
from pegboard_backends._openvino.prefix_mirror import blocks_of


class Running:
    """One request inside the pipeline."""

    __slots__ = (
        "cached_tokens",
        "detokenizer",
        "generated",
        "handle",
        "limit",
        "prompt_logprobs",
        "submission",
        "text",
    )

    def __init__(self, submission: Submission, detokenizer: Detokenizer, limit: int) -> None:
        """Prepare a request that may generate `limit` tokens."""
        self.submission = submission
        self.detokenizer = detokenizer
        self.limit = limit
        self.generated: list[int] = []
        self.text: list[str] = []
        self.prompt_logprobs: list[float] = []
        self.cached_tokens = 0
        self.handle: Any = None

    @property
    def blocks(self) -> int:
        """Count the blocks of the cache that this request takes, all its beams together."""
        beams = self.submission.sampling.beams
        count = 1 if beams is None else beams.count
        return blocks_of(len(self.submission.prompt_ids) + len(self.generated)) * count

    def chosen(self, outputs: Mapping[int, Any]) -> Any:  # noqa: ANN401 - GenAI's
        """Return the sequence that is this answer's: of several beams the one of its rank."""
        beams = self.submission.sampling.beams
        if beams is None:
            (output,) = outputs.values()
            return output
        best = sorted(outputs.values(), key=lambda output: -float(output.score))
        return best[min(beams.rank, len(best) - 1)]

    @property
    def echoes(self) -> int:
        """Count the prompt's tokens that are still to come out with their log probabilities."""
        if not self.submission.prompt_logprobs:
            return 0
        return len(self.submission.prompt_ids) - len(self.prompt_logprobs)

    def open_constraint(self) -> Constraint | None:
        """Return what binds the rest of the answer.

        Raises `ApiError` 500 when the text so far cannot be gone on with under the grammar.
        """
        constraint = self.submission.constraint
        if constraint is None or not self.generated:
            return constraint
        rest = None
        if constraint.kind == "ebnf":
            rest = remainder(constraint.value, "".join(self.text))
        if rest is None:
            raise ApiError(500, "The engine could not go on with this answer.", code="interrupted")
        return msgspec.structs.replace(constraint, value=rest)


class Trials:
    """Try the requests one by one, one of which has broken a step.

    A request is innocent once it has a token more than when its trial began.
    """

    def __init__(self) -> None:
        """Begin without a suspect."""
        self._waiting: deque[Running] = deque()
        self._tried: Running | None = None
        self._tokens_before = 0

    @property
    def open(self) -> bool:
        """Tell whether further requests have to wait their turn."""
        return self._tried is not None or bool(self._waiting)

    def suspects(self, everyone: Sequence[Running]) -> list[Running]:
        """Return who may have broken the step: the one on trial, else those without tokens."""
        tried, self._tried = self._tried, None
        if tried is not None and tried in everyone and self._unproved(tried):
            return [tried]
        return [running for running in everyone if not running.generated] or list(everyone)

    def wait(self, running: Running) -> None:
        """Put a request into the queue of those to be tried."""
        self._waiting.append(running)

    def withdrawn(self, request_id: int) -> Running | None:
        """Take a request out of the queue, when it is there."""
        for running in self._waiting:
            if running.submission.request_id == request_id:
                self._waiting.remove(running)
                return running
        return None

    def next(self, started: Mapping[int, Running]) -> Running | None:
        """Return the request whose trial begins now, if any."""
        tried = self._tried
        if tried and tried.submission.request_id in started and self._unproved(tried):
            return None
        self._tried = self._waiting.popleft() if self._waiting else None
        self._tokens_before = len(self._tried.generated) if self._tried else 0
        return self._tried

    def _unproved(self, tried: Running) -> bool:
        return len(tried.generated) == self._tokens_before
