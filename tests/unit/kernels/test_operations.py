"""Every operation against its reference, over random shapes, on every instruction set."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.kernels.gemm import Kind, fits_i4, gemm, pack, reference_gemm
from services.scheduler.kernels.rmsnorm import reference_rmsnorm, rmsnorm
from services.scheduler.kernels.rope import reference_rope, rope
from services.scheduler.kernels.silu_mul import reference_silu_mul, silu_mul

_few = settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
_seeds = st.integers(0, 2**31)
_rows = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25])
_HEAD_DIMS = [64, 80, 96, 128, 256]


def normal(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator)


def on_a_grid(weight: torch.Tensor) -> torch.Tensor:
    """The weight rounded to 16 levels for each 32 numbers, with float16 scale and minimum, as 4-bit files store it."""
    groups = weight.reshape(-1, 32)
    low = groups.amin(-1, keepdim=True).half().float()
    step = ((groups.amax(-1, keepdim=True) - low) / 15).half().float()
    return (((groups - low) / step).round().clamp(0, 15) * step + low).reshape(weight.shape)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, relative: float) -> None:
    assert actual.shape == expected.shape
    if expected.numel():
        assert (actual.double() - expected.double()).abs().max() <= relative * expected.double().abs().max().clamp_min(1e-3)


@pytest.mark.parametrize("kind", ["f32", "bf16", "i8", "i4"])
@_few
@given(
    seed=_seeds, rows=_rows, n=st.sampled_from([1, 15, 16, 17, 48, 80, 100]), groups=st.sampled_from([1, 2, 3, 5, 18]), wide=st.booleans()
)
def test_gemm(isa: str, kind: Kind, seed: int, rows: int, n: int, groups: int, wide: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = normal(generator, n, 32 * groups)
    if kind == "i4":
        weight = on_a_grid(weight)
    x = normal(generator, rows, 32 * groups)
    out = gemm(x, pack(weight, kind, isa), wide)
    assert_close(out, reference_gemm(x, weight, kind, wide), 2e-5)


@_few
@given(seed=_seeds, rows=st.integers(1, 40), kind=st.sampled_from(["f32", "bf16", "i8", "i4"]))
def test_a_row_of_a_product_has_the_same_bits_whatever_is_beside_it(isa: str, seed: int, rows: int, kind: Kind) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = pack(on_a_grid(normal(generator, 96, 192)), kind, isa)
    x = normal(generator, rows, 192)
    together = gemm(x, weight)
    assert torch.equal(together, torch.cat([gemm(x[i : i + 1].contiguous(), weight) for i in range(rows)]))


def test_four_bits_are_taken_only_when_they_lose_nothing(isa: str) -> None:
    generator = torch.Generator().manual_seed(3)
    grid = on_a_grid(normal(generator, 40, 64))
    assert fits_i4(grid, isa)
    assert fits_i4(torch.zeros(2, 32), isa)
    assert fits_i4(torch.full((2, 32), -0.75), isa)
    eye = torch.eye(64)
    assert_close(gemm(eye * 127, pack(grid, "i4", isa)) / 127, grid.T, 1e-6)
    moved = grid.clone()
    moved[17, 33] += 0.01
    assert not fits_i4(moved, isa)
    assert not fits_i4(normal(generator, 4, 32), isa)
    with pytest.raises(ValueError, match="4-bit"):
        pack(moved, "i4", isa)


def test_a_poisoned_row_stays_poisoned_and_alone(isa: str) -> None:
    x = torch.ones(3, 64)
    x[1, 5] = float("nan")
    for kind in ("f32", "bf16", "i8", "i4"):
        out = gemm(x, pack(torch.ones(20, 64), kind, isa))
        assert out[1].isnan().all()
        assert not out[[0, 2]].isnan().any()
    x[1, 5] = float("inf")
    assert not gemm(x, pack(torch.ones(20, 64), "i8", isa))[1].isfinite().any()


@_few
@given(seed=_seeds, rows=_rows, k=st.sampled_from([16, 48, 576]))
def test_rmsnorm(isa: str, seed: int, rows: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, weight = normal(generator, rows, k) * 5, normal(generator, k)
    assert_close(rmsnorm(x, weight, 1e-5, isa), reference_rmsnorm(x, weight, 1e-5), 1e-6)


@_few
@given(seed=_seeds, rows=_rows, scale=st.sampled_from([0.1, 3.0, 60.0, 1000.0]))
def test_silu_mul(isa: str, seed: int, rows: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    gate, up = normal(generator, rows, 48) * scale, normal(generator, rows, 48)
    assert_close(silu_mul(gate, up, isa), reference_silu_mul(gate, up), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@_few
@given(seed=_seeds, tokens=st.integers(0, 9), dim=st.sampled_from([32, 48, *_HEAD_DIMS]), kv_heads=st.integers(1, 3), norms=st.booleans())
def test_rope(isa: str, dtype: torch.dtype, seed: int, tokens: int, dim: int, kv_heads: int, norms: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    heads = 2 * kv_heads
    qkv = normal(generator, tokens, (heads + 2 * kv_heads) * dim)
    positions = torch.randint(0, 50, (tokens,), generator=generator).int()
    slots = torch.randperm(20, generator=generator)[:tokens].int()
    angles = torch.outer(torch.arange(50.0), 1 / 1000 ** (torch.arange(dim // 2) / (dim // 2)))
    cos, sin = angles.cos(), angles.sin()
    q_norm, k_norm = (normal(generator, dim) if norms else None for _ in range(2))
    expected_q, expected_kv = reference_rope(qkv, positions, cos, sin, kv_heads, q_norm=q_norm, k_norm=k_norm)
    kv = torch.zeros(20, 2, kv_heads, dim, dtype=dtype)
    q = rope(qkv, positions, slots, cos, sin, kv, q_norm=q_norm, k_norm=k_norm, isa=isa)
    tolerance = 1e-5 if dtype == torch.float32 else 2**-8
    assert_close(q, expected_q, tolerance)
    assert_close(kv[slots.long()], expected_kv, tolerance)
    untouched = torch.ones(20, dtype=torch.bool)
    untouched[slots.long()] = False
    assert not kv[untouched].any()
