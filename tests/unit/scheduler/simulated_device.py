"""A scheduler whose engine takes simulated time: throughput and gaps without a clock on the wall."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.simulated_device import Device
from services.scheduler.core.plan import StepPlan
from services.scheduler.engine.script import Script
from tests.unit.scheduler.harness import Driver, prompt

MS = 1_000_000


@dataclass
class Outcome:
    """Times in milliseconds of simulated time."""

    output_tokens: int = 0
    elapsed_ms: float = 0.0
    gaps: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        return 1000 * self.output_tokens / self.elapsed_ms


def closed_loop(users: int, requests: int, prompt_tokens: int, output_tokens: int, device: Device | None = None, **config: Any) -> Outcome:
    """Every user sends a request, waits for its end, and sends the next."""
    device = device or Device()
    context = prompt_tokens + output_tokens + 1
    driver = Driver(
        Script(vocab_size=50_000, context_length=context, eos_token_ids=()), pool=users * context, rows=users, check=False, **config
    )
    launch = driver.engine.launch

    def timed(plan: StepPlan) -> None:
        launch(plan)
        driver.clock_ns += int(device.step_ms(plan) * MS)

    driver.engine.launch = timed  # type: ignore[method-assign]
    found, sent = Outcome(), 0
    begun: dict[int, int] = {}  # by handle, as the two below
    last: dict[int, int] = {}
    counted: dict[int, int] = {}
    while sent < requests or driver.scheduler.has_work:
        running = sum(1 for said in driver.said.values() if said.final is None)
        while running < users and sent < requests:
            handle = driver.submit(prompt(prompt_tokens, sent), output_tokens)
            begun[handle] = driver.clock_ns
            sent, running = sent + 1, running + 1
        driver.turn()
        for handle, said in driver.said.items():
            if len(said.tokens) > counted.get(handle, 0):
                times = found.gaps if handle in last else found.first_tokens
                times.append((driver.clock_ns - last.get(handle, begun[handle])) / MS)
                last[handle], counted[handle] = driver.clock_ns, len(said.tokens)
    assert sum(counted.values()) == requests * output_tokens
    found.output_tokens, found.elapsed_ms = sum(counted.values()), driver.clock_ns / MS
    return found
