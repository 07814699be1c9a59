"""What a request costs once, told apart from what its tokens cost."""

from __future__ import annotations

import pytest

from benchmarks.gateway import Result, fit


def test_two_lengths_give_both_costs() -> None:
    def result(tokens: int) -> Result:
        return Result("ours", 8, (1200 + 13 * tokens) / tokens, 0.0, 0.0, 0)

    line = fit(result(100), 100, result(600), 600)
    assert (line.name, line.streams) == ("ours", 8)
    assert line.us_per_request == pytest.approx(1200)
    assert line.us_per_token == pytest.approx(13)
