"""Builds plans by hand and runs them, as a scheduler would, without any of its policies."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from services.common.config import cache_dir, cpu_isa
from services.scheduler.core.plan import ForwardMode, RowStart, SamplingSpec, StepPlan, StepResult, TableWrite
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.engine.interface import Engine, EngineInfo
from services.scheduler.engine.native_runner import NativeRunner
from services.scheduler.engine.runner import ForwardRunner
from services.scheduler.engine.torch_engine import TorchEngine
from services.scheduler.engine.torch_runner import TorchRunner
from services.scheduler.kernels import dispatch
from services.scheduler.models.config import ModelConfig
from services.scheduler.weights.loader import load_weights, open_checkpoint

GREEDY = SamplingSpec(temperature=0.0)


def engine_info(config: ModelConfig, runner: ForwardRunner, num_slots: int, context: int, max_rows: int = 16) -> EngineInfo:
    return EngineInfo(
        model_name="test",
        model_digest="test",
        vocab_size=config.vocab_size,
        context_length=context,
        num_slots=num_slots,
        max_rows=max_rows,
        page_size=1,
        bytes_per_token=config.kv_bytes_per_token(4),
        dtype="float32",
        quantization="none",
        attention_backend=runner.attention_backend,
        batch_invariant=runner.batch_invariant,
        eos_token_ids=config.eos_token_ids,
    )


def torch_engine(folder: Path, num_slots: int = 1024, context: int = 256, dtype: torch.dtype = torch.float32) -> TorchEngine:
    """A float32 engine over the checkpoint in `folder`, on the reference path."""
    checkpoint = open_checkpoint(folder)
    runner = TorchRunner(
        checkpoint.config,
        load_weights(checkpoint, dtype),
        attention_backend="torch_native",
        dtype=dtype,
        device=torch.device("cpu"),
        num_slots=num_slots,
        context_length=context,
    )
    return TorchEngine(engine_info(checkpoint.config, runner, num_slots, context), runner)


def native_engine(
    folder: Path,
    num_slots: int = 1024,
    context: int = 256,
    *,
    dtype: torch.dtype = torch.float32,
    quantization: str = "none",
    num_threads: int = 1,
    max_rows: int = 16,
) -> TorchEngine:
    """An engine over the checkpoint in `folder`, on our own kernels."""
    dispatch.load(cache_dir())
    checkpoint = open_checkpoint(folder)
    runner = NativeRunner(
        checkpoint.config,
        load_weights(checkpoint, dtype),
        dtype=dtype,
        quantization=quantization,
        num_threads=num_threads,
        num_slots=num_slots,
        context_length=context,
        isa=cpu_isa(),
    )
    return TorchEngine(engine_info(checkpoint.config, runner, num_slots, context, max_rows), runner)


def answers_of(scheduler: Scheduler) -> dict[int, list[int]]:
    """Turn until all is done; the ids that each handle got."""
    answers: dict[int, list[int]] = defaultdict(list)
    while scheduler.has_work:
        columns, at = scheduler.turn().tokens, 0
        for handle, count in zip(columns.handles, columns.counts, strict=True):
            answers[handle] += columns.token_ids[at : at + count]
            at += count
    return answers


@dataclass
class Row:
    """One running sequence: all ids so far, of which the first `cached` have key and value in `slots`."""

    row: int
    ids: list[int]
    prompt_len: int
    spec: SamplingSpec
    slots: list[int] = field(default_factory=list)
    started: bool = False
    prompt_logprobs_from: int | None = None
    output: list[int] = field(default_factory=list)

    @property
    def cached(self) -> int:
        return len(self.slots)


class Driver:
    """Hands out rows and slots (scattered on purpose) and turns lists of rows into plans."""

    def __init__(self, engine: Engine, seed: int = 0) -> None:
        self.engine = engine
        self._steps = itertools.count()
        self._rows = itertools.count(1)
        order = np.random.default_rng(seed).permutation(engine.info.num_slots) + 1
        self._free = [int(slot) for slot in order]

    def open(self, prompt: list[int], spec: SamplingSpec = GREEDY, shared: Row | None = None, reuse: int = 0) -> Row:
        """A new sequence; its first `reuse` tokens take the slots of `shared`."""
        slots = list(shared.slots[:reuse]) if shared else []
        return Row(next(self._rows), list(prompt), len(prompt), spec, slots)

    def step(self, *chunks: tuple[Row, int], masks: np.ndarray | None = None) -> StepResult:
        """One pass: each row advances by the number of tokens given; rows that reach their end are sampled."""
        plan = self._plan(chunks)
        self.engine.launch(plan)
        self.engine.sample(masks)
        result = self.engine.collect()
        for row, token in zip(plan.rows[plan.sampled].tolist(), result.token_ids.tolist(), strict=True):
            owner = next(r for r, _ in chunks if r.row == row)
            owner.ids.append(token)
            owner.output.append(token)
        return result

    def generate(self, rows: list[Row], count: int) -> None:
        """Prefill what is missing of every row in one pass, then decode together."""
        self.step(*((row, len(row.ids) - row.cached) for row in rows))
        for _ in range(count - 1):
            self.step(*((row, 1) for row in rows))

    def _plan(self, chunks: tuple[tuple[Row, int], ...]) -> StepPlan:
        starts, writes, new_slots = [], [], []
        prefix = [row.cached for row, _ in chunks]
        for row, count in chunks:
            first_write = 0 if not row.started else row.cached
            slots = [self._free.pop() for _ in range(count)]
            row.slots.extend(slots)
            new_slots.extend(slots)
            writes.append(TableWrite(row.row, first_write, np.array(row.slots[first_write:], np.int32)))
            if not row.started:
                prompt = np.array(row.ids[: row.prompt_len], np.int32)
                starts.append(RowStart(row.row, row.spec, prompt, np.array(row.output, np.int32)))
                row.started = True
        return StepPlan(
            step_id=next(self._steps),
            mode=ForwardMode.DECODE if all(count == 1 for _, count in chunks) else ForwardMode.EXTEND,
            rows=np.array([row.row for row, _ in chunks], np.int32),
            extend_lens=np.array([count for _, count in chunks], np.int32),
            prefix_lens=np.array(prefix, np.int32),
            input_ids=np.array([i for (row, count), p in zip(chunks, prefix, strict=True) for i in row.ids[p : p + count]], np.int32),
            out_slots=np.array(new_slots, np.int32),
            sampled=np.array([row.cached == len(row.ids) for row, _ in chunks]),
            row_starts=tuple(starts),
            table_writes=tuple(writes),
            prompt_logprobs=tuple(
                (index, row.prompt_logprobs_from)
                for index, (row, _) in enumerate(chunks)
                if row.prompt_logprobs_from is not None and prefix[index] < row.prompt_len
            ),
        )
