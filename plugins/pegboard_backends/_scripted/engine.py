"""The engine that emits what its script says."""

from __future__ import annotations

import codecs
import os
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from pegboard_contracts.engine import EngineInfo, FinishCause, Submission, TokenEvent
from pegboard_contracts.errors import ApiError, invalid_request

from pegboard_backends._scripted.pieces import Piece, Pieces
from pegboard_backends._scripted.script import Answer, Script

_LOGGED_REQUESTS = 100
_WORD = re.compile(r"\s*\S+\s*$|\s*\S+")
_MAX_SEQUENCES = 64
_TOP_LOGPROBS = 20
_CRASH_STATUS = 139
_FINISHED: dict[FinishCause, Literal["finished", "failed", "cancelled"]] = {
    "stop": "finished",
    "length": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
}


class RequestLog(msgspec.Struct, kw_only=True):
    """Show one request as the engine received it, and how it went on.

    `input` holds the texts of an embedding or rerank request, and nothing else is set then.
    """

    prompt: str | None = None
    sampling: dict[str, Any] | None = None
    constraint: dict[str, Any] | None = None
    input: list[str] | None = None
    status: Literal["running", "finished", "failed", "cancelled"] = "running"
    pieces: int = 0


class ScriptedEngine:
    """Run a script. `hang_after` silences its own request for good; others go on."""

    def __init__(
        self, script: Script, *, device: str, context_tokens: int, clock: Callable[[], float]
    ) -> None:
        """Compile the rules; `clock` counts seconds, as `time.monotonic` does."""
        self._script = script
        self._device = device
        self._context_tokens = context_tokens
        self._clock = clock
        self._rules = [(re.compile(rule.match), rule) for rule in script.rules]
        self._runs: dict[int, _Run] = {}
        self._log: deque[RequestLog] = deque(maxlen=_LOGGED_REQUESTS)

    def describe(self) -> EngineInfo:
        """Describe the model; `properties` carry its kind and the formats that the script names."""
        named = {
            "kind": self._script.kind,
            "tool_format": self._script.tool_format,
            "reasoning_format": self._script.reasoning_format,
        }
        return EngineInfo(
            context_tokens=self._context_tokens,
            architecture_context_tokens=self._script.context_tokens,
            max_sequences=_MAX_SEQUENCES,
            device=self._device,
            # Constraints are taken and shown, never obeyed.
            grammar=True,
            beam_search=True,
            top_logprobs=_TOP_LOGPROBS,
            prompt_logprobs_problem=None,
            properties={key: value for key, value in named.items() if value is not None},
        )

    def submit(self, submission: Submission) -> None:
        """Choose the answer and take the request.

        Raises `ApiError` 400 for a model of another kind, for a prompt that leaves no room
        and for an id in use.
        """
        if self._script.kind != "generate":
            raise invalid_request(
                f"This model is a scripted {self._script.kind} model; it generates no text.",
                param="model",
                code="model_kind_mismatch",
            )
        room = self._context_tokens - len(submission.prompt_ids)
        if room < 1:
            raise invalid_request(
                f"The prompt has {len(submission.prompt_ids)} tokens and the model's context "
                f"{self._context_tokens}; an answer needs at least one.",
                code="context_length_exceeded",
            )
        if submission.request_id in self._runs:
            raise invalid_request(f"The request id {submission.request_id} is in use.")
        log = RequestLog(
            prompt=submission.prompt_text,
            sampling={
                **msgspec.to_builtins(submission.sampling),
                "max_output_tokens": submission.max_output_tokens,
            },
            constraint=None
            if submission.constraint is None
            else msgspec.to_builtins(submission.constraint),
        )
        run = _Run(self._answer_to(submission.last_text), submission, log, room)
        run.next_at = self._clock() + run.first_delay
        self._runs[submission.request_id] = run
        self._log.append(log)

    def _answer_to(self, text: str) -> Answer:
        return next(
            (rule for match, rule in self._rules if match.search(text)), self._script.default
        )

    def cancel(self, request_id: int) -> None:
        """Stop a request at the next step, unless it hangs."""
        run = self._runs.get(request_id)
        if run is not None:
            run.cancelled = True

    def due(self) -> float | None:
        """Return the seconds until some request has its next piece."""
        waiting = [run for run in self._runs.values() if not run.hanging]
        if not waiting:
            return None
        if any(run.cancelled for run in waiting):
            return 0.0
        return max(0.0, min(run.next_at for run in waiting) - self._clock())

    def step(self) -> list[TokenEvent]:
        """Give each request whose time has come its next piece."""
        now = self._clock()
        events: list[TokenEvent] = []
        for request_id, run in list(self._runs.items()):
            event = run.advance(request_id, now)
            if event is None:
                continue
            events.append(event)
            if event.finish is not None:
                run.log.status = _FINISHED[event.finish]
                del self._runs[request_id]
        return events

    def inspect(self) -> dict[str, Any]:
        """Return the last hundred requests, oldest first, and how many are running."""
        return {
            "requests": [msgspec.to_builtins(log) for log in self._log],
            "running": len(self._runs),
        }

    def close(self) -> None:
        """Forget every request."""
        self._runs.clear()


class _Run:
    """Emit one answer, piece by piece."""

    def __init__(self, answer: Answer, submission: Submission, log: RequestLog, room: int) -> None:
        self.answer = answer
        self.log = log
        self.next_at = 0.0
        self.cancelled = False
        self.hanging = False
        self._pieces = Pieces(answer, submission.last_text)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = min(submission.max_output_tokens, room)
        self._top = submission.top_logprobs if submission.logprobs else None
        self._prompt = submission.prompt_text if submission.prompt_logprobs else None
        self._position = self._cut = 0
        if submission.continued_tokens:
            continued = submission.prompt_ids[-submission.continued_tokens :]
            where = self._pieces.resume(continued, submission.continued_text)
            self._position, self._cut = where.past, where.cut
            self._decoder.decode(where.pending)

    @property
    def first_delay(self) -> float:
        """Return the seconds to the next piece, which is the first one unless continued."""
        answer = self.answer
        return (answer.delay_ms if self._position else answer.first_delay_ms) / 1000

    def advance(self, request_id: int, now: float) -> TokenEvent | None:
        if self.hanging:
            return None
        if self.cancelled:
            self.hanging = self._reached(self.answer.hang_after)
            done = TokenEvent(request_id=request_id, finish="cancelled")
            return None if self.hanging else done
        if now < self.next_at:
            return None
        self.next_at = now + self.answer.delay_ms / 1000
        if (fault := self._fault(request_id)) is not None or self.hanging:
            return fault
        if self._position >= len(self._pieces) or self._left <= 0:
            cause = self.answer.finish if self._left > 0 else "length"
            return TokenEvent(
                request_id=request_id, finish=cause, prompt_logprobs=self._prompt_logprobs()
            )
        return self._emit(request_id)

    def _fault(self, request_id: int) -> TokenEvent | None:
        if self._reached(self.answer.exit_after):
            # No flushing, no exit handlers: what the parent sees of a native crash.
            os._exit(_CRASH_STATUS)
        self.hanging = self._reached(self.answer.hang_after)
        if not self.hanging and self._reached(self.answer.raise_after):
            error = f"The script fails this request after {self._position} pieces."
            return TokenEvent(request_id=request_id, finish="failed", error=error)
        return None

    def _reached(self, after: int | None) -> bool:
        """Tell whether a fault is due: after its pieces, or where they run out before it."""
        return after is not None and self._position >= min(after, len(self._pieces))

    def _faults(self) -> bool:
        answer = self.answer
        return (answer.exit_after, answer.hang_after, answer.raise_after) != (None, None, None)

    def _emit(self, request_id: int) -> TokenEvent:
        piece = self._pieces[self._position]
        self._position += 1
        self._left -= 1
        self.log.pieces += 1
        finish: FinishCause | None = None
        if self._position >= len(self._pieces) and not self._faults():
            finish = self.answer.finish
        elif self._left <= 0:
            finish = "length"
        content, self._cut = piece.content[self._cut :], 0
        return TokenEvent(
            request_id=request_id,
            text=self._decoder.decode(content, final=finish is not None),
            token_ids=[piece.token_id],
            finish=finish,
            logprobs=None if self._top is None else [_logprob(piece, self._top)],
            prompt_logprobs=self._prompt_logprobs(),
        )

    def _prompt_logprobs(self) -> list[tuple[float, str, list[tuple[str, float]]]] | None:
        """Return one for each word of the prompt, once; every word is certain."""
        prompt, self._prompt = self._prompt, None
        return None if prompt is None else [(0.0, word, []) for word in _WORD.findall(prompt)]


def _logprob(piece: Piece, top: int) -> tuple[float, str, list[tuple[str, float]]]:
    # A piece without a scripted probability is certain.
    chosen, alternatives = piece.logprobs or (0.0, [])
    return chosen, piece.content.decode(errors="replace"), alternatives[:top]


def load_as_scripted(script: Script, context_tokens: int | None) -> int:
    """Take as long as the script says, or fail as it says; return the tokens of the context."""
    time.sleep(script.load_delay_ms / 1000)
    if script.load_error is not None:
        raise ApiError(500, script.load_error, code="load_failed")
    if context_tokens is None:
        return script.context_tokens
    return min(script.context_tokens, context_tokens)


def open_scripted(script: Script, *, device: str, context_tokens: int | None) -> ScriptedEngine:
    """Open the engine of a script, as slowly or unsuccessfully as the script says."""
    budget = load_as_scripted(script, context_tokens)
    return ScriptedEngine(script, device=device, context_tokens=budget, clock=time.monotonic)
