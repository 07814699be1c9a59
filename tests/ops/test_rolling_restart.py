"""Every component is replaced under load and no request notices."""

from __future__ import annotations

from pathlib import Path

from tests.ops.rolling_restart import play, start


async def test_no_request_fails_while_everything_is_replaced(tmp_path: Path) -> None:
    with start(tmp_path).running() as release:
        load = await play(release)
        assert load.failures == []
        assert len(load.answers) > 8
        assert [pod.codes for pod in release.all()] == [[0]] * 8
