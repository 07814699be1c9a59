"""The state machine: every signal from every state."""

from __future__ import annotations

import pytest

from gateway.workers.state import Signals, WorkerState, derive

PENDING, READY, NOT_READY, DRAINING, FAILED = WorkerState


def state(signals: Signals) -> WorkerState:
    return derive(signals, failure_threshold=3)[0]


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        (Signals(), PENDING),
        (Signals(serving=True), PENDING),
        (Signals(failures=2), PENDING),
        (Signals(failures=3), FAILED),
        (Signals(session=True, ever_open=True), READY),
        (Signals(session=True, ever_open=True, serving=True), READY),
        (Signals(session=True, ever_open=True, serving=False), NOT_READY),
        (Signals(session=True, ever_open=True, failures=9), READY),
        (Signals(session=True, ever_open=True, leaving="bye"), DRAINING),
        (Signals(ever_open=True), NOT_READY),
        (Signals(ever_open=True, serving=True), NOT_READY),
        (Signals(ever_open=True, failures=3), FAILED),
        (Signals(serving=True, incompatible=True), FAILED),
        (Signals(drained="admin"), DRAINING),
        (Signals(session=True, ever_open=True, serving=True, drained="admin"), DRAINING),
        (Signals(failures=3, drained="admin"), DRAINING),
    ],
)
def test_states_follow_from_signals(signals: Signals, expected: WorkerState) -> None:
    assert state(signals) is expected


def test_a_life() -> None:
    """Start, serve, drain by signal, exit, stay away, come back."""
    life, signals = [], Signals()

    def note() -> None:
        life.append(state(signals))

    note()
    signals.opened()
    note()
    signals.leaving = "the worker drains"
    note()
    signals.lost("connection reset")
    note()
    signals.failures = 3
    note()
    signals.opened()
    note()
    assert life == [PENDING, READY, DRAINING, NOT_READY, FAILED, READY]


def test_every_state_has_a_reason_for_people() -> None:
    assert derive(Signals(ever_open=True, last_error="connection reset"), 3) == (NOT_READY, "connection reset")
    assert derive(Signals(failures=3), 3) == (FAILED, "not reachable")
    assert derive(Signals(drained="drained by request"), 3)[1] == "drained by request"
