"""Fetching and converting: from an entry without files to one that can be loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pegboard_contracts.converters import Report
from pegboard_contracts.errors import ApiError, server_error
from pegboard_contracts.lifecycle import ConversionOptions, LoadOptions
from pegboard_contracts.models import ModelEntry, ModelState, Phase

from pegboard_kernel.board import Board
from pegboard_kernel.models.catalogue import Catalogue
from pegboard_kernel.models.loading import look_at
from pegboard_kernel.models.operations import Operation, Operations, unbroken
from pegboard_kernel.models.record import PREPARING, RUNNING, ModelRecord

if TYPE_CHECKING:
    from pegboard_kernel.models.loads import Loads
    from pegboard_kernel.settings import Settings

logger = logging.getLogger(__name__)

_ORDER = (
    ModelState.QUEUED,
    ModelState.DOWNLOADING,
    ModelState.CONVERTING,
    ModelState.FINALIZING,
)
_STATE_OF_PHASE = {
    Phase.QUEUED: ModelState.QUEUED,
    Phase.RESOLVING: ModelState.DOWNLOADING,
    Phase.DOWNLOADING: ModelState.DOWNLOADING,
    Phase.CONVERTING: ModelState.CONVERTING,
    Phase.FINALIZING: ModelState.FINALIZING,
}


class Prepared(Protocol):
    """Tell what came of a preparation."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """Return what the catalogue's entry has to say: `path` and how it was converted.

        `path` is from the data folder; `None` means that the source has the files.
        """
        ...


class Preparing(Protocol):
    """Fetch and convert one model in processes of its own."""

    operation_id: str

    @property
    def needs_converter(self) -> bool:
        """Tell, after `check`, whether the files are to be converted."""
        ...

    async def check(self) -> None:
        """Refuse what cannot be done. Raises `ApiError`."""
        ...

    async def run(self) -> Prepared:
        """Do it; cancelled, it leaves nothing behind and the old files as they were."""
        ...

    async def finish(self, *, taken: bool) -> None:
        """Forget the old files when the catalogue has the new ones, else put them back."""
        ...


PreparationMaker = Callable[
    [ModelEntry, Board, "Settings", ConversionOptions, str, Callable[[Report], None]], Preparing
]


class CatalogueWriter(Protocol):
    """Change the catalogue file durably; blocking. All but `read` raise `ApiError` 409."""

    def read(self) -> Catalogue:
        """Read the file."""
        ...

    def add(self, entry: ModelEntry) -> object:
        """Add an entry."""
        ...

    def change(
        self,
        model_id: str,
        fields: dict[str, Any],
        *,
        add: ModelEntry | None = None,
        expected: dict[str, Any] | None = None,
    ) -> ModelEntry:
        """Change fields of an entry and return it as it is now."""
        ...

    def remove(self, model_id: str) -> object:
        """Remove an entry; one that is not there is removed already."""
        ...


class Conversions:
    """Prepare models for loading, and load them behind it when asked. Event loop only."""

    def __init__(  # noqa: PLR0913 - what the work needs, each used as it is
        self,
        *,
        board: Board,
        settings: Settings,
        operations: Operations,
        loads: Loads,
        catalogue: CatalogueWriter,
        prepare: PreparationMaker,
    ) -> None:
        """Keep what models are prepared with."""
        self._board = board
        self._settings = settings
        self._operations = operations
        self._loads = loads
        self._catalogue = catalogue
        self._prepare = prepare

    async def begin(self, record: ModelRecord, options: ConversionOptions) -> None:
        """Check and begin; does nothing but remember the load while one runs already."""
        wanted = LoadOptions(device=options.device) if options.load_after else None
        if record.state in PREPARING and record.operation is not None:
            record.deferred = wanted or record.deferred
            return
        if record.state in RUNNING and record.work is None:
            message = f"The model '{record.entry.id}' is loaded. Unload it before it is converted."
            raise ApiError(409, message, param="model", code="model_loaded")
        with record.occupy("it is checked whether it can be prepared"):
            operation = Operation(record, "convert")

            def told(report: Report) -> None:
                self._reported(operation, report)

            preparation = self._prepare(
                record.entry, self._board, self._settings, options, operation.id, told
            )
            await preparation.check()
            self._operations.check_open()
            if not preparation.needs_converter:
                operation.rename("download")
                preparation.operation_id = operation.id
        record.deferred = wanted
        record.switch_error = None
        record.move(ModelState.QUEUED, progress=operation.progress(Phase.QUEUED))
        self._operations.begin(record, self._run(operation, preparation), operation)

    def _reported(self, operation: Operation, report: Report) -> None:
        record = operation.record
        # What comes late, after a cancel or the end, changes nothing.
        if record.operation is not operation or operation.cancelled:
            return
        state = _STATE_OF_PHASE.get(report.phase)
        if state is None or record.state not in _ORDER:
            return
        progress = operation.progress(
            report.phase,
            report.message,
            percent=report.percent,
            completed=report.completed,
            total=report.total,
        )
        if _ORDER.index(state) > _ORDER.index(record.state):
            record.move(state, progress=progress)
        else:
            record.report(progress)

    async def _run(self, operation: Operation, preparation: Preparing) -> None:
        record = operation.record
        try:
            prepared = await preparation.run()
            message = "The new files are put in place, which cannot be stopped any more."
            operation.refusal = ApiError(409, message, param="operation_id", code="not_cancellable")
            await unbroken(self._take(operation, preparation, prepared))
        except asyncio.CancelledError:
            record.deferred = None
            if record.state in PREPARING:
                progress = operation.progress(Phase.CANCELLED, "The work was cancelled.")
                record.move(ModelState.CANCELLED, progress=progress)
            raise
        except ApiError as error:
            self._failed(operation, error)
        except Exception:
            logger.exception("the model '%s' cannot be prepared", record.entry.id)
            fault = server_error("The model could not be prepared; see the server's log.")
            self._failed(operation, fault)
        else:
            self._load_deferred(record)

    def _failed(self, operation: Operation, error: ApiError) -> None:
        record = operation.record
        record.deferred = None
        logger.error("the model '%s' is not prepared: %s", record.entry.id, error.message)
        progress = operation.progress(Phase.ERROR, error.message)
        record.move(ModelState.ERROR, error=error, progress=progress)

    async def _take(self, operation: Operation, preparation: Preparing, prepared: Prepared) -> None:
        """Write down where the files are, and look at them."""
        record = operation.record
        model, fields = record.entry.id, dict(prepared.fields)
        try:
            entry = await asyncio.to_thread(self._catalogue.change, model, fields, add=record.entry)
        except BaseException:
            await preparation.finish(taken=False)
            raise
        await preparation.finish(taken=True)
        found = await asyncio.to_thread(look_at, entry, self._board, self._settings)
        record.change(entry=entry, found=found)
        if record.state is not ModelState.FINALIZING:
            record.move(ModelState.FINALIZING, progress=operation.progress(Phase.FINALIZING))
        progress = operation.progress(Phase.READY, "The model is ready to load.")
        record.move(ModelState.READY_TO_LOAD, progress=progress)

    def _load_deferred(self, record: ModelRecord) -> None:
        """Begin the load that waited for the files, in the same moment as the work ends."""
        options, record.deferred = record.deferred, None
        if options is None or self._operations.closing:
            return
        record.work = record.operation = None
        try:
            self._loads.check_room(record, force=options.force)
            self._loads.begin(record, options.device)
        except ApiError as error:
            logger.warning("'%s' is not loaded after its conversion: %s", record.entry.id, error)
            record.change(error=error)
