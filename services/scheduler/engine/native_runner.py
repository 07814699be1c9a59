"""Forward passes through the native CPU decoder: one call per step, without the GIL."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from services.scheduler.core.plan import IntArray
from services.scheduler.engine.forward_batch import ForwardBatch
from services.scheduler.engine.interface import OutOfMemory
from services.scheduler.engine.slot_digest import slot_digests
from services.scheduler.kernels.cpu_decoder import CpuDecoder
from services.scheduler.kernels.decoder_spec import DecoderSpec
from services.scheduler.kernels.errors import UnsupportedShape
from services.scheduler.models.config import ModelConfig
from services.scheduler.models.rope import cos_sin_table, inverse_frequencies


class NativeRunner:
    """Batch invariant: the bits of a row's logits do not depend on its neighbours or on how its prompt was cut."""

    attention_backend = "cpu"
    batch_invariant = True

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, torch.Tensor],
        *,
        dtype: torch.dtype,
        quantization: str,
        num_threads: int,
        num_slots: int,
        context_length: int,
        isa: str | None,
    ) -> None:
        self._decoder = CpuDecoder(
            decoder_spec(config, context_length),
            weights,
            dtype=dtype,
            quantization=quantization,
            num_threads=num_threads,
            num_slots=num_slots,
            isa=isa,
        )

    @property
    def isa(self) -> str:
        """Instruction set the kernels run on."""
        return self._decoder.isa

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._decoder.weight_bytes

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the pool, the padding slot included."""
        return (self._decoder.num_slots + 1) * self._decoder.kv_bytes_per_slot

    def forward(self, batch: ForwardBatch, req_to_token: torch.Tensor) -> torch.Tensor:
        try:
            return self._decoder.forward(
                _tensor(batch.input_ids),
                _tensor(batch.positions),
                _tensor(batch.out_slots),
                _tensor(batch.rows),
                _tensor(batch.extend_lens),
                _tensor(batch.seq_lens),
                req_to_token,
                _tensor(batch.logits_index),
            )
        except MemoryError as error:
            raise OutOfMemory(str(error)) from error
        except RuntimeError as error:
            if "allocate memory" in str(error) or "bad_alloc" in str(error):
                raise OutOfMemory(str(error)) from error
            raise

    def slot_digests(self, slots: IntArray) -> npt.NDArray[np.uint64]:
        layers = range(self._decoder.spec.num_layers)
        return slot_digests([self._decoder.read_kv(slot, layer) for layer in layers] for slot in slots.tolist())

    def close(self) -> None:
        self._decoder.close()


def decoder_spec(config: ModelConfig, context_length: int) -> DecoderSpec:
    """The shape of the model as the kernels need it. Raises UnsupportedShape for biases they do not add."""
    if config.o_bias or config.mlp_bias:
        raise UnsupportedShape("biases of the output and feed-forward projections are not computed natively")
    inv_freq = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    cosines, sines = cos_sin_table(inv_freq, context_length).chunk(2, dim=-1)
    return DecoderSpec(
        num_layers=config.num_layers,
        hidden=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        rms_eps=config.rms_norm_eps,
        rope_theta=config.rope_theta,
        max_context=context_length,
        tie_embeddings=config.tie_word_embeddings,
        qkv_bias=config.qkv_bias,
        qk_norm=config.qk_norm,
        rope_cos=cosines.contiguous(),
        rope_sin=sines.contiguous(),
    )


def _tensor(values: IntArray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.int32))
