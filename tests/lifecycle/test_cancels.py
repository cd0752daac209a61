"""Moments in which nothing can be cancelled any more, and what is said then."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from filelock import FileLock
from pegboard_backends.scripted import ScriptedBackend
from pegboard_contracts.lifecycle import ConversionOptions
from pegboard_contracts.models import ModelState
from pegboard_kernel.board import Board

from tests.kernel.runtime import board, until
from tests.lifecycle.house import House, children, house, refused
from tests.lifecycle.rehearsal import Rehearsal

ENTRY = {"one": {"max_context_len": 2048}}


class Native(ScriptedBackend):
    """Open engines by code that must not be cut."""

    opening_can_be_cancelled = False


def native_board() -> Board:
    backend = Native()
    backend.name = "scripted"
    backend.configure(Native.Settings())
    return replace(board(), backends={"scripted": backend})


def catalogue_lock(home: House) -> FileLock:
    """Make the lock under which every server writes the catalogue."""
    return FileLock(home.folder / "models.json.lock", thread_local=False)


async def refuse_cancel(home: House, code: str) -> None:
    """Wait until the work cannot be cancelled, and be told so; nothing changes by it."""
    await until(lambda: not home.view().can_cancel)
    before = home.view()
    assert before.cancel_reason
    with refused(409, code):
        await home.lifecycle.cancel("one", home.operation())
    assert home.view() == before


def test_edge_62_a_native_load_is_not_cut(tmp_path: Path) -> None:
    async def scenario() -> None:
        slow = {"one": {"load_delay_ms": 1000}}
        async with house(tmp_path, slow, plugins=native_board()) as home:
            await home.load(device="CPU")
            await refuse_cancel(home, "native_load_in_progress")
            view = await home.lifecycle.settled("one")
            assert (view.state, view.device) == (ModelState.LOADED, "CPU")

    asyncio.run(scenario())


def test_edge_59_a_native_load_is_opened_to_its_end_and_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        slow = {"one": {"load_delay_ms": 1000}}
        async with house(tmp_path, slow, plugins=native_board()) as home:
            await home.load(device="CPU")
            await until(lambda: len(children()) == 2)
            first = {process.pid for process in children()}
            await home.load(device="GPU")
            assert {process.pid for process in children()} == first
            view = await home.lifecycle.settled("one")
            assert (view.state, view.device) == (ModelState.LOADED, "GPU")
            assert len(children()) == 2
            assert not first & {process.pid for process in children()}

    asyncio.run(scenario())


def test_edge_62_new_files_that_are_being_written_down_stay(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            await home.lifecycle.convert("one", ConversionOptions(load_after=False))
            await asyncio.sleep(0)
            with catalogue_lock(home):
                rehearsal.last.end.set_result(None)
                await refuse_cancel(home, "not_cancellable")
            assert (await home.lifecycle.settled("one")).state is ModelState.READY_TO_LOAD
            assert rehearsal.last.taken
            assert home.catalogued()["weight_format"] == "int8"

    asyncio.run(scenario())


def test_edge_62_a_context_that_is_being_written_down_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, entries=ENTRY) as home:
            await home.loaded()
            with catalogue_lock(home):
                change = asyncio.ensure_future(home.lifecycle.change_context("one", 1024, 2048))
                await until(lambda: home.view().can_cancel)
                await refuse_cancel(home, "not_cancellable")
            assert (await change).configured_context_tokens == 1024
            assert home.view().context_tokens == 1024
            await until(lambda: len(children()) == 2)

    asyncio.run(scenario())


def test_edge_62_a_change_of_context_is_cancelled_while_its_engine_opens(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, entries=ENTRY) as home:
            await home.loaded()
            home.write("one", load_delay_ms=60_000)
            change = asyncio.ensure_future(home.lifecycle.change_context("one", 1024, 2048))
            await until(lambda: len(children()) == 4)
            outcome = await home.lifecycle.cancel("one", home.operation())
            assert outcome.view.state is ModelState.LOADED
            with refused(409, "context_not_applied"):
                await change
            assert home.catalogued()["max_context_len"] == 2048
            assert home.view().context_tokens == 2048
            assert len(children()) == 2
            assert (await home.ask("hello")).text == "hello"

    asyncio.run(scenario())
