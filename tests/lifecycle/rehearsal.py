"""A preparation that does what a test says, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pegboard_contracts.converters import Report
from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import ConversionOptions
from pegboard_contracts.models import ModelEntry, Phase


class Rehearsal:
    """Stand in for a preparation, step by step as the test says."""

    def __init__(self) -> None:
        self.made: list[Rehearsed] = []
        self.refusal: ApiError | None = None
        self.needs_converter = True

    def __call__(self, entry: ModelEntry, *further: Any) -> Rehearsed:
        one = Rehearsed(self, entry, *further[2:5])
        self.made.append(one)
        return one

    @property
    def last(self) -> Rehearsed:
        return self.made[-1]


class Rehearsed:
    def __init__(
        self,
        rehearsal: Rehearsal,
        entry: ModelEntry,
        options: ConversionOptions,
        operation_id: str,
        on_report: Any,
    ) -> None:
        self.operation_id = operation_id
        self.model = entry.id
        self.fields: dict[str, Any] = {"path": f"models/{entry.id}", "weight_format": "int8"}
        for name in ("group_size", "ratio", "sym"):
            self.fields[name] = getattr(options, name)
        self.taken: bool | None = None
        self.cleaned = False
        self.report: Callable[[Report], None] = on_report
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rehearsal = rehearsal

    @property
    def needs_converter(self) -> bool:
        return self._rehearsal.needs_converter

    async def check(self) -> None:
        await asyncio.sleep(0)
        if self._rehearsal.refusal is not None:
            raise self._rehearsal.refusal

    async def run(self) -> Rehearsed:
        try:
            await self.end
        finally:
            await asyncio.sleep(0)
            self.cleaned = True
        return self

    async def finish(self, *, taken: bool) -> None:
        await asyncio.sleep(0)
        self.taken = taken


def report(one: Rehearsed, phase: Phase, **fields: Any) -> None:
    one.report(Report(phase=phase, **fields))
