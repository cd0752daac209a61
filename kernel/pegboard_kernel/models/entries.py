"""Registering, deleting and removing models."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.lifecycle import Registration
from pegboard_contracts.models import ModelEntry, ModelState

from pegboard_kernel.board import Board
from pegboard_kernel.models.catalogue import check_id
from pegboard_kernel.models.loading import check_device, look_at
from pegboard_kernel.models.operations import unbroken
from pegboard_kernel.models.record import RUNNING, ModelRecord
from pegboard_kernel.models.specs import SpecError, find_source
from pegboard_kernel.preparation.deletion import delete_files

if TYPE_CHECKING:
    from pegboard_kernel.models.conversions import CatalogueWriter
    from pegboard_kernel.models.directory import Directory
    from pegboard_kernel.settings import Settings

_BACKENDS = frozenset(
    {"openvino-genai", "openvino-vlm", "openvino-embeddings", "openvino-rerank", "scripted"}
)


class Entries:
    """Add models to the catalogue and take them out. Event loop only."""

    def __init__(
        self, directory: Directory, board: Board, settings: Settings, catalogue: CatalogueWriter
    ) -> None:
        """Keep what entries are made with."""
        self._directory = directory
        self._board = board
        self._settings = settings
        self._catalogue = catalogue
        self._adding = asyncio.Lock()

    async def register(self, registration: Registration) -> tuple[ModelRecord, bool]:
        """Add an entry durably; see `ModelLifecycle.register`."""
        try:
            check_id(registration.id)
        except ValueError as error:
            raise invalid_request(f"{error}.", param="model_id", code="invalid_model_id") from None
        async with self._adding:
            entry = self._entry(registration)
            if (known := self._directory.clashing(entry)) is not None:
                _check_same(known, entry, registration)
                return known, False
            self._check(entry)
            found = await asyncio.to_thread(look_at, entry, self._board, self._settings)
            await unbroken(asyncio.to_thread(self._catalogue.add, entry))
            return self._directory.register(entry, found), True

    def _entry(self, wanted: Registration) -> ModelEntry:
        device = wanted.recommended_device
        return ModelEntry(
            id=wanted.id,
            source_model=wanted.source_model,
            name=wanted.name,
            backend=wanted.backend,
            weight_format=wanted.weight_format,
            recommended_device=self._settings.default_device if device is None else device,
            max_context_len=wanted.max_context_len,
            max_output_tokens=wanted.max_output_tokens,
            description=wanted.description,
            trust_remote_code=wanted.trust_remote_code,
        )

    def _check(self, entry: ModelEntry) -> None:
        known = _BACKENDS.union(*(one.model_backends for one in self._board.backends.values()))
        if entry.backend not in known:
            message = f"There is no backend of that name. There are: {', '.join(sorted(known))}."
            raise invalid_request(message, param="backend", code="unknown_backend")
        try:
            find_source(self._board, entry.source_model)
        except SpecError as error:
            message = f"The source of the model is not understood: {error}."
            raise invalid_request(message, param="source_model", code="unknown_source") from None
        check_device(entry, self._board, entry.recommended_device)

    async def delete_files(self, record: ModelRecord) -> int:
        """Delete a model's own files; see `ModelLifecycle.delete_files`."""
        _check_not_running(record)
        with record.occupy("its files are being deleted"):
            return await unbroken(self._delete(record))

    async def _delete(self, record: ModelRecord) -> int:
        freed = await asyncio.to_thread(delete_files, self._settings.data_dir, record.entry.id)
        entry = record.entry
        if entry.path is not None:
            entry = msgspec.structs.replace(entry, path=None)
            fields = {"path": None}
            await asyncio.to_thread(self._catalogue.change, entry.id, fields, add=entry)
        found = await asyncio.to_thread(look_at, entry, self._board, self._settings)
        record.change(entry=entry, found=found)
        state = ModelState.READY_TO_LOAD if found.downloaded else ModelState.NOT_DOWNLOADED
        if record.state is not state:
            record.move(state)
        return freed

    async def remove(self, record: ModelRecord) -> int:
        """Remove a model and its files; see `ModelLifecycle.remove`."""
        _check_not_running(record)
        with record.occupy("it is being removed"):
            return await unbroken(self._remove(record))

    async def _remove(self, record: ModelRecord) -> int:
        model = record.entry.id
        # First the files: what is left of a removal that is cut can be removed again.
        freed = await asyncio.to_thread(delete_files, self._settings.data_dir, model)
        await asyncio.to_thread(self._catalogue.remove, model)
        self._directory.forget(record)
        return freed


def _check_not_running(record: ModelRecord) -> None:
    if record.state in RUNNING and record.work is None:
        message = f"The model '{record.entry.id}' is loaded. Unload it before it is deleted."
        raise ApiError(409, message, param="model", code="model_loaded")


def _check_same(known: ModelRecord, wanted: ModelEntry, registration: Registration) -> None:
    """Raise 409 `model_exists` unless a registered model is what the registration asks for."""
    differing = [
        name
        for name in msgspec.structs.asdict(registration)
        if getattr(registration, name) is not None
        and getattr(known.entry, name) != getattr(wanted, name)
    ]
    if differing:
        message = (
            f"The name '{wanted.id}' belongs to another model already, which differs in: "
            f"{', '.join(sorted(differing))}. Choose another id, or remove that model first."
        )
        raise ApiError(409, message, param="model_id", code="model_exists")
