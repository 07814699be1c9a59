"""Free ports on this machine."""

from __future__ import annotations

import random
import socket

_given: set[int] = set()


def free_port() -> int:
    """A TCP port nobody listens on, given out once. Below the range that outgoing connections take, so that it stays free."""
    while True:
        port = random.randrange(15_000, 32_000)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
