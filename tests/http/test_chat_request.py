"""What a chat body asks of the generator, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.conversation import MediaPart, TextPart, Tool, ToolCall, ToolChoice
from pegboard_contracts.generation import OutputFormat, ReasoningOptions, Sampling

Wire = Callable[..., Any]

F = {"type": "function", "function": {"name": "f", "description": None, "strict": None}}
G = {"type": "function", "name": "g", "parameters": {"type": "object"}, "strict": True}


def test_sampling_fields_reach_the_request(wire: Wire) -> None:
    asked = wire().asked(
        temperature=0,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=-2,
        frequency_penalty=2,
        seed=7,
        ignore_eos=True,
        max_tokens=5,
        stop="END",
        parallel_tool_calls=False,
    )
    assert asked.sampling == Sampling(
        temperature=0,
        top_p=0.5,
        top_k=0,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=-2,
        frequency_penalty=2,
        seed=7,
        ignore_eos=True,
    )
    assert (asked.max_output_tokens, asked.stop) == (5, ("END",))
    assert not asked.parallel_tool_calls


def test_an_empty_top_p_leaves_the_likeliest_token(wire: Wire) -> None:
    assert 0 < wire().asked(top_p=0).sampling.top_p < 1e-3


def test_c45_null_equals_absent_for_every_optional_field(wire: Wire) -> None:
    from pegboard_routes._chat_request import ChatRequest  # noqa: PLC0415 - its fields' names

    optional = [name for name, field in ChatRequest.model_fields.items() if not field.is_required()]
    names = [*optional, *ChatRequest.refused, "service_tier", "user", "verbosity", "never_heard_of"]
    assert wire().asked(**dict.fromkeys(names)) == wire().asked()


@pytest.mark.parametrize("name", ["model", "messages"])
def test_c45_null_for_a_required_field_is_refused_by_name(wire: Wire, name: str) -> None:
    status, error = wire().refusal(**{name: None})
    assert (status, error["param"]) == (422, name)


def test_listed_and_unknown_fields_are_accepted_and_ignored(wire: Wire) -> None:
    ignored: dict[str, Any] = {
        "service_tier": "auto",
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_retention": "24h",
        "verbosity": "low",
        "never_heard_of": {"a": [1]},
    }
    assert wire().asked(**ignored) == wire().asked()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logit_bias", {"50256": -100}),
        ("best_of", 2),
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("lora_path", "/etc/passwd"),
        ("lora_alpha", 0.5),
        ("audio", {"voice": "a"}),
        ("modalities", ["text", "audio"]),
        ("prediction", {"type": "content", "content": "x"}),
        ("web_search_options", {}),
        ("store", True),
        ("typical_p", 0.5),
        ("xtc_probability", 0.5),
        ("max_length", 9),
        ("num_assistant_tokens", 3),
        ("bad_words", ["peg"]),
        ("documents", [{"text": "x"}]),
    ],
)
def test_known_fields_that_cannot_be_honoured_are_refused_by_name(
    wire: Wire, name: str, value: object
) -> None:
    status, error = wire().refusal(**{name: value})
    assert (status, error["type"], error["param"]) == (501, "not_supported_error", name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logit_bias", {}),
        ("store", False),
        ("modalities", ["text"]),
        ("typical_p", 1.0),
        ("stop_token_ids", []),
        ("num_beams", 1),
        ("length_penalty", 1.0),
    ],
)
def test_a_field_that_asks_for_what_happens_anyway_is_no_fault(
    wire: Wire, name: str, value: object
) -> None:
    assert wire().asked(**{name: value}) == wire().asked()


@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-38, 9e-6])
def test_a_temperature_that_leaves_nothing_to_chance_is_zero(
    wire: Wire, temperature: float
) -> None:
    assert wire().asked(temperature=temperature) == wire().asked(temperature=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 200),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", "5"),
        ("max_tokens", True),
        ("max_completion_tokens", 1.5),
        ("temperature", 2.1),
        ("temperature", -0.1),
        ("top_p", 1.1),
        ("min_p", -1),
        ("top_k", -2),
        ("frequency_penalty", 3),
        ("presence_penalty", -3),
        ("repetition_penalty", 0),
        ("seed", 2**63),
        ("seed", 1.5),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", [1]),
        ("stop", ["x"] * 17),
        ("stream", "yes"),
        ("stream", 1),
        ("logprobs", 3),
        ("top_logprobs", 21),
        ("messages", []),
        ("messages", {}),
        ("model", ""),
        ("model", 5),
        ("tools", [{"type": "function"}] * 129),
        ("tools", {}),
        ("tool_choice", "sometimes"),
        ("tool_choice", {"type": "function"}),
        ("tool_choice", 5),
        ("tool_choice", {"type": "allowed_tools", "mode": [], "tools": [F]}),
        ("tool_choice", {"type": "allowed_tools", "mode": "auto", "tools": []}),
        ("chat_template_kwargs", []),
        ("chat_template_kwargs", {"a": 2**64}),
        ("thinking_budget_tokens", -2),
        ("response_format", {}),
        ("response_format", "json"),
        ("response_format", {"type": "json_schema"}),
        ("reasoning_effort", 3),
    ],
)
def test_a_field_out_of_bounds_is_a_schema_error_at_that_field(
    wire: Wire, name: str, value: object
) -> None:
    status, error = wire().refusal(**{name: value})
    assert (status, error["type"]) == (422, "invalid_request_error")
    assert error["param"].split(".")[0] == name
    status, _ = wire(schema_status=400).refusal(**{name: value})
    assert status == 400


def test_logprobs_need_to_be_asked_for(wire: Wire) -> None:
    assert wire().asked().top_logprobs is None
    assert wire().asked(logprobs=True).top_logprobs == 0
    assert wire().asked(logprobs=True, top_logprobs=4).top_logprobs == 4
    status, _ = wire().refusal(top_logprobs=4)
    assert status == 422


def test_the_two_names_of_the_token_limit_are_one_limit(wire: Wire) -> None:
    assert wire().asked(max_completion_tokens=8).max_output_tokens == 8
    assert wire().asked(max_completion_tokens=8, max_tokens=128000).max_output_tokens == 8
    assert wire().asked(max_tokens=128000).max_output_tokens == 128000


def test_messages_of_every_role_and_content_form(wire: Wire) -> None:
    asked = wire().asked(
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "system", "content": [{"type": "text", "text": "sys"}]},
            {"role": "user", "content": [{"text": "a"}, {"type": "input_text", "text": "b"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": None, "function": {"name": "g", "arguments": {"a": 1}}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "r"}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"role": "assistant", "refusal": "never"},
            {"role": "user", "content": "x", "name": "ann"},
        ]
    )
    messages = asked.conversation.messages
    assert [m.role for m in messages[:3]] == ["developer", "system", "user"]
    assert [m.text for m in messages] == ["be brief", "sys", "ab", "", "r", "no", "never", "x"]
    assert messages[3].reasoning == "hm"
    assert messages[3].tool_calls == (ToolCall("c1", "f", "{}"), ToolCall("", "g", '{"a": 1}'))
    assert messages[4].tool_call_id == "c1"
    assert messages[7].name == "ann"
    assert not asked.conversation.continue_last


def test_an_assistant_message_at_the_end_is_continued(wire: Wire) -> None:
    user, prefill = {"role": "user", "content": "q"}, {"role": "assistant", "content": "The"}
    call = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]}
    assert wire().asked(messages=[user, prefill]).conversation.continue_last
    assert not wire().asked(messages=[user, call]).conversation.continue_last
    assert not wire().asked(messages=[user]).conversation.continue_last


def test_media_parts_keep_their_addresses(wire: Wire) -> None:
    asked = wire().asked(
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
                    {"type": "input_image", "image_url": "https://a/b.png"},
                    {"type": "input_audio", "input_audio": {"data": "BB", "format": "wav"}},
                    {"type": "file", "file": {"file_data": "data:text/plain,x"}},
                ],
            }
        ]
    )
    assert asked.conversation.messages[0].content == (
        TextPart("look"),
        MediaPart("image", "data:image/png;base64,AA"),
        MediaPart("image", "https://a/b.png"),
        MediaPart("audio", "data:audio/wav;base64,BB"),
        MediaPart("file", "data:text/plain,x"),
    )


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "banana", "content": "x"}, "messages.0.role"),
        ({"role": "user", "content": 5}, "messages.0.content"),
        ({"role": "user", "content": None}, "messages.0"),
        ({"role": "user"}, "messages.0"),
        ({"content": "x"}, "messages.0.role"),
        ({"role": "user", "content": [{"type": "hologram"}]}, "messages.0.content.0.type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.0.content.0"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "messages.0.content.0.text"),
        ({"role": "user", "content": ["x"]}, "messages.0.content.0"),
        (
            {"role": "assistant", "tool_calls": [{"id": "1"}]},
            "messages.0.tool_calls.0.function",
        ),
        ("x", "messages.0"),
    ],
)
def test_c46_a_bad_message_is_named_by_its_path(wire: Wire, message: object, param: str) -> None:
    status, error = wire().refusal(messages=[message])
    assert (status, error["param"]) == (422, param)
    assert "banana" not in error["message"]
    assert "hologram" not in error["message"]


def test_tools_nested_and_flat(wire: Wire) -> None:
    asked = wire().asked(tools=[F, G])
    assert asked.conversation.tools == (
        Tool(name="f"),
        Tool(name="g", parameters={"type": "object"}, strict=True),
    )
    assert wire().asked(tools=[]).conversation.tools == ()


def test_other_tool_types_are_refused_at_their_place(wire: Wire) -> None:
    status, error = wire().refusal(tools=[F, {"type": "web_search"}])
    assert (status, error["param"]) == (400, "tools.1.type")


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        (
            {"type": "function", "function": {"name": "f"}},
            ToolChoice(mode="required", names=("f",)),
        ),
        ({"type": "function", "name": "g"}, ToolChoice(mode="required", names=("g",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [F, G]}},
            ToolChoice(mode="auto", names=("f", "g")),
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [G]},
            ToolChoice(mode="required", names=("g",)),
        ),
    ],
)
def test_tool_choice_in_all_forms(wire: Wire, choice: object, wanted: ToolChoice) -> None:
    assert wire().asked(tools=[F, G], tool_choice=choice).tool_choice == wanted


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "required"},
        {"tool_choice": "required", "tools": []},
        {"tool_choice": {"type": "function", "name": "h"}, "tools": [F]},
        {"tool_choice": "required", "tools": [F], "response_format": {"type": "json_object"}},
    ],
)
def test_choices_that_cannot_be_served_are_400(wire: Wire, fields: dict[str, Any]) -> None:
    status, error = wire().refusal(**fields)
    assert (status, error["param"]) == (400, "tool_choice")


def test_response_formats(wire: Wire) -> None:
    schema = {"$schema": "x", "type": "object"}
    assert wire().asked(response_format={"type": "text"}).output_format is None
    assert wire().asked(response_format={"type": "json_object"}).output_format == OutputFormat(
        kind="json_object"
    )
    named: Any = {"type": "json_schema", "json_schema": {"name": "Out", "schema": schema}}
    assert wire().asked(response_format=named).output_format == OutputFormat(
        kind="json_schema", value=schema, name="Out", strict=False
    )
    named["json_schema"]["strict"] = True
    assert wire().asked(response_format=named).output_format == OutputFormat(
        kind="json_schema", value=schema, name="Out"
    )
    plugged = {"type": "regex", "regex": "a+"}
    assert wire().asked(response_format=plugged).output_format == OutputFormat(
        kind="regex", value="a+"
    )


@pytest.mark.parametrize(
    ("fields", "kind", "value"),
    [
        ({"guided_json": {"type": "object"}}, "json_schema", {"type": "object"}),
        ({"guided_json": '{"type": "object"}'}, "json_schema", {"type": "object"}),
        ({"guided_regex": "a+"}, "regex", "a+"),
        ({"guided_choice": ["a", "b"]}, "choice", ["a", "b"]),
        ({"guided_grammar": 'root ::= "a"'}, "grammar", 'root ::= "a"'),
        ({"structured_outputs": {"json": {"type": "object"}}}, "json_schema", {"type": "object"}),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+"),
        ({"structured_outputs": {"choice": ["a"], "x": 1}}, "choice", ["a"]),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "grammar", 'root ::= "a"'),
    ],
)
def test_fields_of_vllm_clients(
    wire: Wire, fields: dict[str, Any], kind: str, value: object
) -> None:
    found = wire().asked(**fields).output_format
    assert found == OutputFormat(kind=kind, value=value, strict=False, param=next(iter(fields)))
    assert wire().asked(structured_outputs={"json_object": True}).output_format == OutputFormat(
        kind="json_object", param="structured_outputs"
    )


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"guided_json": "{"}, 422, "guided_json"),
        ({"guided_choice": []}, 422, "guided_choice"),
        ({"structured_outputs": {}}, 422, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, 422, "structured_outputs"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, 400, "guided_choice"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, 400, "guided_regex"),
    ],
)
def test_an_answer_has_one_form(
    wire: Wire, fields: dict[str, Any], status: int, param: str
) -> None:
    refused, error = wire().refusal(**fields)
    assert (refused, error["param"]) == (status, param)


def test_reasoning_options_and_template_variables(wire: Wire) -> None:
    asked = wire().asked(reasoning_effort="high", thinking_budget=9, thinking_budget_tokens=3)
    assert asked.reasoning == ReasoningOptions(effort="high", budget_tokens=3)
    assert asked.conversation.template_variables == {"enable_thinking": True}
    off = wire().asked(reasoning_effort=" None", thinking_budget=-1)
    assert off.reasoning == ReasoningOptions()
    assert off.conversation.template_variables == {"enable_thinking": False}
    own = wire().asked(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True})
    assert own.conversation.template_variables == {"enable_thinking": True}
    status, error = wire().refusal(max_tokens=4, thinking_token_budget=5)
    assert (status, error["param"]) == (400, "thinking_budget_tokens")


def test_n_answers_differ_in_their_seeds(wire: Wire) -> None:
    chat = wire()
    chat.asked(n=3, seed=2**63 - 1)
    assert [r.sampling.seed for r in chat.generator.requests] == [2**63 - 1, 0, 1]
    chat = wire()
    chat.asked(n=2)
    assert [r.sampling.seed for r in chat.generator.requests] == [None, None]


def test_the_openapi_document_describes_body_and_answer_without_loose_ends(wire: Wire) -> None:
    route = wire().app.openapi()["paths"]["/v1/chat/completions"]["post"]
    assert "$ref" not in json.dumps(route)
    body = route["requestBody"]["content"]["application/json"]["schema"]
    assert {"model", "messages"} == set(body["required"])
    assert {"type": "string"} in body["properties"]["stop"]["anyOf"]
    answer = route["responses"]["200"]["content"]
    assert "choices" in answer["application/json"]["schema"]["properties"]
    assert "text/event-stream" in answer


def test_every_field_is_documented() -> None:
    from pegboard_routes._chat_request import ChatRequest  # noqa: PLC0415 - its fields' names

    page = Path(__file__).parents[2] / "docs" / "how-to" / "use-the-openai-sdk.md"
    text = page.read_text(encoding="utf-8")
    names = {*ChatRequest.model_fields, *ChatRequest.refused}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
