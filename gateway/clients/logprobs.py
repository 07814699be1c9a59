"""Columns of logprobs to one value per token."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from gateway.flight.choice import Choice
from gateway.flight.flight import Flight
from gateway.flight.result import TokenLogprob
from protos.scheduler.v1 import scheduler_pb2 as pb


def _entries(columns: pb.Logprobs) -> Iterator[tuple[float, list[tuple[int, float]], list[float]]]:
    """(chosen, top, values of the asked ids) of each entry."""
    tops, ids = columns.top_count, columns.id_count
    at_top = at_id = 0
    for entry, chosen in enumerate(columns.chosen):
        top: list[tuple[int, float]] = []
        if entry < len(tops):
            end = at_top + tops[entry]
            top = list(zip(columns.top_ids[at_top:end], columns.top[at_top:end], strict=True))
            at_top = end
        asked: list[float] = []
        if entry < len(ids):
            end = at_id + ids[entry]
            asked = list(columns.ids[at_id:end])
            at_id = end
        yield chosen, top, asked


def add_output_logprobs(step: pb.Step, rows: Mapping[int, Choice]) -> None:
    """Append a step's logprobs to their choices; values of tokens received before are skipped."""
    starts = [0]
    for count in step.count:
        starts.append(starts[-1] + count)
    within: dict[int, int] = {}
    for row, (chosen, top, asked) in zip(step.logprobs.row, _entries(step.logprobs), strict=False):
        place = within.get(row, 0)
        within[row] = place + 1
        choice = rows.get(step.handle[row])
        if choice is not None and step.first_position[row] + place == len(choice.logprobs):
            token = step.token_ids[starts[row] + place]
            choice.logprobs.append(TokenLogprob(token, chosen, top, asked))


def add_prompt_logprobs(flight: Flight, part: pb.PromptLogprobs) -> None:
    """Append a part of the prompt's logprobs; the prompt's first token has none. Parts seen before are skipped."""
    start = flight.spec.logprobs.prompt_from if flight.spec.logprobs is not None else None
    if start is None:
        return
    for place, (token, (chosen, top, asked)) in enumerate(zip(part.token_ids, _entries(part.logprobs), strict=False)):
        position = part.first_position + place
        for missing in range(start + len(flight.prompt_logprobs), min(position, len(flight.prompt_ids))):
            flight.prompt_logprobs.append(TokenLogprob(flight.prompt_ids[missing], None, [], []))
        if position - start == len(flight.prompt_logprobs):
            value = None if position == 0 or math.isnan(chosen) else chosen
            flight.prompt_logprobs.append(TokenLogprob(token, value, top if value is not None else [], asked))
