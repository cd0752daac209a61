"""What is kept: the stores, and what this family says when they cannot answer."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.stores import (
    ConversationStore,
    ResponseStore,
    StoredResponse,
    StoreUnavailableError,
    Turn,
)

from pegboard_routes._responses.items import response_of_item

logger = logging.getLogger(__name__)

_MOST_LOST = 1024


def store_unavailable() -> ApiError:
    """Make the 503 of a store that cannot be read or written now."""
    message = "The store cannot be read or written now; see the server's log, and try again."
    return ApiError(503, message, code="store_unavailable", retry_after=5)


def response_not_found() -> ApiError:
    """Make the 404 of a response that is not there, or not this client's."""
    message = "No such response is kept here; it may have expired, or been made with store: false."
    return ApiError(404, message, param="response_id", code="response_not_found")


class Shelf:
    """Keep and find responses; every fault is an `ApiError` for the client."""

    def __init__(self, store: ResponseStore | None) -> None:
        """Keep responses in `store`; without one, or with 0 entries, nothing is kept."""
        self._store = store
        self._lost: OrderedDict[tuple[str, str], None] = OrderedDict()

    @property
    def enabled(self) -> bool:
        """Tell whether responses are kept at all."""
        return self._store is not None and self._store.limits.max_entries > 0

    @property
    def max_bytes(self) -> int:
        """Return the byte budget; 0 when nothing is kept."""
        return self._store.limits.max_bytes if self._store is not None and self.enabled else 0

    def require(self, param: str | None = None) -> ResponseStore:
        """Return the store; raises `ApiError` 400 when responses are not kept."""
        if self._store is None or not self.enabled:
            message = (
                "This server keeps no responses; start it with a store and "
                "--responses-store-max-entries above 0."
            )
            raise invalid_request(message, param=param, code="response_store_disabled")
        return self._store

    async def get(self, owner: str, response_id: str) -> StoredResponse:
        """Return a kept response; raises 400 without a store, 404 and 503."""
        found = await self.find(owner, response_id)
        if found is None:
            raise response_not_found()
        return found

    async def find(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a kept response or nothing; raises 400 without a store, and 503."""
        store = self.require()
        if (owner, response_id) in self._lost:
            raise store_unavailable()
        try:
            return await store.get(owner, response_id)
        except StoreUnavailableError:
            logger.exception("a response cannot be read")
            raise store_unavailable() from None

    async def history(self, owner: str, previous: str) -> tuple[Turn, ...]:
        """Return the chain that a new response goes on with.

        Raises `ApiError` 400 `previous_response_not_found`, and 503.
        """
        param = "previous_response_id"
        store = self.require(param)
        found = await self.find(owner, previous)
        if found is not None and found.chainable:
            try:
                turns = await store.history(owner, previous)
            except StoreUnavailableError:
                logger.exception("a chain cannot be read")
                raise store_unavailable() from None
            if turns is not None:
                return turns
        message = (
            f"Previous response '{previous[:80]}' is not kept here: it is unknown, expired or was "
            "made with store: false. Send the whole history in 'input' instead."
        )
        raise invalid_request(message, param=param, code="previous_response_not_found")

    async def put(self, response: StoredResponse, history: Sequence[Turn]) -> bool:
        """Keep a response; whatever a failing store does, the answer is delivered."""
        if self._store is None or not self.enabled:
            return False
        try:
            return await self._store.put(response, tuple(history))
        except StoreUnavailableError:
            logger.exception("a response cannot be kept")
            self._lost[response.owner, response.id] = None
            while len(self._lost) > _MOST_LOST:
                self._lost.popitem(last=False)
            return True

    async def put_pending(self, response: StoredResponse, history: Sequence[Turn]) -> None:
        """Note a job before it runs; raises `ApiError` 503."""
        try:
            await self.require().put(response, tuple(history))
        except StoreUnavailableError:
            logger.exception("a job cannot be noted")
            raise store_unavailable() from None

    async def delete(self, owner: str, response_id: str) -> None:
        """Remove a response; raises 400 without a store, 404 and 503."""
        try:
            if not await self.require().delete(owner, response_id):
                raise response_not_found()
        except StoreUnavailableError:
            logger.exception("a response cannot be removed")
            raise store_unavailable() from None

    async def left_pending(self) -> tuple[StoredResponse, ...]:
        """Return what an earlier process did not finish."""
        return await self._store.pending() if self._store is not None and self.enabled else ()


class Transcripts:
    """Read and continue conversations for responses."""

    def __init__(self, store: ConversationStore | None) -> None:
        """Keep conversations in `store`; without one, or with 0 entries, there are none."""
        self._store = store

    def require(self) -> ConversationStore:
        """Return the store; raises `ApiError` 400 when conversations are not kept."""
        if self._store is None or self._store.limits.max_entries == 0:
            message = (
                "This server keeps no conversations; start it with a store and "
                "--conversation-store-max-entries above 0."
            )
            raise invalid_request(message, param="conversation", code="conversation_store_disabled")
        return self._store

    async def history(self, owner: str, conversation_id: str) -> tuple[Turn, ...]:
        """Return the turns so far, oldest first; an unknown conversation is empty."""
        try:
            items = await self.require().items(owner, conversation_id)
        except StoreUnavailableError:
            logger.exception("a conversation cannot be read")
            raise store_unavailable() from None
        return _turns(items or ())

    async def append(self, owner: str, conversation_id: str, items: tuple[bytes, ...]) -> None:
        """Append a whole turn; a failing store loses it, and the log tells."""
        try:
            await self.require().append(owner, conversation_id, items)
        except StoreUnavailableError:
            logger.exception("a turn of a conversation is lost")


class _Identified(msgspec.Struct):
    id: str


def _turns(items: Sequence[bytes]) -> tuple[Turn, ...]:
    """Cut a transcript where its responses begin, so that chains share their turns."""
    decode = msgspec.json.Decoder(_Identified).decode
    turns: list[tuple[str, list[bytes]]] = []
    for item in items:
        identifier = decode(item).id
        key = response_of_item(identifier) or f"item_{identifier}"
        if not turns or turns[-1][0] != key:
            turns.append((key, []))
        turns[-1][1].append(item)
    return tuple(Turn(id=key, items=b"[" + b",".join(parts) + b"]") for key, parts in turns)
