"""A fleet in one thread and no time: the real gateway routing, schedulers and prefix caches around engines whose steps
take what a formula says. Tells what a policy does to hit rate and first tokens without the noise of a machine.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from gateway.prefix.feed import Cleared, Event, Removed, Stored, Update, WorkerFeed
from gateway.routing.factory import PolicySettings, make_policy
from gateway.workers.lease import Lease, Outcome
from gateway.workers.registry import Registry, RegistrySettings
from gateway.workers.request import LeaseRequest, PromptKey
from gateway.workers.worker import LoadReport, ModelIdentity, WorkerInfo
from services.scheduler.cache import events as cache_events
from services.scheduler.core.messages import ChoiceSpec, LoadSnapshot, StopSpec, SubmitRequest, TurnOutput
from services.scheduler.core.plan import StepPlan, StepResult
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.engine.interface import EngineInfo

MODEL = "simulated"
_BLOCK = 16
_TIER = 1


@dataclass(frozen=True, slots=True)
class Machine:
    """workers on `cores` processors: with more workers busy than processors all steps take longer.

    step_ms: a forward pass. token_us: each prompt token in it. link_ms: from gateway to worker and back.
    report_ms: age and distance of load reports. `jitter`: share by which a step's time varies. `drift`: spread of each
    worker's speed, as the standard deviation of its logarithm, drawn anew every `drift_s` seconds.
    """

    workers: int = 3
    pool: int = 8192
    cores: int = 3
    step_ms: float = 12.0
    token_us: float = 400.0
    link_ms: float = 2.0
    report_ms: float = 100.0
    jitter: float = 0.2
    drift: float = 0.0
    drift_s: float = 4.0


class Timeline:
    """What happens when. `now` is in seconds."""

    def __init__(self) -> None:
        self.now = 100.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._ticket = itertools.count()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._ticket), act))

    def run(self, until: Callable[[], bool]) -> None:
        """Play events in order until `until` holds."""
        while not until():
            self.now, _, act = heapq.heappop(self._events)
            act()


class _Engine:
    """Steps take a formula's time, which passes while a result is collected."""

    def __init__(self, machine: Machine, took: Callable[[float], None], rng: random.Random) -> None:
        self._machine, self._took, self._random = machine, took, rng
        self._plans: deque[StepPlan] = deque()
        self.info = EngineInfo(
            MODEL, MODEL, 50_000, 32_768, machine.pool, 256, 1, 8, "none", "none", "simulated", True, ()
        )  # fmt: skip

    def launch(self, plan: StepPlan) -> None:
        self._plans.append(plan)

    def sample(self, masks: npt.NDArray[np.int32] | None) -> None:
        return

    def collect(self) -> StepResult:
        plan, machine = self._plans.popleft(), self._machine
        prompt_tokens = plan.input_ids.size - plan.rows.size
        seconds = machine.step_ms / 1e3 + prompt_tokens * machine.token_us / 1e6
        self._took(seconds * self._random.uniform(1 - machine.jitter, 1 + machine.jitter))
        ids = np.array([self._random.randrange(10, 50_000) for _ in range(int(plan.sampled.sum()))], np.int32)
        return StepResult(plan.step_id, ids)

    def close(self) -> None:
        return


@dataclass(slots=True)
class Answered:
    """One request as its client saw it. seconds; tokens."""

    prompt_tokens: int
    sent: float
    lease: Lease | None = None
    first: float | None = None
    cached_tokens: int = 0
    output: list[int] = field(default_factory=list)
    done: bool = False


class SimulatedWorker:
    """A scheduler with its own clock, which runs ahead of the fleet's within a turn."""

    def __init__(self, fleet: SimulatedFleet, address: str, rng: random.Random) -> None:
        self._fleet = fleet
        self._ahead = 0.0
        self._random, self._speed, self._drift_until = rng, 1.0, 0.0
        self._handles = itertools.count(1)
        self._live: dict[int, Answered] = {}
        self.busy = False
        config = SchedulerConfig(publish_cache_events=not fleet.silent, chunked_prefill_size=fleet.chunk)
        self.scheduler = Scheduler(config, _Engine(fleet.machine, self._took, rng), clock=self._clock)
        self.worker = fleet.registry.add(address)
        fleet.registry.session_opened(
            self.worker, WorkerInfo(ModelIdentity(MODEL, MODEL, ""), boot_id=address, pool_tokens=fleet.machine.pool)
        )
        self._feed: WorkerFeed | None = None
        if not fleet.silent:
            self._feed = WorkerFeed(fleet.registry.group(MODEL).index.tree, self.worker.id)
            self._feed.apply(Update(1, 0, (), [], 0, True))
        self._snapshot = self.scheduler.load()

    def submit(self, answered: Answered, prompt: list[int], output_tokens: int) -> None:
        handle = next(self._handles)
        self._live[handle] = answered
        stops = StopSpec(max_new_tokens=output_tokens, ignore_eos=True)
        self.scheduler.submit(SubmitRequest(str(handle), np.array(prompt, np.int32), (ChoiceSpec(handle),), stops=stops))
        if not self.busy:
            self.busy = True
            self.turn()

    def turn(self) -> None:
        """One turn of the scheduler; the next follows when its step is over."""
        self._ahead = 0.0
        busy = sum(worker.busy for worker in self._fleet.members)
        self._fleet.slowdown = max(1.0, busy / self._fleet.machine.cores)
        output = self.scheduler.turn()
        events = self.scheduler.drain_cache_events()
        self._fleet.timeline.after(self._ahead, lambda: self._told(output, events))

    def report(self) -> None:
        """Send the load as it was a report ago."""
        old, self._snapshot = self._snapshot, self.scheduler.load()
        self._fleet.registry.report_load(self.worker, _report(old))

    def _told(self, output: TurnOutput, events: cache_events.CacheEvents) -> None:
        if self._feed is not None and events.events:
            assert self._feed.apply(Update(1, events.first_seq, [_event(event) for event in events.events]))
        for started in output.started:
            answered = self._live[started.handle]
            answered.cached_tokens = started.cached_tokens
            assert answered.lease is not None
            answered.lease.started(started.prompt_tokens, started.cached_tokens)
        ends = np.cumsum(output.tokens.counts)
        for handle, count, end in zip(output.tokens.handles, output.tokens.counts, ends, strict=True):
            self._heard(self._live[handle], output.tokens.token_ids[end - count : end])
        for final in output.finals:
            answered = self._live.pop(final.handle)
            assert final.error is None and answered.lease is not None, final
            answered.lease.settle(Outcome.SUCCESS)
            answered.done = True
        if self.scheduler.has_work:
            self.turn()
        else:
            self.busy = False

    def _heard(self, answered: Answered, ids: list[int]) -> None:
        if answered.first is None:
            answered.first = self._fleet.timeline.now + self._fleet.machine.link_ms / 2e3
            assert answered.lease is not None
            answered.lease.first_token()
        answered.output += ids

    def _took(self, seconds: float) -> None:
        now, machine = self._fleet.timeline.now, self._fleet.machine
        if now >= self._drift_until:
            self._drift_until = now + machine.drift_s
            self._speed = math.exp(self._random.gauss(0.0, machine.drift))
        self._ahead += seconds * self._fleet.slowdown / self._speed

    def _clock(self) -> int:
        return int((self._fleet.timeline.now + self._ahead) * 1e9)


class SimulatedFleet:
    """Gateway and workers. `silent`: the workers publish no cache events."""

    def __init__(self, machine: Machine, policy: str, settings: PolicySettings, *, silent: bool, seed: int, chunk: int = 2048) -> None:
        self.machine, self.silent, self.chunk = machine, silent, chunk
        self.timeline = Timeline()
        self.slowdown = 1.0
        self.members: list[SimulatedWorker] = []
        rng = random.Random(seed)
        self.registry = Registry(RegistrySettings(), lambda model: make_policy(policy, settings, self._now, rng), self._now)
        for number in range(machine.workers):
            self.members.append(SimulatedWorker(self, f"w{number}:1", random.Random(seed * 100 + number)))
        self._report()

    def ask(self, prompt: list[int], output_tokens: int) -> Answered:
        """Route and send a request."""
        answered = Answered(len(prompt), self.timeline.now)
        answered.lease = self.registry.lease(LeaseRequest(MODEL, PromptKey(prompt), max_new_tokens=output_tokens))
        worker = next(member for member in self.members if member.worker is answered.lease.worker)
        self.timeline.after(self.machine.link_ms / 2e3, lambda: worker.submit(answered, prompt, output_tokens))
        return answered

    def _now(self) -> float:
        return self.timeline.now

    def _report(self) -> None:
        for member in self.members:
            member.report()
        self.timeline.after(self.machine.report_ms / 1e3, self._report)


def _report(load: LoadSnapshot) -> LoadReport:
    return LoadReport(
        running=load.running,
        waiting=load.waiting,
        waiting_prefill_tokens=load.waiting_prefill_tokens,
        kv_used_tokens=load.kv_used_tokens,
        kv_total_tokens=load.kv_total_tokens,
        kv_evictable_tokens=load.kv_evictable_tokens,
        prefill_tokens_per_s=load.prefill_tokens_per_s,
        generation_tokens_per_s=load.generation_tokens_per_s,
        decode_step_s=load.decode_step_ms / 1000,
        max_running=load.limits.max_running_requests,
        chunk_tokens=max(0, load.limits.chunked_prefill_size),
    )


def _event(event: cache_events.CacheEvent) -> Event:
    if isinstance(event, cache_events.Stored):
        return Stored(event.hashes, _TIER)
    return Removed(event.hashes, _TIER) if isinstance(event, cache_events.Removed) else Cleared()


@dataclass(frozen=True, slots=True)
class Chats:
    """Multi-turn chats, `concurrency` at a time, in a new order each turn. Tokens per turn vary by 15 % around `said`."""

    chats: int = 18
    turns: int = 5
    said: int = 190
    answered: int = 32
    concurrency: int = 6


def play(fleet: SimulatedFleet, load: Chats, seed: int) -> tuple[list[Answered], float]:
    """All turns of all chats; what clients saw and how many seconds it took."""
    rng = random.Random(seed)
    began = fleet.timeline.now
    histories = [_tokens(rng, 12) for _ in range(load.chats)]
    answers: list[Answered] = []
    for _ in range(load.turns):
        todo = rng.sample(range(load.chats), load.chats)
        flying: list[Answered] = []
        while todo or flying:
            while todo and len(flying) < load.concurrency:
                history = histories[todo.pop()]
                history += _tokens(rng, int(load.said * rng.uniform(0.85, 1.15)))
                flying.append(fleet.ask(list(history), load.answered))
                history += _tokens(rng, load.answered)
            fleet.timeline.run(partial(_one_is_done, flying))
            answers += [answer for answer in flying if answer.done]
            flying = [answer for answer in flying if not answer.done]
    return answers, fleet.timeline.now - began


def _one_is_done(answers: list[Answered]) -> bool:
    return any(answer.done for answer in answers)


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(10, 50_000) for _ in range(count)]
