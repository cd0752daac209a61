"""From semantic events to the events of a streamed response: pure, and cheap per token.

One ladder makes one response, streamed or not, so that ids, order, statuses and texts of
the stream, the final object and the store are the same. Source: decisions 5, 13 to 16, 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET
from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import (
    Accepted,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallDone,
    ToolCallStarted,
)
from pegboard_contracts.generation import FinishReason, Usage

from pegboard_routes._responses.items import item_id
from pegboard_routes._responses.open_items import OpenCall, OpenMessage, OpenReasoning
from pegboard_routes._responses.response_object import (
    IncompleteDetails,
    ItemStatus,
    OutputCall,
    OutputCompaction,
    OutputItem,
    ResponseError,
    ResponseObject,
    ResponseStatus,
    ResponseUsage,
    response_usage,
)

_encode = msgspec.json.Encoder().encode


class LadderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Say how a response is told.

    `answers` is false when a compaction item is all that is wanted; `namespaces` maps the
    names of tools that came inside a namespace to it.
    """

    reasoning_events: str = "text"
    sealed_reasoning: bool = False
    logprobs: bool = False
    compaction_events: bool = True
    answers: bool = True
    max_tool_calls: int | None = None
    namespaces: Mapping[str, str] = {}


class WireEvent(msgspec.Struct, frozen=True):
    """Carry one event of a stream: its name, and its JSON with the same name as `type`."""

    name: str
    payload: bytes


class EventLadder:
    """Make the events of one response and, at the end, its object.

    `draft` is the response as far as the request tells; it changes as the response comes
    along. Events are collected and fetched with `take_events`.
    """

    def __init__(self, draft: ResponseObject, options: LadderOptions) -> None:
        """Begin; nothing is said yet."""
        self.draft = draft
        self._options = options
        self._events: list[WireEvent] = []
        self._sequence = 0
        self._output: list[OutputItem] = []
        self._open: OpenMessage | OpenReasoning | OpenCall | None = None
        self._calls = 0
        self._compaction: Usage | None = None
        self._prompt_tokens = 0
        self.finished: Finished | None = None

    def take_events(self) -> list[WireEvent]:
        """Return what was said since the last time."""
        events, self._events = self._events, []
        return events

    def accept(self, accepted: Accepted) -> None:
        """Note what is used: the model and the sampling."""
        self._prompt_tokens = accepted.prompt_tokens
        used = accepted.sampling
        draft = self.draft
        self.draft = msgspec.structs.replace(
            draft,
            model=accepted.model,
            temperature=_number(used.temperature, draft.temperature),
            top_p=_number(used.top_p, draft.top_p),
            presence_penalty=_number(used.presence_penalty, draft.presence_penalty),
            frequency_penalty=_number(used.frequency_penalty, draft.frequency_penalty),
        )

    def name_model(self, model: str) -> None:
        """Note the canonical id of the model."""
        self.draft = msgspec.structs.replace(self.draft, model=model)

    def start(self) -> None:
        """Say `created` and `in_progress`, both with the whole object."""
        self.draft = msgspec.structs.replace(self.draft, status="in_progress")
        self._say("created", response=self.draft)
        self._say("in_progress", response=self.draft)

    def compacted(self, sealed: str, usage: Usage, before: int, after: int) -> None:
        """Say that earlier turns were replaced by a compaction item, the first of the output."""
        self._compaction = usage
        index = len(self._output)
        item = OutputCompaction(id=self._next_id("compaction"), encrypted_content=sealed)
        if self._options.compaction_events:
            shared = {"response_id": self.draft.id}
            self._emit("mlx.compaction.started", **shared, input_tokens=before)
            self._emit(
                "mlx.compaction.completed",
                **shared,
                input_tokens_before=before,
                input_tokens_after=after,
            )
        self._say("output_item.added", output_index=index, item=item)
        self._say("output_item.done", output_index=index, item=item)
        self._output.append(item)

    def take(self, event: GenerationEvent) -> None:
        """Say what an event of the generation means."""
        if isinstance(event, TextDelta):
            self._text(event)
        elif isinstance(event, ReasoningDelta):
            self._reasoning(event)
        elif isinstance(event, ToolArgumentsDelta):
            if isinstance(self._open, OpenCall) and self._open.call_index == event.index:
                self._open.write(event.text)
        elif isinstance(event, ToolCallStarted):
            self._call(event)
        elif isinstance(event, ToolCallDone):
            if isinstance(self._open, OpenCall) and self._open.call_index == event.index:
                self._close("completed" if event.complete else "incomplete")
        elif isinstance(event, Finished):
            self.finished = event

    def finish(self, now: int) -> None:
        """Close what is open after `Finished`, and settle what the response has become."""
        if self.finished is None:
            raise RuntimeError("the answer is not finished")
        cut = self.finished.reason is FinishReason.LENGTH
        self._close("incomplete" if cut else "completed")
        empty = self._options.answers and not cut
        if empty and not any(_is_answer(item) for item in self._output):
            self._open = self._new_message()
            self._close("completed")
        broken = any(getattr(item, "status", "") == "incomplete" for item in self._output)
        self._settle(
            "incomplete" if cut or broken else "completed",
            now,
            incomplete_details=IncompleteDetails("max_output_tokens") if cut else None,
            usage=response_usage(self.finished.usage, self._compaction),
            unmet=self.finished.unmet or UNSET,
        )

    def stop(self, status: ResponseStatus, now: int) -> None:
        """End early: cancelled, or incomplete because the client left; closes what is open."""
        self._close("incomplete")
        self._settle(status, now, usage=self._counted())

    def fail(self, error: ApiError, code: str, now: int) -> None:
        """Close what is open, say `error` in both known shapes, and fail."""
        self._close("incomplete")
        body = error.body()
        self._emit(
            "error", code=body.code or code, message=body.message, param=body.param, error=body
        )
        self._settle(
            "failed",
            now,
            error=ResponseError(code, error.message),
            usage=self._counted(),
        )

    def conclude(self) -> WireEvent:
        """Make the terminal event of a settled response; nothing follows it."""
        name = {"completed": "completed", "failed": "failed"}.get(self.draft.status, "incomplete")
        self._say(name, response=self.draft)
        return self._events.pop()

    def _settle(self, status: ResponseStatus, now: int, **changes: Any) -> None:  # noqa: ANN401
        self.draft = msgspec.structs.replace(
            self.draft,
            status=status,
            completed_at=now if status == "completed" else None,
            output=list(self._output),
            **changes,
        )

    def _counted(self) -> ResponseUsage:
        """Count what is known of an answer that did not end by itself."""
        return response_usage(Usage(prompt_tokens=self._prompt_tokens), self._compaction)

    def _text(self, event: TextDelta) -> None:
        if not isinstance(self._open, OpenMessage):
            if not event.text:
                return
            self._close("completed")
            self._open = self._new_message()
        self._open.write(event.text, event.logprobs)

    def _new_message(self) -> OpenMessage:
        index = len(self._output)
        identifier = self._next_id("message")
        return OpenMessage(self._say, identifier, index, logprobs=self._options.logprobs)

    def _reasoning(self, event: ReasoningDelta) -> None:
        if not isinstance(self._open, OpenReasoning):
            if not event.text:
                return
            self._close("completed")
            self._open = OpenReasoning(
                self._say,
                self._next_id("reasoning"),
                len(self._output),
                events=self._options.reasoning_events,
                sealed=self._options.sealed_reasoning,
            )
        self._open.write(event.text)

    def _call(self, event: ToolCallStarted) -> None:
        limit = self._options.max_tool_calls
        if limit is not None and self._calls >= limit:
            return
        self._calls += 1
        self._close("completed")
        identifier = self._next_id("function_call")
        opened = OutputCall(
            id=identifier,
            status="in_progress",
            call_id=event.call_id,
            name=event.name,
            arguments="",
            namespace=self._options.namespaces.get(event.name, UNSET),
        )
        self._open = OpenCall(self._say, identifier, len(self._output), opened, event.index)

    def _close(self, status: ItemStatus) -> None:
        if self._open is not None:
            self._output.append(self._open.close(status))
            self._open = None

    def _next_id(self, kind: str) -> str:
        return item_id(kind, self.draft.id, len(self._output))

    def _say(self, name: str, /, **fields: Any) -> None:  # noqa: ANN401 - encodable values
        self._emit(f"response.{name}", **fields)

    def _emit(self, name: str, /, **fields: Any) -> None:  # noqa: ANN401 - the same
        payload = _encode({"type": name, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        self._events.append(WireEvent(name, payload))


def _number(used: float | None, otherwise: float) -> float:
    return otherwise if used is None else used


def _is_answer(item: OutputItem) -> bool:
    return item.__struct_config__.tag in ("message", "function_call")
