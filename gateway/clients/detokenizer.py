"""The Session to one detokenizer: token ids out, text in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.clients.link import SessionLink
from gateway.flight.choice import Choice
from protos.detokenizer.v1 import detokenizer_pb2 as pb
from services.common import errors
from services.common.server_config import ServerConfig
from services.common.version import PROTOCOL

if TYPE_CHECKING:
    from gateway.clients.text_stage import TextPool

log = logging.getLogger(__name__)

_PATH = "/headrace.detokenizer.v1.Detokenizer/Session"
_IDS_PER_FRAME = 32_768
_CONTEXT_IDS = 16


@dataclass(slots=True)
class PieceRequest:
    """A question for the bytes of `wanted` ids; the answer may come in parts."""

    wanted: int
    answer: asyncio.Future[list[bytes]]
    parts: list[bytes] = field(default_factory=list)


class TextSession(SessionLink):
    """Choices whose text is made on one detokenizer. Waiting frames are columns, so that steps merge while it is slow."""

    def __init__(self, address: str, pool: TextPool, *, client_id: str, trust: ServerConfig | None) -> None:
        super().__init__(address, trust, path=_PATH, parse=pb.FromDetok.FromString)
        self.draining = False
        self.digest = ""
        self._pool = pool
        self._client_id = client_id
        self._rows: dict[int, Choice] = {}
        self._asked: dict[int, PieceRequest] = {}
        self._leaving = False
        self._next_handle = 1
        self._clear()

    def _clear(self) -> None:
        self._opens: list[pb.ToDetok] = []
        self._handles: list[int] = []
        self._firsts: list[int] = []
        self._counts: list[int] = []
        self._ids: list[int] = []
        self._closes: list[pb.Close] = []
        self._queries: list[pb.PieceQuery] = []

    @property
    def open_texts(self) -> int:
        """Choices open there."""
        return len(self._rows)

    @property
    def usable(self) -> bool:
        """Connected and not about to leave."""
        return self.connected and not self.draining

    def open(self, choice: Choice) -> None:
        """Open a choice from where it is: tokens it has are sent along, text it has is not asked for again."""
        handle = self._next_handle
        self._next_handle += 1
        self._rows[handle] = choice
        choice.text_handle = handle
        self._opens.extend(self._open_frames(choice, handle))

    def _open_frames(self, choice: Choice, handle: int) -> Iterator[pb.ToDetok]:
        flight, ids = choice.flight, choice.text_ids()
        stops = flight.spec.stops
        first = pb.Open(
            handle=handle,
            context_ids=flight.prompt_ids[-_CONTEXT_IDS:],
            prior_output_ids=ids[:_IDS_PER_FRAME],
            total_prior_tokens=len(ids),
            delivered_bytes=choice.delivered_bytes,
            skip_special_tokens=stops.skip_special_tokens,
            keep_special_ids=flight.keep_special_ids,
            spaces_between_special=stops.spaces_between_special,
            stop_strings=stops.strings,
            stop_regexes=stops.regexes,
            keep_stop=stops.keep_stop,
            model=flight.spec.model,
            tokenizer_digest=flight.identity.tokenizer_digest if flight.identity is not None else "",
            request_id=flight.spec.request_id,
        )
        yield pb.ToDetok(open=[first])
        for offset in range(_IDS_PER_FRAME, len(ids), _IDS_PER_FRAME):
            part = pb.OpenPart(handle=handle, offset=offset, prior_output_ids=ids[offset : offset + _IDS_PER_FRAME])
            yield pb.ToDetok(open_part=[part])

    def add_column(self, handles: list[int], positions: list[int], tokens: list[int]) -> None:
        """Queue the next token of each of these choices."""
        self._handles += handles
        self._firsts += positions
        self._counts += [1] * len(handles)
        self._ids += tokens

    def add_tokens(self, handle: int, first: int, ids: list[int]) -> None:
        """Queue a choice's next tokens."""
        self._handles.append(handle)
        self._firsts.append(first)
        self._counts.append(len(ids))
        self._ids.extend(ids)

    def close_text(self, choice: Choice, *, flush: bool) -> None:
        """No more tokens for this choice. Without `flush` its row is forgotten at once."""
        close = pb.Close(handle=choice.text_handle, flush=flush)
        if flush and choice.finish is not None and choice.finish.keep_bytes is not None:
            close.keep_bytes = choice.finish.keep_bytes
        self._closes.append(close)
        if not flush:
            self._rows.pop(choice.text_handle, None)

    def flush(self) -> None:
        """Send what is queued."""
        if self._opens or self._handles or self._closes or self._queries:
            self.wake()

    def _hello(self) -> pb.ToDetok:
        return pb.ToDetok(hello=pb.Hello(protocol=PROTOCOL, client_id=self._client_id, instance=self._client_id))

    def _welcomed(self, frame: pb.FromDetok) -> None:
        if not frame.HasField("welcome"):
            raise errors.Internal(f"detokenizer {self.address} spoke before its welcome")
        if frame.welcome.protocol != PROTOCOL:
            raise errors.Internal(f"detokenizer {self.address} speaks protocol {frame.welcome.protocol}, this gateway {PROTOCOL}")
        self.digest = frame.welcome.tokenizer_digest
        self.draining = self._leaving = False
        self.connected = True
        self._pool.session_up(self)

    def _due(self) -> Iterator[pb.ToDetok]:
        opens, closes, queries = self._opens, self._closes, self._queries
        handles, firsts, counts, ids = self._handles, self._firsts, self._counts, self._ids
        self._clear()
        yield from opens
        if handles:
            yield from _token_frames(handles, firsts, counts, ids)
        if closes:
            yield pb.ToDetok(close=closes)
        for query in queries:
            yield pb.ToDetok(pieces=[query])

    def _lost(self, message: str) -> None:
        rows, self._rows = self._rows, {}
        self._clear()
        asked, self._asked = self._asked, {}
        for request in asked.values():
            if not request.answer.done():
                request.answer.set_exception(errors.Unavailable(f"detokenizer {self.address} was lost: {message}", code="detokenizer"))
        self._pool.session_down(self, list(rows.values()))

    def give_up(self) -> list[Choice]:
        """Close all texts here, to be opened elsewhere."""
        rows, self._rows = self._rows, {}
        self._closes.extend(pb.Close(handle=handle, flush=False) for handle in rows)
        self.flush()
        return list(rows.values())

    def leave(self) -> None:
        """End the Session, which has no texts left, once its questions are answered; the next one is with the successor."""
        self._leaving = True
        if not self._asked:
            self.cut("it is draining")

    def _received(self, frame: pb.FromDetok) -> None:
        rows = self._rows
        if frame.HasField("text"):
            self._on_text(frame.text)
        for closed in frame.closed:
            self._on_closed(closed)
        for pieces in frame.pieces:
            self._on_pieces(pieces)
        for failed in frame.failed:
            choice = rows.pop(failed.handle, None)
            if choice is not None:
                self._pool.forget(choice)
                choice.flight.fail(errors.from_proto(failed.error))
        if frame.HasField("notice") and frame.notice.HasField("draining"):
            self.draining = True
            self._pool.session_draining(self)

    def _on_text(self, text: pb.Text) -> None:
        """The hot path. Slices make lists of the columns at once, where an iterator would convert cell by cell."""
        rows = self._rows
        for handle, piece, through, end in zip(text.handle[:], text.piece[:], text.through_position[:], text.end_byte[:], strict=True):
            choice = rows.get(handle)
            if choice is None or choice.closed:
                continue
            choice.delivered_bytes = end
            choice.through = through
            if piece:
                choice.text.append(piece)
                try:
                    if choice.emit is not None:
                        choice.emit(piece)
                    else:
                        choice.flight.listener.text(choice, piece)
                except Exception as error:
                    _not_delivered(choice, error)

    def ask_pieces(self, ids: list[int]) -> asyncio.Future[list[bytes]]:
        """Bytes of each id as it stands in the middle of a text. The future fails if the Session does."""
        query_id = self._next_handle
        self._next_handle += 1
        request = self._asked[query_id] = PieceRequest(len(ids), asyncio.get_running_loop().create_future())
        self._queries.append(pb.PieceQuery(handle=query_id, first_position=1, ids=ids, query_id=query_id))
        self.wake()
        return request.answer

    def _on_pieces(self, pieces: pb.Pieces) -> None:
        request = self._asked.get(pieces.query_id)
        if request is None:
            return
        request.parts.extend(pieces.pieces)
        if len(request.parts) >= request.wanted:
            del self._asked[pieces.query_id]
            if not request.answer.done():
                request.answer.set_result(request.parts)
            if self._leaving:
                self.leave()

    def _on_closed(self, closed: pb.Closed) -> None:
        choice = self._rows.pop(closed.handle, None)
        if choice is None:
            return
        choice.delivered_bytes = closed.total_bytes
        choice.through = len(choice.output_ids)
        self._pool.forget(choice)
        if closed.tail:
            choice.text.append(closed.tail)
            try:
                choice.flight.listener.text(choice, closed.tail)
            except Exception as error:
                _not_delivered(choice, error)
        choice.flight.choice_closed(choice)


def _not_delivered(choice: Choice, error: Exception) -> None:
    log.exception("delivery failed", extra={"request_id": choice.flight.spec.request_id})
    choice.flight.fail(errors.Internal(f"{type(error).__name__} while delivering text"))


def _token_frames(handles: list[int], firsts: list[int], counts: list[int], ids: list[int]) -> Iterator[pb.ToDetok]:
    """One frame, or several where so much has gathered that one would be too large."""
    if len(ids) + len(handles) <= _IDS_PER_FRAME:
        yield pb.ToDetok(tokens=pb.Tokens(handle=handles, first_position=firsts, count=counts, token_ids=ids))
        return
    half = len(handles) // 2 or 1
    cut = sum(counts[:half])
    if half == len(handles):
        yield from _split_row(handles[0], firsts[0], ids)
        return
    yield from _token_frames(handles[:half], firsts[:half], counts[:half], ids[:cut])
    yield from _token_frames(handles[half:], firsts[half:], counts[half:], ids[cut:])


def _split_row(handle: int, first: int, ids: list[int]) -> Iterator[pb.ToDetok]:
    for at in range(0, len(ids), _IDS_PER_FRAME - 1):
        part = ids[at : at + _IDS_PER_FRAME - 1]
        yield pb.ToDetok(tokens=pb.Tokens(handle=[handle], first_position=[first + at], count=[len(part)], token_ids=part))
