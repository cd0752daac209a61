"""Batches: who shares one, in which order, and what happens when the encoder is away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.encoding import Encoded, EncoderInput
from pegboard_contracts.errors import ApiError, error_to_wire, invalid_request
from pegboard_kernel.engines.batching import MAX_BATCH_INPUTS, MAX_BATCH_SIZE, BatchQueue


class Recorder:
    """Encode a text as its own bytes, and remember the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.fault: ApiError | None = None
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, inputs: list[EncoderInput]) -> list[Encoded]:
        self.batches.append([one.text for one in inputs])
        self.begun.set()
        await asyncio.sleep(0)
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return [self._encoded(one.text) for one in inputs]

    def _encoded(self, text: str) -> Encoded:
        if text == "bad":
            return Encoded(error=error_to_wire(invalid_request("too long", code="x")))
        return Encoded(text.encode(), len(text))


def texts(*values: str) -> list[EncoderInput]:
    return [EncoderInput(value) for value in values]


def values(results: Sequence[Encoded]) -> list[str]:
    return [result.values.decode() for result in results]


def test_requests_that_wait_are_computed_together() -> None:
    async def scenario() -> list[list[str]]:
        recorder = Recorder()
        recorder.gate.clear()
        queue = BatchQueue(recorder, max_queue=10)
        queue.resume()
        first = asyncio.ensure_future(queue.encode(texts("a"), param="input"))
        await recorder.begun.wait()
        others = [
            asyncio.ensure_future(queue.encode(texts(name), param="input")) for name in "bcde"
        ]
        await asyncio.sleep(0)
        recorder.gate.set()
        results = await asyncio.gather(first, *others)
        assert [values(result) for result in results] == [[name] for name in "abcde"]
        return recorder.batches

    assert asyncio.run(scenario()) == [["a"], ["b", "c", "d", "e"]]


@given(st.lists(st.lists(st.text(max_size=9), min_size=1, max_size=90), min_size=1, max_size=6))
def test_every_request_gets_its_own_results_in_order(requests: list[list[str]]) -> None:
    async def scenario() -> None:
        recorder = Recorder()
        queue = BatchQueue(recorder, max_queue=10)
        queue.resume()
        asked = [queue.encode(texts(*one), param="input") for one in requests]
        results = await asyncio.gather(*asked)
        assert [values(one) for one in results] == requests
        assert all(len(batch) <= MAX_BATCH_INPUTS for batch in recorder.batches)
        assert sum(map(len, recorder.batches)) == sum(map(len, requests))

    requests = [[text.replace("bad", "") for text in one] for one in requests]
    asyncio.run(scenario())


def test_a_long_request_does_not_hold_up_a_short_one() -> None:
    async def scenario() -> None:
        recorder = Recorder()
        queue = BatchQueue(recorder, max_queue=10)
        long = asyncio.ensure_future(queue.encode(texts(*["long"] * 256), param="input"))
        short = asyncio.ensure_future(queue.encode(texts("short"), param="input"))
        await asyncio.sleep(0)
        queue.resume()
        await short
        assert not long.done()
        assert "short" in recorder.batches[0]
        await long

    asyncio.run(scenario())


def test_batches_are_bounded_by_size_but_one_input_always_goes() -> None:
    async def scenario() -> None:
        recorder = Recorder()
        queue = BatchQueue(recorder, max_queue=10)
        queue.resume()
        big = "x" * (MAX_BATCH_SIZE + 1)
        await queue.encode(texts(big, "a", big, "b"), param="input")
        assert [len(batch) for batch in recorder.batches] == [1, 1, 1, 1]

    asyncio.run(scenario())


def test_an_impossible_input_fails_its_own_request_only() -> None:
    async def scenario() -> None:
        queue = BatchQueue(Recorder(), max_queue=10)
        bad = asyncio.ensure_future(queue.encode(texts("a", "bad"), param="documents"))
        good = asyncio.ensure_future(queue.encode(texts("b"), param="input"))
        await asyncio.sleep(0)
        queue.resume()
        assert values(await good) == ["b"]
        with pytest.raises(ApiError) as caught:
            await bad
        assert (caught.value.param, caught.value.status) == ("documents.1", 400)

    asyncio.run(scenario())


def test_a_full_queue_refuses_and_one_that_left_makes_room() -> None:
    async def scenario() -> None:
        queue = BatchQueue(Recorder(), max_queue=1)
        waiting = [asyncio.ensure_future(queue.encode(texts("a"), param="input")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as caught:
            await queue.encode(texts("b"), param="input")
        assert (caught.value.status, caught.value.code) == (503, "server_overloaded")
        waiting[0].cancel()
        await asyncio.sleep(0)
        another = asyncio.ensure_future(queue.encode(texts("c"), param="input"))
        await asyncio.sleep(0)
        queue.resume()
        assert values(await another) == ["c"]

    asyncio.run(scenario())


def test_what_runs_fails_and_what_waits_waits_for_the_encoder() -> None:
    async def scenario() -> None:
        recorder = Recorder()
        recorder.gate.clear()
        queue = BatchQueue(recorder, max_queue=10)
        queue.resume()
        running = asyncio.ensure_future(queue.encode(texts("a"), param="input"))
        await recorder.begun.wait()
        waiting = asyncio.ensure_future(queue.encode(texts("b"), param="input"))
        await asyncio.sleep(0)
        recorder.fault = ApiError(500, "gone", code="engine_crashed")
        queue.suspend()
        recorder.gate.set()
        with pytest.raises(ApiError, match="gone"):
            await running
        assert not waiting.done()
        recorder.fault = None
        queue.resume()
        assert values(await waiting) == ["b"]
        await queue.close(ApiError(503, "closed"))

    asyncio.run(scenario())


def test_closing_fails_what_waits() -> None:
    async def scenario() -> None:
        queue = BatchQueue(Recorder(), max_queue=10)
        waiting = asyncio.ensure_future(queue.encode(texts("a"), param="input"))
        await asyncio.sleep(0)
        await queue.close(ApiError(503, "closed", code="model_unloaded"))
        with pytest.raises(ApiError, match="closed"):
            await waiting

    asyncio.run(scenario())
