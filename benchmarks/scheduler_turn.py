"""What a scheduler turn costs the CPU: decode steps of many running requests, and admissions.

    python -m benchmarks.scheduler_turn [--running 256] [--lengths 1000,8000,32000]

The engine answers at once with fixed ids, so all that is measured is the scheduler. The floor is an empty loop over the
running choices. A turn may cost 1 ms for 256 running requests, whatever their length; an admission 50 µs and 20 ns per
prompt token.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.core.messages import ChoiceSpec, StopSpec, SubmitRequest
from services.scheduler.core.plan import IntArray, StepPlan, StepResult
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.engine.interface import EngineInfo

VOCAB = 32_000
TURNS = 300
OUTPUT_ROOM = 4 * TURNS
TOGETHER = 16  # admissions of one turn
BATCHES = 60  # such turns


class InstantEngine:
    """Answers every step with the same id, and costs next to nothing."""

    def __init__(self, num_slots: int, max_rows: int, context_length: int) -> None:
        self.info = EngineInfo(
            model_name="instant",
            model_digest="instant",
            vocab_size=VOCAB,
            context_length=context_length,
            num_slots=num_slots,
            max_rows=max_rows,
            page_size=1,
            bytes_per_token=0,
            dtype="none",
            quantization="none",
            attention_backend="none",
            batch_invariant=True,
            eos_token_ids=(0,),
        )
        self._plans: deque[tuple[int, int]] = deque()

    def launch(self, plan: StepPlan) -> None:
        self._plans.append((plan.step_id, int(np.count_nonzero(plan.sampled))))

    def sample(self, masks: npt.NDArray[np.int32] | None) -> None:
        return None

    def collect(self) -> StepResult:
        step_id, count = self._plans.popleft()
        return StepResult(step_id, np.full(count, 7, np.int32))

    def close(self) -> None:
        return None


def request(handle: int, prompt: IntArray, max_new: int) -> SubmitRequest:
    return SubmitRequest(f"r{handle}", prompt, (ChoiceSpec(handle),), stops=StopSpec(max_new_tokens=max_new))


def loaded(running: int, length: int, overlap: bool, events: bool, spare: int = 0) -> Scheduler:
    """A scheduler with `running` choices of `length` tokens each that decode on and on, and `spare` more slots."""
    context = length + OUTPUT_ROOM
    rows = running + TOGETHER + 1
    engine = InstantEngine(rows * context + spare, rows, context)
    config = SchedulerConfig(
        max_running_requests=rows,
        chunked_prefill_size=-1,
        max_prefill_tokens=1 << 30,
        disable_overlap_schedule=not overlap,
        publish_cache_events=events,
    )
    scheduler = Scheduler(config, engine)
    random = np.random.default_rng(length)
    for handle in range(running):
        scheduler.submit(request(handle, random.integers(1, VOCAB, length).astype(np.int32), OUTPUT_ROOM))
    while scheduler.load().waiting:
        scheduler.turn()
    scheduler.turn()
    return scheduler


def best(samples: Sequence[float]) -> float:
    """The lower quartile: what a turn costs when nothing else is in the way."""
    return float(np.percentile(samples, 25))


def decode_us(scheduler: Scheduler) -> float:
    """CPU of one decode turn in microseconds."""
    samples = []
    for _ in range(TURNS):
        began = time.thread_time_ns()
        scheduler.turn()
        samples.append((time.thread_time_ns() - began) / 1e3)
    return best(samples)


def floor_us(running: int) -> float:
    """CPU of an empty loop over as many objects, in microseconds."""
    objects = [object() for _ in range(running)]
    samples = []
    for _ in range(TURNS):
        began = time.thread_time_ns()
        for _item in objects:
            pass
        samples.append((time.thread_time_ns() - began) / 1e3)
    return best(samples)


def admission_us(scheduler: Scheduler, length: int, baseline: float) -> float:
    """CPU of one admission in microseconds: what a turn that takes in and prefills `TOGETHER` requests costs more, divided."""
    random = np.random.default_rng(1)
    samples = []
    for batch in range(BATCHES):
        prompts = random.integers(1, VOCAB, (TOGETHER, length)).astype(np.int32)
        requests = [request(1_000_000 + batch * TOGETHER + index, prompt, 2) for index, prompt in enumerate(prompts)]
        began = time.thread_time_ns()
        for new in requests:
            scheduler.submit(new)
        scheduler.turn()
        samples.append(((time.thread_time_ns() - began) / 1e3 - baseline) / TOGETHER)
        scheduler.turn()  # they end: rows and slots are used again, as in a server that has run for a while
    return best(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--lengths", default="1000,8000,32000", help="tokens of each running request")
    parser.add_argument("--no-cache-events", action="store_true", help="do not hash cached blocks")
    options = parser.parse_args()
    floor = floor_us(options.running)
    print(f"{options.running} running requests; floor (empty loop over them) {floor:.1f} µs of CPU")
    print(f"{'length':>8} {'overlap':>8} {'decode turn':>12} {'x floor':>8} {'share of 1 ms':>14}")
    for length in map(int, options.lengths.split(",")):
        for overlap in (False, True):
            gc.collect()
            scheduler = loaded(options.running, length, overlap, not options.no_cache_events)
            gc.freeze()
            turn = decode_us(scheduler)
            print(f"{length:>8} {overlap!s:>8} {turn:>9.0f} µs {turn / floor:>8.0f} {turn / 1000:>13.0%}")
            gc.unfreeze()
            del scheduler
    print(f"\nadmission: submit, match, admit, plan, first token, commit ({TOGETHER} in one turn)")
    print(f"{'prompt':>8} {'free pool':>12} {'pool full of prefixes':>22} {'allowed':>12} {'share':>8}")
    for length in (16, 256, 1000):
        costs = []
        for spare in ((BATCHES + 1) * TOGETHER * (length + 2), 0):
            scheduler = loaded(8, 1000, False, not options.no_cache_events, spare)
            gc.collect()
            gc.freeze()  # as a worker does after its warm-up
            costs.append(admission_us(scheduler, length, decode_us(scheduler)))
            gc.unfreeze()
        allowed = 50 + 0.020 * length
        print(f"{length:>8} {costs[0]:>9.0f} µs {costs[1]:>19.0f} µs {allowed:>9.0f} µs {max(costs) / allowed:>8.0%}")


if __name__ == "__main__":
    main()
