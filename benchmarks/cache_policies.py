"""Eviction policies under conversations that come back: `python -m benchmarks.cache_policies [--pool 12k,24k] [--every 4000]`.

Scheduler, prefix tree and pool are the real ones; computing takes simulated time, so a run is the same every time and no
other program disturbs it. Printed are the share of prompt tokens found in the cache and times to the first token, each as
a ratio to lru's. `tlru` is told what the device needs: how many tokens it prefills within the first-token target. It
trades hits for short tails, which pays where the cache is scarce and costs where it holds nearly everything (`--pool 48k`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from benchmarks.conversations import VOCAB, Conversation, conversations, total_turns, words
from benchmarks.scheduler_turn import InstantEngine
from benchmarks.simulated_device import Device
from services.common.config import count
from services.scheduler.core.messages import ChoiceSpec, Final, StopSpec, SubmitRequest
from services.scheduler.core.plan import IntArray, StepPlan
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig

MS = 1_000_000
CONTEXT = 4096
SYSTEM_TOKENS = 200
_ANSWER_ID = 7  # what the engine says


@dataclass(slots=True)
class Replay:
    """What the turns of a replay met with. Times in milliseconds, one of each per turn, in order of their ends."""

    first_token_ms: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    evicted_tokens: int = 0
    elapsed_ms: float = 0.0

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    def percentile(self, share: float) -> float:
        """First-token time in milliseconds that `share` percent of the turns stay below."""
        return float(np.percentile(self.first_token_ms, share))


class TimedEngine(InstantEngine):
    """Answers at once, and moves the clock by what the step would have taken."""

    def __init__(self, device: Device, pool: int, rows: int) -> None:
        super().__init__(pool, rows, CONTEXT + 1)
        self._device = device
        self.now_ns = 0

    def launch(self, plan: StepPlan) -> None:
        super().launch(plan)
        self.now_ns += int(self._device.step_ms(plan) * MS)


def replay(
    loaded: Sequence[Conversation],
    *,
    pool: int,
    policy: str = "lru",
    parameters: Mapping[str, float] | None = None,
    device: Device | None = None,
    rows: int = 16,
) -> Replay:
    """Play all conversations against a scheduler with `pool` tokens of cache."""
    engine = TimedEngine(device or Device(), pool, rows)
    config = SchedulerConfig(
        max_running_requests=rows,
        chunked_prefill_size=512,
        radix_eviction_policy=policy,
        radix_eviction_policy_config=dict(parameters or {}),
        publish_cache_events=False,
    )
    scheduler = Scheduler(config, engine, clock=lambda: engine.now_ns)
    players = {each.number: _Player(each) for each in loaded if each.turns}
    due = [(int(player.pause_ms * MS), number) for number, player in players.items()]
    heapify(due)
    found = Replay()
    while due or scheduler.has_work:
        if not scheduler.has_work:
            engine.now_ns = max(engine.now_ns, due[0][0])
        while due and due[0][0] <= engine.now_ns:
            arrival_ns, number = heappop(due)
            scheduler.submit(players[number].say(arrival_ns))
        for final in scheduler.turn().finals:
            _note(found, final)
            player = players[final.handle]
            if player.hears():
                heappush(due, (engine.now_ns + int(player.pause_ms * MS), final.handle))
    found.evicted_tokens, found.elapsed_ms = scheduler.evicted_tokens, engine.now_ns / MS
    return found


def _note(found: Replay, final: Final) -> None:
    assert final.timings.first_token_ns is not None, final
    found.first_token_ms.append(final.timings.first_token_ns / MS)
    found.prompt_tokens += final.usage.prompt_tokens
    found.cached_tokens += final.usage.cached_tokens


class _Player:
    """One user: knows the history and what comes next."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._turn = 0
        self._history: IntArray = words(-1 % VOCAB, 0, SYSTEM_TOKENS)

    @property
    def pause_ms(self) -> float:
        return self._conversation.turns[self._turn].pause_ms

    def say(self, arrival_ns: int) -> SubmitRequest:
        number, turn = self._conversation.number, self._conversation.turns[self._turn]
        self._history = np.concatenate((self._history, words(number, self._turn, turn.new_tokens)))
        stops = StopSpec(max_new_tokens=turn.output_tokens, ignore_eos=True)
        return SubmitRequest(f"c{number}", self._history, (ChoiceSpec(number),), stops=stops, arrival_ns=arrival_ns)

    def hears(self) -> bool:
        """Take the answer in; whether there is more to say."""
        answer = np.full(self._conversation.turns[self._turn].output_tokens, _ANSWER_ID, np.int32)
        self._history = np.concatenate((self._history, answer))
        self._turn += 1
        return self._turn < len(self._conversation.turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="*", default=["lru", "tlru", "lfu", "slru", "fifo", "mru"])
    parser.add_argument("--pool", default="12k,24k", help="sizes of the cache in tokens")
    parser.add_argument("--conversations", type=int, default=120)
    parser.add_argument("--every", type=float, default=12_000, help="milliseconds between beginnings of conversations")
    parser.add_argument("--think", type=float, default=60_000, help="milliseconds between an answer and the next question")
    parser.add_argument("--threshold", type=int, default=1024, help="tlru: tokens the device prefills within the target")
    parser.add_argument("--next-prompt", type=int, default=300, help="tlru: tokens a user usually adds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    room = CONTEXT - SYSTEM_TOKENS - 1
    loaded = conversations(options.conversations, seed=options.seed, every_ms=options.every, context=room, think_ms=options.think)
    tail = {"threshold": options.threshold, "next_prompt_estimate": options.next_prompt}
    print(f"{len(loaded)} conversations, {total_turns(loaded)} turns")
    for pool in map(count, options.pool.split(",")):
        base = replay(loaded, pool=pool)
        print(f"\npool {pool:,} tokens")
        print(f"{'policy':8} {'cached':>7} {'evicted':>10} {'median':>9} {'p90':>9} {'p99 TTFT':>9} {'p99 / lru':>10}")
        for policy in options.policies:
            found = base if policy == "lru" else replay(loaded, pool=pool, policy=policy, parameters=tail if policy == "tlru" else None)
            times = "".join(f"{found.percentile(share):>7.0f} ms" for share in (50, 90, 99))
            ratio = found.percentile(99) / base.percentile(99)
            print(f"{policy:8} {found.hit_rate:>7.1%} {found.evicted_tokens:>10,} {times} {ratio:>10.2f}")


if __name__ == "__main__":
    main()
