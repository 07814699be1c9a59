"""Names for prefixes of token sequences, equal in every process.

A block is `BLOCK_SIZE` tokens as little-endian uint32; its hash is xxh3_64(parent hash, little-endian ‖ block).
The first block's parent is the root of its namespace: xxh3_64 over model digest, adapter digest, cache salt and
extra key, each preceded by its length in bytes as little-endian uint32. Golden vectors are in `protos/README.md`.
A collision may misroute a request; it never changes an answer.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from struct import Struct, iter_unpack
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BLOCK_SIZE = 16
_LENGTH = Struct("<I")


def root_hash(model_digest: str | bytes, adapter_digest: str | bytes = b"", cache_salt: bytes = b"", extra_key: str | bytes = "") -> int:
    """Parent of the first block of every prompt in this namespace, as an unsigned 64 bit number."""
    parts = []
    for part in (model_digest, adapter_digest, cache_salt, extra_key):
        raw = part.encode() if isinstance(part, str) else bytes(part)
        parts += [_LENGTH.pack(len(raw)), raw]
    return int(xxh3_64_intdigest(b"".join(parts)))


def block_hashes(parent: int, token_ids: Sequence[int] | npt.NDArray[np.integer[Any]], block_size: int = BLOCK_SIZE) -> list[int]:
    """Hashes of the complete blocks of `token_ids`, of which the first follows `parent`.

    A tail shorter than a block has no hash. Ids are in [0, 2**32); lists and NumPy integer arrays are fastest.
    """
    raw, width, digest = _little_endian(token_ids), 4 * block_size, xxh3_64_intdigest
    whole, joined = raw[: len(raw) // width * width], Struct(f"<Q{width}s").pack
    return [parent := digest(joined(parent, block)) for (block,) in iter_unpack(f"{width}s", whole)]


def _little_endian(token_ids: Sequence[int] | npt.NDArray[np.integer[Any]]) -> bytes:
    to_type = getattr(token_ids, "astype", None)  # asking for an abstract base class takes longer than hashing a block
    if to_type is not None:
        return bytes(to_type("<u4", copy=False).tobytes())
    ids = array("I", token_ids)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()
