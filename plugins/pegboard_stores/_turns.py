"""Turns of stored responses, each kept once while a response or a later turn needs it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from pegboard_contracts.stores import StoredResponse, Turn

_OVERHEAD = 128


@dataclass(eq=False)
class Node:
    """Hold a turn, what it follows, and how many need it."""

    owner: str
    turn: Turn
    parent: Node | None
    needed: int = 0

    def history(self) -> tuple[Turn, ...]:
        """Return the chain that ends here, oldest first."""
        turns: list[Turn] = []
        node: Node | None = self
        while node is not None:
            turns.append(node.turn)
            node = node.parent
        return tuple(reversed(turns))


def take_turn(response: StoredResponse) -> tuple[StoredResponse, Turn, int]:
    """Move a response's items into a turn, so that they are kept once.

    Returns the response without items, the turn, and the length of the input inside it.
    """
    before, after = (part[1:-1].strip() for part in (response.input_items, response.output_items))
    items = b"[" + b",".join(part for part in (before, after) if part) + b"]"
    bare = msgspec.structs.replace(response, input_items=b"", output_items=b"")
    return bare, Turn(id=response.id, items=items), len(before)


def with_items(bare: StoredResponse, items: bytes, input_length: int) -> StoredResponse:
    """Give a response its items back from its turn."""
    before, after = items[1 : 1 + input_length], items[1 + input_length : -1].lstrip(b",")
    return msgspec.structs.replace(
        bare, input_items=b"[" + before + b"]", output_items=b"[" + after + b"]"
    )


def missing_bytes(turns: tuple[Turn, ...]) -> int:
    """Return what keeping these turns takes."""
    return sum(len(turn.items) + _OVERHEAD for turn in turns)


class Turns:
    """Keep the turns of every owner by reference counting. Not thread-safe."""

    def __init__(self) -> None:
        """Start empty."""
        self._nodes: dict[tuple[str, str], Node] = {}
        self.bytes = 0

    def unknown(self, owner: str, history: tuple[Turn, ...]) -> tuple[Turn, ...]:
        """Return the part of a history that would have to be stored again."""
        for index in range(len(history), 0, -1):
            if (owner, history[index - 1].id) in self._nodes:
                return history[index:]
        return history

    def hold(self, owner: str, turn: Turn, history: tuple[Turn, ...]) -> Node:
        """Add a turn after its history and count one need of it."""
        parent: Node | None = None
        absent = self.unknown(owner, history)
        if len(absent) < len(history):
            parent = self._nodes[owner, history[len(history) - len(absent) - 1].id]
        for earlier in absent:
            parent = self._add(owner, earlier, parent)
        node = self._add(owner, turn, parent)
        node.needed += 1
        return node

    def release(self, node: Node) -> None:
        """Take one need away; what nobody needs leaves, up the chain."""
        current: Node | None = node
        while current is not None:
            current.needed -= 1
            if current.needed:
                return
            if self._nodes.get((current.owner, current.turn.id)) is current:
                del self._nodes[current.owner, current.turn.id]
            self.bytes -= missing_bytes((current.turn,))
            current = current.parent

    def _add(self, owner: str, turn: Turn, parent: Node | None) -> Node:
        node = Node(owner, turn, parent)
        if parent is not None:
            parent.needed += 1
        self._nodes[owner, turn.id] = node
        self.bytes += missing_bytes((turn,))
        return node
