"""Policies by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.routing.bucket import Bucket
from gateway.routing.cache_aware import CacheAware, CacheAwareSettings
from gateway.routing.hashing import ConsistentHashing, PrefixHash
from gateway.routing.interface import Policy
from gateway.routing.manual import Manual
from gateway.routing.simple import LeastLoad, PowerOfTwo, Random, RoundRobin

POLICIES = (
    "cache_aware",
    "round_robin",
    "random",
    "power_of_two",
    "least_load",
    "prefix_hash",
    "consistent_hashing",
    "bucket",
    "manual",
)


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """prefix_blocks: blocks that `prefix_hash` looks at. manual_idle_s: how long `manual` remembers an idle key."""

    cache_aware: CacheAwareSettings = field(default_factory=CacheAwareSettings)
    prefix_blocks: int = 16
    prefix_load_factor: float = 1.25
    manual_idle_s: float = 4 * 3600.0


def make_policy(name: str, settings: PolicySettings, clock: Callable[[], float], rng: random.Random) -> Policy:
    """A new policy with state of its own. Raises ValueError for an unknown name."""
    makers: dict[str, Callable[[], Policy]] = {
        "cache_aware": lambda: CacheAware(settings.cache_aware, rng),
        "round_robin": RoundRobin,
        "random": lambda: Random(rng),
        "power_of_two": lambda: PowerOfTwo(rng),
        "least_load": lambda: LeastLoad(rng),
        "prefix_hash": lambda: PrefixHash(rng, prefix_blocks=settings.prefix_blocks, load_factor=settings.prefix_load_factor),
        "consistent_hashing": lambda: ConsistentHashing(rng),
        "bucket": lambda: Bucket(settings.cache_aware.guard, rng),
        "manual": lambda: Manual(clock, rng, idle_s=settings.manual_idle_s),
    }
    if name not in makers:
        raise ValueError(f"unknown policy {name!r}; known are {', '.join(POLICIES)}")
    return makers[name]()
