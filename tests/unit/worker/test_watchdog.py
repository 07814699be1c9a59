"""What the watchdog does at which age, without waiting for real time."""

from __future__ import annotations

import pytest

from services.scheduler.watchdog import EXIT_STUCK, Watchdog


class _World:
    def __init__(self) -> None:
        self.age = 0.0
        self.now = 1000.0
        self.events: list[str | int] = []

    def watchdog(self, timeout_s: float, soft_timeout_s: float | None) -> Watchdog:
        async def on_stuck() -> None:
            self.events.append("dead")

        return Watchdog(
            lambda: self.age,
            timeout_s=timeout_s,
            soft_timeout_s=soft_timeout_s,
            on_stuck=on_stuck,
            leave=self.events.append,
            clock=lambda: self.now,
        )

    async def live(self, watchdog: Watchdog, seconds: float, *, stuck: bool = True) -> None:
        """The process runs and is looked at once a second; with `stuck` no turn ends."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.age = self.age + 0.1 if stuck else 0.0
            await watchdog.check()


@pytest.fixture(autouse=True)
def dumps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr("faulthandler.dump_traceback", lambda **_: found.append("dump"))
    return found


async def test_a_soft_limit_dumps_once_per_stuck_step(dumps: list[str]) -> None:
    world = _World()
    watchdog = world.watchdog(100, 5)
    for seconds, stuck, expected in ((4, True, 0), (2, True, 1), (1, True, 1), (1, False, 1), (6, True, 2)):
        await world.live(watchdog, seconds, stuck=stuck)
        assert len(dumps) == expected
    assert world.events == []


async def test_the_hard_limit_marks_the_process_dead_then_leaves(dumps: list[str]) -> None:
    world = _World()
    watchdog = world.watchdog(10, None)
    await world.live(watchdog, 9.9)
    assert world.events == []
    await world.live(watchdog, 0.3)
    assert world.events[:2] == ["dead", EXIT_STUCK]
    assert dumps[0] == "dump"


@pytest.mark.parametrize("steps", [1, 3])
async def test_a_process_that_was_stopped_and_goes_on_is_not_stuck(dumps: list[str], steps: int) -> None:
    """Stopped in mid-step for an hour, once or by bits: the step that goes on has its whole time again, and no more."""
    world = _World()
    watchdog = world.watchdog(10, 5)
    await world.live(watchdog, 1)
    for _ in range(steps):
        world.now += 3600 / steps
        world.age += 3600 / steps
        await watchdog.check()
    assert world.events == [] and dumps == []
    await world.live(watchdog, 10)
    assert world.events[:2] == ["dead", EXIT_STUCK]


async def test_zero_turns_it_off() -> None:
    world = _World()
    world.age = 1e9
    await world.watchdog(0, None).check()
    await world.watchdog(0, None).run()
    assert world.events == []
