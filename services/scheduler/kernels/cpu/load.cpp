// Weights into the decoder, and single slots in and out of its KV pool.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "decoder.h"

namespace headrace {
namespace {

float bf16_value(uint16_t h) {
  const uint32_t u = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

int total_rows(const std::vector<Matrix>& rows) {
  int n = 0;
  for (const Matrix& m : rows) n += m.n;
  return n;
}

}  // namespace

Decoder::Decoder(const DecoderConfig& config, const Kernels& kernels, int threads)
    : config_(config), k_(kernels), pool_(threads), layers_(config.layers) {
  slot_bytes_ = static_cast<size_t>(2) * config.kv_heads * config.head_dim * (config.kind == Kind::f32 ? 4 : 2);
  kv_ = HugeBuffer(static_cast<size_t>(config.layers) * (config.slots + 1) * slot_bytes_);
}

float* Decoder::copy_floats(const std::vector<Matrix>& rows, int padded) {
  auto* to = reinterpret_cast<float*>(arena_.take(static_cast<size_t>(padded) * 4));
  float* at = to;
  for (const Matrix& m : rows)
    for (int i = 0; i < m.n * m.k; ++i)
      *at++ = m.bf16 ? bf16_value(static_cast<const uint16_t*>(m.data)[i]) : static_cast<const float*>(m.data)[i];
  return to;
}

void Decoder::load_weight(Weight& w, const std::vector<Matrix>& rows, bool wide) {
  w.n = total_rows(rows);
  w.k = rows.front().k;
  w.kind = config_.kind;
  w.wide = wide;
  if (w.kind == Kind::i8) {
    std::atomic<bool> fits{true};
    for (const Matrix& m : rows) {
      const int part = 64, parts = (m.n + part - 1) / part;
      pool_.run([&](int) {
        pool_.each(parts, [&](int i) {
          if (fits && !k_.fits_i4(m, i * part, std::min(m.n, (i + 1) * part))) fits = false;
        });
      });
    }
    if (fits) w.kind = Kind::i4;
  }
  w.strip_bytes = Weight::bytes_of_strip(w.kind, w.k);
  w.data = arena_.take(w.strip_bytes * w.strips());
  weight_bytes_ += w.strip_bytes * w.strips();
  int strip = 0;
  for (const Matrix& m : rows) {
    Weight part = w;
    part.data = w.data + strip * w.strip_bytes;
    part.n = m.n;
    pool_.run([&](int) { pool_.each(part.strips(), [&](int i) { k_.pack(m, part, i, i + 1); }); });
    strip += part.strips();
  }
}

void Decoder::load(Part part, int layer, const std::vector<Matrix>& rows) {
  Layer& l = layers_[std::clamp(layer, 0, config_.layers - 1)];
  const int n = total_rows(rows);
  switch (part) {
    case kQkv: return load_weight(l.qkv, rows);
    case kOut: return load_weight(l.out, rows);
    case kGateUp: return load_weight(l.gate_up, rows);
    case kDown: return load_weight(l.down, rows);
    // Rounding the head's inputs costs a third of what int8 costs in quality, for a small share of the products.
    case kHead: return load_weight(head_, rows, true);
    case kInputNorm: l.input_norm = copy_floats(rows, n); return;
    case kPostNorm: l.post_norm = copy_floats(rows, n); return;
    case kQNorm: l.q_norm = copy_floats(rows, n); return;
    case kKNorm: l.k_norm = copy_floats(rows, n); return;
    case kFinalNorm: final_norm_ = copy_floats(rows, n); return;
    case kQkvBias: l.qkv.bias = copy_floats(rows, l.qkv.strips() * 16); return;
    case kEmbedding: {
      const Matrix& m = rows.front();
      const size_t bytes = static_cast<size_t>(m.n) * m.k * (m.bf16 ? 2 : 4);
      uint8_t* to = arena_.take(bytes);
      std::memcpy(to, m.data, bytes);
      weight_bytes_ += bytes;
      embedding_ = {to, m.bf16, m.n, m.k};
      return;
    }
  }
}

void Decoder::set_rope(const float* cos, const float* sin, int context) {
  const size_t n = static_cast<size_t>(context) * (config_.head_dim / 2);
  cos_.assign(cos, cos + n);
  sin_.assign(sin, sin + n);
}

void Decoder::copy_slots(const int32_t* from, const int32_t* to, int count) {
  for (int l = 0; l < config_.layers; ++l) {
    uint8_t* base = kv_layer(l).data;
    for (int i = 0; i < count; ++i) std::memcpy(base + to[i] * slot_bytes_, base + from[i] * slot_bytes_, slot_bytes_);
  }
}

void Decoder::zero_slots(const int32_t* slots, int count) {
  for (int l = 0; l < config_.layers; ++l)
    for (int i = 0; i < count; ++i) std::memset(kv_layer(l).data + slots[i] * slot_bytes_, 0, slot_bytes_);
}

void Decoder::read_kv(int slot, int layer, float* out) const {
  const KvLayer kv = kv_layer(layer);
  const uint8_t* from = kv.data + slot * slot_bytes_;
  const int n = 2 * kv.kv_heads * kv.head_dim;
  for (int i = 0; i < n; ++i)
    out[i] = kv.kind == Kind::bf16 ? bf16_value(reinterpret_cast<const uint16_t*>(from)[i]) : reinterpret_cast<const float*>(from)[i];
}

}  // namespace headrace
