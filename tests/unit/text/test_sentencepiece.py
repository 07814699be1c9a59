"""The byte table of a sentencepiece model agrees with sentencepiece's own decoding."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.text.errors import TokenizerUnavailable
from services.common.text.token_bytes import OutputBytes
from services.common.text.tokenizer_files import find_tokenizer, load_token_bytes

CORPUS = ["the head of water drives the wheel", "tokens arrive and the wheel turns", "a wheel, a race, a head"] * 20


@pytest.fixture(scope="module", params=[True, False], ids=["dummy_prefix", "no_prefix"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=trained,
        vocab_size=330,
        model_type="bpe",
        byte_fallback=True,
        add_dummy_prefix=request.param,
        user_defined_symbols=["<tool>"],
        minloglevel=2,
    )
    folder: Path = tmp_path_factory.mktemp("spm")
    (folder / "tokenizer.model").write_bytes(trained.getvalue())
    files = find_tokenizer(folder)
    assert files.is_sentencepiece
    return sentencepiece.SentencePieceProcessor(model_file=str(files.vocabulary)), load_token_bytes(files)


@given(data=st.data())
@settings(max_examples=600, deadline=None)
def test_equals_sentencepiece(model: tuple[Any, Any], data: st.DataObject) -> None:
    processor, table = model
    ids = [i for i in data.draw(st.lists(st.integers(0, table.vocab_size - 1), max_size=8)) if not processor.is_unknown(i)]
    output = OutputBytes(table)
    ours = b"".join(output.piece(i) for i in ids)
    if ours.decode(errors="replace").encode() == ours:
        assert ours.decode() == processor.decode(ids)


def test_text_survives_a_round_trip(model: tuple[Any, Any]) -> None:
    processor, table = model
    for text in ("the wheel turns", "naïve 🐈‍⬛ 東京", "x"):
        output = OutputBytes(table)
        assert b"".join(output.piece(i) for i in processor.encode(text)).decode() == text


def test_a_broken_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(TokenizerUnavailable, match=r"tokenizer\.model"):
        load_token_bytes(find_tokenizer(tmp_path))
