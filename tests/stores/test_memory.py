"""The memory stores keep the laws."""

from __future__ import annotations

from pegboard_contracts.stores import ConversationStore, ResponseStore, StoreLimits
from pegboard_contracts.testing.stores import Clock, ConversationStoreLaws, ResponseStoreLaws
from pegboard_stores.memory import MemoryConversations, MemoryResponses


class TestMemoryResponses(ResponseStoreLaws):
    def open_store(self, limits: StoreLimits, clock: Clock) -> ResponseStore:
        return MemoryResponses(limits, clock)


class TestMemoryConversations(ConversationStoreLaws):
    def open_store(self, limits: StoreLimits, clock: Clock) -> ConversationStore:
        return MemoryConversations(limits, clock)
