"""The free list against a set of pages."""

from __future__ import annotations

from random import Random

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


@pytest.mark.parametrize("page", [1, 16])
def test_ten_thousand_operations_lose_and_double_nothing(page: int) -> None:
    allocator, random = PageAllocator(3000, page), Random(page)
    owner = np.zeros(allocator.num_pages + 1, bool)
    held: list[np.ndarray] = []
    for _ in range(10_000):
        if random.random() < 0.5 or not held:
            pages = allocator.allocate(random.randrange(1, 1 + allocator.num_pages // 12))
            if pages is None:
                continue
            assert not owner[pages].any() and np.unique(pages).size == pages.size and pages.min() > 0
            owner[pages] = True
            held.append(pages)
        else:
            pages = held.pop(random.randrange(len(held)))
            allocator.free(pages)
            owner[pages] = False
        assert allocator.free_pages == allocator.num_pages - int(owner.sum())
    for pages in held:
        allocator.free(pages)
    assert allocator.free_tokens == allocator.capacity


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
