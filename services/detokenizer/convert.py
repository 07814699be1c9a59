"""Contract messages to plain values and back; nothing else here knows the stubs' fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protos.detokenizer.v1 import detokenizer_pb2 as pb
from services.common.errors import HeadraceError
from services.detokenizer.incremental import ChoiceText
from services.detokenizer.texts import OpenSpec

_BUDGET_BYTES = 56 * 1024  # raw bytes of a frame; as text they may triple, and a frame stays under 256 KiB
_PART_BYTES = 24 * 1024
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
        self.raw_bytes = 0
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

    def text(self, handle: int, piece: str, raw_bytes: int, text: ChoiceText) -> None:
        """Add new text of a handle."""
        self._room_for(raw_bytes + _ROW_BYTES)
        self.raw_bytes += raw_bytes
        self._handles.append(handle)
        self._texts.append(piece)
        self._through.append(text.through)
        self._ends.append(text.end_byte)
        self._holding.append(text.holding)

    def pieces(self, handle: int, first_position: int, pieces: list[bytes]) -> None:
        """Add the bytes of tokens to the handle's row, which was added last; many continue in rows without text."""
        for part in _parts(pieces):
            size = _size_of(part)
            if self._size + size > _BUDGET_BYTES:
                self._repeat_row_in_next_frame()
            self._size += size
            self._pieces.append(pb.TokenPieces(row=len(self._handles) - 1, first_position=first_position, pieces=part))
            first_position += len(part)

    def _repeat_row_in_next_frame(self) -> None:
        row = self._handles[-1], self._through[-1], self._ends[-1], self._holding[-1]
        self._finish_frame()
        self._size = _ROW_BYTES
        self._handles, self._texts = [row[0]], [""]
        self._through, self._ends, self._holding = [row[1]], [row[2]], [row[3]]

    def closed(self, handle: int, tail: str, text: ChoiceText) -> None:
        """Add the end of a handle."""
        self._room_for(len(tail) + _ROW_BYTES)
        self._closed.append(pb.Closed(handle=handle, tail=tail, total_bytes=text.end_byte, through_position=text.position))

    def _room_for(self, size: int) -> None:
        if self._size and self._size + size > _BUDGET_BYTES:
            self._finish_frame()
        self._size += size

    def _finish_frame(self) -> None:
        frame = pb.FromDetok(closed=self._closed)
        if self._handles:
            text = frame.text
            text.handle.extend(self._handles)
            text.piece.extend(self._texts)
            text.through_position.extend(self._through)
            text.end_byte.extend(self._ends)
            text.holding.extend(self._holding)
            text.token_pieces.extend(self._pieces)
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
    for part in _parts(pieces) if pieces else [pieces]:
        yield pb.FromDetok(pieces=[pb.Pieces(handle=query.handle, query_id=query.query_id, pieces=part)])


def _size_of(pieces: list[bytes]) -> int:
    return sum(map(len, pieces)) + _PIECE_BYTES * len(pieces)


def _parts(pieces: list[bytes]) -> Iterator[list[bytes]]:
    """Pieces in groups that fit beside text."""
    part: list[bytes] = []
    size = 0
    for piece in pieces:
        size += len(piece) + _PIECE_BYTES
        if part and size > _PART_BYTES:
            yield part
            part, size = [], len(piece) + _PIECE_BYTES
        part.append(piece)
    if part:
        yield part
