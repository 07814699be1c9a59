"""What overlap scheduling hides: device idle time between two decode steps, with and without it.

    python -m benchmarks.overlap [--running 256] [--step-ms 5] [--consumer-us 300]

The scripted engine's device takes `step-ms` per step while the caller goes on. Between two turns the loop also spends
`consumer-us` of CPU, as a worker does when it hands tokens to its connections. Printed are the time the device waits for
the next launch and the ratio of both throughputs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.core.messages import ChoiceSpec, StopSpec, SubmitRequest
from services.scheduler.core.plan import SamplingSpec, StepPlan
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.engine.script import Playback, Script
from services.scheduler.engine.scripted import ScriptedEngine

PROMPT = 64


class WatchedEngine(ScriptedEngine):
    """Notes for every step how long the device had been idle when it was launched."""

    def __init__(self, script: Script, *, num_slots: int, max_rows: int) -> None:
        super().__init__(script, num_slots=num_slots, max_rows=max_rows)
        self.idle_us: list[float] = []
        self._ready_ns = 0

    def sample(self, masks: npt.NDArray[np.int32] | None) -> None:
        super().sample(masks)
        self._ready_ns = self._results[-1][0]

    def launch(self, plan: StepPlan) -> None:
        if self._ready_ns:
            self.idle_us.append(max(time.monotonic_ns() - self._ready_ns, 0) / 1e3)
        super().launch(plan)


def spend(microseconds: float) -> None:
    """Use the CPU for a while."""
    until = time.perf_counter_ns() + int(microseconds * 1e3)
    while time.perf_counter_ns() < until:
        pass


def run(options: argparse.Namespace, overlap: bool) -> tuple[float, Sequence[float]]:
    """Tokens per second and idle times of the device in microseconds."""
    context = PROMPT + options.steps + 1
    script = Script("scripted", 1000, context, (), (Playback((), (7,), repeat=True),), step_ms=options.step_ms)
    engine = WatchedEngine(script, num_slots=options.running * context, max_rows=options.running)
    config = SchedulerConfig(max_running_requests=options.running, chunked_prefill_size=-1, disable_overlap_schedule=not overlap)
    scheduler = Scheduler(config, engine)
    random = np.random.default_rng(0)
    for handle in range(options.running):
        prompt = random.integers(0, 1000, PROMPT).astype(np.int32)
        stops = StopSpec(max_new_tokens=options.steps, ignore_eos=True)
        scheduler.submit(SubmitRequest(f"r{handle}", prompt, (ChoiceSpec(handle),), SamplingSpec(temperature=0.0), stops))
    scheduler.turn()
    engine.idle_us.clear()
    before, began = scheduler.counters.generated_tokens, time.perf_counter()
    while scheduler.counters.generated_tokens < options.running * (options.steps - 2):
        scheduler.turn()
        spend(options.consumer_us)
    seconds = time.perf_counter() - began
    return (scheduler.counters.generated_tokens - before) / seconds, engine.idle_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=5.0, help="device time of a step")
    parser.add_argument("--consumer-us", type=float, default=300.0, help="CPU spent between two turns")
    options = parser.parse_args()
    print(f"{options.running} running, device step {options.step_ms} ms, {options.consumer_us:.0f} µs of other CPU work per step")
    print(f"{'overlap':>8} {'tokens/s':>10} {'device idle p50':>16} {'p99':>8} {'share of step':>14}")
    speeds = {}
    for overlap in (False, True):
        best = max((run(options, overlap) for _ in range(3)), key=lambda result: result[0])
        speeds[overlap], idle = best
        middle, high = np.percentile(idle, (50, 99))
        print(f"{overlap!s:>8} {speeds[overlap]:>10.0f} {middle:>13.0f} µs {high:>5.0f} µs {middle / options.step_ms / 1000:>13.1%}")
    print(f"throughput with overlap / without: {speeds[True] / speeds[False]:.3f}")


if __name__ == "__main__":
    main()
