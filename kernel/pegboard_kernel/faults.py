"""The one exception of a server that cannot start, and how faults are told."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LOCAL_PATH = re.compile(r"(?<![\w.:/])(?:[A-Za-z]:)?[\\/][^\s'\",;:()]*[\\/]([^\s'\",;:()\\/]+)")
_LONGEST_REASON = 300


class StartupError(Exception):
    """Say why a server cannot start: `faults` has one line for each reason."""

    def __init__(self, *faults: str) -> None:
        """Keep the lines."""
        super().__init__("; ".join(faults))
        self.faults = faults


def reason_of(error: BaseException) -> str:
    """Tell a plugin's fault in one line that anybody may read: no folder, no traceback."""
    message = " ".join(str(error).split())
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return _LOCAL_PATH.sub(r"\1", text)[:_LONGEST_REASON]


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` when a known word is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
