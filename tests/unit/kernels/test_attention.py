"""Attention against its reference, and the same bits however the work is cut."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.kernels.attention import attention, reference_attention

_SLOTS = 700


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Case:
    """Sequences of ragged lengths in scattered slots."""

    def __init__(self, seed: int, dim: int, kv_heads: int, group: int, dtype: torch.dtype, lengths: list[tuple[int, int]]) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.kv = torch.randn(_SLOTS, 2, kv_heads, dim, generator=generator).to(dtype)
        self.extend = ints(*(min(e, n) for e, n in lengths))
        self.lengths = ints(*(n for _, n in lengths))
        self.rows = torch.randperm(len(lengths) + 2, generator=generator)[: len(lengths)].int()
        self.table = torch.zeros(len(lengths) + 2, 300, dtype=torch.int32)
        for row, length in zip(self.rows.tolist(), self.lengths.tolist(), strict=True):
            self.table[row, :length] = torch.randperm(_SLOTS, generator=generator)[:length].int()
        self.q = torch.randn(int(self.extend.sum()), kv_heads * group, dim, generator=generator).to(dtype)
        self.scale = dim**-0.5

    def run(self, isa: str, tile: int = 32, split: bool = False) -> torch.Tensor:
        arguments = (self.q, self.kv, self.rows, self.extend, self.lengths, self.table)
        return attention(*arguments, scale=self.scale, tile=tile, split=split, isa=isa)

    def expected(self) -> torch.Tensor:
        return reference_attention(self.q, self.kv, self.rows, self.extend, self.lengths, self.table, scale=self.scale)


_sequences = st.lists(st.tuples(st.sampled_from([1, 1, 1, 2, 7, 33]), st.integers(1, 200)), max_size=4)
_few = settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@_few
@given(
    seed=st.integers(0, 2**31),
    dim=st.sampled_from([32, 64, 80, 96, 128, 256]),
    kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 2, 3, 4, 7]),
    lengths=_sequences,
)
def test_attention(isa: str, dtype: torch.dtype, seed: int, dim: int, kv_heads: int, group: int, lengths: list[tuple[int, int]]) -> None:
    case = Case(seed, dim, kv_heads, group, dtype, lengths)
    out = case.run(isa)
    tolerance = 2e-5 if dtype == torch.float32 else 1.5e-2  # probabilities are rounded to bfloat16 too
    assert torch.allclose(out.double(), case.expected(), atol=tolerance, rtol=tolerance)
    assert torch.equal(out, case.run(isa, split=True))
    assert torch.equal(out, case.run(isa, tile=1))
    assert torch.equal(out, case.run(isa, tile=5))


def test_what_lies_in_unused_slots_does_not_matter(isa: str) -> None:
    case = Case(1, 64, 1, 3, torch.bfloat16, [(1, 65), (30, 100)])
    expected = case.run(isa)
    used = torch.zeros(_SLOTS, dtype=torch.bool)
    for row, length in zip(case.rows.tolist(), case.lengths.tolist(), strict=True):
        used[case.table[row, :length].long()] = True
    case.kv[~used] = float("nan")
    assert torch.equal(case.run(isa), expected)


def test_large_scores_do_not_overflow(isa: str) -> None:
    case = Case(2, 64, 1, 1, torch.float32, [(3, 130)])
    case.q *= 400
    assert torch.allclose(case.run(isa).double(), case.expected(), atol=1e-3)


def test_a_slot_outside_the_pool_is_refused(isa: str) -> None:
    case = Case(3, 64, 1, 1, torch.float32, [(1, 10)])
    case.table[case.rows[0], 4] = _SLOTS
    with pytest.raises(ValueError, match=r"req_to_token\[4\]"):
        case.run(isa)
