"""Stop strings, found in visible text wherever the tokens cut it."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def held_back(text: str, wanted: Collection[str]) -> int:
    """Count the characters at the end of `text` that may be the beginning of a wanted string.

    A wanted string that is complete does not count; a longer one that it begins does.
    """
    longest = max((len(string) for string in wanted), default=0) - 1
    start = max(0, len(text) - longest)
    firsts = {string[0] for string in wanted if string}
    for index in range(start, len(text)):
        if text[index] not in firsts:
            continue
        tail = text[index:]
        if any(len(string) > len(tail) and string.startswith(tail) for string in wanted):
            return len(text) - index
    return 0


class StopFinder:
    """Find the first stop string that is complete; text that cannot be part of one passes.

    Any cut of the same text gives the same result: of several the one that ends first
    counts, of those the one that begins first. Source: decision 41.
    """

    def __init__(self, stops: Sequence[str], *, shown: Collection[str] = ()) -> None:
        """Watch for `stops`; empty ones are ignored. Those in `shown` are let through too."""
        self._shown = frozenset(shown)
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """Take visible text and return what may be shown; once `found`, nothing more."""
        if self.found is not None:
            return ""
        text = self._held + text
        self._held = ""
        hits = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if hits:
            _, at, self.found = min(hits)
            return text[: at + len(self.found)] if self.found in self._shown else text[:at]
        cut = len(text) - held_back(text, self._stops)
        self._held = text[cut:]
        return text[:cut]

    def finish(self) -> str:
        """Return what was held back: it was no stop string after all."""
        held, self._held = self._held, ""
        return held
