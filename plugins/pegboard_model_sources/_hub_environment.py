"""What the environment says about the hub, read at each call: places, offline mode, tokens."""

from __future__ import annotations

import os
import re
from pathlib import Path

TOKEN = re.compile(r"hf_[A-Za-z0-9]{8,500}")
"""What a token of the hub looks like."""

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def endpoint() -> str:
    """Return the address of the hub without a slash at its end: `HF_ENDPOINT` or the default."""
    from huggingface_hub import constants  # noqa: PLC0415 - heavy

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def hub_home() -> Path:
    """Return the folder of the hub's tools: `HF_HOME`, or where they put it."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _path(os.environ.get("HF_HOME") or f"{caches}/huggingface")


def cache_folder() -> Path:
    """Return the folder of downloaded repositories, which other tools share."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(name):
            return _path(value)
    return hub_home() / "hub"


def is_offline() -> bool:
    """Tell whether the user forbids to ask the hub."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in _TRUE


def environment_token() -> str | None:
    """Return the token that belongs to the environment: variables, else the tools' own login."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if token := _sound(os.environ.get(name, "")):
            return token
    login = os.environ.get("HF_TOKEN_PATH")
    try:
        file = _path(login) if login else hub_home() / "token"
        return _sound(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def _sound(token: str) -> str | None:
    return token.strip() if TOKEN.fullmatch(token.strip()) else None


def _path(value: str) -> Path:
    # Not `Path.expanduser`, which fails for a user without a home.
    return Path(os.path.expanduser(os.path.expandvars(value))).absolute()  # noqa: PTH111 - the same
