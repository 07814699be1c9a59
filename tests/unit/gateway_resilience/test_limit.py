"""The adaptive limit against simulated servers that have a knee."""

from __future__ import annotations

import heapq
import math
import random

import pytest

from gateway.resilience.limit import AdaptiveLimit, FixedLimit


class Server:
    """Serves up to `knee` requests as fast as one; beyond that they share, and beyond `thrash` times the knee they suffer."""

    def __init__(self, knee: int, rng: random.Random, *, loss: float = 0.0) -> None:
        self.knee, self.rng, self.loss = knee, rng, loss

    def service_s(self, running: int) -> float:
        crowding = max(1.0, running / self.knee)
        return self.rng.uniform(0.5, 1.5) * math.pow(crowding, 1 + self.loss)


def overload(limit: AdaptiveLimit, server: Server, requests: int, *, demand: int = 10_000) -> list[int]:
    """Always `demand` requests want in. Returns the limits in force over the second half."""
    ends: list[tuple[float, float]] = []
    now, seen = 0.0, []
    for i in range(requests):
        while len(ends) < min(limit.value, demand):
            took = server.service_s(len(ends) + 1)
            heapq.heappush(ends, (now + took, took))
        now, took = heapq.heappop(ends)
        limit.observe(took, 100, len(ends) + 1, len(ends) + 1 < demand)
        if i > requests // 2:
            seen.append(limit.value)
    return seen


@pytest.mark.parametrize("knee", [8, 32, 200])
@pytest.mark.parametrize("initial", [4, 64, 500])
@pytest.mark.parametrize("loss", [0.0, 0.5])
def test_it_finds_the_knee_from_either_side(knee: int, initial: int, loss: float) -> None:
    limits = overload(AdaptiveLimit(initial=initial), Server(knee, random.Random(knee + initial), loss=loss), 60_000)
    middle = sorted(limits)[len(limits) // 2]
    assert 0.75 * knee <= middle <= 1.6 * knee


def test_it_follows_when_the_fleet_grows_and_shrinks() -> None:
    limit, rng = AdaptiveLimit(initial=64), random.Random(2)
    overload(limit, Server(32, rng), 30_000)
    grown = overload(limit, Server(128, rng), 60_000)
    assert sorted(grown)[len(grown) // 2] > 90
    shrunk = overload(limit, Server(16, rng), 90_000)
    assert sorted(shrunk)[len(shrunk) // 2] < 32


def test_without_a_queue_it_stays_where_it_is() -> None:
    limit = AdaptiveLimit(initial=64)
    before = limit.value
    overload(limit, Server(8, random.Random(1)), 5_000, demand=20)
    assert limit.value == before


def test_a_fixed_limit_is_fixed() -> None:
    limit = FixedLimit(7)
    limit.observe(100.0, 1, 7, True)
    assert limit.value == 7
