"""HTTP/2 frames and header blocks as bytes, as far as a gRPC client needs them (RFC 9113, RFC 7541)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
DEFAULT_WINDOW = 65_535
LARGEST_WINDOW = (1 << 31) - 1
DEFAULT_FRAME = 16_384

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20


class Setting(IntEnum):
    """Settings by their number."""

    ENABLE_PUSH = 2
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5


class ErrorCode(IntEnum):
    """Why a stream or a connection is ended."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


_HEAD = struct.Struct(">BHBBI")
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")


def head(length: int, kind: int, flags: int, stream: int) -> bytes:
    """The nine bytes before a frame's payload."""
    return _HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def read_head(data: bytes | bytearray, at: int) -> tuple[int, int, int, int]:
    """(length, kind, flags, stream) of the frame that begins at `at`."""
    high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
    return high << 16 | low, kind, flags, stream & LARGEST_WINDOW


def settings(values: Mapping[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    payload = b"".join([_SETTING.pack(number, value) for number, value in values.items()])
    return head(len(payload), SETTINGS, 0, 0) + payload


def read_settings(payload: bytes) -> dict[int, int]:
    """Settings by number. Raises struct.error where the length is wrong."""
    return dict(_SETTING.iter_unpack(payload))


def window_update(stream: int, credit: int) -> bytes:
    """Allow the peer `credit` more bytes, on a stream or, with stream 0, on the connection."""
    return head(4, WINDOW_UPDATE, 0, stream) + _NUMBER.pack(credit)


def reset(stream: int, code: ErrorCode) -> bytes:
    """End a stream."""
    return head(4, RST_STREAM, 0, stream) + _NUMBER.pack(code)


def read_number(payload: bytes, at: int = 0) -> int:
    """The 31 bits of a window credit, error code or stream number. Raises struct.error where it is cut off."""
    number: int = _NUMBER.unpack_from(payload, at)[0]
    return number & LARGEST_WINDOW


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding and priority. Raises IndexError where they do not fit."""
    begin, end = 0, len(payload)
    if flags & PADDED:
        begin, end = 1, end - payload[0]
    if flags & PRIORITY:
        begin += 5
    if begin > end:
        raise IndexError("padding is longer than the frame")
    return payload[begin:end]


def header_block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Headers spelled out in full, so that a block means the same on every connection and may be kept."""
    return b"".join([b"\x00" + _literal(name) + _literal(value) for name, value in pairs])


def _literal(text: str) -> bytes:
    raw = text.encode()
    size = len(raw)
    if size < 127:
        return bytes((size,)) + raw
    prefix, rest = bytearray((127,)), size - 127
    while rest >= 128:
        prefix.append(rest & 127 | 128)
        rest >>= 7
    prefix.append(rest)
    return bytes(prefix) + raw
