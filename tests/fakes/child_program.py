"""A child for the launcher's tests: lives, dies or stays as its flags say, and writes what happens to a journal."""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    """Ends on a signal, when its parent's pipe closes, or as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--drain", type=float, default=0.0, help="seconds of work left when signalled")
    parser.add_argument("--die", type=int, default=None, help="exit at once with this code")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--parent-pipe", type=int, required=True)
    args = parser.parse_args()

    def note(event: str) -> None:
        with Path(args.journal).open("a") as journal:
            journal.write(f"{args.name} {event} {os.getpid()} {os.getpgrp()}\n")

    print(f"{args.name} says hello", flush=True)
    if args.die is not None:
        note("start")
        print(f"{args.name} cannot go on: the reason", file=sys.stderr)
        return int(args.die)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(args.parent_pipe, selectors.EVENT_READ, "orphan")
    selector.register(wake_read, selectors.EVENT_READ, "signal")
    note("start")  # from here on signals are heard
    signals, until = 0, None
    while until is None or time.monotonic() < until:
        for key, _ in selector.select(None if until is None else max(0.0, until - time.monotonic())):
            if key.data == "orphan":
                note("orphaned")
                return 0
            numbers = os.read(wake_read, 16)
            signals += sum(1 for number in numbers if number in (signal.SIGTERM, signal.SIGINT) and not args.deaf)
            if signals == 1 and until is None:
                until = time.monotonic() + args.drain
            elif signals > 1:
                note("hurried")
                return 0
    note("drained")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
