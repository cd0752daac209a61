"""The sandbox that chat templates run in, with the semantics of Hugging Face templates.

Templates are written for transformers' renderer: a Jinja sandbox with `trim_blocks` and
`lstrip_blocks`, loop controls, `{% generation %}` blocks, `tojson` without HTML escapes,
`raise_exception` and `strftime_now`. What a template does wrong is the request's error,
a 400 with the template's own words; it never ends the process.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pegboard_contracts.errors import ApiError, invalid_request

from pegboard_kernel.templates.limits import bounded_memory, bounded_time
from pegboard_kernel.templates.literals import CUT_MARK, LITERAL_MARK

MAX_CHARACTERS = 32_000_000
"""What one rendering, and each block or macro in it, may write."""

MAX_MEMORY = 1 << 29
"""Bytes that one rendering may add."""

PROBE_MEMORY = 1 << 26
PROBE_SECONDS = 0.5
"""What a probe may add and use: it renders in under a millisecond where nothing is wrong."""

_MESSAGE_CHARACTERS = 500


class ChatTemplate:
    """Render one template. Compiled once; `chat_template` keeps the recent ones."""

    def __init__(self, text: str) -> None:
        """Compile the template.

        Raises `ApiError` 400 `chat_template_error` when it is no valid template.
        """
        with _template_errors(), bounded_memory(MAX_MEMORY):
            self._template = _environment().from_string(text.replace(LITERAL_MARK, ""))

    def render(self, variables: Mapping[str, Any], now: datetime) -> str:
        """Return the text; `now` is what `strftime_now` tells.

        Raises `ApiError` 400 `chat_template_error` with the template's own message.
        """
        helpers = {"raise_exception": _raise_exception, "strftime_now": now.strftime}
        with _template_errors(), bounded_memory(MAX_MEMORY):
            return self._template.render({**helpers, **variables})

    def probe(self, variables: Mapping[str, Any], now: datetime) -> str:
        """Render a small question within small limits.

        Raises what `render` does, and `OutOfTimeError` (in the main thread of a POSIX
        process; elsewhere only the process that holds the time limit ends it).
        """
        helpers = {"raise_exception": _raise_exception, "strftime_now": now.strftime}
        with _template_errors(), bounded_memory(PROBE_MEMORY), bounded_time(PROBE_SECONDS):
            return self._template.render({**helpers, **variables})


@lru_cache(maxsize=32)
def chat_template(text: str) -> ChatTemplate:
    """Return the compiled template of a text."""
    return ChatTemplate(text)


class _GenerationTag(Extension):
    """Accept `{% generation %}`, which marks assistant text for training and prints it."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it as an instance attribute

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse up to `endgeneration`; the block is a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _bounded_join(pieces: Iterable[str]) -> str:
    """Join what a template, block or macro wrote, up to the limit."""
    kept: list[str] = []
    room = MAX_CHARACTERS
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise TemplateError(f"it writes more than {MAX_CHARACTERS} characters")
        kept.append(piece)
    return "".join(kept)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Bound what is written; the base class bounds `range` and refuses internals."""

    concat = staticmethod(_bounded_join)


@cache
def _environment() -> _Sandbox:
    sandbox = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    sandbox.filters["tojson"] = _to_json
    return sandbox


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as templates expect it: plain text, no HTML escapes."""
    text = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    if ensure_ascii:
        # The tokenizer must find its mark in an escaped text too.
        text = text.replace(json.dumps(LITERAL_MARK)[1:-1], LITERAL_MARK)
    return text


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


@contextmanager
def _template_errors() -> Generator[None]:
    """Turn whatever a template does wrong into the request's error."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a template can raise anything
        words = _explain(error).replace(LITERAL_MARK, "").replace(CUT_MARK, "")
        raise template_error(words) from None


def template_error(words: str) -> ApiError:
    """Make the 400 that carries a template's words."""
    if len(words) > _MESSAGE_CHARACTERS:
        words = words[:_MESSAGE_CHARACTERS] + "..."
    message = f"The model's chat template refused this conversation: {words}"
    return invalid_request(message, param="messages", code="chat_template_error")


def _explain(error: Exception) -> str:
    """Say what went wrong in the template's words, without paths or values."""
    if isinstance(error, TemplateSyntaxError):
        return f"syntax error in line {error.lineno}: {error.message}"
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    if isinstance(error, TemplateError | TypeError | OverflowError) and str(error):
        return str(error)
    # Messages of other errors may quote the conversation.
    return f"it failed with {type(error).__name__}"
