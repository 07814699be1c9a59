"""The radix tree against a brute-force longest prefix, its locks, and what it tells the outside."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.grpc_options import MAX_FRAME_BYTES
from services.common.prefix_hash import block_hashes
from services.scheduler.cache.events import CacheEvent, CacheSnapshot, Cleared, EventLog, Removed, Stored
from services.scheduler.cache.eviction import EVICTION_POLICIES, make_policy
from services.scheduler.cache.groups import CacheGroup
from services.scheduler.cache.integrity import check
from services.scheduler.cache.kv_cache import KvCache
from services.scheduler.cache.radix_cache import RadixCache
from services.scheduler.cache.sessions import Sessions
from services.scheduler.convert.events import event_updates, snapshot_updates
from services.scheduler.core.plan import IntArray

ROOTS = {"a": 11, "b": 22}


def make(pool: int = 600, page: int = 1, policy: str = "lru", sessions: Sessions | None = None) -> tuple[KvCache, RadixCache, EventLog]:
    events = EventLog()
    tree = RadixCache(make_policy(policy, page_size=page), lambda name: ROOTS[str(name)], events, page, sessions=sessions)
    return KvCache([CacheGroup("full", pool, 8, 200, page)], tree, 8), tree, events


class Blocks:
    """What a reader of the events believes is cached."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}  # hash -> parent

    def read(self, log: EventLog) -> None:
        self.take(log.drain().events)

    def take(self, events: Sequence[CacheEvent]) -> None:
        for event in events:
            if isinstance(event, Stored):
                parent = event.parent
                assert parent in self.held or parent in ROOTS.values(), "a block follows one that is not there"
                for block in event.hashes:
                    assert block not in self.held
                    self.held[block] = parent
                    parent = block
            elif isinstance(event, Removed):
                for block in event.hashes:
                    del self.held[block]
            elif isinstance(event, Cleared):
                self.held.clear()


def sequences() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 1), min_size=1, max_size=70)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "extend", "finish", "drop", "evict", "match", "touch", "forget"]),
        st.sampled_from("ab"),
        sequences(),
        st.integers(0, 7),
    ),
    max_size=40,
)


@settings(max_examples=120, deadline=None)
@given(steps=STEPS, page=st.sampled_from([1, 4, 16]), policy=st.sampled_from(EVICTION_POLICIES), sessions=st.sampled_from([None, 1, 2, 9]))
def test_equals_brute_force(steps: list[tuple[str, str, list[int], int]], page: int, policy: str, sessions: int | None) -> None:
    """Rows share the tree, computed tokens come and go; after every step the books add up and matches are exact."""
    cache, tree, log = make(page=page, policy=policy, sessions=Sessions(sessions) if sessions else None)
    reader = Blocks()
    running: list[tuple[int, str, IntArray]] = []
    for action, name, tokens, number in steps:
        ids = np.array(tokens, np.int32)
        if action == "start" and cache.rows.free:
            match = cache.acquire(name, ids[:-1])
            row, _ = cache.start(match)
            if cache.extend(row, match.length, ids.size - match.length) is None:
                cache.release(row, None)
            else:
                running.append((row, name, ids))
        elif running and action in ("extend", "finish", "drop"):
            row, name, ids = running[number % len(running)]
            if action == "extend":
                cache.commit(row, ids)
            else:
                running.remove((row, name, ids))
                cache.release(row, ids if action == "finish" else None, session="xyz"[number % 3])
        elif action == "evict":
            slots = tree.evict(number * 9)
            cache.groups[0].free(slots[0])
        elif action == "forget":
            before = longest(tree, name, ids)
            cache.forget(name, ids)
            assert longest(tree, name, ids) <= before
        elif action == "touch":
            tree.touch(name, ids)
        elif action == "match":
            assert tree.match(name, ids).length == longest(tree, name, ids) // page * page
        check(cache)
        assert tree.peek(name, ids) == longest(tree, name, ids)
        reader.read(log)
        assert set(reader.held) == expected_blocks(tree)
        assert {block for stored in tree.blocks() for block in stored.hashes} == set(reader.held)
    for row, _, ids in running:
        cache.release(row, ids)
    cache.flush()
    assert cache.free_tokens == cache.capacity
    check(cache)


@pytest.mark.parametrize("page", [1, 4])
def test_five_thousand_sequences_match_as_a_set_of_prefixes_says(page: int) -> None:
    """Nothing is evicted, so the oracle is all beginnings ever inserted. Locks come and go and never fall below zero."""
    cache, tree, _ = make(pool=60_000, page=page)
    random, held = Random(page), []
    beginnings: set[tuple[int, ...]] = {()}
    for number in range(5000):
        tokens = tuple(random.choices((1, 2, 3), k=random.randrange(1, 40)))
        ids, whole = np.array(tokens, np.int32), len(tokens) // page * page
        expected = next(end for end in range(whole, -1, -page) if tokens[:end] in beginnings)
        match = cache.acquire("a", ids)
        assert match.length == tree.peek("a", ids) == expected
        if number % 3:
            slots = cache.groups[0].allocator.allocate((whole - expected) // page)
            assert slots is not None
            own: IntArray = slots if page == 1 else (slots[:, None] * page + np.arange(page)).ravel().astype(np.int32)
            tree.insert(match.node, ids[:whole], (own,))
            beginnings.update(tokens[:end] for end in range(page, whole + 1, page))
        held.append(match)
        if len(held) > 8:
            cache.abandon(held.pop(random.randrange(len(held))))
    for match in held:
        cache.abandon(match)
    assert tree.protected_tokens == 0
    check(cache)
    assert cache.flush() == page * (len(beginnings) - 1)
    assert cache.free_tokens == cache.capacity


def paths(tree: RadixCache) -> list[tuple[Hashable, list[int]]]:
    """Every sequence the tree holds, read off its nodes."""
    found = []
    for node in tree.nodes():
        tokens: list[int] = []
        current = node
        while current.parent is not None:
            tokens = current.tokens.tolist() + tokens
            current = current.parent
        found.append((node.namespace, tokens))
    return found


def longest(tree: RadixCache, name: Hashable, ids: IntArray) -> int:
    best = 0
    page = tree._page
    for namespace, tokens in paths(tree):
        if namespace == name:
            same = 0
            while same < min(len(tokens), ids.size) and tokens[same] == ids[same]:
                same += 1
            best = max(best, same // page * page)
    return best


def expected_blocks(tree: RadixCache) -> set[int]:
    return {block for name, tokens in paths(tree) for block in block_hashes(ROOTS[str(name)], tokens)}


def insert(tree: RadixCache, name: str, ids: IntArray, slot: int) -> None:
    root = tree.match(name, ids[:0]).node
    tree.insert(root, ids, (np.arange(slot, slot + ids.size, dtype=np.int32),))


def test_namespaces_share_nothing() -> None:
    _, tree, _ = make()
    ids = np.arange(40, dtype=np.int32)
    insert(tree, "a", ids, 1)
    assert tree.match("b", ids).length == 0
    assert tree.match("a", ids).length == 40


def test_locked_paths_survive_and_locks_never_go_below_zero() -> None:
    _, tree, _ = make()
    insert(tree, "a", np.arange(50, dtype=np.int32), 1)
    match = tree.match("a", np.arange(30, dtype=np.int32))
    tree.lock(match.node)
    assert tree.evict(1000)[0].size == 20
    assert tree.peek("a", np.arange(50, dtype=np.int32)) == 30
    tree.unlock(match.node)
    with pytest.raises(ValueError, match="not locked"):
        tree.unlock(match.node)
    assert tree.evict(1000)[0].size == 30
    assert tree.evictable_tokens == tree.protected_tokens == 0


def test_split_emits_nothing_and_eviction_takes_only_what_is_needed() -> None:
    _, tree, log = make()
    insert(tree, "a", np.arange(64, dtype=np.int32), 1)
    log.drain()
    tree.match("a", np.arange(20, dtype=np.int32))
    assert log.drain().events == []
    assert tree.evict(10)[0].tolist() == list(range(55, 65))
    removed = log.drain().events[0]
    assert isinstance(removed, Removed) and removed.hashes == tuple(block_hashes(11, range(64))[3:])


def test_events_of_very_long_contexts_fit_into_messages() -> None:
    """A context of 300,000 tokens is one insert and one removal, told in parts that follow one another."""
    tokens = np.arange(300_000, dtype=np.int32)
    _, tree, log = make()
    reader = Blocks()
    insert(tree, "a", tokens, 1)
    stored = log.drain()
    assert [len(event.hashes) for event in stored.events if isinstance(event, Stored)] == [8192, 8192, 2366]
    assert all(update.ByteSize() <= MAX_FRAME_BYTES for update in event_updates(stored))
    snapshot = CacheSnapshot(1, log.next_seq, tree.blocks())
    assert all(update.ByteSize() <= MAX_FRAME_BYTES for update in snapshot_updates(snapshot))
    for events in (stored.events, tree.blocks()):
        reader.held.clear()
        reader.take(events)
        assert list(reader.held) == block_hashes(11, tokens)
    tree.evict(300_000)
    removed = log.drain()
    assert (removed.first_seq, len(removed.events)) == (3, 3)
    reader.take(removed.events)
    assert not reader.held


def test_events_carry_consecutive_numbers_and_drop_when_nobody_reads() -> None:
    log = EventLog(epoch=7)
    for _ in range(3):
        log.add(Cleared())
    first = log.drain()
    assert (first.epoch, first.first_seq, len(first.events)) == (7, 0, 3)
    for _ in range(65537):
        log.add(Cleared())
    late = log.drain()
    assert late.first_seq > 3 and late.first_seq + len(late.events) == log.next_seq
