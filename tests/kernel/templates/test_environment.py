"""Templates run with Hugging Face semantics, and what they do wrong is a 400."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest
from pegboard_contracts.engine import TemplateSource
from pegboard_contracts.errors import ApiError
from pegboard_kernel.templates import supports_tools

if TYPE_CHECKING:
    from tests.kernel.templates.conftest import Chat


LOOP_CONTROLS = """
{%- for n in range(9) %}
    {%- if n == 1 %}{% continue %}{% endif %}
    {{- n }}
    {%- if n == 3 %}{% break %}{% endif %}
{%- endfor %}"""

NAMESPACE = """
{%- set ns = namespace(n=0) %}
{%- for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}
{{- ns.n }}"""

DOUBLING = """
{%- set ns = namespace(x='x') %}
{%- for n in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}
{{- ns.x }}"""

DOUBLING_BLOCK = """
{%- set ns = namespace(x='x') %}
{%- for n in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}
{{- ns.x }}"""


def rendered(chat: Chat, template: str, **variables: object) -> str:
    tokens = ("<s>", "</s>")
    source = TemplateSource(template=template, bos_token=tokens[0], eos_token=tokens[1])
    return chat.render(source, chat.say("user", "Hi"), variables=variables)


def refused(chat: Chat, template: str, **variables: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        rendered(chat, template, **variables)
    assert caught.value.status == 400
    assert caught.value.code == "chat_template_error"
    assert "/" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{{ value | tojson }}", '{"b": "<ü & \'>", "a": [1, null, true]}'),
        ("{{ value | tojson(sort_keys=true) }}", '{"a": [1, null, true], "b": "<ü & \'>"}'),
        (
            "{{ value | tojson(separators=(',', ':')) }}",
            '{"b":"<ü & \'>","a":[1,null,true]}',
        ),
        (
            "{{ value | tojson(ensure_ascii=true) }}",
            '{"b": "<\\u00fc & \'>", "a": [1, null, true]}',
        ),
        (
            "{{ value.a | tojson(indent=2) }}",
            "[\n  1,\n  null,\n  true\n]",
        ),
    ],
)
def test_tojson_writes_plain_json(chat: Chat, template: str, prompt: str) -> None:
    value = {"b": "<ü & '>", "a": [1, None, True]}
    assert rendered(chat, template, value=value) == prompt


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{% if true %}\n  a\n{% endif %}\nb", "  a\nb"),
        ("   {% set x = 1 %}\n{{ x }}", "1"),
        (LOOP_CONTROLS, "023"),
        ("{% generation %}a{{ bos_token }}{% endgeneration %}b", "a<s>b"),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2026"),
        ("{% macro now() %}{{ strftime_now('%Y') }}{% endmacro %}{{ now() }}", "2026"),
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("{{ nowhere }}{{ messages[0].nowhere }}|{{ nowhere is defined }}", "|False"),
        ("{{ tools is none }} {{ documents is none }}", "True True"),
        ("{{ add_generation_prompt }}", "True"),
        (NAMESPACE, "1"),
        ("{{ {'a': 1} | items | list }}", "[('a', 1)]"),
        ("{{ messages[0].content.upper() ~ '<&>' }}", "HI<&>"),
    ],
)
def test_semantics(chat: Chat, template: str, prompt: str) -> None:
    assert rendered(chat, template) == prompt


def test_template_variables_win_over_everything(chat: Chat) -> None:
    template = "{{ bos_token }}{{ add_generation_prompt }}{{ documents }}{{ enable_thinking }}"
    assert rendered(chat, template) == "<s>TrueNone"
    variables = {
        "bos_token": "<x>",
        "add_generation_prompt": False,
        "documents": ["d"],
        "enable_thinking": False,
    }
    prompt = rendered(chat, template, **variables)
    assert prompt == "<x>False['d']False"


def test_the_prompt_suffix_follows_the_rendering(chat: Chat) -> None:
    source = TemplateSource(template="{{ messages[0].content }}|", prompt_suffix="<think>\n")
    assert chat.render(source, chat.say("user", "Hi")) == "Hi|<think>\n"


def test_raise_exception_carries_the_templates_words(chat: Chat) -> None:
    error = refused(chat, "{{ raise_exception('Roles must alternate!') }}")
    assert "Roles must alternate!" in error.message


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% if %}", "line 1"),
        ("\n\n{{ messages", "line 3"),
        ("{% nosuchtag %}", "nosuchtag"),
        ("{{ messages[0].a.b }}", "has no attribute 'a'"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{{ nosuchfunction() }}", "'nosuchfunction' is undefined"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{% include 'other' %}", "no loader"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ range(1000000000) | length }}", "Range too big"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nests too deeply"),
        ("{{ " + "(" * 5000, "nests too deeply"),
        ("{{ strftime_now(1) }}", "strftime"),
    ],
)
def test_errors_carry_the_templates_words(chat: Chat, template: str, words: str) -> None:
    assert words in refused(chat, template).message


def test_other_errors_do_not_quote_the_conversation(chat: Chat) -> None:
    error = refused(chat, "{{ {}[messages] or messages[0].content.index('#') }}")
    assert "Hi" not in error.message


@pytest.mark.parametrize(
    "template",
    [
        DOUBLING,
        DOUBLING_BLOCK,
        "{{ 'x' * 10000000000 }}",
        "{{ ('x' * 1000000).replace('', 'y' * 1000000) }}",
        "{% for n in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
        "{{ '%99999999999d' % 1 }}",
        "{{ [1] * 10000000000 }}",
    ],
)
def test_a_template_that_hoards_memory_is_refused(chat: Chat, template: str) -> None:
    refused(chat, template)
    assert rendered(chat, "fine") == "fine"


def test_what_a_template_writes_is_bounded(chat: Chat) -> None:
    error = refused(chat, "{% for n in range(999) %}{{ 'x' * 99999 }}{% endfor %}")
    assert "writes more than" in error.message


def test_long_words_of_a_template_are_cut(chat: Chat) -> None:
    assert len(refused(chat, "{{ raise_exception('x' * 10000) }}").message) < 1000


def test_a_model_without_template_is_told_what_to_do(chat: Chat) -> None:
    with pytest.raises(ApiError) as caught:
        chat.render(TemplateSource(), chat.say("user", "Hi"))
    assert (caught.value.status, caught.value.code) == (400, "chat_template_missing")
    assert "/v1/completions" in caught.value.message


def test_templates_that_cannot_be_used_support_no_tools() -> None:
    assert not supports_tools(TemplateSource())
    assert not supports_tools(TemplateSource(template="{% if %}"))
    assert not supports_tools(TemplateSource(template="{{ raise_exception('no') }}"))


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.skipif(sys.platform == "win32", reason="no timers of processor time")
@pytest.mark.parametrize("template", [LOOP, "{% if tools %}" + LOOP + "{% endif %}"])
def test_a_template_that_loops_holds_no_probe_up(template: str) -> None:
    start = time.process_time()
    assert supports_tools(TemplateSource(template=template)) is ("tools" in template)
    assert time.process_time() - start < 4
    assert not supports_tools(TemplateSource(template="{{ messages[0].content }}"))


def test_the_template_for_tools_serves_conversations_with_tools(chat: Chat) -> None:
    source = TemplateSource(
        template="{{ messages[0].content }}",
        tool_template="{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
        "{{ messages | map(attribute='content') | join }}",
    )
    assert supports_tools(source)
    assert chat.render(source, chat.say("user", "Hi")) == "Hi"
    prompt = chat.render(source, chat.say("user", "Hi"), tools=(chat.tool("add"),))
    assert prompt == "addHi"
