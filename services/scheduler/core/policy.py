"""The order in which waiting choices are tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from random import Random

from services.scheduler.core.choice import Choice
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.core.state import State

TOUCH_EVERY = 32  # rounds
MATCH_AT_MOST = 128  # longer queues are not worth matching one by one: fcfs for the turn
CACHE_AWARE = ("lpm", "dfs-weight", "hrrn", "shortest-prefill-first")
SHARING = ("lpm", "hrrn", "shortest-prefill-first")
WITH_PRIORITIES = ("fcfs", "lof")
POLICIES = ("fcfs", "lof", "random", *CACHE_AWARE)


class SchedulePolicy:
    """Orders the queue. Cache-aware policies are fcfs with the prefix cache off, lpm and hrrn also with a long queue."""

    def __init__(self, config: SchedulerConfig) -> None:
        """Raises ValueError for an unknown policy, or one that does not go with priorities."""
        name = config.schedule_policy
        if name not in POLICIES:
            raise ValueError(f"schedule_policy: unknown policy {name!r}, choose from {', '.join(POLICIES)}")
        if config.enable_priority_scheduling and name not in WITH_PRIORITIES:
            raise ValueError(f"schedule_policy: {name!r} does not go with priority scheduling, choose from {', '.join(WITH_PRIORITIES)}")
        self.name = name
        self._random = Random(config.policy_seed)
        self._rounds = 0
        self._sorted: list[Choice] = []
        self._sorted_for: tuple[int, int] = (-1, -1)

    def active(self, state: State) -> str:
        """The policy that holds this turn."""
        if self.name in CACHE_AWARE and not state.cache.prefixes.enabled:
            return "fcfs"
        if self.name in ("lpm", "hrrn") and len(state.queue) > MATCH_AT_MOST:
            return "fcfs"
        return self.name

    def shares_prefixes(self, state: State) -> bool:
        """Whether choices wait a round for a prefix that another one is about to compute."""
        wanted = state.config.in_round_prefix_sharing
        return self.active(state) in SHARING if wanted is None else wanted

    def keep_heads(self, state: State) -> None:
        """Every so many rounds mark the prefixes of waiting choices as used, the head's last, so that eviction spares them."""
        self._rounds += 1
        if self._rounds % TOUCH_EVERY == 0 and state.cache.prefixes.enabled:
            for choice in reversed(list(islice(state.queue, MATCH_AT_MOST))):
                state.cache.prefixes.touch(choice.request.namespace, choice.fill[: choice.match_limit])

    def room_for_shorter(self, state: State) -> int:
        """Tokens a chunk leaves to waiting prompts shorter than its own rest: at most half a chunk."""
        chunked = state.chunked
        if chunked is None or self.active(state) != "shortest-prefill-first" or state.chunk_bound < 0:
            return 0
        rest = chunked.fill.size - int(state.batch.scheduled[chunked.row])
        shorter = sum(length for choice in state.queue if (length := uncached(state, choice)) < rest)
        return min(shorter, state.chunk_bound // 2)

    def order(self, state: State) -> Sequence[Choice]:
        """Waiting choices, first to be tried first."""
        name = self.active(state)
        if name == "fcfs" and not state.config.enable_priority_scheduling:
            return list(state.queue)
        tree = state.cache.prefixes.version if name in CACHE_AWARE else -1
        version = (state.queue.version, tree)
        if version != self._sorted_for or name in ("random", "hrrn"):
            self._sorted = self._ranked(name, state)
            self._sorted_for = version
        return self._sorted

    def _ranked(self, name: str, state: State) -> list[Choice]:
        waiting = list(state.queue)
        if name == "random":
            self._random.shuffle(waiting)
        elif name == "lof":
            waiting.sort(key=lambda choice: -choice.max_new)
        elif name == "lpm":
            waiting.sort(key=lambda choice: -hit_length(state, choice))
        elif name == "shortest-prefill-first":
            waiting.sort(key=lambda choice: uncached(state, choice))
        elif name == "hrrn":
            waiting.sort(key=_response_ratio(state))
        elif name == "dfs-weight":
            waiting = _depth_first(state, waiting)
        if state.config.enable_priority_scheduling:
            waiting.sort(key=lambda choice: -choice.priority)
        return waiting


def hit_length(state: State, choice: Choice) -> int:
    """Tokens of the choice found in the prefix cache, looked up again only after the cache changed."""
    prefixes = state.cache.prefixes
    if choice.hit_version != prefixes.version:
        choice.hit_version = prefixes.version
        choice.hit_length = prefixes.peek(choice.request.namespace, choice.fill[: choice.match_limit])
    return choice.hit_length


def uncached(state: State, choice: Choice) -> int:
    """Tokens that a prefill of the choice would compute."""
    return choice.fill.size - hit_length(state, choice)


def _response_ratio(state: State) -> Callable[[Choice], tuple[int, float]]:
    """Highest 1 + (prefill tokens the server computed since arrival) / (uncached length) first; cached ones before all."""

    def key(choice: Choice) -> tuple[int, float]:
        missing = uncached(state, choice)
        if missing <= 1:
            return 0, 0.0
        served = state.counters.computed_prompt_tokens - choice.seen_prefill
        return 1, -(1.0 + served / missing)

    return key


def _depth_first(state: State, waiting: list[Choice]) -> list[Choice]:
    """Visit the prefix tree depth first, branches with more waiting choices first, so that a hot branch is used while it is in."""
    groups: dict[int, list[Choice]] = {}
    paths: dict[int, tuple[int, ...]] = {}
    weight: dict[int, int] = {}
    for choice in waiting:
        path = state.cache.prefixes.path(choice.request.namespace, choice.fill[: choice.match_limit])
        key = path[-1] if path else 0
        groups.setdefault(key, []).append(choice)
        paths[key] = path
        for node in path:
            weight[node] = weight.get(node, 0) + 1
    first = {node: index for index, node in enumerate(dict.fromkeys(node for path in paths.values() for node in path))}
    own_last = (1, 0)  # what waits at a node itself comes after its branches
    ranked = sorted(groups, key=lambda key: [*((-weight[node], first[node]) for node in paths[key]), own_last])
    return [choice for key in ranked for choice in groups[key]]
