"""A scheduler over the scripted engine, driven turn by turn with everything it says collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from services.scheduler.core.log_lines import LogLine
from services.scheduler.core.messages import ChoiceSpec, Final, PromptLogprobs, Started, StopSpec, SubmitRequest
from services.scheduler.core.plan import IntArray, RowLogprobs, SamplingSpec, StepPlan, StepResult
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.engine.script import Script
from services.scheduler.engine.scripted import ScriptedEngine

NO_EOS = Script(vocab_size=50_000, context_length=1024, eos_token_ids=())


class RecordingEngine(ScriptedEngine):
    """A scripted engine that checks every slot it reads and keeps the plans."""

    def __init__(self, script: Script, *, verify: bool, **sizes: int) -> None:
        super().__init__(script, verify=verify, **sizes)
        self.plans: list[StepPlan] = []
        self.trace: list[str] = []

    def launch(self, plan: StepPlan) -> None:
        super().launch(plan)
        self.plans.append(plan)
        self.trace.append(f"launch {plan.step_id}")

    def collect(self) -> StepResult:
        result = super().collect()
        self.trace.append(f"collect {result.step_id}")
        return result


@dataclass
class Said:
    """Everything said about one handle."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[RowLogprobs] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # tokens per output row
    first: int | None = None
    accepted: int = 0
    started: list[Started] = field(default_factory=list)
    prompt_logprobs: list[PromptLogprobs] = field(default_factory=list)
    final: Final | None = None


class Driver:
    """`clock_ns` stands still unless a test moves it."""

    def __init__(
        self, script: Script = NO_EOS, *, pool: int = 4096, rows: int = 64, page: int = 1, check: bool = True, **config: Any
    ) -> None:
        self.engine = RecordingEngine(script, verify=check, num_slots=pool, max_rows=rows, page_size=page)
        self.lines: list[LogLine] = []
        self.clock_ns = 1
        self.check = check
        self.scheduler = Scheduler(SchedulerConfig(**config), self.engine, clock=lambda: self.clock_ns, log=self.lines.append)
        self.said: dict[int, Said] = {}
        self._next_handle = 1

    def submit(self, prompt: Sequence[int] | IntArray, max_new: int = 16, *, handle: int | None = None, **fields: Any) -> int:
        """Submit one choice; returns its handle."""
        handle = self._next_handle if handle is None else handle
        self._next_handle = max(self._next_handle, handle) + 1
        spec = {key: fields.pop(key) for key in ("prior_output_ids", "seed", "index") if key in fields}
        stops = {key: fields.pop(key) for key in ("min_new_tokens", "token_ids", "ignore_eos") if key in fields}
        stops.setdefault("ignore_eos", True)
        self.scheduler.submit(
            SubmitRequest(
                request_id=f"r{handle}",
                prompt_ids=np.array(prompt, np.int32),
                choices=(ChoiceSpec(handle, **spec),),
                sampling=fields.pop("sampling", SamplingSpec(temperature=0.0)),
                stops=StopSpec(max_new_tokens=max_new, **stops),
                **fields,
            )
        )
        self.said.setdefault(handle, Said())
        return handle

    def turn(self) -> None:
        output = self.scheduler.turn()
        for accepted in output.accepted:
            self.said.setdefault(accepted.handle, Said()).accepted += 1
        for started in output.started:
            self.said[started.handle].started.append(started)
        for part in output.prompt_logprobs:
            self.said[part.handle].prompt_logprobs.append(part)
        columns, offset = output.tokens, 0
        for row, handle in enumerate(columns.handles):
            said, count = self.said[handle], columns.counts[row]
            assert said.final is None, "tokens after the final"
            if said.first is None:
                said.first = columns.first_positions[row]
            assert columns.first_positions[row] == said.first + len(said.tokens), "a gap or a repetition"
            said.tokens += columns.token_ids[offset : offset + count]
            said.rows.append(count)
            if columns.logprobs and columns.logprobs[row] is not None:
                said.logprobs += columns.logprobs[row] or ()
            offset += count
        assert offset == len(columns.token_ids)
        for final in output.finals:
            said = self.said.setdefault(final.handle, Said())
            assert said.final is None, "a second final"
            said.final = final
        if self.check:
            self.scheduler.check_integrity()

    def run(self, most: int = 20_000) -> None:
        """Turns until nothing is left."""
        for _ in range(most):
            if not self.scheduler.has_work:
                break
            self.turn()
        else:
            raise AssertionError("the scheduler does not come to an end")
        load = self.scheduler.load()
        assert load.kv_used_tokens == 0 and load.kv_free_tokens + load.kv_evictable_tokens == load.kv_total_tokens
        assert all(said.final is not None for said in self.said.values())

    def until_retracted(self) -> None:
        """Turns until the first retraction."""
        for _ in range(2000):
            if self.scheduler.counters.retractions:
                return
            self.turn()
        raise AssertionError("nothing was retracted")

    def tokens(self, handle: int) -> list[int]:
        return self.said[handle].tokens

    def final(self, handle: int) -> Final:
        final = self.said[handle].final
        assert final is not None
        return final


def prompt(length: int, first: int = 1, vocab: int = 50_000) -> IntArray:
    """A prompt that shares nothing with prompts of another `first`."""
    return ((np.arange(length, dtype=np.int64) * 31 + first * 7919) % vocab).astype(np.int32)
