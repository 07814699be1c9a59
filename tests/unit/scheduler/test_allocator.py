"""The free list against a set of pages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cache.allocator import PageAllocator


@settings(max_examples=60, deadline=None)
@given(
    slots=st.integers(8, 400),
    page=st.sampled_from([1, 2, 16]),
    operations=st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=80),
)
def test_equals_a_set_of_pages(slots: int, page: int, operations: list[tuple[bool, int]]) -> None:
    if slots + 1 < 2 * page:
        with pytest.raises(ValueError, match="no whole page"):
            PageAllocator(slots, page)
        return
    allocator = PageAllocator(slots, page)
    free = set(range(1, allocator.num_pages + 1))
    held: list[np.ndarray] = []
    for take, number in operations:
        if take:
            pages = allocator.allocate(number)
            assert (pages is None) == (number > len(free))
            if pages is not None:
                taken = set(pages.tolist())
                assert len(taken) == number and taken <= free
                free -= taken
                held.append(pages)
        elif held:
            pages = held.pop(number % len(held))
            allocator.free(pages)
            free |= set(pages.tolist())
        assert allocator.free_pages == len(free)
        assert set(allocator.free_page_ids().tolist()) == free
    assert allocator.num_pages * page + page - 1 <= slots + page - 1


def test_prefers_one_run() -> None:
    allocator = PageAllocator(100)
    first = allocator.allocate(40)
    second = allocator.allocate(40)
    assert first is not None and second is not None
    allocator.free(first[::2])
    allocator.free(second)
    taken = allocator.allocate(50)
    assert taken is not None and np.array_equal(np.diff(taken), np.ones(49))


@pytest.mark.parametrize("pages", [[5], [2, 2], [0], [101]])
def test_refuses_pages_it_did_not_hand_out(pages: list[int]) -> None:
    allocator = PageAllocator(100)
    allocator.allocate(4)
    with pytest.raises(ValueError, match="given back"):
        allocator.free(np.array(pages, np.int32))
    assert allocator.free_pages == 96
