"""What the flags leave open is decided at start, and said."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest

from services.common.config import ConfigError, load
from services.scheduler.config import SchedulerConfig
from services.scheduler.core.settings import SchedulerConfig as CoreConfig
from services.scheduler.engine.script import Script
from services.scheduler.engine.scripted import ScriptedEngine
from services.scheduler.report import StartupReport
from services.scheduler.resolve import core_config, report_flags

INFO = ScriptedEngine(Script(vocab_size=1000, context_length=4096), num_slots=8192, max_rows=8, page_size=16).info


@pytest.mark.parametrize(
    ("chunk", "target", "expected"),
    [
        (None, None, (2048, 150.0)),  # adaptive unless something else was asked for
        (100, None, (96, None)),  # whole pages
        (-1, None, (-1, None)),
        (None, 40.0, (2048, 40.0)),
        (512, 40.0, (512, 40.0)),
        (None, 0.0, (256, None)),
    ],
)
def test_chunks_adapt_unless_their_size_was_asked_for(chunk: int | None, target: float | None, expected: tuple[int, float | None]) -> None:
    config = SchedulerConfig(chunked_prefill_size=chunk, itl_target_ms=target)
    core = core_config(config, INFO, epoch=1)
    assert (core.chunked_prefill_size, core.itl_target_ms) == expected
    report = StartupReport()
    report_flags(report, config, {}, core)
    said = {setting.name: (setting.value, setting.reason) for setting in report.settings}
    assert said["itl_target_ms"] == (("off", "chunks of a fixed size") if expected[1] is None else (f"{expected[1]}", "chunks adapt"))


DECIDED = {"chunked_prefill_size", "max_running_requests", "radix_eviction_policy_config"}  # not passed on as they are
KNOBS = {field.name: field for field in fields(SchedulerConfig) if field.name in {core.name for core in fields(CoreConfig)} - DECIDED}


def another(name: str) -> Any:
    """A value that is not the default."""
    default, choices = KNOBS[name].default, KNOBS[name].metadata["option"].choices
    if choices:
        return next(choice for choice in choices if choice != default)
    if default is None or isinstance(default, bool) or default is MISSING:
        return True if "bool" in str(KNOBS[name].type) else 7
    return 0.5 if isinstance(default, float) else default + 3


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_every_knob_reaches_the_scheduler(name: str) -> None:
    value = another(name)
    assert getattr(core_config(SchedulerConfig(**{name: value}), INFO, epoch=1), name) == value


def test_the_knobs_are_there() -> None:
    assert {"init_new_token_ratio", "clip_max_new_tokens_estimation", "in_round_prefix_sharing", "num_continuous_decode_steps"} < set(KNOBS)


@pytest.mark.parametrize(
    ("asked", "off", "reason"), [(None, True, "the default on cpu"), (False, False, "as asked"), (True, True, "as asked")]
)
def test_overlap_is_off_on_a_cpu_unless_asked_for(asked: bool | None, off: bool, reason: str) -> None:
    config = SchedulerConfig(disable_overlap_schedule=asked)
    core = core_config(config, INFO, epoch=1)
    report = StartupReport()
    report_flags(report, config, {}, core)
    said = next(setting for setting in report.settings if setting.name == "overlap_schedule")
    assert (core.disable_overlap_schedule, said.reason) == (off, reason)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ("false", "")),
        (["--enable-deterministic-inference"], ("true", "")),
        (["--rl-on-policy-target", "fsdp"], ("true", "--rl-on-policy-target fsdp")),
    ],
)
def test_training_on_the_answers_makes_them_deterministic(flags: list[str], expected: tuple[str, str]) -> None:
    config, _ = load(SchedulerConfig, flags, prog="test")
    report = StartupReport()
    report_flags(report, config, {}, core_config(config, INFO, epoch=1))
    [said] = [setting for setting in report.settings if setting.name == "deterministic_inference"]
    assert (said.value, said.reason) == expected


def test_another_trainer_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="--rl-on-policy-target: 'megatron' is not one of fsdp"):
        load(SchedulerConfig, ["--rl-on-policy-target", "megatron"], prog="test")
