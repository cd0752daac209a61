"""A response that is being made: whatever races, it ends once and is kept once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import Finished, GenerationEvent, TextDelta
from pegboard_contracts.generation import FinishReason, Usage
from pegboard_routes._responses.event_ladder import EventLadder, LadderOptions
from pegboard_routes._responses.live_response import LiveResponse
from pegboard_routes._responses.registry import LiveResponses
from pegboard_routes._responses.response_object import ResponseObject

DONE = Finished(reason=FinishReason.STOP, usage=Usage(output_tokens=1))


class Place:
    """Count what is generated and what is kept."""

    def __init__(self) -> None:
        self.live = LiveResponses(max_jobs=1000, max_job_bytes=10**9)
        self.kept: list[ResponseObject] = []
        self.generating = 0

    async def generate(
        self, pauses: int, end: GenerationEvent | Exception
    ) -> AsyncGenerator[GenerationEvent, None]:
        self.generating += 1
        try:
            for _ in range(pauses):
                yield TextDelta("x")
                await asyncio.sleep(0)
            if isinstance(end, Exception):
                raise end
            yield end
        finally:
            self.generating -= 1

    async def keep(self, live: LiveResponse, final: ResponseObject, events: bytes) -> Any:
        assert final.status.encode() in events or not live.streamed
        await asyncio.sleep(0)
        self.kept.append(final)
        self.live.remove(live)
        return final

    def begin(self, number: int, events: AsyncGenerator[GenerationEvent, None]) -> LiveResponse:
        draft = ResponseObject(id=f"resp_{number}", created_at=1, status="in_progress", model="m")
        ladder = EventLadder(draft, LadderOptions())
        ladder.start()
        live = LiveResponse(ladder, "me", self.keep, streamed=number % 2 == 0)
        self.live.admit(live, 1)
        live.start(events)
        return live


async def race(place: Place, number: int, chance: random.Random) -> None:
    end = chance.choice((DONE, DONE, ApiError(500, "no"), ValueError("bug")))
    live = place.begin(number, place.generate(chance.randrange(6), end))
    told: list[str] = []

    async def read() -> None:
        told.extend([event.name async for event in live.follow()])

    async def later(work: Any, pauses: int) -> Any:
        for _ in range(pauses):
            await asyncio.sleep(0)
        return await work

    reader = asyncio.create_task(read())
    seen = await asyncio.gather(
        later(live.stop("cancelled"), chance.randrange(14)),
        later(live.stop("incomplete"), chance.randrange(20)),
        live.end(),
    )
    await reader
    assert seen[0] == seen[1] == seen[2] == live.snapshot
    if live.streamed:
        terminal = [name for name in told if name.removeprefix("response.") in _TERMINAL]
        assert terminal == told[-1:]


_TERMINAL = {"completed", "incomplete", "failed"}


def test_a_thousand_races_each_end_once_and_leave_nothing_behind() -> None:
    async def run() -> None:
        place, chance = Place(), random.Random(7)  # noqa: S311 - a race, no secret
        await asyncio.gather(*(race(place, number, chance) for number in range(1000)))
        ids = [final.id for final in place.kept]
        assert len(ids) == len(set(ids)) == 1000
        assert {final.status for final in place.kept} == {
            "completed",
            "cancelled",
            "failed",
            "incomplete",
        }
        assert place.generating == 0
        assert all(place.live.find("me", response_id) is None for response_id in ids)
        for number in range(1000):
            place.begin(number, place.generate(0, DONE))
        await place.live.fail_all(ApiError(503, "stopping"))

    asyncio.run(run())


def test_a_job_cancelled_before_it_runs_generates_nothing() -> None:
    async def run() -> None:
        place = Place()
        live = place.begin(1, place.generate(3, DONE))
        assert (await live.stop("cancelled")).status == "cancelled"
        assert place.generating == 0
        assert [final.output for final in place.kept] == [[]]

    asyncio.run(run())
