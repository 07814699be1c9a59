"""The cache that remembers nothing (`--disable-radix-cache`)."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from services.scheduler.cache.interface import PrefixMatch, Slots
from services.scheduler.cache.node import Node
from services.scheduler.core.plan import IntArray

_EMPTY: IntArray = np.empty(0, np.int32)


class NoCache:
    """Matches nothing and keeps nothing: what is inserted counts as there already, so callers free their slots."""

    enabled = False
    version = 0
    evictable_tokens = 0
    protected_tokens = 0

    def __init__(self, groups: int = 1) -> None:
        self._nothing: Slots = (_EMPTY,) * groups
        self._root = Node(None, None, _EMPTY, self._nothing, 0)

    def match(self, namespace: Hashable, ids: IntArray) -> PrefixMatch:
        return PrefixMatch(self._root, 0)

    def peek(self, namespace: Hashable, ids: IntArray) -> int:
        return 0

    def path(self, namespace: Hashable, ids: IntArray) -> tuple[int, ...]:
        return ()

    def touch(self, namespace: Hashable, ids: IntArray) -> None:
        return None

    def slots(self, node: Node, start: int) -> Slots:
        return self._nothing

    def insert(self, node: Node, ids: IntArray, slots: Slots, priority: int = 0, *, move_lock: bool = False) -> tuple[Node, int]:
        return self._root, ids.size

    def refer(self, session: str, node: Node) -> None:
        return None

    def count_hit(self, node: Node) -> None:
        return None

    def lock(self, node: Node) -> None:
        return None

    def unlock(self, node: Node) -> None:
        return None

    def evict(self, tokens: int) -> Slots:
        return self._nothing

    def forget(self, namespace: Hashable, ids: IntArray) -> Slots:
        return self._nothing

    def clear(self) -> Slots:
        return self._nothing
