"""Bring messages into the shape that a chat template takes.

The rules, each applied only where the template needs it:

- `developer` is `system`. System messages stay where they are if they come out there;
  else they become one, in order, at the front; a template without system messages gets
  that text at the start of the first user turn.
- Calls and results stay calls and results; a template that does not show them gets the
  calls as lines of JSON in the assistant's text and the results as user turns.
- Several calls in a turn are split into turns of one call, each followed by its result.
- Text next to calls becomes an assistant turn before them. It is left out where neither
  that nor the turn as it is can be rendered, as such a template does itself.
- Turns of one role that follow each other become one, a blank line between them. Where a
  question may not follow a result, an empty answer stands between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace
from pegboard_contracts.conversation import Message, TextPart, ToolCall

from pegboard_kernel.templates.capabilities import CallStyle, Capabilities

Messages = tuple[Message, ...]

_SHORT_ID_LENGTH = 9
_BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"

_Item = TypeVar("_Item")


def fit_messages(messages: Messages, capabilities: Capabilities) -> Messages:
    """Return the messages as the template takes them. Never raises."""
    fitted = tuple(
        replace(message, role="system") if message.role == "developer" else message
        for message in messages
    )
    if capabilities.calls is None:
        fitted = _calls_as_text(fitted)
    if not capabilities.any_system:
        fitted = _gather_system(fitted, has_system=capabilities.system)
    if not capabilities.repeated_roles:
        fitted = _merge_repeated(fitted)
    if capabilities.calls is not None:
        fitted = _fit_calls(fitted, capabilities.calls, repeated=capabilities.repeated_roles)
    return fitted


def _joined(first: Message, second: Message) -> Message:
    """Return the first message with everything of the second behind it."""
    blank_line = (TextPart("\n\n"),) if first.content and second.content else ()
    thoughts = [part for part in (first.reasoning, second.reasoning) if part]
    return replace(
        first,
        content=(*first.content, *blank_line, *second.content),
        reasoning="\n\n".join(thoughts) or None,
        tool_calls=(*first.tool_calls, *second.tool_calls),
    )


def _gather_system(messages: Messages, *, has_system: bool) -> Messages:
    """Move all system text to the front, as a system message or into the first user turn."""
    system, others = _partition(messages, lambda message: message.role == "system")
    if not system:
        return messages
    gathered = system[0]
    for message in system[1:]:
        gathered = _joined(gathered, message)
    if has_system:
        return (gathered, *others)
    gathered = replace(gathered, role="user", name=None)
    if others and others[0].role == "user":
        return (replace(_joined(gathered, others[0]), name=others[0].name), *others[1:])
    return (gathered, *others)


def _merge_repeated(messages: Messages) -> Messages:
    """Join turns of one role; a turn of calls takes text before it, never behind it."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        mergeable = last is not None and last.role == message.role and last.role != "tool"
        if last is not None and mergeable and not last.tool_calls:
            merged[-1] = _joined(last, message)
        else:
            merged.append(message)
    return tuple(merged)


def _calls_as_text(messages: Messages) -> Messages:
    """Write calls as lines of JSON and results as user turns."""
    names: dict[str | None, str] = {}
    written: list[Message] = []
    for message in messages:
        names.update((call.call_id, call.name) for call in message.tool_calls)
        if message.tool_calls:
            lines = TextPart("\n".join(map(_call_line, message.tool_calls)))
            told = _joined(message, Message(role="assistant", content=(lines,)))
            written.append(replace(told, tool_calls=()))
        elif message.role == "tool":
            name = message.name or names.get(message.tool_call_id)
            title = f"Result of {name}:\n" if name else "Result:\n"
            content = (TextPart(title), *message.content)
            written.append(Message(role="user", content=content))
        else:
            written.append(message)
    return tuple(written)


def _call_line(call: ToolCall) -> str:
    """Write a call as one JSON object; arguments that are no JSON stay a string."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = call.arguments
    return json.dumps({"name": call.name, "arguments": arguments}, ensure_ascii=False)


def _fit_calls(messages: Messages, style: CallStyle, *, repeated: bool) -> Messages:
    """Give calls and results their ids and names, and a turn only what it may hold."""
    fitted = _with_ids(messages, short=style.short_ids)
    if not style.parallel:
        fitted = tuple(_one_call_a_turn(fitted))
    if not style.text_beside:
        fitted = tuple(_text_before_calls(fitted, repeated=repeated))
    if not style.reasoning_beside_text:
        fitted = tuple(_text_into_reasoning(message) for message in fitted)
    if not style.question_after_result:
        fitted = tuple(_answer_results(fitted))
    return fitted


def _with_ids(messages: Messages, *, short: bool) -> Messages:
    """Translate ids the same way in calls and results; a result without one takes the next."""
    waiting: dict[str, str] = {}
    names: dict[str, str] = {}
    fitted: list[Message] = []
    for place, message in enumerate(messages):
        if message.tool_calls:
            calls = tuple(
                replace(call, call_id=call.call_id or f"call_{place}_{number}")
                for number, call in enumerate(message.tool_calls)
            )
            waiting.update((call.call_id, call.name) for call in calls)
            names.update((call.call_id, call.name) for call in calls)
            calls = tuple(replace(call, call_id=_call_id(call.call_id, short)) for call in calls)
            fitted.append(replace(message, tool_calls=calls))
        elif message.role == "tool":
            call_id = message.tool_call_id or next(iter(waiting), f"call_{place}_0")
            waiting.pop(call_id, None)
            name = message.name or names.get(call_id)
            fitted.append(replace(message, tool_call_id=_call_id(call_id, short), name=name))
        else:
            fitted.append(message)
    return tuple(fitted)


def _call_id(call_id: str, short: bool) -> str:
    """Return the id, or nine letters and digits that stand for it."""
    fits = len(call_id) == _SHORT_ID_LENGTH and call_id.isascii() and call_id.isalnum()
    if not short or fits:
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest())
    digits = ""
    for _ in range(_SHORT_ID_LENGTH):
        number, digit = divmod(number, len(_BASE_36))
        digits += _BASE_36[digit]
    return digits


def _one_call_a_turn(messages: Messages) -> Iterator[Message]:
    """Split turns of several calls, each call followed by its results."""
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if len(message.tool_calls) < 2:
            yield message
            continue
        results: Messages = ()
        while place < len(messages) and messages[place].role == "tool":
            results = (*results, messages[place])
            place += 1
        for number, call in enumerate(message.tool_calls):
            turn = Message(role="assistant") if number else message
            yield replace(turn, tool_calls=(call,))
            own, results = _partition(results, _answers(call))
            yield from own
        yield from results


def _answers(call: ToolCall) -> Callable[[Message], bool]:
    return lambda message: message.tool_call_id == call.call_id


def _text_before_calls(messages: Messages, *, repeated: bool) -> Iterator[Message]:
    """Make text next to calls a turn before them, where two assistant turns may follow."""
    for message in messages:
        if message.tool_calls and message.content:
            if repeated:
                yield replace(message, tool_calls=(), reasoning=None)
            message = replace(message, content=())  # noqa: PLW2901 - the rest of the turn
        yield message


def _text_into_reasoning(message: Message) -> Message:
    """Move text next to calls behind the reasoning, where a turn may not hold all three."""
    if not (message.tool_calls and message.reasoning and message.text):
        return message
    return replace(message, reasoning=f"{message.reasoning}\n\n{message.text}", content=())


def _answer_results(messages: Messages) -> Iterator[Message]:
    """Put an empty answer between a result and a question."""
    before = ""
    for message in messages:
        if before == "tool" and message.role == "user":
            yield Message(role="assistant")
        before = message.role
        yield message


def _partition(
    items: tuple[_Item, ...], belongs: Callable[[_Item], bool]
) -> tuple[tuple[_Item, ...], tuple[_Item, ...]]:
    """Split items into those that belong and the others, each in order."""
    return (
        tuple(item for item in items if belongs(item)),
        tuple(item for item in items if not belongs(item)),
    )
