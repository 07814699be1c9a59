"""Constraints through the worker program: obeyed, refused at the door, cancelled while they are compiled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.worker_client import Worker, submit, worker

_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def save_model(folder: Path) -> None:
    """A tiny random model whose tokens are bytes; id 256 ends the text."""
    vocabulary = {piece: index for index, piece in enumerate(_ALPHABET)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 257,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "eos_token_id": 256,
    }
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Worker]:
    save_model(tmp_path)
    async with worker("--model-path", str(tmp_path), "--load-format", "dummy", "--max-total-tokens", "4k") as running:
        yield running


def _constrained(handle: int, constraint: pb.Constraint, max_new: int = 100) -> pb.Submit:
    sampling = pb.Sampling(temperature=1.0)
    return submit(handle, [5, 6, 7], max_new, constraint=constraint, sampling=sampling)


def text_of(ids: list[int]) -> str:
    """What the ids spell; the end is nothing."""
    by_character = {character: byte for byte, character in _byte_characters().items()}
    return bytes(by_character[_ALPHABET[i]] for i in ids if i < 256).decode()


def _byte_characters() -> dict[int, str]:
    """The printable stand-in of every byte in byte-level tokenizers."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in visible}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(visible))
    return table


async def test_constraints_are_obeyed_beside_free_requests(found: Worker) -> None:
    schema = '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}'
    async with found.session() as session:
        requests = [
            _constrained(1, pb.Constraint(regex="[0-9]{4}-[0-9]{2}")),
            submit(2, [5, 6, 7], 20),
            _constrained(3, pb.Constraint(json_schema=schema)),
            _constrained(4, pb.Constraint(regex="naïve 🐈")),
        ]
        await session.send(submit=requests)
        await session.until_final(1, 2, 3, 4)
        assert len(text_of(session.rows[1].ids)) == 7
        assert isinstance(json.loads(text_of(session.rows[3].ids))["ok"], bool)
        assert text_of(session.rows[4].ids) == "naïve 🐈"
        assert session.rows[1].ended.reason in (pb.FINISH_REASON_STOP, pb.FINISH_REASON_GRAMMAR_END)


_WRONG = [
    pb.Constraint(),
    pb.Constraint(regex="foo**"),
    pb.Constraint(regex="("),
    pb.Constraint(json_schema='{"type": "strng"}'),
    pb.Constraint(json_schema='"oops"'),
    pb.Constraint(json_schema='{"$ref": "#/nope"}'),
    pb.Constraint(ebnf="root ::= ("),
]


async def test_wrong_constraints_are_refused_before_they_are_accepted(found: Worker) -> None:
    async with found.session() as session:
        for handle, constraint in enumerate(_WRONG, 1):
            await session.send(submit=[_constrained(handle, constraint), submit(100 + handle, [5, 6], 30)])
            await session.until_final(handle, 100 + handle)
            assert session.rows[handle].said == ["final"]
            assert session.rows[handle].ended.error.code == 3
            assert session.rows[handle].ended.error.field
            assert not session.rows[100 + handle].ended.HasField("error")


async def test_a_cancel_while_the_constraint_is_looked_at(found: Worker) -> None:
    async with found.session() as session:
        await session.send(submit=[_constrained(1, pb.Constraint(regex="a+"))])
        await session.send(cancel=[pb.Cancel(handle=1)])
        await session.until_final(1)
        assert session.rows[1].said.count("final") == 1
        await session.send(submit=[_constrained(2, pb.Constraint(regex="[ab]{3}"))])
        await session.until_final(2)
        assert len(text_of(session.rows[2].ids)) == 3
