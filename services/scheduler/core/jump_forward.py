"""Jump-forward: what a grammar leaves no choice about is written without a decode step for each token.

    a token is sampled ──► its grammar says what must follow ──► that is output at once
                                                                 ──► the next step computes the token and all that follows it

The model sees the same tokens as without: where the grammar forces text, the masks allow nothing but its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.scheduler.core import chunk_size
from services.scheduler.core.choice import Choice
from services.scheduler.core.plan import IntArray
from services.scheduler.core.state import State
from services.scheduler.core.stops import Stop, StopRules

_MOST = 64  # tokens of one choice in one step; a longer span takes several
_MOST_IN_ALL = 512  # tokens of all choices in one step
_WORTH_A_WAIT = 3  # tokens: under overlap a jump costs the choice two steps, its last token being on the way already


def forced_ids(choice: Choice) -> Sequence[int]:
    """Ids that come next in a constrained choice; none that could end it, which may have to come later than here."""
    grammar = choice.grammar
    forced: Sequence[int] = grammar.forced_ids() if grammar is not None else ()
    return forced if forced and forced[0] not in choice.stop_ids else ()


def jump(state: State, rules: StopRules, rows: IntArray, stops: list[tuple[int, Stop]]) -> list[int]:
    """Write what is forced behind the tokens that `rows` just got; returns the rows that got more, and adds to `stops` those
    that end with it. What does not fit into one step besides the others stays to be sampled.

    A choice whose log-probabilities are wanted has each of its tokens computed.
    """
    batch = state.batch
    if state.config.disable_jump_forward or not batch.constrained[rows].any():
        return []
    room = min(chunk_size.room(state, len(batch)), _MOST_IN_ALL)
    ended = {row for row, _ in stops}
    jumped = []
    for row in rows[batch.constrained[rows] & ~batch.logprobs[rows]].tolist():
        if row in ended:
            continue
        choice = batch.choice(row)
        batch.held[row] = bool(batch.in_flight[row]) and min(len(forced_ids(choice)), room) >= _WORTH_A_WAIT
        if not batch.in_flight[row]:
            written, stop = _write(state, rules, choice, min(room, _MOST))
            room -= written
            if written:
                jumped.append(row)
            if stop is not None:
                stops.append((row, stop))
    return jumped


def _write(state: State, rules: StopRules, choice: Choice, most: int) -> tuple[int, Stop | None]:
    """Write up to `most` forced tokens behind the output; how many there were, and whether the output ends with the last."""
    batch, row = state.batch, choice.row
    first = end = int(batch.out_len[row])
    stop: Stop | None = None
    while stop is None and end - first < most and (following := forced_ids(choice)):
        token = following[0]
        batch.tokens[row, choice.prompt_len + end] = token
        end += 1
        stop = rules.after_token(choice, token, end)
    batch.out_len[row] = end
    state.counters.generated_tokens += end - first
    state.counters.jumped_tokens += end - first
    return end - first, stop
