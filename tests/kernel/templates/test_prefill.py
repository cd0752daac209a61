"""A continued answer: the prompt ends exactly behind the assistant's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.conversation import Conversation, Message, TextPart, ToolCall
from pegboard_contracts.engine import TemplateSource
from pegboard_contracts.errors import ApiError
from pegboard_kernel.templates import LITERAL_MARK, render_prompt

if TYPE_CHECKING:
    from tests.kernel.templates.conftest import Chat

# gpt_oss and the like open a channel before the text: what counts is the end.
FAMILIES = (
    "chatml",
    "deepseek_r1",
    "gemma",
    "generation_tag",
    "gemma3",
    "glm",
    "gpt_oss",
    "llama3_1",
    "mistral",
    "parts_only",
    "phi3_5",
    "phi4_mini",
    "qwen2_5",
    "qwen3",
    "qwen3_coder",
)


@pytest.mark.parametrize("text", ["The answer is", "The answer is ", "line\n\n", "{", "."])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_prompt_ends_with_the_text(chat: Chat, family: str, text: str) -> None:
    prompt = chat.render(family, chat.say("user", "q"), chat.say("assistant", text), continued=True)
    assert prompt.endswith(text)


def test_templates_that_trim_open_the_turn_as_ever(chat: Chat) -> None:
    prompt = chat.render(
        "gemma", chat.say("user", "q"), chat.say("assistant", "a  "), continued=True
    )
    assert prompt == "<bos><start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\na  "


def test_an_empty_text_opens_a_turn(chat: Chat) -> None:
    prompt = chat.render("chatml", chat.say("user", "q"), chat.say("assistant"), continued=True)
    assert prompt == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"


def test_two_last_turns_are_continued_as_one_where_they_become_one(chat: Chat) -> None:
    turns = (chat.say("user", "q"), chat.say("assistant", "a"), chat.say("assistant", "b"))
    assert chat.render("gemma", *turns, continued=True).endswith("model\na\n\nb")
    assert chat.render("chatml", *turns, continued=True).endswith("assistant\nb")


def test_earlier_equal_texts_are_not_taken_for_the_last(chat: Chat) -> None:
    turns = [chat.say("user", "same"), chat.say("assistant", "same")] * 2
    assert chat.render("chatml", *turns, continued=True).count("same") == 4


def test_a_text_that_a_template_writes_twice_is_cut_at_the_end(chat: Chat) -> None:
    source = TemplateSource(template="{{ messages[0].content }}, {{ messages[0].content }}.")
    assert chat.render(source, chat.say("assistant", "a"), continued=True) == "a, a"


def test_no_suffix_follows_a_continued_answer(chat: Chat) -> None:
    template = "{% for m in messages %}{{ m.content }}|{% endfor %}"
    source = TemplateSource(template=template, prompt_suffix="<think>\n")
    turns = (chat.say("user", "q"), chat.say("assistant", "a"))
    assert chat.render(source, *turns, continued=True) == "q|a"


def test_only_an_assistant_text_can_be_continued(chat: Chat) -> None:
    for last in (chat.say("user", "q"), chat.calls(ToolCall("c", "add", "{}"))):
        with pytest.raises(ApiError, match="continued") as caught:
            chat.render("qwen3", chat.say("user", "q"), last, continued=True)
        assert caught.value.status == 400


def test_a_template_that_leaves_the_text_out_says_so(chat: Chat) -> None:
    source = TemplateSource(template="{{ messages[0].content }}")
    with pytest.raises(ApiError, match="leaves out") as caught:
        chat.render(source, chat.say("user", "q"), chat.say("assistant", "a"), continued=True)
    assert (caught.value.status, caught.value.code) == (400, "chat_template_error")


@given(text=st.text().filter(lambda text: LITERAL_MARK not in text and "\U0010fffc" not in text))
def test_any_text_is_continued_exactly(text: str) -> None:
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    conversation = Conversation(
        messages=(Message(role="assistant", content=(TextPart(text),)),), continue_last=True
    )
    prompt = render_prompt(
        TemplateSource(template=template), conversation, special_texts=frozenset({"<|end|>"})
    )
    assert prompt.replace(LITERAL_MARK, "") == "<|assistant|>" + text
