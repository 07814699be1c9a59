"""Collects what a turn has to say."""

from __future__ import annotations

from services.scheduler.core.batch import Batch
from services.scheduler.core.messages import Accepted, Final, PromptLogprobs, Started, TokenColumns, TurnOutput
from services.scheduler.core.plan import IntArray


class OutputBuilder:
    """Everything said since the last `take`."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.step_id = -1
        self.engine_ns = 0
        self.tokens = TokenColumns()
        self.accepted: list[Accepted] = []
        self.started: list[Started] = []
        self.prompt_logprobs: list[PromptLogprobs] = []
        self.finals: list[Final] = []

    def take(self) -> TurnOutput:
        output = TurnOutput(self.step_id, self.engine_ns, self.tokens, self.accepted, self.started, self.prompt_logprobs, self.finals)
        self._clear()
        return output

    def add_tokens(self, batch: Batch, rows: IntArray) -> None:
        """Say one new token of each row, which has no logprobs and nothing held back."""
        columns = self.tokens
        first = batch.emitted[rows]
        columns.handles.extend(batch.handles[rows].tolist())
        columns.first_positions.extend(first.tolist())
        columns.counts.extend([1] * rows.size)
        columns.token_ids.extend(batch.tokens[rows, batch.prompt_len[rows] + first].tolist())
        if columns.logprobs:
            columns.logprobs.extend([None] * rows.size)
        batch.emitted[rows] = first + 1

    def add_held_tokens(self, batch: Batch, row: int) -> None:
        """Say all tokens of a row that were not said yet, with their logprobs where asked."""
        choice = batch.choice(row)
        first, end = int(batch.emitted[row]), int(batch.out_len[row])
        if first == end:
            return
        columns = self.tokens
        prompt = int(batch.prompt_len[row])
        logprobs = choice.sampling.logprobs
        if logprobs and not columns.logprobs:
            columns.logprobs.extend([None] * len(columns.handles))
        columns.handles.append(choice.handle)
        columns.first_positions.append(first)
        columns.counts.append(end - first)
        columns.token_ids.extend(batch.tokens[row, prompt + first : prompt + end].tolist())
        if logprobs or columns.logprobs:
            columns.logprobs.append(tuple(choice.pending_logprobs) if logprobs else None)
        choice.pending_logprobs.clear()
        batch.emitted[row] = end
