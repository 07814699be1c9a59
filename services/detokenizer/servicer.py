"""The detokenizer's gRPC door."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import grpc

from protos.detokenizer.v1 import detokenizer_pb2 as pb
from protos.detokenizer.v1 import detokenizer_pb2_grpc as pb_grpc
from services.common.errors import FailedPrecondition, HeadraceError, InvalidRequest, Overloaded, Unavailable
from services.common.grpc_errors import abort
from services.common.grpc_options import MAX_FRAME_BYTES
from services.common.metrics import Metrics
from services.common.text.token_bytes import OutputBytes, TokenBytes
from services.common.text.utf8 import decode_all
from services.common.version import PROTOCOL, VERSION
from services.detokenizer.config import DetokenizerConfig
from services.detokenizer.convert import FrameBuilder, failed_frames, open_spec, pieces_frames
from services.detokenizer.instruments import Instruments
from services.detokenizer.texts import ProtocolViolation, SessionTexts, StateBudget

log = logging.getLogger(__name__)

SERVICE_NAME = "headrace.detokenizer.v1.Detokenizer"


class DetokenizerServicer(pb_grpc.DetokenizerServicer):
    """Sessions, whole-sequence calls and information about one tokenizer."""

    def __init__(self, config: DetokenizerConfig, tokens: TokenBytes, digest: str, metrics: Metrics) -> None:
        self._config = config
        self._tokens = tokens
        self._digest = digest
        self._budget = StateBudget(config.max_states)
        self._instruments = Instruments(metrics, self._budget)
        self._boot_id = uuid.uuid4().hex
        self._sessions: set[_Session] = set()
        self._draining = False
        self._left = asyncio.Event()

    def register(self, server: grpc.aio.Server) -> None:
        """Serve calls of this server."""
        pb_grpc.add_DetokenizerServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Session(self, request_iterator: AsyncIterator[pb.ToDetok], context: Any) -> None:
        """See the contract. Ends when the peer half-closes and everything was sent."""
        if self._draining:
            await abort(context, Unavailable("this detokenizer is draining"))
        session = _Session(SessionTexts(self._tokens, self._digest, self._budget), self._instruments, self._config.max_backlog_bytes)
        try:
            hello = await anext(aiter(request_iterator), None)
            _check_hello(hello)
            await context.write(pb.FromDetok(welcome=self._welcome()))
            self._sessions.add(session)
            self._instruments.sessions.inc()
            if self._draining:  # it came between the check above and now
                session.announce_drain(int(self._config.drain_timeout * 1000))
            await session.run(request_iterator, context)
        except HeadraceError as error:
            session.texts.drop_all()  # before the status, which a peer that does not read may never take
            await abort(context, error)
        finally:
            session.texts.drop_all()
            if session in self._sessions:
                self._sessions.remove(session)
                self._instruments.sessions.dec()
            if not self._sessions:
                self._left.set()

    def _welcome(self) -> pb.Welcome:
        return pb.Welcome(
            protocol=PROTOCOL,
            boot_id=self._boot_id,
            tokenizer_digest=self._digest,
            max_frame_bytes=MAX_FRAME_BYTES,
            max_states=self._config.max_states,
            model=self._config.model_name,
        )

    async def Detokenize(self, request: pb.DetokenizeRequest, context: grpc.aio.ServicerContext[Any, Any]) -> pb.DetokenizeResponse:
        """Text of whole sequences, each as the start of a text."""
        if len(request.sequences) > self._config.max_batch:
            limit = f"at most {self._config.max_batch} are allowed (--max-batch)"
            await abort(context, InvalidRequest(f"sequences: {len(request.sequences)} entries, {limit}", field="sequences"))
        skip = request.skip_special_tokens if request.HasField("skip_special_tokens") else True
        texts: list[str] = []
        for sequence in request.sequences:
            output = OutputBytes(self._tokens, skip_special=skip, spaces_between_special=request.spaces_between_special)
            texts.append(decode_all(b"".join([output.piece(token_id) for token_id in sequence.token_ids])))
            await asyncio.sleep(0)
        return pb.DetokenizeResponse(texts=texts)

    async def GetDetokenizerInfo(self, request: pb.GetDetokenizerInfoRequest, context: Any) -> pb.GetDetokenizerInfoResponse:
        """What this detokenizer decodes with, and how full it is."""
        return pb.GetDetokenizerInfoResponse(
            model=self._config.model_name,
            tokenizer_digest=self._digest,
            open_states=self._budget.used,
            max_states=self._budget.limit,
            server_version=VERSION,
        )

    async def drain(self) -> None:
        """Refuse new Sessions, tell the connected ones, and wait until they have left."""
        self._draining = True
        for session in self._sessions:
            session.announce_drain(int(self._config.drain_timeout * 1000))
        while self._sessions:
            self._left.clear()
            await self._left.wait()


def _check_hello(frame: pb.ToDetok | None) -> None:
    if frame is None or not frame.HasField("hello"):
        raise InvalidRequest("the first message of a Session must be hello", field="hello")
    if frame.hello.protocol != PROTOCOL:
        raise FailedPrecondition(f"the client speaks protocol {frame.hello.protocol}, this detokenizer {PROTOCOL}", field="hello.protocol")


class _Session:
    """A reader that never waits for the peer to read, and a writer that sends what has gathered meanwhile."""

    def __init__(self, texts: SessionTexts, instruments: Instruments, max_backlog: int) -> None:
        self.texts = texts
        self._instruments = instruments
        self._max_backlog = max_backlog
        self._others: list[pb.FromDetok] = []  # answers and notices
        self._wake = asyncio.Event()
        self._ended = False
        self._seq = 0

    async def run(self, frames: AsyncIterator[pb.ToDetok], context: Any) -> None:
        """Serve until the peer half-closes. Raises InvalidRequest or Overloaded if it breaks the rules."""
        reader = asyncio.create_task(self._read(frames))
        writer = asyncio.create_task(self._write(context))
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_EXCEPTION)
            for task in (reader, writer):
                if task.done():
                    task.result()
        finally:
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _write(self, context: Any) -> None:
        while not self._ended or self._pending:
            await self._wake.wait()
            self._wake.clear()
            for frame in self._gather():
                self._seq += 1
                frame.seq = self._seq
                await context.write(frame)

    def announce_drain(self, remaining_ms: int) -> None:
        """Tell the peer to open its texts elsewhere."""
        self._others.append(pb.FromDetok(notice=pb.Notice(draining=pb.Draining(remaining_ms=remaining_ms))))
        self._wake.set()

    @property
    def _pending(self) -> bool:
        return self.texts.has_due or bool(self._others)

    async def _read(self, frames: AsyncIterator[pb.ToDetok]) -> None:
        try:
            async for frame in frames:
                self._take(frame)
        except ProtocolViolation as violation:
            raise InvalidRequest(str(violation)) from violation
        finally:
            self._ended = True
            self._wake.set()

    def _take(self, frame: pb.ToDetok) -> None:
        texts = self.texts
        for opened in frame.open:
            log.debug("text opened", extra={"request_id": opened.request_id, "prior_tokens": opened.total_prior_tokens})
            texts.open(open_spec(opened))
            self._instruments.opened.inc()
        for part in frame.open_part:
            texts.add_prior(part.handle, part.offset, list(part.prior_output_ids))
        if frame.HasField("tokens"):
            self._take_tokens(frame.tokens)
        for query in frame.pieces:
            self._others.extend(pieces_frames(query, texts.pieces(query.handle, query.first_position, list(query.ids))))
        for close in frame.close:
            texts.close(close.handle, flush=close.flush, keep_bytes=close.keep_bytes if close.HasField("keep_bytes") else None)
        if self._wake.is_set():
            self._check_backlog()
        elif self._pending:
            self._wake.set()

    def _take_tokens(self, tokens: pb.Tokens) -> None:
        began = time.perf_counter()
        ids = list(tokens.token_ids)
        self.texts.add_tokens(list(tokens.handle), list(tokens.first_position), list(tokens.count), ids)
        self._instruments.frames.inc()
        self._instruments.tokens.inc(len(ids))
        self._instruments.frame_seconds.observe(time.perf_counter() - began)

    def _check_backlog(self) -> None:
        if self.texts.waiting_bytes > self._max_backlog:
            raise Overloaded(f"more than {self._max_backlog} bytes of text were left unread (--max-backlog-bytes)")

    def _gather(self) -> list[pb.FromDetok]:
        builder = FrameBuilder()
        self.texts.take_due(builder)
        self._instruments.text_bytes.inc(builder.raw_bytes)
        failed, self.texts.failed = self.texts.failed, []
        for _, error in failed:
            self._instruments.failed(error)
        others, self._others = self._others, []
        if self.texts.has_due:
            self._wake.set()
        return [*builder.frames(), *failed_frames(failed), *others]
