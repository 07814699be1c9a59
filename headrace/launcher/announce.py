"""What a person reads on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from services.common.version import VERSION

_OWN = "headrace"


def say(who: str, line: str) -> None:
    """One line of a child's or of the launcher's own, on standard error. A child's has its time already."""
    when = "" if who != _OWN else datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z ")
    print(f"[{who}] {when}{line}", file=sys.stderr, flush=True)


def own(line: str) -> None:
    """A line of the launcher's own."""
    say(_OWN, line)


def address(host: str, port: int) -> str:
    """The address to type; a wildcard host is reachable as loopback."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{shown}:{port}"


def ready(model: str, rest: str, grpc: str, report: str, phases: Mapping[str, float], *, with_key: bool) -> str:
    """The closing text of a start: report, addresses (`rest` with its scheme), a request to copy."""
    timings = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases.items())
    key = " -H 'Authorization: Bearer YOUR_KEY'" if with_key else ""
    return f"""
{report.rstrip()}

Headrace {VERSION} serves {model}
  REST  {rest}   (OpenAI API under /v1, native /generate)
  gRPC  {grpc}   (headrace.gateway.v1.Gateway, with reflection)
  ready in {sum(phases.values()):.1f} s: {timings}

Try it:
  curl -N {rest}/v1/chat/completions -H 'Content-Type: application/json'{key} \\
    -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "What is a headrace?"}}]}}'

Ctrl-C stops everything; requests in flight are finished first, a second Ctrl-C does not wait.
"""
