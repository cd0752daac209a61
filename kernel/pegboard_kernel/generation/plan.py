"""What is settled before a request reaches the engine."""

from __future__ import annotations

from typing import Any

import msgspec
from pegboard_contracts.conversation import Conversation, Message, TextPart, Tool
from pegboard_contracts.engine import EngineInfo, FillMarks, Submission
from pegboard_contracts.errors import ApiError, invalid_request, not_supported
from pegboard_contracts.formats import Reader, ToolFormat, new_call_id
from pegboard_contracts.generation import PLAIN_SAMPLING, Constraint, GenerationRequest, Sampling
from pegboard_contracts.models import ModelEntry

from pegboard_kernel.engines.engine_pair import EnginePair
from pegboard_kernel.engines.frames import Prepared, PreparerInfo
from pegboard_kernel.generation.answer import Answer
from pegboard_kernel.generation.binding import Binding
from pegboard_kernel.generation.format_choice import FALLBACK, ModelFormats
from pegboard_kernel.generation.guarantees import Guarantee, Guarantees
from pegboard_kernel.generation.mending import Mend, MendingReader


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Hold everything one answer is made with.

    `closing_marker` closes a reasoning block that is over its budget, and is empty without
    one; `block_end` closes one that the model left open when it stopped. `end_texts` end
    the answer as stop strings do.
    """

    prompt: Prepared
    formats: ModelFormats
    sampling: Sampling
    max_output_tokens: int
    guarantee: Guarantee
    tools: tuple[Tool, ...]
    kept_tokens: tuple[str, ...]
    last_text: str
    closing_marker: str
    block_end: str
    end_texts: tuple[str, ...] = ()

    def mend(self, calls: MendingReader, least: int) -> Mend | None:
        """Say how a call that is broken goes on; see `MendingReader.mend`."""
        tool_format = self.formats.format_of(calls.reader)
        return None if tool_format is None else calls.mend(tool_format, self.tools, least)

    def submission(
        self,
        request_id: int,
        request: GenerationRequest,
        answer: Answer,
        constraint: Constraint | None,
    ) -> Submission:
        """Make the engine's order for what is left of `answer`, bound by `constraint`."""
        given, sampling = answer.token_ids, self.sampling
        if sampling.min_tokens and given:
            least = max(0, sampling.min_tokens - len(given))
            sampling = msgspec.structs.replace(sampling, min_tokens=least)
        return Submission(
            request_id=request_id,
            prompt_ids=self.prompt.ids + given,
            prompt_text=self.prompt.text,
            max_output_tokens=max(
                min(1, self.max_output_tokens), self.max_output_tokens - answer.output_tokens
            ),
            sampling=sampling,
            constraint=constraint,
            logprobs=request.top_logprobs is not None,
            top_logprobs=request.top_logprobs or 0,
            kept_tokens=self.kept_tokens,
            last_text=self.last_text,
            continued_tokens=len(given),
            continued_text="".join(answer.text),
            prompt_logprobs=request.prompt_logprobs,
        )


async def prepare(request: GenerationRequest, pair: EnginePair, formats: ModelFormats) -> Prepared:
    """Render and tokenize the prompt of a request.

    Raises `ApiError` 400 for what the template refuses, 501 for tools that nobody can read
    and for a suffix that the model cannot fill up to.
    """
    how: dict[str, Any] = {}
    if request.prompt_suffix is not None:
        _fill_marks(pair.template)
        how["suffix"] = request.prompt_suffix
    if not request.add_special_tokens:
        how["bare"] = True
    if request.prompt_ids is not None:
        return await pair.preparer.prepare_ids(list(request.prompt_ids), **how)
    if request.prompt_text is not None:
        return await pair.preparer.prepare_text(request.prompt_text, **how)
    if request.conversation is None:
        raise invalid_request("The request holds neither messages nor a prompt.")
    conversation = _fitted(request.conversation, request, formats, pair.template)
    return await pair.preparer.prepare_conversation(conversation)


async def make_plan(
    request: GenerationRequest,
    pair: EnginePair,
    formats: ModelFormats,
    entry: ModelEntry,
    guarantees: Guarantees,
) -> Plan:
    """Settle everything that can be refused, and prepare the prompt.

    Raises `ApiError`: 400 for a prompt that leaves no room or cannot be rendered, for
    logprobs beyond what the engine gives, for what cannot be guaranteed; 501 for what
    nobody here can guarantee.
    """
    info = pair.info
    tools = offered_tools(request)
    if request.tool_choice.mode == "required" and not tools:
        message = "'tool_choice' demands a call, but the request offers no such tool."
        raise invalid_request(message, param="tool_choice")
    _check_logprobs(request, info)
    closing_marker = _closing_marker(request, formats)
    tool_format = _format_to_tell(formats)
    guarantee = await guarantees.settle(request, tools, tool_format, pair)
    _check_beams(request, info, guarantee)
    prompt = await prepare(request, pair, formats)
    ends = () if request.prompt_suffix is None else _fill_marks(pair.template).ends
    limit = _output_limit(request, entry, info, len(prompt.ids))
    if (least := request.sampling.min_tokens or 0) > limit:
        message = f"'min_tokens' is {least}, but the answer may have at most {limit} tokens."
        raise invalid_request(message, param="min_tokens")
    return Plan(
        prompt=prompt,
        formats=formats,
        sampling=merged_sampling(request.sampling, info.sampling),
        max_output_tokens=limit,
        guarantee=guarantee,
        tools=tools,
        kept_tokens=(*formats.kept_tokens(tools=bool(tools)), *ends),
        last_text=_last_text(request, prompt),
        closing_marker=closing_marker,
        block_end=formats.reasoning_format.closing_marker if formats.reasoning_format else "",
        end_texts=ends,
    )


def new_answer(
    request: GenerationRequest, plan: Plan, formats: ModelFormats
) -> tuple[Answer, Binding]:
    """Make the fresh readers of one answer. A raw prompt is answered with raw text."""
    reasoning, binding = None, Binding(plan.guarantee.constraint)
    reasoning_format = formats.reasoning_format
    if request.conversation is not None and reasoning_format is not None:
        opened = reasoning_format.opened_by(plan.prompt.text)
        reasoning = reasoning_format.reader(opened=opened)
        binding = Binding(plan.guarantee.constraint, reasoning_format, opened=opened)
    answer = Answer(
        reasoning=reasoning,
        calls=_call_reader(plan, formats),
        stops=(*request.stop, *plan.end_texts),
        shown_stops=request.stop if request.include_stop else (),
        single_call=not request.parallel_tool_calls,
        budget_tokens=request.reasoning.budget_tokens if plan.closing_marker else None,
    )
    return answer, binding


def _call_reader(plan: Plan, formats: ModelFormats) -> Reader | None:
    if not plan.tools:
        return None
    if plan.guarantee.constraint is not None or plan.sampling.beams is not None:
        return formats.tool_reader(plan.tools, new_call_id)
    return MendingReader(lambda new_id: formats.tool_reader(plan.tools, new_id))


def offered_tools(request: GenerationRequest) -> tuple[Tool, ...]:
    """Return the tools that the model may call: none with `none`, the named ones with names."""
    choice = request.tool_choice
    if request.conversation is None or choice.mode == "none":
        return ()
    tools = request.conversation.tools
    if choice.names:
        return tuple(tool for tool in tools if tool.name in choice.names)
    return tools


def merged_sampling(asked: Sampling, own: Sampling) -> Sampling:
    """Fill what was not asked for from the model's own defaults, then from plain sampling."""
    merged: dict[str, Any] = {
        name: next(
            (
                value
                for source in (asked, own, PLAIN_SAMPLING)
                if (value := getattr(source, name)) is not None
            ),
            None,
        )
        for name in Sampling.__struct_fields__
    }
    merged["ignore_eos"] = asked.ignore_eos
    merged["seed"] = asked.seed
    merged["stop_token_ids"] = asked.stop_token_ids
    if asked.beams is not None:
        # A search of beams has no penalties; the model's own are for what is drawn.
        merged |= {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    return Sampling(**merged)


def _fitted(
    conversation: Conversation,
    request: GenerationRequest,
    formats: ModelFormats,
    template: PreparerInfo,
) -> Conversation:
    tools = offered_tools(request)
    if tools and not formats.reads_calls:
        message = f"This model's calls cannot be read: {formats.tool_reason}. Leave out 'tools'."
        raise not_supported("tools", message)
    messages = conversation.messages
    tool_format = _format_to_tell(formats)
    if tools and not template.supports_tools and tool_format is not None:
        text = tool_format.instructions(tools, request.tool_choice)
        if text:
            messages = _instructed(messages, text)
            tools = ()
    variables = conversation.template_variables
    effort = request.reasoning.effort
    if effort is not None and "reasoning_effort" not in variables:
        variables = {**variables, "reasoning_effort": effort}
    return msgspec.structs.replace(
        conversation, messages=messages, tools=tools, template_variables=variables
    )


def _format_to_tell(formats: ModelFormats) -> ToolFormat | None:
    return formats.tool_format or formats.candidates.get(FALLBACK)


def _instructed(messages: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    if messages and messages[0].role in ("system", "developer"):
        first = messages[0]
        content = (*first.content, TextPart("\n\n" + text))
        return (msgspec.structs.replace(first, content=content), *messages[1:])
    return (Message(role="system", content=(TextPart(text),)), *messages)


def _fill_marks(template: PreparerInfo) -> FillMarks:
    marks = template.source.fill_marks
    if marks is None:
        message = (
            "'suffix' needs a model with fill-in-the-middle tokens, which this model's vocabulary "
            "does not have. Leave it out, or ask a model that has them."
        )
        raise not_supported("suffix", message)
    return marks


def _check_logprobs(request: GenerationRequest, info: EngineInfo) -> None:
    asked = request.top_logprobs
    if asked is None:
        return
    param = "logprobs" if request.conversation is None else "top_logprobs"
    if info.top_logprobs is None:
        raise not_supported("logprobs", "This model gives no log probabilities.")
    if request.prompt_logprobs and info.prompt_logprobs_problem is not None:
        message = (
            "Log probabilities of the prompt cannot be had here; leave 'echo' or 'logprobs' out. "
            + info.prompt_logprobs_problem
        )
        raise not_supported("logprobs", message)
    if asked > info.top_logprobs:
        message = (
            f"This model gives at most {info.top_logprobs} alternatives for a token; set "
            f"'{param}' to {info.top_logprobs} or leave it out."
        )
        raise invalid_request(message, param=param)


def _check_beams(request: GenerationRequest, info: EngineInfo, guarantee: Guarantee) -> None:
    if request.sampling.beams is None:
        return
    if not info.beam_search:
        message = "This model's engine searches no beams; leave 'num_beams' out."
        raise not_supported("num_beams", message)
    if guarantee.constraint is not None:
        message = (
            "A beam search keeps to no grammar; leave 'num_beams' out, or the demanded form and "
            "'tool_choice'."
        )
        raise invalid_request(message, param="num_beams")
    if request.reasoning.budget_tokens is not None:
        message = "A beam search cannot be interrupted; leave the thinking budget out."
        raise invalid_request(message, param="num_beams")


def _closing_marker(request: GenerationRequest, formats: ModelFormats) -> str:
    if request.reasoning.budget_tokens is None or formats.reasoning_format is None:
        return ""
    marker = formats.reasoning_format.closing_marker
    if not marker:
        message = "This model's reasoning cannot be cut short; leave the thinking budget out."
        raise not_supported("thinking_budget_tokens", message)
    return marker


def _output_limit(
    request: GenerationRequest, entry: ModelEntry, info: EngineInfo, prompt_tokens: int
) -> int:
    if prompt_tokens == 0:
        raise invalid_request("The prompt is empty; it needs at least one token.", param="prompt")
    room = info.context_tokens - prompt_tokens
    if room < 1:
        message = (
            f"The prompt has {prompt_tokens} tokens and this model's context {info.context_tokens};"
            " it must leave room for at least one token. Shorten it."
        )
        param = "prompt" if request.conversation is None else "messages"
        raise ApiError(400, message, param=param, code="context_length_exceeded")
    if request.max_output_tokens == 0:
        return 0
    wanted = request.max_output_tokens or entry.max_output_tokens or room
    return min(wanted, entry.max_output_tokens or room, room)


def _last_text(request: GenerationRequest, prompt: Prepared) -> str:
    if request.conversation is None:
        return prompt.text
    for message in reversed(request.conversation.messages):
        if message.role in ("user", "tool"):
            return message.text
    return ""
