"""GenAI's stateful pipeline behind the engine protocol: one request at a time, for the NPU.

The pipeline runs in a thread that lets go of the interpreter while it computes; `step`
takes what it gave. After an interrupted answer the pipeline's state cannot be trusted, so
the next request opens it anew.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

from pegboard_contracts.engine import EngineInfo, FinishCause, Submission, TokenEvent
from pegboard_contracts.errors import ApiError, invalid_request, not_supported

from pegboard_backends._openvino import library
from pegboard_backends._openvino.detokenizer import Detokenizer, DetokenizerFactory
from pegboard_backends._openvino.sampling_config import generation_config, known_ends
from pegboard_backends._openvino.token_table import build_token_table

logger = logging.getLogger(__name__)

_WAIT_SECONDS = 0.02
_FAILED = "The engine failed on this request; the server's log has the cause."

OpenPipeline = Callable[[], Any]


class _Run:
    """One request, shared between the two threads: tokens come out of `tokens`, `None` ends."""

    def __init__(self, submission: Submission, detokenizer: Detokenizer, limit: int) -> None:
        self.submission = submission
        self.detokenizer = detokenizer
        self.limit = limit
        self.tokens: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
        self.cancelled = False
        self.failed = False
        self.given: list[int] = []


class StatefulEngine:
    """Run one request after the other."""

    def __init__(
        self,
        open_pipeline: OpenPipeline,
        info: EngineInfo,
        *,
        end_tokens: Iterable[int],
        max_prompt_tokens: int,
    ) -> None:
        """Open the pipeline. Prompts of more than `max_prompt_tokens` are refused."""
        self._open_pipeline = open_pipeline
        self._pipeline: Any = open_pipeline()
        tokenizer = self._pipeline.get_tokenizer()
        self._ends = known_ends(self._pipeline.get_generation_config(), tokenizer, end_tokens)
        table = build_token_table(tokenizer, also_special=self._ends)
        self._detokenizers = DetokenizerFactory(table)
        self._info = info
        self._max_prompt_tokens = max_prompt_tokens
        self._run: _Run | None = None
        self._stale = False
        self._rebuilds = 0

    def describe(self) -> EngineInfo:
        """Describe the open engine."""
        return self._info

    def submit(self, submission: Submission) -> None:
        """Take a request. Raises `ApiError` for one that cannot be run, or a second one."""
        if self._run is not None:
            message = "This device runs one request at a time."
            raise ApiError(503, message, code="engine_busy", retry_after=1)
        if submission.constraint is not None:
            raise not_supported("response_format", "This device cannot keep answers to a grammar.")
        if submission.sampling.beams is not None:
            raise not_supported("num_beams", "This device searches no beams.")
        if submission.logprobs:
            raise not_supported("logprobs", "This device gives no log probabilities.")
        prompt = len(submission.prompt_ids)
        if prompt > self._max_prompt_tokens:
            message = (
                f"The prompt has {prompt} tokens and this model was compiled for prompts of "
                f"{self._max_prompt_tokens}. Shorten it, or load the model with a longer context."
            )
            raise invalid_request(message, param="messages", code="context_length_exceeded")
        answered = submission.prompt_ids[prompt - submission.continued_tokens :]
        detokenizer = self._detokenizers.make(submission.kept_tokens, answered)
        limit = min(submission.max_output_tokens, self._info.context_tokens - prompt)
        self._run = run = _Run(submission, detokenizer, limit)
        threading.Thread(target=self._generate, args=(run,), daemon=True).start()

    def cancel(self, request_id: int) -> None:
        """Stop the request at its next token."""
        if self._run is not None and self._run.submission.request_id == request_id:
            self._run.cancelled = True

    def due(self) -> float | None:
        """Return 0 while a request runs, else `None`."""
        return None if self._run is None else 0.0

    def step(self) -> list[TokenEvent]:
        """Return what has come since the last step; waits for it a fiftieth of a second."""
        run = self._run
        if run is None:
            return []
        try:
            tokens = run.tokens.get(timeout=_WAIT_SECONDS)
        except queue.Empty:
            return []
        request_id = run.submission.request_id
        if tokens is None:
            self._run = None
            error = _FAILED if run.failed else None
            return [TokenEvent(request_id, finish=self._cause(run), error=error)]
        if run.cancelled:
            return []
        run.given += tokens
        return [TokenEvent(request_id, run.detokenizer.feed(tokens), tokens)]

    def _cause(self, run: _Run) -> FinishCause:
        if run.failed:
            return "failed"
        if run.cancelled:
            return "cancelled"
        ended = bool(run.given) and run.given[-1] in self._ends
        return "stop" if ended or len(run.given) < run.limit else "length"

    def _generate(self, run: _Run) -> None:
        """Run the pipeline; in a thread of its own."""
        try:
            if self._stale:
                self._pipeline = self._open_pipeline()
                self._rebuilds += 1
            self._stale = True
            config = generation_config(run.submission, None, self._ends, run.limit)
            prompt = library.id_tensor(run.submission.prompt_ids)
            self._pipeline.generate(prompt, config, _streamer(run))
            self._stale = run.cancelled
        except Exception:
            logger.exception("a request failed")
            run.failed = True
        run.tokens.put(None)

    def inspect(self) -> dict[str, Any]:
        """Return whether a request runs, and how often the pipeline was opened again."""
        return {"running": int(self._run is not None), "rebuilds": self._rebuilds}

    def close(self) -> None:
        """Stop what runs; the process ends after it."""
        if self._run is not None:
            self._run.cancelled = True


def _streamer(run: _Run) -> Any:  # noqa: ANN401 - GenAI's
    genai = library.genai()
    going_on, stopped = genai.StreamingStatus.RUNNING, genai.StreamingStatus.CANCEL
    base: Any = genai.StreamerBase

    class Streamer(base):  # type: ignore[misc] # GenAI ships no complete types
        """Hand over every token. Any other return than a status would end the process."""

        def write(self, token: int | list[int]) -> Any:  # noqa: ANN401 - GenAI's
            run.tokens.put(list(token) if isinstance(token, list) else [token])
            return stopped if run.cancelled else going_on

        def end(self) -> None:
            """Nothing is held back here."""

    return Streamer()
