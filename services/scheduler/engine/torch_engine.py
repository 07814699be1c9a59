"""The engine over tensors: request table, forward pass, sampler."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from services.scheduler.core.plan import IntArray, RowLogprobs, RowStart, StepPlan, StepResult
from services.scheduler.engine.forward_batch import ForwardBatch, from_plan, split, token_positions
from services.scheduler.engine.interface import EngineInfo
from services.scheduler.engine.row_state import RowState
from services.scheduler.engine.runner import ForwardRunner
from services.scheduler.engine.sampler import Sampler
from services.scheduler.logit_processors.registry import NO_PROCESSORS, LogitProcessors

MOST_LOGITS_ROWS = 256  # rows of [vocab] float32 alive at once; more are computed piece by piece


@dataclass(slots=True)
class _Launched:
    """A step between `launch` and `sample`."""

    plan: StepPlan
    sampled_logits: npt.NDArray[np.float32]  # [S, vocab]
    prompt_logprobs: dict[int, tuple[RowLogprobs, ...]]
    began_ns: int


class TorchEngine:
    """Executes plans in the caller's thread; a step is finished when `sample` returns."""

    def __init__(self, info: EngineInfo, runner: ForwardRunner, processors: LogitProcessors = NO_PROCESSORS) -> None:
        self._info = info
        self._runner = runner
        self._processors = processors
        self._sampler = Sampler(info.vocab_size)
        self._table = np.zeros((info.max_rows + 1, info.context_length), np.int32)
        self._table_tensor = torch.from_numpy(self._table)
        self._states: dict[int, RowState] = {}
        self._last_ids = np.zeros(info.max_rows + 1, np.int32)  # sampled last, by row; fills placeholders
        self._launched: _Launched | None = None
        self._results: deque[StepResult] = deque()

    @property
    def info(self) -> EngineInfo:
        return self._info

    def launch(self, plan: StepPlan) -> None:
        began = time.monotonic_ns()
        for row in plan.released_rows:
            self._states.pop(row, None)
        for start in plan.row_starts:
            self._start(start)
        for write in plan.table_writes:
            self._table[write.row, write.start : write.start + len(write.slots)] = write.slots
        self._table[np.repeat(plan.rows, plan.extend_lens), token_positions(plan.prefix_lens, plan.extend_lens)] = plan.out_slots
        if plan.rows.size == 0:
            empty = np.empty((0, self._info.vocab_size), np.float32)
            self._launched = _Launched(plan, empty, {}, began)
            return
        last_tokens = np.cumsum(plan.extend_lens, dtype=np.int32) - 1
        if plan.prompt_logprobs:
            logits, prompt_logprobs = self._forward_with_prompt_logprobs(plan, last_tokens)
        else:
            batch = from_plan(plan, self._resolved_ids(plan), last_tokens[plan.sampled])
            logits, prompt_logprobs = self._forward(batch), {}
        self._launched = _Launched(plan, logits, prompt_logprobs, began)

    def sample(self, masks: npt.NDArray[np.int32] | None) -> None:
        step = self._launched
        if step is None:
            raise RuntimeError("sample() without launch()")
        self._launched = None
        rows = step.plan.rows[step.plan.sampled]
        states = [self._states[row] for row in rows.tolist()]
        if not states:
            self._results.append(self._result(step, np.empty(0, np.int32), (), {}, {}))
            return
        for row, ids in step.plan.given_ids():
            for token in ids:
                self._states[row].accept(token)
        sampled = self._sampler.sample(step.sampled_logits, states, masks)
        self._last_ids[rows] = sampled.token_ids
        invalid = tuple(int(rows[index]) for index in sampled.invalid)
        failed = {int(rows[index]): why for index, why in sampled.failed.items()}
        logprobs = {int(rows[index]): value for index, value in sampled.logprobs.items()}
        self._results.append(self._result(step, sampled.token_ids, invalid, failed, logprobs))

    def collect(self) -> StepResult:
        return self._results.popleft()

    def slot_digests(self, slots: IntArray) -> npt.NDArray[np.uint64]:
        """As the runner's: what the canary compares."""
        return self._runner.slot_digests(slots)

    def close(self) -> None:
        self._states.clear()
        self._runner.close()

    def _start(self, start: RowStart) -> None:
        self._states[start.row] = RowState(start, self._processors.of_row(start, self._info.vocab_size))
        if len(start.output_ids):
            self._last_ids[start.row] = start.output_ids[-1]

    def _resolved_ids(self, plan: StepPlan) -> IntArray:
        """Input ids with placeholders (-row) replaced by what was sampled for that row last."""
        ids = plan.input_ids
        if plan.mode.name == "EXTEND" or not (ids < 0).any():
            return ids
        return np.where(ids < 0, self._last_ids[np.maximum(-ids, 0)], ids).astype(np.int32)

    def _forward(self, batch: ForwardBatch) -> npt.NDArray[np.float32]:
        logits = self._runner.forward(batch, self._table_tensor)
        array: npt.NDArray[np.float32] = logits.cpu().numpy()
        return array

    def _forward_with_prompt_logprobs(
        self, plan: StepPlan, last_tokens: IntArray
    ) -> tuple[npt.NDArray[np.float32], dict[int, tuple[RowLogprobs, ...]]]:
        """The pass in pieces, keeping of its many logits rows only those to sample from."""
        wanted = dict(plan.prompt_logprobs)
        need = np.zeros(plan.input_ids.size, np.bool_)
        need[last_tokens[plan.sampled]] = True
        for index, first in wanted.items():
            start = int(last_tokens[index]) - int(plan.extend_lens[index]) + 1
            skip = max(0, first - 1 - int(plan.prefix_lens[index]))
            need[start + skip : int(last_tokens[index]) + 1] = True
        ids = self._resolved_ids(plan)
        batch = from_plan(plan, ids, np.flatnonzero(need).astype(np.int32))
        collector = _PromptLogprobs(self._sampler, plan, wanted, self._states)
        sampled: list[npt.NDArray[np.float32]] = []
        done = 0
        for piece in split(batch, MOST_LOGITS_ROWS):
            logits = self._forward(piece)
            flat = batch.logits_index[done : done + piece.logits_index.size]
            done += piece.logits_index.size
            collector.take(flat, logits)
            sampled.append(logits[np.isin(flat, last_tokens[plan.sampled])])
        return np.concatenate(sampled), collector.finish()

    def _result(
        self, step: _Launched, ids: IntArray, invalid: tuple[int, ...], failed: dict[int, str], logprobs: dict[int, RowLogprobs]
    ) -> StepResult:
        return StepResult(
            step_id=step.plan.step_id,
            token_ids=ids,
            invalid=invalid,
            failed=failed,
            logprobs=logprobs,
            prompt_logprobs=step.prompt_logprobs,
            device_ns=time.monotonic_ns() - step.began_ns,
        )


class _PromptLogprobs:
    """Turns logits of prompt tokens into log-probabilities of the tokens that follow them.

    A chunk yields one entry for each position from the greatest of its start, the first wanted position and 1, to its
    end. The logits of a chunk's last token belong to the next chunk's first one; they wait in the row's state.
    """

    def __init__(self, sampler: Sampler, plan: StepPlan, wanted: dict[int, int], states: dict[int, RowState]) -> None:
        self._sampler = sampler
        self._plan = plan
        self._ends = np.cumsum(plan.extend_lens)
        self._states = states
        self._found: dict[int, list[RowLogprobs]] = {}
        for index, first in wanted.items():
            row, prefix = int(plan.rows[index]), int(plan.prefix_lens[index])
            self._found[index] = []
            carried, states[row].last_prompt_logits = states[row].last_prompt_logits, None
            if prefix < max(first, 1):
                continue
            if carried is not None:
                self._add(index, carried, int(self._ends[index] - plan.extend_lens[index]))
            else:  # the token before was taken from the cache, without logits
                self._found[index].append(RowLogprobs(chosen=math.nan))

    def take(self, flat: IntArray, logits: npt.NDArray[np.float32]) -> None:
        """Take logits [len(flat), vocab] of the flat batch's tokens `flat`."""
        for at, row_logits in zip(flat.tolist(), logits, strict=True):
            index = int(self._ends.searchsorted(at, side="right"))
            if index not in self._found:
                continue
            if at + 1 < self._ends[index]:
                self._add(index, row_logits, at + 1)
            elif not self._plan.sampled[index]:
                self._states[int(self._plan.rows[index])].last_prompt_logits = row_logits.copy()

    def finish(self) -> dict[int, tuple[RowLogprobs, ...]]:
        return {int(self._plan.rows[index]): tuple(values) for index, values in self._found.items()}

    def _add(self, index: int, logits: npt.NDArray[np.float32], token_at: int) -> None:
        state = self._states[int(self._plan.rows[index])]
        self._found[index].append(self._sampler.prompt_logprobs(logits, state, int(self._plan.input_ids[token_at])))
