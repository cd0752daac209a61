"""The page of hooks: signature, guarantees, and the built-ins that implement each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pegboard_contracts import hooks
from pegboard_contracts.plugin import PROJECT

from tools.reference.builtin import BuiltIn, built_ins
from tools.reference.markdown import docstring


def specs() -> list[Callable[..., Any]]:
    """List the hook specs in the order of their module, which is a server's life."""
    return [value for value in vars(hooks).values() if hasattr(value, f"{PROJECT}_spec")]


def signature(spec: Callable[..., Any]) -> str:
    """Write a spec as its definition does, on one line."""
    parsed = inspect.signature(spec)
    parameters = ", ".join(f"{name}: {p.annotation}" for name, p in parsed.parameters.items())
    return f"{spec.__name__}({parameters}) -> {parsed.return_annotation}"


def implements(built_in: BuiltIn, hook: str) -> bool:
    """Tell whether a plugin's class carries an implementation of the hook."""
    return hasattr(getattr(built_in.plugin, hook, None), f"{PROJECT}_impl")


def page(root: Path) -> str:
    """Write the page."""
    plugins = built_ins(root)
    parts = ["# Hooks", docstring(hooks)]
    for spec in specs():
        users = [f"`{one.name}`" for one in plugins if implements(one, spec.__name__)]
        parts += [f"## `{signature(spec)}`", docstring(spec)]
        parts.append("Built-in plugins: " + (", ".join(users) or "none") + ".")
    return "\n\n".join(parts)
