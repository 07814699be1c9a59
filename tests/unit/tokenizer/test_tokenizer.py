"""Encoding equals the libraries' own, whole and unshortened."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import sentencepiece

from services.common.text.errors import TokenizerUnavailable
from services.common.text.tokenizer_files import find_tokenizer
from services.tokenizer.model import load_model
from services.tokenizer.tokenizer import load_tokenizer
from tests.unit.text.tokenizers_fixture import specs, write_folder


def test_truncation_and_padding_settings_are_not_obeyed(tmp_path: Path) -> None:
    spec = specs()["byte_level"]
    spec["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    spec["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "!"
    }  # fmt: skip
    tokenizer = load_tokenizer(find_tokenizer(write_folder(tmp_path, spec)))
    assert [len(ids) for ids in tokenizer.encode_batch(["abcdef", "a"], add_special=True)] == [6, 1]


def test_batches_equal_single_encodes(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(find_tokenizer(write_folder(tmp_path, specs()["byte_level"])))
    texts = ["a b", "", "é<s>東", "x" * 1000]
    assert tokenizer.encode_batch(texts, add_special=True) == [tokenizer.encode_batch([t], add_special=True)[0] for t in texts]
    assert tokenizer.token_id("<s>") == tokenizer.encode_batch(["<s>"], add_special=False)[0][0]
    assert tokenizer.token_id("absent") is None


@pytest.fixture(scope="module")
def spm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the head of water drives the wheel"] * 20),
        model_writer=trained,
        vocab_size=310,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    folder = tmp_path_factory.mktemp("spm")
    (folder / "tokenizer.model").write_bytes(trained.getvalue())
    return folder


def test_sentencepiece_with_control_tokens_in_the_text(spm_folder: Path) -> None:
    tokenizer = load_tokenizer(find_tokenizer(spm_folder))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(spm_folder / "tokenizer.model"))
    water = processor.encode("water")
    assert tokenizer.encode_batch(["water"], add_special=True) == [[processor.bos_id(), *water]]
    assert tokenizer.encode_batch(["<s>water</s>"], add_special=False) == [[processor.bos_id(), *water, processor.eos_id()]]
    assert tokenizer.token_id("</s>") == processor.eos_id()
    assert tokenizer.token_id("absent") is None


def test_what_a_folder_says_of_its_model(tmp_path: Path) -> None:
    write_folder(tmp_path, specs()["llama"])
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "top_k": None, "eos_token_id": [268, 5], "x": 1}))
    model = load_model(str(tmp_path), name="m", chat_template=None)
    assert json.loads(model.generation_defaults_json) == {"temperature": 0.6}
    assert model.special_tokens["<tool>"] == model.tokenizer.token_id("<tool>")
    assert model.bos_token_id == model.tokenizer.token_id("<s>")
    assert model.eos_token_ids == (268, 5)
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    plain = load_model(str(tmp_path), name="m", chat_template=None)
    assert plain.eos_token_ids == (7, plain.tokenizer.token_id("</s>"))
    assert plain.generation_defaults_json == ""


def test_a_broken_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerUnavailable, match=r"tokenizer\.json"):
        load_tokenizer(find_tokenizer(tmp_path))
