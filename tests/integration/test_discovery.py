"""Discovery against a resolver and a Kubernetes API server that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable

import pytest
from kubernetes_asyncio import client

from gateway.routing.factory import PolicySettings, make_policy
from gateway.workers.dns_discovery import follow_dns, resolve
from gateway.workers.endpoint_slices import EndpointSlices
from gateway.workers.kubernetes_discovery import KubernetesSettings, follow_kubernetes
from gateway.workers.membership import Endpoint, Membership, leave
from gateway.workers.registry import Registry, RegistrySettings
from gateway.workers.request import LeaseRequest, PromptKey
from gateway.workers.worker import ModelIdentity, WorkerInfo, WorkerState
from tests.fakes.kubernetes_api import FakeKubernetes, endpoint_slice

READY, DRAINING = WorkerState.READY, WorkerState.DRAINING


@pytest.fixture
def fleet() -> Registry:
    rng = random.Random(1)
    return Registry(RegistrySettings(), lambda model: make_policy("cache_aware", PolicySettings(), time.monotonic, rng), time.monotonic)


@pytest.fixture
async def api() -> AsyncIterator[FakeKubernetes]:
    fake = FakeKubernetes()
    await fake.start()
    yield fake
    await fake.stop()


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def following(fleet: Registry, fake: FakeKubernetes, *, silence_s: float = 30.0, grace_s: float = 0.2) -> AsyncIterator[None]:
    membership = Membership(fleet, "kubernetes", grace_s=grace_s)
    connection = client.ApiClient(client.Configuration(host=fake.url))
    settings = KubernetesSettings("prod", "kubernetes.io/service-name=workers", silence_s=silence_s)
    task = asyncio.create_task(follow_kubernetes(membership, connection, settings))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await membership.close()
        await connection.close()


def addresses(fleet: Registry) -> dict[str, bool]:
    """Address → is it draining?"""
    return {worker.id: worker.state is DRAINING for worker in fleet.workers()}


def serve(fleet: Registry, address: str) -> None:
    fleet.session_opened(fleet.find(address), WorkerInfo(ModelIdentity("m", "d", "t")))


# ---------------------------------------------------------------- Kubernetes


async def test_endpoints_come_and_go_with_the_slices(fleet: Registry, api: FakeKubernetes) -> None:
    api.put(endpoint_slice("a", 5, "10.0.0.1", "10.0.0.2"))
    async with following(fleet, api):
        await until(lambda: addresses(fleet) == {"10.0.0.1:30100": False, "10.0.0.2:30100": False})
        await api.watched()
        assert api.queries[0]["labelSelector"] == "kubernetes.io/service-name=workers"
        assert api.queries[-1]["resourceVersion"] == "5"
        await api.send("ADDED", endpoint_slice("b", 6, "10.0.0.3"))
        await until(lambda: "10.0.0.3:30100" in addresses(fleet))
        await api.send("MODIFIED", endpoint_slice("a", 7, "10.0.0.2", ready=True))
        await until(lambda: "10.0.0.1:30100" not in addresses(fleet))
        await api.send("DELETED", endpoint_slice("b", 8, "10.0.0.3"))
        await until(lambda: set(addresses(fleet)) == {"10.0.0.2:30100"})


@pytest.mark.parametrize("how", [{"terminating": True}, {"deleted": True}])
async def test_what_is_being_deleted_gets_nothing_new_though_it_is_ready_and_keeps_its_streams(
    fleet: Registry, api: FakeKubernetes, how: dict[str, bool]
) -> None:
    api.put(endpoint_slice("a", 5, "10.0.0.1"))
    api.put(endpoint_slice("b", 5, "10.0.0.2"))
    async with following(fleet, api, grace_s=60.0):
        await until(lambda: len(fleet.workers()) == 2)
        await api.watched()
        for worker in fleet.workers():
            serve(fleet, worker.id)
        running = fleet.lease(LeaseRequest("m", PromptKey([1]), worker_id="10.0.0.1:30100"))
        told = time.monotonic()
        await api.send("MODIFIED", endpoint_slice("a", 6, "10.0.0.1", **how))
        await until(lambda: fleet.find("10.0.0.1:30100").state is DRAINING)
        assert time.monotonic() - told < 1.0
        for _ in range(20):
            with fleet.lease(LeaseRequest("m", PromptKey([1]))) as lease:
                assert lease.worker.id == "10.0.0.2:30100"
        await api.send("DELETED", endpoint_slice("a", 7, "10.0.0.1"))
        assert running.outcome is None
        assert "10.0.0.1:30100" in addresses(fleet), "it stays until its stream has ended"
        with running:
            pass
        await until(lambda: set(addresses(fleet)) == {"10.0.0.2:30100"})


async def test_events_that_come_late_change_nothing(fleet: Registry, api: FakeKubernetes) -> None:
    api.put(endpoint_slice("a", 5, "10.0.0.1"))
    async with following(fleet, api):
        await api.watched()
        await api.send("MODIFIED", endpoint_slice("a", 9, "10.0.0.9"))
        await api.send("MODIFIED", endpoint_slice("a", 7, "10.0.0.7"))
        await api.send("DELETED", endpoint_slice("a", 8, "10.0.0.1"))
        await until(lambda: set(addresses(fleet)) == {"10.0.0.9:30100"})
        await api.send("DELETED", endpoint_slice("a", 12, "10.0.0.9"))
        await api.send("ADDED", endpoint_slice("a", 11, "10.0.0.9"))
        await until(lambda: addresses(fleet) == {})


async def test_an_expired_resource_version_leads_to_a_new_listing(fleet: Registry, api: FakeKubernetes) -> None:
    api.put(endpoint_slice("a", 5, "10.0.0.1"))
    api.expired_below = 10
    async with following(fleet, api):
        await until(lambda: api.lists >= 2)
        api.put(endpoint_slice("a", 10, "10.0.0.2"))
        await api.watched()
        await until(lambda: set(addresses(fleet)) == {"10.0.0.2:30100"})


async def test_what_was_missed_between_watches_is_found(fleet: Registry, api: FakeKubernetes) -> None:
    api.put(endpoint_slice("a", 5, "10.0.0.1"))
    async with following(fleet, api):
        await api.watched()
        api.delete("a")
        api.put(endpoint_slice("b", 9, "10.0.0.2"))
        await api.hang_up()
        await until(lambda: set(addresses(fleet)) == {"10.0.0.2:30100"})


async def test_a_silent_watch_is_given_up(fleet: Registry, api: FakeKubernetes) -> None:
    api.put(endpoint_slice("a", 5, "10.0.0.1"))
    async with following(fleet, api, silence_s=0.2):
        await api.watched()
        api.put(endpoint_slice("b", 9, "10.0.0.2"))
        await until(lambda: "10.0.0.2:30100" in addresses(fleet))


@pytest.mark.parametrize("trouble", ["refuse", "down"])
async def test_while_the_api_is_in_trouble_the_workers_stay(fleet: Registry, api: FakeKubernetes, trouble: str) -> None:
    api.put(endpoint_slice("a", 5, "10.0.0.1"))
    async with following(fleet, api):
        await api.watched()
        if trouble == "refuse":
            api.refuse = 500
            await api.hang_up()
        else:
            await api.stop()
        await asyncio.sleep(0.5)
        assert addresses(fleet) == {"10.0.0.1:30100": False}
        if trouble == "refuse":
            api.refuse = None
            api.put(endpoint_slice("a", 9, "10.0.0.2"))
            await until(lambda: set(addresses(fleet)) == {"10.0.0.2:30100"})


def test_only_endpoints_that_serve_are_listed_and_the_port_is_found_by_name() -> None:
    slices = EndpointSlices(port_name="grpc")
    slices.listed(
        [
            endpoint_slice("a", 1, "10.0.0.1", ready=False),
            endpoint_slice("b", 1, "10.0.0.2", port=7),
            endpoint_slice("c", 1, "10.0.0.3", ready=False, serving=True, terminating=True),
            {**endpoint_slice("d", 1, "10.0.0.4"), "ports": []},
            {**endpoint_slice("e", 1), "endpoints": None},
            {**endpoint_slice("f", 1, "fd00::1"), "addressType": "IPv6"},
        ]
    )
    assert slices.endpoints() == {"10.0.0.2:7": Endpoint(), "10.0.0.3:30100": Endpoint(leaving=True), "[fd00::1]:30100": Endpoint()}
    fixed = EndpointSlices(port_name="grpc", port=55)
    fixed.listed([endpoint_slice("a", 1, "10.0.0.1")])
    assert list(fixed.endpoints()) == ["10.0.0.1:55"]


def test_an_address_that_moves_between_slices_is_not_leaving() -> None:
    slices = EndpointSlices(port_name="grpc")
    slices.listed([endpoint_slice("old", 1, "10.0.0.1", deleted=True), endpoint_slice("new", 2, "10.0.0.1")])
    assert slices.endpoints() == {"10.0.0.1:30100": Endpoint(leaving=False)}


# ---------------------------------------------------------------- DNS


class Resolver:
    def __init__(self, *answers: list[str] | BaseException) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


async def follow(fleet: Registry, resolver: Resolver, looks: int) -> None:
    membership = Membership(fleet, "dns", grace_s=0.0)
    task = asyncio.create_task(follow_dns(membership, "workers.svc:30100", interval_s=0.01, timeout_s=0.1, lookup=resolver))
    await until(lambda: resolver.asked > looks)
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_dns_adds_and_removes(fleet: Registry) -> None:
    await follow(fleet, Resolver(["10.0.0.1", "10.0.0.2"], ["10.0.0.2", "fd00::1"]), 3)
    assert set(addresses(fleet)) == {"10.0.0.2:30100", "[fd00::1]:30100"}


async def test_a_name_that_cannot_be_resolved_changes_nothing(fleet: Registry) -> None:
    await follow(fleet, Resolver(["10.0.0.1"], OSError("NXDOMAIN"), TimeoutError(), []), 6)
    assert addresses(fleet) == {"10.0.0.1:30100": False}


async def test_the_real_resolver_knows_localhost() -> None:
    assert set(await resolve("localhost", 80)) & {"127.0.0.1", "::1"}


# ---------------------------------------------------------------- membership


async def test_a_source_touches_only_its_own_workers_and_takes_returning_ones_back(fleet: Registry) -> None:
    fleet.add("10.0.0.9:1", source="static")
    membership = Membership(fleet, "dns", grace_s=60.0)
    membership.apply({"10.0.0.1:1": Endpoint(), "10.0.0.9:1": Endpoint(), "bad address": Endpoint()})
    serve(fleet, "10.0.0.1:1")
    busy = fleet.lease(LeaseRequest("m", PromptKey([1])))
    membership.apply({})
    await asyncio.sleep(0)
    assert addresses(fleet) == {"10.0.0.1:1": True, "10.0.0.9:1": False}
    membership.apply({"10.0.0.1:1": Endpoint()})
    assert fleet.find("10.0.0.1:1").state is READY
    with busy:
        pass
    await asyncio.sleep(0.05)
    assert "10.0.0.1:1" in addresses(fleet)
    fleet.drain("10.0.0.1:1", "drained by request")
    membership.apply({"10.0.0.1:1": Endpoint()})
    assert fleet.find("10.0.0.1:1").state is DRAINING, "what an operator drains stays drained"
    await membership.close()


async def test_leaving_waits_for_the_last_request_and_not_longer_than_the_grace(fleet: Registry) -> None:
    fleet.add("a:1")
    serve(fleet, "a:1")
    lease = fleet.lease(LeaseRequest("m", PromptKey([1])))
    task = asyncio.create_task(leave(fleet, fleet.find("a:1"), 60.0, "bye"))
    await asyncio.sleep(0.05)
    assert not task.done()
    with lease:
        pass
    await asyncio.wait_for(task, 1.0)
    assert fleet.workers() == []
    fleet.add("b:1")
    serve(fleet, "b:1")
    fleet.lease(LeaseRequest("m", PromptKey([1])))
    await asyncio.wait_for(leave(fleet, fleet.find("b:1"), 0.05, "bye"), 1.0)
    assert fleet.workers() == []
