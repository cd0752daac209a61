"""Engines that crash, hang, are overloaded or are left alone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from pegboard_contracts.engine import TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import Accepted, TextDelta
from pegboard_contracts.models import ModelState
from pegboard_kernel.engines.token_stream import TokenStream

from tests.kernel.runtime import MODEL, Runtime, serving, until

PLACES = 64
"""How many requests a scripted engine runs at once."""

SCRIPT = {
    "rules": [
        {"match": "die", "pieces": ["a", "b"], "first_delay_ms": 300, "exit_after": 1},
        {"match": "hang", "pieces": ["a", "b"], "hang_after": 1},
        {"match": "long", "pieces": ["x "], "repeat": 100000, "delay_ms": 20},
        {"match": "boom", "pieces": ["a", "b", "c"], "raise_after": 2},
        {"match": "slow", "pieces": ["a", "b"], "first_delay_ms": 400},
    ]
}
LOOP = (
    "{% if messages[0].content == 'loop' %}"
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
    "{{ messages[0].content }}"
)


def alive(child: psutil.Process) -> bool:
    return bool(child.is_running() and child.status() != psutil.STATUS_ZOMBIE)


async def outcome(runtime: Runtime, text: str) -> str:
    try:
        return (await runtime.ask(text)).text
    except ApiError as error:
        return error.code or ""


async def pids(runtime: Runtime) -> tuple[int, int]:
    server = (await runtime.inspect())["server"]
    return server["engine_pid"], server["preparer_pid"]


async def recovered(runtime: Runtime) -> None:
    """Wait until the engine is back; until then requests are refused as decision 4 says."""
    while (heard := await outcome(runtime, "hello")) != "hello":
        assert heard == "engine_restarting"
        await asyncio.sleep(0.02)


def test_a_crash_fails_running_answers_and_the_queue_waits_for_the_restart(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT, max_queue=8) as runtime:
            before = await pids(runtime)
            asked = ["die"] + ["slow"] * (PLACES - 1) + ["queued"] * 3
            outcomes = await asyncio.gather(*(outcome(runtime, text) for text in asked))
            assert outcomes[:PLACES] == ["engine_crashed"] * PLACES
            assert outcomes[PLACES:] == ["queued"] * 3
            after = await pids(runtime)
            assert after[0] != before[0]
            assert after[1] == before[1]
            assert runtime.directory.models()[0].state is ModelState.LOADED

    asyncio.run(scenario())


def test_a_killed_engine_ends_the_stream_behind_what_was_sent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            engine, _ = await pids(runtime)
            texts: list[str] = []

            async def read() -> None:
                async for event in runtime.stream("long"):
                    if isinstance(event, TextDelta):
                        texts.append(event.text)
                        if len(texts) == 3:
                            os.kill(engine, signal.SIGKILL)

            with pytest.raises(ApiError) as caught:
                await read()
            assert (caught.value.status, caught.value.code) == (500, "engine_crashed")
            assert len(texts) >= 3
            with pytest.raises(ApiError) as caught:
                await runtime.ask("early")
            assert (caught.value.status, caught.value.code) == (503, "engine_restarting")
            assert caught.value.headers()["retry-after"] == "1"
            await recovered(runtime)

    asyncio.run(scenario())


@pytest.mark.parametrize("leave", [False, True], ids=["waiting", "cancelled"])
def test_a_hanging_engine_is_replaced(tmp_path: Path, leave: bool) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT, engine_hang_timeout=0.6) as runtime:
            before, _ = await pids(runtime)
            stream = runtime.stream("hang")
            assert isinstance(await anext(stream), Accepted)
            assert await anext(stream) == TextDelta("a")
            if leave:
                await stream.aclose()
                # Others keep the engine busy, so that it is not silent.
                others = asyncio.create_task(outcome(runtime, "long"))
                assert await others == "engine_crashed"
            else:
                with pytest.raises(ApiError) as caught:
                    await anext(stream)
                assert caught.value.code == "engine_crashed"
            await recovered(runtime)
            assert (await pids(runtime))[0] != before

    asyncio.run(scenario())


def test_a_slow_engine_is_no_hanging_engine(tmp_path: Path) -> None:
    script = {"rules": [{"match": "slow", "pieces": ["a"], "first_delay_ms": 1500}]}

    async def scenario() -> None:
        async with serving(tmp_path, script, engine_hang_timeout=0.5) as runtime:
            assert (await runtime.ask("slow")).text == "a"

    asyncio.run(scenario())


def test_a_failed_request_disturbs_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            outcomes = await asyncio.gather(*(outcome(runtime, t) for t in ("boom", "slow", "me")))
            assert outcomes == ["generation_failed", "ab", "me"]

    asyncio.run(scenario())


def test_a_full_queue_refuses_and_tells_when_to_come_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT, max_queue=2) as runtime:
            asked = [outcome(runtime, "slow") for _ in range(PLACES + 5)]
            outcomes = await asyncio.gather(*asked)
            assert outcomes.count("server_overloaded") == 3
            assert outcomes.count("ab") == PLACES + 2

    asyncio.run(scenario())


def test_a_vanished_client_frees_the_engine_and_the_queue(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            running = [runtime.stream("long") for _ in range(PLACES)]
            for stream in running:
                assert isinstance(await anext(stream), Accepted)
            waiting = runtime.stream("long")
            assert isinstance(await anext(waiting), Accepted)
            server = (await runtime.inspect())["server"]
            assert (server["running"], server["waiting"]) == (PLACES, 1)
            await waiting.aclose()
            assert (await runtime.inspect())["server"]["waiting"] == 0
            for stream in running:
                await stream.aclose()
            assert (await runtime.ask("hello")).text == "hello"
            logged = await runtime.log()
            assert [one["status"] for one in logged] == ["cancelled"] * PLACES + ["finished"]

    asyncio.run(scenario())


def test_a_template_that_loops_is_refused_and_disturbs_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = {**SCRIPT, "chat_template": LOOP}
        async with serving(tmp_path, script, template_timeout=0.5) as runtime:
            before = await pids(runtime)
            running = runtime.stream("long", max_output_tokens=60)
            assert isinstance(await anext(running), Accepted)
            asked = [outcome(runtime, text) for text in ("loop", "hello", "slow")]
            assert await asyncio.gather(*asked) == ["template_timeout", "hello", "ab"]
            rest = [event async for event in running]
            assert "".join(e.text for e in rest if isinstance(e, TextDelta)) == "x " * 60
            after = await pids(runtime)
            assert after[0] == before[0]
            assert after[1] != before[1]

    asyncio.run(scenario())


def test_a_client_that_leaves_while_its_template_loops_does_not_block_others(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        script = {**SCRIPT, "chat_template": LOOP}
        async with serving(tmp_path, script, template_timeout=0.5) as runtime:
            gone = asyncio.create_task(outcome(runtime, "loop"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            gone.cancel()
            assert await outcome(runtime, "hello") == "hello"

    asyncio.run(scenario())


def test_a_consumer_that_does_not_keep_up_is_cut_off_at_its_limit() -> None:
    async def scenario() -> None:
        stream = TokenStream(1, limit=3)
        assert all(stream.put(TokenEvent(1, text)) for text in "abc")
        assert [event.text for event in await stream.batch()] == ["a", "b", "c"]
        assert [stream.put(TokenEvent(1, text)) for text in "defg"] == [True, True, True, False]
        assert not stream.put(TokenEvent(1, "h"))
        with pytest.raises(ApiError) as caught:
            await stream.batch()
        assert caught.value.code == "stream_too_slow"

    asyncio.run(scenario())


def test_the_limit_of_the_whole_answer_holds(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT, request_timeout=0.5) as runtime:
            assert await outcome(runtime, "long") == "request_timeout"
            assert await outcome(runtime, "hello") == "hello"
            assert [one["status"] for one in await runtime.log()] == ["cancelled", "finished"]

    asyncio.run(scenario())


def test_unloading_waits_for_running_answers_and_ends_the_children(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            children = [psutil.Process(pid) for pid in await pids(runtime)]
            stream = runtime.stream("slow")
            assert isinstance(await anext(stream), Accepted)
            unloading = asyncio.create_task(runtime.directory.unload(MODEL))
            await until(lambda: runtime.directory.models()[0].state is ModelState.UNLOADING)
            assert await outcome(runtime, "late") == "model_busy"
            assert [e async for e in stream][-1] is not None
            assert (await unloading).state is ModelState.READY_TO_LOAD
            assert not any(alive(child) for child in children)
            assert await outcome(runtime, "late") == "model_not_loaded"
            assert (await runtime.directory.load(MODEL)).state is ModelState.LOADED
            assert await outcome(runtime, "again") == "again"

    asyncio.run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="uses the parent-death signal")
@pytest.mark.parametrize("stopped", [False, True], ids=["idle", "stopped"])
def test_no_child_outlives_a_killed_server(tmp_path: Path, stopped: bool) -> None:
    script = tmp_path / "script.json"
    script.write_text("{}")
    command = [sys.executable, "-m", "pegboard_kernel.cli", "serve", "--port=0"]
    command += [f"--model=scripted:{script}", f"--data-dir={tmp_path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "http://" in process.stdout.readline()
        children = psutil.Process(process.pid).children()
        assert len(children) == 2
        if stopped:
            for child in children:
                child.suspend()
        process.kill()
        process.wait()
    end = time.monotonic() + 2.0
    while any(alive(child) for child in children):
        assert time.monotonic() < end, "a child outlives its server by two seconds"
        time.sleep(0.02)
