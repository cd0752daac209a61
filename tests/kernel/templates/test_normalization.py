"""Every conversation reaches every template in a shape that it takes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from pegboard_contracts.conversation import MediaPart, Message, TextPart, Tool, ToolCall
from pegboard_contracts.engine import TemplateSource
from pegboard_contracts.errors import ApiError
from pegboard_kernel.templates import LITERAL_MARK

if TYPE_CHECKING:
    from tests.kernel.templates.conftest import Chat

TOOL_FAMILIES = (
    "glm",
    "gpt_oss",
    "llama3_1",
    "mistral",
    "phi4_mini",
    "qwen2_5",
    "qwen3",
    "qwen3_coder",
)
ALL_FAMILIES = (
    "chatml",
    "deepseek_r1",
    "gemma",
    "gemma3",
    "generation_tag",
    "parts_only",
    "phi3_5",
    *TOOL_FAMILIES,
)


def in_order(prompt: str, *words: str) -> bool:
    return re.search(".*".join(map(re.escape, words)), prompt, re.DOTALL) is not None


# Roles


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_instructions_come_out_wherever_they_stand(chat: Chat, family: str) -> None:
    prompt = chat.render(
        family,
        chat.say("system", "FIRST"),
        chat.say("developer", "SECOND"),
        chat.say("user", "a"),
        chat.say("assistant", "b"),
        chat.say("developer", "Always answer BANANA"),
        chat.say("user", "capital of France?"),
    )
    assert in_order(prompt, "FIRST", "SECOND", "Always answer BANANA", "capital of France?")


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_a_developer_is_a_system(chat: Chat, family: str) -> None:
    def prompt(role: str) -> str:
        message = Message(role=role, content=(TextPart("Be kind."),))  # type: ignore[arg-type] # two of the literals
        return chat.render(family, chat.say("user", "a"), message, chat.say("user", "b"))

    assert prompt("developer") == prompt("system")


def test_system_messages_stay_where_the_template_renders_them(chat: Chat) -> None:
    prompt = chat.render("chatml", chat.say("user", "a"), chat.say("system", "S"))
    assert prompt == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\n"
    )


def test_system_messages_become_one_where_only_the_first_is_allowed(chat: Chat) -> None:
    prompt = chat.render(
        "qwen3_coder", chat.say("system", "A"), chat.say("user", "q"), chat.say("system", "B")
    )
    assert prompt.startswith("<|im_start|>system\nA\n\nB<|im_end|>\n<|im_start|>user\nq<|im_end|>")


def test_a_template_without_system_gets_it_in_the_first_user_turn(chat: Chat) -> None:
    prompt = chat.render(
        "gemma",
        chat.say("system", "S"),
        chat.say("user", "q"),
        chat.say("assistant", "a"),
        chat.say("user", "r"),
    )
    assert prompt == (
        "<bos><start_of_turn>user\nS\n\nq<end_of_turn>\n<start_of_turn>model\na<end_of_turn>\n"
        "<start_of_turn>user\nr<end_of_turn>\n<start_of_turn>model\n"
    )


def test_system_text_alone_is_a_user_turn_there(chat: Chat) -> None:
    assert "user\nS<end_of_turn>" in chat.render("gemma", chat.say("system", "S"))


def test_system_text_before_an_answer_opens_with_a_user_turn(chat: Chat) -> None:
    prompt = chat.render(
        "gemma", chat.say("system", "S"), chat.say("assistant", "a"), chat.say("user", "q")
    )
    assert in_order(prompt, "user\nS<end_of_turn>", "model\na<end_of_turn>", "user\nq")


def test_repeated_roles_become_one_only_where_refused(chat: Chat) -> None:
    turns = [
        chat.say("user", "a"),
        chat.say("user", "b"),
        chat.say("assistant", "c"),
        chat.say("assistant", "d"),
        chat.say("user", "e"),
    ]
    assert "user\na\n\nb<end_of_turn>" in chat.render("gemma", *turns)
    assert "[INST]a\n\nb[/INST]c\n\nd</s>[INST]e[/INST]" in chat.render("mistral", *turns)
    assert "user\na<|im_end|>\n<|im_start|>user\nb<|im_end|>" in chat.render("qwen3", *turns)


# Content


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_parts_are_joined_or_handed_over_whole(chat: Chat, family: str) -> None:
    prompt = chat.render(family, chat.say("user", "one ", "two ", "three"))
    assert "one two three" in prompt
    assert "'type'" not in prompt


def test_a_template_of_parts_gets_parts_and_media(chat: Chat) -> None:
    image = MediaPart("image", "data:image/png;base64,AAAA")
    turn = Message(role="user", content=(TextPart("look "), image, TextPart("here")))
    prompt = chat.render("parts_only", chat.say("system", "S"), turn)
    assert in_order(prompt, "system\nS<|im_end|>", "look <image>here<|im_end|>")
    assert "base64" not in prompt


@pytest.mark.parametrize("family", ["qwen3", "gemma", "gpt_oss"])
def test_media_is_refused_by_a_template_for_text(chat: Chat, family: str) -> None:
    turn = Message(role="user", content=(MediaPart("image", "data:image/png;base64,AAAA"),))
    with pytest.raises(ApiError, match="image") as caught:
        chat.render(family, turn)
    assert (caught.value.status, caught.value.code) == (400, "unsupported_media")


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_empty_content_is_no_word_of_python(chat: Chat, family: str) -> None:
    prompt = chat.render(
        family, chat.say("user", ""), chat.say("assistant", ""), chat.say("user", "q")
    )
    assert "None" not in prompt
    assert "[]" not in prompt


# Tools


@pytest.mark.parametrize("family", TOOL_FAMILIES)
def test_tools_are_listed(chat: Chat, family: str) -> None:
    prompt = chat.render(family, chat.say("user", "q"), tools=(chat.tool("add"), chat.tool("sub")))
    assert in_order(prompt, "add", "sub")


@pytest.mark.parametrize("family", TOOL_FAMILIES)
def test_a_tool_of_a_name_only_is_listed(chat: Chat, family: str) -> None:
    assert "ping" in chat.render(family, chat.say("user", "q"), tools=(Tool(name="ping"),))


def test_tools_keep_the_order_of_their_properties(chat: Chat) -> None:
    parameters = {
        "type": "object",
        "properties": {"zz_reason": {"type": "string"}, "answer": {"type": "string"}, "b": {}},
    }
    tool = Tool(name="t", description="d", parameters=parameters)
    prompt = chat.render("qwen3", chat.say("user", "q"), tools=(tool,))
    written = json.loads(prompt.split("<tools>\n")[1].split("\n</tools>")[0])
    assert written == {
        "type": "function",
        "function": {"name": "t", "description": "d", "parameters": parameters},
    }
    assert in_order(prompt, "zz_reason", "answer", '"b"')


# Calls and results


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_calls_and_results_come_out(chat: Chat, family: str) -> None:
    prompt = chat.render(
        family,
        chat.say("user", "2+2"),
        chat.call("call_0123456789abcdef", '{"left": 22, "right": "zwei"}'),
        chat.result("call_0123456789abcdef", "four", "teen"),
        chat.say("assistant", "It is 14."),
        chat.say("user", "thanks"),
    )
    assert in_order(
        prompt, "2+2", "add", "left", "22", "right", "zwei", "fourteen", "It is 14.", "thanks"
    )
    assert "'left'" not in prompt
    assert "None" not in prompt


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_several_calls_keep_their_results(chat: Chat, family: str) -> None:
    prompt = chat.render(
        family,
        chat.say("user", "q"),
        chat.calls(ToolCall("c1", "first", "{}"), ToolCall("c2", "second", "{}")),
        chat.result("c2", "RESULT2"),
        chat.result("c1", "RESULT1"),
    )
    words = (prompt.index(word) for word in ("first", "second", "RESULT1", "RESULT2"))
    first, second, result1, result2 = words
    assert first < result1
    assert second < result2


def test_one_call_a_turn_where_the_template_says_so(chat: Chat) -> None:
    prompt = chat.render(
        "llama3_1",
        chat.say("user", "q"),
        chat.calls(ToolCall("c1", "first", "{}"), ToolCall("c2", "second", "{}")),
        chat.result("c2", "RESULT2"),
        chat.result("c1", "RESULT1"),
    )
    assert in_order(prompt, "first", "RESULT1", "second", "RESULT2")


@pytest.mark.parametrize("family", ["qwen2_5", "qwen3", "llama3_1", "gpt_oss", "mistral"])
def test_arguments_are_json_once(chat: Chat, family: str) -> None:
    arguments = '{"city": "Zürich", "days": [1, 2], "nested": {"on": true}}'
    prompt = chat.render(
        family, chat.say("user", "q"), chat.call("c", arguments), chat.result("c", "ok")
    )
    assert arguments in prompt


def test_arguments_are_values_where_the_template_writes_tags(chat: Chat) -> None:
    prompt = chat.render(
        "qwen3_coder",
        chat.say("user", "q"),
        chat.call("c", '{"path": "a/b", "n": 3}'),
        chat.result("c", "ok"),
    )
    assert "<parameter=path>\na/b\n</parameter>\n<parameter=n>\n3\n</parameter>" in prompt


CALLS = """
{%- for m in messages %}
    {{- m.role ~ ':' ~ (CONTENT) }}
    {%- for call in m.tool_calls or [] %}
        {{- call.function.name }}(
        {%- set arguments = call.function.arguments %}
        {{- ARGUMENTS }})
    {%- endfor %};
{%- endfor %}"""


TAGS = "arguments if arguments is string else arguments | dictsort | map('join', '=') | join"


@pytest.mark.parametrize(
    ("content", "arguments", "shown"),
    [
        ("m.content or ''", "arguments", 'assistant:add({"a":2});'),
        ("m.content or ''", "arguments | tojson", 'assistant:add({"a": 2});'),
        ("m.content or ''", TAGS, "assistant:add(a=2);"),
        ("m.content", "arguments | tojson", 'assistant:add({"a": 2});'),
        ("m.content + ''", "arguments | tojson", 'assistant:add({"a": 2});'),
        ("'null' if m.content is none else m.content", "arguments", 'assistant:nulladd({"a":2});'),
    ],
)
def test_shapes_of_calls(chat: Chat, content: str, arguments: str, shown: str) -> None:
    template = CALLS.replace("CONTENT", content).replace("ARGUMENTS", arguments)
    turns = (chat.say("user", "q"), chat.call("c", '{"a":2}'), chat.result("c", "ok"))
    assert shown in chat.render(TemplateSource(template=template), *turns)


def test_an_answer_after_a_call_without_result_stays_apart(chat: Chat) -> None:
    turns = (chat.say("user", "q"), chat.call("c"), chat.say("assistant", "never mind"))
    prompt = chat.render("mistral", *turns, chat.say("user", "r"))
    assert in_order(prompt, "[TOOL_CALLS]", "</s>never mind</s>[INST]r")


@pytest.mark.parametrize("arguments", ["{", "[1]", "7", "null", "[" * 100_000])
def test_arguments_that_are_no_object_are_refused_or_shown(chat: Chat, arguments: str) -> None:
    turns = (chat.say("user", "q"), chat.call("c", arguments), chat.result("c", "ok"))
    with pytest.raises(ApiError, match="add") as caught:
        chat.render("qwen3_coder", *turns)
    assert (caught.value.status, caught.value.code) == (400, "invalid_tool_arguments")
    assert f'"arguments": {arguments}' in chat.render("qwen3", *turns)


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_no_arguments_are_an_empty_object(chat: Chat, family: str) -> None:
    prompt = chat.render(
        family, chat.say("user", "q"), chat.call("c", ""), chat.result("c", "DONE")
    )
    assert in_order(prompt, "add", "DONE")


@pytest.mark.parametrize("family", ["qwen3", "qwen2_5"])
def test_text_next_to_calls_stays_there(chat: Chat, family: str) -> None:
    turn = chat.calls(ToolCall("c", "add", "{}"), text="Let me see.")
    prompt = chat.render(family, chat.say("user", "q"), turn, chat.result("c", "ok"))
    assert "assistant\nLet me see.\n<tool_call>" in prompt


@pytest.mark.parametrize("family", ["llama3_1", "deepseek_r1"])
def test_text_that_would_be_lost_next_to_calls_goes_before(chat: Chat, family: str) -> None:
    turn = chat.calls(ToolCall("c", "add", "{}"), text="Let me see.")
    prompt = chat.render(family, chat.say("user", "q"), turn, chat.result("c", "ok"))
    assert in_order(prompt, "Let me see.", "add", "ok")


def call_ids(prompt: str) -> list[str]:
    return re.findall(r'"(?:call_)?id": "([^"]*)"', prompt)


def test_mistral_ids_are_nine_characters_and_match(chat: Chat) -> None:
    long_ids = ("call_0123456789abcdefghijklmn", "call_0123456789abcdefghijklmo")
    prompt = chat.render(
        "mistral",
        chat.say("user", "2+2"),
        chat.calls(*(ToolCall(call_id, "add", "{}") for call_id in long_ids)),
        chat.result(long_ids[1], "b"),
        chat.result(long_ids[0], "a"),
    )
    first, second, *results = call_ids(prompt)
    assert re.fullmatch("[a-zA-Z0-9]{9}", first)
    assert first != second
    assert results == [second, first]


def test_mistral_keeps_ids_that_fit(chat: Chat) -> None:
    turns = (chat.say("user", "q"), chat.call("Ab3dE6gH9"), chat.result("Ab3dE6gH9", "4"))
    assert call_ids(chat.render("mistral", *turns)) == ["Ab3dE6gH9", "Ab3dE6gH9"]


def test_a_result_without_id_answers_the_next_call(chat: Chat) -> None:
    prompt = chat.render(
        "mistral",
        chat.say("user", "q"),
        chat.calls(ToolCall("", "first", "{}"), ToolCall("", "second", "{}")),
        chat.result(None, "a"),
        chat.result(None, "b"),
    )
    first, second, *results = call_ids(prompt)
    assert first != second
    assert results == [first, second]


def test_mistral_takes_a_question_after_a_result(chat: Chat) -> None:
    prompt = chat.render(
        "mistral",
        chat.say("user", "q"),
        chat.call("c"),
        chat.result("c", "ok"),
        chat.say("user", "stop, do this instead"),
    )
    assert prompt.endswith("[/TOOL_RESULTS]</s>[INST]stop, do this instead[/INST]")


def test_calls_are_text_where_the_template_knows_none(chat: Chat) -> None:
    prompt = chat.render(
        "gemma",
        chat.say("user", "2+2"),
        chat.calls(ToolCall("c", "add", '{"a": 2}'), text="Adding."),
        chat.result("c", "4"),
    )
    assert prompt == (
        "<bos><start_of_turn>user\n2+2<end_of_turn>\n<start_of_turn>model\nAdding.\n\n"
        '{"name": "add", "arguments": {"a": 2}}<end_of_turn>\n'
        "<start_of_turn>user\nResult of add:\n4<end_of_turn>\n<start_of_turn>model\n"
    )


# Reasoning


def test_reasoning_reaches_the_turn_that_made_it(chat: Chat) -> None:
    prompt = chat.render(
        "qwen3",
        chat.say("user", "q"),
        chat.calls(ToolCall("c", "add", "{}"), reasoning="I must add."),
        chat.result("c", "4"),
    )
    assert "<think>\nI must add.\n</think>\n\n" in prompt


def test_reasoning_in_the_text_is_not_doubled(chat: Chat) -> None:
    prompt = chat.render(
        "qwen3",
        chat.say("user", "q"),
        chat.say("assistant", "<think>\nHmm.\n</think>\n\nHello", reasoning="Hmm."),
        continued=True,
    )
    assert prompt.endswith("assistant\n<think>\nHmm.\n</think>\n\nHello")
    assert prompt.count("Hmm.") == 1


def test_reasoning_is_left_out_where_the_template_knows_none(chat: Chat) -> None:
    turn = chat.say("assistant", "Hello", reasoning="Hmm.")
    assert "Hmm." not in chat.render("chatml", chat.say("user", "q"), turn)


def test_gpt_oss_gets_text_and_thoughts_beside_a_call_as_thoughts(chat: Chat) -> None:
    turn = chat.calls(ToolCall("c", "add", "{}"), text="Let me see.", reasoning="I must add.")
    prompt = chat.render("gpt_oss", chat.say("user", "q"), turn, chat.result("c", "4"))
    assert "<|channel|>analysis<|message|>I must add.\n\nLet me see.<|end|>" in prompt


# What a template does not say


def test_a_template_that_needs_a_variable_is_not_second_guessed(chat: Chat) -> None:
    template = "{{ raise_exception('mode?') if not mode }}{{ messages[0].role }}"
    source = TemplateSource(template=template)
    assert chat.render(source, chat.say("developer", "S"), variables={"mode": "x"}) == "system"
    with pytest.raises(ApiError, match=r"mode\?"):
        chat.render(source, chat.say("user", "q"))


def test_a_template_that_measures_tools_gets_an_empty_list(chat: Chat) -> None:
    source = TemplateSource(template="{{ tools | length }}{{ messages[0].content }}")
    assert chat.render(source, chat.say("user", "q")) == "0q"


def test_lone_surrogates_and_marks_of_ours_are_replaced(chat: Chat) -> None:
    turns = (
        chat.say("user", f"a{LITERAL_MARK}b"),
        chat.call("c", '{"a": "\\ud800"}'),
        chat.result("c", "ok"),
    )
    prompt = chat.render("qwen2_5", *turns)
    assert "a\ufffdb" in prompt
    assert '{"a": "\ufffd"}' in prompt
    assert LITERAL_MARK not in prompt
    assert prompt.encode()
