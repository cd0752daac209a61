"""Engines that break the way native code does, behind a backend of an outside plugin."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from pegboard_contracts.backend import EngineDescription
from pegboard_contracts.engine import Submission, TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Sampling
from pegboard_kernel.engines.engine_pair import EngineLimits, EnginePair

from tests.kernel.plugin_site import Site
from tests.kernel.runtime import until

FRAGILE = """
import os, sys, time
from pathlib import Path
from pegboard_contracts.backend import Backend
from pegboard_contracts.engine import EngineInfo, TemplateSource, TokenEvent
from pegboard_contracts.errors import ApiError

class Settings(PluginSettings):
    greeting: str = "none"

class Fragile(Backend):
    Settings = Settings

    def describe_engine(self, order):
        raise NotImplementedError

    def open_engine(self, options):
        print("a library writes where it should not")
        os.write(1, b"and so does native code")
        if Path(options["broken"]).exists():
            raise ApiError(500, "It is broken.", code="broken")
        if Path(options["broken"]).with_name("full").exists():
            raise OSError(28, "No space left on device", "/var/lib/secret")
        return Engine(self.settings.greeting)

    def open_tokenizer(self, options):
        return Tokenizer()

class Engine:
    def __init__(self, greeting):
        self.greeting = greeting
        self.waiting = []

    def describe(self):
        return EngineInfo(context_tokens=100, max_sequences=1)

    def submit(self, submission):
        if submission.last_text == "refuse":
            raise ApiError(400, "Not this one.", code="refused")
        if submission.last_text == "raise at once":
            raise ValueError
        self.waiting.append(submission)

    def cancel(self, request_id):
        pass

    def due(self):
        return 0.0 if self.waiting else None

    def step(self):
        submission = self.waiting.pop()
        if submission.last_text == "raise":
            raise RuntimeError("a step fails")
        if submission.last_text == "hang":
            time.sleep(1000)
        text = self.greeting + sys.stdin.read()
        return [TokenEvent(submission.request_id, text, [1], finish="stop")]

    def inspect(self):
        return {}

    def close(self):
        pass

class Tokenizer:
    def source(self):
        return TemplateSource()

    def special_texts(self):
        return frozenset()

    def encode(self, text, literal_mark=None):
        if text == "crash":
            os.abort()
        return [1] * len(text)

    def decode(self, token_ids):
        return "?" * len(token_ids)

plugin = Fragile
"""


@pytest.fixture(autouse=True)
def outside_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    Site(site).add("fragile", FRAGILE, kind="backends")
    paths = (str(site), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@contextlib.asynccontextmanager
async def opened(folder: Path, lost: list[ApiError]) -> AsyncGenerator[EnginePair, None]:
    description = EngineDescription(backend="fragile", options={"broken": str(folder / "broken")})
    limits = EngineLimits(hang_timeout=0.5, template_timeout=5.0, back_off=(0.01,))
    pair = EnginePair(description, {"greeting": "hello"}, limits, lost.append)
    await pair.open()
    try:
        yield pair
    finally:
        await pair.close()


async def answer(pair: EnginePair, text: str) -> list[TokenEvent]:
    def make(request_id: int) -> Submission:
        return Submission(
            request_id=request_id,
            prompt_ids=[1],
            prompt_text="",
            max_output_tokens=1,
            sampling=Sampling(),
            last_text=text,
        )

    ticket = pair.admission.enter(make)
    try:
        return await (await ticket.started()).batch()
    finally:
        ticket.leave()


def test_children_are_configured_and_their_output_is_no_protocol(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, []) as pair:
            (event,) = await answer(pair, "speak")
            assert (event.text, event.finish) == ("hello", "stop")

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["raise", "hang"])
def test_a_lost_step_restarts_the_engine_for_the_queue(tmp_path: Path, fault: str) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, []) as pair:
            asked = [answer(pair, text) for text in (fault, "speak", "speak")]
            first, *others = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(first, ApiError)
            assert first.code == "engine_crashed"
            assert all(not isinstance(other, BaseException) for other in others)

    asyncio.run(scenario())


def test_a_refused_request_disturbs_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, []) as pair:
            engine, _ = pair.pids
            for text, status in (("refuse", 400), ("raise at once", 500)):
                with pytest.raises(ApiError) as caught:
                    await answer(pair, text)
                assert caught.value.status == status
            (event,) = await answer(pair, "speak")
            assert event.text == "hello"
            assert pair.pids[0] == engine

    asyncio.run(scenario())


def test_an_engine_that_cannot_be_opened_again_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        lost: list[ApiError] = []
        async with opened(tmp_path, lost) as pair:
            (tmp_path / "broken").touch()
            asked = [answer(pair, text) for text in ("raise", "speak")]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            codes = [one.code if isinstance(one, ApiError) else one for one in outcomes]
            assert codes == ["engine_crashed", "engine_lost"]
            assert [error.code for error in lost] == ["engine_lost"]
            with pytest.raises(ApiError), pair.lease():
                pass

    asyncio.run(scenario())


def test_an_engine_that_cannot_be_opened_leaves_nothing_running(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "broken").touch()
        with pytest.raises(ApiError, match="It is broken"):
            async with opened(tmp_path, []):
                pass

    asyncio.run(scenario())


def test_what_the_system_refuses_is_told_without_its_path(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "full").touch()
        with pytest.raises(ApiError, match=r"engine process failed \(No space left on device\);"):
            async with opened(tmp_path, []):
                pass

    asyncio.run(scenario())


def test_a_prompt_that_kills_its_preparer_fails_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, []) as pair:
            asked = [pair.preparer.encode(text) for text in ("crash", "abc")]
            first, second = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(first, ApiError)
            assert first.code == "preparer_crashed"
            assert second == [1, 1, 1]
            await until(lambda: pair.preparer.waiting == 0)

    asyncio.run(scenario())
