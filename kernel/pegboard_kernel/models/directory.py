"""The directory: every model's record and names, and what requests mean by a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from pegboard_contracts.encoding import ModelKind
from pegboard_contracts.errors import ApiError, model_not_found
from pegboard_contracts.models import ModelEntry, ModelState, ModelView

from pegboard_kernel.models.record import PREPARING, Change, Found, Loaded, ModelRecord

if TYPE_CHECKING:
    from pegboard_kernel.models.events import EventLog, Level
    from pegboard_kernel.settings import Settings

_DOES: dict[ModelKind, str] = {
    "generate": "generates text (/v1/chat/completions, /v1/completions, /v1/responses)",
    "embedding": "embeds (/v1/embeddings)",
    "rerank": "reranks (/v1/rerank)",
}


class Loader(Protocol):
    """Load models for requests and for `ModelDirectory`."""

    async def load_and_wait(self, record: ModelRecord) -> None:
        """Load a model; raises why it is not loaded."""
        ...

    async def unload_and_wait(self, record: ModelRecord) -> None:
        """Unload a model."""
        ...

    async def load_for_request(self, record: ModelRecord) -> None:
        """Load a model that a request names, in the place of an idle one if need be."""
        ...


class Directory:
    """Know every model: implements `ModelDirectory`, and resolves names for requests.

    Changes no record. Runs on the event loop.
    """

    def __init__(self, settings: Settings, events: EventLog) -> None:
        """Start empty."""
        self._autoload = settings.autoload
        self._agent_grace = settings.agent_grace
        self._events = events
        self._records: dict[str, ModelRecord] = {}
        self._names: dict[str, str] = {}
        self._loader: Loader | None = None

    def loads_with(self, loader: Loader) -> None:
        """Take who loads; it needs the directory itself."""
        self._loader = loader

    def register(self, entry: ModelEntry, found: Found) -> ModelRecord:
        """Take an entry in; one whose id is known already is the known one."""
        if (known := self._records.get(entry.id)) is not None:
            return known
        record = ModelRecord(entry, found, self._told)
        record.count_answers(self._agent_grace)
        self._records[entry.id] = record
        self._rebuild_names()
        self._events.tell(
            "registered", f"'{entry.id}' is registered.", model=entry.id, data=_data(record)
        )
        return record

    def forget(self, record: ModelRecord) -> None:
        """Take a removed model out."""
        model = record.entry.id
        del self._records[model]
        self._rebuild_names()
        self._events.tell("removed", f"'{model}' is removed.", model=model)

    def _rebuild_names(self) -> None:
        names: dict[str, str] = {}
        for model, record in self._records.items():
            for alias in record.entry.aliases:
                names.setdefault(alias, model)
        # An id wins over an alias of the same name.
        self._names = names | {model: model for model in self._records}

    def _told(self, record: ModelRecord, change: Change) -> None:
        model, view = record.entry.id, record.view()
        message = f"'{model}' is {view.state}."
        level: Level = "error" if view.state is ModelState.ERROR else "info"
        if change == "notice":
            message, level = f"'{model}': {view.switch_error or view.error}", "warning"
        elif view.state is ModelState.ERROR and view.error:
            message = f"'{model}': {view.error}"
        elif change == "progress" and view.progress is not None and view.progress.message:
            message = f"'{model}': {view.progress.message}"
        self._events.tell(
            change if change != "notice" else "changed",
            message,
            level=level if change != "progress" else "info",
            model=model,
            data=_data(record),
        )

    def records(self) -> Iterator[ModelRecord]:
        """Return all records."""
        return iter(tuple(self._records.values()))

    def clashing(self, entry: ModelEntry) -> ModelRecord | None:
        """Return the record whose id or alias stands in the way of an entry's names."""
        for name in (entry.id, *entry.aliases):
            if name in self._names:
                return self._records[self._names[name]]
        # Ids are folders, and some file systems ignore case.
        wanted = entry.id.lower()
        return next((r for model, r in self._records.items() if model.lower() == wanted), None)

    def models(self) -> list[ModelView]:
        """List all models, by id."""
        return [self._records[model].view() for model in sorted(self._records)]

    def find(self, name: str) -> ModelView | None:
        """Return the model of an exact id or alias, or nothing. `auto` is no name."""
        record = self._records.get(self._names.get(name, ""))
        return None if record is None else record.view()

    def known(self, name: str) -> ModelRecord:
        """Return the record of an exact id or alias. Raises `ApiError` 404."""
        record = self._records.get(self._names.get(name, ""))
        if record is None:
            raise model_not_found(name)
        return record

    def record(self, name: str, kind: ModelKind = "generate") -> ModelRecord:
        """Return the record that a request means; `auto` is any loaded model of the kind.

        Raises `ApiError` 404 for an unknown name, 503 `no_model_loaded` for `auto`.
        """
        return self._any_loaded(kind) if name == "auto" else self.known(name)

    def _any_loaded(self, kind: ModelKind) -> ModelRecord:
        loaded = [
            record
            for _, record in sorted(self._records.items())
            if record.state is ModelState.LOADED
            and record.loaded is not None
            and record.kind == kind
        ]
        for record in loaded:
            if record.loaded is not None and record.loaded.pair.ready:
                return record
        if loaded:
            return loaded[0]
        message = "No model is loaded, so 'auto' means none. Load one; GET /v1/models lists them."
        raise ApiError(503, message, param="model", code="no_model_loaded", retry_after=10)

    def check_kind(self, record: ModelRecord, kind: ModelKind) -> None:
        """Raise 400 `model_kind_mismatch` for a model of another kind."""
        if record.kind != kind:
            message = (
                f"The model '{record.entry.id}' {_DOES[record.kind]}; this route needs one that "
                f"{_DOES[kind]}. GET /v1/models tells each model's kind."
            )
            raise ApiError(400, message, param="model", code="model_kind_mismatch")

    async def serving(self, record: ModelRecord) -> Loaded:
        """Return what is loaded for a record; loads it when the settings say so.

        Raises `ApiError` 409 as decision 3 says, or why it cannot be loaded.
        """
        if record.state is ModelState.LOADED and record.loaded is not None:
            return record.loaded
        if self._autoload and self._loader is not None and not _on_its_way_out(record):
            await self._loader.load_for_request(record)
            if record.loaded is not None:
                return record.loaded
        raise not_serving(record)

    async def load(self, model: str) -> ModelView:
        """Load a registered model and wait; see `ModelDirectory.load`."""
        record = self.known(model)
        if self._loader is not None:
            await self._loader.load_and_wait(record)
        return record.view()

    async def unload(self, model: str) -> ModelView:
        """Unload a model and wait; see `ModelDirectory.unload`."""
        record = self.known(model)
        if self._loader is not None:
            await self._loader.unload_and_wait(record)
        return record.view()

    async def inspect(self, model: str) -> dict[str, Any]:
        """Return what the model's engine tells about itself (`Engine.inspect`).

        Adds `engine_pid` and `preparer_pid`, `running` and `waiting` requests under `server`.
        """
        record = self.known(model)
        if record.loaded is None:
            raise not_serving(record)
        pair = record.loaded.pair
        told: dict[str, Any] = dict(await pair.call("inspect"))
        engine_pid, preparer_pid = pair.pids
        told["server"] = {
            "engine_pid": engine_pid,
            "preparer_pid": preparer_pid,
            "running": pair.admission.running,
            "waiting": pair.admission.waiting + pair.batches.waiting,
        }
        return told


def _on_its_way_out(record: ModelRecord) -> bool:
    return record.state is ModelState.UNLOADING or record.state in PREPARING


def _data(record: ModelRecord) -> dict[str, Any]:
    view = record.view()
    progress = None if view.progress is None else msgspec.to_builtins(view.progress)
    return {"state": str(view.state), "revision": view.revision, "progress": progress}


def not_serving(record: ModelRecord) -> ApiError:
    """Make the 409 of a request for a model that is not loaded."""
    model, state = record.entry.id, record.state
    code = "model_not_loaded"
    if state is ModelState.LOADING:
        message = f"The model '{model}' is being loaded. Try again when it is."
        code = "model_loading"
    elif state is ModelState.UNLOADING:
        message = f"The model '{model}' is being unloaded. Try again when it is."
        code = "model_busy"
    elif state in PREPARING:
        message = f"The model '{model}' is being prepared. Load it when it is ready."
        code = "model_busy"
    else:
        message = (
            f"The model '{model}' is not loaded. Load it with POST /v1/models/load or "
            f"`pegboard models load {model}`, or start the server with --autoload."
        )
    return ApiError(409, message, param="model", code=code)
