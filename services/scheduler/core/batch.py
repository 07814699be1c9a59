"""The running choices as columns, so that a decode step costs array operations and no loop."""

from __future__ import annotations

import numpy as np

from services.scheduler.core.choice import Choice
from services.scheduler.core.plan import IntArray


class Batch:
    """Columns are indexed by row. `tokens[row]` holds prompt and output; `scheduled[row]` counts the tokens whose
    key/value is computed or in flight; `in_flight[row]` counts sampled tokens whose ids are not known yet.

    `rows` lists the rows that decode, in order of admission; a row still in prefill has a choice but is not listed.
    """

    def __init__(self, max_rows: int, context_length: int) -> None:
        size = max_rows + 1
        self.choices: list[Choice | None] = [None] * size
        self._rows: IntArray = np.empty(0, np.int32)
        self._joining: list[int] = []  # to be added to the rows when they are next looked at
        self.tokens = np.zeros((size, context_length + 1), np.int32)
        self.handles = np.zeros(size, np.int64)
        self.generation = np.zeros(size, np.int64)  # tells a row's present user from former ones
        self.prompt_len = np.zeros(size, np.int32)
        self.out_len = np.zeros(size, np.int32)
        self.emitted = np.zeros(size, np.int32)
        self.scheduled = np.zeros(size, np.int32)
        self.in_flight = np.zeros(size, np.int32)
        self.max_new = np.zeros(size, np.int32)
        self.min_new = np.zeros(size, np.int32)
        self.interval = np.ones(size, np.int32)
        self.certain = np.zeros(size, np.bool_)
        self.obeys_eos = np.zeros(size, np.bool_)
        self.watched = np.zeros(size, np.bool_)  # stop text, own stop ids or a grammar: looked at one by one
        self.constrained = np.zeros(size, np.bool_)
        self.logprobs = np.zeros(size, np.bool_)
        self.held = np.zeros(size, np.bool_)  # waits for the token in flight, to jump forward from it

    def __len__(self) -> int:
        return int(self._rows.size) + len(self._joining)

    @property
    def rows(self) -> IntArray:
        """[B] rows that decode; not to be written to."""
        if self._joining:
            self._rows = np.concatenate((self._rows, np.array(self._joining, np.int32)))
            self._joining.clear()
        return self._rows

    def choice(self, row: int) -> Choice:
        found = self.choices[row]
        assert found is not None, f"row {row} has no choice"
        return found

    def place(self, choice: Choice, row: int, cached: int) -> None:
        """Give `row` to a choice of which `cached` tokens are in the cache."""
        choice.row = row
        stops = choice.request.stops
        self.choices[row] = choice
        self.tokens[row, : choice.fill.size] = choice.fill
        self.handles[row] = choice.handle
        self.prompt_len[row] = choice.prompt_len
        self.out_len[row] = choice.out_len
        self.emitted[row] = choice.out_len
        self.scheduled[row] = cached
        self.in_flight[row] = 0
        self.max_new[row] = choice.max_new
        self.min_new[row] = stops.min_new_tokens
        self.interval[row] = max(choice.request.stream_interval, 1)
        self.certain[row] = choice.is_certain
        self.obeys_eos[row] = not stops.ignore_eos
        self.constrained[row] = choice.grammar is not None
        self.watched[row] = choice.matcher is not None or choice.grammar is not None or bool(stops.token_ids)
        self.logprobs[row] = choice.sampling.logprobs
        self.held[row] = False

    def join(self, row: int) -> None:
        """The row's prefill is planned to its end: it decodes from the next step on."""
        self._joining.append(row)

    def vacate(self, row: int) -> Choice:
        """Take the row from its choice, whose `fill` and `out_len` become exact again."""
        choice = self.choice(row)
        choice.out_len = int(self.out_len[row])
        choice.fill = self.known(row).copy()
        choice.row = 0
        self.choices[row] = None
        self.generation[row] += 1
        rows = self.rows
        self._rows = rows[rows != row]
        return choice

    def known(self, row: int) -> IntArray:
        """Prompt and output of a row, as a view."""
        return self.tokens[row, : self.prompt_len[row] + self.out_len[row]]

    def computed(self, row: int) -> IntArray:
        """The known tokens whose key/value is in the cache or will be before anything else runs, as a view."""
        return self.known(row)[: self.scheduled[row]]

    def decodable(self) -> IntArray:
        """Running rows that want another token, those in flight counted."""
        rows = self.rows
        wanting = (self.out_len[rows] + self.in_flight[rows] < self.max_new[rows]) & ~self.held[rows]
        return rows if bool(wanting.all()) else np.compress(wanting, rows)

    def remaining(self, clip: int) -> IntArray:
        """Tokens each running row may still produce, at most `clip`."""
        rows = self.rows
        remaining: IntArray = np.clip(self.max_new[rows] - self.out_len[rows] - self.in_flight[rows], 0, clip)
        return remaining

    def next_ends(self, rows: IntArray) -> IntArray:
        """Tokens of each row that are computed after its next decode step: one more, or all that is known if that is more."""
        ends: IntArray = np.maximum(self.scheduled[rows] + 1, self.prompt_len[rows] + self.out_len[rows])
        return ends

    def next_inputs(self, rows: IntArray) -> IntArray:
        """Id of each row's next token to compute, or minus the row where the engine has not told it yet."""
        position = self.scheduled[rows]
        ids = self.tokens[rows, position]
        return np.where(position < self.prompt_len[rows] + self.out_len[rows], ids, -rows).astype(np.int32, copy=False)
