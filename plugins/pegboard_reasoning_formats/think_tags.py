"""Qwen, DeepSeek and many others: reasoning between `<think>` and `</think>`.

    <think>
    Two pegs and two pegs.
    </think>

    Four.

Blocks may come several times, also between calls. A prompt may have opened the block
already; the answer then starts inside it. A block that is never closed is reasoning to the
end. Blank text just inside a block, and between a block and the answer's first word, belongs
to the markup.

A marker is none where it is quoted: right after a quotation mark or a backtick, and inside
a tool call (`<tool_call>` to `</tool_call>`, `[TOOL_CALLS]` to the end). A closing tag
without an opening one vanishes; the text before it has been sent as text.
"""

from __future__ import annotations

from pegboard_contracts.events import ReasoningDelta
from pegboard_contracts.formats import ReasoningFormat, ReasoningReader
from pegboard_contracts.scanning import Markers, SequentialReader, Wait

_OPENING = "<think>"
_CLOSING = "</think>"
_CALLS = {"<tool_call>": "</tool_call>", "[TOOL_CALLS]": None}
_QUOTES = frozenset("\"'`")


class ThinkTags(ReasoningFormat):
    """Split `<think>` blocks from the answer."""

    summary = "Reasoning in <think> tags (Qwen, DeepSeek and many others)"
    kept_tokens = (_OPENING, _CLOSING)
    closing_marker = "\n</think>\n\n"

    def matches_template(self, template: str) -> bool:
        """Tell a template that writes or strips the tags."""
        return _OPENING in template or _CLOSING in template

    def opened_by(self, prompt: str) -> bool:
        """Tell a prompt that ends with an opening tag and blanks."""
        return prompt.rstrip().endswith(_OPENING)

    def reader(self, *, opened: bool) -> ReasoningReader:
        """Make the reader of one answer."""
        return _Reader(opened=opened)


class _Reader(SequentialReader):
    _inner = Markers(_OPENING, _CLOSING)
    _outer = Markers(_OPENING, _CLOSING, *_CALLS)

    def __init__(self, *, opened: bool) -> None:
        super().__init__()
        self.inside = opened
        self._any_block = opened
        self._blank: list[str] = []
        self._begun = False
        self._last = ""

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
        while (marker := (yield from self.until(self._inner, self._think))) == _OPENING:
            pass
        if marker:
            self.inside = False
        elif self._begun and (tail := "".join(self._blank)):
            self.emit(ReasoningDelta(tail))
        self._begun, self._blank, self._last = spoken, [], ""

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
