"""From a catalogue entry to its files and to a running engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard_contracts.backend import Backend, EngineOrder, ModelFacts
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.board import Board
from pegboard_kernel.engines.engine_pair import EngineLimits, EnginePair
from pegboard_kernel.generation.format_choice import NO_FORMATS, choose_formats
from pegboard_kernel.models.record import Found, Loaded
from pegboard_kernel.models.specs import SpecError, find_source, split_address
from pegboard_kernel.sanitizing import sanitized

if TYPE_CHECKING:
    from pegboard_kernel.settings import Settings

OnLost = Callable[[EnginePair, ApiError], None]


def look_at(entry: ModelEntry, board: Board, settings: Settings) -> Found:
    """Look at a model's files without opening it; blocking, quick, raises nothing."""
    backend = next((b for b in board.backends.values() if serves(b, entry)), None)
    scripted = backend is not None and is_script(entry, backend)
    made = any(entry.backend in one.model_backends for one in board.converters.values())
    convertible = made or is_remote(entry, board)
    try:
        source = _source_of(entry, board, settings)
    except ApiError as error:
        # A script is read at each load, which tells by itself what is wrong.
        problem = None if scripted else sanitized(error.message)
        return Found(downloaded=scripted, problem=problem, convertible=convertible)
    if backend is None:
        return Found(downloaded=source.exists(), convertible=convertible)
    kind, facts = backend.kind_of(source), ModelFacts()
    if scripted or backend.can_serve(source):
        facts = backend.facts(source)
        return Found(kind=kind, facts=facts, convertible=convertible)
    problem = sanitized(_problem(entry, board, settings))
    return Found(kind=kind, downloaded=False, problem=problem, convertible=convertible)


def _problem(entry: ModelEntry, board: Board, settings: Settings) -> str:
    device = entry.recommended_device
    try:
        _backend_of(entry, board, device).describe_engine(_order(entry, board, settings, device))
    except ApiError as error:
        return error.message
    except Exception as error:  # noqa: BLE001 - a plugin's fault is told, not raised
        return f"the files cannot be used ({type(error).__name__})"
    return "The files are no complete model as they are; they have to be converted first."


def is_remote(entry: ModelEntry, board: Board) -> bool:
    """Tell whether a model comes from elsewhere and has to be fetched."""
    try:
        return find_source(board, entry.source_model)[0].remote
    except SpecError:
        return False


def serves(backend: Backend, entry: ModelEntry, device: str | None = None) -> bool:
    """Tell whether a backend runs a model, on a device or on the recommended one."""
    return backend.serves(entry.backend, device or entry.recommended_device)


def check_device(entry: ModelEntry, board: Board, device: str) -> None:
    """Raise the `ApiError` 400 of an expression that is understood on no machine."""
    if not device.strip():
        examples = dict.fromkeys(
            example for backend in board.backends.values() for example in backend.device_examples
        )
        message = f"The device expression is empty. Examples: {', '.join(examples) or 'CPU'}."
        raise invalid_request(message, param="device", code="invalid_device")
    for backend in board.backends.values():
        if serves(backend, entry, device):
            backend.check_device(device)
            return


def can_be_cancelled(entry: ModelEntry, board: Board, device: str) -> bool:
    """Tell whether an opening may be cut."""
    backends = (one for one in board.backends.values() if serves(one, entry, device))
    return all(backend.opening_can_be_cancelled for backend in backends)


async def open_model(
    entry: ModelEntry, board: Board, settings: Settings, device: str, on_lost: OnLost
) -> Loaded:
    """Open the engine of an entry on a device and choose its formats.

    Raises `ApiError` with what to do; nothing is left running then, nor when the caller is
    cancelled.
    """
    backend = _backend_of(entry, board, device)
    order = _order(entry, board, settings, device)
    description = await asyncio.to_thread(backend.describe_engine, order)
    limits = EngineLimits(
        hang_timeout=settings.engine_hang_timeout,
        template_timeout=settings.template_timeout,
        max_queue=settings.max_queue,
        compile_limit=settings.constraint_compile_limit,
        step_limit=settings.constraint_step_limit,
    )
    section = dict(board.sections.get(backend.name, {}))
    pair = EnginePair(description, section, limits, lambda error: on_lost(pair, error))
    await pair.open()
    if pair.kind != "generate":
        return Loaded(pair, NO_FORMATS, device)
    return Loaded(pair, choose_formats(entry, board, pair.info, pair.template.source), device)


def _order(entry: ModelEntry, board: Board, settings: Settings, device: str) -> EngineOrder:
    return EngineOrder(
        model=entry.id,
        source=_source_of(entry, board, settings),
        device=device,
        cache_dir=settings.data_dir / "engines" / entry.id,
        context_tokens=entry.max_context_len,
        kv_cache_gb=settings.kv_cache_gb,
        options=entry.options,
    )


def is_script(entry: ModelEntry, backend: Backend) -> bool:
    """Tell whether an entry's source is a script of this backend, read anew at each load."""
    scheme = backend.source_scheme
    return scheme is not None and split_address(entry.source_model)[0] == scheme


def _source_of(entry: ModelEntry, board: Board, settings: Settings) -> Path:
    scripted = any(is_script(entry, backend) for backend in board.backends.values())
    if entry.path is not None and not scripted:
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


def _backend_of(entry: ModelEntry, board: Board, device: str) -> Backend:
    for backend in board.backends.values():
        if serves(backend, entry, device):
            return backend
    message = (
        f"No active backend serves '{entry.backend}' models on '{device}'. "
        "`pegboard plugins list` shows which are missing and what installs them."
    )
    raise invalid_request(message, param="backend", code="backend_not_available")
