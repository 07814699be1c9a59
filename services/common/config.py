"""One frozen dataclass per program becomes its flags, its config file and its documentation.

A field is declared with `option(...)`; its flag is the field's name with dashes. Values come, strongest first, from the
command line, a `--config` file (YAML or JSON, keys are flag names without dashes in front), and the default. This is
the only module that reads the environment.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """What help, documentation and parsing need to know of an option."""

    help: str
    group: str = "General"
    unit: str = ""
    choices: tuple[str, ...] = ()
    parse: Callable[[str], Any] | None = None
    aliases: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None
    secret: bool = False


def option(
    default: Any,
    help: str,
    *,
    group: str = "General",
    unit: str = "",
    choices: Sequence[str] = (),
    parse: Callable[[str], Any] | None = None,
    aliases: Sequence[str] = (),
    check: Callable[[Any], str | None] | None = None,
    secret: bool = False,
) -> Any:
    """A dataclass field that is also a flag. `check` returns what is wrong with a value, or None."""
    info = OptionInfo(help, group, unit, tuple(choices), parse, tuple(aliases), check, secret)
    if isinstance(default, list | dict | set):
        raise TypeError("defaults must be immutable")
    return dataclasses.field(default=default, metadata={"option": info})


def at_least(bound: float) -> Callable[[Any], str | None]:
    """A check for `option`: the value may not be below `bound`."""
    return lambda value: None if value is None or value >= bound else f"must be at least {bound}"


def count(text: str) -> int:
    """A whole number that may end in k, m or g (thousands), such as 4k or 1M."""
    scale = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}.get(text[-1:].lower(), 1)
    return int(float(text[:-1]) * scale) if scale > 1 else int(text)


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            unknown = message[len(prefix) :].split()[0].split("=")[0]
            known = [s for a in self._actions for s in a.option_strings]
            near = difflib.get_close_matches(unknown, known, n=1, cutoff=0.5)
            message = f"unknown flag {unknown}" + (f"; did you mean {near[0]}?" if near else "")
        self.exit(2, f"{self.prog}: {message}\n")


class _Help(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=38, width=120)


def options_of(cls: type[Any]) -> dict[str, tuple[OptionInfo, Any, Any]]:
    """Field name → (option, type, default), in declaration order."""
    hints = typing.get_type_hints(cls)
    found: dict[str, tuple[OptionInfo, Any, Any]] = {}
    for f in dataclasses.fields(cls):
        if "option" in f.metadata:
            found[f.name] = (f.metadata["option"], hints[f.name], f.default)
    return found


def _base_type(hint: Any) -> tuple[Any, bool]:
    """(type of one value, is it a tuple of them); Optional is unwrapped."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        return _base_type(inner[0])
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    return hint, False


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "1", "yes", "on"):
        return True
    if lowered in ("false", "0", "no", "off"):
        return False
    raise ValueError(f"expected true or false, got {text!r}")


def build_parser(cls: type[Any], *, prog: str, description: str) -> argparse.ArgumentParser:
    """The command line of a config class, its help grouped and with defaults and units."""
    parser = _Parser(prog=prog, description=description, formatter_class=_Help, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", default=None, help="YAML or JSON file with any of these settings (flags win)")
    groups: dict[str, Any] = {}
    for name, (info, hint, default) in options_of(cls).items():
        if info.group not in groups:
            groups[info.group] = parser.add_argument_group(info.group)
        _add_flag(groups[info.group], name, info, hint, default)
    return parser


def _add_flag(group: Any, name: str, info: OptionInfo, hint: Any, default: Any) -> None:
    base, many = _base_type(hint)
    flag = name.replace("_", "-")
    kwargs: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS}
    unit = f" [{info.unit}]" if info.unit else ""
    kwargs["help"] = f"{info.help}{unit} (default: {show(default)})".replace("%", "%%")
    if base is bool:
        kwargs.update(type=_boolean, nargs="?", const=True, metavar="BOOL")
    else:
        kwargs["type"] = info.parse or base
        kwargs["metavar"] = "{" + ",".join(info.choices) + "}" if info.choices else base.__name__.upper()
        if many:
            kwargs["nargs"] = "*"
    group.add_argument("--" + flag, *info.aliases, **kwargs)
    if base is bool and default is True:
        group.add_argument("--no-" + flag, dest=name, action="store_const", const=False, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def show(value: Any) -> str:
    """A setting's value as help, documentation and reports print it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "empty"
    return str(value) or "empty"


def _from_file(cls: type[Any], path: str) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(Path(path).read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {path}: {error}") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"--config {path}: expected a mapping of settings")
    known = options_of(cls)
    values: dict[str, Any] = {}
    for key, value in loaded.items():
        name = str(key).replace("-", "_")
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
            raise ConfigError(f"--config {path}: unknown setting {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        info, hint, _ = known[name]
        values[name] = _coerce(name, value, info, hint)
    return values


def _coerce(name: str, value: Any, info: OptionInfo, hint: Any) -> Any:
    base, many = _base_type(hint)
    if value is None:
        return None
    convert = _boolean if base is bool else info.parse or base
    try:
        if many:
            return tuple(convert(str(v)) for v in (value if isinstance(value, list | tuple) else [value]))
        return value if isinstance(value, bool) and base is bool else convert(str(value))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{name}: {error}") from error


def validate(config: Any) -> None:
    """Raises ConfigError for a value outside its choices or failing its check."""
    for name, (info, _, _) in options_of(type(config)).items():
        value = getattr(config, name)
        if info.choices and value is not None:
            for one in value if isinstance(value, tuple) else (value,):
                if one not in info.choices:
                    raise ConfigError(f"--{name.replace('_', '-')}: {one!r} is not one of {', '.join(info.choices)}")
        if info.check is not None and (wrong := info.check(value)):
            raise ConfigError(f"--{name.replace('_', '-')}: {value!r} {wrong}")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where each setting came from: "user", "config" or "default"."""

    of: dict[str, str]


def load(cls: type[C], argv: Sequence[str], *, prog: str, description: str = "") -> tuple[C, Sources]:
    """Parse flags and the config file into a frozen config. Raises ConfigError; exits 2 on an unusable command line."""
    parser = build_parser(cls, prog=prog, description=description)
    given = vars(parser.parse_args(list(argv)))
    path = given.pop("config")
    values: dict[str, Any] = {}
    sources = dict.fromkeys(options_of(cls), "default")
    if path is not None:
        for name, value in _from_file(cls, path).items():
            values[name], sources[name] = value, "config"
    for name, value in given.items():
        values[name], sources[name] = tuple(value) if isinstance(value, list) else value, "user"
    config = cls(**values)
    validate(config)
    return config, Sources(sources)


def load_or_exit(cls: type[C], argv: Sequence[str] | None, *, prog: str, description: str = "") -> tuple[C, Sources]:
    """`load` for a program's entry point: a ConfigError is printed and exits 2."""
    try:
        return load(cls, sys.argv[1:] if argv is None else argv, prog=prog, description=description)
    except ConfigError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def cache_dir() -> Path:
    """Folder for converted models, built kernels and other state; HEADRACE_CACHE_DIR or ~/.cache/headrace."""
    return Path(os.environ.get("HEADRACE_CACHE_DIR") or Path.home() / ".cache" / "headrace")


def cpu_isa() -> str | None:
    """Instruction set that HEADRACE_CPU_ISA forces on the CPU kernels, or None."""
    return os.environ.get("HEADRACE_CPU_ISA") or None


def pod_identity() -> tuple[str, str]:
    """(namespace, pod name) as Kubernetes' downward API provides them, or empty strings."""
    return os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")


def child_environment(**extra: str) -> dict[str, str]:
    """This process's environment with additions, for a child process."""
    return {**os.environ, **extra}
