"""What the kernel adds to a request under a schema, and what it remembers."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import OutputFormat
from pegboard_contracts.structured_outputs import CompiledOutput
from pegboard_kernel.engines.remembered import Remembered
from pegboard_kernel.generation.guarantees import Guarantees
from pegboard_structured_outputs.json_schema import JsonSchema
from pegboard_tool_formats.hermes import Hermes

from tests.kernel.runtime import MODEL, board, request, serving

PROPERTIES = {f"field_{index}": {"type": "string", "maxLength": 20} for index in range(30)}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": list(PROPERTIES)}


class CountingSchema(JsonSchema):
    """Count how often it compiles."""

    compiled = 0

    def compile(self, value: Any) -> CompiledOutput:
        type(self).compiled += 1
        return super().compile(value)


def test_the_second_use_costs_under_two_milliseconds(tmp_path: Path) -> None:
    CountingSchema.compiled = 0
    guarantees = Guarantees(replace(board(), structured_outputs={"json_schema": CountingSchema()}))
    wanted = request("x", output_format=OutputFormat(kind="json_schema", value=SCHEMA))
    tool = Tool(name="f", parameters=SCHEMA)
    forced = request("x", tools=(tool,), tool_choice=ToolChoice(mode="required"))
    hermes = Hermes()
    hermes.name = "hermes"

    async def scenario() -> list[float]:
        async with serving(tmp_path, {"rules": []}) as runtime:
            loaded = runtime.directory.record(MODEL).loaded
            assert loaded is not None
            seconds: list[float] = []
            for _ in range(40):
                begun = time.process_time()
                first = await guarantees.settle(wanted, (), None, loaded.pair)
                second = await guarantees.settle(forced, (tool,), hermes, loaded.pair)
                seconds.append(time.process_time() - begun)
                assert first.constraint is not None
                assert second.constraint is not None
            return seconds

    seconds = asyncio.run(scenario())
    assert CountingSchema.compiled == 1
    assert statistics.median(seconds[1:]) < 0.002


def test_equal_schemas_are_compiled_once_even_at_the_same_time() -> None:
    made: list[str] = []

    async def make() -> str:
        made.append("x")
        await asyncio.sleep(0)
        return "value"

    async def scenario() -> list[str]:
        remembered: Remembered[str] = Remembered(2)
        values = await asyncio.gather(*(remembered.get("a", make) for _ in range(5)))
        for key in ("b", "c", "a"):
            await remembered.get(key, make)
        return values

    assert asyncio.run(scenario()) == ["value"] * 5
    assert len(made) == 4


@pytest.mark.parametrize(("status", "times"), [(400, 1), (500, 2)])
def test_refusals_are_remembered_and_faults_are_not(status: int, times: int) -> None:
    made: list[int] = []

    async def fail() -> str:
        made.append(status)
        raise ApiError(status, "no")

    async def scenario() -> None:
        remembered: Remembered[str] = Remembered(2)
        for _ in range(2):
            with pytest.raises(ApiError):
                await remembered.get("a", fail)

    asyncio.run(scenario())
    assert len(made) == times
