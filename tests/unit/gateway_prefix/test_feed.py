"""A worker's published cache arrives through loss, repetition, disorder and restarts; at every quiet moment it is equal."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.prefix.feed import Cleared, Event, Removed, Stored, Update, WorkerFeed
from gateway.prefix.tree import PrefixTree


class Publisher:
    """A worker that holds paths of blocks and publishes as the contract says."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.epoch = rng.randrange(1 << 60)
        self.seq = 0
        self.blocks: list[int] = []

    def change(self) -> Update:
        events: list[Event] = []
        for _ in range(self.rng.randrange(1, 4)):
            kind = self.rng.random()
            if kind < 0.6 or not self.blocks:
                new = [self.rng.randrange(1 << 63) for _ in range(self.rng.randrange(1, 9))]
                self.blocks += new
                events.append(Stored(new, 1))
            elif kind < 0.95:
                gone = self.rng.sample(self.blocks, self.rng.randrange(1, len(self.blocks) + 1))
                self.blocks = [block for block in self.blocks if block not in set(gone)]
                events.append(Removed(gone, 1))
            else:
                self.blocks = []
                events.append(Cleared())
        update = Update(self.epoch, self.seq, events)
        self.seq += len(events)
        return update

    def snapshot(self) -> list[Update]:
        size = self.rng.randrange(1, 10)
        parts = [self.blocks[i : i + size] for i in range(0, len(self.blocks), size)] or [[]]
        return [Update(self.epoch, self.seq, (), [Stored(part, 1)], index=i, last=i == len(parts) - 1) for i, part in enumerate(parts)]

    def restart(self) -> None:
        self.epoch += 1
        self.seq = 0
        self.blocks = []


class Subscriber:
    """What the cache subscriber does, without the network."""

    def __init__(self, publisher: Publisher, tree: PrefixTree) -> None:
        self.publisher, self.tree = publisher, tree
        self.subscriptions = 0
        self.subscribe()

    def subscribe(self) -> None:
        self.subscriptions += 1
        self.feed = WorkerFeed(self.tree, "w")
        for update in self.publisher.snapshot():
            assert self.feed.apply(update)

    def deliver(self, update: Update) -> None:
        if not self.feed.apply(update):
            self.feed.close()
            self.subscribe()

    def is_equal(self) -> bool:
        held = [block for block in self.publisher.blocks if self.tree.holds("w", block)]
        return held == self.publisher.blocks and self.tree.blocks_of("w") == len(set(held))


@given(st.integers(0, 1 << 30), st.integers(5, 60))
@settings(max_examples=150, deadline=None)
def test_contents_are_equal_whenever_a_frame_after_the_trouble_has_arrived(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    publisher, tree = Publisher(rng), PrefixTree()
    subscriber = Subscriber(publisher, tree)
    held_back: list[Update] = []
    for _ in range(steps):
        trouble = rng.random()
        if trouble < 0.05:
            publisher.restart()
        update = publisher.change()
        if trouble < 0.15:
            continue
        if trouble < 0.25:
            held_back.append(update)
            continue
        subscriber.deliver(update)
        if trouble < 0.35:
            subscriber.deliver(update)
        if held_back and trouble > 0.8:
            subscriber.deliver(held_back.pop(rng.randrange(len(held_back))))
    subscriber.deliver(Update(publisher.epoch, publisher.seq))
    assert subscriber.is_equal()
    assert len(tree) >= len(publisher.blocks)


def test_a_frame_seen_twice_changes_nothing() -> None:
    tree = PrefixTree()
    feed = WorkerFeed(tree, "w")
    first = Update(7, 0, (), [Stored([1, 2], 1)], index=0)
    last = Update(7, 0, (), [Stored([3], 1)], index=1, last=True)
    for update in (first, first, last, last, first):
        assert feed.apply(update)
    assert tree.match([1, 2, 3]) == {"w": 3}
    assert feed.apply(Update(7, 0, (Removed([3], 1), Stored([4], 1))))
    assert feed.apply(Update(7, 0, (Removed([3], 1), Stored([4], 1))))
    assert feed.apply(Update(7, 1, (Stored([4], 1), Stored([5], 1)))), "half of it is new"
    assert [tree.holds("w", block) for block in (3, 4, 5)] == [False, True, True]


@pytest.mark.parametrize(
    "frames",
    [
        [Update(7, 0, (), [Stored([3], 1)], index=1, last=True)],
        [Update(7, 0, (), [Stored([1], 1)], index=0), Update(7, 0, (), [Stored([3], 1)], index=2, last=True)],
        [Update(7, 0, (), [Stored([1], 1)], index=0), Update(7, 0, (Stored([2], 1),))],
        [Update(7, 4, (Stored([2], 1),))],
        [Update(7, 0, (), [], last=True), Update(7, 1, (Stored([2], 1),))],
        [Update(7, 0, (), [], last=True), Update(8, 0, (Stored([2], 1),))],
        [Update(7, 0, (), [], last=True), Update(8, 0, (), [], last=True)],
    ],
)
def test_whatever_is_missing_is_noticed(frames: list[Update]) -> None:
    feed = WorkerFeed(PrefixTree(), "w")
    assert [feed.apply(frame) for frame in frames] == [True] * (len(frames) - 1) + [False]


def test_the_old_contents_stand_until_a_new_snapshot_is_complete() -> None:
    tree = PrefixTree()
    assert WorkerFeed(tree, "w").apply(Update(1, 0, (), [Stored([1, 2], 1)], last=True))
    again = WorkerFeed(tree, "w")
    assert again.apply(Update(2, 0, (), [Stored([1], 1)], index=0))
    assert tree.match([1, 2]) == {"w": 2}
    again.close()
    assert tree.match([1, 2]) == {"w": 2}
