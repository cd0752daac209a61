"""How a model family writes calls and thoughts: the contracts of formats.

A format is a plugin that makes a fresh reader for each answer. A reader has two methods,
and its laws are in `pegboard_contracts.testing.formats`: any cut of the same text gives
the same events (joined), all text is accounted for, nothing ever raises, time is linear.
"""

from __future__ import annotations

import hashlib
import secrets
import string
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.events import FormatEvent
from pegboard_contracts.generation import Constraint
from pegboard_contracts.plugin import Plugin, hookimpl

CallIds = Callable[[], str]
"""Makes the next call id; unique within a server."""

_ALPHABET = string.ascii_letters + string.digits


def new_call_id() -> str:
    """Make a call id of the usual form, `call_` and 24 characters."""
    return "call_" + "".join(secrets.choice(_ALPHABET) for _ in range(24))


def short_call_id(call_id: str) -> str:
    """Map a call id to nine letters and digits, all that Mistral's templates accept.

    The same id always maps to the same, an id of that form to itself, and no two to one
    within any real conversation.
    """
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8])
    return "".join(_ALPHABET[number // 62**place % 62] for place in range(9))


class Reader(Protocol):
    """Read one answer: text in, events out."""

    def feed(self, delta: str) -> list[FormatEvent]:
        """Take the next piece of text, of any length, and return what is now certain."""
        ...

    def finish(self) -> list[FormatEvent]:
        """Return what was held back; called once, after the last piece."""
        ...


class ReasoningReader(Reader, Protocol):
    """Split reasoning from text: emits `ReasoningDelta` and `TextDelta` only."""

    @property
    def inside(self) -> bool:
        """Tell whether the text so far ends inside reasoning (a partial marker counts as text)."""
        ...


class ReasoningFormat(Plugin):
    """Be a plugin of kind `reasoning_formats`: how a family marks its reasoning.

    Example plugin: `think_tags`.
    """

    kept_tokens: ClassVar[tuple[str, ...]] = ()
    """Special tokens this format must see in the text; shown to nobody."""

    closing_marker: ClassVar[str] = ""
    """Text that closes an open block; a hard thinking budget appends it."""

    @abstractmethod
    def matches_template(self, template: str) -> bool:
        """Tell whether a chat template is written for this format."""

    @abstractmethod
    def opened_by(self, prompt: str) -> bool:
        """Tell whether a rendered prompt ends inside an open reasoning block."""

    @abstractmethod
    def reader(self, *, opened: bool) -> ReasoningReader:
        """Make the reader of one answer; `opened` when the prompt left a block open."""

    @hookimpl
    def pegboard_provide_reasoning_format(self) -> ReasoningFormat:
        """Provide this format."""
        return self


class ToolFormat(Plugin):
    """Be a plugin of kind `tool_formats`: how a family writes tool calls.

    Example plugin: `hermes`.
    """

    kept_tokens: ClassVar[tuple[str, ...]] = ()
    """Special tokens this format must see in the text; shown to nobody."""

    opening_markers: ClassVar[tuple[str, ...]] = ()
    """Texts that open a call; with `auto` and a template that tells nothing they decide."""

    @abstractmethod
    def matches_template(self, template: str) -> bool:
        """Tell whether a chat template is written for this format."""

    @abstractmethod
    def reader(self, tools: Sequence[Tool], new_id: CallIds) -> Reader:
        """Make the reader of one answer.

        Emits `TextDelta` and the three call events. A call of a name that is not among
        `tools` (after one namespace strip) stays text. Joined argument fragments are the
        call's final JSON text.
        """

    def instructions(self, tools: Sequence[Tool], choice: ToolChoice) -> str | None:
        """Return what to tell a model whose template knows no tools; `None` leaves it silent."""
        del tools, choice
        return None

    def constraint(
        self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool
    ) -> Constraint | None:
        """Return the grammar that guarantees calls as `choice` and strict tools demand.

        `None` when nothing needs to be guaranteed. Raises `ApiError` 400 with the reason
        when the grammar cannot express it, 501 when the format has no grammar yet.
        """
        del parallel
        if choice.mode == "required" or any(tool.strict for tool in tools):
            from pegboard_contracts.errors import not_supported  # noqa: PLC0415 - rare path

            raise not_supported("tool_choice")
        return None

    @hookimpl
    def pegboard_provide_tool_format(self) -> ToolFormat:
        """Provide this format."""
        return self
