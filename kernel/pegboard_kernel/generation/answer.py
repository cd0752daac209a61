"""One answer, from the engine's tokens to semantic events: no input, no output, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from pegboard_contracts.engine import FinishCause, TokenEvent
from pegboard_contracts.events import (
    Finished,
    FormatEvent,
    GenerationEvent,
    PromptLogprobs,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolArgumentsDelta,
    ToolCallDone,
    ToolCallStarted,
)
from pegboard_contracts.formats import Reader, ReasoningReader
from pegboard_contracts.generation import Constraint, FinishReason, Usage

from pegboard_kernel.generation.mending import Mend, MendingReader
from pegboard_kernel.generation.stops import StopFinder

PlanMend = Callable[[MendingReader, int], Mend | None]


class Answer:
    """Read the tokens of one answer.

    Text goes through the reasoning reader, what is no reasoning through the tool reader,
    what is no call through the stop finder. Every token is read by itself, so events,
    usage and the end do not depend on how tokens arrived together.
    """

    def __init__(  # noqa: PLR0913 - a keyword for each thing that shapes an answer
        self,
        *,
        reasoning: ReasoningReader | None = None,
        calls: Reader | None = None,
        stops: Sequence[str] = (),
        shown_stops: Sequence[str] = (),
        single_call: bool = False,
        budget_tokens: int | None = None,
    ) -> None:
        """Begin with fresh readers; `single_call` ends the answer behind its first call.

        One of `shown_stops` stays in the text when it ends the answer. The attribute `plain`
        says that every token's text is shown as it is, and nothing in it ends the answer.
        """
        self.output_tokens = 0
        self.reasoning_tokens = 0
        self.token_ids: list[int] = []
        self.text: list[str] = []
        self.said: list[str] = []
        self.complete_calls = 0
        self.stopped = False
        self.cut_text: str | None = None
        self.reason: FinishReason | None = None
        self._reasoning = reasoning
        self._calls = calls
        self._stops = StopFinder(stops, shown=shown_stops) if stops else None
        self._single_call = single_call
        self._budget_tokens = budget_tokens
        self.plain = reasoning is None and calls is None and not stops
        self._cut_call = False
        self._cached_tokens = 0
        self._continued = False
        self._logprobs: list[TokenLogprob] = []
        self._events: list[GenerationEvent] = []

    @property
    def over_budget(self) -> bool:
        """Tell whether the reasoning block is to be closed now, at the end of a character."""
        budget, reasoning = self._budget_tokens, self._reasoning
        if budget is None or reasoning is None:
            return False
        whole = not self.text or self.text[-1] != ""
        return reasoning.inside and self.reasoning_tokens >= budget and whole

    def take_events(self) -> list[GenerationEvent]:
        """Return the events so far, neighbours of one kind joined, and forget them."""
        events, self._events = self._events, []
        return events if len(events) < 2 else _joined(events)

    def take(self, event: TokenEvent) -> None:
        """Read one event of the engine; nothing once `stopped`."""
        if self.plain and event.logprobs is None and event.prompt_logprobs is None:
            self._take_plain(event)
            return
        self._count(event)
        if event.prompt_logprobs is not None:
            tokens = (TokenLogprob(text, chance) for chance, text, _ in event.prompt_logprobs)
            self._events.append(PromptLogprobs(tuple(tokens)))
        self.token_ids += event.token_ids
        self.text.append(event.text)
        if event.logprobs is not None:
            self._logprobs += [
                TokenLogprob(text, chance, tuple(top)) for chance, text, top in event.logprobs
            ]
        reasoning = self._reasoning
        if reasoning is None:
            if event.text:
                self._visible(event.text)
            return
        before = reasoning.inside
        events = reasoning.feed(event.text) if event.text else []
        if before or reasoning.inside or any(isinstance(e, ReasoningDelta) for e in events):
            self.reasoning_tokens += len(event.token_ids)
            self._logprobs.clear()
        self._reasoned(events)

    def _take_plain(self, event: TokenEvent) -> None:
        """Read an event whose text is the answer's as it is."""
        text, token_ids = event.text, event.token_ids
        self.output_tokens += len(token_ids)
        if event.finish is not None and not self._continued:
            self._cached_tokens = event.cached_tokens
        self.token_ids += token_ids
        self.text.append(text)
        if text:
            self.said.append(text)
            self._events.append(TextDelta(text))

    def take_reasoning(self, event: TokenEvent) -> bool:
        """Read an event inside reasoning, no further than to where the block closes.

        Returns whether it closed. When text of the token is left then, the token is not
        taken: `cut_text` is what counts of it, and `settle_cut` gets its token ids.
        """
        reasoning = self._reasoning
        if reasoning is None:
            raise RuntimeError("an answer without reasoning has no block to close")
        self._count(event)
        self.reasoning_tokens += len(event.token_ids)
        inside, taken = reasoning.inside, ""
        for character in event.text:
            self._reasoned(reasoning.feed(character))
            taken += character
            if inside and not reasoning.inside:
                break
            inside = reasoning.inside
        closed = inside and not reasoning.inside
        if event.finish == "stop" and not event.text:
            pass  # the token that ended the answer is no part of what goes on
        elif taken == event.text:
            self.token_ids += event.token_ids
            self.text.append(event.text)
        else:
            self.cut_text = taken
        return closed

    def settle_cut(self, token_ids: list[int]) -> None:
        """Take `cut_text` as these tokens."""
        self.token_ids += token_ids
        self.text.append(self.cut_text or "")
        self.cut_text = None

    def mended(self, event: TokenEvent, plan_mend: PlanMend) -> Constraint | None:
        """Return what a call that `event` has broken, or ended too early, goes on with.

        What of the event's text is of no use is taken back. `None` when nothing is broken
        or the call cannot be gone on with; it stays incomplete then.
        """
        calls = self._calls
        if not isinstance(calls, MendingReader):
            return None
        if not calls.broken and not (event.finish == "stop" and calls.inside):
            return None
        length = len(calls.last_piece)
        surplus = length - len(event.text)
        mend = plan_mend(calls, surplus) if surplus >= 0 else None
        if mend is None:
            self._called(calls.give_up())
            return None
        if mend.kept < length or not event.text:
            del self.token_ids[len(self.token_ids) - len(event.token_ids) :]
            self.text.pop()
            self.cut_text = event.text[: max(0, mend.kept - surplus)]
        return mend.constraint

    def begin_again(self) -> None:
        """Take note that the engine has seen the prompt before: it counts as not cached."""
        self._continued = True

    def _count(self, event: TokenEvent) -> None:
        self.output_tokens += len(event.token_ids)
        if event.finish is not None and not self._continued:
            self._cached_tokens = event.cached_tokens

    def append(self, text: str, token_ids: list[int]) -> None:
        """Take text that the server put into the answer, which closes a reasoning block."""
        # What the engine finds cached from now on is this answer's own beginning.
        self._continued = self._continued or bool(self.token_ids)
        self.output_tokens += len(token_ids)
        self.reasoning_tokens += len(token_ids)
        self.token_ids += token_ids
        self.text.append(text)
        if self._reasoning is not None:
            self._reasoned(self._reasoning.feed(text))

    def finish(self, cause: FinishCause, prompt_tokens: int) -> None:
        """Read the end: what was held back comes out, then `Finished` with the usage."""
        if not self.stopped and self._reasoning is not None:
            self._reasoned(self._reasoning.finish())
        if not self.stopped and self._calls is not None:
            self._called(self._calls.finish())
        found = None
        if self._stops is not None:
            if not self.stopped:
                self._say(self._stops.finish())
            found = self._stops.found
        if self.complete_calls and not self._cut_call:
            reason = FinishReason.TOOL_CALLS
        elif cause == "length" and not self.stopped:
            reason = FinishReason.LENGTH
        else:
            reason = FinishReason.TOOL_CALLS if self.complete_calls else FinishReason.STOP
        usage = Usage(
            prompt_tokens=prompt_tokens,
            output_tokens=self.output_tokens,
            reasoning_tokens=self.reasoning_tokens,
            cached_tokens=min(self._cached_tokens, prompt_tokens),
        )
        self.reason = reason
        self._events.append(Finished(reason=reason, usage=usage, stop_string=found))

    def report(self, unmet: Sequence[str]) -> None:
        """Put into `Finished` what the answer lacks."""
        end = self._events[-1]
        if isinstance(end, Finished):
            self._events[-1] = msgspec.structs.replace(end, unmet=tuple(unmet))

    def unfinish(self) -> None:
        """Take back `Finished`: the end is an error."""
        self._events.pop()

    def _reasoned(self, events: list[FormatEvent]) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                self._visible(event.text)
            elif not self.stopped:
                self._events.append(event)

    def _visible(self, text: str) -> None:
        if self.stopped:
            return
        if self._calls is None:
            self._show(text)
        else:
            self._called(self._calls.feed(text))

    def _called(self, events: list[FormatEvent]) -> None:
        for event in events:
            if self.stopped:
                return
            if isinstance(event, TextDelta):
                self._show(event.text)
            else:
                self._call(event)

    def _call(self, event: FormatEvent) -> None:
        if isinstance(event, ToolCallStarted) and self._stops is not None:
            # A stop string cannot go on behind a call.
            self._say(self._stops.finish())
        self._logprobs.clear()
        self._events.append(event)
        if isinstance(event, ToolCallDone):
            self._cut_call = not event.complete
            self.complete_calls += event.complete
            self.stopped = self._single_call and event.complete

    def _show(self, text: str) -> None:
        if self._stops is None:
            self._say(text)
            return
        self._say(self._stops.feed(text))
        self.stopped = self._stops.found is not None

    def _say(self, text: str) -> None:
        if text:
            logprobs = tuple(self._logprobs)
            self._logprobs.clear()
            self.said.append(text)
            self._events.append(TextDelta(text, logprobs))


def _joined(events: list[GenerationEvent]) -> list[GenerationEvent]:
    joined: list[GenerationEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        match last, event:
            case TextDelta(), TextDelta():
                joined[-1] = TextDelta(last.text + event.text, last.logprobs + event.logprobs)
            case ReasoningDelta(), ReasoningDelta():
                joined[-1] = ReasoningDelta(last.text + event.text)
            case ToolArgumentsDelta(), ToolArgumentsDelta() if last.index == event.index:
                joined[-1] = ToolArgumentsDelta(last.index, last.text + event.text)
            case _:
                joined.append(event)
    return joined
