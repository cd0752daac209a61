"""The lifecycle: the verbs that change models, and the start and end of all of them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import (
    AS_IT_IS,
    BY_CATALOGUE,
    CancelOutcome,
    ContextBudget,
    ConversionOptions,
    LoadOptions,
    Registration,
    SuggestedModel,
)
from pegboard_contracts.models import ModelState, ModelView, Phase

from pegboard_kernel.board import Board
from pegboard_kernel.models.arrivals import Arrivals
from pegboard_kernel.models.context_budget import budget_of, check_wanted, configured_tokens
from pegboard_kernel.models.contexts import Contexts, with_context
from pegboard_kernel.models.conversions import CatalogueWriter, Conversions, PreparationMaker
from pegboard_kernel.models.directory import Directory
from pegboard_kernel.models.entries import Entries
from pegboard_kernel.models.idle import IdleWatch
from pegboard_kernel.models.loading import check_device, is_remote, look_at
from pegboard_kernel.models.loads import LoadOperation, Loads, same_device
from pegboard_kernel.models.operations import Operations, settle
from pegboard_kernel.models.record import AT_REST, PREPARING, ModelRecord
from pegboard_kernel.models.specs import SpecError, entry_of_spec
from pegboard_kernel.models.suggestions import suggested_models

if TYPE_CHECKING:
    from pegboard_kernel.settings import Settings

logger = logging.getLogger(__name__)


class Lifecycle:
    """Change models: implements `ModelLifecycle`, the single writer of their records.

    Runs on the event loop.
    """

    def __init__(
        self,
        settings: Settings,
        board: Board,
        directory: Directory,
        catalogue: CatalogueWriter,
        prepare: PreparationMaker,
    ) -> None:
        """Put the parts together; nothing is read and nothing runs."""
        self._settings = settings
        self._board = board
        self._directory = directory
        self._catalogue = catalogue
        self._wanted: list[str] = []
        self._operations = Operations()
        self._loads = Loads(directory, board, settings, self._operations)
        self._conversions = Conversions(
            board=board,
            settings=settings,
            operations=self._operations,
            loads=self._loads,
            catalogue=catalogue,
            prepare=prepare,
        )
        self._contexts = Contexts(settings, self._operations, self._loads, catalogue)
        self._entries = Entries(directory, board, settings, catalogue)
        self._arrivals = Arrivals(directory, self._operations, self._loads)
        self._idle = IdleWatch(directory, self._loads, settings.idle_unload)
        directory.loads_with(self)

    async def load(self, model: str, options: LoadOptions = AS_IT_IS) -> ModelView:
        """Begin to load; see `ModelLifecycle.load`."""
        record = self._directory.known(model)
        self._operations.check_open()
        if options.device is not None:
            check_device(record.entry, self._board, options.device)
        if options.context_tokens is not None:
            check_wanted(record, self._settings, options.context_tokens)
        if record.state in PREPARING:
            await self._load_later(record, options)
        elif record.loaded is not None and record.state is ModelState.LOADED:
            self._load_loaded(record, options)
        elif isinstance(record.operation, LoadOperation) and options.device is not None:
            self._aim(record, record.operation, options)
        else:
            await self._load_unloaded(record, options)
        if options.pinned is not None and options.pinned != record.pinned:
            record.pinned = options.pinned
            record.change()
        return record.view()

    async def _load_later(self, record: ModelRecord, options: LoadOptions) -> None:
        """Remember a load until the files are there; the newest one counts."""
        if options.context_tokens not in (None, configured_tokens(record)):
            message = (
                f"The model '{record.entry.id}' is being prepared; change its context behind it."
            )
            raise ApiError(409, message, param="context_tokens", code="model_busy")
        record.deferred = options

    def _load_loaded(self, record: ModelRecord, options: LoadOptions) -> None:
        loaded, device = record.loaded, options.device
        if loaded is None:
            return
        self._check_same_context(record, options)
        operation = record.operation
        if device is None:
            record.touch()
        elif isinstance(operation, LoadOperation):
            self._aim(record, operation, options)
        elif not same_device(device, loaded.device):
            record.check_free()
            self._loads.check_room(record, force=options.force)
            self._loads.begin_switch(record, device)

    def _check_same_context(self, record: ModelRecord, options: LoadOptions) -> None:
        wanted = options.context_tokens
        if wanted is None or wanted == configured_tokens(record):
            return
        message = (
            f"The model '{record.entry.id}' is loaded with another context. Change it with "
            "POST /v1/models/context, or unload the model first."
        )
        raise ApiError(409, message, param="context_tokens", code="context_mismatch")

    def _aim(self, record: ModelRecord, operation: LoadOperation, options: LoadOptions) -> None:
        self._check_same_context(record, options)
        device = options.device
        if device is None or same_device(device, operation.device):
            return
        record.requested_device = device
        message = f"The engine is opened on {device} instead."
        record.report(operation.progress(Phase.LOADING, message))
        operation.retarget(device)

    async def _load_unloaded(self, record: ModelRecord, options: LoadOptions) -> None:
        record.check_free()
        if not record.found.downloaded:
            await self._look_again(record)
        if record.state not in AT_REST or not record.found.downloaded:
            raise _not_downloaded(record)
        tokens = options.context_tokens
        if tokens is None or tokens == configured_tokens(record):
            self._loads.check_room(record, force=options.force)
        else:
            await self._save_context(record, tokens, force=options.force)
        self._loads.begin(record, options.device)

    async def _look_again(self, record: ModelRecord) -> None:
        """Look whether the files came without us."""
        with record.occupy("it is looked for its files"):
            found = await asyncio.to_thread(look_at, record.entry, self._board, self._settings)
        record.change(found=found)
        if found.downloaded and record.state is ModelState.NOT_DOWNLOADED:
            record.move(ModelState.READY_TO_LOAD)

    async def _save_context(self, record: ModelRecord, tokens: int, *, force: bool) -> None:
        entry = with_context(record, tokens)
        self._loads.check_room(record, force=force, entry=entry)
        with record.occupy("its context is being changed"):
            # The place is taken: who comes meanwhile finds no room.
            record.arriving = True
            try:
                record.change(entry=await self._contexts.saved(record, entry))
            finally:
                record.arriving = False
        self._operations.check_open()

    async def unload(self, model: str) -> ModelView:
        """Begin to unload; see `ModelLifecycle.unload`."""
        record = self._directory.known(model)
        if record.state is ModelState.LOADED:
            self._loads.begin_unload(record)
        elif record.state is ModelState.LOADING:
            record.check_free()
        return record.view()

    async def convert(self, model: str, options: ConversionOptions = BY_CATALOGUE) -> ModelView:
        """Begin to fetch and convert; see `ModelLifecycle.convert`."""
        record = self._directory.known(model)
        self._operations.check_open()
        if options.device is not None:
            check_device(record.entry, self._board, options.device)
        await self._conversions.begin(record, options)
        return record.view()

    async def settled(self, model: str) -> ModelView:
        """Wait until nothing runs for a model; see `ModelLifecycle.settled`."""
        record = self._directory.known(model)
        await settle(record)
        return record.view()

    async def cancel(self, model: str, operation_id: str) -> CancelOutcome:
        """Cancel exactly this operation; see `ModelLifecycle.cancel`."""
        record = self._directory.known(model)
        operation, last = record.operation, record.progress
        if operation is not None and operation.id == operation_id:
            again = operation.cancelled
            if operation.refusal is not None:
                raise operation.refusal
            await self._operations.cancel(operation)
            return self._cancelled(record, operation_id, again=again)
        if last is not None and last.operation_id == operation_id and operation is None:
            return self._cancelled(record, operation_id, again=True)
        if operation is None:
            message = f"Nothing runs for '{record.entry.id}' that could be cancelled."
            raise ApiError(409, message, param="operation_id", code="no_active_operation")
        message = f"Another operation of '{record.entry.id}' runs by now: {operation.id}."
        raise ApiError(409, message, param="operation_id", code="stale_operation")

    def _cancelled(self, record: ModelRecord, operation_id: str, *, again: bool) -> CancelOutcome:
        """Tell of a cancel, unless the operation ended otherwise before it."""
        ended = record.progress
        if (
            ended is None
            or ended.operation_id != operation_id
            or ended.phase is not Phase.CANCELLED
        ):
            message = "The operation ended before it could be cancelled; look at the model's state."
            raise ApiError(409, message, param="operation_id", code="task_finished")
        return CancelOutcome(
            view=record.view(),
            operation_id=operation_id,
            operation_type=ended.operation_type,
            already_cancelled=again,
        )

    async def register(self, registration: Registration) -> tuple[ModelView, bool]:
        """Add a catalogue entry durably; see `ModelLifecycle.register`."""
        self._operations.check_open()
        record, added = await self._entries.register(registration)
        return record.view(), added

    def suggestions(self) -> list[SuggestedModel]:
        """Return good models to begin with; see `ModelLifecycle.suggestions`."""
        return suggested_models(record.entry for record in self._directory.records())

    async def delete_files(self, model: str) -> tuple[ModelView, int]:
        """Delete a model's own files; see `ModelLifecycle.delete_files`."""
        self._operations.check_open()
        record = self._directory.known(model)
        freed = await self._entries.delete_files(record)
        return record.view(), freed

    async def remove(self, model: str) -> int:
        """Remove entry and files; see `ModelLifecycle.remove`."""
        self._operations.check_open()
        return await self._entries.remove(self._directory.known(model))

    def budgets(self) -> list[ContextBudget]:
        """Return every model's context, by id; see `ModelLifecycle.budgets`."""
        records = sorted(self._directory.records(), key=lambda record: record.entry.id)
        return [budget_of(record, self._settings, detailed=False) for record in records]

    def budget(self, model: str) -> ContextBudget:
        """Return one model's context; see `ModelLifecycle.budget`."""
        return budget_of(self._directory.known(model), self._settings)

    async def change_context(
        self, model: str, context_tokens: int, expected_context_tokens: int
    ) -> ContextBudget:
        """Change a context; see `ModelLifecycle.change_context`."""
        self._operations.check_open()
        record = self._directory.known(model)
        await self._contexts.change(record, context_tokens, expected_context_tokens)
        return budget_of(record, self._settings)

    async def load_and_wait(self, record: ModelRecord) -> None:
        """Load a model and return when it is loaded; raises why it is not.

        The load goes on when the caller leaves.
        """
        await self.load(record.entry.id)
        await settle(record)
        if record.state is not ModelState.LOADED and record.fault is not None:
            raise record.fault

    async def unload_and_wait(self, record: ModelRecord) -> None:
        """Unload a model and return when its engine is gone."""
        await self.unload(record.entry.id)
        await settle(record)

    async def load_for_request(self, record: ModelRecord) -> None:
        """Load a model that a request names; see `Arrivals.arrive`."""
        self._operations.check_open()
        await self._arrivals.arrive(record)

    def register_specs(self) -> None:
        """Read the catalogue and register what `--model` names; nothing is loaded.

        Raises `SpecError` with one line for a spec that cannot be understood.
        """
        settings, board = self._settings, self._board
        catalogue = self._catalogue.read()
        for fault in catalogue.faults:
            logger.error("%s", fault)
        entries = list(catalogue.entries)
        for spec in settings.models:
            try:
                entry = entry_of_spec(spec, board, entries, default_device=settings.default_device)
            except SpecError as error:
                raise SpecError(f"--model {spec}: {error}") from None
            self._wanted.append(entry.id)
            if entry not in entries:
                entries.append(entry)
        if not settings.models:
            self._wanted = [entry.id for entry in entries if entry.autostart]
        for entry in entries:
            self._directory.register(entry, look_at(entry, board, settings))

    def interrupted(self, model: str, message: str) -> None:
        """Show with a model, if it is known, that a server ended in the middle of work on it."""
        for record in self._directory.records():
            if record.entry.id == model:
                record.change(error=ApiError(500, message, code="preparation_interrupted"))

    async def start(self) -> None:
        """Load or fetch what is wanted, one by one; returns when each is done or failed."""
        self._idle.start()
        for model in dict.fromkeys(self._wanted):
            if self._operations.closing:
                return
            record = self._directory.known(model)
            try:
                await self._bring_up(record)
            except ApiError as error:
                logger.error("the model '%s' is not loaded: %s", model, error.message)  # noqa: TRY400 - the message says it all
                if record.state is ModelState.NOT_DOWNLOADED:
                    record.move(ModelState.ERROR, error=error)
                elif record.state is ModelState.READY_TO_LOAD:
                    record.change(error=error)

    async def _bring_up(self, record: ModelRecord) -> None:
        if record.found.downloaded or not is_remote(record.entry, self._board):
            await self.load_and_wait(record)
        else:
            await self.convert(record.entry.id)
            await settle(record)

    async def close(self) -> None:
        """End every operation and every child within a few seconds; running answers fail.

        Begins nothing any more; loads that wait for a conversion are dropped.
        """
        self._operations.closing = True
        self._idle.stop()
        records = list(self._directory.records())
        for record in records:
            record.deferred = None
        pairs = [record.loaded.pair for record in records if record.loaded is not None]
        await asyncio.gather(
            self._operations.close(), *(pair.close() for pair in pairs), return_exceptions=True
        )


def _not_downloaded(record: ModelRecord) -> ApiError:
    why = f" ({record.found.problem})" if record.found.problem else ""
    message = (
        f"The model '{record.entry.id}' has no files here that could be loaded{why}. Fetch and "
        "convert it with POST /v1/models/convert or `pegboard models convert`."
    )
    return ApiError(409, message, param="model", code="model_not_downloaded")
