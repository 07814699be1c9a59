"""What a routing policy sees and what it answers. Policies do no input or output and own no worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One request as routing needs to know it.

    `block_hashes` are the chained hashes of the prompt's complete blocks, first block first; a prefix of them names a
    prefix of the prompt. `excluded` are ids of workers that this request has already failed on: a policy gets them
    filtered out of `workers` where others are left.
    """

    model: str
    prompt_tokens: int
    block_hashes: Sequence[int] = ()
    max_new_tokens: int = 0
    routing_key: str = ""
    tenant: str = ""
    priority: int = 0
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker that may be chosen, as it is at this moment.

    load: requests in flight there, the gateway's own and those that the worker reports of others.
    queued_prefill_tokens: prompt tokens that wait to be computed there, without cached ones.
    matched_tokens: tokens of this request's prompt that the worker holds; predicted_tokens: the same, counting blocks
    that requests already sent there are about to compute. predicted_tokens >= matched_tokens.
    prefill_tokens_per_s, decode_step_s: as measured by the worker, 0 where it has not yet.
    cache_tokens: all it can hold; free_tokens: how many of those hold nothing at present and are not spoken for, so that
    more than that costs somebody else's prefix. Both 0 where it has not told.
    """

    id: str
    load: int = 0
    queued_prefill_tokens: int = 0
    matched_tokens: int = 0
    predicted_tokens: int = 0
    prefill_tokens_per_s: float = 0.0
    decode_step_s: float = 0.0
    chunk_tokens: int = 0
    max_running: int = 0
    cache_tokens: int = 0
    free_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen worker and why. `reason` is one of a few fixed words: it becomes a metric label and a header."""

    worker_id: str
    reason: str
    matched_tokens: int = 0
    predicted_tokens: int = 0
    predicted_ttft_s: float | None = None


class Policy(Protocol):
    """Chooses one of the workers. State, where a policy has any, is its own and changes only in these methods."""

    @property
    def name(self) -> str: ...

    @property
    def uses_prefixes(self) -> bool:
        """Whether the choice looks at the prompt: if not, hashes and matches are not filled in."""
        ...

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        """`workers` is never empty and its order is stable while the fleet is. The answer is one of them."""
        ...

    def forget(self, worker_id: str) -> None:
        """The worker has left the fleet."""
        ...
