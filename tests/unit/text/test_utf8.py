"""Decoding in pieces equals decoding at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.text.utf8 import decode_all, decode_ready

parts = st.sampled_from(
    [b"a", b"\xe6", b"\x9d", b"\xb1", b"\xf0", b"\x9f\x90", b"\x99", b"\xff", b"\xc0", b"\xed\xa0\x80", "東🐙é".encode()]
)


@given(st.lists(parts | st.binary(max_size=3), max_size=12))
@settings(max_examples=1000, deadline=None)
def test_pieces_join_to_the_whole(pieces: list[bytes]) -> None:
    text, pending = "", b""
    for piece in pieces:
        pending += piece
        ready, used = decode_ready(pending)
        pending = pending[used:]
        assert len(pending) <= 3
        text += ready
    assert text + decode_all(pending) == b"".join(pieces).decode(errors="replace")


def test_maximal_parts() -> None:
    assert decode_all(b"\xf0\x9f\x90 \xe6\x9d\xff") == "\ufffd \ufffd\ufffd"
    assert decode_ready(b"\xf0\x9f\x90") == ("", 0)
