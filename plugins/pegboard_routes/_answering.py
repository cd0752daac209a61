"""Several answers to one request at once: started together, ended together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, TypeVar

from pegboard_contracts.events import Accepted, GenerationEvent
from pegboard_contracts.generation import GenerationRequest, Generator

T = TypeVar("T")
Events = AsyncGenerator[GenerationEvent, None]

_QUEUED_EVENTS = 64


async def together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all works at once; the first fault cancels the others and is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def start_answers(
    generator: Generator, requests: Sequence[GenerationRequest]
) -> tuple[list[Events], list[Accepted]]:
    """Start every answer and wait until all are accepted.

    Raises what `Generator.generate` raises before `Accepted`; nothing runs on then.
    """
    answers = [generator.generate(request) for request in requests]
    try:
        return answers, await together([_accepted(events) for events in answers])
    except BaseException:
        for events in answers:
            await events.aclose()
        raise


async def _accepted(events: Events) -> Accepted:
    event = await anext(events)
    if not isinstance(event, Accepted):
        raise TypeError("a generator must yield Accepted first")
    return event


async def merged(answers: Sequence[Events]) -> AsyncGenerator[tuple[int, GenerationEvent], None]:
    """Yield the events of all answers as they come, each with the index of its answer.

    Raises the first fault; the caller closes the answers.
    """
    if len(answers) == 1:
        async for event in answers[0]:
            yield 0, event
        return
    queue: asyncio.Queue[tuple[int, GenerationEvent] | Exception | None] = asyncio.Queue(
        _QUEUED_EVENTS
    )
    tasks = [
        asyncio.create_task(_forward(index, events, queue)) for index, events in enumerate(answers)
    ]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(
    index: int,
    events: Events,
    queue: asyncio.Queue[tuple[int, GenerationEvent] | Exception | None],
) -> None:
    try:
        async for event in events:
            await queue.put((index, event))
        await queue.put(None)
    except Exception as fault:  # noqa: BLE001 - raised again by the reader of the queue
        await queue.put(fault)
