"""The fleet, its states, and who gets a lease."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.models import ModelCatalog
from gateway.resilience.circuit_breaker import BreakerState
from gateway.routing.factory import PolicySettings, make_policy
from gateway.workers.address import normalise
from gateway.workers.describe import describe
from gateway.workers.lease import Lease, Outcome
from gateway.workers.registry import Registry, RegistrySettings
from gateway.workers.request import LeaseRequest, PromptKey
from gateway.workers.worker import LoadReport, ModelIdentity, Worker, WorkerInfo, WorkerState
from services.common.errors import Conflict, HeadraceError, Internal, InvalidRequest, NotFound, Overloaded, Unavailable

IDENTITY = ModelIdentity("m", "digest", "tok")
PROMPT = list(range(320))


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def worker_added(self, worker: Worker) -> None:
        self.lines.append(f"+{worker.id}")

    def worker_removed(self, worker: Worker) -> None:
        self.lines.append(f"-{worker.id}")

    def worker_changed(self, worker: Worker, before: WorkerState) -> None:
        self.lines.append(f"{worker.id}:{before}>{worker.state}")


def registry(policy: str = "cache_aware", clock: Clock | None = None) -> Registry:
    clock = clock or Clock()
    return Registry(RegistrySettings(), lambda model: make_policy(policy, PolicySettings(), clock, random.Random(1)), clock)


def ready(fleet: Registry, address: str, identity: ModelIdentity = IDENTITY) -> Worker:
    worker = fleet.add(address)
    fleet.session_opened(worker, WorkerInfo(identity, boot_id=address))
    return worker


def ask(**options: object) -> LeaseRequest:
    return LeaseRequest("m", PromptKey(PROMPT), **options)  # type: ignore[arg-type]


def fail(fleet: Registry, error: Exception, times: int = 1, **options: object) -> None:
    for _ in range(times):
        with pytest.raises(type(error)), fleet.lease(ask(**options)):
            raise error


# ---------------------------------------------------------------- addresses and membership


@pytest.mark.parametrize("spelling", ["h:7", "http://h:7", "HTTP://H:7/", "grpc://h:7", "dns:///h:7", " h:7 "])
def test_what_was_added_can_be_removed_in_any_spelling(spelling: str) -> None:
    fleet = registry()
    fleet.add("http://h:7/")
    assert fleet.remove(spelling).id == "h:7"
    assert fleet.workers() == []
    with pytest.raises(NotFound):
        fleet.remove(spelling)
    fleet.add(spelling)
    with pytest.raises(Conflict):
        fleet.add("HTTP://h:7")


@pytest.mark.parametrize(
    "bad", ["", "h", "h:x", "h:7/path", "ftp://h:7", "http://u@h:7", "h:99999", "http://h:7?x=1", "x y:7", "h\u00a0h:7"]
)
def test_unusable_addresses_are_named(bad: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        registry().add(bad)
    assert raised.value.field == "url"
    with pytest.raises(NotFound):
        registry().remove(bad)


def test_ipv6_addresses_keep_their_brackets() -> None:
    assert normalise("http://[::1]:30100/") == "[::1]:30100"


def test_observers_hear_of_everything_once() -> None:
    fleet, log = registry(), Log()
    fleet.add("a:1")
    fleet.observe(log)
    worker = ready(fleet, "b:1")
    fleet.health_told(worker, True)
    fleet.drain("b:1")
    fleet.remove("b:1")
    fleet.session_lost(worker, "too late")
    assert log.lines == ["+a:1", "+b:1", "b:1:pending>ready", "b:1:ready>draining", "-b:1"]


# ---------------------------------------------------------------- leases


def test_only_ready_workers_get_requests_and_errors_tell_why_none_does() -> None:
    fleet = registry()
    with pytest.raises(Unavailable):
        fleet.lease(ask())
    worker = fleet.add("a:1")
    with pytest.raises(Unavailable) as raised:
        fleet.lease(ask())
    assert raised.value.code == "no_worker"
    assert raised.value.retry_after_ms
    fleet.session_opened(worker, WorkerInfo(IDENTITY))
    with fleet.lease(ask()) as lease:
        assert lease.worker is worker
    with pytest.raises(NotFound) as missing:
        fleet.lease(replace(ask(), model="other"))
    assert missing.value.field == "model"
    for change in (
        lambda: fleet.health_told(worker, False),
        lambda: fleet.session_leaving(worker),
        lambda: fleet.session_lost(worker, "reset"),
        lambda: fleet.unreachable(worker, "refused"),
        lambda: fleet.drain("a:1"),
    ):
        change()
        with pytest.raises(Unavailable):
            fleet.lease(ask())
    assert worker.state is WorkerState.DRAINING
    fleet.session_opened(worker, WorkerInfo(IDENTITY))
    with pytest.raises(Unavailable):
        fleet.lease(ask())
    fleet.undrain("a:1")
    fleet.lease(ask()).settle(Outcome.SUCCESS)


def test_in_flight_counts_return_to_zero_whatever_happens() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    with fleet.lease(ask()) as lease:
        assert (worker.in_flight.requests, worker.in_flight.prefill_tokens) == (1, 320)
        lease.started(320, 128)
        assert worker.in_flight.prefill_tokens == 192
        lease.first_token()
        assert (worker.in_flight.requests, worker.in_flight.prefill_tokens) == (1, 0)
    for error in (Internal("x"), Overloaded("x"), InvalidRequest("x"), asyncio.CancelledError(), RuntimeError("x")):
        with pytest.raises(type(error)), fleet.lease(ask()):
            raise error
    assert (worker.in_flight.requests, worker.in_flight.prefill_tokens) == (0, 0)
    assert dict(fleet.outcomes) == {
        ("a:1", Outcome.SUCCESS): 1,
        ("a:1", Outcome.FAILED): 2,
        ("a:1", Outcome.OVERLOADED): 1,
        ("a:1", Outcome.REJECTED): 1,
        ("a:1", Outcome.CANCELLED): 1,
    }


def test_a_lease_can_be_settled_by_hand_and_only_once() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    with fleet.lease(ask()) as lease:
        lease.settle(Outcome.DRAINED)
        assert worker.in_flight.requests == 0
    assert lease.outcome is Outcome.DRAINED
    assert worker.in_flight.requests == 0


def test_a_pinned_worker_is_used_or_refused() -> None:
    fleet = registry()
    ready(fleet, "a:1")
    ready(fleet, "b:1")
    for _ in range(5):
        with fleet.lease(ask(worker_id="b:1")) as lease:
            assert (lease.worker.id, lease.decision.reason) == ("b:1", "pinned")
    with pytest.raises(Unavailable):
        fleet.lease(ask(worker_id="c:1"))


def test_untried_workers_come_first_and_tried_ones_only_when_no_other_is_left() -> None:
    fleet = registry("random")
    for name in "abc":
        ready(fleet, f"{name}:1")
    request = ask(excluded=frozenset({"a:1", "b:1"}))
    for _ in range(20):
        with fleet.lease(request) as lease:
            assert lease.worker.id == "c:1"
    assert fleet.has_untried(request)
    every = request.excluding(frozenset({"c:1"}))
    assert not fleet.has_untried(every)
    with fleet.lease(every) as lease:
        assert lease.worker.id in {"a:1", "b:1", "c:1"}


def test_a_resumed_request_goes_only_to_the_same_model_and_weights() -> None:
    fleet = registry("random")
    ready(fleet, "a:1")
    other = replace(IDENTITY, weight_version="2")
    ready(fleet, "b:1", other)
    for _ in range(10):
        with fleet.lease(ask(identity=other)) as lease:
            assert lease.worker.id == "b:1"
    fleet.drain("b:1")
    with pytest.raises(Unavailable):
        fleet.lease(ask(identity=other))


async def test_waiting_for_a_change() -> None:
    fleet = registry()
    assert not await fleet.wait_for_change(0.01)
    waiting = asyncio.create_task(fleet.wait_for_change(5.0))
    await asyncio.sleep(0)
    ready(fleet, "a:1")
    assert await waiting


# ---------------------------------------------------------------- prefixes


def test_a_burst_of_equal_new_prompts_stays_together_and_other_prompts_do_not_follow() -> None:
    fleet = registry()
    for name in "abc":
        worker = ready(fleet, f"{name}:1")
        fleet.group("m").index.tree.cleared(worker.id)
        fleet.report_load(worker, LoadReport(prefill_tokens_per_s=2000.0, decode_step_s=0.01, chunk_tokens=512, max_running=64))
    burst: list[Lease] = [fleet.lease(ask()) for _ in range(8)]
    assert len({lease.worker.id for lease in burst}) == 1
    others = [fleet.lease(LeaseRequest("m", PromptKey([i] * 320))) for i in range(2)]
    assert burst[0].worker.id not in {lease.worker.id for lease in others}
    assert sum(w.in_flight.prefill_tokens for w in fleet.workers()) == 3 * 320 + 7


def test_the_worker_that_holds_the_prefix_gets_the_request_until_it_evicts_it() -> None:
    fleet = registry()
    hashes = PromptKey(PROMPT).blocks("digest", 16)
    for name in "abc":
        worker = ready(fleet, f"{name}:1")
        fleet.group("m").index.tree.cleared(worker.id)
        fleet.report_load(worker, LoadReport(prefill_tokens_per_s=2000.0, decode_step_s=0.001))
    tree = fleet.group("m").index.tree
    tree.stored("b:1", hashes, 1)
    with fleet.lease(ask()) as lease:
        assert lease.worker.id == "b:1"
        assert (lease.decision.matched_tokens, lease.decision.reason) == (320, "match")
    tree.removed("b:1", hashes, 1)
    tree.stored("c:1", hashes[:10], 1)
    with fleet.lease(ask()) as lease:
        assert (lease.worker.id, lease.decision.matched_tokens) == ("c:1", 160)


def test_a_new_boot_has_a_clean_record_and_no_guesses_about_its_cache() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    index = fleet.group("m").index
    index.routed("a:1", [1, 2], 0)
    fail(fleet, Internal("x"), 10)
    assert worker.breaker.state.value == "open"
    fleet.session_opened(worker, WorkerInfo(IDENTITY, boot_id="another"))
    assert worker.breaker.state.value == "closed"
    assert index.match([1, 2]) == {}


def test_a_failed_worker_is_not_matched_any_more() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    tree = fleet.group("m").index.tree
    tree.cleared("a:1")
    tree.stored("a:1", [1, 2], 1)
    fleet.session_lost(worker, "reset")
    assert tree.match([1, 2]) == {"a:1": 2}, "it may be back in a moment, with its cache"
    for _ in range(3):
        fleet.unreachable(worker, "refused")
    assert worker.state is WorkerState.FAILED
    assert tree.match([1, 2]) == {}


def test_two_models_have_trees_and_policies_of_their_own() -> None:
    fleet = registry()
    ready(fleet, "a:1")
    ready(fleet, "b:1", ModelIdentity("n", "other", "tok"))
    assert fleet.group("m").index is not fleet.group("n").index
    assert fleet.group("m").policy is not fleet.group("n").policy
    assert fleet.models() == ["m", "n"]
    with fleet.lease(LeaseRequest("n", PromptKey(PROMPT))) as lease:
        assert lease.worker.id == "b:1"


# ---------------------------------------------------------------- breaker in the fleet


def test_client_errors_and_overload_leave_the_worker_in_service() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    for error in (InvalidRequest("bad"), Overloaded("full"), Unavailable("bye", code="draining"), NotFound("x")):
        fail(fleet, error, 40)
    assert worker.breaker.state is BreakerState.CLOSED


def test_a_failing_worker_gets_nothing_until_it_may_be_tried_again() -> None:
    clock = Clock()
    fleet = registry(clock=clock)
    bad, good = ready(fleet, "a:1"), ready(fleet, "b:1")
    ready(fleet, "c:1")
    fail(fleet, Internal("x"), 10, worker_id="a:1")
    assert bad.breaker.state.value == "open"
    for _ in range(30):
        with fleet.lease(ask()) as lease:
            assert lease.worker.id != "a:1"
    fleet.remove(good.id)
    fleet.remove("c:1")
    with pytest.raises(Unavailable) as raised:
        fleet.lease(ask())
    assert raised.value.code == "circuit_open"
    assert (raised.value.retry_after_ms or 0) > 50_000
    clock.now += 61
    leases = []
    for _ in range(50):
        try:
            leases.append(fleet.lease(ask()))
        except HeadraceError as error:
            assert error.code == "circuit_open"
    assert len(leases) == 3, "only the allowed number of trial calls"
    for lease in leases:
        lease.first_token()
    assert bad.breaker.state.value == "closed", "a trial has proved itself with its first token"


def test_a_stream_that_breaks_after_its_trial_counts_as_a_failure_too() -> None:
    clock = Clock()
    fleet = registry(clock=clock)
    worker = ready(fleet, "a:1")
    fail(fleet, Internal("x"), 10)
    clock.now += 61
    with pytest.raises(Internal), fleet.lease(ask()) as lease:
        lease.first_token()
        raise Internal("broke")
    assert worker.breaker.state is BreakerState.OPEN


def test_when_most_of_a_fleet_is_open_the_breakers_are_ignored() -> None:
    fleet = registry("round_robin")
    for name in "abcd":
        ready(fleet, f"{name}:1")
    for name in "ab":
        fail(fleet, Internal("x"), 10, worker_id=f"{name}:1")
    used = {fleet.lease(ask()).worker.id for _ in range(20)}
    assert used == {"c:1", "d:1"}, "half of them is not most"
    fail(fleet, Internal("x"), 10, worker_id="c:1")
    used = {fleet.lease(ask()).worker.id for _ in range(20)}
    assert used == {"a:1", "b:1", "c:1", "d:1"}
    assert fleet.panics["m"] == 20


# ---------------------------------------------------------------- load


def test_reports_tell_what_other_gateways_have_there() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    mine = [fleet.lease(LeaseRequest("m", PromptKey([i] * 320))) for i in range(3)]
    fleet.report_load(worker, LoadReport(running=5, waiting=2, waiting_prefill_tokens=1500))
    assert (worker.in_flight.load, worker.in_flight.queued_prefill_tokens) == (7, 1500)
    mine.append(fleet.lease(LeaseRequest("m", PromptKey([7] * 320))))
    assert (worker.in_flight.load, worker.in_flight.queued_prefill_tokens) == (8, 1820)
    for lease in mine:
        lease.settle(Outcome.SUCCESS)
    assert (worker.in_flight.load, worker.in_flight.queued_prefill_tokens) == (4, 540)
    fleet.report_load(worker, LoadReport())
    assert (worker.in_flight.load, worker.in_flight.queued_prefill_tokens) == (0, 0)


def test_a_report_shows_how_far_a_long_prompt_is_and_takes_nothing_off_what_it_cannot_know() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    long = fleet.lease(LeaseRequest("m", PromptKey([1] * 3200)))
    long.started(3200, 0)
    fleet.report_load(worker, LoadReport(running=1, waiting_prefill_tokens=1000))
    assert worker.in_flight.queued_prefill_tokens == 1000
    short = fleet.lease(LeaseRequest("m", PromptKey([2] * 320)))
    assert worker.in_flight.queued_prefill_tokens == 1320
    long.first_token()
    assert worker.in_flight.queued_prefill_tokens == 320, "what was done of the long one is not taken off the short one"
    fleet.report_load(worker, LoadReport(running=1))
    assert worker.in_flight.queued_prefill_tokens == 320, "the report is older than the request"
    short.started(320, 64)
    assert worker.in_flight.queued_prefill_tokens <= 256
    short.settle(Outcome.SUCCESS)
    long.settle(Outcome.SUCCESS)
    assert (worker.in_flight.started_tokens, worker.in_flight.prefill_tokens) == (0, 0)


def test_the_hit_rate_of_each_worker_is_that_of_its_last_requests() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    assert describe(fleet, worker)["cache"]["recent_hit_rate"] is None
    for cached in [0] * 50 + [240] * 700:
        lease = fleet.lease(ask())
        lease.started(320, cached)
        lease.started(320, 0)
        lease.settle(Outcome.SUCCESS)
    assert describe(fleet, worker)["cache"]["recent_hit_rate"] == pytest.approx(0.75, abs=0.01), "a request counts once"


def test_a_prefix_that_was_gone_on_arrival_counts_as_work() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    group = fleet.group("m")
    group.index.tree.cleared(worker.id)
    group.index.tree.stored(worker.id, PromptKey(PROMPT).blocks("digest", 16), 1)
    lease = fleet.lease(ask())
    assert worker.in_flight.prefill_tokens == 1
    lease.started(320, 0)
    assert worker.in_flight.prefill_tokens == 320
    lease.first_token()
    lease.started(320, 0)
    assert worker.in_flight.prefill_tokens == 0, "a second choice shares the prompt of the first"
    lease.settle(Outcome.SUCCESS)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["lease", "start", "first", "end", "report"]), st.integers(0, 9)), max_size=60))
def test_what_is_queued_is_never_negative_and_ends_at_nothing(steps: list[tuple[str, int]]) -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    leases: list[Lease] = []
    for step, number in steps:
        if step == "lease":
            leases.append(fleet.lease(LeaseRequest("m", PromptKey([number] * 16 * (number + 1)))))
        elif step == "report":
            fleet.report_load(worker, LoadReport(running=number, waiting=number // 2, waiting_prefill_tokens=50 * number))
        elif leases:
            lease = leases[number % len(leases)]
            if step == "start":
                lease.started(160, number)
            elif step == "first":
                lease.first_token()
            else:
                lease.settle(Outcome.SUCCESS)
        assert worker.in_flight.queued_prefill_tokens >= 0
        assert 0 <= worker.in_flight.started_tokens <= worker.in_flight.prefill_tokens
    for lease in leases:
        lease.settle(Outcome.SUCCESS)
    fleet.report_load(worker, LoadReport())
    assert (worker.in_flight.load, worker.in_flight.queued_prefill_tokens) == (0, 0)


def test_a_worker_that_has_measured_itself_wrongly_still_gets_requests() -> None:
    """One that stood still for seconds believes it computes a fraction of a token per second."""
    fleet = registry()
    for name, rate in (("a:1", 0.2), ("b:1", 2000.0), ("c:1", 2000.0)):
        fleet.report_load(ready(fleet, name), LoadReport(prefill_tokens_per_s=rate, decode_step_s=0.01, max_running=64))
    leases = [fleet.lease(LeaseRequest("m", PromptKey([i] * 32))) for i in range(60)]
    assert sum(lease.worker.id == "a:1" for lease in leases) > 5


def test_an_idle_worker_is_not_judged_by_an_old_report_for_ever() -> None:
    fleet = registry()
    worker = ready(fleet, "a:1")
    mine = fleet.lease(ask())
    fleet.session_lost(worker, "stalled")
    mine.settle(Outcome.FAILED)
    fleet.report_load(worker, LoadReport(running=5, waiting_prefill_tokens=900))
    assert worker.in_flight.load == 5
    fleet.session_opened(worker, WorkerInfo(IDENTITY, boot_id="a:1"))
    assert (worker.in_flight.load, worker.in_flight.queued_prefill_tokens) == (0, 0)


def test_another_model_on_a_known_address_takes_nothing_along() -> None:
    fleet = registry("manual")
    worker = ready(fleet, "h:1")
    group = fleet.group("m")
    group.index.tree.begin_snapshot(worker.id)
    group.index.tree.snapshot(worker.id, [1, 2, 3], 0)
    group.index.tree.end_snapshot(worker.id)
    models = ModelCatalog(fleet)
    assert models.names() == ["m"]
    fleet.lease(ask(routing_key="k")).settle(Outcome.SUCCESS)
    fleet.session_lost(worker, "killed")
    fleet.session_opened(worker, WorkerInfo(replace(IDENTITY, model="other"), boot_id="second"))
    assert not group.index.tree.follows(worker.id)
    assert models.names() == ["other"]
    with pytest.raises(NotFound):
        models.resolve("m")
    with pytest.raises(NotFound):
        fleet.lease(ask())
    while group.index.tree.sweep(100):
        pass
    assert len(group.index.tree) == 0


def test_a_model_whose_workers_are_replaced_is_remembered_meanwhile() -> None:
    fleet = registry()
    models = ModelCatalog(fleet)
    ready(fleet, "h:1")
    ready(fleet, "h:2", replace(IDENTITY, model="other"))
    assert models.names() == ["m", "other"]
    fleet.add("h:3")
    fleet.remove("h:1")
    assert models.resolve("m") == "m", "the newcomer may serve it"
    with pytest.raises(Unavailable):
        fleet.lease(ask())
    ready_as_other = fleet.find("h:3")
    fleet.session_opened(ready_as_other, WorkerInfo(replace(IDENTITY, model="other"), boot_id="x"))
    assert models.names() == ["other"]
