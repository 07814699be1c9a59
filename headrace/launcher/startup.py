"""From started children to a suite that has answered its first request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.launcher.http import Answer, call
from headrace.programs import python_command, python_environment

WARMUP_PROMPT = "The capital city of France is"
_POLL_S = 0.05
_WARMUP_TIMEOUT_S = 600.0


class StartupFailed(Exception):
    """The suite came up but cannot answer."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where the launcher reaches the gateway's REST door."""

    host: str
    port: int
    api_key: str = ""
    admin_key: str = ""
    tls: bool = False

    async def call(self, method: str, path: str, body: Any = None, timeout_s: float = 10.0, *, admin: bool = False) -> Answer:
        """One HTTP call, off the event loop."""
        key = self.admin_key if admin else self.api_key
        return await asyncio.to_thread(call, self.host, self.port, method, path, body, timeout_s=timeout_s, api_key=key, tls=self.tls)


def door_of(gateway: Any, port: int) -> Door:
    """The gateway's own settings say where it listens, which keys it wants, and whether it speaks TLS."""
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(gateway.host, gateway.host)
    user = gateway.api_key or _first_line(gateway.api_key_file)
    admin = gateway.admin_api_key or _first_line(gateway.admin_api_key_file) or user
    return Door(host, port, user, admin, gateway.tls_cert is not None)


def _first_line(path: str | None) -> str:
    return next(iter(Path(path).read_text().split()), "") if path else ""


async def wait_until_ready(door: Door, give_up_after_s: float) -> float:
    """Poll the gateway's /ready. Returns the seconds it took. Raises StartupFailed."""
    begin = time.monotonic()
    last = Answer(0, "nothing listens there yet")
    while time.monotonic() - begin < give_up_after_s:
        last = await door.call("GET", "/ready")
        if last.status == 200:
            return time.monotonic() - begin
        await asyncio.sleep(_POLL_S)
    raise StartupFailed(f"not ready after {give_up_after_s:.0f} s; the gateway says: {last.status} {last.body.strip()[:400]}")


async def warm_up(door: Door) -> float:
    """The first request, once per worker's worth of caches. Returns its seconds. Raises StartupFailed."""
    begin = time.monotonic()
    body = {"text": WARMUP_PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
    answer = await door.call("POST", "/generate", body, _WARMUP_TIMEOUT_S)
    if answer.status != 200:
        raise StartupFailed(f"the warm-up request failed: {answer.status} {answer.body.strip()[:400]}")
    return time.monotonic() - begin


async def freeze_workers(targets: Sequence[str], token_file: str) -> str:
    """Set aside what the workers' garbage collectors would otherwise walk again and again. Returns what went wrong."""
    process = await asyncio.create_subprocess_exec(
        *python_command("headrace.client.control", [token_file, *targets]),
        env=python_environment(),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    _, wrong = await process.communicate()
    return "" if process.returncode == 0 else wrong.decode(errors="replace").strip()


async def server_report(door: Door) -> str:
    """The workers' startup reports as /server_info has them."""
    answer = await door.call("GET", "/server_info", admin=True)
    if answer.status != 200:
        return f"(no startup report: /server_info answered {answer.status})"
    return render_report(answer.json())


def render_report(info: Any) -> str:
    """One block per worker."""
    workers = info.get("workers", []) if isinstance(info, dict) else []
    blocks = [str(worker.get("report", "")).rstrip() for worker in workers if isinstance(worker, dict)]
    return "\n\n".join(block for block in blocks if block) or "(the workers sent no startup report)"
