"""Which formats a model's answers are read with, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from pegboard_contracts.conversation import Tool
from pegboard_contracts.engine import EngineInfo, TemplateSource
from pegboard_contracts.events import FormatEvent, TextDelta, ToolCallStarted
from pegboard_contracts.formats import CallIds, Reader, ReasoningFormat, ToolFormat
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.board import Board
from pegboard_kernel.generation.stops import held_back

AUTO = "auto"
NONE = "none"
FALLBACK = "generic_json"


class ModelFormats(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the formats chosen for a loaded model.

    `tool_format` is `None` when `tool_name` is `auto` (the answer decides among
    `candidates`) or when the named format is not there.
    """

    tool_name: str | None
    tool_reason: str
    tool_format: ToolFormat | None
    reasoning_name: str | None
    reasoning_reason: str
    reasoning_format: ReasoningFormat | None
    candidates: Mapping[str, ToolFormat] = {}

    @property
    def reads_calls(self) -> bool:
        """Tell whether calls in an answer can be read at all."""
        return self.tool_format is not None or bool(self.candidates)

    def kept_tokens(self, *, tools: bool) -> tuple[str, ...]:
        """Return the special tokens whose text the readers must see."""
        kept: set[str] = set()
        if self.reasoning_format is not None:
            kept.update(self.reasoning_format.kept_tokens)
        if tools and self.tool_format is not None:
            kept.update(self.tool_format.kept_tokens)
        elif tools:
            for candidate in self.candidates.values():
                kept.update(candidate.kept_tokens)
        return tuple(sorted(kept))

    def format_of(self, reader: Reader) -> ToolFormat | None:
        """Return the format that a reader of `tool_reader` reads by now."""
        return reader.tool_format if isinstance(reader, DecidingReader) else self.tool_format

    def tool_reader(self, tools: Sequence[Tool], new_id: CallIds) -> Reader:
        """Make the reader of one answer's calls."""
        if self.tool_format is not None:
            return self.tool_format.reader(tools, new_id)
        return DecidingReader(self.candidates, tools, new_id)


NO_FORMATS = ModelFormats(
    tool_name=None,
    tool_reason="",
    tool_format=None,
    reasoning_name=None,
    reasoning_reason="",
    reasoning_format=None,
)
"""The formats of a model that generates no text."""


def choose_formats(
    entry: ModelEntry, board: Board, info: EngineInfo, source: TemplateSource
) -> ModelFormats:
    """Choose once, when a model is loaded.

    The catalogue's word counts first, then the engine's own, then the chat template; where
    that tells nothing, each answer decides by its first opening marker.
    """
    template = "\n".join(text for text in (source.template, source.tool_template) if text)
    tool_name, tool_reason = _named(entry.tool_format, info, "tool_format")
    if tool_name is None:
        tool_name, tool_reason = _by_template(template, board.tool_formats)
    reasoning_name, reasoning_reason = _named(entry.reasoning_format, info, "reasoning_format")
    if reasoning_name is None:
        reasoning_name, reasoning_reason = _by_template(template, board.reasoning_formats)
    undecided = tool_name is None
    tool_format = None if tool_name is None else board.tool_formats.get(tool_name)
    if undecided:
        tool_name, tool_reason = AUTO, f"{tool_reason}; each answer's first marker decides"
    elif tool_format is None and tool_name != NONE:
        tool_reason = f"no active plugin is called '{tool_name}'"
    reasoning_format = board.reasoning_formats.get(reasoning_name or NONE)
    if reasoning_name is None:
        reasoning_name = NONE
    elif reasoning_format is None and reasoning_name != NONE:
        reasoning_reason = f"no active plugin is called '{reasoning_name}'"
    return ModelFormats(
        tool_name=tool_name,
        tool_reason=tool_reason,
        tool_format=tool_format,
        reasoning_name=reasoning_name,
        reasoning_reason=reasoning_reason,
        reasoning_format=reasoning_format,
        candidates=dict(board.tool_formats) if undecided else {},
    )


def _named(word: str, info: EngineInfo, key: str) -> tuple[str | None, str]:
    if word != AUTO:
        return word, "the catalogue says so"
    own = info.properties.get(key)
    if isinstance(own, str) and own != AUTO:
        return own, "the model says so"
    return None, ""


def _by_template(
    template: str, formats: Mapping[str, ToolFormat] | Mapping[str, ReasoningFormat]
) -> tuple[str | None, str]:
    if not template:
        return None, "the model has no chat template"
    for name, candidate in formats.items():
        if candidate.matches_template(template):
            return name, "the chat template is written for it"
    return None, "the chat template names no format"


class DecidingReader:
    """Read an answer whose format is not known: the first opening marker decides.

    Until then text is read as `generic_json` when that is installed, else passed on.
    """

    def __init__(
        self, candidates: Mapping[str, ToolFormat], tools: Sequence[Tool], new_id: CallIds
    ) -> None:
        """Begin undecided."""
        self._tools = tools
        self._new_id = new_id
        self._by_marker = {
            marker: candidate
            for name, candidate in candidates.items()
            if name != FALLBACK
            for marker in candidate.opening_markers
            if marker
        }
        self.tool_format = fallback = candidates.get(FALLBACK)
        self._reader = None if fallback is None else fallback.reader(tools, new_id)
        self._decided = not self._by_marker
        self._held = ""

    def feed(self, delta: str) -> list[FormatEvent]:
        """Take the next piece of text; see `Reader`."""
        if self._decided:
            return self._pass_on(delta)
        text = self._held + delta
        at, marker = self._first_marker(text)
        undecided = len(text) - held_back(text, self._by_marker)
        if marker and undecided > at:
            return self._decide(text, at, marker)
        # A longer marker may still begin where a shorter one is complete.
        self._held = text[undecided:]
        return self._pass_on(text[:undecided])

    def finish(self) -> list[FormatEvent]:
        """Return what was held back; see `Reader`."""
        held, self._held = self._held, ""
        at, marker = self._first_marker(held)
        events = self._decide(held, at, marker) if marker else self._pass_on(held)
        return events + ([] if self._reader is None else self._reader.finish())

    def _first_marker(self, text: str) -> tuple[int, str]:
        hits = [(at, -len(m), m) for m in self._by_marker if (at := text.find(m)) >= 0]
        at, _, marker = min(hits, default=(0, 0, ""))
        return at, marker

    def _decide(self, text: str, at: int, marker: str) -> list[FormatEvent]:
        events = self._pass_on(text[:at])
        self._held = ""
        if self._decided:
            return events + self._pass_on(text[at:])
        if self._reader is not None:
            events += self._reader.finish()
        self._decided = True
        self.tool_format = self._by_marker[marker]
        self._reader = self.tool_format.reader(self._tools, self._new_id)
        return events + self._reader.feed(text[at:])

    def _pass_on(self, text: str) -> list[FormatEvent]:
        if not text:
            return []
        if self._reader is None:
            return [TextDelta(text)]
        events = self._reader.feed(text)
        # A call that began is read to its end: a marker inside its arguments decides nothing.
        self._decided |= any(isinstance(event, ToolCallStarted) for event in events)
        return events
