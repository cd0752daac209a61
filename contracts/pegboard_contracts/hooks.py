"""The hooks, in the order of a server's life.

Hooks are declarations at start-up: each is called once per server, on the thread that
builds it, in plugin order, each implementation isolated from the others. A raise makes
its plugin `failed`. Returning `None` contributes nothing. Anything asynchronous is an
object that a hook returns. No hook runs while tokens flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pluggy

from pegboard_contracts.plugin import PROJECT

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.types import ASGIApp

    from pegboard_contracts.backend import Backend
    from pegboard_contracts.converters import Converter
    from pegboard_contracts.formats import ReasoningFormat, ToolFormat
    from pegboard_contracts.services import Services
    from pegboard_contracts.sources import ModelSource
    from pegboard_contracts.structured_outputs import StructuredOutput

hookspec = pluggy.HookspecMarker(PROJECT)


@hookspec
def pegboard_provide_backend() -> Backend | None:
    """Provide a backend that opens engines.

    Called: once, before services are frozen.
    Returns: the backend; two for the same model backend and device are tried by name.
    Example plugin: `scripted`.
    """


@hookspec
def pegboard_provide_model_source() -> ModelSource | None:
    """Provide a source of model files.

    Called: once, before services are frozen.
    Returns: the source; a scheme with two sources is an error of the later plugin.
    Example plugin: `local_path`.
    """


@hookspec
def pegboard_provide_converter() -> Converter | None:
    """Provide a converter; the first in order that makes models of a backend is used.

    Called: once, before services are frozen.
    Example plugin: `optimum_intel`.
    """


@hookspec
def pegboard_provide_tool_format() -> ToolFormat | None:
    """Provide a tool format, known by its plugin's name.

    Called: once, before services are frozen.
    Example plugin: `hermes`.
    """


@hookspec
def pegboard_provide_reasoning_format() -> ReasoningFormat | None:
    """Provide a reasoning format, known by its plugin's name.

    Called: once, before services are frozen.
    Example plugin: `think_tags`.
    """


@hookspec
def pegboard_provide_structured_output() -> StructuredOutput | None:
    """Provide a structured output, known by its plugin's name.

    Called: once, before services are frozen.
    Example plugin: `json_schema`.
    """


@hookspec
def pegboard_provide_services(services: Services) -> None:
    """Add services under their contracts; the kernel's own are there already.

    Called: once, in plugin order; the registry is frozen after the last.
    Raises: `LookupError` from `Services.add` when the contract has a provider.
    Example plugin: `memory`.
    """


@hookspec
def pegboard_provide_middlewares(
    services: Services,
) -> Sequence[Callable[[ASGIApp], ASGIApp]] | None:
    """Provide pure ASGI middlewares; the first plugin in order is the outermost.

    Called: once, after services are frozen.
    Example plugin: `request_id`.
    """


@hookspec
def pegboard_provide_routers(services: Services) -> Sequence[APIRouter] | None:
    """Provide routers; the same method and path twice is fatal and names both plugins.

    Called: once, after services are frozen.
    Example plugin: `chat_completions`.
    """


@hookspec
def pegboard_provide_lifespan(
    services: Services,
) -> AbstractAsyncContextManager[None] | None:
    """Provide what must be entered before the first request and left after the last.

    Called: once, after services are frozen. Entered on the event loop in plugin order,
    left in reverse. Raising in the entry makes the plugin `failed`.
    Example plugin: `network_guard`.
    """
