r"""Follow JSON that a model is still writing: where a value ends, and what of it is certain.

Models write almost JSON: line breaks inside strings, `\'`, half a surrogate pair. Those
are repaired on the way, so that what comes out of a complete value always parses. Every
character is looked at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Literal

_BLANK = re.compile(r"[ \t\r\n]*")
_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER_RUN = re.compile(r"[-+.0-9eE]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_HEX = re.compile(r"[0-9a-fA-F]*")
_WORDS = {"t": "true", "f": "false", "n": "null"}
_REPLACEMENT = "\\ufffd"
_LONGEST_NUMBER = 400
_DEEPEST = 128

_Step = Callable[[str, int], int]


class JsonState(Enum):
    """Say how far a value is."""

    OPEN = "open"
    COMPLETE = "complete"
    INVALID = "invalid"


def _end(pattern: re.Pattern[str], text: str, at: int, stop: int | None = None) -> int:
    found = pattern.match(text, at, len(text) if stop is None else stop)
    return found.end() if found else at


def string_fragment(text: str) -> str:
    """Escape text for the inside of a JSON string, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class JsonScanner:
    """Scan one JSON value that arrives in pieces.

    `feed` pieces until `state` is not `OPEN`, then `take` what is certain; call `finish`
    at the end of the text. `inside` starts within an object instead, before a member's
    value or after one; the value that ends is then that object. Nesting deeper than 128
    and numbers longer than 400 characters are invalid. Nothing raises.
    """

    def __init__(self, *, inside: Literal["value", "after"] | None = None) -> None:
        """Start before a value, or where `inside` says."""
        self.state = JsonState.OPEN
        self._certain: list[str] = []
        self._closers: list[str] = ["}"] if inside else []
        self._step: _Step = self._after if inside == "after" else self._value
        self._run: list[str] = []
        self._run_length = 0
        self._is_key = False
        self._high = ""

    def feed(self, text: str, start: int = 0) -> int:
        """Scan on from `start` and return the position of the first character not used."""
        at, size = start, len(text)
        while at < size and self.state is JsonState.OPEN:
            at = self._step(text, at)
        return at

    def finish(self) -> JsonState:
        """End the text, which only a bare number survives; return the final state."""
        if self.state is JsonState.OPEN:
            if self._step == self._number and not self._closers:
                self._number_ends()
            else:
                self.state = JsonState.INVALID
        return self.state

    def take(self) -> str:
        """Return what became certain since the last call; joined, this is the value's text."""
        certain = "".join(self._certain)
        self._certain.clear()
        return certain

    def _fail(self, at: int) -> int:
        self.state = JsonState.INVALID
        return at

    def _blank(self, text: str, at: int) -> int:
        end = _end(_BLANK, text, at)
        if end > at:
            self._certain.append(text[at:end])
        return end

    def _value(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        char = text[at]
        if char == '"':
            return self._open_string(at, is_key=False)
        if char in "{[":
            return self._open(char, at)
        if char in "-0123456789":
            return self._begin_run(self._number, at)
        if char in "tfn":
            return self._begin_run(self._word, at)
        return self._fail(at)

    def _open(self, char: str, at: int) -> int:
        if len(self._closers) == _DEEPEST:
            return self._fail(at)
        self._certain.append(char)
        self._closers.append("}" if char == "{" else "]")
        self._step = self._first_key if char == "{" else self._first_item
        return at + 1

    def _close(self, at: int) -> int:
        self._certain.append(self._closers.pop())
        self._value_ends()
        return at + 1

    def _value_ends(self) -> None:
        self._step = self._after
        if not self._closers:
            self.state = JsonState.COMPLETE

    def _first_item(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at < len(text) and text[at] == "]":
            return self._close(at)
        if at < len(text):
            self._step = self._value
        return at

    def _first_key(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at < len(text) and text[at] == "}":
            return self._close(at)
        return self._key(text, at)

    def _key(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        return self._open_string(at, is_key=True) if text[at] == '"' else self._fail(at)

    def _colon(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._fail(at)
        self._certain.append(":")
        self._step = self._value
        return at + 1

    def _after(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        if text[at] == self._closers[-1]:
            return self._close(at)
        if text[at] != ",":
            return self._fail(at)
        self._certain.append(",")
        self._step = self._key if self._closers[-1] == "}" else self._value
        return at + 1

    def _begin_run(self, step: _Step, at: int) -> int:
        self._run, self._run_length = [], 0
        self._step = step
        return at

    def _extend_run(self, pattern: re.Pattern[str], text: str, at: int) -> int:
        end = _end(pattern, text, at)
        self._run.append(text[at:end])
        self._run_length += end - at
        return end

    def _number(self, text: str, at: int) -> int:
        at = self._extend_run(_NUMBER_RUN, text, at)
        if self._run_length > _LONGEST_NUMBER:
            return self._fail(at)
        if at < len(text):
            self._number_ends()
        return at

    def _number_ends(self) -> None:
        number = "".join(self._run)
        if _NUMBER.fullmatch(number):
            self._certain.append(number)
            self._value_ends()
        else:
            self.state = JsonState.INVALID

    def _word(self, text: str, at: int) -> int:
        if not self._run_length:
            self._run = [_WORDS[text[at]]]
        word = self._run[0]
        end = at + min(len(text) - at, len(word) - self._run_length)
        if not word.startswith(text[at:end], self._run_length):
            return self._fail(at)
        self._run_length += end - at
        if self._run_length == len(word):
            self._certain.append(word)
            self._value_ends()
        return end

    def _open_string(self, at: int, *, is_key: bool) -> int:
        self._certain.append('"')
        self._is_key = is_key
        self._step = self._string
        return at + 1

    def _string(self, text: str, at: int) -> int:
        end = _end(_STRING_RUN, text, at)
        if end > at:
            self._certain.append(text[at:end])
        if end == len(text):
            return end
        char = text[end]
        if char == '"':
            self._certain.append(char)
            if self._is_key:
                self._step = self._colon
            else:
                self._value_ends()
        elif char == "\\":
            self._step = self._escape
        else:
            self._certain.append(string_fragment(char))
        return end + 1

    def _escape(self, text: str, at: int) -> int:
        char = text[at]
        if char == "u":
            self._begin_run(self._unicode, at)
            return at + 1
        self._step = self._string
        if char == "'":
            self._certain.append(char)
        elif char in '"\\/bfnrt':
            self._certain.append("\\" + char)
        else:
            self._certain.append("\\\\")
            return at
        return at + 1

    def _unicode(self, text: str, at: int) -> int:
        end = _end(_HEX, text, at, at + 4 - self._run_length)
        self._run.append(text[at:end])
        self._run_length += end - at
        if self._run_length == 4:
            self._unicode_ends("".join(self._run))
        elif end < len(text):
            self._lone_high()
            self._certain.append("\\\\u" + "".join(self._run))
            self._step = self._string
        return end

    def _unicode_ends(self, digits: str) -> None:
        code = int(digits, 16)
        escape = "\\u" + digits
        self._step = self._string
        if 0xDC00 <= code <= 0xDFFF:
            self._certain.append(self._high + escape if self._high else _REPLACEMENT)
            self._high = ""
            return
        self._lone_high()
        if 0xD800 <= code <= 0xDBFF:
            self._high = escape
            self._step = self._low
        else:
            self._certain.append(escape)

    def _low(self, text: str, at: int) -> int:
        if text[at] == "\\":
            self._step = self._low_escape
            return at + 1
        self._lone_high()
        self._step = self._string
        return at

    def _low_escape(self, text: str, at: int) -> int:
        if text[at] != "u":
            self._lone_high()
        self._step = self._escape
        return at

    def _lone_high(self) -> None:
        if self._high:
            self._certain.append(_REPLACEMENT)
            self._high = ""
