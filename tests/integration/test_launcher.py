"""The launcher's promises about processes, on children that do nothing else but live and die."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.launcher.child import ChildSpec
from headrace.launcher.supervisor import GivenUp, Supervisor
from headrace.programs import python_environment

_MODULE = "tests.fakes.child_program"
_SOON_S = 60.0


class Journal:
    """What the children wrote, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def events(self) -> list[tuple[str, str, int, int]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(name, event, int(pid), int(group)) for name, event, pid, group in (line.split() for line in lines)]

    def names(self, event: str) -> list[str]:
        return [name for name, what, _, _ in self.events() if what == event]

    def spec(self, name: str, stage: int = 0, *flags: str) -> ChildSpec:
        return ChildSpec(name, _MODULE, ("--name", name, "--journal", str(self.path), *flags), stage)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


class Lines:
    """Collects what the launcher says."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def __call__(self, who: str, line: str) -> None:
        self.said.append((who, line))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SOON_S):
        while not condition():  # noqa: ASYNC110  (what is waited for happens in another process)
            await asyncio.sleep(0.01)


async def test_children_stop_stage_by_stage_and_finish_their_work(journal: Journal) -> None:
    specs = [journal.spec("tokenizer", 3), journal.spec("worker", 1, "--drain", "0.2"), journal.spec("gateway", 0, "--drain", "0.4")]
    lines = Lines()
    supervisor = Supervisor(specs, lines)
    await supervisor.start()
    await until(lambda: len(journal.names("start")) == 3)
    assert await supervisor.stop(drain_timeout=10)
    assert journal.names("drained") == ["gateway", "worker", "tokenizer"]
    assert ("worker", "worker says hello") in lines.said


async def test_each_child_is_alone_in_its_process_group(journal: Journal) -> None:
    supervisor = Supervisor([journal.spec("a"), journal.spec("b")], Lines())
    await supervisor.start()
    await until(lambda: len(journal.names("start")) == 2)
    await supervisor.stop(10)
    groups = {group for _, event, pid, group in journal.events() if event == "start" and pid == group}
    assert len(groups) == 2
    assert os.getpgrp() not in groups


async def test_a_killed_child_is_started_again(journal: Journal) -> None:
    lines = Lines()
    supervisor = Supervisor([journal.spec("worker")], lines)
    await supervisor.start()
    await until(lambda: len(journal.names("start")) == 1)
    os.kill(journal.events()[0][2], signal.SIGKILL)
    await until(lambda: len(journal.names("start")) == 2)
    assert not supervisor.failure.done()
    assert any("worker ended (signal SIGKILL); starting it again" in line for who, line in lines.said if who == "headrace")
    await supervisor.stop(10)
    assert journal.names("drained") == ["worker"]


async def test_the_fifth_death_within_a_minute_is_the_last(journal: Journal) -> None:
    supervisor = Supervisor([journal.spec("worker", 1, "--die", "7"), journal.spec("gateway", 0)], Lines())
    await supervisor.start()
    async with asyncio.timeout(_SOON_S):
        error = await supervisor.failure
    assert isinstance(error, GivenUp)
    assert "worker died 5 times within a minute (exit code 7)" in str(error)
    assert "worker cannot go on: the reason" in str(error)
    assert journal.names("start").count("worker") == 5
    await supervisor.stop(10)
    assert journal.names("drained") == ["gateway"]


async def test_unusable_settings_are_not_tried_again(journal: Journal) -> None:
    supervisor = Supervisor([journal.spec("worker", 0, "--die", "2")], Lines())
    await supervisor.start()
    async with asyncio.timeout(_SOON_S):
        error = await supervisor.failure
    assert "cannot run with these settings" in str(error)
    assert journal.names("start") == ["worker"]
    await supervisor.stop(10)


async def test_a_second_signal_hurries_all_stages(journal: Journal) -> None:
    supervisor = Supervisor([journal.spec("gateway", 0, "--drain", "600"), journal.spec("worker", 1, "--drain", "600")], Lines())
    await supervisor.start()
    await until(lambda: len(journal.names("start")) == 2)
    stop = asyncio.create_task(supervisor.stop(600))
    await asyncio.sleep(0.1)
    supervisor.hurry()
    async with asyncio.timeout(_SOON_S):
        assert await stop
    assert journal.names("hurried") == ["gateway", "worker"]


async def test_a_child_that_does_not_leave_is_killed(journal: Journal) -> None:
    lines = Lines()
    supervisor = Supervisor([journal.spec("deaf", 0, "--deaf")], lines, after_drain_s=0.3)
    await supervisor.start()
    await until(lambda: len(journal.names("start")) == 1)
    assert not await supervisor.stop(drain_timeout=0)
    assert ("headrace", "deaf did not leave; killing") in lines.said


_LAUNCH = """
import asyncio, sys
from headrace.launcher.child import ChildSpec
from headrace.launcher.supervisor import Supervisor
async def main():
    flags = lambda name: ("--name", name, "--journal", sys.argv[1])
    supervisor = Supervisor([ChildSpec(n, "tests.fakes.child_program", flags(n), 0) for n in ("a", "b")], lambda *_: None)
    await supervisor.start()
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_killing_the_launcher_leaves_no_orphan(journal: Journal) -> None:
    launcher = await asyncio.create_subprocess_exec(sys.executable, "-c", _LAUNCH, str(journal.path), env=python_environment())
    await until(lambda: len(journal.names("start")) == 2)
    launcher.kill()
    await launcher.wait()
    await until(lambda: len(journal.names("orphaned")) == 2)
