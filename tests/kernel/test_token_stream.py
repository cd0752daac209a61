"""How the consumer of an engine's events is woken."""

from __future__ import annotations

import asyncio

import pytest
from pegboard_contracts.engine import TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_kernel.engines.token_stream import TokenStream


class Consumer:
    """Take all events of a stream in a task of its own."""

    def __init__(self, stream: TokenStream) -> None:
        self.batches: list[str] = []
        self.task = asyncio.get_running_loop().create_task(self._take(stream))

    async def _take(self, stream: TokenStream) -> None:
        while True:
            self.batches.append("".join(event.text for event in await stream.batch()))


def _fed_in_a_callback(stream: TokenStream, consumer: Consumer, text: str) -> asyncio.Future[str]:
    """Put and wake as the reader of a pipe does; the result is what was taken by then."""
    loop = asyncio.get_running_loop()
    taken: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        for character in text:
            assert stream.put(TokenEvent(1, character))
        stream.wake()
        stream.wake()
        taken.set_result(consumer.batches[-1] if consumer.batches else "")

    loop.call_soon(read)
    return taken


def test_a_consumer_takes_what_arrived_together_before_the_reader_goes_on() -> None:
    async def scenario() -> None:
        stream = TokenStream(1)
        consumer = Consumer(stream)
        await asyncio.sleep(0)
        assert await _fed_in_a_callback(stream, consumer, "ab") == "ab"
        assert await _fed_in_a_callback(stream, consumer, "c") == "c"
        assert consumer.batches == ["ab", "c"]
        consumer.task.cancel()

    asyncio.run(scenario())


def test_a_wake_inside_a_task_lets_the_consumer_go_on_a_turn_later() -> None:
    async def scenario() -> None:
        stream = TokenStream(1)
        consumer = Consumer(stream)
        await asyncio.sleep(0)
        stream.put(TokenEvent(1, "a"))
        stream.wake()
        assert consumer.batches == []
        await asyncio.sleep(0)
        assert consumer.batches == ["a"]
        consumer.task.cancel()

    asyncio.run(scenario())


def test_a_waiting_consumer_hears_of_a_failure() -> None:
    async def scenario() -> None:
        stream = TokenStream(1)
        consumer = Consumer(stream)
        await asyncio.sleep(0)
        stream.fail(ApiError(500, "gone", code="engine_crashed"))
        with pytest.raises(ApiError) as caught:
            await consumer.task
        assert caught.value.code == "engine_crashed"

    asyncio.run(scenario())


def test_a_consumer_can_be_cancelled_while_it_waits_and_its_events_are_dropped() -> None:
    async def scenario() -> None:
        stream = TokenStream(1)
        consumer = Consumer(stream)
        await asyncio.sleep(0)
        consumer.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer.task
        assert await _fed_in_a_callback(stream, consumer, "a") == ""
        assert consumer.batches == []

    asyncio.run(scenario())
