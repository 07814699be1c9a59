"""An engine without a model: it plays a script, and everything around it is real (`--load-format scripted`)."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from services.scheduler.core.plan import IntArray, RowLogprobs, RowStart, StepPlan, StepResult
from services.scheduler.engine.interface import EngineInfo, OutOfMemory
from services.scheduler.engine.script import Script
from services.scheduler.engine.slot_memory import SlotMemory


@dataclass(slots=True)
class _Row:
    """What the engine knows of a running choice."""

    start: RowStart
    tokens: list[int]
    position: int  # output position of the next token

    @property
    def prompt_length(self) -> int:
        return int(self.start.prompt_ids.size)


@dataclass(slots=True)
class _Launched:
    plan: StepPlan
    prompt_logprobs: dict[int, tuple[RowLogprobs, ...]]
    ready_ns: int
    device_ns: int


@dataclass(slots=True)
class _Device:
    """A clock of device time: steps run one after the other, whatever the caller does meanwhile."""

    free_ns: int = 0

    def occupy(self, duration_ns: int) -> int:
        self.free_ns = max(self.free_ns, time.monotonic_ns()) + duration_ns
        return self.free_ns


@dataclass(slots=True)
class _Sampled:
    ids: list[int] = field(default_factory=list)
    invalid: list[int] = field(default_factory=list)
    logprobs: dict[int, RowLogprobs] = field(default_factory=dict)


class ScriptedEngine:
    """Drawn ids depend on everything the row's slots hold, so that a mistake in slot bookkeeping changes the output.

    With `verify`, every slot a step reads is compared with what the row wrote, and a difference raises AssertionError.
    """

    def __init__(self, script: Script, *, num_slots: int, max_rows: int, page_size: int = 1, verify: bool = False) -> None:
        self._script = script
        self._info = EngineInfo(
            model_name=script.model_name,
            model_digest=f"scripted-{script.vocab_size}",
            vocab_size=script.vocab_size,
            context_length=script.context_length,
            num_slots=num_slots,
            max_rows=max_rows,
            page_size=page_size,
            bytes_per_token=8,
            dtype="none",
            quantization="none",
            attention_backend="scripted",
            batch_invariant=True,
            eos_token_ids=script.eos_token_ids,
        )
        self._memory = SlotMemory(num_slots, max_rows, script.context_length)
        self._verify = verify
        self._rows: dict[int, _Row] = {}
        self._last_ids = np.zeros(max_rows + 1, np.int32)
        self._failures = {failure.launch: failure for failure in script.failures}
        self._launches = 0
        self._device = _Device()
        self._launched: _Launched | None = None
        self._results: deque[tuple[int, StepResult]] = deque()

    @property
    def info(self) -> EngineInfo:
        return self._info

    def launch(self, plan: StepPlan) -> None:
        self._launches += 1
        self._fail()
        if self._script.oom_above_tokens is not None and plan.input_ids.size > self._script.oom_above_tokens:
            raise OutOfMemory(f"{plan.input_ids.size} tokens do not fit")
        for row in plan.released_rows:
            del self._rows[row]
        for start in plan.row_starts:
            self._rows[start.row] = _Row(start, [*start.prompt_ids.tolist(), *start.output_ids.tolist()], int(start.output_ids.size))
        for row, given in plan.given_ids():
            self._rows[row].tokens.extend(given)
            self._rows[row].position += len(given)
        self._memory.apply(plan)
        ids = np.where(plan.input_ids < 0, self._last_ids[np.maximum(-plan.input_ids, 0)], plan.input_ids)
        if self._verify:
            self._check(plan, ids)
        self._memory.write(plan, ids)
        cost = int(self._script.step_ms * 1e6 + self._script.prefill_us_per_token * 1e3 * (plan.input_ids.size - plan.rows.size))
        self._launched = _Launched(plan, self._prompt_logprobs(plan), self._device.occupy(cost), cost)

    def sample(self, masks: npt.NDArray[np.int32] | None) -> None:
        step = self._launched
        assert step is not None, "sample() without launch()"
        self._launched = None
        sampled = _Sampled()
        rows = step.plan.rows[step.plan.sampled]
        for index, row in enumerate(rows.tolist()):
            self._sample_row(row, None if masks is None else masks[index], step.plan, sampled)
        ids = np.array(sampled.ids, np.int32)
        self._last_ids[rows] = ids
        result = StepResult(step.plan.step_id, ids, tuple(sampled.invalid), sampled.logprobs, step.prompt_logprobs, step.device_ns)
        self._results.append((step.ready_ns, result))

    def collect(self) -> StepResult:
        ready_ns, result = self._results.popleft()
        wait = ready_ns - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        return result

    def slot_digests(self, slots: IntArray) -> npt.NDArray[np.uint64]:
        """What the canary compares."""
        return self._memory.digests(slots)

    def close(self) -> None:
        self._rows.clear()

    # ------------------------------------------------------------------ inside

    def _fail(self) -> None:
        failure = self._failures.get(self._launches)
        if failure is None:
            return
        if failure.kind == "oom":
            raise OutOfMemory(f"launch {self._launches} was scripted to run out of memory")
        if failure.kind == "crash":
            raise RuntimeError(f"launch {self._launches} was scripted to crash")
        if failure.kind == "corrupt":
            self._memory.corrupt(failure.slot)
        time.sleep(failure.seconds)

    def _check(self, plan: StepPlan, ids: IntArray) -> None:
        """Every row's slots hold what the row's tokens say, and the new tokens are the ones that come next."""
        starts = np.cumsum(plan.extend_lens) - plan.extend_lens
        columns = zip(plan.rows.tolist(), plan.prefix_lens.tolist(), plan.extend_lens.tolist(), starts.tolist(), strict=True)
        for row, prefix, count, start in columns:
            tokens = self._rows[row].tokens
            assert tokens[prefix : prefix + count] == ids[start : start + count].tolist(), f"row {row} is fed other tokens than its own"
            self._memory.check(row, tokens[:prefix])

    def _sample_row(self, row: int, mask: npt.NDArray[np.int32] | None, plan: StepPlan, out: _Sampled) -> None:
        known = self._rows[row]
        token = self._allowed(self._scripted_id(known, row), known, mask)
        if self._script.playback_for(known.start.prompt_ids).invalid_at == known.position:
            out.invalid.append(row)
        out.ids.append(token)
        spec = known.start.sampling
        if spec.logprobs:
            out.logprobs[row] = self._logprobs(token, spec.top_logprobs, spec.logprob_ids)
        known.tokens.append(token)
        known.position += 1

    def _scripted_id(self, known: _Row, row: int) -> int:
        playback = self._script.playback_for(known.start.prompt_ids)
        if playback.output is None:
            spec = known.start.sampling
            salt = (spec.seed + spec.choice * 7919) if spec.temperature > 0 else 0
            return int(self._memory.draw(row, len(known.tokens) - 1, salt) % self._script.vocab_size)
        if known.position < len(playback.output):
            return playback.output[known.position]
        if playback.repeat and playback.output:
            return playback.output[known.position % len(playback.output)]
        return self._script.eos_token_ids[0] if self._script.eos_token_ids else 0

    def _allowed(self, token: int, known: _Row, mask: npt.NDArray[np.int32] | None) -> int:
        """`token`, or the next id that neither the mask nor the minimum length forbids."""
        spec = known.start.sampling
        barred = spec.suppress_until_min if known.position < spec.min_new_tokens else ()
        for candidate in chain(range(token, self._script.vocab_size), range(token)):
            if candidate not in barred and (mask is None or int(mask[candidate // 32]) >> (candidate % 32) & 1):
                return candidate
        return token

    def _logprobs(self, token: int, top: int, wanted: tuple[int, ...]) -> RowLogprobs:
        alternatives = tuple((token + offset) % self._script.vocab_size for offset in range(top))
        return RowLogprobs(-0.5, alternatives, tuple(-0.5 - offset for offset in range(top)), tuple(-1.0 for _ in wanted))

    def _prompt_logprobs(self, plan: StepPlan) -> dict[int, tuple[RowLogprobs, ...]]:
        """One entry for each position from the greatest of the chunk's start, the first wanted and 1, to its end."""
        found = {}
        for index, first in plan.prompt_logprobs:
            row, start = int(plan.rows[index]), int(plan.prefix_lens[index])
            known, end = self._rows[row], start + int(plan.extend_lens[index])
            spec = known.start.sampling
            found[row] = tuple(
                self._logprobs(known.tokens[position], spec.top_logprobs, spec.logprob_ids) for position in range(max(start, first, 1), end)
            )
        return found
