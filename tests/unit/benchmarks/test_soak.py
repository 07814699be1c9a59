"""The soak's own books: what counts as lost, what counts as a leak."""

from __future__ import annotations

import json
import os
from collections import Counter

import psutil
import pytest

from benchmarks.soak import Before, Verdict, of_process
from benchmarks.soak_load import Ask, Asks, Tally, judge_whole
from benchmarks.soak_watch import Sample, Watched, parse_metrics, rss_slope, slope
from headrace.bench.sse import EventReader


def _stream(finish: str | None, tokens: int, *, done: bool = True) -> EventReader:
    reader = EventReader(lambda event: True)
    choice = {"text": "x", "finish_reason": finish}
    usage = {"choices": [], "usage": {"completion_tokens": tokens}}
    body = f"data: {json.dumps({'choices': [choice], 'usage': None})}\n\ndata: {json.dumps(usage)}\n\n"
    reader.feed((body + ("data: [DONE]\n\n" if done else "")).encode(), 0.0)
    return reader


@pytest.mark.parametrize(
    ("reader", "how"),
    [
        (_stream("stop", 40), "complete"),
        (_stream("stop", 39), "wrong end"),
        (_stream("length", 40), "wrong end"),
        (_stream(None, 40), "wrong end"),
        (_stream("stop", 40, done=False), "wrong end"),
    ],
)
def test_only_a_whole_answer_of_the_length_it_was_told_to_have_is_complete(reader: EventReader, how: str) -> None:
    tally = Tally(sent=1)
    judge_whole(reader, Ask({}, 40, None), tally)
    assert tally.ended == Counter({how: 1})
    assert tally.lost == (how != "complete")


def test_a_request_without_any_end_is_lost() -> None:
    tally = Tally(sent=4)
    for how in ("complete", "refused", "left"):
        tally.note(how)
    assert tally.lost == 1


def test_answers_are_ten_to_sixty_percent_of_what_they_may_be_and_end_by_force() -> None:
    asks = Asks("m", 2, 512, seed=5)
    drawn = [asks.next() for _ in range(400)]
    assert min(ask.length for ask in drawn) >= 51
    assert max(ask.length for ask in drawn) <= 308
    assert sum(ask.length for ask in drawn) / len(drawn) == pytest.approx(asks.mean_length, rel=0.1)
    assert all(ask.body["min_tokens"] == ask.length - 1 and ask.body["logit_bias"] == {"2": 100} for ask in drawn)


def test_the_slope_is_that_of_the_line_and_noise_does_not_bend_it() -> None:
    assert slope([(0, 5.0), (1, 7.0), (2, 9.0)]) == pytest.approx(2.0)
    assert slope([(3, 1.0)]) == 0.0
    noisy = [Sample(10.0 * i, 100 + 0.05 * i + (-1) ** i, 9, 9, None) for i in range(120)]
    assert rss_slope(noisy) == pytest.approx(0.3, abs=0.05)


def test_a_process_that_keeps_growing_or_holds_descriptors_is_bad() -> None:
    own = psutil.Process(os.getpid())
    held = own.num_fds()
    watched = Watched("me", own, None, [Sample(10.0 * i, 100 + i, held, 1, None) for i in range(60)])
    assert _good(of_process(watched, Before({"me": held}, {"me": None}), 100.0)) == [False, True]
    watched.samples = [Sample(10.0 * i, 100, held, 1, None) for i in range(60)]
    assert _good(of_process(watched, Before({"me": held - 3}, {"me": None}), 100.0)) == [True, False]


def test_series_of_one_family_add_up() -> None:
    text = '# TYPE a counter\na{x="1"} 2\na{x="2"} 3.5\nb 1e3\n'
    assert parse_metrics(text) == {"a": 5.5, "b": 1000.0}


def _good(verdicts: list[Verdict]) -> list[bool]:
    return [verdict.good for verdict in verdicts]
