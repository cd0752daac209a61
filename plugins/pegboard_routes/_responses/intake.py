"""From a body to an order: everything that can be refused before anything is generated."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pegboard_contracts.errors import invalid_request
from pegboard_contracts.generation import GenerationRequest
from pegboard_contracts.principal import Principal
from pegboard_contracts.stores import Turn

from pegboard_routes._responses.event_ladder import EventLadder
from pegboard_routes._responses.items import (
    AnyItem,
    CompactionTrigger,
    ItemReference,
    parse_items,
    response_of_item,
    wire_items,
)
from pegboard_routes._responses.lowering import refuse_orphans
from pegboard_routes._responses.registry import LiveResponses
from pegboard_routes._responses.request import InputBody, ResponsesRequest
from pegboard_routes._responses.settings import Settings
from pegboard_routes._responses.shelf import Shelf, Transcripts
from pegboard_routes._responses.tools import OfferedTools
from pegboard_routes._responses.translation import (
    draft,
    generation_request,
    input_request,
    ladder_options,
    tools_of,
)


def new_response_id() -> str:
    """Make the id of a response."""
    return f"resp_{secrets.token_hex(16)}"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a model is to see: the history before, and the items of this request.

    `compacts` asks for a compaction item and no answer.
    """

    history: tuple[Turn, ...]
    earlier: list[AnyItem]
    items: list[AnyItem]
    compacts: bool = False

    @property
    def all(self) -> list[AnyItem]:
        """Return everything, oldest first."""
        return [*self.earlier, *self.items]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Hold one accepted request; `session` says whose reasoning is remembered together."""

    body: ResponsesRequest
    owner: str
    principal: Principal
    shown: Shown
    tools: OfferedTools
    request: GenerationRequest
    ladder: EventLadder
    input_items: list[dict[str, Any]]
    session: tuple[str, ...] | None = None

    @property
    def input_json(self) -> bytes:
        """Return the request's own items as they are kept."""
        return msgspec.json.encode(self.input_items)

    def chain(self, output: Sequence[Any]) -> tuple[Turn, ...]:
        """Return the history that a next response goes on with."""
        items = msgspec.json.encode([*self.input_items, *output])
        return (*self.shown.history, Turn(id=self.ladder.draft.id, items=items))


class Intake:
    """Read bodies against what is kept."""

    def __init__(
        self, shelf: Shelf, transcripts: Transcripts, live: LiveResponses, settings: Settings
    ) -> None:
        """Keep the parts."""
        self._shelf = shelf
        self._transcripts = transcripts
        self._live = live
        self._settings = settings

    async def order(
        self,
        body: ResponsesRequest,
        principal: Principal,
        known: Mapping[str, tuple[Turn, ...]] | None = None,
    ) -> Order:
        """Settle a create; raises `ApiError` 400, 501 and 503.

        `known` are chains that only the caller's connection remembers.
        """
        settings = self._settings
        tools = tools_of(body, settings)
        shown = await self.shown(body, principal.owner, known)
        identifier = new_response_id()
        request = generation_request(body, shown.all, tools, principal, settings)
        ladder = EventLadder(
            draft(body, tools, settings, identifier, int(time.time())),
            ladder_options(body, tools, settings, answers=not shown.compacts),
        )
        return Order(
            body=body,
            owner=principal.owner,
            principal=principal,
            shown=shown,
            tools=tools,
            request=request,
            ladder=ladder,
            input_items=wire_items(shown.items, identifier),
        )

    async def counted(self, body: InputBody, principal: Principal) -> GenerationRequest:
        """Make the request whose prompt is only counted."""
        tools = tools_of(body, self._settings)
        shown = await self.shown(body, principal.owner)
        return input_request(body, shown.all, tools, principal, self._settings)

    def show(
        self,
        body: InputBody,
        tools: OfferedTools,
        principal: Principal,
        items: Sequence[AnyItem],
    ) -> GenerationRequest:
        """Make the request that shows other items than the body's own."""
        return input_request(body, items, tools, principal, self._settings)

    async def shown(
        self,
        body: InputBody,
        owner: str,
        known: Mapping[str, tuple[Turn, ...]] | None = None,
    ) -> Shown:
        """Find the history and resolve references."""
        remembered = (known or {}).get(body.previous_response_id or "")
        history = await self._history(body, owner) if remembered is None else remembered
        earlier = [item for turn in history for item in parse_items(turn.items)]
        items = await self._resolved(body.input, earlier, owner)
        refuse_orphans(earlier, items)
        triggers = [n for n, item in enumerate(items) if isinstance(item, CompactionTrigger)]
        if triggers and triggers != [len(items) - 1]:
            message = "A 'compaction_trigger' is the last item of an input, or none."
            raise invalid_request(message, param=f"input.{triggers[0]}")
        shown = items[:-1] if triggers else items
        return Shown(history=history, earlier=earlier, items=shown, compacts=bool(triggers))

    async def _history(self, body: InputBody, owner: str) -> tuple[Turn, ...]:
        previous = body.previous_response_id
        if body.conversation is not None:
            return await self._transcripts.history(owner, body.conversation)
        if previous is None:
            return ()
        running = self._live.find(owner, previous)
        if running is not None:
            self._shelf.require("previous_response_id")
            status = running.snapshot.status
            message = f"previous response '{previous[:80]}' has not finished (status: {status})"
            raise invalid_request(
                message, param="previous_response_id", code="previous_response_not_finished"
            )
        return await self._shelf.history(owner, previous)

    async def _resolved(
        self, items: Sequence[AnyItem], earlier: Sequence[AnyItem], owner: str
    ) -> list[AnyItem]:
        known = {item.id for item in earlier if item.id is not None}
        resolved: list[AnyItem] = []
        for index, item in enumerate(items):
            if not isinstance(item, ItemReference):
                resolved.append(item)
            elif item.id not in known:
                resolved.append(await self._referenced(item.id, index, owner))
        return resolved

    async def _referenced(self, identifier: str, index: int, owner: str) -> AnyItem:
        response_id = response_of_item(identifier)
        if response_id is not None and self._shelf.enabled:
            stored = await self._shelf.find(owner, response_id)
            for kept in (stored.input_items, stored.output_items) if stored else ():
                for item in parse_items(kept):
                    if item.id == identifier:
                        return item
        message = "No item of this id is kept here; send the item itself."
        raise invalid_request(message, param=f"input.{index}.id", code="item_not_found")
