"""A decoder whose whole step is one native call."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from enum import IntEnum

import torch

from services.scheduler.kernels.decoder_spec import DecoderSpec
from services.scheduler.kernels.dispatch import resolve_isa


class _Part(IntEnum):
    """Mirrors `Decoder::Part` in cpu/decoder.h."""

    QKV = 0
    OUT = 1
    GATE_UP = 2
    DOWN = 3
    HEAD = 4
    INPUT_NORM = 5
    POST_NORM = 6
    Q_NORM = 7
    K_NORM = 8
    FINAL_NORM = 9
    EMBEDDING = 10
    QKV_BIAS = 11


_KINDS = {"float32": 0, "bfloat16": 1, "int8": 2}


class CpuDecoder:
    """Llama-like decoder with its KV pool, run by own kernels on `num_threads` threads.

    `dtype` is float32 or bfloat16 and `quantization` "none" or "int8" (int8 activations; weights that already lie on
    a 4-bit grid, as in checkpoints that were 4-bit once, are kept in 4 bits without loss). Residuals and sums are
    float32. The pool holds slots 0..num_slots, slot 0 being padding, in bfloat16 (float32 for dtype float32).

    `weights` are named as in Hugging Face's llama, [out, in], float32 or bfloat16; they are packed here and may be
    dropped afterwards. A row's logits depend on that row alone: their bits are the same in any batch, chunking or
    cache state, and for any number of threads.

    Raises `UnsupportedShape` for dimensions the kernels cannot hold, `KernelsUnavailable` when `dispatch.load` has
    not succeeded, `KeyError` for a missing weight, `ValueError` for an unknown `isa`, dtype or quantization.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        weights: Mapping[str, torch.Tensor],
        *,
        dtype: torch.dtype,
        quantization: str,
        num_threads: int,
        num_slots: int,
        isa: str | None = None,
    ) -> None:
        spec.check(quantization)
        kind = _kind(dtype, quantization)
        self.spec = spec
        self.isa = resolve_isa(isa)
        self.num_slots = num_slots
        self._ops = torch.ops.headrace_cpu
        dims = [
            *(spec.num_layers, spec.hidden, spec.num_heads, spec.num_kv_heads, spec.head_dim),
            *(spec.intermediate, spec.vocab, spec.max_context, num_slots),
        ]
        self._handle: int = self._ops.decoder_create(dims, spec.rms_eps, _KINDS[kind], num_threads, self.isa)
        self._close = weakref.finalize(self, self._ops.decoder_destroy, self._handle)
        self._ops.decoder_rope(self._handle, *spec.rope_tables())
        self._load(weights, torch.float32 if kind == "float32" else torch.bfloat16)
        stats = self._ops.decoder_stats(self._handle)
        self.weight_bytes: int = stats[0]
        self.kv_bytes_per_slot: int = stats[1] * spec.num_layers

    def _load(self, weights: Mapping[str, torch.Tensor], embedding_dtype: torch.dtype) -> None:
        spec = self.spec

        def put(part: _Part, layer: int, *names: str) -> None:
            self._ops.decoder_load(self._handle, part, layer, [_plain(weights[name]) for name in names])

        embedding = weights["model.embed_tokens.weight"]
        self._ops.decoder_load(self._handle, _Part.EMBEDDING, 0, [embedding.to(embedding_dtype).contiguous()])
        put(_Part.FINAL_NORM, 0, "model.norm.weight")
        put(_Part.HEAD, 0, "model.embed_tokens.weight" if spec.tie_embeddings else "lm_head.weight")
        for i in range(spec.num_layers):
            attention, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
            put(_Part.QKV, i, *(f"{attention}.{x}_proj.weight" for x in "qkv"))
            if spec.qkv_bias:
                put(_Part.QKV_BIAS, i, *(f"{attention}.{x}_proj.bias" for x in "qkv"))
            if spec.qk_norm:
                put(_Part.Q_NORM, i, f"{attention}.q_norm.weight")
                put(_Part.K_NORM, i, f"{attention}.k_norm.weight")
            put(_Part.OUT, i, f"{attention}.o_proj.weight")
            put(_Part.GATE_UP, i, f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight")
            put(_Part.DOWN, i, f"{mlp}.down_proj.weight")
            put(_Part.INPUT_NORM, i, f"model.layers.{i}.input_layernorm.weight")
            put(_Part.POST_NORM, i, f"model.layers.{i}.post_attention_layernorm.weight")

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        out_slots: torch.Tensor,
        row_index: torch.Tensor,
        extend_lens: torch.Tensor,
        seq_lens: torch.Tensor,
        req_to_token: torch.Tensor,
        logits_index: torch.Tensor,
    ) -> torch.Tensor:
        """One step over T tokens of B sequences; returns float32 logits [L, vocab] of the rows in `logits_index`.

        All arguments are int32: input_ids, positions, out_slots [T]; row_index, extend_lens, seq_lens [B] with
        seq_len = cached prefix + extend; req_to_token [R, C], where token p of sequence b lives in slot
        req_to_token[row_index[b], p], the new ones included; logits_index [L], L may be 0. The GIL is released.
        Raises `ValueError` naming the argument whose values do not fit.
        """
        logits: torch.Tensor = self._ops.decoder_forward(
            *(self._handle, input_ids, positions, out_slots),
            *(row_index, extend_lens, seq_lens, req_to_token, logits_index),
        )
        return logits

    def copy_slots(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copies keys and values of all layers from slots `source` to `target`, both int32 [N]."""
        self._ops.decoder_copy_slots(self._handle, source, target)

    def zero_slots(self, slots: torch.Tensor) -> None:
        """Clears keys and values of int32 [N] slots in all layers."""
        self._ops.decoder_zero_slots(self._handle, slots)

    def read_kv(self, slot: int, layer: int) -> torch.Tensor:
        """Keys and values of one slot in one layer, float32 [2, num_kv_heads, head_dim]."""
        kv: torch.Tensor = self._ops.decoder_read_kv(self._handle, slot, layer)
        return kv

    def take_costs(self) -> dict[str, float]:
        """Seconds spent on each part of the steps since the last call."""
        nanoseconds = self._ops.decoder_stats(self._handle)[2:]
        return dict(zip(("gemm", "attention", "head", "rest"), (n / 1e9 for n in nanoseconds), strict=True))

    def close(self) -> None:
        """Frees weights and pool; the decoder must not be used afterwards."""
        self._close()


def _kind(dtype: torch.dtype, quantization: str) -> str:
    if quantization == "int8":
        return "int8"
    if quantization not in ("none", ""):
        raise ValueError(f"quantization {quantization!r} is not one of none, int8")
    if dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"dtype {dtype} is not one of float32, bfloat16")
    return "float32" if dtype == torch.float32 else "bfloat16"


def _plain(weight: torch.Tensor) -> torch.Tensor:
    if weight.dtype not in (torch.float32, torch.bfloat16):
        weight = weight.float()
    return weight.detach().contiguous()
