"""Items: what a request sends, what a store keeps and what a chain replays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal, cast

from pegboard_contracts.http import JsonObject, RequestModel
from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, model_validator

from pegboard_routes._responses.opaque import LONGEST_OPAQUE

MOST_ITEMS = 4096
_TEXTS = {"input_text", "text", "output_text", "summary_text", "reasoning_text"}
_PAYLOADS = {
    **dict.fromkeys(_TEXTS, "text"),
    "refusal": "refusal",
    "input_image": "image_url",
    "image_url": "image_url",
    "video_url": "video_url",
    "input_video": "video_url",
    "input_audio": "input_audio",
}


def _shown(kind: object) -> str:
    return f"'{kind[:40]}'" if isinstance(kind, str) else "that is no string"


def _as_address(value: object) -> object:
    return cast("dict[str, Any]", value).get("url") if isinstance(value, dict) else value


class AudioData(RequestModel):
    """Carry audio in base64."""

    data: str
    format: str


Address = Annotated[
    str | None, BeforeValidator(_as_address, json_schema_input_type=str | dict[str, Any] | None)
]


class ContentPart(RequestModel):
    """Carry one part of a message; the field that belongs to `type` holds its content."""

    type: str = "reasoning_text"
    text: str | None = None
    refusal: str | None = None
    image_url: Address = None
    video_url: Address = None
    input_audio: AudioData | None = None
    file_id: str | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> ContentPart:
        payload = _PAYLOADS.get(self.type)
        if payload is None:
            raise ValueError(f"content parts of type {_shown(self.type)} are not supported")
        if getattr(self, payload) is None:
            if self.file_id is not None:
                raise ValueError(f"'{self.type}.file_id' is not supported; send '{payload}'")
            raise ValueError(f"a part of type '{self.type}' needs '{payload}'")
        return self


def _as_parts(value: object) -> object:
    return [{"type": "input_text", "text": value}] if isinstance(value, str) else value


def _as_json_text(value: object) -> object:
    if value is None:
        return "{}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


def _nothing_as_text(value: object) -> object:
    return "" if value is None else value


class MessageItem(RequestModel):
    """Carry one message; only an assistant's may lack content."""

    type: Literal["message"] = "message"
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Annotated[
        list[ContentPart] | None,
        BeforeValidator(_as_parts, json_schema_input_type=str | list[ContentPart] | None),
    ] = None
    name: str | None = None
    status: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> MessageItem:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"a {self.role} message needs 'content'")
        return self


class SummaryMessage(MessageItem):
    """Stand where earlier turns stood; made here, never read from a body."""


class FunctionCallItem(RequestModel):
    """Replay one call of the model."""

    type: Literal["function_call"]
    id: str | None = None
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    arguments: Annotated[
        str, BeforeValidator(_as_json_text, json_schema_input_type=str | dict[str, Any] | None)
    ] = "{}"
    namespace: str | None = None
    status: str | None = None


class FunctionCallOutputItem(RequestModel):
    """Answer a call; unknown parts of an array are handed on as JSON text."""

    type: Literal["function_call_output"]
    id: str | None = None
    call_id: str = Field(min_length=1)
    output: Annotated[
        str | list[JsonObject],
        BeforeValidator(_nothing_as_text, json_schema_input_type=str | list[dict[str, Any]] | None),
    ]
    status: str | None = None


class ReasoningItem(RequestModel):
    """Replay what the model thought; what is encrypted elsewhere says nothing here."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[ContentPart] | None = None
    content: list[ContentPart] | None = None
    encrypted_content: str | None = None
    status: str | None = None


class CompactionItem(RequestModel):
    """Stand in for all earlier turns."""

    type: Literal["compaction"]
    id: str | None = None
    encrypted_content: str = Field(min_length=1, max_length=LONGEST_OPAQUE)


class CompactionTrigger(RequestModel):
    """Ask, as the last item, for a compaction instead of an answer."""

    type: Literal["compaction_trigger"]
    id: str | None = None


class ItemReference(RequestModel):
    """Name an item of an earlier response or of the conversation."""

    type: Literal["item_reference"] = "item_reference"
    id: str = Field(min_length=1)


_KINDS = {
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "compaction",
    "compaction_trigger",
    "item_reference",
}


def _kind_of(value: object) -> str:
    if not isinstance(value, dict):
        return str(getattr(value, "type", "message"))
    fields = cast("dict[str, Any]", value)
    kind = fields.get("type")
    if kind is None:
        return "item_reference" if "id" in fields and "role" not in fields else "message"
    return kind if isinstance(kind, str) else ""


def _known(value: object) -> object:
    kind = _kind_of(value)
    if kind not in _KINDS:
        raise ValueError(f"items of type {_shown(kind)} are not supported")
    if not isinstance(value, dict):
        return value
    return {**cast("dict[str, Any]", value), "type": kind}


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[FunctionCallOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[CompactionItem, Tag("compaction")]
    | Annotated[CompactionTrigger, Tag("compaction_trigger")]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(_kind_of),
    BeforeValidator(_known),
]
AnyItem = (
    MessageItem
    | FunctionCallItem
    | FunctionCallOutputItem
    | ReasoningItem
    | CompactionItem
    | CompactionTrigger
    | ItemReference
)


def _as_items(value: object) -> object:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


Items = Annotated[
    list[Item],
    Field(max_length=MOST_ITEMS),
    BeforeValidator(_as_items, json_schema_input_type=str | list[Item]),
]


@cache
def _adapter() -> TypeAdapter[list[AnyItem]]:
    return TypeAdapter(list[Item])


def parse_items(text: bytes) -> list[AnyItem]:
    """Read a JSON array of items; raises `pydantic.ValidationError`."""
    return _adapter().validate_json(text)


_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
    "compaction": "cmp",
}


def item_id(kind: str, response_id: str, number: int) -> str:
    """Make the id of an item of a response; the response is found again by it.

    Output items count from 0, input items from -1 downwards.
    """
    root = response_id.removeprefix("resp_")
    side = "o" if number >= 0 else "i"
    place = number if number >= 0 else -1 - number
    return f"{_PREFIXES[kind]}_{root}{side}{place}"


def response_of_item(identifier: str) -> str | None:
    """Return the id of the response that an item's id belongs to, as far as it tells."""
    root = identifier.partition("_")[2].rpartition("i")[0]
    root = root or identifier.partition("_")[2].rpartition("o")[0]
    return f"resp_{root}" if root else None


def wire_items(items: Sequence[AnyItem], response_id: str) -> list[dict[str, Any]]:
    """Put input items into the shape that is kept and listed, each with an id of its own."""
    return [
        _wire_item(item, item_id(item.type, response_id, -1 - index))
        for index, item in enumerate(items)
        if not isinstance(item, ItemReference | CompactionTrigger)
    ]


def _wire_item(item: AnyItem, identifier: str) -> dict[str, Any]:
    kept = item.model_dump(exclude_none=True, exclude={"id", "content", "summary"})
    wire: dict[str, Any] = {"id": identifier, **kept}
    if isinstance(item, MessageItem | FunctionCallItem | FunctionCallOutputItem):
        wire["status"] = item.status if item.status == "incomplete" else "completed"
    if isinstance(item, MessageItem):
        parts = item.content or []
        wire["content"] = [_wire_part(part, assistant=item.role == "assistant") for part in parts]
    elif isinstance(item, ReasoningItem):
        wire["summary"] = [_typed(part, "summary_text") for part in item.summary or []]
        if item.content:
            wire["content"] = [_typed(part, "reasoning_text") for part in item.content]
    return wire


def _typed(part: ContentPart, kind: str) -> dict[str, Any]:
    return {"type": kind, "text": part.text or part.refusal or ""}


def _wire_part(part: ContentPart, *, assistant: bool) -> dict[str, Any]:
    if part.type in _TEXTS:
        if assistant:
            return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
        return {"type": "input_text", "text": part.text}
    if part.type in ("input_image", "image_url"):
        detail = part.detail or "auto"
        return {"type": "input_image", "image_url": part.image_url, "detail": detail}
    if part.type in ("video_url", "input_video"):
        return {"type": "input_video", "video_url": part.video_url}
    return part.model_dump(exclude_none=True)
