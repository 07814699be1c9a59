"""A slot corrupted by hand is found, named and counted; what the engine writes itself never is."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from services.scheduler.core.messages import ChoiceSpec, FinishReason, StopSpec, SubmitRequest
from services.scheduler.core.plan import IntArray, SamplingSpec
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.engine.canary import CanaryEngine
from services.scheduler.engine.script import Failure, Script
from services.scheduler.engine.scripted import ScriptedEngine
from services.scheduler.kv_canary import KvCanary, KvCorrupted
from tests.unit.engine.driver import Driver, native_engine, torch_engine
from tests.unit.engine.models import save_tiny

_NO_EOS = Script("scripted", 50_000, 1024, ())


class _Serving:
    """A scheduler over a scripted engine with a canary that looks at everything after every turn."""

    def __init__(self, script: Script = _NO_EOS, *, mode: str = "log", slots: int = 256, **config: object) -> None:
        inner = ScriptedEngine(script, num_slots=slots, max_rows=8)
        self.engine = CanaryEngine(inner, inner)
        self.scheduler = Scheduler(SchedulerConfig(max_running_requests=8, **config), self.engine)  # type: ignore[arg-type]
        self.now = 0
        self.found = 0
        self.canary = KvCanary(self.engine, self.scheduler.slot_owners, self._count, mode=mode, interval_s=1.0, clock=self._clock)
        self.finals: dict[int, FinishReason] = {}

    def _count(self) -> None:
        self.found += 1

    def _clock(self) -> int:
        return self.now

    def submit(self, handle: int, prompt: int, tokens: int) -> None:
        ids = np.arange(prompt, dtype=np.int32) + 17 * handle
        stops = StopSpec(max_new_tokens=tokens)
        self.scheduler.submit(SubmitRequest(f"request-{handle}", ids, (ChoiceSpec(handle),), SamplingSpec(temperature=0.0), stops))

    def turn(self) -> None:
        self.now += 2_000_000_000
        for final in self.scheduler.turn().finals:
            self.finals[final.handle] = final.reason
        self.canary.sweep()

    def run(self) -> None:
        while self.scheduler.has_work:
            self.turn()


def test_log_mode_names_slot_and_request_and_keeps_serving(caplog: pytest.LogCaptureFixture) -> None:
    script = Script("scripted", 50_000, 1024, (), failures=(Failure(5, "corrupt", slot=3),))
    serving = _Serving(script)
    with caplog.at_level(logging.ERROR):
        serving.submit(7, prompt=10, tokens=20)
        serving.run()
    assert serving.found == 1
    (record,) = caplog.records
    assert "slot 3 " in record.getMessage()
    assert "request request-7 (position " in record.getMessage()
    assert serving.finals == {7: FinishReason.LENGTH}


def test_raise_mode_stops() -> None:
    script = Script("scripted", 50_000, 1024, (), failures=(Failure(5, "corrupt", slot=3),))
    serving = _Serving(script, mode="raise")
    serving.submit(7, prompt=10, tokens=20)
    with pytest.raises(KvCorrupted, match=r"slot 3 .*request-7"):
        serving.run()
    assert serving.found == 1


def test_a_cached_prefix_and_a_free_slot_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    failures = (Failure(8, "corrupt", slot=3),)  # launch 8 is the second request's
    serving = _Serving(Script("scripted", 50_000, 1024, (), failures=failures))
    serving.submit(1, prompt=10, tokens=6)
    serving.run()
    serving.submit(2, prompt=5, tokens=6)
    serving.run()
    assert "used by a cached prefix of 15 tokens" in caplog.text  # prompt and output, the last token is never written
    without = _Serving(Script("scripted", 50_000, 1024, (), failures=failures), disable_radix_cache=True)
    without.submit(1, prompt=10, tokens=6)
    without.run()
    caplog.clear()
    without.submit(2, prompt=2, tokens=6)
    without.run()
    assert "nobody: it is free" in caplog.text


@pytest.mark.parametrize("overlap", [False, True])
def test_a_run_with_chunks_retractions_and_evictions_has_no_false_alarm(overlap: bool) -> None:
    serving = _Serving(slots=200, disable_overlap_schedule=not overlap, chunked_prefill_size=16, schedule_conservativeness=0.0)
    for handle in range(30):
        serving.submit(handle, prompt=20 + handle, tokens=40)
    serving.run()
    assert serving.found == 0
    assert len(serving.finals) == 30
    assert serving.scheduler.counters.retractions > 0
    assert serving.scheduler.evicted_tokens > 0


def test_a_pass_that_fails_halfway_leaves_no_false_memory() -> None:
    serving = _Serving(Script("scripted", 50_000, 1024, (), failures=(Failure(3, "oom"),)))
    for handle in range(2):
        serving.submit(handle, prompt=10, tokens=20)
    serving.run()
    assert serving.scheduler.counters.out_of_memory == 1
    assert (serving.found, set(serving.finals.values())) == (0, {FinishReason.LENGTH})


def test_one_round_an_interval_in_slices() -> None:
    serving = _Serving()
    serving.submit(1, prompt=100, tokens=60)
    while serving.scheduler.has_work:
        serving.scheduler.turn()
    looked: list[IntArray] = []
    inner = serving.engine.changed
    serving.engine.changed = lambda slots: looked.append(slots) or inner(slots)  # type: ignore[method-assign,func-returns-value]
    serving.canary.sweep()
    assert not looked
    serving.now = 1_000_000_000
    serving.canary.sweep()
    assert np.concatenate(looked).tolist() == sorted(set(np.concatenate(looked).tolist()))
    assert sum(part.size for part in looked) == serving.engine.known_after(0, 1000).size >= 159


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("layer", [0, 2])
def test_real_pools(tmp_path: Path, native: bool, layer: int) -> None:
    save_tiny("llama", tmp_path, changes={"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32})
    engine = native_engine(tmp_path, 2048, num_threads=2) if native else torch_engine(tmp_path)
    watched = CanaryEngine(engine, engine)
    driver = Driver(watched)
    driver.generate([driver.open([5, 6, 7, 8, 9])], 4)
    slots = watched.known_after(0, 1000)
    assert slots.size >= 8
    assert watched.changed(slots) == []
    victim = int(slots[2])
    if native:
        runner = engine._runner
        runner._decoder.zero_slots(torch.tensor([victim], dtype=torch.int32))  # type: ignore[attr-defined]
    else:
        engine._runner._pool.values[layer, victim, 0, 1] += 0.5  # type: ignore[attr-defined]
    assert watched.changed(slots) == [victim]
    assert watched.changed(slots) == []  # told once
