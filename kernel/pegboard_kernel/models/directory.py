"""The directory: every model's record, and the verbs that change them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from pegboard_contracts.encoding import ModelKind
from pegboard_contracts.errors import ApiError, model_not_found, server_error
from pegboard_contracts.models import ModelEntry, ModelState, ModelView

from pegboard_kernel.board import Board
from pegboard_kernel.engines.engine_pair import EnginePair
from pegboard_kernel.models.catalogue import read_catalogue
from pegboard_kernel.models.loading import kind_of, open_model
from pegboard_kernel.models.record import Loaded, ModelRecord
from pegboard_kernel.models.specs import SpecError, entry_of_spec

if TYPE_CHECKING:
    from pegboard_kernel.settings import Settings

logger = logging.getLogger(__name__)

_DOES: dict[ModelKind, str] = {
    "generate": "generates text (/v1/chat/completions, /v1/completions, /v1/responses)",
    "embedding": "embeds (/v1/embeddings)",
    "rerank": "reranks (/v1/rerank)",
}
_RUNNING = frozenset({ModelState.LOADING, ModelState.LOADED, ModelState.UNLOADING})


class Directory:
    """Know every model: implements `ModelDirectory`, and resolves names for generation.

    The only writer of the records. Runs on the event loop.
    """

    def __init__(self, settings: Settings, board: Board) -> None:
        """Start empty; nothing is read."""
        self._settings = settings
        self._board = board
        self._records: dict[str, ModelRecord] = {}
        self._names: dict[str, str] = {}
        self._wanted: list[str] = []
        self._operations: dict[str, asyncio.Task[ModelView]] = {}
        self._closings: set[asyncio.Task[None]] = set()
        self._closing = False

    def register_specs(self) -> None:
        """Read the catalogue and register what `--model` names; nothing is loaded.

        Raises `SpecError` with one line for a spec that cannot be understood.
        """
        settings = self._settings
        path = settings.catalog or settings.data_dir / "models.json"
        catalogue = read_catalogue(path, default_device=settings.default_device)
        for fault in catalogue.faults:
            logger.error("%s", fault)
        for entry in catalogue.entries:
            self._register(entry)
        for spec in settings.models:
            entries = [record.entry for record in self._records.values()]
            try:
                entry = entry_of_spec(
                    spec, self._board, entries, default_device=settings.default_device
                )
            except SpecError as error:
                raise SpecError(f"--model {spec}: {error}") from None
            self._register(entry)
            self._wanted.append(entry.id)
        if not settings.models:
            self._wanted = [entry.id for entry in catalogue.entries if entry.autostart]

    def _register(self, entry: ModelEntry) -> None:
        if entry.id not in self._records:
            record = self._records[entry.id] = ModelRecord(entry)
            record.kind = kind_of(entry, self._board, self._settings)
            for name in (entry.id, *entry.aliases):
                # An id wins over an alias of the same name.
                if name == entry.id or name not in self._names:
                    self._names[name] = entry.id

    async def start(self) -> None:
        """Load what the specs and the catalogue ask for; returns when each is loaded or failed."""
        for model in dict.fromkeys(self._wanted):
            try:
                await self.load(model)
            except ApiError as error:
                logger.error("the model '%s' is not loaded: %s", model, error.message)  # noqa: TRY400 - the message says it all

    def models(self) -> list[ModelView]:
        """List all models, by id."""
        return [self._records[model].view() for model in sorted(self._records)]

    def find(self, name: str) -> ModelView | None:
        """Return the model of an exact id or alias, or nothing. `auto` is no name."""
        record = self._records.get(self._names.get(name, ""))
        return None if record is None else record.view()

    def record(self, name: str, kind: ModelKind = "generate") -> ModelRecord:
        """Return the record that a request means; `auto` is any loaded model of the kind.

        Raises `ApiError` 404 for an unknown name, 503 `no_model_loaded` for `auto`.
        """
        return self._any_loaded(kind) if name == "auto" else self._known(name)

    def _known(self, name: str) -> ModelRecord:
        record = self._records.get(self._names.get(name, ""))
        if record is None:
            raise model_not_found(name)
        return record

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

        Raises `ApiError` 409 as decision 3 says, or what the load raised.
        """
        if record.state is ModelState.LOADED and record.loaded is not None:
            return record.loaded
        if self._settings.autoload and record.state is not ModelState.UNLOADING:
            await self._loaded(record)
            if record.loaded is not None:
                return record.loaded
        raise _not_serving(record)

    async def _loaded(self, record: ModelRecord) -> None:
        operation = self._operations.get(record.entry.id)
        if operation is None:
            await self.load(record.entry.id)
        else:
            await asyncio.shield(operation)

    async def load(self, model: str) -> ModelView:
        """Load a registered model and wait for `loaded` or `error`.

        The load goes on when the caller leaves. Raises `ApiError`: 404 for an unknown model,
        409 when another operation is running or too many models are loaded, or why the load
        failed.
        """
        record = self._known(model)
        if record.state is ModelState.LOADED:
            return record.view()
        self._check_free(record)
        self._check_room()
        record.move(ModelState.LOADING)
        return await self._run(record, self._open(record))

    async def unload(self, model: str) -> ModelView:
        """Close the model's engine after its running answers and return its view.

        New requests are refused from now on. Raises `ApiError` as `load` does.
        """
        record = self._known(model)
        if record.state not in _RUNNING:
            return record.view()
        self._check_free(record)
        loaded = record.loaded
        if loaded is None:
            raise _not_serving(record)
        record.move(ModelState.UNLOADING)
        return await self._run(record, self._retire(record, loaded.pair))

    async def inspect(self, model: str) -> dict[str, Any]:
        """Return what the model's engine tells about itself (`Engine.inspect`).

        Adds `engine_pid` and `preparer_pid`, `running` and `waiting` requests under `server`.
        """
        record = self._known(model)
        if record.loaded is None:
            raise _not_serving(record)
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

    async def close(self) -> None:
        """End every child within a few seconds; running answers fail."""
        self._closing = True
        operations = list(self._operations.values())
        for operation in operations:
            operation.cancel()
        pairs = [record.loaded.pair for record in self._records.values() if record.loaded]
        await asyncio.gather(*operations, *(pair.close() for pair in pairs), return_exceptions=True)

    async def _run(self, record: ModelRecord, work: Any) -> ModelView:  # noqa: ANN401 - a coroutine
        task: asyncio.Task[ModelView] = asyncio.get_running_loop().create_task(work)
        self._operations[record.entry.id] = task
        task.add_done_callback(lambda _: self._ended(record.entry.id, task))
        return await asyncio.shield(task)

    def _ended(self, model: str, task: asyncio.Task[ModelView]) -> None:
        self._operations.pop(model, None)
        if not task.cancelled():
            # The record tells of it, also when nobody waits any more.
            task.exception()

    async def _open(self, record: ModelRecord) -> ModelView:
        def lost(error: ApiError) -> None:
            self._engine_lost(record, error)

        try:
            record.loaded = await open_model(record.entry, self._board, self._settings, lost)
            record.kind = record.loaded.pair.kind
        except ApiError as error:
            record.move(ModelState.ERROR, error=error)
            raise
        except asyncio.CancelledError:
            record.move(ModelState.READY_TO_LOAD)
            raise
        except Exception:
            logger.exception("the model '%s' cannot be loaded", record.entry.id)
            fault = server_error("The model could not be loaded; see the server's log.")
            record.move(ModelState.ERROR, error=fault)
            raise fault from None
        record.move(ModelState.LOADED)
        logger.info("the model '%s' is loaded", record.entry.id)
        return record.view()

    async def _retire(self, record: ModelRecord, pair: EnginePair) -> ModelView:
        await pair.retire()
        record.loaded = None
        record.move(ModelState.READY_TO_LOAD)
        return record.view()

    def _engine_lost(self, record: ModelRecord, error: ApiError) -> None:
        if self._closing or record.loaded is None:
            return
        pair = record.loaded.pair
        record.loaded = None
        if record.state is ModelState.LOADED:
            record.move(ModelState.ERROR, error=error)
        closing = asyncio.get_running_loop().create_task(pair.close())
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)

    def _check_free(self, record: ModelRecord) -> None:
        if record.state is ModelState.LOADING:
            raise _not_serving(record)
        if record.entry.id in self._operations:
            message = f"Another operation on '{record.entry.id}' is running. Wait until it ends."
            raise ApiError(409, message, param="model", code="model_busy")

    def _check_room(self) -> None:
        limit = self._settings.max_loaded_models
        running = sum(record.state in _RUNNING for record in self._records.values())
        if limit is not None and running >= limit:
            message = f"{running} models are loaded, as many as may. Unload one first."
            raise ApiError(409, message, param="model", code="too_many_models")


def _not_serving(record: ModelRecord) -> ApiError:
    model = record.entry.id
    if record.state is ModelState.LOADING:
        message = f"The model '{model}' is being loaded. Try again when it is."
        return ApiError(409, message, param="model", code="model_loading")
    if record.state is ModelState.UNLOADING:
        message = f"The model '{model}' is being unloaded. Try again when it is."
        return ApiError(409, message, param="model", code="model_busy")
    message = (
        f"The model '{model}' is not loaded. Load it with POST /v1/models/load or "
        f"`pegboard models load {model}`, or start the server with --autoload."
    )
    return ApiError(409, message, param="model", code="model_not_loaded")
