"""Workers behind a name that resolves to all of them, such as a headless Kubernetes service."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from gateway.workers.address import normalise
from gateway.workers.membership import Endpoint, Membership

log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """All addresses of a name. Raises OSError if there are none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(entry[4][0]) for entry in found})


async def follow_dns(
    membership: Membership, name: str, *, interval_s: float = 5.0, timeout_s: float = 5.0, lookup: Resolve = resolve
) -> None:
    """Look `name` (host:port) up again and again until cancelled. A lookup that fails changes nothing.

    Names disappear when their server is in trouble far more often than because all workers are gone, and workers that are
    gone show that themselves.
    """
    host, _, port = normalise(name, field="worker-dns").rpartition(":")
    while True:
        try:
            async with asyncio.timeout(timeout_s):
                addresses = await lookup(host.strip("[]"), int(port))
            if addresses:
                membership.apply({normalise(f"[{a}]:{port}" if ":" in a else f"{a}:{port}"): Endpoint() for a in addresses})
        except (OSError, TimeoutError) as error:
            log.warning("lookup failed, keeping the workers there are", extra={"dns_name": name, "reason": str(error) or "timeout"})
        await asyncio.sleep(interval_s)
