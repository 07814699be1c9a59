"""The tree against the naive one, over random changes of many workers."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.prefix.naive import NaiveTree
from gateway.prefix.tree import PrefixTree

WORKERS = tuple(f"w{i}" for i in range(5))
TIERS = (1, 2)
PATHS = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 14, 15], [1, 22, 23], [31, 32]]
BLOCKS = sorted({block for path in PATHS for block in path})

workers = st.sampled_from(WORKERS)
tiers = st.sampled_from(TIERS)
some_blocks = st.lists(st.sampled_from(BLOCKS), max_size=6)


class TreeMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.tree = PrefixTree()
        self.naive = NaiveTree()

    @rule(worker=workers, contents=st.lists(st.tuples(tiers, st.sampled_from(BLOCKS)), max_size=12))
    def snapshot(self, worker: str, contents: list[tuple[int, int]]) -> None:
        self.tree.begin_snapshot(worker)
        for tier, block in contents:
            self.tree.snapshot(worker, [block], tier)
        self.tree.end_snapshot(worker)
        self.naive.replace(worker, contents)

    @rule(worker=workers, contents=some_blocks, tier=tiers)
    def unfinished_snapshot(self, worker: str, contents: list[int], tier: int) -> None:
        self.tree.begin_snapshot(worker)
        self.tree.snapshot(worker, contents, tier)
        self.tree.abandon_snapshot(worker)

    @rule(worker=workers, blocks=some_blocks, tier=tiers)
    def stored(self, worker: str, blocks: list[int], tier: int) -> None:
        if worker in self.naive.workers:
            self.tree.stored(worker, blocks, tier)
            self.naive.stored(worker, blocks, tier)

    @rule(worker=workers, blocks=some_blocks, tier=tiers)
    def removed(self, worker: str, blocks: list[int], tier: int) -> None:
        if worker in self.naive.workers:
            self.tree.removed(worker, blocks, tier)
            self.naive.removed(worker, blocks, tier)

    @rule(worker=workers)
    def cleared(self, worker: str) -> None:
        if worker in self.naive.workers:
            self.tree.cleared(worker)
            self.naive.replace(worker, ())

    @rule(worker=workers)
    def leaves(self, worker: str) -> None:
        self.tree.remove_worker(worker)
        self.naive.remove_worker(worker)

    @rule(entries=st.integers(1, 7))
    def sweep(self, entries: int) -> None:
        self.tree.sweep(entries)

    @invariant()
    def answers_are_equal(self) -> None:
        for path in PATHS:
            for length in range(len(path) + 1):
                assert self.tree.match(path[:length]) == self.naive.match(path[:length])
        for worker in WORKERS:
            pairs = self.naive.workers.get(worker, set())
            assert self.tree.follows(worker) == (worker in self.naive.workers)
            assert self.tree.blocks_of(worker) == len(pairs)
            held = {block for _, block in pairs}
            assert [self.tree.holds(worker, block) for block in BLOCKS] == [block in held for block in BLOCKS]

    def teardown(self) -> None:
        if hasattr(self, "tree"):
            while self.tree.sweep(3):
                pass
            assert len(self.tree) == len(set().union(*self.naive.workers.values())), "sweeping leaves what somebody holds"


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_long_prompts_match_as_the_naive_tree_does(data: st.DataObject) -> None:
    """Prompts longer than any internal stride, workers that hold prefixes of all lengths."""
    rng = random.Random(data.draw(st.integers(0, 1 << 30)))
    path = rng.sample(range(1 << 62), 700)
    tree, naive = PrefixTree(), NaiveTree()
    for worker in range(80):
        held = path[: rng.choice([0, 1, 31, 32, 33, 159, 160, 161, rng.randrange(700), 700])]
        tree.begin_snapshot(str(worker))
        tree.snapshot(str(worker), held, 1)
        tree.end_snapshot(str(worker))
        naive.replace(str(worker), [(1, block) for block in held])
    assert tree.match(path) == naive.match(path)


def test_slots_are_used_again() -> None:
    tree = PrefixTree()
    for _ in range(100):
        tree.begin_snapshot("w")
        tree.snapshot("w", BLOCKS, 1)
        tree.end_snapshot("w")
        while tree.sweep(1000):
            pass
    assert tree._next_slot <= 2


def test_a_tier_may_appear_while_the_table_is_swept() -> None:
    tree = PrefixTree()
    tree.cleared("w")
    tree.stored("w", [1, 2], 1)
    tree.cleared("w")
    assert tree.sweep(1)
    tree.stored("w", [3], 2)
    while tree.sweep(1):
        pass
    assert (len(tree), tree.match([3])) == (1, {"w": 1})
