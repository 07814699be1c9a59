"""What the gateway knows of its workers' caches: exact where they publish it, a guess where they do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.prefix.approximate import ApproximateTree
from gateway.prefix.predicted import PredictedBlocks
from gateway.prefix.tree import PrefixTree


@dataclass(frozen=True, slots=True)
class Match:
    """Leading blocks of a prompt that one worker holds, and holds or is about to compute."""

    blocks: int = 0
    predicted: int = 0


NO_MATCH = Match()


class PrefixIndex:
    """Answers one question for the blocks of a prompt: how many of them does each worker have?

    Workers whose events are followed (`tree.follows`) are matched exactly, and a short-lived prediction covers blocks
    that requests just sent there will compute. For the others the approximate tree remembers what was sent.
    """

    def __init__(self, clock: Callable[[], float], *, approximate_blocks: int, predicted_s: float) -> None:
        self.tree = PrefixTree()
        self.predicted = PredictedBlocks(clock, lifetime_s=predicted_s)
        self.approximate = ApproximateTree(max_blocks=approximate_blocks)

    def match(self, hashes: Sequence[int]) -> dict[str, Match]:
        """Worker id → match, for the workers that have at least one block."""
        exact = self.tree.match(hashes)
        found = {worker: Match(blocks, blocks) for worker, blocks in exact.items()}
        for worker, blocks in self.predicted.extend(hashes, exact).items():
            found[worker] = Match(exact.get(worker, 0), blocks)
        for worker, blocks in self.approximate.match(hashes).items():
            if not self.tree.follows(worker):
                found[worker] = Match(blocks, blocks)
        return found

    def routed(self, worker_id: str, hashes: Sequence[int], known_blocks: int) -> None:
        """A prompt was sent to the worker, which holds its first `known_blocks` already."""
        if self.tree.follows(worker_id):
            self.predicted.add(worker_id, hashes[known_blocks:])
        else:
            self.approximate.insert(worker_id, hashes)

    def rebooted(self, worker_id: str) -> None:
        """The worker has started anew: guesses about it are void. What it publishes corrects the tree by itself."""
        self.predicted.remove_worker(worker_id)
        self.approximate.remove_worker(worker_id)

    def forget(self, worker_id: str) -> None:
        """The worker left."""
        self.tree.remove_worker(worker_id)
        self.rebooted(worker_id)
