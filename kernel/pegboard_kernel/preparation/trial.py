"""The trial of new files: they answer once before they are put in place."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pegboard_contracts.backend import Backend
from pegboard_contracts.encoding import EncoderInput
from pegboard_contracts.engine import Submission
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import PLAIN_SAMPLING
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.board import Board
from pegboard_kernel.engines.engine_pair import EnginePair
from pegboard_kernel.models.loading import open_model, serves
from pegboard_kernel.models.memory import available_bytes, needed_bytes
from pegboard_kernel.sanitizing import sanitized

if TYPE_CHECKING:
    from pegboard_kernel.settings import Settings

logger = logging.getLogger(__name__)

_DEVICE = "CPU"
_CACHE_GB = 1.0
_CONTEXT_TOKENS = 512
_TEXT = "Hello"
_GREEDY = msgspec.structs.replace(PLAIN_SAMPLING, temperature=0.0)


def servable_in(folder: Path, backend: Backend) -> Path | None:
    """Return what a backend can serve of a converter's result: the folder, or its one file."""
    if backend.can_serve(folder):
        return folder
    files = [path for path in folder.iterdir() if path.is_file()]
    return files[0] if len(files) == 1 and backend.can_serve(files[0]) else None


async def try_model(entry: ModelEntry, board: Board, settings: Settings, limit: float) -> bool:
    """Open the files of `entry.path` in an engine and let it say one token, or encode a text.

    False when there is too little memory to try. Raises `ApiError` 500 `conversion_unusable`
    with the reason, or when it takes longer than `limit` seconds; no process is left.
    """
    on_cpu = any(serves(backend, entry, _DEVICE) for backend in board.backends.values())
    device = _DEVICE if on_cpu else entry.recommended_device
    entry = msgspec.structs.replace(entry, max_context_len=_CONTEXT_TOKENS)
    cache = min(settings.kv_cache_gb or _CACHE_GB, _CACHE_GB)
    small = settings.model_copy(update={"kv_cache_gb": cache})
    if not _fits(entry, board, small):
        logger.warning("'%s' is not tried after its conversion: too little memory", entry.id)
        return False
    try:
        await asyncio.wait_for(_answer_once(entry, board, small, device), limit)
    except TimeoutError:
        raise _unusable(f"it did not answer within {limit:g} seconds") from None
    except ApiError as error:
        raise _unusable(sanitized(error.message)) from None
    return True


def _fits(entry: ModelEntry, board: Board, settings: Settings) -> bool:
    path = settings.data_dir / (entry.path or "")
    backend = next(one for one in board.backends.values() if entry.backend in one.model_backends)
    needed = needed_bytes(backend.facts(path), settings, entry.max_context_len)
    return needed is None or needed <= available_bytes()


async def _answer_once(entry: ModelEntry, board: Board, settings: Settings, device: str) -> None:
    loaded = await open_model(entry, board, settings, device, lambda _pair, _error: None)
    pair = loaded.pair
    try:
        with pair.lease():
            if pair.kind == "generate":
                await _say_one_token(pair)
            else:
                second = _TEXT if pair.kind == "rerank" else None
                await pair.batches.encode([EncoderInput(_TEXT, second=second)], param="input")
    finally:
        await pair.close()


async def _say_one_token(pair: EnginePair) -> None:
    prompt = await pair.preparer.prepare_text(_TEXT)
    ticket = pair.admission.enter(
        lambda request_id: Submission(
            request_id=request_id,
            prompt_ids=prompt.ids,
            prompt_text=prompt.text,
            max_output_tokens=1,
            sampling=_GREEDY,
            last_text=_TEXT,
        )
    )
    try:
        stream = await ticket.started()
        while True:
            for event in await stream.batch():
                if event.finish in ("stop", "length"):
                    return
                if event.finish is not None:
                    raise _unusable(sanitized(event.error or "its answer failed"))
    finally:
        ticket.leave()


def _unusable(reason: str) -> ApiError:
    message = (
        f"The converted files were tried and cannot be used: {reason}. The files before are as "
        "they were."
    )
    return ApiError(500, message, code="conversion_unusable")
