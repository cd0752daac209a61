"""The endpoint that compacts a history and stores nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from pegboard_contracts.generation import GenerationRequest
from pegboard_contracts.principal import Principal

from pegboard_routes._responses.compaction import (
    DEFAULT_SUMMARY_TOKENS,
    CompactionOrder,
    compact,
    context_exceeded,
)
from pegboard_routes._responses.desk import Desk
from pegboard_routes._responses.intake import new_response_id
from pegboard_routes._responses.items import AnyItem, item_id, wire_items
from pegboard_routes._responses.request import CompactRequest
from pegboard_routes._responses.response_object import (
    CompactedResponse,
    OutputCompaction,
    plain_usage,
)
from pegboard_routes._responses.settings import Settings
from pegboard_routes._responses.translation import tools_of


async def compacted(
    desk: Desk, body: CompactRequest, principal: Principal, settings: Settings
) -> CompactedResponse:
    """Summarize the history in a body.

    Raises `ApiError` 400 `context_length_exceeded` when it is longer than the context, or
    as `compaction.compact` does.
    """
    tools = tools_of(body, settings)
    shown = await desk.intake.shown(body, principal.owner)

    def make_request(items: Sequence[AnyItem]) -> GenerationRequest:
        return desk.intake.show(body, tools, principal, items)

    before = await desk.generator.count(make_request(shown.all))
    context = desk.context_tokens(body.model)
    if context is not None and before > context:
        message = (
            f"The history has {before} tokens and the model's context {context}; it must fit to "
            "be compacted."
        )
        raise context_exceeded(message)
    order = CompactionOrder(
        items=shown.all,
        before=before,
        context_tokens=context,
        keep_tokens=body.keep_tokens,
        summary_tokens=body.max_output_tokens or DEFAULT_SUMMARY_TOKENS,
        always=settings.compact_short_histories,
    )
    compaction = await compact(desk.generator, order, make_request)
    identifier = new_response_id()
    kept: list[AnyItem] = [*compaction.instructions, *compaction.retained]
    capsule = OutputCompaction(
        id=item_id("compaction", identifier, len(kept)), encrypted_content=compaction.sealed
    )
    return CompactedResponse(
        id=identifier,
        created_at=int(time.time()),
        model=compaction.model,
        output=[*wire_items(kept, identifier), msgspec.to_builtins(capsule)],
        usage=plain_usage(compaction.usage),
    )
