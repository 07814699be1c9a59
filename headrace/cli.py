"""The `headrace` command: finds the subcommand and hands it the rest of the line."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from services.common.version import VERSION


class Command(NamedTuple):
    """A subcommand: the module whose `main(argv)` runs it, and a line for the overview."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "up": Command("headrace.launcher.command", "start everything on this machine and talk to it"),
    "serve": Command("headrace.commands.serve", "run one service: gateway, tokenizer, scheduler or detokenizer"),
    "model": Command("headrace.commands.model", "fetch, list or locate models"),
    "bench": Command("headrace.bench.command", "measure a server: serve, sweep, compare"),
    "check": Command("headrace.commands.check", "prove a promise of a running server: determinism"),
    "report": Command("headrace.commands.report", "how well a running gateway's routing finds cached prompts, by worker"),
    "capacity": Command("headrace.commands.capacity", "how many contexts fit into a memory budget"),
    "version": Command("headrace.commands.version", "print the version"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit code, 2 for an unknown one."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    name = {"--version": "version", "-V": "version"}.get(words[0], words[0])
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
        print(f"headrace: no command {name!r}" + (f"; did you mean {near[0]}?" if near else ""), file=sys.stderr)
        return 2
    run: Callable[[Sequence[str]], int] = importlib.import_module(COMMANDS[name].module).main
    try:
        return run(words[1:])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stderr.close()
        return 0


def overview() -> str:
    """What `headrace --help` shows."""
    lines = "\n".join(f"  {name:10} {command.summary}" for name, command in COMMANDS.items())
    return f"""headrace {VERSION}: LLM serving as independent gRPC services

usage: headrace COMMAND [flags]

{lines}

headrace COMMAND --help shows a command's flags."""
