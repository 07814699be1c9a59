"""One edge of the radix tree and what is known about it."""

from __future__ import annotations

from collections.abc import Hashable

from services.scheduler.core.plan import IntArray


class Node:
    """A run of tokens below its parent. The root of a namespace is a node with no tokens.

    `end` is the number of tokens from the root to the end of this node; a split never changes it, because the node
    that exists keeps the lower part. `locks` counts the users of this node and of everything below it.
    """

    __slots__ = (
        "blocks",
        "children",
        "created",
        "end",
        "ending",
        "high_water",
        "hits",
        "last_used",
        "locks",
        "namespace",
        "parent",
        "priority",
        "referers",
        "slots",
        "tail_hash",
        "ticket",
        "tokens",
    )

    def __init__(self, namespace: Hashable, parent: Node | None, tokens: IntArray, slots: tuple[IntArray, ...], now: int) -> None:
        self.namespace = namespace
        self.parent = parent
        self.tokens = tokens
        self.slots = slots
        self.children: dict[int | bytes, Node] = {}
        self.end: int = tokens.size + (parent.end if parent else 0)
        self.locks = 0
        self.last_used = now
        self.created = now
        self.hits = 0
        self.priority = 0
        self.high_water = self.end  # longest sequence ever seen through this node
        self.blocks: list[int] = []  # hashes of the blocks whose last token lies here
        self.tail_hash = 0  # hash of the last complete block at or before `end`
        self.referers = 0  # sessions whose last sequence ends here or below
        self.ending: set[Hashable] | None = None  # those that end here
        self.ticket = -1  # number of this node's valid entry in the eviction heap

    @property
    def start(self) -> int:
        """Tokens before this node."""
        return self.end - self.tokens.size

    @property
    def is_root(self) -> bool:
        return self.parent is None
