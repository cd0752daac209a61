"""Creating responses: what a client may send, and the object it gets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.responses.api import WEATHER, Api, Serve, text_of


def test_a_string_is_answered_and_kept(api: Api) -> None:
    made = api.create(input="hello there")
    assert (made["status"], text_of(made)) == ("completed", "hello there")
    assert made["usage"]["total_tokens"] == (
        made["usage"]["input_tokens"] + made["usage"]["output_tokens"]
    )
    assert "background" not in made
    assert api.get(made["id"]) == made


def test_every_path_works_without_v1(api: Api) -> None:
    made = api.post("/responses", model="scripted", input="a b").json()
    path = f"/responses/{made['id']}"
    assert api.http.get(path).json() == made
    assert api.http.get(f"{path}/input_items").json()["data"][0]["role"] == "user"
    assert api.http.post(f"{path}/cancel").json() == made
    count = api.post("/responses/input_tokens", model="scripted", input="a b").json()
    assert count["input_tokens"] == made["usage"]["input_tokens"]
    assert api.http.delete(path).json()["deleted"] is True
    assert api.http.get(path).status_code == 404


def test_c45_null_equals_absent_for_every_optional_field(api: Api) -> None:
    optional = [
        "background", "chat_template_kwargs", "context_management", "conversation",
        "frequency_penalty", "include", "instructions", "max_output_tokens", "max_tool_calls",
        "metadata", "parallel_tool_calls", "presence_penalty", "previous_response_id",
        "prompt_cache_key", "reasoning", "response_format", "safety_identifier", "seed", "stop",
        "store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools",
        "top_logprobs", "top_p", "truncation", "user", "lora_path", "lora_alpha",
    ]  # fmt: skip
    items: list[dict[str, Any]] = [
        {"type": "message", "id": None, "role": "user", "content": "hi", "status": None},
        {
            "type": "reasoning",
            "id": None,
            "summary": [],
            "content": None,
            "encrypted_content": None,
        },
        {"role": "user", "content": "again"},
    ]
    made = api.create(input=items, **dict.fromkeys(optional))
    assert text_of(made) == "again"


@pytest.mark.parametrize("field", ["model", "input"])
def test_c45_null_for_what_is_required_names_the_field(api: Api, field: str) -> None:
    status, error = api.refused(**{"input": "x", field: None})
    assert (status, error["param"]) == (400, field)


def test_c44_assistant_history_without_ids_is_taken(api: Api) -> None:
    api.create(
        input=[
            {"role": "system", "content": "S"},
            {"role": "user", "content": [{"type": "input_text", "text": "aa"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "bb"}]},
            {"type": "message", "role": "assistant", "content": "cc"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "dd"}]},
            {"role": "user", "content": "ee"},
        ]
    )
    prompt = api.prompts()[-1]
    places = [prompt.index(text) for text in ("S", "aa", "bb", "cc", "dd", "ee")]
    assert places == sorted(places)


def test_c46_developer_and_late_system_messages_reach_the_prompt(api: Api) -> None:
    api.create(
        instructions="I1",
        input=[
            {"role": "user", "content": "a"},
            {"role": "developer", "content": "Always answer BANANA"},
            {"role": "user", "content": "capital of France?"},
        ],
    )
    prompt = api.prompts()[-1]
    assert "I1" in prompt
    assert "BANANA" in prompt
    status, error = api.refused(input=[{"role": "banana", "content": "x"}])
    assert (status, error["param"]) == (400, "input.0.role")


def test_c47_tool_output_as_an_array_of_parts(api: Api) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "shot", "arguments": "{}"}
    parts = [
        {"type": "input_text", "text": "first"},
        {"type": "input_text", "text": "second"},
        {"type": "strange", "key": "kept"},
    ]
    user = {"role": "user", "content": "look"}
    api.create(
        input=[user, call, {"type": "function_call_output", "call_id": "c1", "output": parts}]
    )
    prompt = api.prompts()[-1]
    assert prompt.index("first") < prompt.index("second") < prompt.index("kept")
    outputs: list[Any] = ["", []]
    for output in outputs:
        out = {"type": "function_call_output", "call_id": "c1", "output": output}
        api.create(input=[user, call, out])
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    out = {"type": "function_call_output", "call_id": "c1", "output": [image]}
    status, error = api.refused(input=[user, call, out])
    assert (status, error["code"]) == (400, "unsupported_media")
    out = {"type": "function_call_output", "call_id": "nobody", "output": "x"}
    status, error = api.refused(input=[user, out])
    assert (status, error["param"]) == (400, "input.1.call_id")


@pytest.mark.parametrize(
    "kind",
    [
        "web_search", "file_search", "computer_use_preview", "code_interpreter",
        "image_generation", "mcp", "custom", "apply_patch", "function_shell", "namespace",
    ],
)  # fmt: skip
def test_c49_hosted_tools_are_refused_by_name(api: Api, kind: str) -> None:
    status, error = api.refused(input="hi", tools=[{"type": kind, "name": "n"}])
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert kind in error["message"]
    assert error["param"] == "tools.0.type"


def test_c49_unsupported_tools_can_be_left_out(serve: Serve) -> None:
    api = serve("--compat", "codex")
    inner = {**WEATHER, "name": "inner_tool"}
    tools = [
        WEATHER,
        {"type": "web_search"},
        {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "space", "tools": [inner]},
    ]
    made = api.create(input="weather", tools=tools)
    assert [tool["name"] for tool in made["tools"]] == ["get_weather", "inner_tool"]
    assert made["output"][0]["summary"][0]["text"] == "which city"
    assert made["output"][-1]["name"] == "get_weather"
    spaced = {"type": "namespace", "name": "space", "tools": [WEATHER]}
    (*_, call) = api.create(input="weather", tools=[spaced])["output"]
    assert (call["name"], call["namespace"]) == ("get_weather", "space")
    status, _ = api.refused(input="hi", tools=tools, tool_choice={"type": "web_search"})
    assert status == 400


@pytest.mark.parametrize("streamed", [False, True])
def test_c52_a_length_stop_is_incomplete(api: Api, streamed: bool) -> None:
    body = {"input": "essay", "max_output_tokens": 5}
    if streamed:
        last = api.stream(**body)[-1]
        assert last.name == "response.incomplete"
        made = last.data["response"]
    else:
        made = api.create(**body)
    assert made["status"] == "incomplete"
    assert made["incomplete_details"] == {"reason": "max_output_tokens"}
    assert made["completed_at"] is None
    assert made["output"][-1]["status"] == "incomplete"
    assert made["usage"]["output_tokens"] == 5


def test_c52_cut_thinking_has_no_empty_message(api: Api) -> None:
    made = api.create(input="think", max_output_tokens=2)
    assert [item["type"] for item in made["output"]] == ["reasoning"]
    assert made["usage"]["output_tokens_details"]["reasoning_tokens"] == 2


def test_c57_truncation_is_only_disabled(api: Api) -> None:
    status, error = api.refused(input="x", truncation="auto")
    assert (status, error["param"]) == (400, "truncation")
    status, error = api.refused(input="x " * 3000, truncation="disabled")
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "input")


def test_c58_parallel_calls_keep_their_identity(api: Api) -> None:
    events = api.stream(input="twice", tools=[WEATHER])
    calls = events[-1].data["response"]["output"]
    assert len({call["id"] for call in calls}) == len({call["call_id"] for call in calls}) == 2
    done = [e.data for e in events if e.name == "response.function_call_arguments.done"]
    assert [(e["item_id"], e["arguments"]) for e in done] == [
        (call["id"], call["arguments"]) for call in calls
    ]
    single = api.create(input="twice", tools=[WEATHER], parallel_tool_calls=False)
    assert [item["type"] for item in single["output"]] == ["function_call"]


def test_c60_output_and_its_replay_round_trip(api: Api) -> None:
    made = api.create(input="weather", tools=[WEATHER])
    assert [item["type"] for item in made["output"]] == ["reasoning", "message", "function_call"]
    part = made["output"][1]["content"][0]
    assert (part["annotations"], part["logprobs"]) == ([], [])
    assert set(made["usage"]["input_tokens_details"]) == {"cached_tokens", "cache_write_tokens"}
    call = made["output"][-1]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    again = api.create(
        input=[{"role": "user", "content": "weather"}, *made["output"], answer], tools=[WEATHER]
    )
    assert again["status"] == "completed"
    assert "sunny" in api.prompts()[-1]


def test_reasoning_is_replayed_sealed_too(api: Api) -> None:
    made = api.create(input="think", store=False, include=["reasoning.encrypted_content"])
    reasoning, message = made["output"]
    bare: dict[str, Any] = {
        "type": "reasoning",
        "summary": [],
        "encrypted_content": reasoning["encrypted_content"],
    }
    asked = {"role": "user", "content": "think"}
    again = {"role": "user", "content": "more"}
    counts = [
        api.post(
            "/v1/responses/input_tokens",
            model="scripted",
            input=[asked, thought, message, again],
        ).json()["input_tokens"]
        for thought in (reasoning, bare, {**bare, "encrypted_content": "abc"})
    ]
    assert counts[0] == counts[1] >= counts[2]


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("input.0", {"input": [{"type": "web_search_call"}]}),
        ("input.0.content.0", {"input": [{"role": "user", "content": [{"type": "nonsense"}]}]}),
        (
            "input.0.content.0",
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        ),
        (
            "input.0.content.0",
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        ),
        ("input.0", {"input": [{"role": "user"}]}),
        ("input", {"input": "  \n "}),
        ("input", {"input": []}),
        ("input", {"input": [{"role": "user", "content": "x"}] * 4097}),
        ("metadata", {"metadata": {str(n): "x" for n in range(17)}}),
        ("metadata.k", {"metadata": {"k": "x" * 5_000_000}}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("temperature", {"temperature": "hot"}),
        ("top_logprobs", {"top_logprobs": 21}),
        ("tool_choice", {"tool_choice": "sometimes"}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": {"type": "function", "name": "absent"}}),
        ("tools.0.name", {"tools": [{"type": "function"}]}),
        ("previous_response_id", {"previous_response_id": "resp_unknown"}),
        ("context_management.0.compact_threshold",
         {"context_management": [{"type": "compaction", "compact_threshold": 0}]}),
        ("input", {"input": [{"role": "user", "content": "x"},
                             {"type": "compaction", "encrypted_content": "e30="}]}),
        ("input.0.id", {"input": [{"type": "item_reference", "id": "msg_nobody"}]}),
    ],
)  # fmt: skip
def test_bad_fields_are_400_with_their_path(api: Api, param: str, fields: dict[str, Any]) -> None:
    status, error = api.refused(**{"input": "x", **fields})
    assert status == 400, error
    assert (error["param"] or "").startswith(param), error
    assert len(error["message"]) < 400


DEEP = b'{"model":"scripted","input":"x","metadata":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"x"', b"\xff", b'{"model":"scripted","input":' + b"[" * 10_000, DEEP],
)
def test_bodies_that_are_no_request_are_400(api: Api, body: bytes) -> None:
    for path in ("", "/compact", "/input_tokens"):
        response = api.http.post(f"/v1/responses{path}", content=body)
        assert response.status_code == 400, response.text


def test_formats_exclude_each_other(api: Api) -> None:
    status, _ = api.refused(
        input="x", text={"format": {"type": "text"}}, response_format={"type": "text"}
    )
    assert status == 400


def test_previous_and_conversation_exclude_each_other(api: Api) -> None:
    for path in ("/v1/responses", "/v1/responses/input_tokens"):
        status, _ = api.refused(path, input="x", previous_response_id="a", conversation="b")
        assert status == 400


def test_tool_choice_is_repeated_in_its_form(api: Api) -> None:
    for sent, echoed in (
        ("none", "none"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [
            {"type": "function", "name": "get_weather"}]}, None),
    ):  # fmt: skip
        made = api.create(input="hi", tools=[WEATHER], tool_choice=sent)
        assert made["tool_choice"] == (echoed or sent)
    nested = {"type": "function", "function": {"name": "get_weather"}}
    made = api.create(input="weather", tools=[WEATHER], tool_choice=nested)
    assert made["tool_choice"] == {"type": "function", "name": "get_weather"}


def test_sampling_and_limits_reach_the_engine(api: Api) -> None:
    api.create(input="q", temperature=0, top_p=0.5, seed=7, top_k=3, stop=["zzz"])
    sampling = api.http.get("/debug/scripted/scripted").json()["requests"][-1]["sampling"]
    assert (sampling["temperature"], sampling["seed"], sampling["top_k"]) == (0, 7, 3)


def test_input_items_are_listed_in_pages(api: Api) -> None:
    texts = ["a", "b", "c"]
    made = api.create(input=[{"role": "user", "content": text} for text in texts])
    path = f"/v1/responses/{made['id']}/input_items"
    newest = api.http.get(path, params={"limit": 2}).json()
    assert [item["content"][0]["text"] for item in newest["data"]] == ["c", "b"]
    assert newest["has_more"] is True
    rest = api.http.get(path, params={"after": newest["last_id"]}).json()
    assert [item["content"][0]["text"] for item in rest["data"]] == ["a"]
    oldest = api.http.get(path, params={"order": "asc"}).json()
    assert [item["content"][0]["text"] for item in oldest["data"]] == texts
    for bad in ({"limit": 0}, {"limit": "x"}, {"order": "up"}, {"after": "nobody"}):
        assert api.http.get(path, params=bad).status_code == 400


def test_plain_get_asks_for_an_upgrade(api: Api) -> None:
    response = api.http.get("/v1/responses")
    assert response.status_code == 426
    assert response.json()["error"]["code"] == "upgrade_required"


def test_unknown_models_are_404(api: Api) -> None:
    for path in ("", "/input_tokens", "/compact"):
        status, error = api.refused(f"/v1/responses{path}", model="absent", input="x y")
        assert (status, error["code"]) == (404, "model_not_found")


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("nested", [False, True])
def test_a_schema_binds_the_engine_and_is_repeated_flat(api: Api, nested: bool) -> None:
    fields = {"name": "answer", "strict": True, "schema": SCHEMA}
    form: dict[str, Any] | None = None
    if nested:
        form = {"type": "json_schema", "json_schema": fields}
    made = api.post(
        "/v1/responses",
        model="scripted",
        input='{"a":1}',
        text={"format": form or {"type": "json_schema", **fields}},
    ).json()
    assert made["text"]["format"] == {"type": "json_schema", "description": None, **fields}
    seen = api.http.get("/debug/scripted/scripted").json()["requests"][-1]
    assert seen["constraint"] is not None
    older = api.post(
        "/v1/responses",
        model="scripted",
        input='{"a":1}',
        response_format={"type": "json_schema", "json_schema": fields},
    )
    assert older.status_code == 200


@pytest.mark.parametrize("further", [{}, {"background": True}, {"stream": True}])
def test_a_schema_that_allows_nothing_is_refused_at_once(api: Api, further: dict[str, Any]) -> None:
    broken = {"type": "json_schema", "name": "x", "schema": {"type": "nonsense"}}
    status, error = api.refused(input="x", text={"format": broken}, **further)
    assert status == 400
    assert error["param"].startswith("text.format")
    compacting: dict[str, Any] = {
        "context_management": [{"type": "compaction", "compact_threshold": 9}]
    }
    status, _ = api.refused(input="x", text={"format": broken}, **further, **compacting)
    assert status == 400


def test_a_forced_call_and_a_schema_exclude_each_other(api: Api) -> None:
    form = {"type": "json_schema", "name": "x", "schema": SCHEMA}
    status, error = api.refused(
        input="weather", tools=[WEATHER], tool_choice="required", text={"format": form}
    )
    assert (status, error["param"]) == (400, "tool_choice")


def test_effort_is_repeated_and_reaches_the_template_on_request(serve: Serve) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}|{{ reasoning_effort }}"
    script = {"chat_template": template, "default": {"echo": True}}
    body = {"input": "x", "reasoning": {"effort": "high", "summary": "auto"}}
    plain, mapped = serve(script=script), serve("--map-reasoning-effort", script=script)
    for api, effort in ((plain, ""), (mapped, "high")):
        assert api.create(**body)["reasoning"] == body["reasoning"]
        assert api.prompts()[-1] == f"x|{effort}"
        api.create(**body, chat_template_kwargs={"reasoning_effort": "own"})
        assert api.prompts()[-1] == "x|own"


@pytest.mark.parametrize("streamed", [False, True])
def test_log_probabilities_come_when_they_are_included(serve: Serve, streamed: bool) -> None:
    script = {
        "default": {
            "pieces": ["a", "b"],
            "logprobs": [[-0.5, [["a", -0.5]]], [-1.5, [["c", -1.0]]]],
        }
    }
    api = serve(script=script)
    body = {"input": "x", "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    made = api.stream(**body)[-1].data["response"] if streamed else api.create(**body)
    logprobs = made["output"][0]["content"][0]["logprobs"]
    assert [(one["token"], one["logprob"]) for one in logprobs] == [("a", -0.5), ("b", -1.5)]
    assert logprobs[1]["top_logprobs"] == [{"token": "c", "logprob": -1.0, "bytes": [99]}]
    assert made["top_logprobs"] == 1
