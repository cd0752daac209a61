"""The page of errors: every code that the source text can answer with."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pegboard_contracts.errors import ApiError

from tools.reference.markdown import table

ROOTS = ("contracts", "kernel", "plugins")
MEANINGS = {
    400: "well-formed, but it cannot be served as asked",
    401: "an API key is missing or wrong",
    403: "this caller or this page may not ask",
    404: "no such thing, or not yours",
    405: "the URL exists, the method does not",
    409: "the model's state forbids it right now",
    413: "the body is too large",
    422: "the body breaks the route's schema",
    429: "too many requests from this caller",
    500: "the server or the engine failed",
    501: "understood, and not supported here",
    502: "the model hub does not answer, or not as it should",
    503: "not now: full, restarting, or nothing loaded",
    507: "the disk has no room for it",
}
_STATUS_OF_MAKER = {"invalid_request": "400", "not_supported": "501"}


class Code(NamedTuple):
    """Name an error code, the statuses it comes with, and where it is raised."""

    code: str
    status: str
    module: str


INTRODUCTION = """\
# Errors

Every error of every route has one shape, and all four keys are always there:

    {"error": {"message": "...", "type": "...", "param": null, "code": "..."}}

`message` says what is wrong and what to do next. `param` is the dotted path of the field at
fault. Every response carries `X-Request-ID`; every 429 and 503 carries `Retry-After`. An error
after the first byte of a stream comes as an event of the stream, in the form of its API.\
"""


def page(root: Path) -> str:
    """Write the page."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for one in codes(root):
        statuses, modules = found.setdefault(one.code, (set(), set()))
        statuses.add(one.status)
        modules.add(f"`{one.module}`")
    types = [(str(s), text, f"`{ApiError(s, '').type}`") for s, text in MEANINGS.items()]
    rows = [
        (f"`{code}`", ", ".join(sorted(statuses)), ", ".join(sorted(modules)))
        for code, (statuses, modules) in sorted(found.items())
    ]
    return "\n\n".join(
        [
            INTRODUCTION,
            "## Types",
            table(("status", "meaning", "`type`"), types),
            "## Codes",
            table(("`code`", "status", "raised in"), rows),
        ]
    )


def codes(root: Path) -> Iterator[Code]:
    """Find every call that names an error code."""
    for folder in ROOTS:
        for file in sorted((root / folder).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    yield from _codes_of_call(node, ".".join(_module(root / folder, file)))


def _codes_of_call(call: ast.Call, module: str) -> Iterator[Code]:
    maker = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    named = {word.arg: word.value for word in call.keywords}
    if maker == "not_supported":
        yield Code("not_supported", "501", module)
    elif maker == "model_not_found":
        yield Code("model_not_found", "404", module)
    elif maker in ("ApiError", "invalid_request"):
        status = _STATUS_OF_MAKER.get(maker) or _status(call)
        for code in _texts(named.get("code")):
            yield Code(code, status, module)


def _status(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return str(first.value) if isinstance(first, ast.Constant) else "by route"


def _texts(node: ast.expr | None) -> Iterator[str]:
    """Give the texts that an expression can be; a choice gives both sides."""
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _module(root: Path, file: Path) -> tuple[str, ...]:
    return file.relative_to(root).with_suffix("").parts
