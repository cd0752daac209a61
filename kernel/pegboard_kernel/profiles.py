"""The kinds of plugins, and the named selections of them, as data."""

from __future__ import annotations

from dataclasses import dataclass

GROUP_PREFIX = "pegboard."
"""Entry-point groups are this and a kind."""

KINDS = (
    "backends",
    "converters",
    "middlewares",
    "model_sources",
    "reasoning_formats",
    "routes",
    "stores",
    "structured_outputs",
    "tool_formats",
)

REQUIRED = ("body_limit", "network_guard")
"""Plugins that guard the server: known here, so that one that fails to import counts too."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Select whole kinds, or all when there are none, and single plugins of the others."""

    summary: str
    kinds: tuple[str, ...] | None
    plugins: tuple[str, ...] = ()

    def selects(self, kind: str, name: str) -> bool:
        """Tell whether a plugin belongs to this profile."""
        return self.kinds is None or kind in self.kinds or name in self.plugins


_BASE = ("backends", "middlewares", "model_sources")
_OPENAI = (*_BASE, "reasoning_formats", "stores", "structured_outputs", "tool_formats")

PROFILES = {
    "minimal": Profile(
        summary="plain chat: no formats, no stores",
        kinds=_BASE,
        plugins=("chat_completions", "health", "model_loading", "models"),
    ),
    "openai": Profile(
        summary="the OpenAI APIs with every format",
        kinds=_OPENAI,
        plugins=(
            "chat_completions",
            "completions",
            "conversations",
            "devices",
            "embeddings",
            "health",
            "model_loading",
            "models",
            "rerank",
            "responses",
            "tokenization",
        ),
    ),
    "full": Profile(summary="everything installed", kinds=None),
}
