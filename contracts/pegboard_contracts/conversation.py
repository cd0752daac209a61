"""What is said to a model: messages, tools and the choice among them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool"]


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Carry text of a message."""

    text: str


class MediaPart(msgspec.Struct, frozen=True, tag="media"):
    """Carry media of a message by its address (`data:` or, where allowed, `https:`)."""

    media: Literal["image", "audio", "video", "file"]
    url: str


Part = TextPart | MediaPart


class ToolCall(msgspec.Struct, frozen=True):
    """Carry one call that a model made; `arguments` is JSON text as it was produced."""

    call_id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Carry one turn, independent of the API it came through.

    `tool_calls` belongs to assistant turns, `tool_call_id` to tool turns. `reasoning`
    is what the assistant thought in that turn, replayed only into that turn.
    """

    role: Role
    content: tuple[Part, ...] = ()
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """Join the text parts."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Describe one function the model may call; `parameters` is a JSON schema or nothing."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False
    namespace: str | None = None


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Say whether calls are made: `names`, when not empty, limits to those tools.

    A named tool is `required` with one name; `allowed_tools` is its mode with its names.
    `most_calls` is how many calls a forced answer has room for, where that is known.
    """

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    most_calls: int | None = None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """Carry everything a chat template sees.

    `continue_last` makes the model go on with the last assistant message (prefill)
    instead of opening a new turn. `template_variables` wins over every other variable.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    template_variables: dict[str, Any] = {}
    continue_last: bool = False
