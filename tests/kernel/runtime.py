"""A directory and a generator over scripted models, with real children and no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pegboard_backends.scripted import ScriptedBackend
from pegboard_contracts.conversation import Conversation, Message, TextPart, Tool
from pegboard_contracts.events import (
    Accepted,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallStarted,
)
from pegboard_contracts.generation import GenerationRequest
from pegboard_kernel.board import Board
from pegboard_kernel.generation.generator import PathGenerator
from pegboard_kernel.models.catalogue_file import CatalogueFile
from pegboard_kernel.models.directory import Directory
from pegboard_kernel.models.events import EventLog
from pegboard_kernel.models.lifecycle import Lifecycle
from pegboard_kernel.preparation.preparing import Preparation
from pegboard_kernel.settings import Settings
from pegboard_model_sources.local_path import LocalPath
from pegboard_reasoning_formats.think_tags import ThinkTags
from pegboard_tool_formats.hermes import Hermes

MODEL = "scripted"


def board() -> Board:
    """Make the board of the plugins that these tests need."""
    backend, hermes, thoughts, source = ScriptedBackend(), Hermes(), ThinkTags(), LocalPath()
    for name, plugin in (
        ("scripted", backend),
        ("hermes", hermes),
        ("think_tags", thoughts),
        ("local_path", source),
    ):
        plugin.name = name
        plugin.configure(type(plugin).Settings())
    return Board(
        backends={"scripted": backend},
        tool_formats={"hermes": hermes},
        reasoning_formats={"think_tags": thoughts},
        model_sources={"": source, "scripted": source},
        sections={"scripted": {}},
    )


@dataclass
class Heard:
    """Hold what one answer said."""

    events: list[GenerationEvent]

    @property
    def accepted(self) -> Accepted:
        first = self.events[0]
        assert isinstance(first, Accepted)
        return first

    @property
    def finished(self) -> Finished:
        last = self.events[-1]
        assert isinstance(last, Finished)
        return last

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ReasoningDelta))

    @property
    def calls(self) -> list[str]:
        return [event.name for event in self.events if isinstance(event, ToolCallStarted)]


@dataclass
class Runtime:
    """Hold what requests go through."""

    directory: Directory
    lifecycle: Lifecycle
    generator: PathGenerator

    def stream(self, text: str, **fields: Any) -> AsyncGenerator[GenerationEvent, None]:
        return self.generator.generate(request(text, **fields))

    async def ask(self, text: str, **fields: Any) -> Heard:
        return Heard([event async for event in self.stream(text, **fields)])

    async def inspect(self) -> dict[str, Any]:
        return await self.directory.inspect(MODEL)

    async def log(self) -> list[dict[str, Any]]:
        return list((await self.inspect())["requests"])


def request(text: str, tools: tuple[Tool, ...] = (), **fields: Any) -> GenerationRequest:
    """Ask with one user message."""
    message = Message(role="user", content=(TextPart(text),))
    asked: dict[str, Any] = {
        "model": MODEL,
        "conversation": Conversation(messages=(message,), tools=tools),
    } | fields
    return GenerationRequest(**asked)


def models(settings: Settings, plugins: Board) -> tuple[Directory, Lifecycle]:
    """Make the two halves of the knowledge of models, as a server does."""
    path = settings.catalog or settings.data_dir / "models.json"
    catalogue = CatalogueFile(path, default_device=settings.default_device)
    directory = Directory(settings, EventLog())
    return directory, Lifecycle(settings, plugins, directory, catalogue, Preparation)


@contextlib.asynccontextmanager
async def serving(
    folder: Path,
    script: Mapping[str, Any],
    plugins: Board | None = None,
    **settings: Any,
) -> AsyncGenerator[Runtime, None]:
    """Load a script as the model `scripted`; its children are gone at the end."""
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    fields = {"data_dir": folder / "data", "models": (f"{MODEL}=scripted:{path}",)} | settings
    made = Settings.model_validate(fields)
    plugins = plugins or board()
    directory, lifecycle = models(made, plugins)
    lifecycle.register_specs()
    try:
        await lifecycle.start()
        yield Runtime(directory, lifecycle, PathGenerator(directory, plugins, made))
    finally:
        await lifecycle.close()


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        await asyncio.sleep(0.01)
