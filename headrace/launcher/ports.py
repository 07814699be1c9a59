"""Which port each process gets: the documented ones, or free ones where those are taken."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
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
    chosen: Mapping[str, int] | None = None,
    free: Callable[[str, int], bool] = is_free,
    pick: Callable[[str], int] = any_free,
) -> Ports:
    """Ports around `base`, and those `chosen` by flag, such as "tokenizer.port".

    Raises ConfigError if the REST port or a chosen one is taken, or two are the same: somebody was told those numbers.
    """
    if not 1 <= base <= _HIGHEST:
        raise ConfigError(f"--port: {base} is not a port (1 to {_HIGHEST})")
    if not free(host, base):
        raise ConfigError(f"--port: {host}:{base} is in use; stop what listens there or pass another --port")
    given = {base}
    loopback = "127.0.0.1"
    picked = dict(chosen or {})
    for flag, port in picked.items():
        at = host if flag.startswith("gateway.") else loopback
        if port in given:
            raise ConfigError(f"--{flag}: port {port} is given to another service already")
        if not 1 <= port <= _HIGHEST:
            raise ConfigError(f"--{flag}: {port} is not a port (1 to {_HIGHEST})")
        if not free(at, port):
            raise ConfigError(f"--{flag}: {at}:{port} is in use; stop what listens there or choose another port")
        given.add(port)

    def take(flag: str, wanted: int, at: str = loopback) -> int:
        if flag in picked:
            return picked[flag]
        port = wanted if wanted <= _HIGHEST and wanted not in given and free(at, wanted) else pick(at)
        while port in given:
            port = pick(at)
        given.add(port)
        return port

    def pair(service: str, wanted: int) -> tuple[int, int]:
        port = take(f"{service}.port", wanted)
        return port, take(f"{service}.metrics-port", port + _METRICS_OFFSET)

    grpc = take("gateway.grpc-port", base + 1, host)
    tokenizer, detokenizer = pair("tokenizer", base + 10), pair("detokenizer", base + 20)
    schedulers = tuple(pair("scheduler", base + 100 + i) for i in range(workers))
    return Ports(base, take("gateway.metrics-port", base + _METRICS_OFFSET, host), grpc, tokenizer, detokenizer, schedulers)
