"""The thread between event loop and scheduler: order, one wake-up per turn, errors, idleness."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest

from services.scheduler.core.messages import ChoiceSpec, StopSpec, SubmitRequest
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.delivery import Cancel, Delivery, Facts, Submit
from services.scheduler.engine.script import Failure, Playback, Script
from services.scheduler.engine.scripted import ScriptedEngine
from services.scheduler.engine_client import Built, EngineThread
from services.scheduler.report import StartupReport


def _build(script: Script, turns_between_messages: int = 1) -> Callable[[], Built]:
    def build() -> Built:
        engine = ScriptedEngine(script, num_slots=1024, max_rows=8)
        scheduler = Scheduler(SchedulerConfig(max_running_requests=8), engine)
        facts = Facts(engine.info, "scripted", False, StartupReport())
        return Built(scheduler, engine, facts, turns_between_messages=turns_between_messages)

    return build


def _request(handle: int, tokens: int = 5) -> SubmitRequest:
    prompt = np.array([3, 4, 5], np.int32)
    return SubmitRequest(f"r{handle}", prompt, (ChoiceSpec(handle),), stops=StopSpec(max_new_tokens=tokens, ignore_eos=True))


class _Listener:
    def __init__(self) -> None:
        self.ids: dict[int, list[int]] = {}
        self.finals: list[int] = []
        self.deliveries: list[Delivery] = []
        self.error: BaseException | None = None
        self.changed = asyncio.Event()

    def on_turn(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        columns, offset = delivery.output.tokens, 0
        for handle, count in zip(columns.handles, columns.counts, strict=True):
            self.ids.setdefault(handle, []).extend(columns.token_ids[offset : offset + count])
            offset += count
        self.finals += [final.handle for final in delivery.output.finals]
        self.changed.set()

    def on_failure(self, error: BaseException) -> None:
        self.error = error
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)


async def test_requests_run_to_their_end_and_the_thread_goes_idle() -> None:
    listener = _Listener()
    engine = EngineThread(_build(Script(playbacks=(Playback(output=(9, 8), repeat=True),))), listener.on_turn, listener.on_failure)
    await engine.start()
    engine.send(*(Submit(_request(handle)) for handle in range(20)))
    await listener.until(lambda: len(listener.finals) == 20)
    assert all(ids == [9, 8, 9, 8, 9] for ids in listener.ids.values())
    assert await engine.call(lambda scheduler: scheduler.has_work) is False
    assert engine.load is not None
    assert engine.load.running == 0
    await engine.stop()


async def test_a_cancel_sent_after_its_submit_always_arrives_after_it() -> None:
    listener = _Listener()
    engine = EngineThread(_build(Script(playbacks=(Playback(output=(9,), repeat=True),))), listener.on_turn, listener.on_failure)
    await engine.start()
    for handle in range(50):
        engine.send(Submit(_request(handle, tokens=4000)), Cancel(handle, 2))
    await listener.until(lambda: len(listener.finals) == 50)
    assert sorted(listener.finals) == list(range(50))
    await engine.stop()


async def test_failures_of_the_build_and_of_a_turn_are_told() -> None:
    def broken() -> Built:
        raise ValueError("no model")

    listener = _Listener()
    with pytest.raises(ValueError, match="no model"):
        await EngineThread(broken, listener.on_turn, listener.on_failure).start()

    crashing = EngineThread(_build(Script(failures=(Failure(2, "crash"),))), listener.on_turn, listener.on_failure)
    await crashing.start()
    crashing.send(Submit(_request(1)))
    await listener.until(lambda: listener.error is not None)
    await crashing.stop()


async def test_a_call_returns_its_result_or_its_error() -> None:
    listener = _Listener()
    engine = EngineThread(_build(Script()), listener.on_turn, listener.on_failure)
    await engine.start()
    assert await engine.call(lambda scheduler: threading.current_thread().name) == "engine"
    with pytest.raises(ZeroDivisionError):
        await engine.call(lambda scheduler: 1 // 0)
    await engine.stop()


async def test_the_age_of_a_turn_grows_only_while_work_is_pending() -> None:
    listener = _Listener()
    engine = EngineThread(_build(Script(failures=(Failure(2, "hang", 0.3),))), listener.on_turn, listener.on_failure)
    await engine.start()
    assert engine.turn_age_s() == 0.0
    engine.send(Submit(_request(1)))
    ages = []
    while not listener.finals:
        await asyncio.sleep(0.02)
        ages.append(engine.turn_age_s())
    assert max(ages) > 0.1
    assert await engine.call(lambda scheduler: scheduler.has_work) is False
    await asyncio.sleep(0.05)
    assert engine.turn_age_s() == 0.0
    await engine.stop()


async def test_who_is_accepted_hears_it_before_the_first_step_is_done() -> None:
    """HTTP headers wait for it: they need not wait for a prompt to be computed."""
    listener = _Listener()
    engine = EngineThread(_build(Script(failures=(Failure(1, "hang", 0.2),))), listener.on_turn, listener.on_failure)
    await engine.start()
    engine.send(Submit(_request(1)))
    await listener.until(lambda: bool(listener.deliveries))
    first = listener.deliveries[0]
    assert [accepted.handle for accepted in first.output.accepted] == [1]
    assert first.mode is None and not first.output.started and engine.turn_age_s() > 0
    await listener.until(lambda: listener.finals == [1])
    assert not any(delivery.output.accepted for delivery in listener.deliveries[1:])
    await engine.stop()


async def test_a_cancelled_request_hears_it_before_others_have_computed_their_step() -> None:
    listener = _Listener()
    engine = EngineThread(_build(Script(step_ms=5.0)), listener.on_turn, listener.on_failure)
    await engine.start()
    engine.send(Submit(_request(1, tokens=400)), Submit(_request(2, tokens=400)))
    await listener.until(lambda: len(listener.ids) == 2)
    engine.send(Cancel(1, 2))
    await listener.until(lambda: listener.finals == [1])
    (told,) = [delivery for delivery in listener.deliveries if delivery.output.finals]
    assert told.mode is None and not told.output.tokens.handles
    engine.send(Cancel(2, 2))
    await listener.until(lambda: len(listener.finals) == 2)
    await engine.stop()


@pytest.mark.parametrize("interval", [1, 7])
async def test_messages_are_taken_every_so_many_turns(interval: int) -> None:
    """The cancel of a long answer is seen only between groups of turns, and at once by an idle worker."""
    listener = _Listener()
    counted: list[int] = []
    engine = EngineThread(_build(Script(step_ms=2.0), interval), listener.on_turn, listener.on_failure)
    await engine.start()
    for handle in range(3):
        engine.send(Submit(_request(handle, tokens=900)))
        await listener.until(lambda handle=handle: handle in listener.ids)  # type: ignore[misc]
        engine.send(Cancel(handle, 2))
        await listener.until(lambda handle=handle: handle in listener.finals)  # type: ignore[misc]
        counted.append(len(listener.ids[handle]))
    assert all(count % interval == 0 for count in counted)
    await engine.stop()
