"""A whole set of scripted models in one process, with real children and no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import LifecycleEvent, LoadOptions
from pegboard_contracts.models import ModelState, ModelView
from pegboard_kernel.board import Board
from pegboard_kernel.generation.generator import PathGenerator
from pegboard_kernel.models.catalogue_file import CatalogueFile
from pegboard_kernel.models.conversions import PreparationMaker
from pegboard_kernel.models.directory import Directory
from pegboard_kernel.models.events import EventLog
from pegboard_kernel.models.lifecycle import Lifecycle
from pegboard_kernel.preparation.preparing import Preparation
from pegboard_kernel.settings import Settings

from tests.kernel.runtime import Heard, board, request, until

SLOW_MS = 60_000
"""A load that nobody waits for to the end."""


@dataclass
class House:
    """Hold one server's models and what changes them."""

    folder: Path
    directory: Directory
    lifecycle: Lifecycle
    events: EventLog
    generator: PathGenerator

    def write(self, model: str, **script: Any) -> None:
        """Write a model's script, which counts from its next load on."""
        write_script(self.folder, model, script)

    def view(self, model: str = "one") -> ModelView:
        view = self.directory.find(model)
        assert view is not None
        return view

    def state(self, model: str = "one") -> ModelState:
        return self.view(model).state

    def operation(self, model: str = "one") -> str:
        progress = self.view(model).progress
        assert progress is not None
        return progress.operation_id

    async def load(self, model: str = "one", **options: Any) -> ModelView:
        return await self.lifecycle.load(model, LoadOptions(**options))

    async def loaded(self, model: str = "one", **options: Any) -> ModelView:
        """Load and wait to the end."""
        await self.load(model, **options)
        view = await self.lifecycle.settled(model)
        assert view.state is ModelState.LOADED, view.error
        return view

    async def unloaded(self, model: str = "one") -> ModelView:
        await self.lifecycle.unload(model)
        return await self.lifecycle.settled(model)

    async def ask(self, text: str, model: str = "one") -> Heard:
        stream = self.generator.generate(request(text, model=model))
        return Heard([event async for event in stream])

    def told(self, kind: str | None = None) -> list[LifecycleEvent]:
        events = self.events.recent(limit=500).events
        return [event for event in events if kind is None or event.type == kind]

    def catalogued(self, model: str = "one") -> dict[str, Any]:
        """Return a model's entry as it is in the file."""
        document = json.loads((self.folder / "models.json").read_text())
        return next(entry for entry in document["models"] if entry["id"] == model)


def write_script(folder: Path, model: str, script: Mapping[str, Any]) -> str:
    path = folder / f"{model}.script.json"
    path.write_text(json.dumps(script))
    return f"scripted:{path}"


@contextlib.asynccontextmanager
async def house(
    folder: Path,
    scripts: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    plugins: Board | None = None,
    prepare: PreparationMaker = Preparation,
    entries: Mapping[str, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> AsyncGenerator[House, None]:
    """Register scripted models, `one` without a word; its children are gone at the end.

    `entries` adds fields to the catalogue's entries, and entries of other models.
    """
    scripts = {"one": {}} if scripts is None else scripts
    fields = {name: dict(more) for name, more in (entries or {}).items()}
    for name, script in scripts.items():
        source = write_script(folder, name, script)
        known = {"source_model": source, "backend": "scripted"}
        fields[name] = known | fields.get(name, {})
    models = [{"id": name} | entry for name, entry in sorted(fields.items())]
    if not (folder / "models.json").exists():
        document = {"schema_version": 1, "models": models}
        (folder / "models.json").write_text(json.dumps(document))
    made = Settings.model_validate({"data_dir": folder} | settings)
    plugins = plugins or board()
    events = EventLog()
    directory = Directory(made, events)
    catalogue = CatalogueFile(folder / "models.json", default_device=made.default_device)
    lifecycle = Lifecycle(made, plugins, directory, catalogue, prepare)
    lifecycle.register_specs()
    try:
        await lifecycle.start()
        generator = PathGenerator(directory, plugins, made)
        yield House(folder, directory, lifecycle, events, generator)
    finally:
        await asyncio.wait_for(lifecycle.close(), 20)
        await until(lambda: not children(), 10)


def children() -> list[psutil.Process]:
    """List the engine and preparer processes of this process that live."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            living = process.status() != psutil.STATUS_ZOMBIE
            if living and "pegboard_kernel.child" in " ".join(process.cmdline()):
                found.append(process)
    return found


@contextlib.contextmanager
def refused(status: int, code: str) -> Generator[pytest.ExceptionInfo[ApiError]]:
    """Expect an error by its status and code, with a message that holds no path."""
    with pytest.raises(ApiError) as caught:
        yield caught
    assert (caught.value.status, caught.value.code) == (status, code), caught.value.message
    assert str(Path.home()) not in caught.value.message
