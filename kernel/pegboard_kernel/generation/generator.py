"""The generation path: one async generator of semantic events for every API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import Accepted, GenerationEvent
from pegboard_contracts.generation import GenerationRequest, PreparedPrompt

from pegboard_kernel.board import Board
from pegboard_kernel.generation.continuation import Run
from pegboard_kernel.generation.guarantees import Guarantees
from pegboard_kernel.generation.plan import make_plan, new_answer, prepare

if TYPE_CHECKING:
    from pegboard_kernel.models.directory import Directory
    from pegboard_kernel.models.record import Loaded, ModelRecord
    from pegboard_kernel.settings import Settings


class PathGenerator:
    """Turn requests into answers: implements `Generator` and `PromptPreparer`.

    Runs on the event loop.
    """

    def __init__(self, directory: Directory, board: Board, settings: Settings) -> None:
        """Keep what requests are resolved with."""
        self._directory = directory
        self.guarantees = Guarantees(board)
        self._request_timeout = settings.request_timeout

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent, None]:
        """Generate one answer; see `Generator.generate`.

        Adds to it: 503 `request_timeout` when the answer takes longer than the settings
        allow, before or after `Accepted`.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        record, loaded = await self._resolve(request)
        pair, formats = loaded.pair, loaded.formats
        with pair.lease():
            pair.admission.check_room(pair.preparer.waiting)
            plan = await make_plan(request, pair, formats, record.entry, self.guarantees)
            run = Run(pair, request, plan, *new_answer(request, plan, formats))
            timer = None
            try:
                await run.enter()
                if self._request_timeout is not None:
                    due = begun + self._request_timeout
                    timer = loop.call_at(due, run.fail, _too_long(self._request_timeout))
                yield Accepted(
                    model=record.entry.id,
                    prompt_tokens=len(plan.prompt.ids),
                    sampling=plan.sampling,
                    max_output_tokens=plan.max_output_tokens,
                )
                while not run.done:
                    for event in await run.next_events():
                        yield event
                record.answered(run.reason)
            finally:
                record.touch()
                run.leave()
                if timer is not None:
                    timer.cancel()

    async def count(self, request: GenerationRequest) -> int:
        """Count the prompt tokens that `generate` would use, without generating."""
        return len((await self.prepare(request)).token_ids)

    async def prepare(self, request: GenerationRequest) -> PreparedPrompt:
        """Render and tokenize the prompt of a request; see `PromptPreparer.prepare`."""
        record, loaded = await self._resolve(request)
        with loaded.pair.lease():
            prompt = await prepare(request, loaded.pair, loaded.formats)
            return PreparedPrompt(
                model=record.entry.id,
                text=prompt.text,
                token_ids=prompt.ids,
                context_tokens=loaded.pair.info.context_tokens,
            )

    async def _resolve(self, request: GenerationRequest) -> tuple[ModelRecord, Loaded]:
        record = self._directory.record(request.model)
        self._directory.check_kind(record, "generate")
        self.guarantees.check_early(request)
        loaded = await self._directory.serving(record)
        self._directory.check_kind(record, "generate")
        return record, loaded


def _too_long(limit: float) -> ApiError:
    message = f"The answer took longer than the {limit:g} s that this server allows."
    return ApiError(503, message, code="request_timeout", retry_after=1)
