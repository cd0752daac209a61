"""Qwen, DeepSeek and many others: reasoning between `<think>` and `</think>`.

    <think>
    Two pegs and two pegs.
    </think>

    Four.

Blocks may come several times, also between calls. A prompt may have opened the block
already; the answer then starts inside it. A block that is never closed is reasoning to the
end. Blank text just inside a block, and between a block and the answer's first word, belongs
to the markup.

A call inside a block is a rehearsal and stays reasoning, but for one case: where a block is
never closed, the complete calls (`<tool_call>` to `</tool_call>`) that the answer ends with
are meant, and are given to the reader of calls. `calls_in_open_blocks` switches that off.

A marker is none where it is quoted: right after a quotation mark or a backtick, and inside
a tool call (`<tool_call>` to `</tool_call>`, `[TOOL_CALLS]` to the end). A closing tag
without an opening one vanishes; the text before it has been sent as text.
"""

from __future__ import annotations

from pegboard_contracts.events import ReasoningDelta
from pegboard_contracts.formats import ReasoningFormat, ReasoningReader
from pegboard_contracts.plugin import PluginSettings
from pegboard_contracts.scanning import Markers, SequentialReader, Wait
from pydantic import Field

_OPENING = "<think>"
_CLOSING = "</think>"
_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_CALLS = {_CALL: _CALL_END, "[TOOL_CALLS]": None}
_QUOTES = frozenset("\"'`")


class Settings(PluginSettings):
    """Configure what counts as reasoning."""

    calls_in_open_blocks: bool = Field(
        default=True,
        description="Make the complete calls that an answer ends with, though its block of"
        " reasoning was never closed.",
    )


class ThinkTags(ReasoningFormat):
    """Split `<think>` blocks from the answer."""

    summary = "Reasoning in <think> tags (Qwen, DeepSeek and many others)"
    kept_tokens = (_OPENING, _CLOSING)
    closing_marker = "\n</think>\n\n"
    Settings = Settings
    settings = Settings()

    def matches_template(self, template: str) -> bool:
        """Tell a template that writes or strips the tags."""
        return _OPENING in template or _CLOSING in template

    def opened_by(self, prompt: str) -> bool:
        """Tell a prompt that ends with an opening tag and blanks."""
        return prompt.rstrip().endswith(_OPENING)

    def reader(self, *, opened: bool) -> ReasoningReader:
        """Make the reader of one answer."""
        told = self.settings
        meant = isinstance(told, Settings) and told.calls_in_open_blocks
        return _Reader(opened=opened, last_calls=meant)


class _Reader(SequentialReader):
    _inner = Markers(_OPENING, _CLOSING)
    _inner_or_call = Markers(_OPENING, _CLOSING, _CALL)
    _call_end = Markers(_CALL_END, _CLOSING)
    _outer = Markers(_OPENING, _CLOSING, *_CALLS)

    def __init__(self, *, opened: bool, last_calls: bool) -> None:
        super().__init__()
        self.inside = opened
        self._inside_markers = self._inner_or_call if last_calls else self._inner
        self._any_block = opened
        self._blank: list[str] = []
        self._begun: bool = False
        self._last: str = ""

    def program(self) -> Wait[None]:
        quoted = False
        while True:
            if self.inside:
                yield from self._block()
            marker = yield from self.until(self._outer, self._speak)
            if not marker:
                break
            if marker in _CALLS:
                yield from self._call(marker)
            elif marker == _OPENING and self._last not in _QUOTES:
                self.inside = True
            elif marker == _OPENING or quoted:
                quoted = marker == _OPENING
                self._speak(marker)
        if self._blank and not self._any_block:
            self.say("".join(self._blank))

    def _block(self) -> Wait[None]:
        spoken, self._begun, self._blank = self._begun, False, []
        self._any_block = True
        while marker := (yield from self.until(self._inside_markers, self._think)):
            if marker == _CALL:
                calls, marker = yield from self._last_calls()
                if calls:
                    self.inside = False
                    self._begun, self._blank, self._last = spoken, [], ""
                    self._speak(calls)
                    return
            if marker in ("", _CLOSING):
                break
        if marker:
            self.inside = False
        elif self._begun and (tail := "".join(self._blank)):
            self.emit(ReasoningDelta(tail))
        self._begun, self._blank, self._last = spoken, [], ""

    def _last_calls(self) -> Wait[tuple[str, str]]:
        """Return the calls that the answer ends with, or what ended them: then they are thought."""
        calls = [_CALL]
        while (ended := (yield from self.until(self._call_end, calls.append))) == _CALL_END:
            calls += (_CALL_END, (yield from self.blank()))
            if not (yield from self.more()):
                return "".join(calls), ""
            if not (yield from self.accept(_CALL)):
                break
            calls.append(_CALL)
        self._think("".join(calls))
        return "", ended

    def _call(self, opening: str) -> Wait[None]:
        self._speak(opening)
        closing = _CALLS[opening]
        if closing is None:
            yield from self.rest(self._speak)
        else:
            self._speak((yield from self.until(Markers(closing), self._speak)))

    def _think(self, text: str) -> None:
        """Emit reasoning; trailing blanks wait for what follows, leading ones vanish."""
        words = text.rstrip()
        if not words:
            self._blank.append(text)
            return
        if self._begun:
            words = "".join(self._blank) + words
        self.emit(ReasoningDelta(words if self._begun else words.lstrip()))
        self._begun, self._blank = True, [text[len(text.rstrip()) :]]

    def _speak(self, text: str) -> None:
        """Emit text; blanks before the first word wait, and vanish when a block comes."""
        self._last = text[-1:]
        if self._begun:
            self.say(text)
        elif not text.strip():
            self._blank.append(text)
        else:
            self.say(text.lstrip() if self._any_block else "".join(self._blank) + text)
            self._begun, self._blank = True, []


plugin = ThinkTags
