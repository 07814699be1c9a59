"""Proof that no slot is lost and none has two owners."""

from __future__ import annotations

import numpy as np

from services.scheduler.cache.kv_cache import KvCache
from services.scheduler.cache.radix_cache import RadixCache


class IntegrityError(Exception):
    """The cache's books do not add up."""


def check(cache: KvCache) -> None:
    """Raise IntegrityError unless free + owned by rows + owned by prefixes is the pool, each page once."""
    tree = cache.prefixes if isinstance(cache.prefixes, RadixCache) else None
    for index, group in enumerate(cache.groups):
        owners = np.zeros(group.allocator.num_pages + 1, np.int32)
        owners[group.allocator.free_page_ids()] += 1
        for row in cache.rows.in_use():
            own = group.table[row, cache.rows.shared[row] : cache.rows.allocated[row] : cache.page_size]
            np.add.at(owners, own // cache.page_size, 1)
        for node in tree.nodes() if tree else ():
            np.add.at(owners, node.slots[index][:: cache.page_size] // cache.page_size, 1)
        wrong = np.flatnonzero(owners[1:] != 1) + 1
        if wrong.size or owners[0]:
            counts = owners[wrong[:8]].tolist()
            raise IntegrityError(f"group {group.name}: pages {wrong[:8].tolist()} have {counts} owners, padding {owners[0]}")
    if tree:
        _check_tree(tree)


def _check_tree(tree: RadixCache) -> None:
    evictable = protected = 0
    for node in tree.nodes():
        below = sum(child.locks for child in node.children.values())
        parent = node.parent
        if parent is None or node.locks < below or node.locks < 0:
            raise IntegrityError(f"node ending at {node.end} has {node.locks} locks, its children {below}")
        if not node.tokens.size or node.end != parent.end + node.tokens.size:
            raise IntegrityError(f"node ending at {node.end} holds {node.tokens.size} tokens below {parent.end}")
        if node.referers != len(node.ending or ()) + sum(child.referers for child in node.children.values()):
            raise IntegrityError(f"node ending at {node.end} is referred to {node.referers} times, which its sessions do not explain")
        if node.locks:
            protected += node.tokens.size
        else:
            evictable += node.tokens.size
            if not node.children and node.ticket < 0:
                raise IntegrityError(f"leaf ending at {node.end} could never be evicted")
    if (evictable, protected) != (tree.evictable_tokens, tree.protected_tokens):
        raise IntegrityError(
            f"evictable {evictable}, protected {protected}; the tree says {tree.evictable_tokens}, {tree.protected_tokens}"
        )
