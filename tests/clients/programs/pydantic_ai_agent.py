"""Pydantic AI over both APIs: tools, typed results, streams."""

# mypy: disable-error-code="import-not-found, untyped-decorator"
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Person(BaseModel):
    name: str
    age: int


def models() -> list[Any]:
    provider = OpenAIProvider(base_url=os.environ["SERVER_URL"] + "/v1", api_key="dummy")
    return [
        OpenAIResponsesModel("scripted", provider=provider),
        OpenAIChatModel("scripted", provider=provider),
    ]


def weather_agent(model: Any) -> Any:
    agent: Any = Agent(model, instructions="be brief")

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Tell the weather in a city."""
        return f"It is sunny in {city}"

    assert get_weather
    return agent


async def check_a_tool_loop() -> None:
    for model in models():
        result = await weather_agent(model).run("weather in Paris?")
        assert result.output == "Sunny in Paris."
        again = await weather_agent(model).run("thanks", message_history=result.all_messages())
        assert again.output == "thanks"


async def check_a_typed_result() -> None:
    for model in models():
        agent: Any = Agent(model, output_type=NativeOutput(Person))
        assert (await agent.run("a person")).output == Person(name="Ada", age=36)


async def check_a_stream() -> None:
    for model in models():
        agent: Any = Agent(model)
        async with agent.run_stream("hello there friend") as result:
            texts = [text async for text in result.stream_text(delta=True)]
        assert "".join(texts) == "hello there friend"
