"""Whatever is done to models in whatever order: no illegal state, no lost lease, no untruth."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Awaitable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import ConversionOptions
from pegboard_contracts.models import ModelState, ModelView, Phase
from pegboard_kernel.models.record import TRANSITIONS

from tests.kernel.runtime import Heard, until
from tests.lifecycle.house import House, children, house
from tests.lifecycle.rehearsal import Rehearsal, report

T = TypeVar("T")

MODELS = st.sampled_from(["one", "two"])
DEVICES = st.sampled_from([None, "CPU", "GPU"])
ENDED = {Phase.READY, Phase.CANCELLED, Phase.ERROR}
RULES: list[dict[str, Any]] = [
    {"match": "die", "pieces": ["a ", "b"], "exit_after": 1},
    {"match": "long", "pieces": ["x "], "repeat": 30, "delay_ms": 10},
]
SCRIPTS: dict[str, dict[str, Any]] = {
    "whole": {"rules": RULES},
    "slow": {"rules": RULES, "load_delay_ms": 400},
    "broken": {"rules": RULES, "load_error": "It is broken."},
}


class Faults(logging.Handler):
    """Collect what the kernel logs as a fault of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


class Lives(RuleBasedStateMachine):
    """Do anything to two models of one server."""

    @initialize()
    def begin(self) -> None:
        self.faults = Faults()
        logging.getLogger("pegboard_kernel").addHandler(self.faults)
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.rehearsal = Rehearsal()
        self.answers: list[asyncio.Task[Heard]] = []
        self.seen: dict[str, int] = {}
        scripts = {"one": SCRIPTS["whole"], "two": SCRIPTS["whole"]}
        entries = {"one": {"max_context_len": 2048}}
        self.stack = contextlib.AsyncExitStack()
        opened = house(Path(self.folder.name), scripts, entries=entries, prepare=self.rehearsal)
        self.home: House = self.run(self.stack.enter_async_context(opened))

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    def attempt(self, work: Coroutine[Any, Any, T]) -> T | ApiError:
        try:
            return self.run(work)
        except ApiError as refusal:
            told = refusal
        assert told.status < 500, told.message
        return told

    @rule(model=MODELS, name=st.sampled_from(sorted(SCRIPTS)))
    def write(self, model: str, name: str) -> None:
        self.home.write(model, **SCRIPTS[name])

    @rule(model=MODELS, device=DEVICES, tokens=st.sampled_from([None, None, 1024, 2048]))
    def load(self, model: str, device: str | None, tokens: int | None) -> None:
        before = self.home.view(model)
        told = self.attempt(self.home.load(model, device=device, context_tokens=tokens))
        if before.can_load:
            assert isinstance(told, ModelView)
            assert told.state is ModelState.LOADING

    @rule(model=MODELS)
    def unload(self, model: str) -> None:
        before = self.home.view(model)
        told = self.attempt(self.home.lifecycle.unload(model))
        if before.can_unload:
            assert isinstance(told, ModelView)
            assert told.state is ModelState.UNLOADING
        elif isinstance(told, ModelView):
            assert told.state is before.state

    @rule(model=MODELS, after=st.booleans())
    def convert(self, model: str, after: bool) -> None:
        before = self.home.view(model)
        options = ConversionOptions(load_after=after)
        told = self.attempt(self.home.lifecycle.convert(model, options))
        if before.state in {ModelState.READY_TO_LOAD, ModelState.ERROR, ModelState.CANCELLED}:
            assert isinstance(told, ModelView)
            assert told.state is ModelState.QUEUED

    @rule(phase=st.sampled_from([Phase.DOWNLOADING, Phase.CONVERTING, Phase.FINALIZING]))
    def convert_on(self, phase: Phase) -> None:
        for one in self.rehearsal.made:
            report(one, phase, percent=50.0)

    @rule(well=st.booleans())
    def convert_to_the_end(self, well: bool) -> None:
        for one in self.rehearsal.made:
            if one.end.done():
                continue
            if well:
                one.end.set_result(None)
            else:
                one.end.set_exception(ApiError(500, "It failed.", code="conversion_failed"))
                one.end.exception()

    @rule(model=MODELS)
    def cancel(self, model: str) -> None:
        before = self.home.view(model)
        if before.progress is None:
            return
        told = self.attempt(self.home.lifecycle.cancel(model, before.progress.operation_id))
        if before.can_cancel and isinstance(told, ApiError):
            assert told.code == "task_finished"
        if not isinstance(told, ApiError):
            progress = told.view.progress
            assert progress is not None
            assert progress.phase is Phase.CANCELLED
            assert told.already_cancelled is not before.can_cancel

    @rule(model=MODELS, tokens=st.sampled_from([1024, 2048, 4096]))
    def context(self, model: str, tokens: int) -> None:
        expected = self.home.lifecycle.budget(model).configured_context_tokens
        assert expected is not None
        told = self.attempt(self.home.lifecycle.change_context(model, tokens, expected))
        budget = self.home.lifecycle.budget(model)
        if isinstance(told, ApiError):
            assert budget.configured_context_tokens == expected
        else:
            assert budget.configured_context_tokens == tokens
            view = self.home.view(model)
            assert view.context_tokens in {None, tokens}

    @rule(model=MODELS, text=st.sampled_from(["hello", "long", "long", "die"]))
    def generate(self, model: str, text: str) -> None:
        async def begin() -> asyncio.Task[Heard]:
            return asyncio.ensure_future(self.home.ask(text, model))

        self.answers.append(self.run(begin()))

    @rule(model=MODELS)
    def delete(self, model: str) -> None:
        before = self.home.view(model)
        told = self.attempt(self.home.lifecycle.delete_files(model))
        if before.can_delete:
            assert not isinstance(told, ApiError)
        if before.state in {ModelState.LOADED, ModelState.LOADING, ModelState.UNLOADING}:
            assert isinstance(told, ApiError) or self.home.state(model) is not before.state

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.1, 0.5]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule(model=MODELS)
    def settle(self, model: str) -> None:
        if self.home.view(model).progress is not None and not self._prepares(model):
            self.run(asyncio.wait_for(self.home.lifecycle.settled(model), 30))

    def _prepares(self, model: str) -> bool:
        return any(not one.end.done() for one in self.rehearsal.made if one.model == model)

    @invariant()
    def nothing_shrinks(self) -> None:
        assert not self.faults.found, self.faults.found
        for view in self.home.directory.models():
            assert view.revision >= self.seen.get(view.entry.id, 0)
            self.seen[view.entry.id] = view.revision
            operation = self.home.directory.known(view.entry.id).operation
            if view.can_cancel:
                assert view.progress is not None
                assert operation is not None
                assert view.progress.operation_id == operation.id

    def teardown(self) -> None:
        try:
            self.run(asyncio.wait_for(self._end(), 60))
        finally:
            self.run(self.stack.aclose())
            self.runner.close()
            self.folder.cleanup()
            logging.getLogger("pegboard_kernel").removeHandler(self.faults)
        assert not self.faults.found, self.faults.found

    async def _end(self) -> None:
        for one in self.rehearsal.made:
            if not one.end.done():
                one.end.set_result(None)
        for heard in await asyncio.gather(*self.answers, return_exceptions=True):
            assert isinstance(heard, Heard | ApiError), heard
            if isinstance(heard, Heard):
                assert heard.text in {"hello", "x " * 30}, "a part of an answer is lost"
        for model in ("one", "two"):
            await self.home.lifecycle.settled(model)
            record = self.home.directory.known(model)
            assert record.loaded is None or record.loaded.pair.leases == 0, "a lease is lost"
            assert (record.loaded is not None) == (record.state is ModelState.LOADED)
        await until(lambda: len(children()) == 2 * self._loaded(), 20)
        self._check_the_story()

    def _loaded(self) -> int:
        return sum(view.state is ModelState.LOADED for view in self.home.directory.models())

    def _check_the_story(self) -> None:
        for model in ("one", "two"):
            told = [event for event in self.home.told() if event.model == model]
            for earlier, later in pairwise(told):
                assert earlier.data["revision"] < later.data["revision"] or (
                    earlier.type == "registered"
                )
            states = [ModelState(event.data["state"]) for event in told]
            for before, after in pairwise(states):
                assert before is after or after in TRANSITIONS[before]
            ends: dict[str, str] = {}
            for event in told:
                if (progress := event.data["progress"]) is None:
                    continue
                operation, phase = progress["operation_id"], progress["phase"]
                assert ends.get(operation, phase) == phase, "an end is overwritten"
                if Phase(phase) in ENDED:
                    ends[operation] = phase


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=int(os.environ.get("PEGBOARD_LIVES", "12")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
