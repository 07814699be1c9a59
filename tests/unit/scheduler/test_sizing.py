"""The sizing arithmetic on the numbers people know."""

from __future__ import annotations

import pytest

from services.scheduler.cache import sizing
from services.scheduler.cache.sizing import GIB, NoRoom


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((28, 8, 128, 2), 114_688),
        ((32, 8, 128, 2), 131_072),
        ((30, 3, 64, 2), 23_040),
        ((30, 3, 64, 4), 46_080),
        ((80, 8, 128, 2), 327_680),
        ((24, 2, 64, 2), 12_288),
    ],
)
def test_bytes_per_token(shape: tuple[int, int, int, int], expected: int) -> None:
    assert sizing.bytes_per_token(*shape) == expected


def test_latents_do_not_multiply_by_heads() -> None:
    assert sizing.latent_bytes_per_token(61, 512, 64, 2) == 70_272


@pytest.mark.parametrize(("gib", "chunk"), [(16, 2048), (24, 4096), (40, 4096), (80, 8192), (141, 8192), (192, 16384), (None, 4096)])
def test_default_chunk(gib: int | None, chunk: int) -> None:
    assert sizing.default_chunk(None if gib is None else gib * GIB) == chunk


@pytest.mark.parametrize(
    ("gib", "ranks", "expected"),
    [
        (16, 1, 0.773),
        (24, 1, 0.724),
        (40, 1, 0.834),
        (80, 1, 0.842),
        (141, 1, 0.91),
        (192, 1, 0.872),
        (16, 8, 0.719),
        (80, 8, 0.831),
        (192, 8, 0.867),
    ],
)
def test_static_fraction(gib: int, ranks: int, expected: float) -> None:
    """1 - reserve / capacity; reserve in MiB: 512 + 1.5 x chunk + 128 x ranks, at least 10 GiB above 60."""
    chunk = sizing.default_chunk(gib * GIB)
    assert sizing.static_fraction(gib * GIB, chunk, tensor_parallel=ranks) == expected
    reserve = max(512 + 1.5 * chunk + 128 * ranks, 10_240 if gib > 60 else 0)
    assert expected == round(1 - reserve / (gib * 1024), 3)


def test_static_fraction_of_an_unknown_device() -> None:
    assert sizing.static_fraction(None, 4096) == 0.95


def test_device_budget() -> None:
    assert sizing.device_budget(80 * GIB, 60 * GIB, 0.9) == pytest.approx(52 * GIB, abs=2)
    assert sizing.device_budget(80 * GIB, 20 * GIB, 0.8) == pytest.approx(4 * GIB, abs=2)
    with pytest.raises(NoRoom, match=r"0\.751"):
        sizing.device_budget(80 * GIB, 20 * GIB, 0.7)
    assert sizing.device_budget(80 * GIB, 20 * GIB, 0.751) > 0


def test_host_budget_takes_the_smaller_share() -> None:
    assert sizing.host_budget(60 * GIB, 1 * GIB, 48 * GIB, 0.4) == int(0.4 * 48 * GIB)
    assert sizing.host_budget(40 * GIB, 2 * GIB, 90 * GIB, 0.4) == 14 * GIB
    with pytest.raises(NoRoom, match="in use"):
        sizing.host_budget(40 * GIB, 20 * GIB, 90 * GIB, 0.4)


@pytest.mark.parametrize(("available", "budget", "tokens"), [(27.81, 24.25, 227_022), (38.29, 33.39, 312_581)])
def test_two_starts_of_one_host_with_other_programs_beside(available: float, budget: float, tokens: int) -> None:
    """The same command, a working set of 51.8 GB of which 0.31 are taken, and what others leave at that moment."""
    found = sizing.host_budget(int(51.8 * GIB), int(0.31 * GIB), int(available * GIB), 0.872)
    assert found / GIB == pytest.approx(budget, abs=0.005)
    assert sizing.pool_tokens(found, 114_688) == pytest.approx(tokens, rel=2e-4)


def test_pool_tokens() -> None:
    budget = 181_574 * 114_688 + 500
    assert sizing.pool_tokens(budget, 114_688) == 181_574
    assert sizing.pool_tokens(budget, 114_688, page_size=16) == 181_568
    assert sizing.pool_tokens(budget, 114_688, most=4096) == 4096
    with pytest.raises(NoRoom, match="page"):
        sizing.pool_tokens(1000, 114_688)


@pytest.mark.parametrize(
    ("tokens", "context", "expected"), [(1_000_000, 8192, 4096), (181_574, 40_960, 2269), (4096, 8192, 2048), (60, 8192, 30)]
)
def test_default_max_running(tokens: int, context: int, expected: int) -> None:
    assert sizing.default_max_running(tokens, context) == expected
