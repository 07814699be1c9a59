"""Every line on the terminal tells when: the services' own lines do, the launcher's are given the time."""

from __future__ import annotations

import re

import pytest

from headrace.launcher import announce


def test_own_lines_carry_the_time_and_childrens_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    announce.own("worker-0 ended (signal SIGKILL); starting it again in 0.25 s")
    announce.say("worker-0", "2026-01-02T03:04:05.678Z info    scheduler ready")
    own, child = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\[headrace\] \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z worker-0 ended .*", own)
    assert child == "[worker-0] 2026-01-02T03:04:05.678Z info    scheduler ready"
