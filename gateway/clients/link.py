"""A Session to one peer that is kept open: connect, greet, read, write, connect again.

What is read goes from the socket's reader straight to the subclass: no task wakes for a frame. Frames that are due wait
in the subclass and leave together at the end of the event loop's turn, or when the peer takes bytes again, so that what
gathers during a slow write leaves as one message.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError

from gateway.clients.http2.call import Call
from gateway.clients.http2.dial import dial
from services.common.channel import call_metadata
from services.common.errors import HeadraceError
from services.common.server_config import ServerConfig

log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 10.0
_WELCOME_TIMEOUT_S = 10.0
_BACKOFF_FIRST_S = 0.05
_BACKOFF_LAST_S = 1.0


class SessionLink(ABC):
    """One peer's Session. Subclasses say what a frame is; this class keeps one open once started.

    path: the Session's gRPC path. parse: bytes to a frame.
    """

    def __init__(self, address: str, trust: ServerConfig | None, *, path: str, parse: Callable[[bytes], Any]) -> None:
        self.address = address
        self.connected = False
        self.last_frame_at = 0.0
        self.last_error = ""
        self.failures = 0
        self._trust = trust
        self._path = path
        self._parse = parse
        self._call: Call | None = None
        self._welcome: asyncio.Future[Any] | None = None
        self._sending = False
        self._broken: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._cut_because = ""

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

    def cut(self, message: str) -> None:
        """End the current Session; a new one follows."""
        self._cut_because = message
        if self._call is not None:
            self._call.cancel()

    def wake(self) -> None:
        """There are frames due."""
        if not self._sending:
            self._sending = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._sending = False
        call = self._call
        if call is not None and self.connected and call.writable:
            call.send(*[frame.SerializeToString() for frame in self._due()])

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
            except HeadraceError as error:
                message = self._cut_because or error.message
            except TimeoutError:
                message = "no welcome in time"
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
        """One Session from its connection to its end. Raises what it ended with, nothing if the peer ended it in peace."""
        self._cut_because, self._broken = "", None
        self._welcome = asyncio.get_running_loop().create_future()
        connection = await dial(self.address, self._trust, timeout_s=_CONNECT_TIMEOUT_S)
        call = self._call = connection.call(self._path, call_metadata(self._trust), self._on_message)
        try:
            call.send(self._hello().SerializeToString())
            async with asyncio.timeout(_WELCOME_TIMEOUT_S):
                await asyncio.wait({self._welcome, call.ended}, return_when=asyncio.FIRST_COMPLETED)
            if self._welcome.done():
                self._welcome.result()
            status = await call.ended
            if self._broken is not None:
                raise self._broken
            if not status.ok:
                raise status.error()
        finally:
            self._call = None
            call.cancel()
            connection.close()

    def _on_message(self, payload: bytes) -> None:
        """From the socket's reader: what goes wrong here ends the Session, not the reader."""
        self.last_frame_at = time.monotonic()
        call, welcome = self._call, self._welcome
        if call is None or welcome is None:
            return
        try:
            frame = self._parse(payload)
            if welcome.done():
                self._received(frame)
            else:
                self._open(call, welcome, frame)
        except (HeadraceError, DecodeError) as error:
            self._broken = error
            call.cancel()
        except Exception as error:
            log.exception("a frame failed", extra={"peer": self.address})
            self._broken = error
            call.cancel()

    def _open(self, call: Call, welcome: asyncio.Future[None], frame: Any) -> None:
        self._welcomed(frame)
        self.connected = True
        welcome.set_result(None)
        call.on_writable = self.wake
        log.info("session open", extra={"peer": self.address})
        self.wake()
