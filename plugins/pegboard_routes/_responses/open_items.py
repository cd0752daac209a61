"""The items of a response while they are written: each knows the events of its life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET
from pegboard_contracts.events import TokenLogprob

from pegboard_routes._responses.opaque import Thought, seal
from pegboard_routes._responses.response_object import (
    ChosenLogprob,
    ItemStatus,
    OutputCall,
    OutputMessage,
    OutputReasoning,
    OutputText,
    ReasoningText,
    SummaryText,
    chosen_logprob,
)

Say = Callable[..., None]
"""Emit an event: its name after `response.`, then its fields."""

REASONING_EVENTS = ("text", "summary", "both")


class OpenMessage:
    """Write a message of one text part."""

    def __init__(self, say: Say, identifier: str, index: int, *, logprobs: bool) -> None:
        """Open the item and its part."""
        self._say = say
        self._place = {"item_id": identifier, "output_index": index, "content_index": 0}
        self._id = identifier
        self._index = index
        self._texts: list[str] = []
        self._logprobs: list[ChosenLogprob] | None = [] if logprobs else None
        opened = OutputMessage(id=identifier, status="in_progress", content=[])
        say("output_item.added", output_index=index, item=opened)
        say("content_part.added", **self._place, part=OutputText(""))

    def write(self, text: str, logprobs: tuple[TokenLogprob, ...]) -> None:
        """Add text; an empty one says nothing."""
        if not text:
            return
        self._texts.append(text)
        chosen: list[ChosenLogprob] = []
        if self._logprobs is not None:
            chosen = [chosen_logprob(logprob) for logprob in logprobs]
            self._logprobs += chosen
        self._say("output_text.delta", **self._place, delta=text, logprobs=chosen)

    def close(self, status: ItemStatus) -> OutputMessage:
        """Finish the part and the item."""
        text, logprobs = "".join(self._texts), self._logprobs or []
        part = OutputText(text, [], logprobs)
        self._say("output_text.done", **self._place, text=text, logprobs=logprobs)
        self._say("content_part.done", **self._place, part=part)
        item = OutputMessage(id=self._id, status=status, content=[part])
        self._say("output_item.done", output_index=self._index, item=item)
        return item


class OpenReasoning:
    """Write a reasoning item in the events that the server is set to."""

    def __init__(self, say: Say, identifier: str, index: int, *, events: str, sealed: bool) -> None:
        """Open the item."""
        self._say = say
        self._id = identifier
        self._index = index
        self._raw = events in ("text", "both")
        self._summary = events in ("summary", "both")
        self._sealed = sealed
        self._texts: list[str] = []
        self._place: dict[str, Any] = {"item_id": identifier, "output_index": index}
        opened = OutputReasoning(
            id=identifier, status="in_progress", summary=[], content=[] if self._raw else UNSET
        )
        say("output_item.added", output_index=index, item=opened)
        if self._raw:
            say("content_part.added", **self._place, content_index=0, part=ReasoningText(""))
        if self._summary:
            part = SummaryText("")
            say("reasoning_summary_part.added", **self._place, summary_index=0, part=part)

    def write(self, text: str) -> None:
        """Add reasoning; an empty text says nothing."""
        if not text:
            return
        self._texts.append(text)
        if self._raw:
            self._say("reasoning_text.delta", **self._place, content_index=0, delta=text)
        if self._summary:
            self._say("reasoning_summary_text.delta", **self._place, summary_index=0, delta=text)

    def close(self, status: ItemStatus) -> OutputReasoning:
        """Finish the item; it holds the raw text in every setting."""
        text = "".join(self._texts)
        if self._raw:
            place = {**self._place, "content_index": 0}
            self._say("reasoning_text.done", **place, text=text)
            self._say("content_part.done", **place, part=ReasoningText(text))
        if self._summary:
            place = {**self._place, "summary_index": 0}
            self._say("reasoning_summary_text.done", **place, text=text)
            self._say("reasoning_summary_part.done", **place, part=SummaryText(text))
        item = OutputReasoning(
            id=self._id,
            status=status,
            summary=[SummaryText(text)] if self._summary else [],
            content=[ReasoningText(text)],
            encrypted_content=seal(Thought(version=1, reasoning=text)) if self._sealed else UNSET,
        )
        self._say("output_item.done", output_index=self._index, item=item)
        return item


class OpenCall:
    """Write a call; its arguments are said as they come."""

    def __init__(
        self, say: Say, identifier: str, index: int, opened: OutputCall, call_index: int
    ) -> None:
        """Open the item."""
        self.call_index = call_index
        self._say = say
        self._place = {"item_id": identifier, "output_index": index}
        self._opened = opened
        self._arguments: list[str] = []
        say("output_item.added", output_index=index, item=opened)

    def write(self, text: str) -> None:
        """Add a fragment of the arguments; an empty one says nothing."""
        if text:
            self._arguments.append(text)
            self._say("function_call_arguments.delta", **self._place, delta=text)

    def close(self, status: ItemStatus) -> OutputCall:
        """Finish the arguments and the item."""
        item = msgspec.structs.replace(
            self._opened, status=status, arguments="".join(self._arguments)
        )
        self._say(
            "function_call_arguments.done", **self._place, arguments=item.arguments, name=item.name
        )
        self._say("output_item.done", output_index=self._place["output_index"], item=item)
        return item
