"""Time of a decoder step on this CPU, by part, beside what memory and PyTorch's own products allow in the same run.

    python -m benchmarks.kernels --model MODEL_FOLDER [--isa avx512] [--batch 1 8 32 64] [--json FILE]

For each batch size: milliseconds of a decode step at `--context` tokens, with slots at random and in runs; then a
prefill; then the floor, at::linear in bfloat16 over the same matrices, and the speed at which memory is read. Rounds
of all rows alternate and the best of `--rounds` counts, because other programs share the machine. Without `--model`
the weights are random in the shape of a 135M model, which int8 keeps in 8 bits instead of 4.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from services.scheduler.kernels import dispatch
from services.scheduler.kernels.cpu_decoder import CpuDecoder
from services.scheduler.kernels.decoder_spec import DecoderSpec

SHAPE = DecoderSpec(30, 576, 9, 3, 64, 1536, 49152, 1e-5, 100000.0, 8192, tie_embeddings=True)
PARTS = ("gemm", "attention", "head", "rest")


@dataclass
class Row:
    """The best time of one measurement, in seconds, and its parts."""

    label: str
    seconds: float = float("inf")
    parts: dict[str, float] = field(default_factory=dict)

    def add(self, seconds: float, parts: dict[str, float]) -> None:
        if seconds < self.seconds:
            self.seconds, self.parts = seconds, parts

    def __str__(self) -> str:
        inside = " / ".join(f"{self.parts[p] * 1e3:.2f}" for p in PARTS) if self.parts else ""
        return f"{self.label:34s} {self.seconds * 1e3:9.2f} ms   {inside}"


def random_weights(spec: DecoderSpec) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.02

    kv, q = spec.num_kv_heads * spec.head_dim, spec.num_heads * spec.head_dim
    weights = {"model.embed_tokens.weight": normal(spec.vocab, spec.hidden), "model.norm.weight": torch.ones(spec.hidden)}
    for i in range(spec.num_layers):
        layer = f"model.layers.{i}"
        for name, n in (("q", q), ("k", kv), ("v", kv)):
            weights[f"{layer}.self_attn.{name}_proj.weight"] = normal(n, spec.hidden)
        weights[f"{layer}.self_attn.o_proj.weight"] = normal(spec.hidden, q)
        for name in ("gate", "up"):
            weights[f"{layer}.mlp.{name}_proj.weight"] = normal(spec.intermediate, spec.hidden)
        weights[f"{layer}.mlp.down_proj.weight"] = normal(spec.hidden, spec.intermediate)
        for name in ("input", "post_attention"):
            weights[f"{layer}.{name}_layernorm.weight"] = torch.ones(spec.hidden)
    return weights


def ints(values: Sequence[int] | torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.int32)


class Bench:
    """One decoder and the rows measured on it."""

    def __init__(self, name: str, decoder: CpuDecoder, context: int) -> None:
        self.name, self.decoder, self.context = name, decoder, context
        self.rows: dict[str, Row] = {}
        generator = torch.Generator().manual_seed(1)
        self.scattered = (torch.randperm(decoder.num_slots, generator=generator) + 1).int()
        self.runs = torch.arange(1, decoder.num_slots + 1, dtype=torch.int32)
        every = self.runs
        for start in range(0, decoder.num_slots, 512):  # real keys and values, not zeros
            part = every[start : start + 512].contiguous()
            n = len(part)
            ids = torch.randint(0, decoder.spec.vocab, (n,), generator=generator).int()
            table = part[None].contiguous()
            decoder.forward(ids, ints(range(n)), part, ints([0]), ints([n]), ints([n]), table, ints([]))
        decoder.take_costs()

    def _time(self, label: str, repeat: int, *arguments: torch.Tensor) -> None:
        row = self.rows.setdefault(label, Row(f"{self.name} {label}"))
        for _ in range(repeat):
            started = time.perf_counter()
            self.decoder.forward(*arguments)
            row.add(time.perf_counter() - started, self.decoder.take_costs())

    def decode(self, batch: int, slots: str) -> None:
        order = self.scattered if slots == "random" else self.runs
        table = order[: batch * self.context].reshape(batch, self.context).contiguous()
        last = self.context - 1
        ids = ints([(7 * i + 11) % self.decoder.spec.vocab for i in range(batch)])
        lengths = ints([self.context] * batch)
        arguments = (ids, ints([last] * batch), table[:, last].contiguous(), ints(range(batch)), ints([1] * batch))
        self._time(f"decode {batch} {slots}", max(2, 12 // batch), *arguments, lengths, table, ints(range(batch)))

    def prefill(self, tokens: int) -> None:
        table = self.scattered[:tokens].reshape(1, tokens).contiguous()
        ids = torch.arange(tokens, dtype=torch.int32) * 13 % self.decoder.spec.vocab
        arguments = (ids, ints(range(tokens)), table[0].contiguous(), ints([0]), ints([tokens]), ints([tokens]))
        self._time(f"prefill {tokens}", 1, *arguments, table, ints([tokens - 1]))


def floor_linear(spec: DecoderSpec, rows: int, row: Row) -> None:
    """All matrices of a step through at::linear in bfloat16, over distinct weights for each layer."""
    q, kv = spec.num_heads * spec.head_dim, 2 * spec.num_kv_heads * spec.head_dim
    shapes = [(q + kv, spec.hidden), (spec.hidden, q), (2 * spec.intermediate, spec.hidden), (spec.hidden, spec.intermediate)]
    key = (spec, rows > 1)
    if key not in _FLOOR_WEIGHTS:
        _FLOOR_WEIGHTS[key] = [torch.randn(n, k).bfloat16() for _ in range(spec.num_layers) for n, k in shapes]
    inputs = {k: torch.randn(rows, k).bfloat16() for _, k in shapes}
    started = time.perf_counter()
    for weight in _FLOOR_WEIGHTS[key]:
        torch.nn.functional.linear(inputs[weight.shape[1]], weight)
    row.add(time.perf_counter() - started, {})


_FLOOR_WEIGHTS: dict[tuple[DecoderSpec, bool], list[torch.Tensor]] = {}


def read_speed(row: Row, buffer: torch.Tensor) -> None:
    started = time.perf_counter()
    buffer.sum()
    row.add(time.perf_counter() - started, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder with model.safetensors of a SmolLM2-135M shape")
    parser.add_argument("--cache-dir", type=Path, default=Path.home() / ".cache" / "headrace")
    parser.add_argument("--isa")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8, 32, 64])
    parser.add_argument("--context", type=int, default=576)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--kinds", nargs="*", default=["bfloat16", "int8"], choices=["float32", "bfloat16", "int8"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    dispatch.load(options.cache_dir, print)
    torch.set_num_threads(options.threads)
    if options.model:
        from safetensors.torch import load_file

        weights = load_file(options.model / "model.safetensors")
    else:
        weights = random_weights(SHAPE)
    benches = []
    for kind in options.kinds:
        decoder = CpuDecoder(
            SHAPE,
            weights,
            dtype=torch.float32 if kind == "float32" else torch.bfloat16,
            quantization="int8" if kind == "int8" else "none",
            num_threads=options.threads,
            num_slots=max(options.batch) * options.context,
            isa=options.isa,
        )
        benches.append(Bench(kind, decoder, options.context))
    floors = {rows: Row(f"floor at::linear bf16, {rows} rows") for rows in [*options.batch, options.prefill]}
    buffer = torch.zeros(64 << 20, dtype=torch.int64)
    memory = Row("floor reading 512 MiB")
    for _ in range(options.rounds):
        for bench in benches:
            for batch in options.batch:
                bench.decode(batch, "random")
                bench.decode(batch, "runs")
            bench.prefill(options.prefill)
        for rows, row in floors.items():
            floor_linear(SHAPE, rows, row)
        read_speed(memory, buffer)

    print(f"\n{'':34s} {'step':>9s}      {' / '.join(PARTS)}   (isa {benches[0].decoder.isa}, {options.threads} threads)")
    rows = [row for bench in benches for row in bench.rows.values()] + [*floors.values(), memory]
    for row in rows:
        print(row)
    print(f"memory read at {0.5 * 1.0737 / memory.seconds:.1f} GB/s")
    for bench in benches:
        megabytes = bench.decoder.weight_bytes / 2**20
        print(f"{bench.name}: {megabytes:.0f} MiB of weights, {bench.decoder.kv_bytes_per_slot} bytes of KV a slot")
    if options.json:
        options.json.write_text(json.dumps([{"label": r.label, "seconds": r.seconds, "parts": r.parts} for r in rows], indent=1))


if __name__ == "__main__":
    main()
