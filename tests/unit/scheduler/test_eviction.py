"""Scores of the eviction policies, and what goes first."""

from __future__ import annotations

import numpy as np
import pytest

from services.scheduler.cache.events import EventLog
from services.scheduler.cache.eviction import make_policy
from services.scheduler.cache.radix_cache import RadixCache


def tree_of(policy: str, **parameters: int) -> RadixCache:
    return RadixCache(make_policy(policy, parameters), lambda _: 0, EventLog(enabled=False))


def put(tree: RadixCache, first: int, length: int = 10, priority: int = 0) -> None:
    ids = np.arange(first, first + length, dtype=np.int32)
    tree.insert(tree.match("n", ids[:0]).node, ids, (ids.copy(),), priority)


def use(tree: RadixCache, first: int, length: int = 10) -> None:
    node = tree.match("n", np.arange(first, first + length, dtype=np.int32)).node
    tree.count_hit(node)


def order(tree: RadixCache, length: int = 10) -> list[int]:
    """First tokens in the order they are evicted."""
    gone = []
    while tree.evictable_tokens:
        gone.append(int(tree.evict(length)[0][0]))
    return gone


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("lru", [200, 100, 300, 0]),
        ("mru", [0, 300, 100, 200]),
        ("fifo", [0, 100, 200, 300]),
        ("lfu", [200, 300, 100, 0]),  # 0, 1, 3 and 3 uses
        ("slru", [200, 300, 100, 0]),  # two uses protect
        ("priority", [300, 200, 0, 100]),
    ],
)
def test_order(policy: str, expected: list[int]) -> None:
    tree = tree_of(policy)
    for first, priority in ((0, 5), (100, 9), (200, 5), (300, 1)):
        put(tree, first, priority=priority)
    for first in (100, 100, 0, 0, 100, 300, 0):
        use(tree, first)
    assert order(tree) == expected


def test_parents_go_after_their_children() -> None:
    tree = tree_of("lru")
    ids = np.arange(30, dtype=np.int32)
    root = tree.match("n", ids[:0]).node
    tree.insert(root, ids, (ids.copy(),))
    other = np.concatenate([ids[:10], ids[20:]])
    tree.insert(root, other, (other + 100,))
    put(tree, 500)
    gone = [tree.evict(1000)[0].tolist()][0]
    assert gone.index(5) > gone.index(15) and gone.index(5) > gone.index(125)


def test_tail_optimized_keeps_what_the_next_turn_needs() -> None:
    """history 100, estimate 20, threshold 50: 70 tokens are worth keeping, 30 go before anything else."""
    tree = tree_of("tlru", threshold=50, next_prompt_estimate=20)
    put(tree, 0, 100)
    put(tree, 1000, 10)  # short conversation: max(10 + 20 - 50, 0) = 0 worth keeping, but used later
    assert tree.evict(25)[0].tolist() == list(range(75, 100))
    assert sorted(tree.evict(15)[0].tolist()) == [*range(70, 75), *range(1000, 1010)]
    assert tree.peek("n", np.arange(100, dtype=np.int32)) == 70
    assert tree.evict(5)[0].tolist() == list(range(65, 70))


@pytest.mark.parametrize(
    ("policy", "parameters", "words"),
    [
        ("newest", {}, ["newest", "radix_eviction_policy"]),
        ("lru", {"threshold": 3}, ["lru", "threshold"]),
        ("slru", {"protected": 3}, ["slru", "protected"]),
        ("tlru", {"threshold": -1}, ["tlru", "threshold"]),
        ("tlru", {"threshold": 1.5}, ["tlru", "threshold"]),
    ],
)
def test_unknown_names_are_refused(policy: str, parameters: dict[str, float], words: list[str]) -> None:
    with pytest.raises(ValueError, match="radix_eviction_policy") as error:
        make_policy(policy, parameters)
    assert all(word in str(error.value) for word in words)
