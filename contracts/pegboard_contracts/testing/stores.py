"""Laws of stores: subclass, say how a store is opened, and pytest does the rest.

class TestMemoryResponses(ResponseStoreLaws):
def open_store(self, limits, clock):
return MemoryResponses(limits, clock)
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pegboard_contracts.stores import (
    ConversationStore,
    ResponseStore,
    StoredConversation,
    StoredResponse,
    StoreLimits,
    Turn,
)

T = TypeVar("T")
S = TypeVar("S")
Clock = Callable[[], float]

LIMITS = StoreLimits(max_entries=4, max_bytes=10**6, ttl_seconds=100)
_IDS = st.sampled_from([f"resp_{letter}" for letter in "abcdefg"])
_OWNERS = st.sampled_from(["anonymous", "key-1"])


@dataclass
class ManualClock:
    """Tell the time that a test sets."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.now


def response(
    name: str,
    owner: str = "anonymous",
    *,
    text: str = "x",
    pending: bool = False,
    **more: Any,  # noqa: ANN401 - the struct's fields
) -> StoredResponse:
    """Make a response whose items say `text`."""
    return StoredResponse(
        id=name,
        owner=owner,
        body=b'{"id":"' + name.encode() + b'"}',
        input_items=b'[{"id":"in","text":"' + text.encode() + b'"}]',
        output_items=b'[{"id":"out","text":"' + text.encode() + b'"}]',
        pending=pending,
        **more,
    )


class StoreLaws(ABC, Generic[S]):
    """Open stores for the laws of both kinds."""

    @abstractmethod
    def open_store(self, limits: StoreLimits, clock: Clock) -> S:
        """Open an empty store, afresh at every call."""

    def close_stores(self) -> None:
        """Close every store that was opened; nothing to do by default."""

    def run(self, limits: StoreLimits, test: Callable[[S, ManualClock], Any]) -> None:
        """Run an asynchronous test on a new store."""
        clock = ManualClock()

        async def whole() -> None:
            store = self.open_store(limits, clock)
            try:
                await test(store, clock)
            finally:
                self.close_stores()

        asyncio.run(whole())


class ResponseStoreLaws(StoreLaws[ResponseStore]):
    """Be the laws of a response store."""

    def test_what_is_put_comes_back(self) -> None:
        """Every field survives; another owner sees nothing."""

        async def test(store: ResponseStore, _: ManualClock) -> None:
            kept = response("a", previous="z", status="incomplete", created_at=7, events=b"e")
            assert await store.put(kept)
            assert await store.get("anonymous", "a") == kept
            assert await store.get("key-1", "a") is None
            assert await store.history("key-1", "a") is None
            assert not await store.delete("key-1", "a")

        self.run(LIMITS, test)

    def test_time_to_live_is_not_renewed_by_reading(self) -> None:
        """An entry leaves at its age, whatever was read."""

        async def test(store: ResponseStore, clock: ManualClock) -> None:
            await store.put(response("a"))
            await store.put(response("b", ttl_seconds=5))
            clock.now += 5
            assert await store.get("anonymous", "b") is None
            clock.now += 94
            assert await store.get("anonymous", "a") is not None
            clock.now += 1
            assert await store.get("anonymous", "a") is None

        self.run(LIMITS, test)

    def test_no_time_to_live(self) -> None:
        """0 seconds is for ever."""

        async def test(store: ResponseStore, clock: ManualClock) -> None:
            await store.put(response("a"))
            clock.now += 10**8
            assert await store.get("anonymous", "a") is not None

        self.run(StoreLimits(max_entries=4, max_bytes=10**6, ttl_seconds=0), test)

    def test_zero_bytes_keeps_nothing(self) -> None:
        """The store works and forgets at once."""

        async def test(store: ResponseStore, _: ManualClock) -> None:
            assert not await store.put(response("a"))
            assert await store.get("anonymous", "a") is None

        self.run(StoreLimits(max_entries=4, max_bytes=0, ttl_seconds=0), test)

    def test_the_exact_budget_is_kept_and_one_byte_less_is_not(self) -> None:
        """Find the smallest budget that keeps two, then check its edge."""

        def kept(budget: int) -> bool:
            found: list[bool] = []

            async def test(store: ResponseStore, _: ManualClock) -> None:
                await store.put(response("a"))
                await store.put(response("b"))
                found.append(await store.get("anonymous", "a") is not None)

            self.run(StoreLimits(max_entries=4, max_bytes=budget, ttl_seconds=0), test)
            return found[0]

        low, high = 0, 10**5
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if kept(middle) else (middle, high)
        assert (
            2 * response("a").approximate_bytes()
            <= high
            <= 2 * (response("a").approximate_bytes() + 256)
        )

    def test_an_oversize_entry_evicts_nothing(self) -> None:
        """What can never fit does not cost the others their place."""

        async def test(store: ResponseStore, _: ManualClock) -> None:
            await store.put(response("a"))
            assert not await store.put(response("b", text="y" * 20_000))
            assert await store.get("anonymous", "a") is not None
            assert await store.get("anonymous", "b") is None

        self.run(StoreLimits(max_entries=4, max_bytes=10_000, ttl_seconds=0), test)

    def test_history_outlives_its_ancestors(self) -> None:
        """A response keeps what it was built on when that is deleted."""

        async def test(store: ResponseStore, _: ManualClock) -> None:
            history: tuple[Turn, ...] = ()
            for name in "abc":
                await store.put(response(name, text=name), history)
                found = await store.history("anonymous", name)
                assert found is not None
                history = found
            assert [turn.id for turn in history] == ["a", "b", "c"]
            assert await store.delete("anonymous", "a")
            assert await store.delete("anonymous", "b")
            assert await store.history("anonymous", "c") == history
            assert await store.get("anonymous", "a") is None

        self.run(LIMITS, test)

    def test_a_history_that_left_meanwhile_is_stored_again(self) -> None:
        """The turns that the caller holds are enough."""

        async def test(store: ResponseStore, _: ManualClock) -> None:
            await store.put(response("a", text="first"))
            history = await store.history("anonymous", "a")
            assert history is not None
            await store.delete("anonymous", "a")
            await store.put(response("b", text="second"), history)
            found = await store.history("anonymous", "b")
            assert found is not None
            assert found[0] == history[0]
            assert len(found) == 2

        self.run(LIMITS, test)

    def test_pending_entries_are_outside_the_limits(self) -> None:
        """A job is neither aged nor evicted, and becomes an entry when it is done."""

        async def test(store: ResponseStore, clock: ManualClock) -> None:
            await store.put(response("job", pending=True))
            for name in "abcdef":
                await store.put(response(name))
            clock.now += 1000
            assert [one.id for one in await store.pending()] == ["job"]
            assert await store.get("anonymous", "job") is not None
            await store.put(response("job"))
            assert await store.pending() == ()
            clock.now += 1000
            assert await store.get("anonymous", "job") is None

        self.run(LIMITS, test)

    def test_many_writers_at_once(self) -> None:
        """Concurrent puts and reads all succeed and the entry limit holds."""

        async def test(store: ResponseStore, _: ManualClock) -> None:
            names = [f"r{number}" for number in range(64)]
            await asyncio.gather(*(store.put(response(name)) for name in names))
            found = await asyncio.gather(*(store.get("anonymous", name) for name in names))
            assert sum(one is not None for one in found) == LIMITS.max_entries

        self.run(LIMITS, test)

    def test_against_a_model(self) -> None:
        """Any order of puts, reads, deletes and time agrees with a dictionary."""
        laws = self

        class Machine(_ResponseMachine):
            def __init__(self) -> None:
                super().__init__(laws)

        run_state_machine_as_test(
            Machine, settings=settings(max_examples=40, stateful_step_count=30, deadline=None)
        )


class _ResponseMachine(RuleBasedStateMachine):
    def __init__(self, laws: ResponseStoreLaws) -> None:
        super().__init__()
        self.laws = laws
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()
        self.store = laws.open_store(LIMITS, self.clock)
        self.model: OrderedDict[tuple[str, str], tuple[StoredResponse, float]] = OrderedDict()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def sweep(self) -> None:
        for key, (_, born) in list(self.model.items()):
            if self.clock.now - born >= LIMITS.ttl_seconds:
                del self.model[key]

    @rule(owner=_OWNERS, name=_IDS, text=st.text("ab", max_size=5))
    def put(self, owner: str, name: str, text: str) -> None:
        self.sweep()
        value = response(name, owner, text=text)
        assert self.wait(self.store.put(value))
        self.model.pop((owner, name), None)
        self.model[owner, name] = (value, self.clock.now)
        while len(self.model) > LIMITS.max_entries:
            self.model.popitem(last=False)

    @rule(owner=_OWNERS, name=_IDS)
    def get(self, owner: str, name: str) -> None:
        self.sweep()
        expected = self.model.get((owner, name))
        if expected is not None:
            self.model.move_to_end((owner, name))
        assert self.wait(self.store.get(owner, name)) == (expected[0] if expected else None)

    @rule(owner=_OWNERS, name=_IDS)
    def delete(self, owner: str, name: str) -> None:
        self.sweep()
        expected = self.model.pop((owner, name), None) is not None
        assert self.wait(self.store.delete(owner, name)) is expected

    @rule(seconds=st.sampled_from([1, 40, 100]))
    def pass_time(self, seconds: int) -> None:
        self.clock.now += seconds

    @invariant()
    def nothing_is_pending(self) -> None:
        assert self.wait(self.store.pending()) == ()

    def teardown(self) -> None:
        self.laws.close_stores()
        self.loop.close()


def _item(name: str, text: str = "x") -> bytes:
    return b'{"id":"' + name.encode() + b'","text":"' + text.encode() + b'"}'


class ConversationStoreLaws(StoreLaws[ConversationStore]):
    """Be the laws of a conversation store."""

    def test_life_of_a_conversation(self) -> None:
        """Create, append, read, update, delete an item, delete."""

        async def test(store: ConversationStore, _: ManualClock) -> None:
            made = StoredConversation(id="c", owner="key-1", created_at=3, metadata={"a": "b"})
            assert await store.create(made, (_item("1"),))
            assert await store.append("key-1", "c", (_item("2"), _item("3")))
            assert await store.items("key-1", "c") == (_item("1"), _item("2"), _item("3"))
            assert await store.items("anonymous", "c") is None
            changed = await store.update("key-1", "c", {"x": "y"})
            assert changed is not None
            assert await store.get("key-1", "c") == changed
            assert changed.metadata == {"x": "y"}
            assert await store.delete_item("key-1", "c", "2")
            assert not await store.delete_item("key-1", "c", "2")
            assert await store.items("key-1", "c") == (_item("1"), _item("3"))
            assert await store.delete("key-1", "c")
            assert await store.get("key-1", "c") is None

        self.run(LIMITS, test)

    def test_appending_creates_and_nothing_appended_creates_nothing(self) -> None:
        """Any id works on first append."""

        async def test(store: ConversationStore, _: ManualClock) -> None:
            assert not await store.append("anonymous", "n", ())
            assert await store.get("anonymous", "n") is None
            assert await store.append("anonymous", "n", (_item("1"),))
            assert await store.items("anonymous", "n") == (_item("1"),)

        self.run(LIMITS, test)

    def test_time_to_live_counts_from_creation(self) -> None:
        """Appending does not renew it."""

        async def test(store: ConversationStore, clock: ManualClock) -> None:
            await store.append("anonymous", "c", (_item("1"),))
            clock.now += 99
            await store.append("anonymous", "c", (_item("2"),))
            clock.now += 1
            assert await store.get("anonymous", "c") is None

        self.run(LIMITS, test)

    def test_the_least_recently_used_goes_first(self) -> None:
        """Reading counts as use."""

        async def test(store: ConversationStore, _: ManualClock) -> None:
            for name in "abcd":
                await store.append("anonymous", name, (_item("1"),))
            await store.get("anonymous", "a")
            await store.append("anonymous", "e", (_item("1"),))
            assert await store.get("anonymous", "b") is None
            assert await store.get("anonymous", "a") is not None

        self.run(LIMITS, test)

    def test_a_conversation_that_outgrows_the_budget_goes_alone(self) -> None:
        """The others stay."""

        async def test(store: ConversationStore, _: ManualClock) -> None:
            await store.append("anonymous", "small", (_item("1"),))
            await store.append("anonymous", "big", (_item("1"),))
            assert not await store.append("anonymous", "big", (_item("2", "y" * 20_000),))
            assert await store.get("anonymous", "big") is None
            assert await store.get("anonymous", "small") is not None

        self.run(StoreLimits(max_entries=4, max_bytes=10_000, ttl_seconds=0), test)

    def test_turns_of_many_writers_never_interleave(self) -> None:
        """A turn of three items stays together."""

        async def test(store: ConversationStore, _: ManualClock) -> None:
            turns = [tuple(_item(f"{turn}-{part}") for part in range(3)) for turn in range(20)]
            await asyncio.gather(*(store.append("anonymous", "c", turn) for turn in turns))
            found = await store.items("anonymous", "c")
            assert found is not None
            groups = [found[at : at + 3] for at in range(0, len(found), 3)]
            assert sorted(groups) == sorted(turns)

        self.run(LIMITS, test)
