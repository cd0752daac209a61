"""Messages that people may see: without secrets, paths and control characters."""

from __future__ import annotations

import re

_SECRETS = (
    re.compile(r"\bhf_[A-Za-z0-9]{4,}"),
    re.compile(r"(?i)\b(bearer\s+)\S+"),
    re.compile(r"(?i)\b((?:token|password|api[_-]?key|secret)\s*[=:]\s*)[^\s,;&]+"),
)
_PATHS = (
    re.compile(r"\b[A-Za-z]:[\\/](?:[^\\/:*?\"<>|\r\n\s]+[\\/])*([^\\/:*?\"<>|\r\n\s]*)"),
    re.compile(r"(?<![\w:/.])~?/(?:[^/\s'\"<>|:;,)]+/)+([^/\s'\"<>|:;,)]*)"),
)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LONGEST = 500


def sanitized(text: str, *, limit: int = _LONGEST) -> str:
    """Return `text` in one line of at most `limit` characters, fit to be shown.

    Tokens become `***`, absolute paths keep their last name. Addresses of the web and routes
    of this server (one or two names behind a slash that is no folder) stay as they are.
    """
    shown = without_secrets(_CONTROLS.sub(" ", text))
    shown = _PATHS[0].sub(r"\1", shown)
    shown = _PATHS[1].sub(_last_name, shown)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def without_secrets(text: str) -> str:
    """Return `text` with `***` for tokens, passwords and keys."""
    shown = _SECRETS[0].sub("***", text)
    for pattern in _SECRETS[1:]:
        shown = pattern.sub(r"\1***", shown)
    return shown


def _last_name(match: re.Match[str]) -> str:
    whole = match[0]
    return whole if whole.startswith(("/v1/", "/health/", "/debug/")) else match[1] or "a folder"
