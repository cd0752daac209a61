"""From items to what is said to a model: pure functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from pegboard_contracts.conversation import MediaPart, Message, Part, TextPart, ToolCall
from pegboard_contracts.errors import ApiError, invalid_request
from pydantic import ValidationError

from pegboard_routes._responses.items import (
    AnyItem,
    CompactionItem,
    CompactionTrigger,
    ContentPart,
    FunctionCallItem,
    FunctionCallOutputItem,
    ItemReference,
    MessageItem,
    ReasoningItem,
    SummaryMessage,
    parse_items,
)
from pegboard_routes._responses.opaque import open_capsule, open_thought

SUMMARY_TITLE = "Summary of earlier turns:"
_ATTACHED = "[An image is attached in the next message.]"
_NEVER_RETAINED = (CompactionItem, CompactionTrigger, ItemReference)
_TEXT_TYPES = ("input_text", "output_text", "text")


def lower_items(items: Sequence[AnyItem], instructions: str | None) -> tuple[Message, ...]:
    """Turn items, oldest first, into messages; `instructions` come first of all.

    A compaction item must have been replayed before (`replay_compactions`). Raises
    `ApiError` 400 when nothing is said at all.
    """
    messages = messages_of(items)
    if instructions:
        messages.insert(0, Message(role="system", content=(TextPart(instructions),)))
    if not any(_says_something(message) for message in messages):
        message = "'input' needs at least one text that is not blank, or media, or a call."
        raise invalid_request(message, param="input")
    return tuple(messages)


def messages_of(items: Sequence[AnyItem]) -> list[Message]:
    """Turn items, oldest first, into messages."""
    lowering = _Lowering()
    for item in items:
        lowering.take(item)
    lowering.flush_calls()
    return lowering.messages


def replay_compactions(items: Sequence[AnyItem]) -> list[AnyItem]:
    """Put a summary and what it retained in the place of everything before its item.

    System and developer messages stay where they are. Raises `ApiError` 400 for an item
    that this server did not make.
    """
    replayed: list[AnyItem] = []
    for item in items:
        if isinstance(item, CompactionItem):
            replayed = [one for one in replayed if is_instruction(one)]
            replayed += _unpacked(item)
        else:
            replayed.append(item)
    return replayed


def is_instruction(item: AnyItem) -> bool:
    """Tell whether an item is a system or developer message."""
    return isinstance(item, MessageItem) and item.role in ("system", "developer")


def _unpacked(item: CompactionItem) -> list[AnyItem]:
    try:
        capsule = open_capsule(item.encrypted_content)
        retained = parse_items(json.dumps(capsule.items).encode())
    except (ValueError, ValidationError, RecursionError):
        raise _malformed() from None
    if any(isinstance(one, _NEVER_RETAINED) for one in retained):
        raise _malformed()
    return [summary_message(capsule.summary), *retained]


def summary_message(summary: str) -> SummaryMessage:
    """Make the message that shows a summary to the model."""
    text = f"{SUMMARY_TITLE}\n{summary}"
    return SummaryMessage(role="user", content=[ContentPart(type="input_text", text=text)])


def _malformed() -> ApiError:
    message = (
        "A compaction item's 'encrypted_content' is not what this server made; send it back "
        "unchanged, or leave the item out."
    )
    return invalid_request(message, param="input", code="invalid_compaction")


def refuse_orphans(history: Sequence[AnyItem], items: Sequence[AnyItem]) -> None:
    """Raise a 400 for an output in `items` whose call is nowhere before it."""
    called = {item.call_id for item in history if isinstance(item, FunctionCallItem)}
    for index, item in enumerate(items):
        if isinstance(item, CompactionItem):
            called |= {one.call_id for one in _unpacked(item) if isinstance(one, FunctionCallItem)}
        elif isinstance(item, FunctionCallItem):
            called.add(item.call_id)
        elif isinstance(item, FunctionCallOutputItem) and item.call_id not in called:
            message = (
                "No earlier function_call has this 'call_id'; send the call before its output."
            )
            raise invalid_request(message, param=f"input.{index}.call_id", code="call_not_found")


class _Lowering:
    """Hold what waits for its turn: calls for one message, a thought for the next answer."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._calls: list[ToolCall] = []
        self._thought: str | None = None

    def take(self, item: AnyItem) -> None:
        if isinstance(item, FunctionCallItem):
            if item.status == "incomplete":  # it was cut: nobody has answered it
                return
            self._calls.append(ToolCall(item.call_id, item.name, item.arguments))
            return
        self.flush_calls()
        if isinstance(item, ReasoningItem):
            self._thought = thought_of(item) or self._thought
        elif isinstance(item, FunctionCallOutputItem):
            self._thought = None
            self._tool_output(item)
        elif isinstance(item, MessageItem):
            self._message(item)

    def flush_calls(self) -> None:
        if self._calls:
            calls, self._calls = tuple(self._calls), []
            self._answer((), calls)

    def _answer(self, content: tuple[Part, ...], calls: tuple[ToolCall, ...] = ()) -> None:
        thought, self._thought = self._thought, None
        self.messages.append(
            Message(role="assistant", content=content, tool_calls=calls, reasoning=thought)
        )

    def _message(self, item: MessageItem) -> None:
        parts = tuple(_part(part) for part in item.content or ())
        if item.role == "user":
            self._thought = None
            self.messages.append(Message(role="user", content=parts, name=item.name))
            return
        images = tuple(part for part in parts if _is_image(part))
        rest = tuple(part for part in parts if not _is_image(part))
        if item.role == "assistant":
            self._answer(rest)
        else:
            self._thought = None
            self.messages.append(Message(role=item.role, content=rest, name=item.name))
        self._images(images)

    def _tool_output(self, item: FunctionCallOutputItem) -> None:
        text, images = _joined_output(item.output)
        self.messages.append(
            Message(role="tool", content=(TextPart(text),), tool_call_id=item.call_id)
        )
        self._images(images)

    def _images(self, images: tuple[Part, ...]) -> None:
        if images:
            self.messages.append(Message(role="user", content=images))


def thought_of(item: ReasoningItem) -> str | None:
    """Return the reasoning an item carries: in the open, else sealed, else its summary."""
    for parts in (item.content, None, item.summary):
        if parts is None and item.encrypted_content:
            sealed = open_thought(item.encrypted_content)
            if sealed:
                return sealed
        texts = [part.text or "" for part in parts or ()]
        if any(texts):
            return "\n".join(texts)
    return None


def _part(part: ContentPart) -> Part:
    if part.type in ("input_image", "image_url"):
        return MediaPart("image", part.image_url or "")
    if part.type in ("video_url", "input_video"):
        return MediaPart("video", part.video_url or "")
    if part.type == "input_audio" and part.input_audio is not None:
        audio = part.input_audio
        return MediaPart("audio", f"data:audio/{audio.format};base64,{audio.data}")
    return TextPart((part.refusal if part.type == "refusal" else part.text) or "")


def _is_image(part: Part) -> bool:
    return isinstance(part, MediaPart) and part.media == "image"


def _joined_output(parts: str | Sequence[dict[str, Any]]) -> tuple[str, tuple[Part, ...]]:
    if isinstance(parts, str):
        return parts, ()
    lines: list[str] = []
    others: list[dict[str, Any]] = []
    images: list[Part] = []
    for part in parts:
        text, address = part.get("text"), _image_address(part)
        if part.get("type") in _TEXT_TYPES and isinstance(text, str):
            lines.append(text)
        elif address is not None:
            images.append(MediaPart("image", address))
        else:
            others.append(part)
    if others:
        lines.append(json.dumps(others, ensure_ascii=False))
    if images:
        lines.append(_ATTACHED)
    return "\n".join(lines), tuple(images)


def _image_address(part: dict[str, Any]) -> str | None:
    if part.get("type") not in ("input_image", "image_url"):
        return None
    address = part.get("image_url")
    if isinstance(address, dict):
        address = cast("dict[str, Any]", address).get("url")
    return address if isinstance(address, str) else None


def _says_something(message: Message) -> bool:
    if message.tool_calls or (message.reasoning and message.reasoning.strip()):
        return True
    return any(
        bool(part.url) if isinstance(part, MediaPart) else bool(part.text.strip())
        for part in message.content
    )
