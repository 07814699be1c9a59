"""Admission, decoding and retraction written down as the rules say them: lists and loops, no cache, no columns, no overlap."""

from __future__ import annotations

from dataclasses import dataclass, field

CLIP, HEADROOM = 4096, 20


@dataclass
class Wanted:
    """One request. `held` are the slots it uses."""

    handle: int
    prompt: int
    max_new: int
    certain: bool
    out: int = 0
    held: int = 0

    @property
    def left(self) -> int:
        return min(self.max_new - self.out, CLIP)


@dataclass
class NaiveScheduler:
    """fcfs, whole prompts, one token per page. `turn` returns the lengths of the step's rows, empty if there was no step."""

    pool: int
    places: int
    batch_tokens: int
    start_ratio: float = 0.7
    ratio: float = 0.7
    waiting: list[Wanted] = field(default_factory=list)
    running: list[Wanted] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)
    retractions: int = 0

    @property
    def used(self) -> int:
        return sum(one.held for one in self.running)

    def submit(self, one: Wanted) -> None:
        if one.max_new:
            self.waiting.append(one)
        else:
            self.ended[one.handle] = "LENGTH"

    def cancel(self, handle: int) -> None:
        for group in (self.waiting, self.running):
            for one in [one for one in group if one.handle == handle]:
                group.remove(one)
                self.ended[handle] = "ABORT"

    def turn(self) -> list[int]:
        lengths = self._prefill() or self._decode()
        for one in [one for one in self.running if one.out >= one.max_new]:
            self.running.remove(one)
            self.ended[one.handle] = "LENGTH"
        if not self.waiting and not self.running:
            self.ratio = self.start_ratio
        return lengths

    def _prefill(self) -> list[int]:
        reserved = sum(one.left * (1.0 if one.certain else self.ratio) for one in self.running)
        room = self.batch_tokens
        lengths: list[int] = []
        for one in list(self.waiting):
            size, alone = one.prompt + one.out, not self.running
            needed = size + 1 + (0 if alone else one.left)
            if len(self.running) >= self.places:
                break
            if needed > self.pool - self.used - reserved:
                if not alone:
                    break
                self.waiting.remove(one)
                self.ended[one.handle] = "ABORT"
                continue
            if lengths and size > room:
                break
            self.waiting.remove(one)
            self.running.append(one)
            reserved += one.left + 1
            one.held, room = size, room - size
            one.out += 1
            lengths.append(size)
        return lengths

    def _decode(self) -> list[int]:
        retracted = False
        while self.used + len(self.running) > self.pool:
            self.running.sort(key=lambda one: one.handle)
            victim = min(self.running, key=lambda one: (one.out, -one.prompt, -one.handle))
            self.running.remove(victim)
            victim.held, retracted = 0, True
            if not self.running:
                self.ended[victim.handle] = "ABORT"
                continue
            self.retractions += 1
            self.waiting = sorted([*self.waiting, victim], key=lambda one: one.handle)
        if retracted:
            decoded, wanted = sum(one.out for one in self.running), sum(one.max_new for one in self.running)
            self.ratio = min(1.0, (decoded + HEADROOM * len(self.running)) / (wanted + 1))
        if self.running:
            self.ratio = max(self.ratio - self.start_ratio * 0.86 / 600, self.start_ratio * 0.14)
        for one in self.running:
            one.held += 1
            one.out += 1
        return [1] * len(self.running)
