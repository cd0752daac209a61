"""The page of built-in plugins, by kind."""

from __future__ import annotations

from pathlib import Path

from tools.reference.builtin import BuiltIn, built_ins
from tools.reference.markdown import docstring, table

INTRODUCTION = """\
# Built-in plugins

`pegboard plugins list` shows these and what other distributions bring, with the state of each.
A plugin is enabled and disabled by its name; its settings are on the page
[settings](settings.md).\
"""


def page(root: Path) -> str:
    """Write the page."""
    plugins = built_ins(root)
    parts = [
        INTRODUCTION,
        table(
            ("plugin", "kind", "summary"),
            ((f"[`{p.name}`](#{p.name})", p.kind, p.plugin.summary) for p in plugins),
        ),
    ]
    kind = ""
    for one in plugins:
        if one.kind != kind:
            kind = one.kind
            parts.append(f"## Kind `{kind}`")
        parts += _entry(one)
    return "\n\n".join(parts)


def _entry(one: BuiltIn) -> list[str]:
    facts = [f"contract {one.plugin.contract[0]}.{one.plugin.contract[1]}"]
    if one.plugin.required:
        facts.append("required, so the server starts without it only when it is disabled by name")
    for word, names in (("requires", one.plugin.requires), ("after", one.plugin.after)):
        if names:
            facts.append(f"{word} " + ", ".join(f"`{name}`" for name in names))
    last = f"Module `{one.module.__name__}`; " + "; ".join(facts) + "."
    return [f"### `{one.name}`", docstring(one.module), last]
