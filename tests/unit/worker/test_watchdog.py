"""What the watchdog does at which age, without waiting for real time."""

from __future__ import annotations

import pytest

from services.scheduler.watchdog import EXIT_STUCK, Watchdog


class _World:
    def __init__(self) -> None:
        self.age = 0.0
        self.events: list[str | int] = []

    def watchdog(self, timeout_s: float, soft_timeout_s: float | None) -> Watchdog:
        async def on_stuck() -> None:
            self.events.append("dead")

        return Watchdog(lambda: self.age, timeout_s=timeout_s, soft_timeout_s=soft_timeout_s, on_stuck=on_stuck, leave=self.events.append)


@pytest.fixture(autouse=True)
def dumps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr("faulthandler.dump_traceback", lambda **_: found.append("dump"))
    return found


async def test_a_soft_limit_dumps_once_per_stuck_step(dumps: list[str]) -> None:
    world = _World()
    watchdog = world.watchdog(100, 5)
    for age, expected in ((4, 0), (6, 1), (7, 1), (0, 1), (6, 2)):
        world.age = age
        await watchdog.check()
        assert len(dumps) == expected
    assert world.events == []


async def test_the_hard_limit_marks_the_process_dead_then_leaves(dumps: list[str]) -> None:
    world = _World()
    world.age = 11
    await world.watchdog(10, None).check()
    assert world.events == ["dead", EXIT_STUCK]
    assert dumps == ["dump"]


async def test_zero_turns_it_off() -> None:
    world = _World()
    world.age = 1e9
    await world.watchdog(0, None).check()
    await world.watchdog(0, None).run()
    assert world.events == []
