"""Loads, switches, cancels and unloads, and their races."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import ConversionOptions
from pegboard_contracts.models import ModelState, Phase

from tests.kernel.runtime import request, until
from tests.lifecycle.house import SLOW_MS, children, house, refused


def test_edge_58_a_model_is_loaded_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            first = await home.loaded(device="cpu")
            pids = {process.pid for process in children()}
            for device in (None, "CPU", " cpu "):
                again = await home.load(device=device)
                assert (again.state, again.revision) == (ModelState.LOADED, first.revision)
            assert {process.pid for process in children()} == pids

    asyncio.run(scenario())


def test_edge_59_the_newest_device_wins_and_one_engine_is_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": {"load_delay_ms": SLOW_MS}}) as home:
            await home.load(device="CPU")
            operation = home.operation()
            await until(lambda: len(children()) == 2)
            home.write("one")
            view = await home.load(device="GPU")
            assert (view.state, view.requested_device) == (ModelState.LOADING, "GPU")
            assert home.operation() == operation
            view = await home.lifecycle.settled("one")
            assert (view.state, view.device) == (ModelState.LOADED, "GPU")
            assert len(children()) == 2
            with refused(409, "task_finished"):
                await home.lifecycle.cancel("one", operation)

    asyncio.run(scenario())


def test_edge_59_a_switch_follows_the_newest_device_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            await home.loaded(device="CPU")
            home.write("one", load_delay_ms=SLOW_MS)
            await home.load(device="GPU")
            await until(lambda: len(children()) == 4)
            assert (await home.ask("still here")).text == "still here"
            # Back to what is loaded: nothing is to be opened any more.
            await home.load(device="CPU")
            view = await home.lifecycle.settled("one")
            assert (view.device, view.requested_device) == ("CPU", "CPU")
            assert (view.state, view.switch_error) == (ModelState.LOADED, None)
            await until(lambda: len(children()) == 2)
            assert (await home.ask("and here")).text == "and here"

    asyncio.run(scenario())


def test_edge_60_a_failed_switch_keeps_the_engine_and_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            await home.loaded(device="CPU")
            home.write("one", load_error="There is no GPU in /home/someone/machine.")
            view = await home.load(device="GPU")
            assert (view.state, view.requested_device) == (ModelState.LOADED, "GPU")
            assert (view.can_unload, view.can_cancel, view.can_load) == (False, True, False)
            view = await home.lifecycle.settled("one")
            assert (view.state, view.device, view.requested_device) == ("loaded", "CPU", "CPU")
            assert view.switch_error == "There is no GPU in machine."
            assert view.error is None
            assert view.progress is not None
            assert view.progress.phase is Phase.ERROR
            assert (await home.ask("hello")).text == "hello"
            assert [event.level for event in home.told("changed")][-1] == "warning"
            home.write("one")
            view = await home.loaded(device="GPU")
            assert (view.device, view.switch_error) == ("GPU", None)
            await until(lambda: len(children()) == 2)

    asyncio.run(scenario())


def test_a_load_that_never_ends_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        slow = {"one": {"load_delay_ms": SLOW_MS}}
        async with house(tmp_path, slow, load_timeout=1.0) as home:
            await home.load()
            view = await home.lifecycle.settled("one")
            assert (view.state, view.can_load) == (ModelState.ERROR, True)
            assert "within 1 s" in str(view.error)
            assert not children()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_switch_that_never_ends_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, load_timeout=20.0) as home:
            await home.loaded(device="CPU")
            home.write("one", load_delay_ms=SLOW_MS)
            await home.load(device="GPU")
            view = await home.lifecycle.settled("one")
            assert (view.state, view.device) == (ModelState.LOADED, "CPU")
            assert "within 20 s" in str(view.switch_error)
            assert len(children()) == 2
            assert (await home.ask("hello")).text == "hello"

    asyncio.run(scenario())


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("device", ["", " ", "AUTO:", "MULTI", "GPU,CPU", "AUTO:GPU,GPU", "GPU.x"])
def test_edge_86_what_is_no_device_changes_nothing(
    tmp_path: Path, device: str, loaded: bool
) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            if loaded:
                await home.loaded()
            before = home.view()
            with refused(400, "invalid_device") as caught:
                await home.load(device=device)
            assert "Examples: CPU" in caught.value.message
            with refused(400, "invalid_device"):
                await home.lifecycle.convert("one", ConversionOptions(device=device))
            assert home.view() == before

    asyncio.run(scenario())


def test_edge_86_devices_are_understood_in_any_case(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            before = await home.loaded(device="auto:npu, gpu")
            after = await home.load(device="AUTO:NPU,GPU")
            assert (after.state, after.revision) == (ModelState.LOADED, before.revision)

    asyncio.run(scenario())


def test_edge_61_an_unload_lets_answers_finish_and_waits_for_a_switch(tmp_path: Path) -> None:
    script = {"rules": [{"match": "long", "pieces": ["x "], "repeat": 40, "delay_ms": 20}]}

    async def scenario() -> None:
        async with house(tmp_path, {"one": script}) as home:
            await home.loaded(device="CPU")
            home.write("one", load_delay_ms=SLOW_MS)
            await home.load(device="GPU")
            with refused(409, "model_busy"):
                await home.lifecycle.unload("one")
            await home.lifecycle.cancel("one", home.operation())
            assert home.state() is ModelState.LOADED
            stream = home.generator.generate(request("long", model="one"))
            first = await anext(stream)
            view = await home.lifecycle.unload("one")
            assert view.state is ModelState.UNLOADING
            assert (await home.lifecycle.unload("one")).state is ModelState.UNLOADING
            with refused(409, "model_busy"):
                await home.ask("more")
            with refused(409, "model_busy"):
                await home.load()
            rest = [event async for event in stream]
            assert first
            assert rest
            view = await home.lifecycle.settled("one")
            assert (view.state, view.requests) == (ModelState.READY_TO_LOAD, 1)
            assert not children()

    asyncio.run(scenario())


def test_edge_62_cancel_of_a_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": {"load_delay_ms": SLOW_MS}}) as home:
            with refused(409, "no_active_operation"):
                await home.lifecycle.cancel("one", "load-" + "0" * 32)
            with refused(404, "model_not_found"):
                await home.lifecycle.cancel("nobody", "load-" + "0" * 32)
            view = await home.load()
            operation = home.operation()
            assert operation.startswith("load-")
            assert len(operation) == len("load-") + 32
            assert view.can_cancel
            with refused(409, "stale_operation") as caught:
                await home.lifecycle.cancel("one", "load-" + "0" * 32)
            assert operation in caught.value.message
            await until(lambda: len(children()) == 2)
            both = await asyncio.gather(
                *(home.lifecycle.cancel("one", operation) for _ in range(2))
            )
            assert [one.already_cancelled for one in both] == [False, True]
            assert not children()
            view = home.view()
            assert (view.state, view.can_load, view.can_cancel) == ("cancelled", True, False)
            assert view.progress is not None
            assert (view.progress.phase, view.progress.operation_id) == ("cancelled", operation)
            again = await home.lifecycle.cancel("one", operation)
            assert (again.already_cancelled, again.operation_type) == (True, "load")
            assert home.view().revision == view.revision
            home.write("one")
            await home.loaded()
            with refused(409, "no_active_operation"):
                await home.lifecycle.cancel("one", operation)
            with refused(409, "task_finished"):
                await home.lifecycle.cancel("one", home.operation())
            assert home.state() is ModelState.LOADED

    asyncio.run(scenario())


def test_edge_62_a_load_is_cancelled_at_any_moment(tmp_path: Path) -> None:
    """Cancel after a growing number of turns of the loop: the end is one of two, and whole."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            ends: set[ModelState] = set()
            for wait in (0.0, 0.02, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 5.0):
                await home.load()
                operation = home.operation()
                settled = asyncio.ensure_future(home.lifecycle.settled("one"))
                await asyncio.wait((settled,), timeout=wait)
                if home.state() is ModelState.LOADED:
                    with refused(409, "task_finished"):
                        await home.lifecycle.cancel("one", operation)
                    assert (await home.ask("hello")).text == "hello"
                    await home.unloaded()
                    ends.add(ModelState.LOADED)
                else:
                    await home.lifecycle.cancel("one", operation)
                    assert home.state() is ModelState.CANCELLED
                    ends.add(ModelState.CANCELLED)
                assert not children()
            assert ModelState.CANCELLED in ends
            revisions = [event.data["revision"] for event in home.told() if event.data]
            assert all(earlier < later for earlier, later in pairwise(revisions))

    asyncio.run(scenario())


def test_a_cancelled_switch_leaves_what_was_loaded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            await home.loaded(device="CPU")
            home.write("one", load_delay_ms=SLOW_MS)
            await home.load(device="GPU")
            await until(lambda: len(children()) == 4)
            outcome = await home.lifecycle.cancel("one", home.operation())
            assert (outcome.view.state, outcome.view.requested_device) == ("loaded", "CPU")
            assert len(children()) == 2
            assert (await home.ask("hello")).text == "hello"

    asyncio.run(scenario())


def test_edge_99_an_error_tells_no_path_and_no_token(tmp_path: Path) -> None:
    fault = "Bearer abcdef failed with hf_abcdefghij in /home/me/models/x.bin, token=secret."

    async def scenario() -> None:
        async with house(tmp_path, {"one": {"load_error": fault}}) as home:
            await home.load()
            view = await home.lifecycle.settled("one")
            assert view.state is ModelState.ERROR
            shown = f"{view.error} {view.progress} {home.told()}"
            for secret in ("abcdef", "secret", "/home", str(tmp_path)):
                assert secret not in shown
            assert "x.bin" in str(view.error)

    asyncio.run(scenario())


def test_edge_95_a_server_that_ends_drops_what_it_does(tmp_path: Path) -> None:
    script = {"rules": [{"match": "long", "pieces": ["x "], "repeat": 100000, "delay_ms": 10}]}

    async def scenario() -> None:
        slow = {"load_delay_ms": SLOW_MS}
        async with house(tmp_path, {"one": script, "two": slow, "three": {}}) as home:
            await home.loaded("one")
            await home.load("two")
            stream = home.generator.generate(request("long", model="one"))
            await anext(stream)
            await home.loaded("three", device="CPU")
            home.write("three", load_delay_ms=SLOW_MS)
            await home.load("three", device="GPU")
            await until(lambda: len(children()) == 8)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await home.lifecycle.close()
            assert loop.time() - begun < 10
            assert not children()
            with refused(503, "server_stopping"):
                await home.load("two")
            await stream.aclose()

    asyncio.run(scenario())


def test_edge_95_an_engine_that_is_being_replaced_ends_with_the_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            await home.loaded(device="CPU")
            old = children()
            for process in old:
                # Stopped, it does not hear that it is to end.
                process.suspend()
            await home.loaded(device="GPU")
            assert len(children()) == 4
            await home.lifecycle.close()
            assert not children()

    asyncio.run(scenario())


def test_an_engine_lost_during_a_switch_is_replaced_by_the_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            await home.loaded(device="CPU")
            home.write("one", load_delay_ms=1500)
            await home.load(device="GPU")
            record = home.directory.known("one")
            loaded = record.loaded
            assert loaded is not None
            # What the pair does when it gave up, which takes half a minute of restarts.
            loaded.pair.on_lost(ApiError(503, "It is lost.", code="engine_lost"))
            assert home.state() is ModelState.LOADING
            view = await home.lifecycle.settled("one")
            assert (view.state, view.device) == (ModelState.LOADED, "GPU")
            assert (await home.ask("hello")).text == "hello"
            await until(lambda: len(children()) == 2)

    asyncio.run(scenario())
