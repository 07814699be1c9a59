"""The program that checks answers: `python -m gateway.checking.process`.

A schema can be written so that checking takes for ever; in a process of its own the kernel ends it. Orders come on
standard input, one answer each goes to standard output. An order has a `schema`; with a `text` the answer is its
verdict, without one whether the schema can be checked at all: `{}` or a `problem`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from functools import lru_cache
from typing import Any, BinaryIO

from gateway.checking.messages import LENGTH, message_bytes
from gateway.checking.schema import CheckedSchema, Uncheckable

CPU_LIMIT_S = 1.0
_MEMORY_LIMIT = 1 << 30
_LOW_PRIORITY = 10

checked = lru_cache(64)(CheckedSchema)


def read_message(stream: BinaryIO) -> Any:
    """The next message, None at the end."""
    head = stream.read(LENGTH.size)
    return json.loads(stream.read(LENGTH.unpack(head)[0])) if len(head) == LENGTH.size else None


def answer(order: dict[str, str]) -> dict[str, Any]:
    """What is said to one order."""
    try:
        schema = checked(order["schema"])
    except Uncheckable as problem:
        return {"problem": str(problem)}
    if "text" not in order:
        return {}
    try:
        return schema.verdict(order["text"])
    except RecursionError:
        return {"valid": None, "reason": "the answer or its schema is nested too deeply to be checked"}
    except Exception as error:
        return {"valid": None, "reason": f"it could not be checked: {type(error).__name__}"}


def main() -> None:
    """Serve until standard input ends."""
    os.nice(_LOW_PRIORITY)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (order := read_message(sys.stdin.buffer)) is not None:
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)  # its signal ends the process
        made = message_bytes(answer(order))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(made)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
