// Rotary positions on queries and keys, and the write of keys and values into the pool.
#include <cmath>

#include "kernels.h"
#include "simd.h"

namespace headrace::HR_ISA {
namespace {

void store_as(uint8_t* to, Kind kind, int i, F v) {
  if (kind == Kind::bf16) store_bf16(reinterpret_cast<uint16_t*>(to) + i, v);
  else store(reinterpret_cast<float*>(to) + i, v);
}

// Rotates (x[i], x[i + half]), Hugging Face's llama order. `half` is a multiple of 8: its last lanes may be computed
// twice with the same result.
void rotate(const float* x, int dim, const float* cos, const float* sin, uint8_t* to, Kind kind) {
  const int half = dim / 2;
  for (int i = 0; i < half; i += kLanes) {
    const int at = i + kLanes <= half ? i : half - kLanes;
    const F a = load(x + at), b = load(x + half + at), c = load(cos + at), s = load(sin + at);
    store_as(to, kind, at, sub(mul(a, c), mul(b, s)));
    store_as(to, kind, half + at, add(mul(b, c), mul(a, s)));
  }
}

void head_norm(float* x, int dim, const float* weight, float eps) {
  F squares = zero();
  for (int i = 0; i < dim; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  const F factor = set1(1.0f / std::sqrt(sum(squares) / static_cast<float>(dim) + eps));
  for (int i = 0; i < dim; i += kLanes) store(x + i, mul(mul(load(x + i), factor), load(weight + i)));
}

}  // namespace

void rope(const RopeArgs& a, int first, int last) {
  const int dim = a.kv.head_dim, kv_heads = a.kv.kv_heads;
  const size_t size = a.kv.kind == Kind::bf16 ? 2 : 4;
  const size_t row = static_cast<size_t>(a.heads + 2 * kv_heads) * dim;
  for (int t = first; t < last; ++t) {
    float* x = a.qkv + t * row;
    const float* cos = a.cos + static_cast<size_t>(a.positions[t]) * (dim / 2);
    const float* sin = a.sin + static_cast<size_t>(a.positions[t]) * (dim / 2);
    uint8_t* q = a.q + static_cast<size_t>(t) * a.heads * dim * size;
    for (int h = 0; h < a.heads; ++h, x += dim, q += dim * size) {
      if (a.q_norm) head_norm(x, dim, a.q_norm, a.eps);
      rotate(x, dim, cos, sin, q, a.kv.kind);
    }
    uint8_t* to = a.kv.data + static_cast<size_t>(a.out_slots[t]) * a.kv.slot_bytes;
    for (int h = 0; h < kv_heads; ++h, x += dim, to += dim * size) {
      if (a.k_norm) head_norm(x, dim, a.k_norm, a.eps);
      rotate(x, dim, cos, sin, to, a.kv.kind);
    }
    for (int i = 0; i < kv_heads * dim; i += kLanes) store_as(to, a.kv.kind, i, load(x + i));
  }
}

}  // namespace headrace::HR_ISA
