"""The adaptive limit against simulated servers that have a knee."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable

import pytest

from gateway.resilience.limit import AdaptiveLimit, FixedLimit, Limit


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


def test_it_begins_with_what_the_workers_can_run_and_follows_the_fleet() -> None:
    limit = AdaptiveLimit()
    limit.resize(0)
    assert 64 <= limit.value <= 80, "nothing known yet"
    limit.resize(256)
    assert 256 <= limit.value < 256 * 1.25
    before = limit.value
    limit.resize(2 * 256)
    assert limit.value == pytest.approx(2 * before, rel=0.15), "a second worker"
    limit.resize(256)
    assert limit.value == before
    for slots in (256, 250, 256, 262):
        limit.resize(slots)
    assert limit.value == before, "small changes move nothing"


class BatchServer:
    """Decodes all running requests in one step, at most `slots` of them; the step's length depends on how many there are."""

    def __init__(self, step_s: Callable[[int], float], slots: int, rng: random.Random) -> None:
        self.step_s, self.slots, self.rng = step_s, slots, rng

    def tokens_per_s(self, limit: Limit, clients: int, seconds: float) -> float:
        """Throughput of the second half, with so many clients that ask again at once."""
        now, tokens = 0.0, 0
        running: list[list[float]] = []
        waiting = [0.0] * clients
        while now < seconds:
            while waiting and len(running) < limit.value:
                waiting.pop()
                length = self.rng.randint(20, 400)
                running.append([now, length, length])
            batch = running[: self.slots]
            now += self.step_s(len(batch))
            tokens += len(batch) if now > seconds / 2 else 0
            for request in batch:
                request[1] -= 1
                if request[1] <= 0:
                    running.remove(request)
                    waiting.append(now)
                    limit.observe(now - request[0], int(request[2]), len(running) + 1, len(waiting) > 1)
        return tokens / (seconds / 2)


@pytest.mark.parametrize(
    ("step_s", "lost"),
    [(lambda n: 0.02 + 0.00002 * n, 0.05), (lambda n: 0.008 + 0.002 * n, 0.15), (lambda n: 0.02 + 0.0001 * max(0, n - 64), 0.15)],
    ids=["gains to the last slot", "gains little", "gains to a knee"],
)
def test_overload_costs_no_more_throughput_than_the_knee_is_worth(step_s: Callable[[int], float], lost: float) -> None:
    """From the workers' own bound it never slides into a limit that starves them."""
    free = BatchServer(step_s, 128, random.Random(3)).tokens_per_s(FixedLimit(1 << 20), 300, 120.0)
    limit = AdaptiveLimit()
    limit.resize(128)
    assert BatchServer(step_s, 128, random.Random(3)).tokens_per_s(limit, 300, 120.0) >= (1 - lost) * free
    assert limit.value < 300, "clients wait where priorities hold"


def test_a_fleet_that_thrashes_is_kept_at_its_knee() -> None:
    """Beyond 60 at once each more makes all slower; the workers would take 128."""

    def step_s(running: int) -> float:
        return 0.01 + 0.0005 * running + 0.00001 * max(0, running - 60) ** 2

    limit = AdaptiveLimit()
    limit.resize(128)
    limited = BatchServer(step_s, 128, random.Random(4)).tokens_per_s(limit, 400, 1200.0)
    free = BatchServer(step_s, 128, random.Random(4)).tokens_per_s(FixedLimit(1 << 20), 400, 200.0)
    assert 40 <= limit.value <= 100
    assert limited > 1.2 * free


def noisy(limit: Limit, rng: random.Random, seconds: float) -> tuple[float, list[int]]:
    """Tokens per second, and limits in force, of the second half: steps as two small workers' were measured, and as uneven."""
    now, tokens, drift, seen = 0.0, 0, 0.0, []
    running: list[list[float]] = []
    while now < seconds:
        while len(running) < limit.value and len(running) < 400:
            running.append([now, length := rng.randint(12, 20), length])
        batch = running[:128]
        took = (0.0057 + 0.00138 * len(batch)) * math.exp(rng.gauss(0, 0.25) + drift)
        drift = drift * math.exp(-took / 5) + rng.gauss(0, 0.04 * math.sqrt(0.4 * took))
        now += took
        if now > seconds / 2:
            tokens += len(batch)
            seen.append(limit.value)
        ended = []
        for request in batch:
            request[1] -= 1
            if request[1] <= 0:
                ended.append(request)
        for request in ended:
            limit.observe(now - request[0], int(request[2]), len(running), True)
        running = [request for request in running if request[1] > 0]
    return tokens / (seconds / 2), seen


def test_uneven_steps_do_not_push_it_far_below_the_knee() -> None:
    """By its own measure the knee of these workers is at 19."""
    rates, limits = [], []
    free, _ = noisy(FixedLimit(1 << 20), random.Random(0), 120.0)
    for seed in range(3):
        limit = AdaptiveLimit()
        limit.resize(128)
        rate, seen = noisy(limit, random.Random(seed), 600.0)
        rates.append(rate)
        limits += seen
    assert sum(rates) / len(rates) > 0.75 * free
    assert sorted(limits)[len(limits) // 10] >= 12
    assert max(limits) <= 185


def test_it_does_not_climb_far_beyond_what_the_workers_can_run() -> None:
    """What is more waits in the workers, where priorities and keys do not count."""
    limit = AdaptiveLimit()
    limit.resize(100)
    overload(limit, Server(5000, random.Random(1)), 60_000)
    assert 100 <= limit.value <= 160
