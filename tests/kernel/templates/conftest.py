"""What the template tests share: real-shaped templates and short ways to say things."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace
from pegboard_contracts.conversation import (
    Conversation,
    Message,
    Role,
    TextPart,
    Tool,
    ToolCall,
)
from pegboard_contracts.engine import TemplateSource
from pegboard_kernel.templates import render_prompt

FAMILIES = Path(__file__).with_name("families")

SPECIAL_TEXTS = {
    "chatml": ("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    "qwen": ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>"),
    "llama3_1": (
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|python_tag|>",
    ),
    "mistral": (
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
    ),
    "gemma": ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
    "phi": ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|tool|>", "<|endoftext|>"),
    "gpt_oss": (
        "<|start|>",
        "<|message|>",
        "<|channel|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|constrain|>",
    ),
    "deepseek": ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<think>", "</think>"),
    "glm": ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    "parts": ("<|im_start|>", "<|im_end|>", "<image>"),
    "generation": ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
}

_TOKENS = {
    "llama3_1": ("<|begin_of_text|>", "<|eot_id|>"),
    "mistral": ("<s>", "</s>"),
    "gemma": ("<bos>", "<eos>"),
    "phi": ("", "<|endoftext|>"),
}


class Chat:
    """Say things and render them."""

    families = tuple(sorted(path.stem for path in FAMILIES.glob("*.jinja")))
    now = datetime(2026, 7, 26, 9, 30)  # noqa: DTZ001 - templates print local time

    @staticmethod
    @cache
    def source(family: str) -> TemplateSource:
        tokens = next((value for key, value in _TOKENS.items() if family.startswith(key)), ("", ""))
        text = (FAMILIES / f"{family}.jinja").read_text(encoding="utf-8")
        return TemplateSource(template=text, bos_token=tokens[0], eos_token=tokens[1])

    @staticmethod
    @cache
    def special_texts(family: str) -> frozenset[str]:
        return frozenset(
            next(texts for key, texts in SPECIAL_TEXTS.items() if family.startswith(key))
        )

    @staticmethod
    def say(role: Role, *texts: str, reasoning: str | None = None) -> Message:
        return Message(role=role, content=tuple(map(TextPart, texts)), reasoning=reasoning)

    @classmethod
    def calls(cls, *calls: ToolCall, text: str = "", reasoning: str | None = None) -> Message:
        turn = cls.say("assistant", *([text] if text else []), reasoning=reasoning)
        return replace(turn, tool_calls=calls)

    @classmethod
    def call(cls, call_id: str, arguments: str = '{"a": 2}', name: str = "add") -> Message:
        return cls.calls(ToolCall(call_id, name, arguments))

    @classmethod
    def result(cls, call_id: str | None, *texts: str) -> Message:
        return replace(cls.say("tool", *texts), tool_call_id=call_id)

    @staticmethod
    def tool(name: str = "add", description: str | None = "Add numbers.") -> Tool:
        parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
        return Tool(name=name, description=description, parameters=parameters)

    def render(
        self,
        family: str | TemplateSource,
        *messages: Message,
        special: frozenset[str] | None = None,
        tools: tuple[Tool, ...] = (),
        continued: bool = False,
        variables: dict[str, object] | None = None,
    ) -> str:
        if isinstance(family, TemplateSource):
            source, known = family, frozenset[str]()
        else:
            source, known = self.source(family), self.special_texts(family)
        conversation = Conversation(
            messages=messages,
            tools=tools,
            template_variables=variables or {},
            continue_last=continued,
        )
        special_texts = known if special is None else special
        return render_prompt(source, conversation, special_texts=special_texts, now=self.now)


@pytest.fixture(scope="session")
def chat() -> Chat:
    return Chat()
