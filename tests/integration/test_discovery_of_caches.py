"""Health watches and cache subscriptions over real links: restarts, gaps, silence, removal."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.routing.factory import PolicySettings, make_policy
from gateway.workers.fleet import FleetSettings, FleetWatcher
from gateway.workers.health import HealthSettings
from gateway.workers.registry import Registry, RegistrySettings
from gateway.workers.worker import ModelIdentity, WorkerInfo, WorkerState
from tests.fakes.publishing_worker import NOT_SERVING, SERVING, PublishingWorker

QUICK = FleetSettings(HealthSettings(interval_s=0.05, retry_s=0.02, slowest_retry_s=0.1))


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


@pytest.fixture
def fleet() -> Registry:
    rng = random.Random(1)
    return Registry(RegistrySettings(), lambda model: make_policy("cache_aware", PolicySettings(), time.monotonic, rng), time.monotonic)


@contextlib.asynccontextmanager
async def running(*workers: PublishingWorker) -> AsyncIterator[None]:
    for worker in workers:
        await worker.start()
    try:
        yield
    finally:
        for worker in workers:
            await worker.stop()


@contextlib.asynccontextmanager
async def watching(fleet: Registry) -> AsyncIterator[FleetWatcher]:
    watcher = FleetWatcher(fleet, QUICK, trust=None, subscriber="test")
    watcher.start()
    try:
        yield watcher
    finally:
        await watcher.close()


def is_equal(fleet: Registry, *workers: PublishingWorker) -> bool:
    tree = fleet.group("m").index.tree
    return all(
        tree.follows(w.address)
        and tree.blocks_of(w.address) == len(set(w.cache.blocks))
        and all(tree.holds(w.address, block) for block in w.cache.blocks)
        for w in workers
    )


async def test_the_tree_equals_the_workers_caches_after_changes_gaps_hangups_and_restarts(fleet: Registry) -> None:
    rng = random.Random(4)
    workers = [PublishingWorker() for _ in range(3)]
    async with running(*workers), watching(fleet) as watcher:
        for worker in workers:
            worker.cache.change([rng.getrandbits(64) for _ in range(10)], [])
            fleet.add(worker.address)
        await until(lambda: is_equal(fleet, *workers))
        for step in range(30):
            cache = rng.choice(workers).cache
            gone = rng.sample(cache.blocks, len(cache.blocks) // 3)
            cache.change([rng.getrandbits(64) for _ in range(8)], gone, skip=step % 7 == 0)
            if step % 11 == 5:
                cache.hang_up()
            await asyncio.sleep(0.005)
        await workers[0].restart()
        for worker in workers:
            worker.cache.change([rng.getrandbits(64)], [])
        await until(lambda: is_equal(fleet, *workers))
        assert sum(watcher.cache.gaps.values()) > 0
        left = workers.pop()
        fleet.remove(left.address)
        assert not fleet.group("m").index.tree.follows(left.address)
        left.cache.change([1], [])
        await asyncio.sleep(0.05)
        assert not fleet.group("m").index.tree.follows(left.address)
        assert is_equal(fleet, *workers)


async def test_a_new_gateway_knows_all_there_is_at_once(fleet: Registry) -> None:
    worker = PublishingWorker()
    worker.cache.change(list(range(1, 1000)), [])
    async with running(worker), watching(fleet):
        fleet.add(worker.address)
        await until(lambda: is_equal(fleet, worker))
        assert fleet.group("m").index.tree.match(list(range(1, 1000))) == {worker.address: 999}


async def test_a_worker_that_publishes_only_load_is_guessed(fleet: Registry) -> None:
    worker = PublishingWorker()
    worker.cache.publishes_blocks = False
    async with running(worker), watching(fleet):
        added = fleet.add(worker.address)
        await until(lambda: worker.cache.subscribers == 1)
        worker.cache.report(running=3, prefill_tokens_per_s=1234.0)
        await until(lambda: added.load.prefill_tokens_per_s == 1234.0)
        assert added.in_flight.load == 3
        index = fleet.group("m").index
        index.routed(worker.address, [1, 2], 0)
        assert index.match([1, 2])[worker.address].blocks == 2


@pytest.mark.parametrize("can_watch", [True, False])
async def test_states_follow_health_with_watch_and_without(fleet: Registry, can_watch: bool) -> None:
    fake = PublishingWorker()
    fake.health.can_watch = can_watch
    async with running(fake), watching(fleet):
        worker = fleet.add(fake.address)
        fleet.session_opened(worker, WorkerInfo(ModelIdentity("m", "d", "t")))
        await until(lambda: worker.state is WorkerState.READY)
        fake.health.set(NOT_SERVING)
        await until(lambda: worker.state is WorkerState.NOT_READY)
        fake.health.set(SERVING)
        await until(lambda: worker.state is WorkerState.READY)
        await fake.stop()
        fleet.session_lost(worker, "reset")
        await until(lambda: worker.state is WorkerState.FAILED)
        assert worker.state_reason
        await fake.start()
        await until(lambda: worker.state is WorkerState.NOT_READY)
        fleet.session_opened(worker, WorkerInfo(ModelIdentity("m", "d", "t"), boot_id="2"))
        await until(lambda: worker.state is WorkerState.READY)


async def test_nothing_is_left_running(fleet: Registry) -> None:
    before = len(asyncio.all_tasks())
    worker = PublishingWorker()
    async with running(worker):
        async with watching(fleet):
            fleet.add(worker.address)
            fleet.add("127.0.0.1:1")
            await until(lambda: worker.cache.subscribers == 1)
            fleet.remove("127.0.0.1:1")
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) <= before + 1
