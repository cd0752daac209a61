"""Encoders over real children: crashes, hangs, unloading, batches that are shared."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.encoding import EmbeddingRequest, RerankRequest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelState
from pegboard_kernel.encoding.path import PathEncoder
from pegboard_kernel.encoding.vectors import check_finite, numbers_of, shortened

from tests.kernel.runtime import MODEL, serving

SCRIPT: dict[str, Any] = {"embedding": {"dimensions": 4}, "context_tokens": 64}


def ask(*texts: str, **fields: Any) -> EmbeddingRequest:
    return EmbeddingRequest(model=MODEL, inputs=texts, **fields)


def test_an_encoder_has_one_child_and_shares_batches(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            encoder = PathEncoder(runtime.directory)
            asked = [encoder.embed(ask(f"text {number}")) for number in range(40)]
            results = await asyncio.gather(*asked)
            assert len({result.vectors[0] for result in results}) == 40
            told = await runtime.inspect()
            assert told["batches"] < 10
            assert told["server"]["preparer_pid"] == 0

    asyncio.run(scenario())


def test_a_killed_encoder_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            encoder = PathEncoder(runtime.directory)
            before = await encoder.embed(ask("a b"))
            pid = (await runtime.inspect())["server"]["engine_pid"]
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(30):
                while True:
                    try:
                        after = await encoder.embed(ask("a b"))
                        now = (await runtime.inspect())["server"]["engine_pid"]
                    except ApiError as error:
                        if error.status not in (500, 503):
                            raise
                        await asyncio.sleep(0.05)
                        continue
                    if now != pid:
                        break
            assert after == before

    asyncio.run(scenario())


def test_an_encoder_that_hangs_is_restarted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT, engine_hang_timeout=1.0) as runtime:
            encoder = PathEncoder(runtime.directory)
            pid = (await runtime.inspect())["server"]["engine_pid"]
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(ApiError) as caught:
                await encoder.embed(ask("a"))
            assert (caught.value.status, caught.value.code) == (500, "engine_crashed")
            async with asyncio.timeout(30):
                while True:
                    try:
                        await encoder.embed(ask("a"))
                        break
                    except ApiError:
                        await asyncio.sleep(0.05)

    asyncio.run(scenario())


def test_an_unloaded_model_is_refused_and_another_kind_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            encoder = PathEncoder(runtime.directory)
            with pytest.raises(ApiError) as caught:
                await encoder.rerank(RerankRequest(model=MODEL, query="q", documents=("d",)))
            assert caught.value.code == "model_kind_mismatch"
            with pytest.raises(ApiError) as caught:
                await runtime.ask("hello")
            assert caught.value.code == "model_kind_mismatch"
            view = await runtime.directory.unload(MODEL)
            assert (view.state, view.kind) == (ModelState.READY_TO_LOAD, "embedding")
            with pytest.raises(ApiError) as caught:
                await encoder.embed(ask("a"))
            assert (caught.value.status, caught.value.code) == (409, "model_not_loaded")

    asyncio.run(scenario())


def test_auto_is_a_loaded_model_of_the_kind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            encoder = PathEncoder(runtime.directory)
            answer = await encoder.embed(EmbeddingRequest(model="auto", inputs=("a",)))
            assert answer.model == MODEL
            with pytest.raises(ApiError) as caught:
                await runtime.ask("hello", model="auto")
            assert caught.value.code == "no_model_loaded"

    asyncio.run(scenario())


def test_c99_a_shortened_vector_has_unit_length() -> None:
    vector = struct.pack("<4f", 0.5, 0.5, 0.5, 0.5)
    cut = numbers_of(shortened(vector, 2))
    assert cut == pytest.approx((2**-0.5, 2**-0.5))
    assert numbers_of(shortened(struct.pack("<2f", 0.0, 0.0), 1)) == (0.0,)


def test_numbers_that_are_not_finite_never_leave() -> None:
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ApiError) as caught:
            check_finite(struct.pack("<2f", 1.0, bad))
        assert (caught.value.status, caught.value.code) == (500, "not_finite")
