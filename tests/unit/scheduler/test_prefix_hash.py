"""Prefix hashes are part of the contract: the vectors of protos/README.md, and every kind of input alike."""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.common.prefix_hash import block_hashes, root_hash

README = Path(__file__).parents[3] / "protos" / "README.md"


def test_golden_vectors() -> None:
    plain = root_hash("")
    named = root_hash("model-a", b"\x01\x02", b"salt", "tenant")
    vectors = [plain, *block_hashes(plain, range(33)), named, *block_hashes(named, [0xFFFFFFFF] * 16)]
    expected = ["d0a66a65c7528968", "f3fb9ddf273e0dad", "ed4a5123a7bd02ad", "860b5b7eb10d8995", "e1bd23fb9c75395a"]
    assert [f"{vector:016x}" for vector in vectors] == expected
    text = README.read_text()
    assert all(f"`{vector}`" in text for vector in expected)


def test_lengths_keep_the_parts_of_a_namespace_apart() -> None:
    roots = [root_hash("ab", b"c"), root_hash("a", b"bc"), root_hash("a", b"", b"bc"), root_hash("a", b"", b"b", "c"), root_hash("abc")]
    assert len(set(roots)) == len(roots)


@given(ids=st.lists(st.integers(0, 2**31 - 1), max_size=80), cut=st.integers(0, 5))
def test_inputs_are_equivalent_and_hashes_chain(ids: list[int], cut: int) -> None:
    whole = block_hashes(9, ids)
    assert len(whole) == len(ids) // 16
    for same in (tuple(ids), array("I", ids), np.array(ids, np.int32), np.array(ids, np.int64), np.array([ids, ids], np.int32).T[:, 0]):
        assert block_hashes(9, same) == whole
    done = min(cut, len(whole))
    assert block_hashes(whole[done - 1] if done else 9, ids[16 * done :]) == whole[done:]
