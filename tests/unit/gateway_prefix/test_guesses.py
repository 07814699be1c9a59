"""What is only expected or remembered: predicted blocks, the approximate tree, and the index that joins them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.prefix.approximate import ApproximateTree
from gateway.prefix.index import Match, PrefixIndex
from gateway.prefix.predicted import PredictedBlocks


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_prediction_extends_what_is_held_and_expires() -> None:
    clock = Clock()
    predicted = PredictedBlocks(clock, lifetime_s=2.0)
    predicted.add("a", [3, 4])
    assert predicted.extend([1, 2, 3, 4, 5], {"a": 2}) == {"a": 4}
    assert predicted.extend([1, 2, 3, 4, 5], {"a": 1}) == {}, "a gap before it: no use"
    clock.now += 1.9
    predicted.add("a", [4, 5])
    clock.now += 0.2
    assert predicted.extend([3, 4, 5], {}) == {}
    assert predicted.extend([4, 5], {}) == {"a": 2}, "the second prediction renewed block 4"
    clock.now += 2.0
    assert predicted.extend([4, 5], {}) == {}
    assert len(predicted) == 0


def test_predictions_are_bounded() -> None:
    predicted = PredictedBlocks(Clock(), lifetime_s=60.0, max_blocks=100)
    for start in range(0, 10_000, 10):
        predicted.add("a", list(range(start, start + 10)))
    assert len(predicted) <= 110
    assert predicted.extend([9_990], {}) == {"a": 1}


def test_removed_workers_predict_nothing() -> None:
    clock = Clock()
    predicted = PredictedBlocks(clock, lifetime_s=2.0)
    predicted.add("a", [1])
    predicted.remove_worker("a")
    predicted.add("b", [1])
    assert predicted.extend([1], {}) == {"b": 1}
    clock.now += 5
    assert predicted.extend([1], {}) == {}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(1, 8)), max_size=40), st.integers(8, 30))
def test_the_approximate_tree_is_bounded_and_keeps_prefixes_whole(inserts: list[tuple[str, int, int]], limit: int) -> None:
    tree = ApproximateTree(max_blocks=limit)
    for worker, path, length in inserts:
        hashes = [path * 100 + i for i in range(length)]
        tree.insert(worker, hashes)
        assert len(tree) <= limit
        assert tree.match(hashes)[worker] == length, "what was just sent is remembered"
    for path in range(4):
        known = [path * 100 + i in tree._blocks for i in range(8)]
        assert known == sorted(known, reverse=True), "no block outlives the one before it"


def test_hot_prefixes_survive_and_the_cap_is_for_all_workers_together() -> None:
    tree = ApproximateTree(max_blocks=1000)
    hot = list(range(50))
    for i in range(2000):
        worker = f"w{i % 8}"
        tree.insert("w0", hot)
        tree.insert(worker, [10_000 + i * 20 + j for j in range(20)])
    assert len(tree) <= 1000
    assert tree.match(hot) == {"w0": 50}


def test_a_worker_that_left_is_not_matched_and_comes_back_empty() -> None:
    tree = ApproximateTree(max_blocks=100)
    tree.insert("a", [1, 2, 3])
    tree.insert("b", [1, 2])
    tree.remove_worker("a")
    assert tree.match([1, 2, 3]) == {"b": 2}
    tree.insert("a", [1])
    assert tree.match([1, 2, 3]) == {"a": 1, "b": 2}


def test_the_index_trusts_events_where_it_has_them() -> None:
    index = PrefixIndex(Clock(), approximate_blocks=100, predicted_s=5.0)
    index.routed("silent", [1, 2, 3], 0)
    index.tree.cleared("told")
    index.tree.stored("told", [1], 1)
    index.routed("told", [1, 2], 1)
    assert index.match([1, 2, 3]) == {"silent": Match(3, 3), "told": Match(1, 2)}
    index.tree.removed("told", [1], 1)
    assert index.match([1, 2, 3]) == {"silent": Match(3, 3)}, "evicted: neither held nor predicted"
    index.tree.cleared("silent")
    assert index.match([1, 2, 3]) == {}, "once it publishes, the guess no longer counts"
    index.tree.stored("silent", [1], 1)
    index.forget("silent")
    assert index.match([1]) == {}
