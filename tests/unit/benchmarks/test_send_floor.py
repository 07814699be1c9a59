"""The floor beside the gateway's cost of a token."""

from __future__ import annotations

from benchmarks.send_floor import send_us


def test_a_send_has_a_cost_at_any_number_of_connections() -> None:
    assert 0 < send_us(1) < 1e6
    assert 0 < send_us(40) < 1e6
