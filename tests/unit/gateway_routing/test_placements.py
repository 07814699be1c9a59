"""How pressure follows from what was placed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.interface import WorkerView
from gateway.routing.placements import Placements


def views(*sizes: int) -> list[WorkerView]:
    return [WorkerView(f"w{i}", cache_tokens=size) for i, size in enumerate(sizes)]


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 9000), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 20_000)), max_size=40),
)
def test_pressure_is_one_on_average_by_size_and_never_negative(sizes: list[int], placed: list[tuple[int, int]]) -> None:
    workers, placements = views(*sizes), Placements()
    for number, tokens in placed:
        placements.add(f"w{number % len(sizes)}", tokens, workers)
    pressure = placements.pressure(workers)
    assert min(pressure.values()) >= 0
    assert sum(w.cache_tokens * pressure[w.id] for w in workers) == pytest.approx(sum(sizes))


def test_what_was_placed_fades_as_the_fleet_fills_anew_and_not_with_time() -> None:
    workers, placements = views(1000, 1000), Placements()
    for _ in range(20):
        placements.add("w0", 100, workers)
    assert placements.pressure(workers) == {"w0": pytest.approx(2.0), "w1": 0.0}
    for _ in range(100):
        placements.add("w1", 100, workers)
    pressure = placements.pressure(workers)
    assert pressure["w0"] < 0.05 < 1.9 < pressure["w1"]


def test_the_same_amount_presses_a_small_cache_more() -> None:
    workers, placements = views(1000, 3000), Placements()
    for worker in workers:
        placements.add(worker.id, 300, workers)
    pressure = placements.pressure(workers)
    assert pressure["w0"] > 2 * pressure["w1"]


def test_sizes_that_are_not_known_press_nobody() -> None:
    placements = Placements()
    placements.add("w0", 100, views(0, 0))
    assert placements.pressure(views(0, 0)) == {"w0": 1.0, "w1": 1.0}
    placements.add("w0", 100, views(1000, 0))
    assert placements.pressure(views(1000, 0)) == {"w0": 1.0, "w1": 1.0}


def test_a_worker_that_left_is_forgotten() -> None:
    workers, placements = views(1000, 1000), Placements()
    placements.add("w0", 500, workers)
    placements.forget("w0")
    assert placements.pressure(workers) == {"w0": 1.0, "w1": 1.0}
