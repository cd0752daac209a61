"""The routes of conversations and their items.

Imported when routers are provided: FastAPI is heavy.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Request
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.http import (
    RequestModel,
    json_response,
    read_body,
    request_schema,
    response_schema,
)
from pegboard_contracts.principal import principal_of
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.stores import StoredConversation, StoreUnavailableError
from pydantic import Field
from starlette.responses import Response

from pegboard_routes._responses.items import AnyItem, Item, ItemReference, wire_items
from pegboard_routes._responses.pages import page_of
from pegboard_routes._responses.request import Metadata
from pegboard_routes._responses.response_object import ItemList
from pegboard_routes._responses.shelf import Transcripts, store_unavailable

T = TypeVar("T")
_PREFIXES = ("/v1", "")
FewItems = Annotated[list[Item], Field(max_length=20)]


class CreateConversation(RequestModel):
    """Describe a new conversation."""

    items: FewItems | None = None
    metadata: Metadata | None = None


class UpdateConversation(RequestModel):
    """Replace a conversation's metadata."""

    metadata: Metadata | None = None


class AddItems(RequestModel):
    """Append items to a conversation."""

    items: FewItems


class ConversationObject(msgspec.Struct, frozen=True, kw_only=True):
    """Show a conversation without its items."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(msgspec.Struct, frozen=True):
    """Confirm a deletion."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: Literal[True] = True


class ConversationRoutes:
    """Answer requests of this family; each method is an endpoint."""

    def __init__(self, transcripts: Transcripts, info: ServerInfo) -> None:
        """Keep the parts."""
        self._transcripts = transcripts
        self._schema_status = info.schema_error_status.get("responses", 400)

    def router(self) -> APIRouter:
        """Make the router, every path with and without `/v1`."""
        router = APIRouter(tags=["conversations"])
        shown = response_schema(ConversationObject, "The conversation")
        listed = response_schema(ItemList, "A page of items")
        gone = response_schema(DeletedConversation, "It is gone")
        one = "/conversations/{conversation_id}"
        routes: list[tuple[str, str, Callable[..., Any], str, Any, Any]] = [
            ("POST", "/conversations", self.create, "Begin", CreateConversation, shown),
            ("GET", one, self.retrieve, "Show", None, shown),
            ("POST", one, self.update, "Replace the metadata of", UpdateConversation, shown),
            ("DELETE", one, self.delete, "Delete", None, gone),
            ("GET", f"{one}/items", self.list_items, "List the items of", None, listed),
            ("POST", f"{one}/items", self.add_items, "Append items to", AddItems, listed),
            ("GET", f"{one}/items/{{item_id}}", self.show_item, "Show an item of", None, None),
            ("DELETE", f"{one}/items/{{item_id}}", self.drop_item, "Delete from", None, shown),
        ]
        for prefix in _PREFIXES:
            for method, path, endpoint, summary, body, responses in routes:
                router.add_api_route(
                    prefix + path,
                    endpoint,
                    methods=[method],
                    summary=f"{summary} a conversation",
                    response_model=None,
                    openapi_extra=request_schema(body) if body else None,
                    responses=responses,
                    include_in_schema=bool(prefix),
                )
        return router

    async def create(self, request: Request) -> Response:
        """Begin a conversation, with its first items if there are any."""
        store = self._transcripts.require()
        body = await self._body(request, CreateConversation)
        conversation = StoredConversation(
            id=f"conv_{secrets.token_hex(16)}",
            owner=principal_of(request).owner,
            created_at=int(time.time()),
            metadata=body.metadata or {},
        )
        items = tuple(msgspec.json.encode(item) for item in _wired(body.items or ()))
        await _reached(store.create(conversation, items))
        return json_response(_shown(conversation))

    async def retrieve(self, conversation_id: str, request: Request) -> Response:
        """Show a conversation."""
        return json_response(_shown(await self._found(conversation_id, request)))

    async def update(self, conversation_id: str, request: Request) -> Response:
        """Replace the metadata of a conversation."""
        store = self._transcripts.require()
        body = await self._body(request, UpdateConversation)
        owner = principal_of(request).owner
        changed = await _reached(store.update(owner, conversation_id, body.metadata or {}))
        if changed is None:
            raise _not_found()
        return json_response(_shown(changed))

    async def delete(self, conversation_id: str, request: Request) -> Response:
        """Delete a conversation with its items."""
        store = self._transcripts.require()
        if not await _reached(store.delete(principal_of(request).owner, conversation_id)):
            raise _not_found()
        return json_response(DeletedConversation(conversation_id))

    async def list_items(self, conversation_id: str, request: Request) -> Response:
        """List the items of a conversation."""
        return json_response(page_of(await self._items(conversation_id, request), request))

    async def add_items(self, conversation_id: str, request: Request) -> Response:
        """Append items to a conversation and return them."""
        store = self._transcripts.require()
        body = await self._body(request, AddItems)
        await self._found(conversation_id, request)
        wired = _wired(body.items)
        encoded = tuple(msgspec.json.encode(item) for item in wired)
        await _reached(store.append(principal_of(request).owner, conversation_id, encoded))
        first, last = (wired[0]["id"], wired[-1]["id"]) if wired else (None, None)
        return json_response(ItemList(data=wired, first_id=first, last_id=last, has_more=False))

    async def show_item(self, conversation_id: str, item_id: str, request: Request) -> Response:
        """Show one item."""
        for item in await self._items(conversation_id, request):
            if item.get("id") == item_id:
                return json_response(item)
        raise _no_item()

    async def drop_item(self, conversation_id: str, item_id: str, request: Request) -> Response:
        """Delete one item and return the conversation."""
        store = self._transcripts.require()
        conversation = await self._found(conversation_id, request)
        owner = principal_of(request).owner
        if not await _reached(store.delete_item(owner, conversation_id, item_id)):
            raise _no_item()
        return json_response(_shown(conversation))

    async def _body(self, request: Request, model: type[Any]) -> Any:  # noqa: ANN401 - the model
        return await read_body(request, model, schema_status=self._schema_status)

    async def _found(self, conversation_id: str, request: Request) -> StoredConversation:
        store = self._transcripts.require()
        found = await _reached(store.get(principal_of(request).owner, conversation_id))
        if found is None:
            raise _not_found()
        return found

    async def _items(self, conversation_id: str, request: Request) -> list[dict[str, Any]]:
        store = self._transcripts.require()
        found = await _reached(store.items(principal_of(request).owner, conversation_id))
        if found is None:
            raise _not_found()
        return [msgspec.json.decode(item) for item in found]


def _wired(items: Sequence[AnyItem]) -> list[dict[str, Any]]:
    if any(isinstance(item, ItemReference) for item in items):
        message = "A conversation keeps items themselves, no references to them."
        raise invalid_request(message, param="items")
    return wire_items(items, f"resp_{secrets.token_hex(16)}")


def _shown(conversation: StoredConversation) -> ConversationObject:
    return ConversationObject(
        id=conversation.id,
        created_at=conversation.created_at,
        metadata=conversation.metadata,
    )


async def _reached(work: Awaitable[T]) -> T:
    try:
        return await work
    except StoreUnavailableError:
        raise store_unavailable() from None


def _not_found() -> ApiError:
    message = "No such conversation is kept here; it may have expired."
    return ApiError(404, message, param="conversation_id", code="conversation_not_found")


def _no_item() -> ApiError:
    message = "The conversation has no item of this id."
    return ApiError(404, message, param="item_id", code="item_not_found")
