"""From a catalogue entry to a running engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard_contracts.backend import Backend, EngineOrder
from pegboard_contracts.encoding import ModelKind
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.board import Board
from pegboard_kernel.engines.engine_pair import EngineLimits, EnginePair
from pegboard_kernel.generation.format_choice import NO_FORMATS, choose_formats
from pegboard_kernel.models.record import Loaded
from pegboard_kernel.models.specs import SpecError, find_source

if TYPE_CHECKING:
    from pegboard_kernel.settings import Settings


def kind_of(entry: ModelEntry, board: Board, settings: Settings) -> ModelKind:
    """Tell what a registered model can be asked for; one that cannot be found generates."""
    try:
        return _backend_of(entry, board).kind_of(_source_of(entry, board, settings))
    except ApiError:
        return "generate"


async def open_model(
    entry: ModelEntry, board: Board, settings: Settings, on_lost: Callable[[ApiError], None]
) -> Loaded:
    """Open the engine of an entry and choose its formats.

    Raises `ApiError` with what to do; nothing is left running then.
    """
    source = _source_of(entry, board, settings)
    backend = _backend_of(entry, board)
    order = EngineOrder(
        model=entry.id,
        source=source,
        device=entry.recommended_device,
        cache_dir=settings.data_dir / "engines" / entry.id,
        context_tokens=entry.max_context_len,
        kv_cache_gb=settings.kv_cache_gb,
        options=entry.options,
    )
    limits = EngineLimits(
        hang_timeout=settings.engine_hang_timeout,
        template_timeout=settings.template_timeout,
        max_queue=settings.max_queue,
        compile_limit=settings.constraint_compile_limit,
        step_limit=settings.constraint_step_limit,
    )
    section = dict(board.sections.get(backend.name, {}))
    pair = EnginePair(backend.describe_engine(order), section, limits, on_lost)
    await pair.open()
    if pair.kind != "generate":
        return Loaded(pair, NO_FORMATS)
    return Loaded(pair, choose_formats(entry, board, pair.info, pair.template.source))


def _source_of(entry: ModelEntry, board: Board, settings: Settings) -> Path:
    if entry.path is not None:
        folder = settings.data_dir.resolve()
        path = (folder / entry.path).resolve()
        if not path.is_relative_to(folder):
            message = "The model's 'path' leads out of the data folder; correct the catalogue."
            raise invalid_request(message, param="path")
        return path
    try:
        source, address = find_source(board, entry.source_model)
    except SpecError as error:
        message = f"The model's files cannot be found: {error}. See `pegboard plugins list`."
        raise invalid_request(message, param="source_model") from None
    return source.resolve(address)


def _backend_of(entry: ModelEntry, board: Board) -> Backend:
    for backend in board.backends.values():
        if backend.serves(entry.backend, entry.recommended_device):
            return backend
    message = (
        f"No active backend serves '{entry.backend}' models on '{entry.recommended_device}'. "
        "`pegboard plugins list` shows which are missing and what installs them."
    )
    raise invalid_request(message, param="backend", code="backend_not_available")
