"""The whole step: against transformers, and the same bits in any batch, chunking and cache state."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from services.scheduler.kernels.cpu_decoder import CpuDecoder
from services.scheduler.kernels.decoder_spec import DecoderSpec
from services.scheduler.kernels.errors import UnsupportedShape

_CONTEXT, _SLOTS, _VOCAB = 256, 4000, 331
_SHAPE: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "vocab_size": _VOCAB,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": _CONTEXT,
}
_MODELS: dict[str, Any] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_SHAPE, tie_word_embeddings=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**{**_SHAPE, "hidden_size": 192})),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**_SHAPE)),
}
_KINDS = [(torch.float32, "none"), (torch.bfloat16, "none"), (torch.bfloat16, "int8")]


def ints(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def model(name: str) -> Any:
    torch.manual_seed(5)
    made: Any = _MODELS[name]().eval().float()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    return made


def decoder(name: str, isa: str, dtype: torch.dtype, quantization: str, threads: int = 2) -> CpuDecoder:
    made = model(name)
    config = made.config
    spec = DecoderSpec(
        num_layers=2,
        hidden=config.hidden_size,
        num_heads=6,
        num_kv_heads=2,
        head_dim=32,
        intermediate=160,
        vocab=_VOCAB,
        rms_eps=config.rms_norm_eps,
        rope_theta=config.rope_parameters["rope_theta"],
        max_context=_CONTEXT,
        tie_embeddings=config.tie_word_embeddings,
        qkv_bias=name == "qwen2",
        qk_norm=name == "qwen3",
    )
    weights = {k: v.detach() for k, v in made.named_parameters()}
    return CpuDecoder(spec, weights, dtype=dtype, quantization=quantization, num_threads=threads, num_slots=_SLOTS, isa=isa)


class Sequences:
    """Random prompts with scattered slots, advanced on a decoder in any way."""

    def __init__(self, lengths: list[int], seed: int = 7) -> None:
        shuffle = random.Random(seed)
        self.ids = [[shuffle.randrange(_VOCAB) for _ in range(n)] for n in lengths]
        slots = list(range(1, _SLOTS + 1))
        shuffle.shuffle(slots)
        self.table = torch.zeros(len(lengths), _CONTEXT, dtype=torch.int32)
        for row, n in enumerate(lengths):
            self.table[row, :n] = ints([slots.pop() for _ in range(n)])

    def step(self, decoder: CpuDecoder, work: list[tuple[int, int, int]]) -> Iterator[torch.Tensor]:
        """Runs tokens [start, end) of each (sequence, start, end); gives each one's logits."""
        logits = self.forward(decoder, work, list(range(sum(end - start for _, start, end in work))))
        yield from torch.split(logits, [end - start for _, start, end in work])

    def forward(self, decoder: CpuDecoder, work: list[tuple[int, int, int]], wanted: list[int]) -> torch.Tensor:
        """As `step`, but the logits of the rows `wanted` of the flat batch, in that order."""
        ids = [t for row, start, end in work for t in self.ids[row][start:end]]
        positions = [p for _, start, end in work for p in range(start, end)]
        out_slots = torch.cat([self.table[row, start:end] for row, start, end in work])
        extends = [end - start for _, start, end in work]
        return decoder.forward(
            *(ints(ids), ints(positions), out_slots, ints([row for row, _, _ in work]), ints(extends)),
            *(ints([end for _, _, end in work]), self.table, ints(wanted)),
        )


def alone(name: str, isa: str, kind: tuple[torch.dtype, str], sequences: Sequences) -> list[torch.Tensor]:
    made = decoder(name, isa, *kind, threads=1)
    return [next(iter(sequences.step(made, [(row, 0, len(ids))]))) for row, ids in enumerate(sequences.ids)]


@pytest.mark.parametrize("name", list(_MODELS))
def test_float32_follows_transformers(isa: str, name: str) -> None:
    sequences = Sequences([70])
    with torch.no_grad():
        expected = model(name)(torch.tensor(sequences.ids)).logits[0]
    actual = alone(name, isa, (torch.float32, "none"), sequences)[0]
    assert (actual - expected).abs().max() < 2e-4 * expected.abs().max()


@pytest.mark.parametrize("kind", _KINDS[1:], ids=["bfloat16", "int8"])
def test_narrow_kinds_stay_near_float32(isa: str, kind: tuple[torch.dtype, str]) -> None:
    sequences = Sequences([70])
    wide = alone("llama", isa, (torch.float32, "none"), sequences)[0]
    narrow = alone("llama", isa, kind, sequences)[0]
    assert torch.nn.functional.cosine_similarity(wide, narrow).min() > 0.98
    assert (narrow - wide).square().mean().sqrt() < 0.06 * wide.std()


@pytest.mark.parametrize("kind", _KINDS, ids=["float32", "bfloat16", "int8"])
def test_bits_do_not_depend_on_batch_chunks_or_cache(isa: str, kind: tuple[torch.dtype, str]) -> None:
    shuffle = random.Random(11)
    lengths = [shuffle.choice([1, 2, 63, 64, 65, 90, 128, 150]) for _ in range(33)]
    sequences = Sequences(lengths)
    expected = alone("qwen3", isa, kind, sequences)
    made = decoder("qwen3", isa, *kind)
    for row, logits in enumerate(sequences.step(made, [(row, 0, n) for row, n in enumerate(lengths)])):
        assert torch.equal(logits, expected[row]), f"row {row} of a batch of {len(lengths)}"
    made.zero_slots(torch.arange(_SLOTS + 1, dtype=torch.int32))
    done = [0] * len(lengths)
    while any(done[row] < n for row, n in enumerate(lengths)):
        rows = [row for row, n in enumerate(lengths) if done[row] < n and shuffle.random() < 0.7]
        work = [(row, done[row], min(lengths[row], done[row] + shuffle.choice([1, 1, 3, 17, 40, 77]))) for row in rows]
        if not work:
            continue
        for (row, start, end), logits in zip(work, sequences.step(made, work), strict=True):
            assert torch.equal(logits, expected[row][start:end]), f"row {row}, tokens {start} to {end}"
            done[row] = end


@pytest.mark.parametrize("kind", _KINDS, ids=["float32", "bfloat16", "int8"])
def test_rows_without_logits_are_left_out_without_a_trace(isa: str, kind: tuple[torch.dtype, str]) -> None:
    """The last layer computes only what logits are wanted for, and still leaves keys and values for what follows."""
    shuffle = random.Random(13)
    lengths = [150, 1, 70, 33, 2, 200]
    sequences = Sequences(lengths)
    expected = alone("qwen3", isa, kind, sequences)
    made = decoder("qwen3", isa, *kind)
    first = [(row, 0, (n + 1) // 2) for row, n in enumerate(lengths)]
    second = [(row, (n + 1) // 2, n) for row, n in enumerate(lengths) if n > 1]
    for work in (first, second, [(5, 199, 200), (0, 149, 150), (2, 40, 70)]):
        flat = torch.cat([expected[row][start:end] for row, start, end in work])
        for count in (0, 1, 3, 40):
            wanted = shuffle.sample(range(len(flat)), min(count, len(flat)))
            assert torch.equal(sequences.forward(made, work, wanted), flat[wanted]), f"{count} of {len(flat)} rows"


def test_one_long_sequence_beside_short_ones_is_split_without_a_trace(isa: str) -> None:
    sequences = Sequences([250, 3, 4])
    kind = (torch.bfloat16, "none")
    expected = alone("llama", isa, kind, sequences)
    made = decoder("llama", isa, *kind)
    list(sequences.step(made, [(0, 0, 249), (1, 0, 2), (2, 0, 3)]))
    last = list(sequences.step(made, [(0, 249, 250), (1, 2, 3), (2, 3, 4)]))
    assert all(torch.equal(a[0], b[-1]) for a, b in zip(last, expected, strict=True))


def test_copied_slots_continue_like_the_originals(isa: str) -> None:
    sequences = Sequences([80])
    made = decoder("llama", isa, torch.bfloat16, "none")
    list(sequences.step(made, [(0, 0, 79)]))
    expected = next(iter(sequences.step(made, [(0, 79, 80)])))
    old = sequences.table[0, :79].clone()
    new = ints([s for s in range(1, _SLOTS + 1) if s not in set(sequences.table[0].tolist())][:79])
    made.copy_slots(old, new)
    assert torch.equal(made.read_kv(int(old[5]), 1), made.read_kv(int(new[5]), 1))
    made.zero_slots(old)
    assert not made.read_kv(int(old[5]), 1).any()
    sequences.table[0, :79] = new
    assert torch.equal(next(iter(sequences.step(made, [(0, 79, 80)]))), expected)


def test_a_chunk_may_ask_for_no_logits_and_a_step_may_be_empty(isa: str) -> None:
    made = decoder("llama", isa, torch.float32, "none")
    table = torch.arange(1, 11, dtype=torch.int32)[None]
    empty = ints([])
    out = made.forward(ints([1, 2]), ints([0, 1]), table[0, :2], ints([0]), ints([2]), ints([2]), table, empty)
    assert out.shape == (0, _VOCAB)
    assert made.read_kv(2, 1).any()
    assert made.forward(empty, empty, empty, empty, empty, empty, table, empty).shape == (0, _VOCAB)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("input_ids", {"ids": [_VOCAB]}),
        ("positions", {"positions": [_CONTEXT]}),
        ("out_slots", {"slots": [_SLOTS + 1]}),
        ("row_index", {"rows": [3]}),
        ("seq_lens", {"lengths": [11]}),
        ("extend_lens", {"extends": [2]}),
        ("logits_index", {"wanted": [1]}),
    ],
)
def test_values_that_do_not_fit_are_named(field: str, values: dict[str, list[int]]) -> None:
    good = {"ids": [1], "positions": [0], "slots": [1], "rows": [0], "extends": [1], "lengths": [1]}
    made = decoder("llama", "portable", torch.float32, "none", threads=1)
    ids, positions, slots, rows, extends, lengths = (ints(values.get(name, value)) for name, value in good.items())
    table, wanted = torch.ones(1, 10, dtype=torch.int32), ints(values.get("wanted", [0]))
    with pytest.raises(ValueError, match=field):
        made.forward(ids, positions, slots, rows, extends, lengths, table, wanted)


def test_shapes_the_strips_cannot_hold_are_refused_by_name() -> None:
    spec = DecoderSpec(1, 72, 3, 1, 24, 64, 10, 1e-5, 1e4, 16)
    with pytest.raises(UnsupportedShape, match="hidden = 72"):
        spec.check("none")
    with pytest.raises(UnsupportedShape, match="head_dim = 24"):
        DecoderSpec(1, 96, 4, 1, 24, 64, 10, 1e-5, 1e4, 16).check("none")
    with pytest.raises(ValueError, match="isa"):
        decoder("llama", "sse9", torch.float32, "none")
