"""What a session used last is evicted after everything that no session refers to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cache.events import EventLog
from services.scheduler.cache.eviction import EVICTION_POLICIES, make_policy
from services.scheduler.cache.radix_cache import RadixCache
from services.scheduler.cache.sessions import Sessions
from services.scheduler.core.messages import BASE_NAMESPACE
from services.scheduler.core.plan import IntArray
from tests.unit.scheduler.harness import Driver, prompt


def cached(driver: Driver, tokens: IntArray) -> int:
    return driver.scheduler._state.cache.prefixes.peek(BASE_NAMESPACE, tokens)


@pytest.mark.parametrize(("enabled", "kept"), [(True, 100), (False, 0)])
def test_a_sessions_prefix_survives_a_wave_of_strangers(enabled: bool, kept: int) -> None:
    driver = Driver(pool=500, enable_session_radix_cache=enabled)
    driver.submit(prompt(100, 1), 1, session="chat")
    driver.run()
    for number in range(2, 12):
        driver.submit(prompt(100, number), 1)
        driver.run()
    assert cached(driver, prompt(100, 1)) == kept


def test_a_reference_holds_no_memory_that_is_needed() -> None:
    driver = Driver(pool=500, enable_session_radix_cache=True)
    for number in range(4):
        driver.submit(prompt(100, number), 1, session=f"chat {number}")
        driver.run()
    handle = driver.submit(prompt(450, 9), 20)
    driver.run()
    assert len(driver.tokens(handle)) == 20
    assert driver.scheduler.flush_cache() is not None
    assert driver.scheduler.load().kv_free_tokens == 500


def test_a_session_that_goes_elsewhere_lets_go_of_what_it_used() -> None:
    """A second branch takes the reference along; the first one is a stranger's again."""
    driver = Driver(pool=500, enable_session_radix_cache=True)
    for first in (1, 2):
        driver.submit(prompt(100, first), 1, session="chat")
        driver.run()
    for number in range(3, 9):
        driver.submit(prompt(100, number), 1)
        driver.run()
    assert (cached(driver, prompt(100, 1)), cached(driver, prompt(100, 2))) == (0, 100)


@settings(max_examples=80, deadline=None)
@given(
    policy=st.sampled_from(EVICTION_POLICIES),
    steps=st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=25), st.sampled_from(["", "", "x", "y", "z"])), min_size=1, max_size=20
    ),
    most=st.integers(1, 3),
    share=st.integers(1, 100),
)
def test_only_what_is_referred_to_is_left_when_the_rest_is_gone(
    policy: str, steps: list[tuple[list[int], str]], most: int, share: int
) -> None:
    """The model is a plain dictionary from session to its last sequence."""
    tree = RadixCache(make_policy(policy), lambda _: 0, EventLog(enabled=False), sessions=Sessions(most))
    ends: dict[str, list[int]] = {}
    for tokens, session in steps:
        ids = np.array(tokens, np.int32)
        node, _ = tree.insert(tree.match("n", ids[:0]).node, ids, (ids,))
        if session:
            tree.refer(session, node)
            ends.pop(session, None)
            ends[session] = tokens
            if len(ends) > most:
                del ends[next(iter(ends))]
    referred = {tuple(tokens[: end + 1]) for tokens in ends.values() for end in range(len(tokens))}
    strangers = tree.evictable_tokens - len(referred)
    while strangers > 0:
        strangers -= tree.evict(max(1, strangers * share // 100))[0].size
    assert all(tree.peek("n", np.array(tokens, np.int32)) == len(tokens) for tokens in ends.values())
    assert tree.evictable_tokens == len(referred)
