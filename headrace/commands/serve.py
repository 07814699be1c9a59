"""`headrace serve SERVICE`: becomes that service; what a container runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from headrace.models.errors import ModelError
from headrace.models.resolve import resolve
from headrace.models.store import ModelStore
from headrace.programs import PROGRAMS, program, python_command, python_environment
from services.common.config import ConfigError, cache_dir

_MODEL_FLAGS = ("--model-path", "--model")


def main(argv: Sequence[str]) -> int:
    """Replace this process by the service's; returns only if that cannot be done."""
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: headrace serve {{{','.join(PROGRAMS)}}} [flags]\n\nheadrace serve SERVICE --help shows its flags.")
        return 0 if argv else 2
    try:
        module = program(argv[0]).module
        arguments = with_local_model(argv[1:])
    except (ConfigError, ModelError) as error:
        print(f"headrace serve: {error}", file=sys.stderr)
        return 2
    return _become(python_command(module, arguments))


def _become(command: list[str]) -> NoReturn:
    os.execve(command[0], command, python_environment())


def with_local_model(arguments: Sequence[str]) -> list[str]:
    """The arguments with a model given by name replaced by its folder, fetched if need be. Raises ModelError."""
    changed = list(arguments)
    for at, token in enumerate(arguments):
        flag, equals, value = token.partition("=")
        if flag not in _MODEL_FLAGS:
            continue
        place = at if equals else at + 1
        if not equals and place >= len(arguments):
            return changed
        found = resolve(value if equals else arguments[place], ModelStore(cache_dir()), _say)
        changed[place] = f"{flag}={found.folder}" if equals else str(found.folder)
        if not any(token.startswith("--served-model-name") for token in arguments):
            changed += ["--served-model-name", found.name]
        return changed
    return changed


def _say(line: str) -> None:
    print(f"[headrace] {line}", file=sys.stderr, flush=True)
