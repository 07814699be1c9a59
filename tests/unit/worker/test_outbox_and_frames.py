"""However turns are merged and split into frames, a reader gets the same words in the promised order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common.grpc_options import MAX_FRAME_BYTES
from services.scheduler.convert.frames import HANDLE_BITS, frames
from services.scheduler.core.messages import (
    Accepted,
    ErrorCode,
    ErrorInfo,
    Final,
    FinishReason,
    PromptLogprobs,
    Started,
    Timings,
    TokenColumns,
    TurnOutput,
    Usage,
)
from services.scheduler.core.plan import RowLogprobs
from services.scheduler.outbox import Outbox, portions

_ENTRY = RowLogprobs(-0.25, tuple(range(20)), tuple(-float(i) for i in range(20)), (-1.0, -2.0))


def _final(handle: int, end: int) -> Final:
    return Final(handle, FinishReason.LENGTH, end, Usage(3, end, 0), Timings(1, 2, 3, 4))


def _turns(rows: dict[int, int], per_turn: int, logprobs: set[int]) -> list[TurnOutput]:
    """Each handle is accepted, started, produces its tokens `per_turn` at a time, and ends. Token = position."""
    said = dict.fromkeys(rows, 0)
    turns = [TurnOutput(0, accepted=[Accepted(h, 0) for h in rows], started=[Started(h, 3, 0, 0) for h in rows])]
    while any(said[h] < rows[h] for h in rows):
        columns, finals = TokenColumns(), []
        wanting = [h for h in rows if said[h] < rows[h]]
        for handle in wanting:
            count = min(per_turn, rows[handle] - said[handle])
            columns.handles.append(handle)
            columns.first_positions.append(said[handle])
            columns.counts.append(count)
            columns.token_ids.extend(range(said[handle], said[handle] + count))
            if logprobs & set(wanting):
                columns.logprobs.append((_ENTRY,) * count if handle in logprobs else None)
            said[handle] += count
            if said[handle] == rows[handle]:
                finals.append(_final(handle, said[handle]))
        turns.append(TurnOutput(len(turns), 5, columns, finals=finals))
    return turns


def _read(messages: list[pb.FromWorker]) -> tuple[dict[int, list[int]], dict[int, int], list[str]]:
    """Tokens and number of logprob entries by handle, and all that was said in order; checks continuity and size."""
    ids: dict[int, list[int]] = {}
    entries: dict[int, int] = {}
    words: list[str] = []
    for frame in messages:
        assert frame.ByteSize() <= MAX_FRAME_BYTES
        words += [f"accepted {a.handle}" for a in frame.accepted] + [f"started {s.handle}" for s in frame.started]
        offset = 0
        for handle, first, count in zip(frame.step.handle, frame.step.first_position, frame.step.count, strict=True):
            held = ids.setdefault(handle, [])
            assert first == len(held)
            held.extend(frame.step.token_ids[offset : offset + count])
            offset += count
            words.append(f"step {handle}")
        for row, top in zip(frame.step.logprobs.row, frame.step.logprobs.top_count, strict=True):
            assert top == 20
            handle = frame.step.handle[row]
            entries[handle] = entries.get(handle, 0) + 1
        words += [f"final {f.handle}" for f in frame.final]
    return ids, entries, words


@settings(max_examples=60, deadline=None)
@given(
    rows=st.dictionaries(st.integers(0, 50), st.integers(1, 300), min_size=1, max_size=8),
    per_turn=st.integers(1, 8),
    asking=st.sets(st.integers(0, 50)),
    read_every=st.integers(1, 400),
)
def test_merging_and_splitting_lose_nothing(rows: dict[int, int], per_turn: int, asking: set[int], read_every: int) -> None:
    outbox, messages = Outbox(), []
    for index, turn in enumerate(_turns(rows, per_turn, asking)):
        outbox.add(turn)
        if index % read_every == 0 and (output := outbox.take()) is not None:
            messages += frames(output, {})
    if (output := outbox.take()) is not None:
        messages += frames(output, {})
    assert not outbox
    ids, entries, words = _read(messages)
    assert ids == {handle: list(range(count)) for handle, count in rows.items()}
    assert entries == {handle: rows[handle] for handle in rows if handle in asking}
    for handle in rows:
        mine = [word.split()[0] for word in words if word.split()[1] == str(handle)]
        assert mine[:2] == ["accepted", "started"]
        assert set(mine[2:-1]) == {"step"}
        assert mine[-1] == "final"


def test_only_turns_that_wait_are_merged() -> None:
    outbox = Outbox()
    turns = _turns({1: 10}, 1, set())
    outbox.add(turns[0])
    assert outbox.take() is turns[0]
    for turn in turns[1:4]:
        outbox.add(turn)
    assert outbox.merged_steps == 2


def test_long_prompt_logprobs_are_split_and_only_the_last_part_says_so() -> None:
    count = 6000
    part = PromptLogprobs(7, 1, np.arange(count, dtype=np.int32), (_ENTRY,) * count, True)
    messages = frames(TurnOutput(0, prompt_logprobs=[part]), {7: True})
    assert len(messages) > 1
    parts = [part for frame in messages for part in frame.prompt_logprobs]
    assert [p.last for p in parts] == [False] * (len(parts) - 1) + [True]
    position = 1
    for part_message in parts:
        assert part_message.first_position == position
        assert part_message.logprobs.scale == pb.LOGPROB_SCALE_TEMPERED
        position += len(part_message.token_ids)
    assert position == count + 1


def test_many_finals_with_long_messages_fit() -> None:
    error = ErrorInfo(ErrorCode.INTERNAL, "x" * 2000)
    finals = [Final(h, FinishReason.ERROR, 0, Usage(1, 0, 0), Timings(None, None, None, 1), error=error) for h in range(1000)]
    messages = frames(TurnOutput(0, finals=finals), {})
    assert sum(len(frame.final) for frame in messages) == 1000
    assert all(frame.ByteSize() <= MAX_FRAME_BYTES for frame in messages)


def test_portions_divide_a_turn_among_sessions() -> None:
    rows = {(session << HANDLE_BITS) | handle: 5 for session in (1, 2, 9) for handle in (0, 4)}
    whole: dict[int, list[pb.FromWorker]] = {}
    for turn in _turns(rows, 2, {1 << HANDLE_BITS}):
        for session, portion in portions(turn, HANDLE_BITS).items():
            whole.setdefault(session, []).extend(frames(portion, {}))
    assert set(whole) == {1, 2, 9}
    for session, messages in whole.items():
        ids, entries, words = _read(messages)
        assert ids == {0: list(range(5)), 4: list(range(5))}
        assert entries == ({0: 5} if session == 1 else {})
        assert words.count("final 4") == 1


def test_errors_keep_code_field_and_flags() -> None:
    cases = {
        ErrorCode.INVALID_REQUEST: 3,
        ErrorCode.CONTEXT_LENGTH_EXCEEDED: 3,
        ErrorCode.OVERLOADED: 8,
        ErrorCode.UNAVAILABLE: 14,
        ErrorCode.DEADLINE_EXCEEDED: 4,
        ErrorCode.CANCELLED: 1,
        ErrorCode.INTERNAL: 13,
    }
    for code, number in cases.items():
        info = ErrorInfo(code, "why", "field", 250, safe_to_retry=True)
        final = Final(1, FinishReason.ERROR, 0, Usage(1, 0, 0), Timings(None, None, None, 1), error=info)
        (message,) = frames(TurnOutput(0, finals=[final]), {})[0].final
        error = message.error
        assert (error.code, error.field, error.retry_after_ms, error.safe_to_retry) == (number, "field", 250, True)
        assert error.reason == ("context_length_exceeded" if code is ErrorCode.CONTEXT_LENGTH_EXCEEDED else "")
