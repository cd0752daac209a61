from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st
from pegboard_backends._openvino.prefix_mirror import BLOCK, PrefixMirror, blocks_of


class LeastRecentlyUsed:
    """A cache of full blocks as GenAI keeps one, for requests that run one after the other."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def cached_tokens(self, token_ids: list[int]) -> int:
        count = 0
        for end in range(BLOCK, len(token_ids) + 1, BLOCK):
            if tuple(token_ids[:end]) not in self._blocks:
                break
            count = end
        return count

    def run(self, token_ids: list[int]) -> None:
        for end in range(BLOCK, len(token_ids) + 1, BLOCK):
            self._blocks[tuple(token_ids[:end])] = None
            self._blocks.move_to_end(tuple(token_ids[:end]))
        while len(self._blocks) > self._capacity - 1:
            self._blocks.popitem(last=False)


REQUESTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 8 * BLOCK), st.integers(0, 3)), max_size=30
)


@given(REQUESTS, st.integers(4, 60))
def test_never_more_than_a_real_cache_holds(
    requests: list[tuple[int, int, int]], capacity: int
) -> None:
    cache, mirror = LeastRecentlyUsed(capacity), PrefixMirror(capacity)
    for beginning, length, last in requests:
        prompt = [beginning] * length + [last]
        counted = mirror.cached_tokens(prompt, blocks_of(len(prompt)))
        assert counted <= cache.cached_tokens(prompt)
        assert counted < len(prompt)
        cache.run(prompt)
        mirror.remember(prompt)


def test_counts_full_blocks_of_the_same_beginning() -> None:
    mirror = PrefixMirror(100)
    prompt = list(range(70))
    assert mirror.cached_tokens(prompt, 4) == 0
    mirror.remember(prompt)
    assert mirror.cached_tokens(prompt, 4) == 64
    assert mirror.cached_tokens(prompt[:64], 4) == 32, "the last token is always computed"
    assert mirror.cached_tokens([*prompt[:40], 7, *prompt[41:]], 4) == 32
    assert mirror.cached_tokens([7, *prompt[1:]], 4) == 0


def test_counts_nothing_when_others_fill_the_cache() -> None:
    mirror = PrefixMirror(100)
    mirror.remember(list(range(70)))
    assert mirror.cached_tokens(list(range(70)), 60) == 0
    mirror.take(60)
    assert mirror.cached_tokens(list(range(70)), 4) == 0
