"""One answer being produced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from services.scheduler.core.messages import CacheLimit, ChoiceSpec, SubmitRequest
from services.scheduler.core.plan import IntArray, RowLogprobs, SamplingSpec


class Choice:
    """A choice from arrival to its final message. While it has a row, its tokens and counters live in the `Batch`.

    `fill` is what must be in the cache before the next token: prompt and all output so far. It is exact while the
    choice waits.
    """

    __slots__ = (
        "arrival_ns",
        "cached_tokens",
        "deadline_ns",
        "fill",
        "first_token_ns",
        "grammar",
        "handle",
        "hit_length",
        "hit_version",
        "leader",
        "matcher",
        "max_new",
        "out_len",
        "pending_logprobs",
        "places_before",
        "prefilled",
        "priority",
        "prompt_len",
        "prompt_logprobs_next",
        "received_ns",
        "request",
        "retractions",
        "row",
        "sampling",
        "seen_prefill",
        "sequence",
        "spec",
        "started_ns",
        "stop_ids",
    )

    def __init__(
        self, request: SubmitRequest, spec: ChoiceSpec, sequence: int, now: int, context_length: int, eos: frozenset[int], priority: int
    ) -> None:
        self.request = request
        self.spec = spec
        self.handle = spec.handle
        self.sequence = sequence
        self.received_ns = now if request.received_ns is None else request.received_ns
        self.arrival_ns = self.received_ns if request.arrival_ns is None else request.arrival_ns
        self.deadline_ns = request.deadline_ns
        self.priority = priority
        prior = spec.prior_output_ids
        self.prompt_len: int = request.prompt_ids.size
        self.fill: IntArray = np.concatenate([request.prompt_ids, prior]) if prior.size else request.prompt_ids
        self.out_len: int = prior.size
        self.max_new = min(request.stops.max_new_tokens, context_length - self.prompt_len)
        self.row = 0  # 0 = waiting
        self.retractions = spec.prior_retractions
        self.started_ns: int | None = None
        self.first_token_ns: int | None = None
        self.cached_tokens: int | None = None
        self.matcher = request.stop_matcher() if request.stop_matcher else None
        self.grammar = request.grammar() if request.grammar else None
        self.stop_ids = frozenset(request.stops.token_ids) | (frozenset() if request.stops.ignore_eos else eos)
        self.sampling = _sampling(request, spec, self.stop_ids, constrained=self.grammar is not None)
        self.pending_logprobs: list[RowLogprobs] = []
        self.prompt_logprobs_next = None if request.prompt_logprobs_from is None else max(request.prompt_logprobs_from, 1)
        self.leader: Choice | None = None  # the sibling whose prefill this one waits for
        self.prefilled = False  # its prompt was computed at least once
        self.places_before = 0  # choices that waited before this one on its arrival
        self.seen_prefill = 0  # prompt tokens the server had computed when this one arrived
        self.hit_version = -1  # version of the prefix cache `hit_length` holds for
        self.hit_length = 0

    @property
    def is_certain(self) -> bool:
        """It will use its whole token budget: nothing but the length can end it."""
        stops = self.request.stops
        return stops.ignore_eos and not stops.token_ids and self.matcher is None and self.grammar is None

    @property
    def match_limit(self) -> int:
        """Most tokens that may come from the cache: the last one is always computed, and so is all whose logprob is wanted."""
        limit: int = self.fill.size - 1
        if self.prompt_logprobs_next is not None:
            limit = min(limit, self.prompt_logprobs_next - 1)
        return limit

    @property
    def cache_limit(self) -> CacheLimit:
        return CacheLimit.PROMPT_LOGPROBS if self.prompt_logprobs_next is not None else CacheLimit.NONE

    @property
    def wants_tokens(self) -> bool:
        return self.max_new > 0


def _sampling(request: SubmitRequest, spec: ChoiceSpec, stop_ids: frozenset[int], constrained: bool) -> SamplingSpec:
    least, template = request.stops.min_new_tokens, request.sampling
    if not least and not constrained and template.seed == spec.seed and template.choice == spec.index:
        return template
    return replace(
        template,
        seed=spec.seed,
        choice=spec.index,
        min_new_tokens=least,
        suppress_until_min=tuple(sorted(stop_ids)) if least else (),
        constrained=constrained,
    )
