"""The text of one choice as it grows: ids in, whole characters out, nothing shown that a stop may take back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from services.common.errors import InvalidRequest
from services.common.text.token_bytes import OutputBytes, TokenBytes
from services.common.text.utf8 import decode_all, decode_ready
from services.detokenizer.hold_back import HoldBack

MOST_BYTES_AT_ONCE = 48 * 1024
"""Raw bytes that one `take` returns at most; as text they are at most three times as many."""


class ChoiceText:
    """Text of one choice. Output positions and bytes count from the choice's first token, prior output included.

    `position` ids were received; text up to `end_byte` of the raw output was taken, which covers `through` ids. `more`
    says that the last `take` left something that could have been taken.
    """

    __slots__ = (
        "_buffer",
        "_cap",
        "_ends",
        "_hold",
        "_output",
        "_pieces",
        "_starts_text",
        "_table",
        "_tokens",
        "closing",
        "end_byte",
        "more",
        "position",
        "through",
    )

    def __init__(
        self, tokens: TokenBytes, output: OutputBytes, hold: HoldBack | None, *, want_pieces: bool = False, starts_text: bool = False
    ) -> None:
        self._tokens = tokens
        self._output = output
        self._hold = hold
        self._table = output.table if hold is None else None  # for ids whose bytes do not depend on their place
        self._buffer = bytearray()  # raw output from end_byte on
        self._ends: deque[int] = deque()  # where each id from `through` on ends in the raw output
        self._pieces: deque[bytes] | None = deque() if want_pieces else None
        self._cap: int | None = None  # raw output ends here; known once closing
        self._starts_text = starts_text
        self.closing = False
        self.more = False
        self.end_byte = 0
        self.position = 0
        self.through = 0

    def push(self, ids: Sequence[int]) -> None:
        """Take the next output ids."""
        buffer, end, add_end = self._buffer, self.end_byte, self._ends.append
        table = self._table
        if table is not None and max(ids, default=0) < len(table):
            for token_id in ids:
                buffer += table[token_id]
                add_end(end + len(buffer))
        else:
            hold, piece_of = self._hold, self._output.piece
            for token_id in ids:
                piece = piece_of(token_id)
                buffer += piece
                add_end(end + len(buffer))
                if hold is not None and piece:
                    hold.feed(piece)
            self._table = self._output.table if hold is None else None
        if self._pieces is not None:
            self._add_pieces(self._pieces, ids)
        self.position += len(ids)

    def _add_pieces(self, pieces: deque[bytes], ids: Sequence[int]) -> None:
        starts = self._starts_text and self.position == 0
        pieces.extend([self._tokens.piece(token_id, at_start=starts and not at) for at, token_id in enumerate(ids)])

    def skip_delivered(self, delivered_bytes: int) -> None:
        """After a resume: the first bytes were shown by an earlier detokenizer. Raises InvalidRequest beyond the output."""
        if delivered_bytes > len(self._buffer):
            raise InvalidRequest(
                f"delivered_bytes: {delivered_bytes} bytes were delivered, but the prior output has {len(self._buffer)}",
                field="delivered_bytes",
            )
        self._consume(delivered_bytes)

    def close(self, *, flush: bool, keep_bytes: int | None) -> None:
        """No more ids come. What is left to take ends at `keep_bytes`, or is nothing without `flush`."""
        self.closing = True
        end = self.end_byte + len(self._buffer)
        if not flush:
            self._cap = self.end_byte
        elif keep_bytes is None:
            self._cap = end
        else:
            self._cap = max(self.end_byte, min(end, self._hold.end_for(keep_bytes) if self._hold is not None else keep_bytes))

    @property
    def holding(self) -> bool:
        """Whether received bytes have not been taken, as part of a character or of a possible stop."""
        return bool(self._buffer)

    @property
    def waiting_bytes(self) -> int:
        """Raw bytes received and not taken."""
        return len(self._buffer)

    @property
    def finished(self) -> bool:
        """Closed, and everything was taken."""
        return self._cap is not None and self.end_byte >= self._cap

    def take(self) -> str:
        """Text that may be shown; a long one in several calls. Once closing, the last character may be incomplete."""
        buffer = self._buffer
        allowed = self._allowed() if self._hold is not None or self.closing else len(buffer)
        self.more = allowed > MOST_BYTES_AT_ONCE
        if self.more:
            text, used = decode_ready(bytes(buffer[:MOST_BYTES_AT_ONCE]))
        elif self.closing:
            text, used = decode_all(bytes(buffer[:allowed])), allowed
        elif allowed == len(buffer):
            text, used = decode_ready(buffer)
        else:
            text, used = decode_ready(bytes(buffer[:allowed])) if allowed else ("", 0)
        if used == len(buffer):
            self.end_byte += used
            buffer.clear()
            self._ends.clear()
            self.through = self.position
        else:
            self._consume(used)
        return text

    def take_pieces(self) -> list[bytes]:
        """Pieces of the ids that the text taken since the last call completes; after the end, of all ids."""
        if self._pieces is None:
            return []
        covered = self.position if self.finished else self.through
        return [self._pieces.popleft() for _ in range(covered - (self.position - len(self._pieces)))]

    def _allowed(self) -> int:
        """Bytes of the buffer that may be shown."""
        if self._cap is not None:
            return self._cap - self.end_byte
        if self._hold is None:
            return len(self._buffer)
        return max(0, self._hold.shown_to - self.end_byte)

    def _consume(self, count: int) -> None:
        self.end_byte += count
        del self._buffer[:count]
        ends = self._ends
        while ends and ends[0] <= self.end_byte:
            ends.popleft()
        self.through = self.position - len(ends)
