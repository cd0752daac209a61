"""Changing a model's context: a new engine first, then the file, then the turn of the engine."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelEntry, ModelState, Phase

from pegboard_kernel.models.context_budget import (
    check_expected,
    check_wanted,
    configured_tokens,
)
from pegboard_kernel.models.operations import Operation, Operations, unbroken
from pegboard_kernel.models.record import ModelRecord
from pegboard_kernel.sanitizing import sanitized

if TYPE_CHECKING:
    from pegboard_kernel.models.conversions import CatalogueWriter
    from pegboard_kernel.models.loads import Loads
    from pegboard_kernel.models.record import Loaded
    from pegboard_kernel.settings import Settings

logger = logging.getLogger(__name__)


class Contexts:
    """Change contexts durably. Event loop only."""

    def __init__(
        self, settings: Settings, operations: Operations, loads: Loads, catalogue: CatalogueWriter
    ) -> None:
        """Keep what contexts are changed with."""
        self._settings = settings
        self._operations = operations
        self._loads = loads
        self._catalogue = catalogue

    async def change(self, record: ModelRecord, context_tokens: int, expected: int) -> None:
        """Change a context and return when it holds; see `ModelLifecycle.change_context`."""
        check_wanted(record, self._settings, context_tokens)
        check_expected(record, expected)
        record.check_free()
        if context_tokens == configured_tokens(record):
            return
        entry = with_context(record, context_tokens)
        if record.state is not ModelState.LOADED or record.loaded is None:
            with record.occupy("its context is being changed"):
                record.change(entry=await self.saved(record, entry))
            return
        self._loads.check_room(record, force=False, entry=entry)
        operation = Operation(record, "load")
        message = f"The engine is opened with a context of {context_tokens} tokens."
        record.change(progress=operation.progress(Phase.LOADING, message))
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work = self._replace(operation, record.loaded.device, entry, outcome)
        self._operations.begin(record, work, operation)
        await outcome

    async def saved(self, record: ModelRecord, entry: ModelEntry) -> ModelEntry:
        """Write the context of `entry` to the catalogue; the record is as before.

        Raises `ApiError` 409 when it cannot be written, or was changed by somebody else.
        """
        fields: dict[str, Any] = {
            "max_context_len": entry.max_context_len,
            "recommended_context_len": entry.recommended_context_len,
        }
        expected = {"max_context_len": record.entry.max_context_len}
        work = asyncio.to_thread(
            self._catalogue.change, record.entry.id, fields, add=record.entry, expected=expected
        )
        written = await unbroken(work)
        # Who edits the file by hand gets the rest at the next start.
        return msgspec.structs.replace(
            record.entry,
            max_context_len=written.max_context_len,
            recommended_context_len=written.recommended_context_len,
        )

    async def _replace(
        self, operation: Operation, device: str, entry: ModelEntry, outcome: asyncio.Future[None]
    ) -> None:
        record = operation.record
        try:
            self._loads.guard(operation, device)
            loaded = await self._opened(record, entry, device)
            message = "The new context is being saved, which cannot be stopped any more."
            operation.refusal = ApiError(409, message, param="operation_id", code="not_cancellable")
            await unbroken(self._take(operation, entry, loaded))
        except asyncio.CancelledError:
            if not outcome.done() and not operation.settled:
                self._loads.cancelled(operation)
            _fail(outcome, _not_applied(record, "the change was cancelled."))
            raise
        except ApiError as error:
            self._loads.failed(operation, error)
            _fail(outcome, _not_applied(record, error.message))
        except Exception:
            logger.exception("the context of '%s' cannot be changed", record.entry.id)
            fault = _not_applied(record, "see the server's log.")
            self._loads.failed(operation, fault)
            _fail(outcome, fault)
        else:
            if not outcome.done():
                outcome.set_result(None)

    async def _opened(self, record: ModelRecord, entry: ModelEntry, device: str) -> Loaded:
        return await self._loads.opened(
            asyncio.ensure_future(self._loads.open(record, entry, device))
        )

    async def _take(self, operation: Operation, entry: ModelEntry, loaded: Loaded) -> None:
        record = operation.record
        try:
            saved = await self.saved(record, entry)
        except BaseException:
            await loaded.pair.close()
            raise
        self._loads.succeeded(operation, loaded, saved)
        operation.settled = True


def with_context(record: ModelRecord, context_tokens: int) -> ModelEntry:
    """Return a record's entry with another context; the first one is kept beside it."""
    first = record.entry.recommended_context_len or configured_tokens(record)
    return msgspec.structs.replace(
        record.entry, max_context_len=context_tokens, recommended_context_len=first
    )


def _not_applied(record: ModelRecord, reason: str) -> ApiError:
    message = (
        f"The context of '{record.entry.id}' was not changed and all is as before: "
        f"{sanitized(reason)}"
    )
    return ApiError(409, message, param="context_tokens", code="context_not_applied")


def _fail(outcome: asyncio.Future[None], error: ApiError) -> None:
    if not outcome.done():
        outcome.set_exception(error)
        # Who asked may be gone; the record tells it too.
        outcome.exception()
