"""gpt-oss: every message of an answer has a channel, and `analysis` is reasoning.

    <|channel|>analysis<|message|>Two and two.<|end|><|start|>assistant<|channel|>final
    <|message|>Four.<|return|>

(one line in truth). `final` and a `commentary` without recipient are text, one after the
other. A message with a recipient is a call: it stays as it is, for the tool format. A header
that makes no sense becomes text without its markers.
"""

from __future__ import annotations

import re

from pegboard_contracts.events import ReasoningDelta
from pegboard_contracts.formats import ReasoningFormat, ReasoningReader
from pegboard_contracts.json_text import JsonScanner
from pegboard_contracts.scanning import Markers, SequentialReader, Wait, discard

_START = "<|start|>"
_CHANNEL = "<|channel|>"
_CONSTRAIN = "<|constrain|>"
_MESSAGE = "<|message|>"
_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_MARKERS = (_START, _CHANNEL, _CONSTRAIN, _MESSAGE, *_ENDS)
_RECIPIENT = re.compile(r"\bto=\S")
_MARKER = re.compile("|".join(re.escape(marker) for marker in _MARKERS))


class HarmonyChannels(ReasoningFormat):
    """Split the analysis channel from the others, and take their markup away."""

    summary = "Reasoning in the analysis channel (gpt-oss)"
    kept_tokens = _MARKERS
    closing_marker = "<|end|><|start|>assistant<|channel|>final<|message|>"

    def matches_template(self, template: str) -> bool:
        """Tell a template that writes channels and messages."""
        return _CHANNEL in template and _MESSAGE in template

    def opened_by(self, prompt: str) -> bool:
        """Tell a prompt that ends in the header of an analysis message."""
        return prompt.rstrip().endswith(f"{_CHANNEL}analysis{_MESSAGE}")

    def reader(self, *, opened: bool) -> ReasoningReader:
        """Make the reader of one answer."""
        return _Reader(opened=opened)


class _Reader(SequentialReader):
    _any = Markers(*_MARKERS)
    _boundaries = Markers(_START, _CHANNEL, *_ENDS)

    def __init__(self, *, opened: bool) -> None:
        super().__init__()
        self.inside = opened

    def program(self) -> Wait[None]:
        marker = (yield from self._analysis()) if self.inside else _MESSAGE
        while marker:
            if marker in (_START, _CHANNEL):
                marker = yield from self._message(marker)
            else:
                marker = yield from self.until(self._any, self.say)

    def _analysis(self) -> Wait[str]:
        self.inside = True
        marker = yield from self.until(
            self._boundaries, lambda text: self.emit(ReasoningDelta(text))
        )
        self.inside = not marker
        return marker

    def _message(self, opening: str) -> Wait[str]:
        """Read a header and its message; returns the marker after it."""
        raw = [opening]
        self.route = raw.append
        header = yield from self.header(_MESSAGE, (_CHANNEL, _CONSTRAIN), 256)
        self.route = None
        if header is None:
            self.say(_MARKER.sub("", "".join(raw)))
        elif _RECIPIENT.search(header):
            return (yield from self._call("".join(raw)))
        elif "analysis" in header.split():
            return (yield from self._analysis())
        return (yield from self.until(self._any, self.say))

    def _call(self, header: str) -> Wait[str]:
        self.say(header)
        self.route = self.say
        yield from self.json(JsonScanner(), discard)
        self.route = None
        marker = yield from self.until(self._boundaries, self.say)
        if marker in _ENDS:
            self.say(marker)
        return marker


plugin = HarmonyChannels
