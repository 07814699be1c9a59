"""A Session to one peer that is kept open: connect, greet, read, write, connect again.

Frames that are due wait in the subclass; the writer takes them all at once, so that what gathers during a slow write
leaves as one message.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import grpc

from services.common.channel import call_metadata, open_channel
from services.common.errors import HeadraceError
from services.common.grpc_errors import from_rpc_error
from services.common.server_config import ServerConfig

log = logging.getLogger(__name__)

_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
_WELCOME_TIMEOUT_S = 10.0
_BACKOFF_FIRST_S = 0.05
_BACKOFF_LAST_S = 1.0


class SessionLink(ABC):
    """One peer's Session. Subclasses say what a frame is; this class keeps one open while `run` runs."""

    def __init__(self, address: str, trust: ServerConfig | None) -> None:
        self.address = address
        self.connected = False
        self.last_frame_at = 0.0
        self.last_error = ""
        self.failures = 0
        self._metadata = call_metadata(trust)
        self.channel: grpc.aio.Channel = open_channel(address, trust)
        self._call: Any = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._cut_because = ""

    @abstractmethod
    def _open(self, metadata: tuple[tuple[str, str], ...]) -> Any:
        """Start the Session call."""

    @abstractmethod
    def _hello(self) -> Any:
        """The first frame to send."""

    @abstractmethod
    def _welcomed(self, frame: Any) -> None:
        """The peer's first frame. Raises HeadraceError where this peer is not to be used."""

    @abstractmethod
    def _received(self, frame: Any) -> None:
        """Any later frame. May not block."""

    @abstractmethod
    def _due(self) -> Iterator[Any]:
        """Frames that are waiting; they are no longer waiting afterwards."""

    @abstractmethod
    def _lost(self, message: str) -> None:
        """The Session has ended."""

    def start(self) -> None:
        """Keep a Session open from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"session {self.address}")

    async def close(self) -> None:
        """End the Session for good."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self.channel.close(None)

    def cut(self, message: str) -> None:
        """End the current Session; a new one follows."""
        self._cut_because = message
        if self._call is not None:
            self._call.cancel()

    def wake(self) -> None:
        """There are frames due."""
        self._wake.set()

    async def _run(self) -> None:
        delay = _BACKOFF_FIRST_S
        while True:
            began = time.monotonic()
            message = "session ended"
            try:
                await self._once()
            except asyncio.CancelledError:
                if self._closing:
                    raise
                message = self._cut_because or "the call was cancelled"
            except grpc.aio.AioRpcError as error:
                message = from_rpc_error(error).message
            except HeadraceError as error:
                message = error.message
            except (TimeoutError, asyncio.InvalidStateError) as error:
                message = str(error) or "no welcome in time"
            except Exception as error:
                log.exception("session failed", extra={"peer": self.address})
                message = f"{type(error).__name__}: {error}"
            finally:
                self._ended(message)
            delay = _BACKOFF_FIRST_S if time.monotonic() - began > 5 else min(delay * 2, _BACKOFF_LAST_S)
            await asyncio.sleep(delay * (0.5 + random.random()))

    def _ended(self, message: str) -> None:
        if self.connected:
            log.warning("session lost", extra={"peer": self.address, "reason": message})
        self.connected = False
        self.last_error = message
        self.failures += 1
        self._lost(message)

    async def _once(self) -> None:
        self._cut_because = ""
        call = self._call = self._open(self._metadata)
        writer: asyncio.Task[None] | None = None
        try:
            await call.write(self._hello())
            async with asyncio.timeout(_WELCOME_TIMEOUT_S):
                frame = await call.read()
            if frame is _EOF:
                return await self._raise_status(call)
            self.last_frame_at = time.monotonic()
            self._welcomed(frame)
            self.connected = True
            log.info("session open", extra={"peer": self.address})
            self._wake.set()
            writer = asyncio.create_task(self._write(call))
            await self._read(call)
        finally:
            self._call = None
            if writer is not None:
                writer.cancel()
            call.cancel()

    async def _read(self, call: Any) -> None:
        while True:
            frame = await call.read()
            if frame is _EOF:
                return await self._raise_status(call)
            self.last_frame_at = time.monotonic()
            self._received(frame)

    async def _raise_status(self, call: Any) -> None:
        code = await call.code()
        if code != grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(code, await call.initial_metadata(), await call.trailing_metadata(), await call.details(), None)

    async def _write(self, call: Any) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for frame in self._due():
                    await call.write(frame)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            call.cancel()
