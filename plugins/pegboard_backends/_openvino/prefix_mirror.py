"""What the engine's prefix cache certainly holds.

GenAI reuses blocks of KV cache whose tokens, from the start of the prompt, are the same,
and tells nobody how many. It gives up the longest unused block first, and only when none
is free. So a block is certainly there as long as fewer blocks were taken since it was
last used than the cache has. Half of the cache is counted, to be safe from what is not
seen here: preemption, and blocks that are filled in part.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b

BLOCK = 32
"""Tokens of a block on the CPU."""


class PrefixMirror:
    """Count the cached tokens of prompts, never too many. Not thread-safe."""

    def __init__(self, capacity: int) -> None:
        """Take the number of blocks in the cache."""
        self._window = capacity // 2
        self._taken = 0
        self._last_use: OrderedDict[bytes, int] = OrderedDict()

    def cached_tokens(self, prompt_ids: list[int], running_blocks: int) -> int:
        """Count the leading tokens that are certainly cached.

        `running_blocks` are the blocks in use by unfinished requests, this one included.
        The last token of a prompt is always computed, so its block does not count.
        """
        oldest = self._taken + running_blocks - self._window
        blocks = 0
        for key in _block_keys(prompt_ids[:-1]):
            last_use = self._last_use.get(key)
            if last_use is None or last_use < oldest:
                break
            blocks += 1
        return blocks * BLOCK

    def remember(self, token_ids: list[int]) -> None:
        """Note tokens whose keys and values have just been computed or used."""
        for key in _block_keys(token_ids):
            self._taken += 1
            self._last_use[key] = self._taken
            self._last_use.move_to_end(key)
        self._taken += 1  # the last block, filled in part
        while self._last_use:
            key, last_use = next(iter(self._last_use.items()))
            if last_use >= self._taken - self._window:
                break
            del self._last_use[key]

    def take(self, blocks: int) -> None:
        """Note blocks that were used for something that will not be found again."""
        self._taken += blocks


def blocks_of(tokens: int) -> int:
    """Return how many blocks hold so many tokens, one more for the next."""
    return tokens // BLOCK + 2


def _block_keys(token_ids: list[int]) -> Iterator[bytes]:
    """Give each full block a key that depends on all tokens before it."""
    data = memoryview(array("q", token_ids)).cast("B")
    size = BLOCK * 8
    key = b""
    for start in range(0, len(data) - size + 1, size):
        key = blake2b(data[start : start + size], key=key, digest_size=16).digest()
        yield key
