"""What an answer must satisfy: the constraint that guarantees it, or the check behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.engine import ConstraintCost
from pegboard_contracts.errors import ApiError, invalid_request, not_supported
from pegboard_contracts.formats import ToolFormat
from pegboard_contracts.generation import Constraint, GenerationRequest, OutputFormat
from pegboard_contracts.grammar.combining import alternatives
from pegboard_contracts.structured_outputs import CompiledOutput, refuse_unenforced

from pegboard_kernel.board import Board
from pegboard_kernel.engines.engine_pair import EnginePair
from pegboard_kernel.engines.remembered import Remembered

T = TypeVar("T")

_REMEMBERED = 256
_TOKENS_PER_CALL = 256
_FEWEST_CALLS = 2
_CALL = ToolChoice(mode="required")


class Guarantee(msgspec.Struct, frozen=True, kw_only=True):
    """Carry the constraint, and the format that the finished answer is checked against."""

    constraint: Constraint | None = None
    checked: OutputFormat | None = None


class Guarantees:
    """Settle what requests demand; what was settled once is remembered by its text."""

    def __init__(self, board: Board) -> None:
        """Use the structured outputs of a board."""
        self._board = board
        self._outputs: Remembered[CompiledOutput] = Remembered(_REMEMBERED)
        self._calls: Remembered[Constraint | None] = Remembered(_REMEMBERED)

    def check_early(self, request: GenerationRequest) -> None:
        """Refuse what contradicts itself or what nobody here can do, whatever the model."""
        wanted = request.output_format
        if wanted is not None and wanted.kind not in self._board.structured_outputs:
            known = ", ".join(sorted(self._board.structured_outputs)) or "none"
            message = f"This kind of structured output is not installed; there are: {known}."
            raise not_supported(wanted.param, message)
        choice = request.tool_choice
        forced = choice.mode == "required"
        if wanted is not None and forced:
            message = (
                f"A forced tool choice and '{wanted.param}' exclude each other; leave one out."
            )
            raise invalid_request(message, param="tool_choice")
        offered = request.conversation.tools if request.conversation else ()
        strict = choice.mode == "auto" and any(tool.strict for tool in offered)
        if request.sampling.ignore_eos and (wanted is not None or forced or strict):
            message = "'ignore_eos' goes on behind the end of a guaranteed answer; leave it out."
            raise invalid_request(message, param="ignore_eos")

    async def settle(
        self,
        request: GenerationRequest,
        tools: tuple[Tool, ...],
        tool_format: ToolFormat | None,
        pair: EnginePair,
    ) -> Guarantee:
        """Compile what a request demands, and let the preparer try it.

        Raises `ApiError` 400 for what is malformed, cannot be guaranteed or is too slow,
        501 for an engine without grammars.
        """
        wanted, choice = request.output_format, _with_room(request)
        parallel = request.parallel_tool_calls
        calls = await self._call_constraint(tool_format, tools, choice, parallel=parallel)
        if wanted is None:
            if calls is not None:
                param = "tools" if choice.mode == "auto" else "tool_choice"
                await check_constraint(calls, pair, param)
            return Guarantee(constraint=calls)
        compiled = await self.compiled(wanted)
        if wanted.strict:
            refuse_unenforced(compiled.unenforced, wanted.param)
        constraint = compiled.constraint
        if tools and tool_format is not None:
            # The model may call a tool instead of giving the answer.
            calls = await self._call_constraint(tool_format, tools, _CALL, parallel=parallel)
            if calls is None or {calls.kind, constraint.kind} != {"ebnf"}:
                message = f"'{wanted.param}' and tools cannot be combined here; leave one out."
                raise invalid_request(message, param=wanted.param)
            grammar = alternatives((constraint.value, calls.value))
            constraint = Constraint(kind="ebnf", value=grammar)
        await check_constraint(constraint, pair, wanted.param)
        return Guarantee(constraint=constraint, checked=wanted if compiled.unenforced else None)

    async def compiled(self, wanted: OutputFormat) -> CompiledOutput:
        """Turn an output format into a constraint. Raises `ApiError` 400 with its `param`."""
        plugin = self._board.structured_outputs[wanted.kind]
        key = f"{wanted.kind}\n{json_text(wanted)}"

        async def make() -> CompiledOutput:
            return await asyncio.to_thread(plugin.compile, wanted.value)

        return await _placed(self._outputs.get(key, make), wanted.param)

    async def _call_constraint(
        self,
        tool_format: ToolFormat | None,
        tools: tuple[Tool, ...],
        choice: ToolChoice,
        *,
        parallel: bool,
    ) -> Constraint | None:
        needed = choice.mode == "required" or any(tool.strict for tool in tools)
        if not tools or not needed:
            return None
        if tool_format is None:
            raise not_supported("tool_choice")
        described = [(tool.name, tool.parameters, tool.strict) for tool in tools]
        chosen = (choice.mode, choice.names, choice.most_calls, parallel)
        key = _dumped((tool_format.name, chosen, described), "tools")

        async def make() -> Constraint | None:
            return await asyncio.to_thread(tool_format.constraint, tools, choice, parallel=parallel)

        return await _placed(self._calls.get(key, make), "tools")


def _with_room(request: GenerationRequest) -> ToolChoice:
    """Return the tool choice, with as many calls as a short answer has room for.

    Small models go on calling until they are cut off, and a call that is cut is worth nothing.
    """
    limit = request.max_output_tokens
    if limit is None:
        return request.tool_choice
    most = max(_FEWEST_CALLS, limit // _TOKENS_PER_CALL)
    return msgspec.structs.replace(request.tool_choice, most_calls=most)


def json_text(wanted: OutputFormat) -> str:
    """Return the JSON text of what an output format was given."""
    return _dumped(wanted.value, wanted.param)


def _dumped(value: Any, param: str) -> str:  # noqa: ANN401 - client data
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        message = f"'{param}' nests too deeply or is not JSON; simplify it."
        raise invalid_request(message, param=param, code="invalid_schema") from None


async def check_constraint(constraint: Constraint, pair: EnginePair, param: str) -> ConstraintCost:
    """Let the preparer try a constraint that the request's field `param` leads to.

    Raises `ApiError` 400 for one that is bad or too slow, 501 for an engine without grammars.
    """
    if not pair.info.grammar:
        message = f"This model's engine obeys no grammar, so '{param}' cannot be guaranteed."
        raise not_supported(param, message)
    return await _placed(pair.checks.check(constraint), param)


async def _placed(work: Coroutine[Any, Any, T], param: str) -> T:
    """Let a refusal that names no field name `param`."""
    try:
        return await work
    except ApiError as error:
        if error.param is not None:
            raise
        raise ApiError(
            error.status,
            error.message,
            code=error.code,
            param=param,
            retry_after=error.retry_after,
        ) from error
