"""Which port each process gets: the documented ones, or free ones where those are taken."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from services.common.config import ConfigError

_HIGHEST = 65535
_METRICS_OFFSET = 1000


@dataclass(frozen=True, slots=True)
class Ports:
    """Port and metrics port of every process."""

    rest: int
    rest_metrics: int
    grpc: int
    tokenizer: tuple[int, int]
    detokenizer: tuple[int, int]
    workers: tuple[tuple[int, int], ...]


def is_free(host: str, port: int) -> bool:
    """Could a server listen there now?"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def any_free(host: str) -> int:
    """A port nobody listens on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def assign(
    base: int,
    host: str,
    workers: int,
    *,
    free: Callable[[str, int], bool] = is_free,
    pick: Callable[[str], int] = any_free,
) -> Ports:
    """Ports around `base`. Raises ConfigError if the REST port itself is taken: a client was told that number."""
    if not 1 <= base <= _HIGHEST:
        raise ConfigError(f"--port: {base} is not a port (1 to {_HIGHEST})")
    if not free(host, base):
        raise ConfigError(f"--port: {host}:{base} is in use; stop what listens there or pass another --port")
    given = {base}
    loopback = "127.0.0.1"

    def take(wanted: int, at: str = loopback) -> int:
        port = wanted if wanted <= _HIGHEST and wanted not in given and free(at, wanted) else pick(at)
        while port in given:
            port = pick(at)
        given.add(port)
        return port

    def pair(wanted: int) -> tuple[int, int]:
        port = take(wanted)
        return port, take(port + _METRICS_OFFSET)

    grpc = take(base + 1, host)
    tokenizer, detokenizer = pair(base + 10), pair(base + 20)
    schedulers = tuple(pair(base + 100 + i) for i in range(workers))
    return Ports(base, take(base + _METRICS_OFFSET, host), grpc, tokenizer, detokenizer, schedulers)
