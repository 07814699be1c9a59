"""The startup report: every effective setting, every computed limit and why, every phase's time, in one block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReportedSetting:
    """One line of the report. `source` is user, config, default, or the rule that computed the value."""

    name: str
    value: str
    source: str = "default"
    reason: str = ""
    unit: str = ""


@dataclass
class StartupReport:
    """Collected while the worker starts; `limits` are the lines people look for, `settings` is everything."""

    phases: list[tuple[str, float]] = field(default_factory=list)
    limits: list[ReportedSetting] = field(default_factory=list)
    flags: list[ReportedSetting] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase of the start."""
        began = time.monotonic()
        yield
        self.phases.append((name, time.monotonic() - began))

    def add(self, name: str, value: object, *, source: str = "computed", reason: str = "", unit: str = "") -> None:
        """Add a computed value."""
        self.limits.append(ReportedSetting(name, _show(value), source, reason, unit))

    @property
    def settings(self) -> list[ReportedSetting]:
        """Computed values first, then every flag that is not among them."""
        known = {setting.name for setting in self.limits}
        return [*self.limits, *(flag for flag in self.flags if flag.name not in known)]

    def text(self) -> str:
        """The block for the log."""
        width = max((len(setting.name) for setting in self.limits), default=0)
        lines = ["startup report"]
        for setting in self.limits:
            unit = f" {setting.unit}" if setting.unit else ""
            why = f"  ({setting.reason})" if setting.reason else ""
            lines.append(f"  {setting.name:<{width}}  {setting.value}{unit}{why}")
        total = sum(seconds for _, seconds in self.phases)
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.phases)
        lines.append(f"  {'start':<{width}}  {total:.2f} s  ({parts})")
        return "\n".join(lines)


def _show(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
