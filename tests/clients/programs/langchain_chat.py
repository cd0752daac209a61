"""LangChain's chat model over the Responses API: tools, typed answers, streams, chains."""

# mypy: disable-error-code="import-not-found, untyped-decorator"
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"It is sunny in {city}"


def model(**fields: Any) -> Any:
    return ChatOpenAI(
        base_url=os.environ["SERVER_URL"] + "/v1",
        api_key="dummy",
        model="scripted",
        max_retries=0,
        **{"use_responses_api": True, **fields},
    )


def check_a_plain_answer() -> None:
    answer = model(max_tokens=50, temperature=0).invoke(
        [SystemMessage("be brief"), HumanMessage("hello there")]
    )
    assert answer.text == "hello there"
    assert answer.usage_metadata["total_tokens"] > 0
    assert answer.response_metadata["id"].startswith("resp_")


def tool_loop(chat: Any) -> str:
    bound = chat.bind_tools([get_weather])
    messages: list[Any] = [HumanMessage("weather in Paris?")]
    call = bound.invoke(messages)
    (wanted,) = call.tool_calls
    assert (wanted["name"], wanted["args"]) == ("get_weather", {"city": "Paris"})
    messages += [call, ToolMessage("It is sunny in Paris", tool_call_id=wanted["id"])]
    text: str = bound.invoke(messages).text
    return text


def check_a_tool_loop() -> None:
    assert tool_loop(model()) == "Sunny in Paris."


def check_a_tool_loop_that_keeps_nothing() -> None:
    chat = model(store=False, include=["reasoning.encrypted_content"])
    assert tool_loop(chat) == "Sunny in Paris."


def check_a_tool_loop_on_the_chat_side() -> None:
    assert tool_loop(model(use_responses_api=False)) == "Sunny in Paris."


def check_a_chain_by_id() -> None:
    chat = model(use_previous_response_id=True)
    messages: list[Any] = [HumanMessage("hello")]
    messages.append(chat.invoke(messages))
    messages.append(HumanMessage("again"))
    assert chat.invoke(messages).text == "again"


def check_typed_answers() -> None:
    for method in ("json_schema", "json_mode"):
        typed = model().with_structured_output(Person, method=method)
        assert typed.invoke("a person, as JSON") == Person(name="Ada", age=36)


def check_a_streamed_answer() -> None:
    whole: Any = None
    texts: list[str] = []
    for chunk in model().stream("a story"):
        texts.append(chunk.text)
        whole = chunk if whole is None else whole + chunk
    assert "".join(texts) == whole.text == "Once upon a time."
    assert len([text for text in texts if text]) > 1
    assert whole.usage_metadata["output_tokens"] == 3


def check_a_streamed_call() -> None:
    whole: Any = None
    for chunk in model().bind_tools([get_weather]).stream("weather"):
        whole = chunk if whole is None else whole + chunk
    (wanted,) = whole.tool_calls
    assert wanted["args"] == {"city": "Paris"}


async def check_the_asynchronous_side() -> None:
    chat = model()
    answer = await chat.ainvoke("hello there")
    assert answer.text == "hello there"
    assert "".join([chunk.text async for chunk in chat.astream("hello there")]) == "hello there"
