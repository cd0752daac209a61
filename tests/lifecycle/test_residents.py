"""Which models stay loaded: memory, the most that may be, idle ones, pinned ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from pegboard_backends.scripted import ScriptedBackend
from pegboard_contracts.backend import ModelFacts
from pegboard_contracts.conversation import Tool
from pegboard_contracts.models import ModelState
from pegboard_kernel.board import Board

from tests.kernel.runtime import board, request, until
from tests.lifecycle.house import SLOW_MS, House, children, house, refused

CALL = {"match": "call", "pieces": ['<tool_call>{"name": "f", "arguments": {}}</tool_call>']}
SCRIPTS: Mapping[str, Mapping[str, Any]] = {
    name: {"rules": [CALL, {"match": "long", "pieces": ["x "], "repeat": 60, "delay_ms": 20}]}
    for name in ("one", "three", "two")
}


class Heavy(ScriptedBackend):
    """Serve scripted models that weigh what a test says, or what their script's name says."""

    weight: int | None = None

    def facts(self, source: Path) -> ModelFacts:
        weights = self.weight or (10**15 if source.name.startswith("one") else 10**6)
        return ModelFacts(
            default_context_tokens=4096,
            layers=2,
            kv_heads=2,
            head_dim=8,
            kv_number_bytes=2,
            weights_bytes=weights,
            overhead_bytes=5 * 10**6,
        )


def heavy_board(weight: int | None = None) -> Board:
    heavy = Heavy()
    heavy.weight = weight
    heavy.name = "scripted"
    heavy.configure(Heavy.Settings())
    known = board()
    return Board(
        backends={"scripted": heavy},
        tool_formats=known.tool_formats,
        reasoning_formats=known.reasoning_formats,
        model_sources=known.model_sources,
        sections=known.sections,
    )


def test_a_model_that_does_not_fit_is_refused_with_both_numbers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": {}, "two": {}}, plugins=heavy_board()) as home:
            before = home.view()
            with refused(409, "insufficient_memory") as caught:
                await home.load()
            needed, available = re.findall(r"([\d.]+) GB", caught.value.message)
            assert float(needed) == 1_000_000.0
            assert 0 < float(available) < 100_000
            assert "force" in caught.value.message
            assert home.view() == before
            await home.loaded("two")
            await home.loaded(force=True)
            with refused(409, "insufficient_memory"):
                await home.load(device="GPU")
            with refused(409, "insufficient_memory"):
                await home.lifecycle.change_context("one", 1024, 4096)
            assert home.view().context_tokens == 4096
            assert (await home.loaded(device="GPU", force=True)).requested_device == "GPU"

    asyncio.run(scenario())


def test_what_is_being_opened_takes_its_room_already(tmp_path: Path) -> None:
    """Two models fit one by one, not both at once: neither beside a load nor a switch."""

    async def scenario() -> None:
        plugins = heavy_board(psutil.virtual_memory().available * 6 // 10)
        async with house(tmp_path, {"one": {}, "two": {}}, plugins=plugins) as home:
            home.write("one", load_delay_ms=SLOW_MS)
            await home.load()
            with refused(409, "insufficient_memory"):
                await home.load("two")
            await home.lifecycle.cancel("one", home.operation())
            home.write("one")
            await home.loaded(device="CPU")
            home.write("one", load_delay_ms=SLOW_MS)
            await home.load(device="GPU")
            with refused(409, "insufficient_memory"):
                await home.load("two")
            await home.lifecycle.cancel("one", home.operation())
            await home.loaded("two")

    asyncio.run(scenario())


def test_guidance_says_what_a_context_costs_and_on_what_ground(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"two": {}}, plugins=heavy_board()) as home:
            budget = home.lifecycle.budget("two")
            guidance = budget.memory_guidance
            assert guidance.bytes_per_token == 2 * 2 * 2 * 8 * 2
            assert guidance.kv_cache_bytes == 128 * 4096
            assert (guidance.weights_bytes, guidance.verified) == (10**6, False)
            assert "2 layers" in guidance.basis
            costs = {one.context_tokens: one.kv_cache_bytes for one in budget.candidates}
            assert costs[1024] == 128 * 1024

    asyncio.run(scenario())


def test_autoload_takes_the_place_of_what_was_used_longest_ago(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, SCRIPTS, autoload=True, max_loaded_models=2) as home:
            await home.ask("hello", "one")
            await home.ask("hello", "two")
            await home.ask("again", "one")
            assert (await home.ask("hello", "three")).text == "hello"
            assert [str(home.state(model)) for model in ("one", "two", "three")] == [
                "loaded",
                "ready_to_load",
                "loaded",
            ]
            # What somebody asks for by name is not loaded at another's cost.
            with refused(409, "too_many_models"):
                await home.load("two")
            await home.load("one", pinned=True)
            await home.load("three", pinned=True)
            with refused(409, "too_many_models"):
                await home.ask("hello", "two")
            await home.load("one", pinned=False)
            await asyncio.gather(*(home.ask("hello", "two") for _ in range(5)))
            assert home.state("one") is ModelState.READY_TO_LOAD
            assert len(children()) == 4

    asyncio.run(scenario())


def test_autoload_takes_no_place_that_is_in_use(tmp_path: Path) -> None:
    tools = (Tool(name="f"),)

    async def scenario() -> None:
        async with house(tmp_path, SCRIPTS, autoload=True, max_loaded_models=1) as home:
            stream = home.generator.generate(request("long", model="one"))
            await anext(stream)
            with refused(409, "too_many_models"):
                await home.ask("hello", "two")
            async for _ in stream:
                pass
            await home.ask("hello", "two")
            # In the middle of a task the model stays, its next request will come.
            stream = home.generator.generate(request("call", model="two", tools=tools))
            async for _ in stream:
                pass
            with refused(409, "too_many_models"):
                await home.ask("hello", "one")
            await home.ask("the end", "two")
            await home.ask("hello", "one")
            assert home.view("two").requests == 3

    asyncio.run(scenario())


def test_many_arrivals_share_the_places(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, SCRIPTS, autoload=True, max_loaded_models=1) as home:
            for _ in range(3):
                asked = [home.ask(f"to {model}", model) for model in SCRIPTS for _ in range(2)]
                ends = await asyncio.gather(*asked, return_exceptions=True)
                assert any(not isinstance(end, BaseException) for end in ends)
                loaded = [model for model in SCRIPTS if home.state(model) is ModelState.LOADED]
                assert len(loaded) == 1
                await until(lambda: len(children()) == 2)

    asyncio.run(scenario())


def test_an_idle_model_is_unloaded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, SCRIPTS, idle_unload=0.5) as home:
            await home.loaded("two", pinned=True)
            await home.loaded("one", pinned=True)
            stream = home.generator.generate(request("long", model="one"))
            await anext(stream)
            await home.load("one", pinned=False)
            heard = [event async for event in stream]
            assert heard, "an answer longer than the limit is not disturbed"
            assert home.state("one") is ModelState.LOADED
            await until(lambda: home.state("one") is ModelState.READY_TO_LOAD)
            assert home.state("two") is ModelState.LOADED

    asyncio.run(scenario())


@pytest.mark.parametrize("grace", [0.0, 60.0])
def test_a_model_in_the_middle_of_a_task_is_not_idle(tmp_path: Path, grace: float) -> None:
    tools = (Tool(name="f"),)

    async def answered(home: House, model: str) -> None:
        stream = home.generator.generate(request("call", model=model, tools=tools))
        async for _ in stream:
            pass

    async def scenario() -> None:
        async with house(tmp_path, SCRIPTS, idle_unload=0.5, agent_grace=grace) as home:
            for model in ("one", "two"):
                await home.loaded(model, pinned=True)
            await answered(home, "one")
            await home.ask("hello", "two")
            for model in ("one", "two"):
                await home.load(model, pinned=False)
            await until(lambda: home.state("two") is ModelState.READY_TO_LOAD)
            with contextlib.suppress(AssertionError):
                await until(lambda: home.state("one") is ModelState.READY_TO_LOAD, 1.0)
            left = home.state("one") is ModelState.LOADED
            assert left is (grace > 0)

    asyncio.run(scenario())


def test_a_pin_of_the_catalogue_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        entries = {"one": {"pinned": True}}
        async with house(tmp_path, SCRIPTS, entries=entries, max_loaded_models=1) as home:
            assert home.view("one").pinned
            assert json.loads(json.dumps(home.catalogued("one")))["pinned"] is True

    asyncio.run(scenario())
