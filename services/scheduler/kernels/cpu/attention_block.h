// One block of at most kKvBlock keys and values against the rows of one key head: scores, and weighted sums of values.
//
// Few rows (decode) take keys and values straight from the pool through registers; many rows (prefill) share packed
// copies of them. Both walk the dimensions, and then the tokens, in the same order, so both give the same bits.
#pragma once
#include <algorithm>

#include "kernels.h"
#include "tile.h"

namespace headrace::HR_ISA {

inline int element_size(Kind kind) { return kind == Kind::bf16 ? 2 : 4; }
inline size_t padded(size_t n) { return (n + 15) / 16 * 16; }
// Dwords of one key, and of one column of `tokens` values.
inline int key_steps(const KvLayer& kv) { return kv.head_dim * element_size(kv.kind) / 4; }
inline int value_steps(const KvLayer& kv, int tokens) { return kv.kind == Kind::bf16 ? (tokens + 1) / 2 : tokens; }

struct Block {
  const int32_t* slots;
  int tokens;           // keys in it that some query of the item sees
  const int32_t* next;  // slots of the block after it, to fetch ahead
  int next_tokens;      // 0 if there is none
};

inline const uint8_t* address(const KvLayer& kv, int32_t slot, int head) {
  return kv.data + static_cast<size_t>(slot) * kv.slot_bytes + static_cast<size_t>(head) * kv.head_dim * element_size(kv.kind);
}

// Always inline: GCC takes a function that only prefetches for one without effect and drops the call.
__attribute__((always_inline)) inline void fetch_slots(const KvLayer& kv, const int32_t* slots, int first, int last) {
  for (int t = first; t < last; ++t) {
    const uint8_t* p = kv.data + static_cast<size_t>(slots[t]) * kv.slot_bytes;
    for (size_t i = 0; i < kv.slot_bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
  }
}

// Called for each 16 tokens of each head of keys and of values: brings a share of the next block near, slot by slot, for
// memory delivers one run of lines faster than the same lines in a sweep for each head.
__attribute__((always_inline)) inline void fetch_ahead(const KvLayer& kv, const Block& b, int head, int token) {
  const int key_head = head % kv.kv_heads, values = head / kv.kv_heads;
  const int share = (2 * key_head + values) * (kKvBlock / 16) + token / 16, shares = 2 * kv.kv_heads * (kKvBlock / 16);
  fetch_slots(kv, b.next, b.next_tokens * share / shares, b.next_tokens * (share + 1) / shares);
}

// Rows of the 16 keys from token t on; past the end the last key stands in, and its score is masked later.
inline void key_rows(const KvLayer& kv, const Block& b, int head, int t, const uint32_t* (&rows)[16]) {
  for (int i = 0; i < 16; ++i) rows[i] = reinterpret_cast<const uint32_t*>(address(kv, b.slots[std::min(t + i, b.tokens - 1)], head));
}

// ---- many rows: packed ----

inline void pack_keys(const KvLayer& kv, const Block& b, int head, float* k) {
  const int steps = key_steps(kv);
  const uint32_t* rows[16];
  for (int t = 0; t < b.tokens; t += 16) {
    key_rows(kv, b, head, t, rows);
    float* out = k + static_cast<size_t>(t / 16) * padded(steps) * 16;
    for (int d = 0; d < steps; d += 16) {
      I columns[16];
      transpose_dwords(rows, columns);
      for (int j = 0; j < 16; ++j, out += 16) store_dwords(out, columns[j]);
      for (auto& row : rows) row += 16;
    }
    fetch_ahead(kv, b, head, t);
  }
}

inline void pack_values(const KvLayer& kv, const Block& b, int head, float* v) {
  alignas(64) static const uint16_t none[256] = {};
  const int strips = kv.head_dim / 16, column = value_steps(kv, kKvBlock) * 16;
  const int step = kv.kind == Kind::bf16 ? 2 : 1;
  for (int t = 0; t < b.tokens; t += step, v += 16) {
    const uint8_t* even = address(kv, b.slots[t], head);
    if (kv.kind == Kind::f32) {
      for (int s = 0; s < strips; ++s) store(v + s * column, load(reinterpret_cast<const float*>(even) + 16 * s));
    } else {
      const auto* odd = t + 1 < b.tokens ? reinterpret_cast<const uint16_t*>(address(kv, b.slots[t + 1], head)) : none;
      for (int s = 0; s < strips; ++s)
        store_dwords(v + s * column, interleave_bf16(reinterpret_cast<const uint16_t*>(even) + 16 * s, odd + 16 * s));
    }
    if (t % 16 == 0) fetch_ahead(kv, b, head, t);
  }
}

// ---- few rows: through registers ----

template <class Dot, int R, int N>
__attribute__((always_inline)) inline void score_columns(const uint32_t* (&rows)[16], const float* q, int steps, F (&acc)[R]) {
  I columns[16];
  transpose_dwords(rows, columns);
#pragma GCC unroll 16
  for (int j = 0; j < N; ++j)
    for (int r = 0; r < R; ++r) acc[r] = Dot::step(acc[r], columns[j], broadcast_dword(q + r * steps + j));
  for (auto& row : rows) row += N;
}

// score[r][t] for R rows of q, [R][steps] dwords. Two strips of 16 keys alternate, to hide the latency of the sums.
template <class Dot, int R>
inline void direct_scores(const KvLayer& kv, const Block& b, int head, const float* q, float* score) {
  const int steps = key_steps(kv);
  const uint32_t* rows[2][16];
  for (int t = 0; t < b.tokens; t += 32) {
    F acc[2][R];
    for (int i = 0; i < 2; ++i) {
      key_rows(kv, b, head, t + 16 * i, rows[i]);
      for (F& a : acc[i]) a = zero();
    }
    int d = 0;
    for (; d + 16 <= steps; d += 16)
      for (int i = 0; i < 2; ++i) score_columns<Dot, R, 16>(rows[i], q + d, steps, acc[i]);
    for (int i = 0; i < 2; ++i) {
      if (d < steps) score_columns<Dot, R, 8>(rows[i], q + d, steps, acc[i]);  // steps is a multiple of 8
      for (int r = 0; r < R; ++r) store(score + r * kKvBlock + t + 16 * i, acc[i][r]);
      fetch_ahead(kv, b, head, t + 16 * i);
    }
  }
}

template <class Dot, int R, int S>
inline void direct_value_strips(const KvLayer& kv, const Block& b, int head, const float* p, int strip, float* out) {
  alignas(64) static const uint16_t none[16 * S] = {};
  F acc[R][S];
  for (auto& row : acc)
    for (F& a : row) a = zero();
  const int step = kv.kind == Kind::bf16 ? 2 : 1;
  for (int t = 0; t < b.tokens; t += step, ++p) {
    I v[S];
    const uint8_t* even = address(kv, b.slots[t], head) + static_cast<size_t>(strip) * 16 * element_size(kv.kind);
    if constexpr (Dot::kPairs) {
      const uint8_t* odd = t + 1 < b.tokens ? address(kv, b.slots[t + 1], head) + static_cast<size_t>(strip) * 32 : nullptr;
      const auto* o = odd ? reinterpret_cast<const uint16_t*>(odd) : none;
      for (int s = 0; s < S; ++s) v[s] = interleave_bf16(reinterpret_cast<const uint16_t*>(even) + 16 * s, o + 16 * s);
    } else {
      for (int s = 0; s < S; ++s) v[s] = load_dwords(even + 64 * s);
    }
    for (int r = 0; r < R; ++r) {
      const I probability = broadcast_dword(p + r * kKvBlock);
      for (int s = 0; s < S; ++s) acc[r][s] = Dot::step(acc[r][s], v[s], probability);
    }
    if (strip == 0 && t % 16 == 0) fetch_ahead(kv, b, head, t);
  }
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) store(out + r * kv.head_dim + 16 * (strip + s), acc[r][s]);
}

template <class Dot, int R>
inline void direct_values(const KvLayer& kv, const Block& b, int head, const float* p, float* out) {
  const int strips = kv.head_dim / 16;
  int s = 0;
  for (; s + 4 <= strips; s += 4) direct_value_strips<Dot, R, 4>(kv, b, head, p, s, out);
  for (; s < strips; ++s) direct_value_strips<Dot, R, 1>(kv, b, head, p, s, out);
}

}  // namespace headrace::HR_ISA
