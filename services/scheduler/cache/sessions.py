"""Sessions keep a hand on the prefix they used last: it goes only when nothing else is left to go.

A reference is a preference, not a lock: it never holds memory that a running request needs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from services.scheduler.cache.eviction import EvictionPolicy, Score
from services.scheduler.cache.node import Node

MOST_SESSIONS = 4096  # the one that was silent longest loses its reference to a new one


@dataclass(frozen=True, slots=True)
class SessionsLast:
    """An eviction policy, applied to what no session refers to first, and only then to the rest."""

    policy: EvictionPolicy

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def use_lowers_score(self) -> bool:
        return self.policy.use_lowers_score

    def score(self, node: Node) -> Score:
        return (float(node.referers > 0), *self.policy.score(node))

    def keep(self, node: Node) -> int:
        return self.policy.keep(node)


class Sessions:
    """Where each session's last sequence ends. `Node.referers` counts the sessions that end at a node or below it."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._ends: OrderedDict[Hashable, Node] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ends)

    def refer(self, session: Hashable, node: Node) -> list[Node]:
        """Move the session's reference to `node`; returns the nodes that nobody refers to any more."""
        old = self._ends.get(session)
        if node.is_root or node is old:
            return []
        self._ends[session] = node
        self._ends.move_to_end(session)
        node.ending = (node.ending or set()) | {session}
        _count(node, 1)
        freed = self._let_go(session, old) if old is not None else []
        if len(self._ends) > self._most:
            freed += self._let_go(*self._ends.popitem(last=False))
        return freed

    def move_up(self, node: Node) -> None:
        """`node` is about to be removed: what ends there ends at its parent from now on, or nowhere if that is the root."""
        above = node.parent
        assert above is not None and node.ending
        if above.is_root:
            above.referers -= len(node.ending)
            for session in node.ending:
                del self._ends[session]
        else:
            above.ending = (above.ending or set()) | node.ending
            self._ends.update(dict.fromkeys(node.ending, above))

    def clear(self) -> None:
        """Nothing is cached any more."""
        self._ends.clear()

    def _let_go(self, session: Hashable, end: Node) -> list[Node]:
        assert end.ending is not None
        end.ending.discard(session)
        return _count(end, -1)


def _count(node: Node, by: int) -> list[Node]:
    """Add to the counts from `node` up to the root; returns the nodes whose count became zero."""
    freed = []
    current: Node | None = node
    while current is not None:
        current.referers += by
        if not current.referers:
            freed.append(current)
        current = current.parent
    return freed
