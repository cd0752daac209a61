"""The memory of events: cursors, what is forgotten, and readers that are too slow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.lifecycle import LifecycleEvent
from pegboard_kernel.models.events import EventLog

from tests.lifecycle.house import house


def tell(log: EventLog, count: int, kind: str = "state", model: str = "one") -> None:
    for number in range(count):
        log.tell(kind, f"event {number}", model=model)


def test_pages_go_on_where_the_last_one_ended() -> None:
    log = EventLog()
    start = log.recent().latest
    tell(log, 7)
    seen: list[LifecycleEvent] = []
    cursor = start
    while (page := log.recent(cursor, 3)).events:
        assert not page.reset_required
        seen += page.events
        cursor = page.latest
    assert [event.message for event in seen] == [f"event {number}" for number in range(7)]
    assert [event.message for event in log.recent(limit=2).events] == ["event 5", "event 6"]


def test_a_cursor_of_another_server_or_of_long_ago_means_reading_again() -> None:
    log = EventLog(remembered=5)
    start = log.recent().latest
    tell(log, 6)
    for cursor in (start, EventLog().recent().latest, "", "x-1", start + "9" * 400):
        page = log.recent(cursor)
        assert page.reset_required
        assert len(page.events) == 5
    assert not log.recent(page.events[0].id).reset_required


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=60))
def test_progress_pushes_nothing_out(told: list[tuple[str, bool]]) -> None:
    log = EventLog(remembered=12)
    states = 0
    for model, progress in told:
        if progress:
            log.tell("progress", "p", model=model)
        elif states < 10:
            states += 1
            log.tell("state", f"s{states}", model=model)
    events = log.recent(limit=100).events
    assert [e.message for e in events if e.type == "state"] == [
        f"s{number + 1}" for number in range(states)
    ]
    assert len([e for e in events if e.type == "progress"]) <= 2
    numbers = [int(event.id.rpartition("-")[2]) for event in events]
    assert numbers == sorted(numbers)


def test_a_slow_reader_gets_the_latest_progress_only() -> None:
    async def scenario() -> None:
        log = EventLog()
        follower = log.follow()
        first = asyncio.ensure_future(anext(follower))
        await asyncio.sleep(0)
        log.tell("state", "begun", model="one")
        assert (await first).message == "begun"
        for number in range(5000):
            log.tell("progress", f"{number}", model="one")
            log.tell("progress", f"{number}", model="two")
        log.tell("state", "done", model="one")
        heard = [await anext(follower) for _ in range(3)]
        assert [event.message for event in heard] == ["4999", "4999", "done"]
        for _ in range(3000):
            log.tell("state", "x", model="one")
        missed = await anext(follower)
        assert missed.data == {"reset_required": True}
        assert (await anext(follower)).message == "x"
        await follower.aclose()

    asyncio.run(scenario())


def test_who_follows_from_a_cursor_misses_nothing() -> None:
    async def scenario() -> None:
        log = EventLog(remembered=5)
        tell(log, 2)
        cursor = log.recent().latest
        tell(log, 2)
        follower = log.follow(cursor)
        assert [(await anext(follower)).message for _ in range(2)] == ["event 0", "event 1"]
        log.tell("removed", "gone", model="one")
        assert (await anext(follower)).message == "gone"
        await follower.aclose()
        tell(log, 9)
        follower = log.follow(cursor)
        assert (await anext(follower)).data == {"reset_required": True}
        assert (await anext(follower)).message == "event 4"
        await follower.aclose()

    asyncio.run(scenario())


def test_a_models_life_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path) as home:
            await home.loaded()
            await home.unloaded()
            told: list[tuple[str, Any]] = [
                (event.type, event.data["state"]) for event in home.told()
            ]
            assert told == [
                ("registered", "ready_to_load"),
                ("state", "loading"),
                ("state", "loaded"),
                ("state", "unloading"),
                ("state", "ready_to_load"),
            ]
            loaded = home.told()[2].data
            assert loaded["progress"]["phase"] == "ready"
            assert loaded["progress"]["revision"] == loaded["revision"]

    asyncio.run(scenario())
