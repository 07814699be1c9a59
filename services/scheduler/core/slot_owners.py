"""Who uses a slot of the pool: for people who look for a fault."""

from __future__ import annotations

from services.scheduler.cache.radix_cache import RadixCache
from services.scheduler.core.state import State


def owners(state: State, slot: int) -> list[str]:
    """The running requests that read the slot, or the cached prefix it belongs to; empty if it is free. Walks everything."""
    found = []
    for group in state.cache.groups:
        for row in state.cache.rows.in_use():
            position = (group.table[row, : state.cache.rows.allocated[row]] == slot).nonzero()[0]
            if position.size:
                found.append(f"request {state.batch.choice(row).request.request_id} (position {position[0]})")
    if not found and isinstance(state.cache.prefixes, RadixCache):
        holders = (node for node in state.cache.prefixes.nodes() if any((slots == slot).any() for slots in node.slots))
        found += [f"a cached prefix of {node.end} tokens" for node in holders]
    return found
