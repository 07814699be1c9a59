"""The byte table agrees with the tokenizers library's own decoding, for every decoder family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from services.common.text.errors import TokenizerUnavailable, UnsupportedTokenizer
from services.common.text.token_bytes import OutputBytes, TokenBytes
from services.common.text.tokenizer_files import find_tokenizer, load_token_bytes, tokenizer_digest
from tests.unit.text.tokenizers_fixture import BYTE_TOKENS, specs, write_folder

FAMILIES = sorted(specs())


class Both:
    """One tokenizer as the library sees it and as the byte table does."""

    def __init__(self, folder: Path, name: str) -> None:
        self.spec: dict[str, Any] = specs()[name]
        write_folder(folder, self.spec)
        self.library = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.table = load_token_bytes(find_tokenizer(folder))
        self.byte_ids = [self.spec["model"]["vocab"][t] for t in BYTE_TOKENS if t in self.spec["model"]["vocab"]]

    def id_of(self, token: str) -> int:
        found = self.library.token_to_id(token)
        assert found is not None
        return found

    def text(self, ids: list[int], *, skip: bool) -> bytes:
        output = OutputBytes(self.table, skip_special=skip)
        return b"".join(output.piece(i) for i in ids)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    return {name: Both(tmp_path_factory.mktemp(name), name) for name in FAMILIES}


@given(data=st.data(), name=st.sampled_from(FAMILIES), skip=st.booleans())
@settings(max_examples=1500, deadline=None)
def test_equals_the_library(tokenizers: dict[str, Both], data: st.DataObject, name: str, skip: bool) -> None:
    both = tokenizers[name]
    ids = data.draw(st.lists(st.integers(0, both.table.vocab_size + 3), max_size=8))
    ours = both.text(ids, skip=skip)
    valid = ours.decode(errors="replace").encode() == ours
    if valid or not both.byte_ids:  # byte fallback replaces invalid runs byte by byte; the table keeps the bytes
        assert ours.decode(errors="replace") == both.library.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_single_id(tokenizers: dict[str, Both], name: str) -> None:
    both = tokenizers[name]
    for token_id in range(both.table.vocab_size):
        for skip in (True, False):
            ours = both.text([token_id], skip=skip)
            assert ours.decode(errors="replace") == both.library.decode([token_id], skip_special_tokens=skip)


def _output(table: TokenBytes, ids: list[int], **options: Any) -> bytes:
    output = OutputBytes(table, **options)
    return b"".join(output.piece(i) for i in ids)


def test_the_leading_space_goes_only_at_the_start_of_a_text(tokenizers: dict[str, Both]) -> None:
    both = tokenizers["llama"]
    word, bos = both.id_of("▁a"), both.id_of("<s>")
    assert _output(both.table, [word, word]) == b"a a"
    assert _output(both.table, [bos, word, word]) == b"a a"
    assert _output(both.table, [word], context_ids=[bos]) == b"a"
    assert _output(both.table, [word], context_ids=[bos, word]) == b" a"


def test_spaces_between_special_and_kept_ids(tokenizers: dict[str, Both]) -> None:
    both = tokenizers["gemma"]
    a, bos, tool, think = (both.id_of(t) for t in ("a", "<s>", "<tool>", "<think>"))
    ids = [a, bos, tool, a, a, think]
    assert _output(both.table, ids, skip_special=False, spaces_between_special=True) == b"a <s> <tool> aa <think>"
    assert _output(both.table, ids, skip_special=False) == b"a<s><tool>aa<think>"
    assert _output(both.table, ids, keep_special_ids=[tool]) == b"a<tool>aa<think>"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_plain_table_says_the_same(tokenizers: dict[str, Both], name: str) -> None:
    table = tokenizers[name].table
    for skip in (True, False):
        output = OutputBytes(table, context_ids=[0], skip_special=skip)
        assert output.table is not None
        assert list(output.table) == [output.piece(i) for i in range(table.vocab_size)]
    chosen = OutputBytes(table, context_ids=[0], keep_special_ids=[min(table.special_ids)])
    assert chosen.table is None
    if table.start_pieces:
        assert OutputBytes(table).table is None


def test_decoders_that_look_ahead_are_refused_by_name(tmp_path: Path) -> None:
    spec = {**specs()["gemma"], "decoder": {"type": "BPEDecoder", "suffix": "</w>"}}
    with pytest.raises(UnsupportedTokenizer, match="BPEDecoder"):
        load_token_bytes(find_tokenizer(write_folder(tmp_path, spec)))


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerUnavailable, match="nowhere"):
        find_tokenizer(tmp_path / "nowhere")
    with pytest.raises(TokenizerUnavailable, match=r"neither tokenizer\.json nor"):
        find_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerUnavailable, match=r"tokenizer\.json"):
        load_token_bytes(find_tokenizer(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerUnavailable, match="model"):
        load_token_bytes(find_tokenizer(tmp_path))


def test_digest_follows_every_file_that_matters(tmp_path: Path) -> None:
    files = find_tokenizer(write_folder(tmp_path, specs()["llama"]))
    digests = [tokenizer_digest(files)]
    (tmp_path / "README.md").write_text("no part of the tokenizer")
    assert tokenizer_digest(files) == digests[0]
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    digests.append(tokenizer_digest(files))
    (tmp_path / "tokenizer.json").write_text(json.dumps(specs()["gemma"]))
    digests.append(tokenizer_digest(files))
    assert len(set(digests)) == 3
    assert all(len(digest) == 32 for digest in digests)
