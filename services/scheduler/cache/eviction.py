"""Which cached prefix goes first: one score per unlocked leaf, the least goes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from services.scheduler.cache.node import Node

Score = tuple[float, ...]


class EvictionPolicy(Protocol):
    """Orders unlocked leaves."""

    @property
    def name(self) -> str: ...

    @property
    def use_lowers_score(self) -> bool:
        """True where using a prefix makes it go sooner (mru)."""

    def score(self, node: Node) -> Score: ...

    def keep(self, node: Node) -> int:
        """Tokens of the branch that stay when this node is the next to go: only what lies beyond is taken at once.

        A multiple of the page size, less than the node's end.
        """


@dataclass(frozen=True, slots=True)
class Simple:
    """A policy that is a score function and takes whole leaves."""

    name: str
    function: Callable[[Node], Score]
    use_lowers_score: bool = False

    def score(self, node: Node) -> Score:
        return self.function(node)

    def keep(self, node: Node) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class TailOptimized:
    """First what a conversation's next turn can spare, then least recently used.

    The next turn of a branch is expected to be `next_prompt_estimate` tokens longer than the longest sequence ever
    seen on it; computing `threshold` uncached tokens is still quick enough. So `high_water + estimate - threshold`
    tokens are worth keeping.
    """

    threshold: int
    next_prompt_estimate: int
    page_size: int = 1
    name: str = "tlru"
    use_lowers_score: bool = False

    def keep(self, node: Node) -> int:
        worth = self._worth(node)
        return worth if worth < node.end else 0

    def score(self, node: Node) -> Score:
        return (0.0 if self._worth(node) < node.end else 1.0, node.last_used)

    def _worth(self, node: Node) -> int:
        tokens = max(node.high_water + self.next_prompt_estimate - self.threshold, 0)
        return -(-tokens // self.page_size) * self.page_size


def _segmented(protected_threshold: int) -> Simple:
    return Simple("slru", lambda node: (float(node.hits >= protected_threshold), node.last_used))


_SIMPLE: dict[str, Simple] = {
    "lru": Simple("lru", lambda node: (node.last_used,)),
    "lfu": Simple("lfu", lambda node: (node.hits, node.last_used)),
    "fifo": Simple("fifo", lambda node: (node.created,)),
    "mru": Simple("mru", lambda node: (-node.last_used,), use_lowers_score=True),
    "priority": Simple("priority", lambda node: (node.priority, node.last_used)),
}
_PARAMETERS: dict[str, dict[str, int]] = {
    "slru": {"protected_threshold": 2},
    "tlru": {"threshold": 4096, "next_prompt_estimate": 512},
}
EVICTION_POLICIES = (*_SIMPLE, *_PARAMETERS)


def make_policy(name: str, parameters: Mapping[str, float] | None = None, page_size: int = 1) -> EvictionPolicy:
    """The policy called `name`. Raises ValueError for an unknown name, parameter or value."""
    if name not in EVICTION_POLICIES:
        raise ValueError(f"radix_eviction_policy: unknown policy {name!r}, choose from {', '.join(EVICTION_POLICIES)}")
    known = _PARAMETERS.get(name, {})
    for key, value in (parameters or {}).items():
        if key not in known:
            raise ValueError(f"radix_eviction_policy_config: policy {name!r} has no parameter {key!r}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"radix_eviction_policy_config: {key} of policy {name!r} must be a whole number of at least 0")
    values = {**known, **{key: int(value) for key, value in (parameters or {}).items()}}
    if name == "slru":
        return _segmented(**values)
    if name == "tlru":
        return TailOptimized(values["threshold"], values["next_prompt_estimate"], page_size)
    return _SIMPLE[name]
