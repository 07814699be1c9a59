"""Prefixes as a radix tree: shared beginnings are stored once, whatever requests they came from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush

import numpy as np

from services.common.prefix_hash import BLOCK_SIZE, block_hashes
from services.scheduler.cache.events import Cleared, EventLog, Removed, Stored
from services.scheduler.cache.eviction import EvictionPolicy, Score
from services.scheduler.cache.interface import PrefixMatch, Slots
from services.scheduler.cache.node import Node
from services.scheduler.cache.sessions import Sessions, SessionsLast
from services.scheduler.core.plan import IntArray

_EMPTY: IntArray = np.empty(0, np.int32)
_GROWS_TO = 8192  # tokens of a node that may be appended to, which copies it


class RadixCache:
    """The tree compares tokens, never hashes. Every namespace has its own root.

    Eviction is a heap with lazy entries: a node's entry counts while its number is the node's `ticket`, and a score
    that went up since is corrected when the entry surfaces. So using a prefix costs nothing there.
    """

    enabled = True

    def __init__(
        self,
        policy: EvictionPolicy,
        root_hash: Callable[[Hashable], int],
        events: EventLog,
        page_size: int = 1,
        groups: int = 1,
        sessions: Sessions | None = None,
    ) -> None:
        """With `sessions`, what they refer to is evicted after everything else."""
        self._policy = policy if sessions is None else SessionsLast(policy)
        self._sessions = sessions
        self._root_hash = root_hash
        self._events = events
        self._page = page_size
        self._groups = groups
        self._roots: dict[Hashable, Node] = {}
        self._heap: list[tuple[Score, int, Node]] = []
        self._tickets = 0
        self._now = 0
        self._size = 0  # nodes, roots apart
        self.version = 0
        self.evictable_tokens = 0
        self.protected_tokens = 0

    # ------------------------------------------------------------------ reading

    def match(self, namespace: Hashable, ids: IntArray) -> PrefixMatch:
        self._now += 1
        node = self._root(namespace)
        for child, shared in self._walk(node, ids):
            node = child if shared == child.tokens.size else self._split(child, shared)
            self._use(node)
        return PrefixMatch(node, node.end)

    def peek(self, namespace: Hashable, ids: IntArray) -> int:
        root = self._roots.get(namespace)
        return sum(shared for _, shared in self._walk(root, ids)) if root else 0

    def path(self, namespace: Hashable, ids: IntArray) -> tuple[int, ...]:
        root = self._roots.get(namespace)
        return (id(root), *(id(node) for node, shared in self._walk(root, ids) if shared)) if root else ()

    def touch(self, namespace: Hashable, ids: IntArray) -> None:
        root = self._roots.get(namespace)
        self._now += 1
        for child, _ in self._walk(root, ids) if root else ():
            self._use(child)

    def slots(self, node: Node, start: int) -> Slots:
        parts: list[Slots] = []
        current: Node | None = node
        while current is not None and current.end > start:
            skip = max(start - current.start, 0)
            parts.append(tuple(slots[skip:] for slots in current.slots))
            current = current.parent
        if not parts:
            return (_EMPTY,) * self._groups
        parts.reverse()
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    def nodes(self) -> Iterator[Node]:
        """Every node but the roots, parents first."""
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def blocks(self) -> list[Stored]:
        """All blocks, as events that would build this state from nothing."""
        whole = [Stored(node.parent.tail_hash, tuple(node.blocks)) for node in self.nodes() if node.blocks and node.parent]
        return [part for stored in whole for part in stored.bounded()]

    # ------------------------------------------------------------------ changing

    def insert(self, node: Node, ids: IntArray, slots: Slots, priority: int = 0, *, move_lock: bool = False) -> tuple[Node, int]:
        self._now += 1
        start, first = node, node.end
        for child, shared in self._walk(node, ids, first):
            node = child if shared == child.tokens.size else self._split(child, shared)
            node.priority = max(node.priority, priority)
            self._use(node)
        present = node.end
        if present < ids.size:
            added = tuple([own[present - first :] for own in slots])
            if node is start and node.locks == 1 and node.parent and not node.children and node.tokens.size < _GROWS_TO:
                self._grow(node, ids, added, priority)
            else:
                node = self._add_leaf(node, ids, added, priority)
        if move_lock:
            self._lock_up_to(node, start)
        elif not node.children:
            self._offer(node)
        return node, present

    def refer(self, session: str, node: Node) -> None:
        if self._sessions is not None:
            for freed in self._sessions.refer((node.namespace, session), node):
                self._offer(freed)

    def count_hit(self, node: Node) -> None:
        current: Node | None = node
        while current is not None:
            current.hits += 1
            current = current.parent

    def lock(self, node: Node) -> None:
        self._lock_up_to(node, None)

    def _lock_up_to(self, node: Node, above: Node | None) -> None:
        """Lock the nodes from `node` to the child of `above`."""
        current: Node | None = node
        while current is not above and current is not None:
            if current.locks == 0 and current.parent is not None:
                self.evictable_tokens -= current.tokens.size
                self.protected_tokens += current.tokens.size
                current.ticket = -1
            current.locks += 1
            current = current.parent

    def unlock(self, node: Node) -> None:
        if node.locks < 1:
            raise ValueError("a prefix was unlocked that is not locked")
        current: Node | None = node
        while current is not None:
            current.locks -= 1
            if current.locks == 0 and current.parent is not None:
                self.evictable_tokens += current.tokens.size
                self.protected_tokens -= current.tokens.size
                self._offer(current)
            root, current = current, current.parent
        self._drop_if_bare(root)

    def evict(self, tokens: int) -> Slots:
        taken: list[Slots] = []
        removed: list[int] = []
        score_of, keep = self._policy.score, self._policy.keep
        while tokens > 0 and self._heap:
            score, ticket, node = heappop(self._heap)
            if node.ticket != ticket:
                continue
            if score_of(node) != score:
                self._offer(node)
                continue
            start, worth = node.start, keep(node)
            stay = max(start, worth, node.end - self._whole_pages(tokens))
            if stay - start < max(tokens, BLOCK_SIZE) and worth <= start:
                stay = start  # what would remain goes next: a node taken at once costs half of one taken in two
            tokens -= node.end - stay
            taken.append(self._cut(node, stay, removed))
        return self._gone(taken, removed)

    def forget(self, namespace: Hashable, ids: IntArray) -> Slots:
        root, node = self._roots.get(namespace), None
        for child, shared in self._walk(root, ids) if root else ():
            node = child if shared else node
        taken: list[Slots] = []
        removed: list[int] = []
        while node is not None and node.parent is not None and not node.locks and not node.children:
            above = node.parent
            taken.append(self._cut(node, node.start, removed))
            node = above
        return self._gone(taken, removed)

    def clear(self) -> Slots:
        if self.protected_tokens:
            return self.evict(self.evictable_tokens)
        taken = [node.slots for node in self.nodes()]
        for node in self.nodes():
            node.ticket = -1
        self._roots = {name: root for name, root in self._roots.items() if root.locks}
        for root in self._roots.values():
            root.children.clear()
            root.referers = 0
        self._heap.clear()
        if self._sessions is not None:
            self._sessions.clear()
        self._size = 0
        self.evictable_tokens = 0
        self.version += 1
        self._events.add(Cleared())
        return self._joined(taken)

    # ------------------------------------------------------------------ inside

    def _gone(self, taken: list[Slots], removed: list[int]) -> Slots:
        """Slots that were cut off, once the blocks that went with them are told."""
        if removed:
            self._events.add(Removed(tuple(removed)))
        return self._joined(taken)

    def _key(self, ids: IntArray, at: int) -> int | bytes:
        return int(ids[at]) if self._page == 1 else ids[at : at + self._page].tobytes()

    def _whole_pages(self, tokens: int) -> int:
        return -(-tokens // self._page) * self._page

    def _walk(self, node: Node, ids: IntArray, at: int = 0) -> Iterator[tuple[Node, int]]:
        """Children along `ids` from position `at`, each with the number of its tokens that agree (whole pages)."""
        while at + self._page <= ids.size:
            child = node.children.get(self._key(ids, at))
            if child is None:
                return
            shared = _common(child.tokens, ids[at : at + child.tokens.size]) // self._page * self._page
            ends_here = shared < child.tokens.size  # asked before the yield: the reader may split the child
            yield child, shared
            if ends_here:
                return
            at += shared
            node = child

    def _root(self, namespace: Hashable) -> Node:
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Node(namespace, None, _EMPTY, (_EMPTY,) * self._groups, self._now)
            if self._events.enabled:
                root.tail_hash = self._root_hash(namespace)
        return root

    def _drop_if_bare(self, root: Node) -> None:
        if not root.children and root.locks == 0 and self._roots.get(root.namespace) is root:
            del self._roots[root.namespace]

    def _use(self, node: Node) -> None:
        node.last_used = self._now
        if self._policy.use_lowers_score and node.ticket >= 0:
            self._offer(node)

    def _offer(self, node: Node) -> None:
        """Enter an unlocked leaf into the heap, with its present score."""
        node.ticket = -1
        if node.locks or node.children or node.parent is None:
            return
        if len(self._heap) > 64 + 4 * self._size:
            self._heap = sorted(entry for entry in self._heap if entry[2].ticket == entry[1])
        self._tickets += 1
        node.ticket = self._tickets
        heappush(self._heap, (self._policy.score(node), self._tickets, node))

    def _split(self, node: Node, at: int) -> Node:
        """Cut `node` after its first `at` tokens; returns the new upper part."""
        parent = node.parent
        assert parent is not None
        upper = Node(node.namespace, parent, node.tokens[:at], tuple(slots[:at] for slots in node.slots), node.created)
        upper.last_used, upper.hits, upper.priority = node.last_used, node.hits, node.priority
        upper.locks, upper.high_water, upper.referers = node.locks, node.high_water, node.referers
        kept = upper.end // BLOCK_SIZE - parent.end // BLOCK_SIZE
        upper.blocks, node.blocks = node.blocks[:kept], node.blocks[kept:]
        upper.tail_hash = upper.blocks[-1] if upper.blocks else parent.tail_hash
        self._size += 1
        parent.children[self._key(node.tokens, 0)] = upper
        node.tokens, node.slots, node.parent = node.tokens[at:], tuple(slots[at:] for slots in node.slots), upper
        upper.children[self._key(node.tokens, 0)] = node
        return upper

    def _add_leaf(self, parent: Node, ids: IntArray, slots: Slots, priority: int) -> Node:
        leaf = Node(parent.namespace, parent, ids[parent.end :].copy(), tuple([own.copy() for own in slots]), self._now)
        leaf.priority = priority
        leaf.tail_hash = parent.tail_hash
        self._hash_blocks(leaf, ids, parent.end)
        self._size += 1
        parent.children[self._key(leaf.tokens, 0)] = leaf
        parent.ticket = -1
        self._raise_high_water(parent, leaf.end)
        self.evictable_tokens += leaf.tokens.size
        self.version += 1
        return leaf

    def _grow(self, leaf: Node, ids: IntArray, slots: Slots, priority: int) -> None:
        """Append what `ids` has beyond a leaf that only the caller uses: one run needs one node, not one for each chunk."""
        before = leaf.end
        leaf.tokens = np.concatenate((leaf.tokens, ids[before:]))
        leaf.slots = tuple([np.concatenate(pair) for pair in zip(leaf.slots, slots, strict=True)])
        leaf.end = ids.size
        leaf.priority = max(leaf.priority, priority)
        self._hash_blocks(leaf, ids, before)
        self._raise_high_water(leaf, leaf.end)
        self.protected_tokens += leaf.end - before
        self.version += 1

    def _hash_blocks(self, node: Node, ids: IntArray, start: int) -> None:
        """Name the blocks that end in tokens `start`.. of `ids`, which belong to `node`, and publish them."""
        if not self._events.enabled:
            return
        blocks = block_hashes(node.tail_hash, ids[start // BLOCK_SIZE * BLOCK_SIZE :])
        if blocks:
            self._events.add(Stored(node.tail_hash, tuple(blocks)))
            node.blocks += blocks
            node.tail_hash = blocks[-1]

    @staticmethod
    def _raise_high_water(node: Node | None, end: int) -> None:
        while node is not None and node.high_water < end:
            node.high_water = end
            node = node.parent

    def _cut(self, node: Node, stay: int, removed: list[int]) -> Slots:
        """Remove what lies beyond position `stay` of an unlocked leaf, all of it if `stay` is its start."""
        parent = node.parent
        assert parent is not None
        at = stay - parent.end
        self.evictable_tokens -= node.end - stay
        self.version += 1
        if at:
            gone = tuple(slots[at:] for slots in node.slots)
            kept = stay // BLOCK_SIZE - parent.end // BLOCK_SIZE
            removed.extend(reversed(node.blocks[kept:]))
            node.blocks = node.blocks[:kept]
            node.tail_hash = node.blocks[-1] if node.blocks else parent.tail_hash
            node.tokens, node.slots, node.end = node.tokens[:at], tuple(slots[:at] for slots in node.slots), stay
            self._offer(node)
            return gone
        removed.extend(reversed(node.blocks))
        self._size -= 1
        node.ticket = -1
        if node.ending and self._sessions is not None:
            self._sessions.move_up(node)
        del parent.children[self._key(node.tokens, 0)]
        self._offer(parent)
        if parent.parent is None:
            self._drop_if_bare(parent)
        return node.slots

    def _joined(self, parts: list[Slots]) -> Slots:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return (_EMPTY,) * self._groups
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _common(left: IntArray, right: IntArray) -> int:
    """Length of the common beginning."""
    size = min(left.size, right.size)
    differs = left[:size] != right[:size]
    first = int(differs.argmax()) if size else 0
    return first if size and differs[first] else size
