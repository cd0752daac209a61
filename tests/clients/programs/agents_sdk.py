"""The agents SDK: tools, sessions kept as conversations, typed results, both transports."""

# mypy: disable-error-code="import-not-found, untyped-decorator"
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIProvider,
    RunConfig,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel

MODEL = "scripted"
asked: list[str] = []


class Person(BaseModel):
    name: str
    age: int


@function_tool
def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    asked.append(city)
    return "It is sunny"


@asynccontextmanager
async def running(*, websocket: bool = False) -> AsyncGenerator[tuple[Any, Any]]:
    """Give the client and what a run needs to use it."""
    asked.clear()
    async with AsyncOpenAI(
        base_url=os.environ["SERVER_URL"] + "/v1", api_key="dummy", max_retries=0
    ) as client:
        provider = OpenAIProvider(openai_client=client, use_responses_websocket=websocket)
        yield client, RunConfig(model_provider=provider, tracing_disabled=True)
        await provider.aclose()


def agent(**fields: Any) -> Any:
    return Agent(name="helper", instructions="be brief", model=MODEL, **fields)


async def check_a_tool_loop() -> None:
    async with running() as (_, config):
        result = await Runner.run(
            agent(
                tools=[get_weather],
                model_settings=ModelSettings(
                    tool_choice="required",
                    parallel_tool_calls=False,
                    max_tokens=100,
                    store=False,
                    reasoning=Reasoning(effort="low", summary="auto"),
                    response_include=["reasoning.encrypted_content"],
                ),
            ),
            "weather in Paris?",
            run_config=config,
        )
    assert (asked, result.final_output) == (["Paris"], "Sunny in Paris.")


async def check_a_streamed_tool_loop() -> None:
    async with running() as (_, config):
        result = Runner.run_streamed(agent(tools=[get_weather]), "weather", run_config=config)
        names = [event.name async for event in result.stream_events() if hasattr(event, "name")]
    assert (asked, result.final_output) == (["Paris"], "Sunny in Paris.")
    assert "tool_called" in names
    assert "tool_output" in names


async def check_a_tool_loop_through_a_chain() -> None:
    async with running() as (_, config):
        first = await Runner.run(agent(), "hello", run_config=config)
        second = await Runner.run(
            agent(tools=[get_weather]),
            "weather",
            run_config=config,
            previous_response_id=first.last_response_id,
            auto_previous_response_id=True,
        )
    assert (asked, second.final_output) == (["Paris"], "Sunny in Paris.")


async def check_a_session_is_a_conversation() -> None:
    async with running() as (client, config):
        session = OpenAIConversationsSession(openai_client=client)
        one = await Runner.run(
            agent(tools=[get_weather]), "weather", session=session, run_config=config
        )
        two = await Runner.run(agent(), "and now?", session=session, run_config=config)
        assert (one.final_output, two.final_output) == ("Sunny in Paris.", "and now?")
        kinds = [item["type"] for item in await session.get_items()]
        assert kinds.count("function_call") == kinds.count("function_call_output") == 1
        assert kinds.count("message") >= 5
        popped = await session.pop_item()
        assert popped["content"][0]["text"] == "and now?"
        assert len(await session.get_items()) == len(kinds) - 1
        await session.clear_session()


async def check_a_typed_result() -> None:
    async with running() as (_, config):
        result = await Runner.run(agent(output_type=Person), "a person", run_config=config)
    assert result.final_output == Person(name="Ada", age=36)


async def check_the_other_transport() -> None:
    async with running(websocket=True) as (_, config):
        result = await Runner.run(
            agent(tools=[get_weather]), "weather in Paris?", run_config=config
        )
        again = Runner.run_streamed(agent(), "still there?", run_config=config)
        kinds = {event.type async for event in again.stream_events()}
    assert (asked, result.final_output) == (["Paris"], "Sunny in Paris.")
    assert again.final_output == "still there?"
    assert "raw_response_event" in kinds
