"""Unary calls to one address, or in turn to all that a `dns:///` name stands for. Connects when first needed, and again."""

from __future__ import annotations

import asyncio
import socket
import time

from gateway.clients.http2.connection import Connection
from gateway.clients.http2.dial import dial
from services.common.errors import DeadlineExceeded, Unavailable
from services.common.server_config import ServerConfig

_DNS = "dns:///"
_CONNECT_TIMEOUT_S = 10.0
_RESOLVE_S = 5.0


class Channel:
    """Use from one event loop; `close` it in the end."""

    def __init__(self, address: str, trust: ServerConfig | None) -> None:
        self._name = address.removeprefix(_DNS)
        self._is_name = address.startswith(_DNS)
        self._trust = trust
        self._addresses = [] if self._is_name else [self._name]
        self._resolved_at = float("-inf")
        self._connections: dict[str, Connection] = {}
        self._connecting = asyncio.Lock()
        self._turn = 0

    async def call(self, path: str, request: bytes, headers: tuple[tuple[str, str], ...], timeout_s: float) -> bytes:
        """The answer. Raises the peer's error, Unavailable where it is not reached, DeadlineExceeded after `timeout_s`."""
        answers: list[bytes] = []
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connection()
                limit = ("grpc-timeout", f"{min(99_999_999, max(1, round(timeout_s * 1000)))}m")
                call = connection.call(path, (*headers, limit), answers.append)
                try:
                    call.send(request, last=True)
                    status = await call.ended
                finally:
                    call.cancel()
        except TimeoutError as error:
            raise DeadlineExceeded(f"{self._name} did not answer within {timeout_s:.3g} s") from error
        if not status.ok:
            raise status.error()
        if len(answers) != 1:
            raise Unavailable(f"{self._name} sent {len(answers)} answers")
        return answers[0]

    async def close(self) -> None:
        """End all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _connection(self) -> Connection:
        if self._is_stale:
            async with self._connecting:
                if self._is_stale:
                    await self._resolve()
        self._turn += 1
        tries = len(self._addresses)
        for offset in range(tries):
            address = self._addresses[(self._turn + offset) % tries]
            found = self._connections.get(address)
            if found is not None and found.alive:
                return found
            try:
                return await self._connect(address)
            except Unavailable:
                if offset == tries - 1:
                    raise
        raise Unavailable(f"{self._name} stands for no address")

    @property
    def _is_stale(self) -> bool:
        return self._is_name and time.monotonic() - self._resolved_at > _RESOLVE_S

    async def _connect(self, address: str) -> Connection:
        async with self._connecting:
            found = self._connections.get(address)
            if found is None or not found.alive:
                name = self._name.rpartition(":")[0].strip("[]")
                found = self._connections[address] = await dial(address, self._trust, timeout_s=_CONNECT_TIMEOUT_S, name=name)
            return found

    async def _resolve(self) -> None:
        host, _, port = self._name.rpartition(":")
        try:
            answers = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            if not self._addresses:
                raise Unavailable(f"{self._name} does not resolve: {error}") from error
            self._resolved_at = time.monotonic()  # those known may do for a while
            return
        self._resolved_at = time.monotonic()
        found = {f"[{answer[4][0]}]:{port}" if ":" in str(answer[4][0]) else f"{answer[4][0]}:{port}" for answer in answers}
        self._addresses = sorted(found)
        for address in set(self._connections) - found:
            self._connections.pop(address).close("its address is no longer that of the name")
