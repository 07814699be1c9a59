"""Eviction against plain statements of it: the order on random trees, and what tlru leaves of conversations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cache_policies import CONTEXT, SYSTEM_TOKENS, replay
from benchmarks.conversations import conversations
from services.scheduler.cache.events import EventLog
from services.scheduler.cache.eviction import EVICTION_POLICIES, make_policy
from services.scheduler.cache.node import Node
from services.scheduler.cache.radix_cache import RadixCache
from services.scheduler.core.plan import IntArray

SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=60)
STEPS = st.lists(
    st.tuples(st.sampled_from(["insert", "insert", "match", "hit", "touch", "lock", "unlock"]), SEQUENCES, st.integers(0, 9)), max_size=30
)


def _ids(tokens: list[int], page: int) -> IntArray:
    return np.array(tokens[: len(tokens) // page * page], np.int32)


class Grown:
    """A tree after random use. Slots are numbered as they are inserted, so that each names one place in the tree."""

    def __init__(self, policy: str, page: int, steps: list[tuple[str, list[int], int]]) -> None:
        self.policy = make_policy(policy, page_size=page)
        self.tree = RadixCache(self.policy, lambda _: 0, EventLog(enabled=False), page)
        self.locked: list[Node] = []
        slots = 1
        for action, tokens, number in steps:
            ids = _ids(tokens, page)
            if action == "insert":
                own = np.arange(slots, slots + ids.size, dtype=np.int32)
                self.tree.insert(self.tree.match("n", ids[:0]).node, ids, (own,), priority=number)
                slots += ids.size
            elif action in ("match", "hit", "lock"):
                node = self.tree.match("n", ids).node
                if action == "hit":
                    self.tree.count_hit(node)
                elif action == "lock":
                    self.tree.lock(node)
                    self.locked.append(node)
            elif action == "touch":
                self.tree.touch("n", ids)
            elif self.locked:
                self.tree.unlock(self.locked.pop(number % len(self.locked)))

    def next_to_go(self) -> list[Node]:
        """Unlocked leaves with the least score; more than one only where scores are equal."""
        leaves = [node for node in self.tree.nodes() if not node.children and not node.locks]
        least = min((self.policy.score(node) for node in leaves), default=())
        return [node for node in leaves if self.policy.score(node) == least]


@settings(max_examples=150, deadline=None)
@given(policy=st.sampled_from(EVICTION_POLICIES), page=st.sampled_from([1, 4]), steps=STEPS, wanted=st.integers(1, 40))
def test_the_least_score_goes_first_and_parents_after_their_children(
    policy: str, page: int, steps: list[tuple[str, list[int], int]], wanted: int
) -> None:
    grown = Grown(policy, page, steps)
    tree = grown.tree
    while tree.evictable_tokens:
        candidates = [(node, node.slots[0].copy()) for node in grown.next_to_go()]
        before = tree.evictable_tokens
        (gone,) = tree.evict(1)
        assert before - tree.evictable_tokens == gone.size >= page and gone.size % page == 0
        assert any(np.array_equal(slots[-gone.size :], gone) for _, slots in candidates), "the end of a leaf that is next"
    held = {int(slot) for node in tree.nodes() for slot in node.slots[0]}
    assert tree.protected_tokens == len(held), "what is locked stays, to the last token"
    for node in grown.locked:
        assert tree.slots(node, 0)[0].size == node.end
    assert tree.evict(wanted)[0].size == 0


@settings(max_examples=100, deadline=None)
@given(
    system=st.integers(0, 60),
    lengths=st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=4), min_size=2, max_size=5),
    threshold=st.integers(0, 300),
    estimate=st.integers(0, 60),
    page=st.sampled_from([1, 16]),
    step=st.integers(1, 50),
)
def test_tlru_leaves_of_each_conversation_what_its_next_turn_needs(
    system: int, lengths: list[list[int]], threshold: int, estimate: int, page: int, step: int
) -> None:
    """max(history + estimate - threshold, 0), in whole pages; a beginning that all share stays as long as one needs it."""
    tree = RadixCache(
        make_policy("tlru", {"threshold": threshold, "next_prompt_estimate": estimate}, page), lambda _: 0, EventLog(enabled=False), page
    )
    shared = np.zeros(system // page * page, np.int32)
    histories: list[IntArray] = []
    for number, turns in enumerate(lengths):
        history = np.concatenate((shared, np.full(sum(turns) // page * page + page, number + 1, np.int32)))
        for end in np.cumsum(turns):  # turn by turn, each finds the one before
            known = history[: shared.size + int(end) // page * page]
            tree.insert(tree.match("n", known[:0]).node, known, (known.copy(),))
        tree.insert(tree.match("n", history[:0]).node, history, (history.copy(),))
        histories.append(history)
    needs = [-(-max(history.size + estimate - threshold, 0) // page) * page for history in histories]
    beginning = shared.size if any(need > shared.size for need in needs) else min(shared.size, max(needs))
    kept = [min(history.size, need) if need > shared.size else beginning for history, need in zip(histories, needs, strict=True)]
    spare = tree.evictable_tokens - beginning - sum(max(length - shared.size, 0) for length in kept)
    while spare > 0:
        spare -= tree.evict(min(step, spare))[0].size
    assert spare == 0
    assert [tree.peek("n", history) for history in histories] == kept


@pytest.mark.parametrize("pool", [9_000, 16_000])
def test_tlru_spares_the_slowest_first_tokens_of_a_calm_server(pool: int) -> None:
    """A replay of conversations that come back: the p99 is not worse than lru's, though less is found in the cache."""
    loaded = conversations(
        45, seed=1, every_ms=12_000, context=CONTEXT - SYSTEM_TOKENS - 1, think_ms=60_000, new_tokens=250, output_tokens=8
    )
    plain = replay(loaded, pool=pool)
    tail = replay(loaded, pool=pool, policy="tlru", parameters={"threshold": 1024, "next_prompt_estimate": 300})
    assert plain.evicted_tokens and tail.evicted_tokens
    assert len(plain.first_token_ms) == len(tail.first_token_ms) > 100
    assert tail.percentile(99) <= plain.percentile(99)
