"""Decoders of the Llama family (Llama, Mistral, Qwen2, Qwen3) in plain PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from services.scheduler.attention.interface import AttentionBackend
from services.scheduler.engine.forward_batch import ForwardBatch
from services.scheduler.layers.linear import Linear
from services.scheduler.layers.norm import rms_norm
from services.scheduler.layers.rotary import rotate
from services.scheduler.models.config import ModelConfig
from services.scheduler.models.rope import cos_sin_table, inverse_frequencies
from services.scheduler.weights.names import EMBED, FINAL_NORM, LM_HEAD, layer_name


class _Layer:
    """Weights of one decoder layer; products that share an input are joined."""

    def __init__(self, weights: Mapping[str, torch.Tensor], layer: int, config: ModelConfig) -> None:
        def name(rest: str) -> str:
            return layer_name(layer, rest)

        self.input_norm = weights[name("input_layernorm.weight")]
        self.qkv = Linear(weights, name("self_attn.q_proj"), name("self_attn.k_proj"), name("self_attn.v_proj"))
        self.out = Linear(weights, name("self_attn.o_proj"))
        self.post_norm = weights[name("post_attention_layernorm.weight")]
        self.gate_up = Linear(weights, name("mlp.gate_proj"), name("mlp.up_proj"))
        self.down = Linear(weights, name("mlp.down_proj"))
        self.q_norm = weights[name("self_attn.q_norm.weight")] if config.qk_norm else None
        self.k_norm = weights[name("self_attn.k_norm.weight")] if config.qk_norm else None


class Decoder:
    """One forward pass over a flat batch. The residual stream is float32 whatever the weights' dtype."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, torch.Tensor],
        attention: AttentionBackend,
        context_length: int,
    ) -> None:
        self._config = config
        self._attention = attention
        self._embed = weights[EMBED]
        self._layers = [_Layer(weights, layer, config) for layer in range(config.num_layers)]
        self._final_norm = weights[FINAL_NORM]
        self._lm_head = weights.get(LM_HEAD, self._embed)
        inv_freq = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        self._rotary = cos_sin_table(inv_freq, context_length).to(self._embed.device)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, req_to_token: torch.Tensor) -> torch.Tensor:
        """Logits of the tokens named by `batch.logits_index`: float32 [L, vocab]. Writes keys and values."""
        device = self._embed.device
        ids = torch.from_numpy(batch.input_ids).to(device, torch.int64)
        cos_sin = self._rotary[torch.from_numpy(batch.positions).to(device, torch.int64)]
        self._attention.begin(batch, req_to_token)
        residual = F.embedding(ids, self._embed).to(torch.float32)
        for index, layer in enumerate(self._layers):
            residual = residual + self._attend(index, layer, residual, cos_sin)
            residual = residual + self._feed_forward(layer, residual)
        wanted = torch.from_numpy(batch.logits_index).to(device, torch.int64)
        final = rms_norm(residual[wanted], self._final_norm, self._config.rms_norm_eps)
        return F.linear(final, self._lm_head).to(torch.float32)

    def _attend(self, index: int, layer: _Layer, residual: torch.Tensor, cos_sin: torch.Tensor) -> torch.Tensor:
        config = self._config
        hidden = rms_norm(residual, layer.input_norm, config.rms_norm_eps)
        heads = layer.qkv(hidden).view(-1, config.num_heads + 2 * config.num_kv_heads, config.head_dim)
        query, keys, values = torch.split(heads, [config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            query = rms_norm(query, layer.q_norm, config.rms_norm_eps)
            keys = rms_norm(keys, layer.k_norm, config.rms_norm_eps)
        attended = self._attention.forward(index, rotate(query, cos_sin), rotate(keys, cos_sin), values)
        return layer.out(attended.flatten(1)).to(torch.float32)

    def _feed_forward(self, layer: _Layer, residual: torch.Tensor) -> torch.Tensor:
        hidden = rms_norm(residual, layer.post_norm, self._config.rms_norm_eps)
        gate, up = layer.gate_up(hidden).chunk(2, dim=-1)
        return layer.down(F.silu(gate) * up).to(torch.float32)
