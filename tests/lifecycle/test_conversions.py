"""Conversions: reports, cancels, deferred loads, and what comes too late."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import ConversionOptions
from pegboard_contracts.models import ModelState, Phase

from tests.kernel.runtime import until
from tests.lifecycle.house import House, children, house, refused
from tests.lifecycle.rehearsal import Rehearsal, Rehearsed, report

LATER = ConversionOptions(load_after=False)


async def begun(home: House, rehearsal: Rehearsal, *, load_after: bool = False) -> Rehearsed:
    """Begin a conversion and return when it runs."""
    await home.lifecycle.convert("one", ConversionOptions(load_after=load_after))
    await asyncio.sleep(0)
    return rehearsal.last


def test_a_conversion_goes_through_its_phases(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            one = await begun(home, rehearsal)
            assert home.state() is ModelState.QUEUED
            states: list[ModelState] = []
            for phase in (Phase.RESOLVING, Phase.DOWNLOADING, Phase.CONVERTING, Phase.FINALIZING):
                report(one, phase, percent=50.0, message="in /home/me/models")
                states.append(home.state())
                view = home.view()
                assert view.progress is not None
                assert (view.progress.phase, view.progress.percent) == (phase, 50.0)
                assert view.progress.message == "in models"
                assert (view.can_load, view.can_convert, view.can_cancel) == (False, False, True)
            assert states == ["downloading", "downloading", "converting", "finalizing"]
            # A phase that is over does not come back.
            report(one, Phase.DOWNLOADING, percent=1.0)
            assert home.state() is ModelState.FINALIZING
            one.end.set_result(None)
            view = await home.lifecycle.settled("one")
            assert (view.state, view.is_downloaded) == (ModelState.READY_TO_LOAD, True)
            assert view.progress is not None
            assert (view.progress.phase, view.progress.operation_type) == ("ready", "convert")
            assert home.catalogued()["path"] == "models/one"
            assert home.catalogued()["weight_format"] == "int8"

    asyncio.run(scenario())


def test_what_needs_no_converter_is_a_download(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        rehearsal.needs_converter = False
        async with house(tmp_path, prepare=rehearsal) as home:
            one = await begun(home, rehearsal)
            assert home.operation().startswith("download-")
            assert one.operation_id == home.operation()
            await home.lifecycle.cancel("one", home.operation())

    asyncio.run(scenario())


def test_what_cannot_be_converted_is_refused_before_it_is_queued(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            before = home.view()
            rehearsal.refusal = ApiError(501, "Install it.", code="converter_not_installed")
            with refused(501, "converter_not_installed"):
                await home.lifecycle.convert("one")
            assert home.view() == before
            rehearsal.refusal = None
            await home.loaded()
            with refused(409, "model_loaded"):
                await home.lifecycle.convert("one")

    asyncio.run(scenario())


def test_a_second_call_joins_the_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            one = await begun(home, rehearsal)
            revision = home.view().revision
            view = await home.lifecycle.convert("one", LATER)
            assert (view.revision, len(rehearsal.made)) == (revision, 1)
            one.end.set_result(None)
            assert (await home.lifecycle.settled("one")).state is ModelState.READY_TO_LOAD

    asyncio.run(scenario())


def test_edge_62_cancel_of_a_conversion_in_every_phase(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            for phase in (None, Phase.DOWNLOADING, Phase.CONVERTING, Phase.FINALIZING):
                one = await begun(home, rehearsal)
                if phase is not None:
                    report(one, phase)
                operation = home.operation()
                with refused(409, "stale_operation"):
                    await home.lifecycle.cancel("one", "convert-" + "0" * 32)
                outcome = await home.lifecycle.cancel("one", operation)
                assert one.cleaned
                assert not outcome.already_cancelled
                assert (outcome.operation_type, outcome.view.state) == ("convert", "cancelled")
                assert (await home.lifecycle.cancel("one", operation)).already_cancelled
                assert home.view().can_load, "the files of before are still there"

    asyncio.run(scenario())


def test_edge_62_a_cancel_behind_the_end_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            one = await begun(home, rehearsal)
            operation = home.operation()
            one.end.set_result(None)
            await home.lifecycle.settled("one")
            before = home.view()
            with refused(409, "task_finished"):
                await home.lifecycle.cancel("one", operation)
            assert home.view() == before

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ["cancel", "error"])
def test_edge_63_the_model_of_before_outlives_a_conversion_without_end(
    tmp_path: Path, end: str
) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            entry, before = home.catalogued(), home.view()
            one = await begun(home, rehearsal)
            report(one, Phase.CONVERTING)
            if end == "cancel":
                await home.lifecycle.cancel("one", home.operation())
            else:
                one.end.set_exception(ApiError(507, "The disk is full.", code="disk_full"))
                await home.lifecycle.settled("one")
            assert one.cleaned
            assert (home.catalogued(), home.view().entry) == (entry, before.entry)
            assert (await home.loaded()).state is ModelState.LOADED
            assert (await home.ask("hello")).text == "hello"

    asyncio.run(scenario())


def test_edge_64_a_load_waits_for_the_conversion_and_comes_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            one = await begun(home, rehearsal)
            for device in ("CPU", "GPU"):
                assert (await home.load(device=device)).state is ModelState.QUEUED
            one.end.set_result(None)
            view = await home.lifecycle.settled("one")
            assert (view.state, view.device) == (ModelState.LOADED, "GPU")
            await home.unloaded()
            one = await begun(home, rehearsal)
            one.end.set_result(None)
            assert (await home.lifecycle.settled("one")).state is ModelState.READY_TO_LOAD

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ["cancel", "error", "shutdown"])
def test_edge_64_a_waiting_load_goes_with_its_conversion(tmp_path: Path, end: str) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            one = await begun(home, rehearsal, load_after=True)
            await home.load()
            if end == "cancel":
                await home.lifecycle.cancel("one", home.operation())
            elif end == "error":
                one.end.set_exception(ApiError(500, "It stalls.", code="preparation_stalled"))
                view = await home.lifecycle.settled("one")
                assert (view.state, view.error) == (ModelState.ERROR, "It stalls.")
            else:
                await home.lifecycle.close()
                assert one.cleaned
                assert not children()
                return
            one = await begun(home, rehearsal)
            one.end.set_result(None)
            assert (await home.lifecycle.settled("one")).state is ModelState.READY_TO_LOAD

    asyncio.run(scenario())


def test_edge_72_late_and_impossible_reports(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal) as home:
            one = await begun(home, rehearsal)
            for percent in (float("nan"), float("inf"), -1.0, 101.0):
                report(one, Phase.DOWNLOADING, percent=percent, completed=7, total=3)
                progress = home.view().progress
                assert progress is not None
                assert (progress.percent, progress.completed, progress.total) == (None, None, None)
            report(one, Phase.DOWNLOADING, percent=100.0, completed=3, total=3)
            await home.lifecycle.cancel("one", home.operation())
            before = home.view()
            for phase in Phase:
                report(one, phase, percent=1.0)
            assert home.view() == before
            other = await begun(home, rehearsal)
            revision = home.view().revision
            report(one, Phase.CONVERTING)
            assert (home.state(), home.view().revision) == (ModelState.QUEUED, revision)
            other.end.set_result(None)
            await home.lifecycle.settled("one")
            revisions = [event.data["revision"] for event in home.told() if event.data]
            assert all(earlier < later for earlier, later in pairwise(revisions))

    asyncio.run(scenario())


def test_a_load_behind_a_conversion_that_finds_no_room_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        scripts: dict[str, dict[str, Any]] = {"one": {}, "two": {}}
        async with house(tmp_path, scripts, prepare=rehearsal, max_loaded_models=1) as home:
            one = await begun(home, rehearsal, load_after=True)
            await home.loaded("two")
            one.end.set_result(None)
            view = await home.lifecycle.settled("one")
            assert view.state is ModelState.READY_TO_LOAD
            assert "1 models are loaded" in str(view.error)

    asyncio.run(scenario())


def test_edge_67_what_is_prepared_is_neither_asked_nor_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        rehearsal = Rehearsal()
        async with house(tmp_path, prepare=rehearsal, autoload=True) as home:
            one = await begun(home, rehearsal)
            with refused(409, "model_busy"):
                await home.ask("hello")
            with refused(409, "model_busy"):
                await home.lifecycle.delete_files("one")
            with refused(409, "model_busy"):
                await home.lifecycle.remove("one")
            with refused(409, "model_busy"):
                await home.lifecycle.change_context("one", 1024, 4096)
            one.end.set_result(None)
            await until(lambda: home.state() is ModelState.READY_TO_LOAD)
            assert (await home.ask("hello")).text == "hello"

    asyncio.run(scenario())
