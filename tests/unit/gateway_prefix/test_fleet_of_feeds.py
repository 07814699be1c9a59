"""Several workers behind a network that loses, repeats and delays, snapshots included: at a quiet moment the tree is their union."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.prefix.feed import Cleared, Event, Removed, Stored, Update, WorkerFeed
from gateway.prefix.naive import NaiveTree
from gateway.prefix.tree import PrefixTree

BLOCKS = tuple(range(1, 40))
MOST_FRAMES_HELD = 3


class Worker:
    """Holds blocks in two tiers; publishes every change, and says its number at a heartbeat."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name, self.rng = name, rng
        self.epoch, self.seq = rng.randrange(1 << 60), 0
        self.held: set[tuple[int, int]] = set()

    def change(self) -> Update:
        tier, some = self.rng.choice((1, 2)), self.rng.sample(BLOCKS, self.rng.randrange(1, 8))
        kind = self.rng.random()
        event: Event
        if kind < 0.55:
            event = Stored(some, tier)
            self.held |= {(tier, block) for block in some}
        elif kind < 0.95:
            event = Removed(some, tier)
            self.held -= {(tier, block) for block in some}
        else:
            event = Cleared()
            self.held = set()
        update = Update(self.epoch, self.seq, (event,))
        self.seq += 1
        return update

    def heartbeat(self) -> Update:
        return Update(self.epoch, self.seq)

    def snapshot(self) -> list[Update]:
        pairs = self.rng.sample(sorted(self.held), len(self.held))
        size = self.rng.randrange(1, 6)
        parts = [pairs[i : i + size] for i in range(0, len(pairs), size)] or [[]]
        return [
            Update(self.epoch, self.seq, (), [Stored([block], tier) for tier, block in part], index=i, last=i == len(parts) - 1)
            for i, part in enumerate(parts)
        ]

    def restart(self) -> None:
        self.epoch, self.seq, self.held = self.epoch + 1, 0, set()


class Link:
    """One worker's subscription over a network in trouble. A consumer that is behind by more than a few frames is cut off."""

    def __init__(self, worker: Worker, tree: PrefixTree, rng: random.Random) -> None:
        self.worker, self.tree, self.rng = worker, tree, rng
        self.feed: WorkerFeed | None = None
        self.held_back: list[Update] = []

    def send(self, *updates: Update, calm: bool = False) -> None:
        for update in updates:
            trouble = 1.0 if calm else self.rng.random()
            if trouble < 0.06:
                continue
            if trouble < 0.14:
                self.held_back.append(update)
                continue
            self.arrive(update)
            if trouble < 0.22:
                self.arrive(update)
            if self.held_back and trouble > 0.7:
                self.arrive(self.held_back.pop(self.rng.randrange(len(self.held_back))))
        if len(self.held_back) > MOST_FRAMES_HELD:
            self.end()

    def arrive(self, update: Update) -> None:
        if self.feed is not None and not self.feed.apply(update):
            self.end()

    def end(self) -> None:
        if self.feed is not None:
            self.feed.close()
        self.feed, self.held_back = None, []

    def subscribe(self, *, calm: bool = False) -> None:
        self.end()
        self.feed = WorkerFeed(self.tree, self.worker.name)
        self.send(*self.worker.snapshot(), calm=calm)

    def settle(self) -> None:
        """The network has calmed down: one more word, and a new subscription for who sees from it that something is missing."""
        self.held_back = []
        self.send(self.worker.heartbeat(), calm=True)
        if self.feed is None or not self.feed.synced:
            self.subscribe(calm=True)
            self.send(self.worker.heartbeat(), calm=True)
        assert self.feed is not None
        assert self.feed.synced


@given(seed=st.integers(0, 1 << 30), steps=st.integers(10, 150))
@settings(max_examples=120, deadline=None)
def test_the_tree_is_the_union_of_the_caches_at_every_quiet_moment(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    tree = PrefixTree()
    links = [Link(Worker(f"w{i}", rng), tree, rng) for i in range(4)]
    present: set[str] = set()
    for step in range(steps):
        link = rng.choice(links)
        chance = rng.random()
        if chance < 0.05:
            link.worker.restart()
            link.end()
        elif chance < 0.10:
            link.end()
            tree.remove_worker(link.worker.name)
            present.discard(link.worker.name)
        elif chance < 0.25 or link.feed is None:
            link.subscribe()
            present.add(link.worker.name)
        else:
            link.send(link.worker.change())
        tree.sweep(rng.randrange(1, 20))
        if step % 25 == 24 or step == steps - 1:
            naive = NaiveTree()
            for quiet in links:
                if quiet.worker.name in present:
                    quiet.settle()
                    naive.replace(quiet.worker.name, quiet.worker.held)
            for _ in range(20):
                path = rng.sample(BLOCKS, rng.randrange(1, 10))
                assert tree.match(path) == naive.match(path)
            for quiet in links:
                assert tree.blocks_of(quiet.worker.name) == len(naive.workers.get(quiet.worker.name, ()))
