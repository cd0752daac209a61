"""Contexts: what a model may be given, and that a change holds wholly or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Generator
from pathlib import Path

import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelState

from tests.kernel.runtime import request, until
from tests.lifecycle.house import SLOW_MS, House, children, house, refused

SCRIPT = {"context_tokens": 4096}
ENTRY = {"one": {"max_context_len": 2048, "max_output_tokens": 512}}


@contextlib.contextmanager
def unwritable(home: House) -> Generator[None]:
    """Put a folder where the catalogue is, which nobody can read or replace."""
    path = home.folder / "models.json"
    text = path.read_text()
    path.unlink()
    path.mkdir()
    try:
        yield
    finally:
        path.rmdir()
        path.write_text(text)


def test_a_budget_tells_bounds_and_choices(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            budget = home.lifecycle.budget("one")
            assert budget.configured_context_tokens == 2048
            assert budget.recommended_context_tokens == 2048
            assert budget.model_architecture_limit_tokens == 4096
            assert budget.minimum_context_tokens == 512 + 64
            assert budget.maximum_context_tokens == 4096
            assert budget.presets == (1024, 2048, 4096)
            assert [one.trial for one in budget.candidates] == [False, False, True]
            assert (budget.prompt_budget_tokens, budget.output_budget_tokens) == (1536, 512)
            assert (budget.trial, budget.loaded, budget.applies) == (False, False, "next-load")
            assert not budget.memory_guidance.verified
            await home.loaded()
            assert home.lifecycle.budget("one").applies == "now"
            (listed,) = home.lifecycle.budgets()
            assert (listed.presets, listed.maximum_context_tokens) == ((), 4096)

    asyncio.run(scenario())


def test_a_context_that_nobody_configured_is_the_backends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}) as home:
            budget = home.lifecycle.budget("one")
            assert (budget.configured_context_tokens, budget.trial) == (4096, False)
            budget = await home.lifecycle.change_context("one", 1024, 4096)
            assert (budget.configured_context_tokens, budget.trial) == (1024, False)
            assert budget.recommended_context_tokens == 4096
            assert home.catalogued()["recommended_context_len"] == 4096

    asyncio.run(scenario())


def test_edge_77_another_expected_context_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            before, entry = home.view(), home.catalogued()
            with refused(409, "context_changed"):
                await home.lifecycle.change_context("one", 1024, 4096)
            assert (home.view(), home.catalogued()) == (before, entry)

    asyncio.run(scenario())


@pytest.mark.parametrize("tokens", [0, 575, 4097, 2**40])
def test_edge_78_bounds_hold(tmp_path: Path, tokens: int) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            before, entry = home.view(), home.catalogued()
            with refused(400, "context_out_of_bounds"):
                await home.lifecycle.change_context("one", tokens, 2048)
            with refused(400, "context_out_of_bounds"):
                await home.load(context_tokens=tokens)
            assert (home.view(), home.catalogued()) == (before, entry)

    asyncio.run(scenario())


def test_edge_79_an_engine_that_cannot_be_opened_leaves_all_as_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            await home.loaded()
            entry = home.catalogued()
            home.write("one", load_error="No room in /home/me/cache.", **SCRIPT)
            with refused(409, "context_not_applied") as caught:
                await home.lifecycle.change_context("one", 1024, 2048)
            assert "No room in cache." in caught.value.message
            assert home.catalogued() == entry
            view = home.view()
            assert (view.state, view.context_tokens) == (ModelState.LOADED, 2048)
            assert view.switch_error == "No room in cache."
            assert (await home.ask("hello")).text == "hello"
            assert len(children()) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("loaded", [True, False])
def test_edge_69_and_80_a_catalogue_that_cannot_be_saved(tmp_path: Path, loaded: bool) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            if loaded:
                await home.loaded()
            pids = {process.pid for process in children()}
            entry = home.view().entry
            with unwritable(home), pytest.raises(ApiError) as caught:
                await home.lifecycle.change_context("one", 1024, 2048)
            assert caught.value.status == 409
            assert str(tmp_path) not in caught.value.message
            assert home.view().entry == entry
            assert home.catalogued()["max_context_len"] == 2048
            assert {process.pid for process in children()} == pids
            with unwritable(home), pytest.raises(ApiError) as caught:
                await home.load(context_tokens=1024)
            assert caught.value.status == 409
            assert home.state() is (ModelState.LOADED if loaded else ModelState.READY_TO_LOAD)
            if loaded:
                assert (await home.ask("hello")).text == "hello"

    asyncio.run(scenario())


def test_edge_81_an_unloaded_model_gets_it_at_its_next_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            budget = await home.lifecycle.change_context("one", 4096, 2048)
            assert (budget.applies, budget.trial) == ("next-load", True)
            assert not children()
            assert home.catalogued()["max_context_len"] == 4096
        async with house(tmp_path, {"one": SCRIPT}) as home:
            assert (await home.loaded()).context_tokens == 4096
            budget = home.lifecycle.budget("one")
            assert (budget.recommended_context_tokens, budget.trial) == (2048, True)

    asyncio.run(scenario())


def test_edge_82_the_context_of_an_embedding_model_is_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": {"embedding": {"dimensions": 8}}}) as home:
            budget = home.lifecycle.budget("one")
            assert not budget.configurable
            assert budget.reason
            assert budget.presets == ()
            with refused(400, "context_not_configurable"):
                await home.lifecycle.change_context("one", 1024, 4096)
            with refused(400, "context_not_configurable"):
                await home.load(context_tokens=1024)

    asyncio.run(scenario())


def test_edge_83_a_load_with_a_context(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            view = await home.loaded(context_tokens=1024)
            assert view.context_tokens == 1024
            entry = home.catalogued()
            assert (entry["max_context_len"], entry["recommended_context_len"]) == (1024, 2048)
            assert (await home.load(context_tokens=1024)).revision == view.revision
            with refused(409, "context_mismatch"):
                await home.load(context_tokens=2048)
            with refused(409, "context_mismatch"):
                await home.load(device="GPU", context_tokens=2048)
            assert home.view() == view

    asyncio.run(scenario())


@pytest.mark.parametrize("loaded", [True, False])
def test_edge_84_of_two_changes_one_wins(tmp_path: Path, loaded: bool) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            if loaded:
                await home.loaded()
            ends = await asyncio.gather(
                *(home.lifecycle.change_context("one", to, 2048) for to in (1024, 4096, 1536)),
                return_exceptions=True,
            )
            lost = [end for end in ends if isinstance(end, ApiError)]
            won = [end for end in ends if not isinstance(end, BaseException)]
            assert len(won) == 1
            assert [end.status for end in lost] == [409, 409]
            assert home.catalogued()["max_context_len"] == won[0].configured_context_tokens
            if loaded:
                assert home.view().context_tokens == won[0].configured_context_tokens
                await until(lambda: len(children()) == 2)

    asyncio.run(scenario())


def test_edge_85_answers_under_way_finish_on_the_old_engine(tmp_path: Path) -> None:
    rules = [{"match": "long", "pieces": ["x "], "repeat": 120, "delay_ms": 40}]

    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT | {"rules": rules}}, entries=ENTRY) as home:
            await home.loaded()
            streams = [asyncio.ensure_future(home.ask("long")) for _ in range(8)]
            await until(lambda: _running(home) == 8)
            budget = await home.lifecycle.change_context("one", 1024, 2048)
            assert budget.configured_context_tokens == 1024
            assert not any(stream.done() for stream in streams), "the change came too late"
            assert home.view().context_tokens == 1024
            assert len(children()) == 4
            assert (await home.ask("hello")).text == "hello"
            for heard in await asyncio.gather(*streams):
                assert heard.text == "x " * 120
            await until(lambda: len(children()) == 2)

    asyncio.run(scenario())


def _running(home: House) -> int:
    loaded = home.directory.known("one").loaded
    return 0 if loaded is None else loaded.pair.admission.running


def test_a_context_change_is_cancelled_like_a_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            await home.loaded()
            home.write("one", load_delay_ms=SLOW_MS, **SCRIPT)
            change = asyncio.ensure_future(home.lifecycle.change_context("one", 1024, 2048))
            await until(lambda: len(children()) == 4)
            with refused(409, "model_busy"):
                await home.load(device="GPU")
            await home.lifecycle.cancel("one", home.operation())
            with refused(409, "context_not_applied"):
                await change
            assert (home.state(), home.view().context_tokens) == (ModelState.LOADED, 2048)
            assert home.catalogued()["max_context_len"] == 2048
            assert len(children()) == 2

    asyncio.run(scenario())


def test_a_change_goes_on_when_its_caller_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            await home.loaded()
            change = asyncio.ensure_future(home.lifecycle.change_context("one", 1024, 2048))
            await until(lambda: len(children()) == 4)
            change.cancel()
            view = await home.lifecycle.settled("one")
            assert (view.state, view.context_tokens) == (ModelState.LOADED, 1024)
            assert home.catalogued()["max_context_len"] == 1024

    asyncio.run(scenario())


def test_a_new_context_is_what_requests_are_held_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}) as home:
            await home.loaded()
            await home.lifecycle.change_context("one", 128, 4096)
            with pytest.raises(ApiError) as caught:
                await anext(home.generator.generate(request("word " * 200, model="one")))
            assert caught.value.code == "context_length_exceeded"
            assert "128" in caught.value.message

    asyncio.run(scenario())


def test_a_hand_made_change_of_the_file_is_not_overwritten(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, {"one": SCRIPT}, entries=ENTRY) as home:
            path = tmp_path / "models.json"
            document = json.loads(path.read_text())
            document["models"][0]["max_context_len"] = 3000
            path.write_text(json.dumps(document))
            with pytest.raises(ApiError) as caught:
                await home.lifecycle.change_context("one", 1024, 2048)
            assert caught.value.status == 409
            assert home.catalogued()["max_context_len"] == 3000

    asyncio.run(scenario())
