"""One answer's run on the engine, and the primitive that lets it go on elsewhere."""

from __future__ import annotations

from pegboard_contracts.engine import FinishCause, Submission, TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import GenerationEvent
from pegboard_contracts.generation import FinishReason, GenerationRequest

from pegboard_kernel.engines.admission import Ticket
from pegboard_kernel.engines.engine_pair import EnginePair
from pegboard_kernel.engines.preparer_client import CallLimit
from pegboard_kernel.generation.answer import Answer
from pegboard_kernel.generation.binding import Binding
from pegboard_kernel.generation.guarantees import json_text
from pegboard_kernel.generation.plan import Plan

_CHECK_SECONDS = 2.0


class Run:
    """Drive one answer from its place in the queue to its end.

    A continuation (`append`) stops the engine's request, adds text to what was given and
    submits the rest as a new request in the same place; the answer's events go on.
    """

    def __init__(
        self,
        pair: EnginePair,
        request: GenerationRequest,
        plan: Plan,
        answer: Answer,
        binding: Binding,
    ) -> None:
        """Prepare; nothing is submitted."""
        self.done = False
        self._left_open = False
        self._pair = pair
        self._request = request
        self._plan = plan
        self._answer = answer
        self._binding = binding
        self._ticket: Ticket | None = None
        self._error: ApiError | None = None
        self._plain = answer.plain and binding.settled

    @property
    def reason(self) -> FinishReason | None:
        """Return why the answer ended, once it has."""
        return self._answer.reason

    async def enter(self) -> None:
        """Take a place in the queue or on the engine.

        Raises `ApiError` 503 `server_overloaded` when the queue is full.
        """
        if self._answer.over_budget:
            await self.append(*await self._closing())
        self._ticket = self._pair.admission.enter(self._submission)

    def fail(self, error: ApiError) -> None:
        """End the run with an error, wherever it is."""
        if self._ticket is not None:
            self._ticket.fail(error)

    def leave(self) -> None:
        """Stop the engine's work and give up the place. Idempotent."""
        if self._ticket is not None:
            self._ticket.leave()

    async def next_events(self) -> list[GenerationEvent]:
        """Wait for what comes next and return it; the last events set `done`.

        May return nothing when a token gave no text. Raises `ApiError` for faults of the
        engine, after the events that came before it.
        """
        if self._error is not None:
            raise self._error
        if self._ticket is None:
            raise RuntimeError("the run has no place yet")
        stream = self._ticket.stream or await self._ticket.started()
        events = await stream.batch()
        if self._plain and events[-1].finish is None:
            # Nothing in such an answer changes its course: most tokens go this way.
            for event in events:
                self._answer.take(event)
            return self._answer.take_events()
        cause = self._take(events)
        if cause is not None:
            self._end(cause)
            await self._check()
        elif self._binding.due:
            await self._bind()
        elif self._error is None and self._answer.over_budget:
            await self.append(*await self._closing())
        return self._answer.take_events()

    async def append(self, text: str, token_ids: list[int]) -> None:
        """Continue the answer behind `text`: stop, append, resubmit.

        Ends the answer with `length` when no token is left for the rest.
        """
        self._answer.append(text, token_ids)
        self._binding.bind()
        if self._ticket is not None:
            await self._go_on(self._ticket)

    async def _bind(self) -> None:
        """Submit what is left of the answer again, bound by its constraint from here on."""
        self._binding.bind()
        self._answer.begin_again()
        if self._answer.cut_text is not None:
            self._answer.settle_cut(await self._pair.preparer.encode(self._answer.cut_text))
        if self._left_open and self._plan.block_end:
            text = self._plan.block_end
            self._answer.append(text, await self._pair.preparer.encode(text))
        if self._ticket is not None:
            await self._go_on(self._ticket)

    async def _go_on(self, ticket: Ticket) -> None:
        if self._answer.output_tokens >= self._plan.max_output_tokens:
            ticket.leave()
            self._end("length")
            return
        await ticket.resubmit(self._submission)

    def _take(self, events: list[TokenEvent]) -> FinishCause | None:
        for event in events:
            for released in self._binding.released(event):
                cause = self._read(released)
                if cause is not None or self._error is not None:
                    return cause
                if self._binding.due or self._answer.over_budget:
                    # What the engine gave beyond is dropped.
                    return None
            if self._binding.due:
                return None
        return None

    def _read(self, event: TokenEvent) -> FinishCause | None:
        answer = self._answer
        if self._binding.inside:
            closed = answer.take_reasoning(event)
            if closed or event.finish == "stop":
                self._left_open = not closed
                self._binding.bind(due=True)
                return None
        else:
            answer.take(event)
            if answer.stopped:
                return "stop"
            if (rest := answer.mended(event, self._plan.mend)) is not None:
                self._binding.rebind(rest)
                return None
        return None if event.finish is None else self._checked(event)

    def _checked(self, event: TokenEvent) -> FinishCause | None:
        if event.finish in ("stop", "length"):
            return event.finish
        # The reason may quote a prompt or a path; it is in the engine's log.
        message = "The engine failed on this request; others were not disturbed. Send it again."
        self._error = ApiError(500, message, code="generation_failed")
        return None

    def _end(self, cause: FinishCause) -> None:
        choice = self._request.tool_choice
        self._answer.finish(cause, len(self._plan.prompt.ids))
        self._pair.answered()
        self.done = True
        if choice.mode == "required" and not self._answer.complete_calls and cause != "length":
            message = "The model ended without the call that 'tool_choice' demands. Try again."
            self._answer.unfinish()
            self._error = ApiError(500, message, code="tool_call_not_produced")
            self.done = False

    async def _closing(self) -> tuple[str, list[int]]:
        marker = self._plan.closing_marker
        return marker, await self._pair.preparer.encode(marker)

    def _submission(self, request_id: int) -> Submission:
        return self._plan.submission(
            request_id, self._request, self._answer, self._binding.constraint
        )

    async def _check(self) -> None:
        """Check a finished answer for what no grammar could promise, and report it."""
        wanted, answer = self._plan.guarantee.checked, self._answer
        if wanted is None or not self.done or answer.reason is not FinishReason.STOP:
            return
        limit = CallLimit(_CHECK_SECONDS, ApiError(503, "The check took too long."))
        try:
            unmet = await self._pair.preparer.problems(
                wanted.kind, json_text(wanted), "".join(answer.said), limit
            )
        except ApiError:
            unmet = ["the answer could not be checked in time"]
        answer.report(unmet)
