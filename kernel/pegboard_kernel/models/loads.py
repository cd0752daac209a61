"""Loading, switching and unloading: which engine answers for a model, and since when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from pegboard_contracts.errors import ApiError, server_error
from pegboard_contracts.models import ModelEntry, ModelState, Phase

from pegboard_kernel.board import Board
from pegboard_kernel.engines.engine_pair import EnginePair
from pegboard_kernel.models.loading import can_be_cancelled, open_model
from pegboard_kernel.models.memory import check_memory, needed_bytes
from pegboard_kernel.models.operations import Operation, Operations
from pegboard_kernel.models.record import RUNNING, Loaded, ModelRecord

if TYPE_CHECKING:
    from pegboard_kernel.models.directory import Directory
    from pegboard_kernel.settings import Settings

logger = logging.getLogger(__name__)


class LoadOperation(Operation):
    """Be a load or a switch; `device` is what was asked for last."""

    def __init__(self, record: ModelRecord, device: str) -> None:
        """Aim at a device."""
        super().__init__(record, "load")
        self.device = device
        self.opening: asyncio.Task[Loaded] | None = None

    def retarget(self, device: str) -> None:
        """Open on another device instead of the one that is being opened.

        What cannot be cut is opened to its end and closed.
        """
        self.device = device
        if self.opening is not None and self.refusal is None:
            self.opening.cancel()


class Loads:
    """Open, replace and close the engines of models. Event loop only."""

    def __init__(
        self, directory: Directory, board: Board, settings: Settings, operations: Operations
    ) -> None:
        """Keep what engines are opened with."""
        self._directory = directory
        self._board = board
        self._settings = settings
        self._operations = operations

    def check_room(
        self, record: ModelRecord, *, force: bool, entry: ModelEntry | None = None
    ) -> None:
        """Raise 409 `too_many_models` or `insufficient_memory` for one more engine of a model.

        A model that is loaded keeps its place. `entry` stands for the model as it will be.
        """
        limit = self._settings.max_loaded_models
        others = [one for one in self._directory.records() if one is not record]
        running = sum(one.state in RUNNING or one.arriving for one in others)
        if limit is not None and running >= limit:
            message = f"{running} models are loaded, as many as may. Unload one first."
            raise ApiError(409, message, param="model", code="too_many_models")
        if not force:
            opening = (one for one in others if one.is_opening)
            reserved = sum(self._needed(one.entry, one) or 0 for one in opening)
            check_memory(record.entry.id, self._needed(entry or record.entry, record), reserved)

    def _needed(self, entry: ModelEntry, record: ModelRecord) -> int | None:
        return needed_bytes(record.found.facts, self._settings, entry.max_context_len)

    def begin(self, record: ModelRecord, device: str | None = None) -> None:
        """Begin to load a model that is not loaded; who calls has checked that there is room."""
        record.check_free()
        operation = LoadOperation(record, device or record.entry.recommended_device)
        record.requested_device, record.switch_error = operation.device, None
        record.touch()
        record.move(
            ModelState.LOADING, progress=operation.progress(Phase.LOADING, "The engine is opened.")
        )
        self._operations.begin(record, self._load(operation), operation)

    def begin_switch(self, record: ModelRecord, device: str) -> None:
        """Begin to open a loaded model on another device; the old engine serves meanwhile."""
        record.check_free()
        operation = LoadOperation(record, device)
        record.requested_device, record.switch_error = device, None
        message = f"The engine is opened on {device}."
        record.change(progress=operation.progress(Phase.LOADING, message))
        self._operations.begin(record, self._load(operation), operation)

    async def _load(self, operation: LoadOperation) -> None:
        record = operation.record
        try:
            loaded = await self._open_target(operation)
        except asyncio.CancelledError:
            self.cancelled(operation)
            raise
        except ApiError as error:
            self.failed(operation, error)
        except Exception:
            logger.exception("the model '%s' cannot be loaded", record.entry.id)
            fault = server_error("The model could not be loaded; see the server's log.")
            self.failed(operation, fault)
        else:
            self.succeeded(operation, loaded)

    async def _open_target(self, operation: LoadOperation) -> Loaded | None:
        """Open what was asked for last; `None` when that is what is loaded already."""
        record = operation.record
        while True:
            device = operation.device
            if record.loaded is not None and same_device(device, record.loaded.device):
                return None
            self.guard(operation, device)
            operation.opening = asyncio.ensure_future(self.open(record, record.entry, device))
            try:
                loaded = await self.opened(operation.opening)
            except asyncio.CancelledError:
                if operation.device == device or _cancelling():
                    raise
            except ApiError:
                if operation.device == device:
                    raise
            else:
                if operation.device == device:
                    return loaded
                await loaded.pair.close()
            finally:
                operation.opening = None

    def guard(self, operation: Operation, device: str) -> None:
        """Let an opening be cancelled where its backend allows it."""
        if can_be_cancelled(operation.record.entry, self._board, device):
            operation.refusal = None
            return
        message = "The model is being loaded by native code that cannot be stopped. Wait for it."
        operation.refusal = ApiError(
            409, message, param="operation_id", code="native_load_in_progress"
        )

    async def open(self, record: ModelRecord, entry: ModelEntry, device: str) -> Loaded:
        """Open an engine of `entry` for a record, which does not get it yet.

        Raises `ApiError` with why not, 500 `load_timeout` when it takes too long.
        """

        def lost(pair: EnginePair, error: ApiError) -> None:
            self._engine_lost(record, pair, error)

        seconds = self._settings.load_timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await open_model(entry, self._board, self._settings, device, lost)
        except TimeoutError:
            if not limit.expired():
                raise
            message = (
                f"The model was not loaded within {seconds:g} s, so its loading was stopped. Load "
                "it again, with a longer --load-timeout if it needs one."
            )
            raise ApiError(500, message, code="load_timeout") from None

    async def opened(self, opening: asyncio.Task[Loaded]) -> Loaded:
        """Wait for an opening; an engine that stood at the moment of a cancel is closed."""
        try:
            return await opening
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result().pair.close()
            raise

    def succeeded(
        self, operation: Operation, loaded: Loaded | None, entry: ModelEntry | None = None
    ) -> None:
        """Let the new engine answer, with the entry it was opened for; the old one goes."""
        record, old = operation.record, operation.record.loaded
        progress = operation.progress(Phase.READY, "The model is loaded.")
        if loaded is None:
            if record.loaded is not None:
                record.requested_device = record.loaded.device
            record.change(progress=progress)
            return
        record.loaded, record.kind = loaded, loaded.pair.kind
        record.requested_device, record.switch_error = loaded.device, None
        if record.state is ModelState.LOADING:
            if entry is not None:
                record.entry = entry
            record.move(ModelState.LOADED, progress=progress)
        else:
            record.change(entry=entry, progress=progress)
        record.touch()
        logger.info("the model '%s' is loaded on %s", record.entry.id, loaded.device)
        if old is not None:
            self._operations.beside(_let_go(old.pair, old.pair.retire()))

    def failed(self, operation: Operation, error: ApiError) -> None:
        """Take note of an opening that failed; what was loaded goes on."""
        record = operation.record
        if record.loaded is None:
            logger.error("the model '%s' is not loaded: %s", record.entry.id, error.message)
            progress = operation.progress(Phase.ERROR, error.message)
            record.move(ModelState.ERROR, error=error, progress=progress)
            return
        device = record.loaded.device
        message = f"The change failed, the model goes on as it was on {device}: {error.message}"
        logger.warning("the model '%s': %s", record.entry.id, message)
        record.requested_device = device
        progress = operation.progress(Phase.ERROR, message)
        record.switch_failed(error, progress)

    def cancelled(self, operation: Operation) -> None:
        """Take note of an opening that was cancelled; what was loaded goes on."""
        record = operation.record
        progress = operation.progress(Phase.CANCELLED, "The load was cancelled.")
        if record.loaded is not None:
            record.requested_device = record.loaded.device
            record.change(progress=progress)
        elif self._operations.closing:
            record.move(ModelState.READY_TO_LOAD, progress=progress)
        else:
            record.move(ModelState.CANCELLED, progress=progress)

    def begin_unload(self, record: ModelRecord) -> None:
        """Begin to close a loaded model's engine after its running answers."""
        record.check_free()
        loaded = record.loaded
        if loaded is None:
            raise RuntimeError("only what is loaded is unloaded")
        record.move(ModelState.UNLOADING)
        self._operations.begin(record, self._unload(record, loaded.pair))

    async def _unload(self, record: ModelRecord, pair: EnginePair) -> None:
        try:
            await pair.retire()
        finally:
            # Also at the end of the server, which closes the engine itself.
            if record.state is ModelState.UNLOADING:
                record.loaded = None
                record.requested_device = record.switch_error = None
                record.move(ModelState.READY_TO_LOAD)

    def _engine_lost(self, record: ModelRecord, pair: EnginePair, error: ApiError) -> None:
        if self._operations.closing:
            return
        self._operations.beside(_let_go(pair, pair.close()))
        if record.loaded is None or record.loaded.pair is not pair:
            return
        if record.state is ModelState.UNLOADING:
            return
        record.loaded = None
        if record.work is None:
            record.move(ModelState.ERROR, error=error)
        else:
            record.move(ModelState.LOADING, error=error)


async def _let_go(pair: EnginePair, ending: Coroutine[Any, Any, None]) -> None:
    """End an engine that nobody has any more; when the server stops, at once."""
    try:
        await ending
    except asyncio.CancelledError:
        # What was being closed is closed half now.
        await pair.close()
        raise


def same_device(first: str, second: str) -> bool:
    """Compare device expressions, in which case and blanks do not matter."""
    return _plain(first) == _plain(second)


def _plain(device: str) -> str:
    return "".join(device.split()).upper()


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
