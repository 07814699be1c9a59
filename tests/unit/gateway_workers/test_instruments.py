"""The fleet's numbers reach the metrics under their declared names, and the admin API's description is complete."""

from __future__ import annotations

import json
import random
import time

from prometheus_client import CollectorRegistry, generate_latest

from gateway.resilience.admission import Admission, AdmissionSettings
from gateway.resilience.resume import ResumeTotals
from gateway.resilience.retry import RetryBudget
from gateway.routing.factory import PolicySettings, make_policy
from gateway.workers.cache_subscriber import CacheSubscriber
from gateway.workers.describe import describe
from gateway.workers.instruments import publish_caches, publish_discovery, publish_resilience, publish_routing
from gateway.workers.lease import Outcome
from gateway.workers.membership import Endpoint, Membership
from gateway.workers.registry import Registry, RegistrySettings
from gateway.workers.request import LeaseRequest, PromptKey
from gateway.workers.worker import LoadReport, ModelIdentity, WorkerInfo
from services.common.metrics import Metrics


async def test_all_numbers_are_scraped() -> None:
    rng = random.Random(1)
    fleet = Registry(RegistrySettings(), lambda model: make_policy("cache_aware", PolicySettings(), time.monotonic, rng), time.monotonic)
    budget, totals = RetryBudget(), ResumeTotals(resumes=2, suspects=1)
    admission = Admission(AdmissionSettings(max_concurrent=7), time.monotonic)
    caches = CacheSubscriber(fleet)
    membership = Membership(fleet, "dns", grace_s=1.0)
    metrics = Metrics("gateway", registry=CollectorRegistry())
    publish_routing(metrics, fleet)
    publish_caches(metrics, fleet, caches)
    publish_resilience(metrics, budget, totals, admission)
    publish_discovery(metrics, [membership])
    membership.apply({"h:1": Endpoint()})
    worker = fleet.find("h:1")
    fleet.session_opened(worker, WorkerInfo(ModelIdentity("m", "d", "t")))
    fleet.report_load(worker, LoadReport(prefill_tokens_per_s=100.0))
    fleet.group("m").index.tree.cleared("h:1")
    fleet.group("m").index.tree.stored("h:1", [1, 2, 3], 1)
    budget.spend("connect")
    while budget.spend("other"):
        pass
    async with admission.admit("m"):
        with fleet.lease(LeaseRequest("m", PromptKey([1, 2]))) as lease:
            lease.started(2, 1)
            text = generate_latest(metrics.registry).decode()
    for line in (
        'headrace_routing_decisions_total{policy="cache_aware",reason="no_match"} 1.0',
        'headrace_routed_requests_total{worker="h:1"} 1.0',
        'headrace_routed_requests_in_flight{worker="h:1"} 1.0',
        "headrace_routing_found_cached_tokens_total 1.0",
        'headrace_workers{model_name="m",state="ready"} 1.0',
        'headrace_breaker_state{worker="h:1"} 0.0',
        "headrace_panic_routing 0.0",
        'headrace_prefix_blocks{worker="h:1"} 3.0',
        "headrace_prefix_tree_nodes 3.0",
        'headrace_retries_total{reason="connect"} 1.0',
        "headrace_retries_refused_total 1.0",
        'headrace_resumes_total{outcome="resumed"} 2.0',
        'headrace_resumes_total{outcome="failed"} 1.0',
        'headrace_limit{limit="concurrent_requests"} 7.0',
        'headrace_discovery_events_total{kind="added"} 1.0',
    ):
        assert line in text.splitlines()


async def test_workers_that_come_and_go_leave_nothing_behind() -> None:
    rng = random.Random(1)
    fleet = Registry(RegistrySettings(), lambda model: make_policy("random", PolicySettings(), time.monotonic, rng), time.monotonic)
    metrics = Metrics("gateway", registry=CollectorRegistry())
    publish_routing(metrics, fleet)
    for i in range(500):
        worker = fleet.add(f"10.0.{i // 250}.{i % 250}:1")
        fleet.session_opened(worker, WorkerInfo(ModelIdentity("m", "d", "t")))
        lease = fleet.lease(LeaseRequest("m", PromptKey([1])))
        text = generate_latest(metrics.registry).decode()
        assert f'headrace_routed_requests_total{{worker="{worker.id}"}} 1.0' in text, "never counted as one of many others"
        fleet.remove(worker.id)
        lease.settle(Outcome.CANCELLED)
    assert (len(fleet.leased), len(fleet.outcomes)) == (0, 0)


def test_a_description_is_json_and_names_the_process_of_local_workers_only() -> None:
    rng = random.Random(1)
    fleet = Registry(RegistrySettings(), lambda model: make_policy("random", PolicySettings(), time.monotonic, rng), time.monotonic)
    for address in ("127.0.0.1:1", "10.0.0.1:1"):
        worker = fleet.add(address)
        json.dumps(describe(fleet, worker))
        fleet.session_opened(worker, WorkerInfo(ModelIdentity("m", "d", "t"), process_id=42))
    local, remote = (json.loads(json.dumps(describe(fleet, worker))) for worker in fleet.workers())
    assert (local["state"], local["model"], local["breaker"], local["process_id"]) == ("ready", "m", "closed", 42)
    assert "process_id" not in remote
