"""A pass that would not fit is refused before it begins, and everything goes on in smaller portions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from services.scheduler.core.messages import ChoiceSpec, FinishReason, StopSpec, SubmitRequest, TurnOutput
from services.scheduler.core.plan import IntArray, SamplingSpec
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.engine.forward_batch import ForwardBatch
from services.scheduler.engine.headroom import GuardedRunner, Headroom, PoolPages, StepCosts
from services.scheduler.engine.interface import OutOfMemory
from services.scheduler.engine.runner import ForwardRunner
from services.scheduler.engine.torch_engine import TorchEngine
from services.scheduler.engine.torch_runner import TorchRunner
from services.scheduler.weights.loader import load_weights, open_checkpoint
from tests.unit.engine.driver import engine_info
from tests.unit.engine.models import save_tiny

MIB = 1 << 20
_RESERVE = 48 * MIB
_COSTS = StepCosts(per_token=MIB, per_logits_row=0)


def _batch(tokens: int, first_slot: int = 1) -> ForwardBatch:
    ids = np.zeros(tokens, np.int32)
    one = np.ones(1, np.int32)
    slots = np.arange(first_slot, first_slot + tokens, dtype=np.int32)
    return ForwardBatch(ids, ids, slots, one, one * tokens, one * tokens, one - 1)


def _pages(bytes_per_slot: int = 1024) -> PoolPages:
    return PoolPages(10_000, bytes_per_slot, layers=1)


class _Left:
    """Memory that is left, and how often it was asked for."""

    def __init__(self, spare: int) -> None:
        self.spare, self.asked = spare, 0

    def __call__(self) -> int:
        self.asked += 1
        return _RESERVE + self.spare


def test_a_pass_that_fits_is_let_through_and_a_larger_one_is_not() -> None:
    room = Headroom(_Left(16 * MIB), _COSTS, _pages())
    room.claim(_batch(10))
    with pytest.raises(OutOfMemory, match=r"20 tokens may take \d+ MiB, \d+ MiB are left"):
        room.claim(_batch(20))


def test_the_pool_takes_memory_where_it_is_first_touched_only() -> None:
    pages = _pages()  # 2,048 slots to a huge page
    assert pages.fresh_bytes(np.array([1, 2, 2047])) == 2 * MIB
    pages.touch(np.array([5]))
    assert pages.fresh_bytes(np.array([1, 2, 2047])) == 0
    assert pages.fresh_bytes(np.array([3, 2048, 9000])) == 4 * MIB
    assert PoolPages(100, 1024, layers=1000).fresh_bytes(np.array([100])) > 0


def test_what_the_pool_has_taken_is_no_longer_left() -> None:
    left = _Left(3 * MIB)
    room = Headroom(left, StepCosts(0, 0), _pages(), clock=lambda: 0)
    room.claim(_batch(1, first_slot=1))
    left.spare = MIB
    room.claim(_batch(1, first_slot=7))  # the same page
    with pytest.raises(OutOfMemory):
        room.claim(_batch(1, first_slot=5000))


def test_it_looks_again_after_a_while_or_when_it_gets_tight() -> None:
    now, left = 0, _Left(100 * MIB)
    room = Headroom(left, _COSTS, _pages(), clock=lambda: now)
    for _ in range(50):
        room.claim(_batch(1))
    assert left.asked == 1
    now = 200_000_000
    room.claim(_batch(1))
    assert left.asked == 2
    left.spare = 4 * MIB
    with pytest.raises(OutOfMemory):
        room.claim(_batch(200))
    assert left.asked == 4  # once more after the allocator gave back what it kept


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny("llama", folder)
    return folder


def _runner(folder: Path) -> TorchRunner:
    checkpoint = open_checkpoint(folder)
    return TorchRunner(
        checkpoint.config,
        load_weights(checkpoint, torch.float32),
        attention_backend="torch_native",
        dtype=torch.float32,
        device=torch.device("cpu"),
        num_slots=1024,
        context_length=256,
    )


def _engine(folder: Path, runner: ForwardRunner) -> TorchEngine:
    return TorchEngine(engine_info(open_checkpoint(folder).config, runner, 1024, 256), runner)


def _serve(engine: TorchEngine, lengths: list[int]) -> tuple[Scheduler, dict[int, list[int]], dict[int, FinishReason]]:
    """Greedy answers of eight tokens to prompts of these lengths."""
    scheduler = Scheduler(SchedulerConfig(max_running_requests=16, chunked_prefill_size=-1), engine)
    for handle, length in enumerate(lengths):
        ids = np.random.default_rng(handle).integers(3, 300, length).astype(np.int32)
        stops = StopSpec(max_new_tokens=8, ignore_eos=True)
        scheduler.submit(SubmitRequest(f"r{handle}", ids, (ChoiceSpec(handle),), SamplingSpec(temperature=0.0), stops))
    answers: dict[int, list[int]] = {handle: [] for handle in range(len(lengths))}
    reasons: dict[int, FinishReason] = {}
    while scheduler.has_work:
        _collect(scheduler.turn(), answers, reasons)
    scheduler.check_integrity()
    return scheduler, answers, reasons


def _collect(output: TurnOutput, answers: dict[int, list[int]], reasons: dict[int, FinishReason]) -> None:
    at = 0
    for handle, count in zip(output.tokens.handles, output.tokens.counts, strict=True):
        answers[handle] += output.tokens.token_ids[at : at + count]
        at += count
    reasons.update((final.handle, final.reason) for final in output.finals)


def test_a_real_engine_that_runs_short_retracts_shrinks_and_answers_as_ever(tiny: Path) -> None:
    lengths = [120, 90, 30, 200]
    _, calm, _ = _serve(_engine(tiny, _runner(tiny)), lengths)
    tight = GuardedRunner(_runner(tiny), Headroom(_Left(64 * MIB), _COSTS, PoolPages(1024, 64, 3)))
    scheduler, answers, reasons = _serve(_engine(tiny, tight), lengths)
    assert answers == calm
    assert set(reasons.values()) == {FinishReason.LENGTH}
    assert scheduler.counters.out_of_memory >= 2
    assert scheduler.counters.retractions >= 4
    assert 0 < scheduler.limits.chunked_prefill_size <= 64


class _Faulty:
    """A runner whose n-th pass fails as an allocator does."""

    attention_backend, batch_invariant = "torch_native", False

    def __init__(self, runner: TorchRunner, error: Exception, at: int) -> None:
        self._runner, self._passes = runner, 0
        decoder = runner._decoder
        forward = decoder.forward

        def failing(batch: ForwardBatch, req_to_token: torch.Tensor) -> torch.Tensor:
            self._passes += 1
            if self._passes == at:
                raise error
            return forward(batch, req_to_token)

        decoder.forward = failing  # type: ignore[method-assign]

    def forward(self, batch: ForwardBatch, req_to_token: torch.Tensor) -> torch.Tensor:
        return self._runner.forward(batch, req_to_token)

    def slot_digests(self, slots: IntArray) -> npt.NDArray[np.uint64]:
        return self._runner.slot_digests(slots)

    def close(self) -> None:
        self._runner.close()


@pytest.mark.parametrize("at", [1, 5])  # a prefill, a decode
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
    ids=["python", "torch", "cpu-allocator"],
)
def test_an_allocation_that_fails_in_the_middle_of_a_pass_is_survived(tiny: Path, error: Exception, at: int) -> None:
    lengths = [20, 40, 60]
    _, calm, _ = _serve(_engine(tiny, _runner(tiny)), lengths)
    scheduler, answers, _ = _serve(_engine(tiny, _Faulty(_runner(tiny), error, at)), lengths)
    assert answers == calm
    assert scheduler.counters.out_of_memory == 1


def test_another_error_of_a_pass_is_no_shortage_of_memory(tiny: Path) -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        _serve(_engine(tiny, _Faulty(_runner(tiny), RuntimeError("shapes do not match"), 2)), [20])
