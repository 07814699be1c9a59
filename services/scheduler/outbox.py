"""What waits to be sent on one Session. While the peer does not read, steps merge, so nothing here ever blocks the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.scheduler.core.messages import Accepted, Final, PromptLogprobs, Started, TokenColumns, TurnOutput
from services.scheduler.core.plan import RowLogprobs


@dataclass(slots=True)
class _Tokens:
    """Tokens of one handle, from output position `first` on."""

    first: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[RowLogprobs] | None = None


@dataclass(slots=True)
class _Merged:
    """Several turns as one: a row per handle."""

    step_id: int = -1
    engine_ns: int = 0
    tokens: dict[int, _Tokens] = field(default_factory=dict)
    accepted: list[Accepted] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    prompt_logprobs: list[PromptLogprobs] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)

    def add(self, output: TurnOutput) -> None:
        self.step_id = max(self.step_id, output.step_id)
        self.engine_ns += output.engine_ns
        self.accepted += output.accepted
        self.started += output.started
        self.prompt_logprobs += output.prompt_logprobs
        self.finals += output.finals
        columns, offset = output.tokens, 0
        for row, handle in enumerate(columns.handles):
            ids = columns.token_ids[offset : offset + columns.counts[row]]
            offset += len(ids)
            held = self.tokens.setdefault(handle, _Tokens(columns.first_positions[row]))
            held.ids += ids
            entries: Sequence[RowLogprobs] | None = columns.logprobs[row] if columns.logprobs else None
            if entries is None:
                continue
            if held.logprobs is None:
                held.logprobs = []
            held.logprobs.extend(entries)

    def output(self) -> TurnOutput:
        rows = self.tokens
        columns = TokenColumns(
            handles=list(rows),
            first_positions=[row.first for row in rows.values()],
            counts=[len(row.ids) for row in rows.values()],
            token_ids=[token for row in rows.values() for token in row.ids],
            logprobs=[tuple(row.logprobs) if row.logprobs else None for row in rows.values()]
            if any(row.logprobs for row in rows.values())
            else [],
        )
        return TurnOutput(self.step_id, self.engine_ns, columns, self.accepted, self.started, self.prompt_logprobs, self.finals)


class Outbox:
    """Takes turns, gives back one. `merged_steps` counts turns that shared a message with an earlier one."""

    def __init__(self) -> None:
        self._single: TurnOutput | None = None
        self._merged: _Merged | None = None
        self.merged_steps = 0

    def __bool__(self) -> bool:
        return self._single is not None or self._merged is not None

    def add(self, output: TurnOutput) -> None:
        """Queue one turn's output."""
        if self._merged is not None:
            self.merged_steps += 1
            self._merged.add(output)
        elif self._single is not None:
            self.merged_steps += 1
            self._merged, single, self._single = _Merged(), self._single, None
            self._merged.add(single)
            self._merged.add(output)
        else:
            self._single = output

    def take(self) -> TurnOutput | None:
        """Everything queued, as one turn; per handle nothing is lost and order is kept."""
        output = self._merged.output() if self._merged is not None else self._single
        self._single = self._merged = None
        return output


def portions(output: TurnOutput, handle_bits: int) -> dict[int, TurnOutput]:
    """`output` divided by the upper part of its handles: one portion per Session, keyed by it."""
    everyone = {handle >> handle_bits for handle in output.tokens.handles}
    for said in (output.accepted, output.started, output.prompt_logprobs, output.finals):
        everyone.update(item.handle >> handle_bits for item in said)
    if len(everyone) == 1:
        return {everyone.pop(): output}
    return {key: _portion(output, key, handle_bits) for key in everyone}


def _portion(output: TurnOutput, key: int, bits: int) -> TurnOutput:
    columns, mine = output.tokens, TokenColumns()
    offset = 0
    for row, handle in enumerate(columns.handles):
        count = columns.counts[row]
        if handle >> bits == key:
            mine.handles.append(handle)
            mine.first_positions.append(columns.first_positions[row])
            mine.counts.append(count)
            mine.token_ids.extend(columns.token_ids[offset : offset + count])
            if columns.logprobs:
                mine.logprobs.append(columns.logprobs[row])
        offset += count
    return TurnOutput(
        output.step_id,
        output.engine_ns,
        mine,
        [item for item in output.accepted if item.handle >> bits == key],
        [item for item in output.started if item.handle >> bits == key],
        [item for item in output.prompt_logprobs if item.handle >> bits == key],
        [item for item in output.finals if item.handle >> bits == key],
    )
