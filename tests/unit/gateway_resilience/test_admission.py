"""Who gets in, in what order, and what the others are told."""

from __future__ import annotations

import asyncio
from collections import Counter

from gateway.resilience.admission import Admission, AdmissionSettings
from services.common.errors import Overloaded


def loop_clock() -> float:
    return asyncio.get_running_loop().time()


def admission(**settings: float) -> Admission:
    return Admission(AdmissionSettings(**settings), loop_clock)  # type: ignore[arg-type]


class Crowd:
    """Requests that stay until they are told to leave."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.entered: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._leave: dict[str, asyncio.Event] = {}

    async def come(self, name: str, **options: object) -> None:
        self._leave[name] = asyncio.Event()

        async def stay() -> None:
            async with self.admission.admit("m", **options):  # type: ignore[arg-type]
                self.entered.append(name)
                await self._leave[name].wait()

        self.tasks[name] = asyncio.create_task(stay())
        await settled()

    async def go(self, name: str) -> None:
        self._leave[name].set()
        await settled()

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def settled() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_beyond_limit_and_queue_the_answer_is_429_at_once() -> None:
    crowd = Crowd(admission(max_concurrent=1, queue_size=2))
    for name in "abcdefghij":
        await crowd.come(name)
    assert crowd.entered == ["a"]
    refused = [name for name, task in crowd.tasks.items() if task.done()]
    assert refused == list("defghij")
    for name in refused:
        error = crowd.tasks[name].exception()
        assert isinstance(error, Overloaded)
        assert error.http_status == 429
        assert (error.retry_after_ms or 0) >= 1000
        assert not error.safe_to_retry, "the gateway itself must not come back at once"
    assert crowd.admission.snapshot() == {"m": {"running": 1, "waiting": 2, "limit": 1, "shed": 7}}
    await crowd.go("a")
    await crowd.go("b")
    await crowd.go("c")
    assert crowd.entered == ["a", "b", "c"]
    assert crowd.admission.snapshot()["m"]["running"] == 0
    await crowd.end()


async def test_without_a_queue_only_the_limit_counts() -> None:
    crowd = Crowd(admission(max_concurrent=1, queue_size=0))
    await crowd.come("a")
    await crowd.come("b")
    assert isinstance(crowd.tasks["b"].exception(), Overloaded)
    await crowd.end()


async def test_models_have_limits_of_their_own() -> None:
    gate = admission(max_concurrent=1, queue_size=1)
    async with gate.admit("one"), gate.admit("two"):
        assert set(gate.snapshot()) == {"one", "two"}


async def test_higher_priority_first_and_it_takes_the_place_of_a_lower_one() -> None:
    crowd = Crowd(admission(max_concurrent=1, queue_size=3))
    await crowd.come("running")
    await crowd.come("low", priority=-1)
    await crowd.come("normal")
    await crowd.come("high", priority=5)
    await crowd.come("urgent", priority=9)
    assert isinstance(crowd.tasks["low"].exception(), Overloaded)
    await crowd.come("another low", priority=-1)
    assert isinstance(crowd.tasks["another low"].exception(), Overloaded)
    for name in ("running", "urgent", "high"):
        await crowd.go(name)
    assert crowd.entered == ["running", "urgent", "high", "normal"]
    await crowd.end()


async def test_a_tenant_with_many_requests_does_not_keep_others_waiting() -> None:
    crowd = Crowd(admission(max_concurrent=2, queue_size=100))
    for i in range(20):
        await crowd.come(f"big{i}", tenant="big")
    for i in range(3):
        await crowd.come(f"small{i}", tenant="small")
    for i in range(6):
        await crowd.go(crowd.entered[i])
    tenants = Counter(name.rstrip("0123456789") for name in crowd.entered[2:8])
    assert tenants["small"] == 3
    await crowd.end()


async def test_a_full_queue_refuses_the_longest_tenants_newcomers_not_the_order_of_arrival() -> None:
    crowd = Crowd(admission(max_concurrent=1, queue_size=2))
    for name in ("a0", "a1", "a2"):
        await crowd.come(name, tenant="a")
    await crowd.come("b0", tenant="b")
    assert isinstance(crowd.tasks["a2"].exception(), Overloaded), "the greedy tenant's youngest gives way"
    await crowd.come("a3", tenant="a")
    assert isinstance(crowd.tasks["a3"].exception(), Overloaded)
    await crowd.end()


async def test_who_waits_too_long_is_told_429_and_leaves_no_trace() -> None:
    crowd = Crowd(admission(max_concurrent=1, queue_size=5, queue_timeout_s=0.03))
    await crowd.come("running")
    await crowd.come("late")
    await asyncio.sleep(0.06)
    assert isinstance(crowd.tasks["late"].exception(), Overloaded)
    assert crowd.admission.snapshot()["m"]["waiting"] == 0
    await crowd.end()


async def test_a_request_that_cannot_be_in_time_is_refused_before_it_waits() -> None:
    crowd = Crowd(admission(max_concurrent=1, queue_size=5))
    await crowd.come("slow")
    await asyncio.sleep(0.05)
    await crowd.go("slow")
    await crowd.come("running")
    await crowd.come("hurried", deadline=loop_clock() + 0.01)
    assert isinstance(crowd.tasks["hurried"].exception(), Overloaded)
    await crowd.come("patient", deadline=loop_clock() + 60)
    assert not crowd.tasks["patient"].done()
    await crowd.end()


async def test_cancelled_waiters_and_holders_free_their_places() -> None:
    crowd = Crowd(admission(max_concurrent=2, queue_size=50))
    for i in range(30):
        await crowd.come(f"r{i}", tenant=f"t{i % 3}")
    for i in range(0, 30, 2):
        crowd.tasks[f"r{i}"].cancel()
    await settled()
    for i in range(1, 30, 2):
        await crowd.go(f"r{i}")
    assert crowd.admission.snapshot()["m"] == {"running": 0, "waiting": 0, "limit": 2, "shed": 0}
    assert len(crowd.entered) >= 15
    await crowd.end()


async def test_limits_are_divided_among_processes_and_minus_one_is_none() -> None:
    gate = admission(max_concurrent=8, queue_size=100, processes=4)
    async with gate.admit("m"):
        assert gate.snapshot()["m"]["limit"] == 2
    gate = admission(max_concurrent=-1)
    async with gate.admit("m"):
        assert gate.snapshot()["m"]["limit"] > 1_000_000


async def test_the_adaptive_limit_is_sized_by_the_fleet_and_shared_between_processes() -> None:
    slots = {"m": 400}
    gate = Admission(AdmissionSettings(processes=2), loop_clock, lambda model: slots[model])
    async with gate.admit("m"):
        assert 200 <= gate.snapshot()["m"]["limit"] < 250


async def test_a_burst_waits_by_default_and_all_of_it_is_served() -> None:
    gate, served, leave = Admission(AdmissionSettings(), loop_clock, lambda model: 8), [], asyncio.Event()

    async def ask(number: int) -> None:
        async with gate.admit("m"):
            await leave.wait()
        served.append(number)

    burst = [asyncio.create_task(ask(number)) for number in range(1000)]
    await settled()
    assert gate.snapshot()["m"] == {"running": 8, "waiting": 992, "limit": 8, "shed": 0}
    leave.set()
    await asyncio.gather(*burst)
    assert len(served) == 1000


async def test_by_default_who_is_refused_is_who_would_wait_too_long() -> None:
    crowd = Crowd(Admission(AdmissionSettings(), loop_clock, lambda model: 8))
    crowd.admission._gate("m").service_s = 10.0  # so 48 waiting ones are a minute's work for eight places
    for number in range(100):
        await crowd.come(str(number))
    state = crowd.admission.snapshot()["m"]
    assert (state["running"], state["waiting"]) == (8, 48)
    assert crowd.admission.shed() == {"deadline": 44}
    await crowd.end()


async def test_a_large_fleet_has_a_queue_in_proportion_shared_between_processes() -> None:
    gate = Admission(AdmissionSettings(processes=2), loop_clock, lambda model: 4000)
    async with gate.admit("m"):
        opened = gate._gate("m")
        assert opened.queue_size == 4 * opened.limit.value >= 8000
    assert admission(processes=4)._gate("m").queue_size >= 1024 // 4
