"""Contract messages to plain values and back; nothing else here knows the stubs' fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protos.detokenizer.v1 import detokenizer_pb2 as pb
from services.common.errors import HeadraceError
from services.detokenizer.texts import Due, OpenSpec

_BUDGET_BYTES = 56 * 1024  # raw bytes of a frame; as text they may triple, and a frame stays under 256 KiB
_ROW_BYTES = 24
_PIECE_BYTES = 4


def open_spec(message: pb.Open) -> OpenSpec:
    """The plain value of an Open."""
    return OpenSpec(
        handle=message.handle,
        context_ids=tuple(message.context_ids),
        prior_output_ids=tuple(message.prior_output_ids),
        total_prior_tokens=message.total_prior_tokens,
        delivered_bytes=message.delivered_bytes,
        skip_special=message.skip_special_tokens,
        keep_special_ids=tuple(message.keep_special_ids),
        spaces_between_special=message.spaces_between_special,
        stop_strings=tuple(message.stop_strings),
        stop_regexes=tuple(message.stop_regexes),
        keep_stop=message.keep_stop,
        want_pieces=message.want_pieces,
        tokenizer_digest=message.tokenizer_digest,
    )


class FrameBuilder:
    """Collects rows into frames, none of which outgrows the contract's limit."""

    def __init__(self) -> None:
        self._frames: list[pb.FromDetok] = []
        self._clear()

    def _clear(self) -> None:
        self._handles: list[int] = []
        self._texts: list[str] = []
        self._through: list[int] = []
        self._ends: list[int] = []
        self._holding: list[bool] = []
        self._pieces: list[pb.TokenPieces] = []
        self._closed: list[pb.Closed] = []
        self._size = 0

    def add(self, due: Due) -> None:
        """Add what one handle has to say. The last text goes into Closed, unless token pieces go with it."""
        taken, text = due.taken, due.text
        self._room_for(taken.raw_bytes + _ROW_BYTES + sum(map(len, taken.pieces)) + _PIECE_BYTES * len(taken.pieces))
        tail = taken.text
        if not due.closed or taken.pieces:
            if taken.pieces:
                row = len(self._handles)
                self._pieces.append(pb.TokenPieces(row=row, first_position=taken.first_piece, pieces=taken.pieces))
            self._handles.append(due.handle)
            self._texts.append(taken.text)
            self._through.append(text.through)
            self._ends.append(text.end_byte)
            self._holding.append(text.holding)
            tail = ""
        if due.closed:
            self._closed.append(
                pb.Closed(handle=due.handle, tail=tail, total_bytes=text.end_byte, through_position=text.position)
            )

    def _room_for(self, size: int) -> None:
        if self._size and self._size + size > _BUDGET_BYTES:
            self._finish_frame()
        self._size += size

    def _finish_frame(self) -> None:
        frame = pb.FromDetok(closed=self._closed)
        if self._handles:
            frame.text.CopyFrom(
                pb.Text(
                    handle=self._handles,
                    piece=self._texts,
                    through_position=self._through,
                    end_byte=self._ends,
                    holding=self._holding,
                    token_pieces=self._pieces,
                )
            )
        self._frames.append(frame)
        self._clear()

    def frames(self) -> list[pb.FromDetok]:
        """All frames, in order."""
        if self._size:
            self._finish_frame()
        frames, self._frames = self._frames, []
        return frames


def failed_frames(failed: Iterable[tuple[int, HeadraceError]]) -> Iterator[pb.FromDetok]:
    """One frame per failed handle."""
    for handle, error in failed:
        yield pb.FromDetok(failed=[pb.Failed(handle=handle, error=error.to_proto())])


def pieces_frames(query: pb.PieceQuery, pieces: list[bytes]) -> Iterator[pb.FromDetok]:
    """The answer to a query; a large one in several frames with the same query id."""
    part: list[bytes] = []
    size = 0
    for piece in pieces:
        if part and size + len(piece) > _BUDGET_BYTES:
            yield pb.FromDetok(pieces=[pb.Pieces(handle=query.handle, query_id=query.query_id, pieces=part)])
            part, size = [], 0
        part.append(piece)
        size += len(piece) + _PIECE_BYTES
    yield pb.FromDetok(pieces=[pb.Pieces(handle=query.handle, query_id=query.query_id, pieces=part)])
