"""When a lost request may go on, and how many at a time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.resilience.resume import Loss, PrefillGate, ResumeLedger, ResumeSettings, ResumeTotals, loss_of
from services.common.errors import Internal, Overloaded, Unavailable


def ledger(totals: ResumeTotals | None = None, **settings: int) -> ResumeLedger:
    return ResumeLedger(ResumeSettings(**settings), totals or ResumeTotals(), request_id="req-7", arrived=5.0)


def test_a_prompt_that_kills_workers_takes_two_at_most() -> None:
    totals = ResumeTotals()
    killer = ledger(totals)
    killer.lost(Loss.DIED, "a", running=True, has_output=False)
    with pytest.raises(Internal, match="req-7") as raised:
        killer.lost(Loss.DIED, "b", running=True, has_output=False)
    assert raised.value.code == "killed_workers"
    assert not raised.value.safe_to_retry
    assert totals.suspects == 1


def test_who_only_waited_in_a_dying_worker_is_half_a_suspect() -> None:
    waiting = ledger()
    for worker in "abc":
        waiting.lost(Loss.DIED, worker, running=False, has_output=False)
    with pytest.raises(Internal):
        waiting.lost(Loss.DIED, "d", running=False, has_output=False)


def test_draining_and_a_lost_detokenizer_are_nobodys_fault_but_count_as_resumes() -> None:
    totals = ResumeTotals()
    request = ledger(totals, max_resumes=3)
    for loss in (Loss.DRAINED, Loss.DETOKENIZER, Loss.DRAINED):
        request.lost(loss, "a", running=True, has_output=True)
        request.placed()
    assert (request.resumes, request.deaths) == (3, [])
    with pytest.raises(Unavailable, match="interrupted 4 times") as raised:
        request.lost(Loss.DRAINED, "a", running=True, has_output=True)
    assert not raised.value.safe_to_resume
    request.failed()
    assert (totals.resumes, totals.given_up) == (3, 1)


def test_an_answer_that_finds_no_worker_in_time_is_a_failed_resume() -> None:
    totals = ResumeTotals()
    request = ledger(totals)
    request.placed()
    request.lost(Loss.DIED, "a", running=True, has_output=True)
    assert (totals.resumes, totals.given_up) == (0, 0), "nobody knows yet"
    request.failed()
    assert (totals.resumes, totals.given_up) == (0, 1)


def test_an_error_after_a_resume_is_not_the_resumes() -> None:
    totals = ResumeTotals()
    request = ledger(totals)
    request.lost(Loss.DIED, "a", running=True, has_output=True)
    request.placed()
    request.failed()
    assert (totals.resumes, totals.given_up) == (1, 0)


def test_a_stall_counts_like_a_death() -> None:
    request = ledger()
    request.lost(Loss.STALLED, "a", running=True, has_output=True)
    with pytest.raises(Internal):
        request.lost(Loss.DIED, "b", running=True, has_output=True)


def test_refusals_on_the_way_are_no_resumes() -> None:
    request = ledger(max_resumes=0)
    for _ in range(9):
        request.lost(Loss.REFUSED, "a", running=False, has_output=True)
    assert request.resumes == 0


def test_losses_are_told_apart_by_their_errors() -> None:
    codes = ("draining", "interrupted", "stalled", "stuck", "detokenizer", "connection_lost")
    told = {code: loss_of(Unavailable("x", code=code)) for code in codes}
    assert list(told.values()) == [Loss.DRAINED, Loss.DRAINED, Loss.STALLED, Loss.STUCK, Loss.DETOKENIZER, Loss.DIED]
    assert loss_of(Overloaded("full")) is Loss.REFUSED


# ---------------------------------------------------------------- the gate


async def test_at_most_so_many_prefill_on_one_worker_and_the_oldest_go_first() -> None:
    gate = PrefillGate(2)
    order: list[float] = []
    most = 0

    async def resume(arrived: float) -> None:
        nonlocal most
        async with gate.slot("a", arrived):
            order.append(arrived)
            most = max(most, gate.in_use("a"))
            await asyncio.sleep(0)

    await asyncio.gather(*(resume(float(arrived)) for arrived in (9, 8, 7, 3, 5, 1)))
    assert most == 2
    assert order == [9, 8, 1, 3, 5, 7]
    assert gate.in_use("a") == 0


async def test_a_slot_is_given_back_once_and_workers_do_not_share() -> None:
    gate = PrefillGate(1)
    async with gate.slot("a", 0.0) as release, gate.slot("b", 0.0):
        release()
        release()
        assert (gate.in_use("a"), gate.in_use("b")) == (0, 1)
        async with gate.slot("a", 1.0):
            assert gate.in_use("a") == 1


async def test_who_gives_up_waiting_leaves_no_trace() -> None:
    gate = PrefillGate(1)
    async with gate.slot("a", 0.0) as release:
        waiters = [asyncio.ensure_future(gate._take("a", float(i))) for i in range(3)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        await asyncio.sleep(0)
        release()
        waiters[1].cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        assert not waiters[2].cancelled()
        assert gate.in_use("a") == 1
        gate._give("a")
    assert gate.in_use("a") == 0
