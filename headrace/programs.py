"""The four services as the command line knows them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.common.config import ConfigError, child_environment

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Program:
    """A service: the module that runs it and the class of its settings."""

    name: str
    module: str
    config_class: str

    def config(self) -> type[Any]:
        """The config class; importing it loads neither torch nor grpc."""
        found: type[Any] = getattr(importlib.import_module(f"{self.module}.config"), self.config_class)
        return found


PROGRAMS: dict[str, Program] = {
    "gateway": Program("gateway", "gateway", "GatewayConfig"),
    "tokenizer": Program("tokenizer", "services.tokenizer", "TokenizerConfig"),
    "scheduler": Program("scheduler", "services.scheduler", "SchedulerConfig"),
    "detokenizer": Program("detokenizer", "services.detokenizer", "DetokenizerConfig"),
}


def program(name: str) -> Program:
    """The program of that name. Raises ConfigError."""
    if name not in PROGRAMS:
        raise ConfigError(f"no service {name!r}; there are {', '.join(PROGRAMS)}")
    return PROGRAMS[name]


def python_command(module: str, arguments: Sequence[str] = ()) -> list[str]:
    """How to run one of our modules; the folder one happens to stand in is not searched for it."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment(**extra: str) -> dict[str, str]:
    """Environment for `python_command`: finds this very code, installed or not."""
    inherited = child_environment()
    path = os.pathsep.join(part for part in (str(_ROOT), inherited.get("PYTHONPATH", "")) if part)
    return {**inherited, "PYTHONPATH": path, **extra}
