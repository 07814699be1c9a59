"""Sorts the flags of `headrace up` by who they are for, and checks all of them before anything starts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headrace.launcher.config import UpConfig
from headrace.programs import PROGRAMS
from services.common.config import ConfigError, build_parser, load

_PREFIXED = ("gateway", "tokenizer", "detokenizer", "scheduler")


@dataclass
class SplitArguments:
    """Flags of the launcher and of each service, in the order given."""

    up: list[str] = field(default_factory=list)
    services: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in PROGRAMS})


def flags_of(cls: type[Any]) -> set[str]:
    """Every spelling of every flag of a config class."""
    parser = build_parser(cls, prog="", description="")
    return {text for action in parser._actions for text in action.option_strings} - {"-h", "--help", "--config"}


def split(argv: Sequence[str]) -> SplitArguments:
    """Bare flags: the launcher's own, else the scheduler's. `--gateway.x` and the like: that service's `--x`.

    Raises ConfigError for a flag that nobody has, naming the nearest.
    """
    own, scheduler = flags_of(UpConfig), flags_of(PROGRAMS["scheduler"].config())
    found = SplitArguments()
    target = found.up
    for token in _with_file(argv):
        if not token.startswith("--") or token == "--":
            target.append(token)
            continue
        flag, equals, value = token[2:].partition("=")
        service, dot, rest = flag.partition(".")
        if dot and service in _PREFIXED:
            _known(f"--{rest}", flags_of(PROGRAMS[service].config()), f"--{service}.")
            target = found.services[service]
            target.append(f"--{rest}{equals}{value}")
            continue
        target = found.up if f"--{flag}" in own else found.services["scheduler"]
        if target is not found.up:
            _known(f"--{flag}", scheduler | own, "--")
        target.append(token)
    return found


@dataclass(frozen=True)
class Settings:
    """The launcher's own settings, and each service's as it will read them."""

    up: UpConfig
    services: dict[str, Any]
    given: dict[str, frozenset[str]] = field(default_factory=dict)  # by service: names of the settings the user gave

    def given_ports(self) -> dict[str, int]:
        """Ports that the user chose for single services, by flag without dashes. Raises ConfigError for those nobody can choose."""
        found: dict[str, int] = {}
        for service, names in self.given.items():
            for name in sorted(names & {"port", "grpc_port", "metrics_port"}):
                flag, value = f"{service}.{name.replace('_', '-')}", int(getattr(self.services[service], name))
                if value <= 0:
                    continue  # off, or left to the service
                if flag == "gateway.port":
                    raise ConfigError("--gateway.port: the launcher is told it as --port")
                if service == "scheduler" and self.up.workers > 1:
                    raise ConfigError(f"--{flag}: {self.up.workers} workers cannot share a port; theirs follow from --port")
                found[flag] = value
        return found


def check(arguments: SplitArguments) -> Settings:
    """Parse everything as each process will. Raises ConfigError; exits 2 on values that do not parse."""
    loaded = {
        name: load(PROGRAMS[name].config(), tokens, prog=f"headrace up ({name} flags)") for name, tokens in arguments.services.items()
    }
    given = {name: frozenset(key for key, source in sources.of.items() if source != "default") for name, (_, sources) in loaded.items()}
    return Settings(load(UpConfig, arguments.up, prog="headrace up")[0], {name: config for name, (config, _) in loaded.items()}, given)


def _known(flag: str, flags: Iterable[str], prefix: str) -> None:
    known = set(flags)
    if flag not in known:
        near = difflib.get_close_matches(flag, sorted(known), n=1, cutoff=0.5)
        hint = f"; did you mean {prefix}{near[0][2:]}?" if near else ""
        raise ConfigError(f"unknown flag {prefix}{flag[2:]}{hint}")


def _with_file(argv: Sequence[str]) -> list[str]:
    """The settings of `--config FILE` come first, so that flags win."""
    rest, files = [], []
    tokens = iter(argv)
    for token in tokens:
        if token == "--config":
            files.append(next(tokens, ""))
        elif token.startswith("--config="):
            files.append(token.partition("=")[2])
        else:
            rest.append(token)
    return [token for path in files for token in _from_file(path)] + rest


def _from_file(path: str) -> list[str]:
    """Flags out of a YAML or JSON mapping; a mapping under a service's name holds that service's settings."""
    try:
        loaded = yaml.safe_load(Path(path).read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {path!r}: {error}") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"--config {path}: expected a mapping of settings")
    tokens: list[str] = []
    for key, value in loaded.items():
        if isinstance(value, dict):
            if key not in _PREFIXED:
                raise ConfigError(f"--config {path}: section {key!r} is none of {', '.join(_PREFIXED)}")
            for inner, inner_value in value.items():
                tokens += _tokens(f"--{key}.{str(inner).replace('_', '-')}", inner_value)
        else:
            tokens += _tokens(f"--{str(key).replace('_', '-')}", value)
    return tokens


def _tokens(flag: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [flag, *(str(one) for one in value)]
    return [f"{flag}={str(value).lower() if isinstance(value, bool) else value}"]
