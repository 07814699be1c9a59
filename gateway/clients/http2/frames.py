"""Frames as bytes (RFC 9113, 4.1 and 6), as far as the streams of gRPC calls need them."""

from __future__ import annotations

from collections.abc import Iterator

from h2.exceptions import ProtocolError

HEAD_BYTES = 9
LARGEST_FRAME = 1 << 20
MOST_WINDOW = (1 << 31) - 1


class Kind:
    """Frame types that belong to streams; WINDOW_UPDATE to the connection as well. Plain numbers: an enum's cost more than a frame."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    WINDOW_UPDATE = 8
    CONTINUATION = 9

    ALL = frozenset((DATA, HEADERS, RST_STREAM, WINDOW_UPDATE, CONTINUATION))


class Flag:
    """Flags of these frames."""

    END_STREAM = 0x01
    END_HEADERS = 0x04
    PADDED = 0x08
    PRIORITY = 0x20


def frame(kind: int, stream: int, payload: bytes | bytearray, flags: int = 0) -> bytes:
    """A frame on the wire."""
    return b"".join((len(payload).to_bytes(3), bytes((kind, flags)), stream.to_bytes(4), payload))


class FrameReader:
    """Cuts what arrives into frames."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Whole frames, heads included; a partial one waits for its rest. Raises ProtocolError for one that is too large."""
        if self._partial:
            data = self._partial + data
        at, size = 0, len(data)
        while size - at >= HEAD_BYTES:
            length = int.from_bytes(data[at : at + 3])
            if length > LARGEST_FRAME:
                raise ProtocolError(f"a frame of {length} bytes")
            end = at + HEAD_BYTES + length
            if end > size:
                break
            yield data[at:end]
            at = end
        self._partial = data[at:]


def without_padding(payload: bytes, flags: int) -> bytes:
    """What a DATA or HEADERS frame carries. Raises ProtocolError."""
    start = end = 0
    if flags & Flag.PADDED:
        start, end = 1, payload[0] if payload else 1
    if flags & Flag.PRIORITY:
        start += 5
    if start + end > len(payload):
        raise ProtocolError("a frame with more padding than it has room for")
    return payload[start : len(payload) - end]


def number(payload: bytes) -> int:
    """The one number of a RST_STREAM or WINDOW_UPDATE frame. Raises ProtocolError."""
    if len(payload) != 4:
        raise ProtocolError("a frame of the wrong size")
    return int.from_bytes(payload)
