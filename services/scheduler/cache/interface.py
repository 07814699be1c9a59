"""What the scheduler's cache needs of a prefix cache; `radix_cache` and `no_cache` implement it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol

from services.scheduler.cache.node import Node
from services.scheduler.core.plan import IntArray

Slots = tuple[IntArray, ...]
"""Slots of consecutive tokens, one array per cache group."""


class PrefixMatch(NamedTuple):
    """The longest cached prefix: `length` tokens, ending at `node`."""

    node: Node
    length: int


class PrefixCache(Protocol):
    """Maps token prefixes to the slots that hold their keys and values.

    Lengths are multiples of the page size. Whoever uses a node's slots holds a lock on it, which protects the whole path.
    """

    @property
    def enabled(self) -> bool: ...

    @property
    def version(self) -> int:
        """Changes whenever some prefix may match longer or shorter than before."""

    @property
    def evictable_tokens(self) -> int: ...

    @property
    def protected_tokens(self) -> int: ...

    def match(self, namespace: Hashable, ids: IntArray) -> PrefixMatch:
        """Longest cached prefix of `ids`; splits an edge at the boundary and marks the path as used."""

    def peek(self, namespace: Hashable, ids: IntArray) -> int:
        """Length of the longest cached prefix; changes nothing."""

    def path(self, namespace: Hashable, ids: IntArray) -> tuple[int, ...]:
        """Names of the nodes the longest cached prefix passes, from the root on; they hold until the cache changes."""

    def touch(self, namespace: Hashable, ids: IntArray) -> None:
        """Mark the cached prefix of `ids` as used just now."""

    def slots(self, node: Node, start: int) -> Slots:
        """Slots of positions `start` up to the end of `node`."""

    def insert(self, node: Node, ids: IntArray, slots: Slots, priority: int = 0, *, move_lock: bool = False) -> tuple[Node, int]:
        """Add `ids` (a whole sequence that begins with the path of `node`).

        `slots` are those of the tokens after `node`; the cache becomes owner of the part it did not have.
        Returns the node at the end of `ids` and the length that was there before; the caller gives back
        its own slots from the end of the given `node` to that length. With `move_lock` the caller's lock on `node`
        protects the returned node from now on.
        """

    def refer(self, session: str, node: Node) -> None:
        """The session's last sequence ends at `node`: where sessions count, it is kept longer than what none refers to."""

    def count_hit(self, node: Node) -> None:
        """Count one more use of the path to `node`, for policies that go by it."""

    def lock(self, node: Node) -> None:
        """Protect the path to `node` from eviction."""

    def unlock(self, node: Node) -> None:
        """Take one lock back. Raises ValueError if there is none."""

    def evict(self, tokens: int) -> Slots:
        """Remove at least `tokens` unlocked tokens, or all there are; returns their slots."""

    def forget(self, namespace: Hashable, ids: IntArray) -> Slots:
        """Remove the end of the longest cached prefix of `ids`, as far up as nobody else uses it; returns the slots."""

    def clear(self) -> Slots:
        """Remove everything unlocked; returns the slots."""
