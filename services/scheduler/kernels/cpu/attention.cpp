// Causal attention over keys and values at scattered slots, in decode, prefill and everything between.
//
// Keys are taken in blocks of kKvBlock absolute positions. A block's result for a query (maximum, sum, weighted
// values) depends on that query alone, and results are folded in block order; so a query's output has the same bits
// whether it is computed alone, in a chunk, or with its blocks spread over threads.
//
//   scratch of one thread, rows = tokens of the item * heads of a group:
//     q     [kv_heads][rows][dim]          queries gathered by group
//     k     [4 strips][dim dwords][16]     one block of keys, transposed
//     v     [dim / 16 strips][64 or 32][16]
//     score [rows][64]                     scores, then probabilities in the pool's kind
//     part  [rows][dim + 2]                the block's result: values, maximum, sum
//     state [kv_heads][rows][dim + 2]      what has been folded so far
#include <algorithm>

#include "kernels.h"
#include "tile.h"

namespace headrace::HR_ISA {
namespace {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kMinusInfinity = -__builtin_huge_valf();

int element_size(Kind kind) { return kind == Kind::bf16 ? 2 : 4; }
size_t padded(size_t n) { return (n + 15) / 16 * 16; }
// Dwords of one key, and of one column of values in a block.
int key_steps(const KvLayer& kv) { return kv.head_dim * element_size(kv.kind) / 4; }
int value_steps(const KvLayer& kv, int tokens) { return kv.kind == Kind::bf16 ? (tokens + 1) / 2 : tokens; }

struct Scratch {
  float *q, *k, *v, *score, *part, *state;
  size_t floats;
  Scratch(const AttentionArgs& a, int tokens, float* base) {
    const size_t dim = a.kv.head_dim, kv_heads = a.kv.kv_heads, rows = static_cast<size_t>(tokens) * (a.heads / kv_heads);
    size_t at = 0;
    auto take = [&](size_t n) {
      float* p = base + at;
      at += padded(n);
      return p;
    };
    q = take(kv_heads * rows * dim);
    k = take(4 * padded(dim) * 16);
    v = take(dim * kKvBlock);
    score = take(rows * kKvBlock);
    part = take(rows * (dim + 2));
    state = take(kv_heads * rows * (dim + 2));
    floats = at;
  }
};

struct Block {
  const int32_t* slots;
  int tokens;                 // keys in it that some query of the item sees
  const int32_t* next;        // slots of the block after it, to fetch ahead, or null
  int next_tokens;
};

const uint8_t* address(const KvLayer& kv, int32_t slot, int head) {
  return kv.data + static_cast<size_t>(slot) * kv.slot_bytes + static_cast<size_t>(head) * kv.head_dim * element_size(kv.kind);
}

void fetch_ahead(const KvLayer& kv, const Block& b, int head, int first, int last) {
  if (!b.next) return;
  const int bytes = kv.head_dim * element_size(kv.kind);
  for (int t = first; t < std::min(last, b.next_tokens); ++t) {
    const uint8_t* p = address(kv, b.next[t], head);
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
  }
}

void pack_keys(const KvLayer& kv, const Block& b, int head, float* k) {
  const int steps = key_steps(kv);
  const uint32_t* rows[16];
  for (int t = 0; t < b.tokens; t += 16) {
    for (int i = 0; i < 16; ++i)  // past the end the last key stands in; its score is masked
      rows[i] = reinterpret_cast<const uint32_t*>(address(kv, b.slots[std::min(t + i, b.tokens - 1)], head));
    auto* out = reinterpret_cast<uint32_t*>(k) + static_cast<size_t>(t / 16) * padded(steps) * 16;
    for (int d = 0; d < steps; d += 16, out += 256) {
      transpose_dwords(rows, out);
      for (auto& row : rows) row += 16;
    }
    fetch_ahead(kv, b, head, t, t + 16);
  }
}

void pack_values(const KvLayer& kv, const Block& b, int head, float* v) {
  const int strips = kv.head_dim / 16;
  const int column = value_steps(kv, kKvBlock) * 16;
  alignas(64) static const uint16_t none[16] = {};
  if (kv.kind == Kind::f32) {
    for (int t = 0; t < b.tokens; ++t) {
      const auto* row = reinterpret_cast<const float*>(address(kv, b.slots[t], head));
      for (int s = 0; s < strips; ++s) store(v + s * column + t * 16, load(row + 16 * s));
    }
  } else {
    for (int t = 0; t < b.tokens; t += 2) {
      const auto* even = reinterpret_cast<const uint16_t*>(address(kv, b.slots[t], head));
      const auto* odd = t + 1 < b.tokens ? reinterpret_cast<const uint16_t*>(address(kv, b.slots[t + 1], head)) : nullptr;
      for (int s = 0; s < strips; ++s)
        store_dwords(v + s * column + t * 8, interleave_bf16(even + 16 * s, odd ? odd + 16 * s : none));
      if (t % 16 == 0) fetch_ahead(kv, b, head, t, t + 16);
    }
  }
}

// Scores of one row -> probabilities against the block's own maximum. Returns (maximum in log2 units, sum).
void softmax_row(float* score, int valid, int tokens, float scale, Kind kind, float* maximum, float* total) {
  F top = set1(kMinusInfinity);
  for (int t = 0; t < tokens; t += 16) {
    const F s = keep_first(load(score + t), valid - t, kMinusInfinity);
    store(score + t, s);
    top = max_keep_nan(top, s);
  }
  *maximum = max_lane(top) * scale;
  const F c = set1(scale), m = set1(-*maximum);
  F sums = zero();
  for (int t = 0; t < tokens; t += 16) {
    const F p = exp2(fma(load(score + t), c, m));
    sums = add(sums, p);
    if (kind == Kind::bf16) store_bf16(reinterpret_cast<uint16_t*>(score) + t, p);
    else store(score + t, p);
  }
  *total = sum(sums);
}

void fold(float* state, const float* part, int dim) {
  const float before = state[dim], now = part[dim];
  const float top = before > now ? before : now;
  const F keep = exp2(set1(before - top)), take = exp2(set1(now - top));
  for (int d = 0; d < dim; d += 16) store(state + d, fma(load(part + d), take, mul(load(state + d), keep)));
  float k[16], t[16];
  store(k, keep);
  store(t, take);
  state[dim] = top;
  state[dim + 1] = part[dim + 1] * t[0] + state[dim + 1] * k[0];
}

void clear(float* state, int dim) {
  for (int d = 0; d < dim; d += 16) store(state + d, zero());
  state[dim] = kMinusInfinity;
  state[dim + 1] = 0;
}

void finish(const float* state, int dim, float* out) {
  const F inverse = set1(1.0f / state[dim + 1]);
  for (int d = 0; d < dim; d += 16) store(out + d, mul(load(state + d), inverse));
}

template <class Dot>
void block_results(const AttentionArgs& a, const Scratch& s, const Block& b, int head, int rows, int group, int first_valid) {
  const int dim = a.kv.head_dim, steps = key_steps(a.kv);
  TileArgs t{};
  t.x = reinterpret_cast<const uint8_t*>(s.q) + static_cast<size_t>(head) * rows * dim * element_size(a.kv.kind);
  t.x_stride = static_cast<size_t>(steps) * 4;
  t.w = reinterpret_cast<const uint8_t*>(s.k);
  t.w_stride = padded(steps) * 64;
  t.steps = steps;
  t.out = s.score;
  t.out_stride = kKvBlock;
  float_product<Dot>(t, rows, (b.tokens + 15) / 16);
  for (int r = 0; r < rows; ++r) {
    const int valid = std::min(first_valid + r / group, b.tokens);
    float* part = s.part + static_cast<size_t>(r) * (dim + 2);
    softmax_row(s.score + r * kKvBlock, valid, b.tokens, a.scale * kLog2e, a.kv.kind, part + dim, part + dim + 1);
  }
  t.x = reinterpret_cast<const uint8_t*>(s.score);
  t.x_stride = kKvBlock * 4;
  t.w = reinterpret_cast<const uint8_t*>(s.v);
  t.w_stride = static_cast<size_t>(value_steps(a.kv, kKvBlock)) * 64;
  t.steps = value_steps(a.kv, b.tokens);
  t.out = s.part;
  t.out_stride = dim + 2;
  float_product<Dot>(t, rows, dim / 16);
}

void gather_queries(const AttentionArgs& a, const AttentionItem& item, int group, float* q) {
  const size_t size = static_cast<size_t>(a.kv.head_dim) * element_size(a.kv.kind);
  auto* to = reinterpret_cast<uint8_t*>(q);
  for (int h = 0; h < a.kv.kv_heads; ++h)
    for (int t = item.q0; t < item.q1; ++t, to += group * size)
      std::memcpy(to, a.q + ((static_cast<size_t>(item.seq->first_row) + t) * a.heads + h * group) * size, group * size);
}

}  // namespace

size_t attention_scratch(const AttentionArgs& a, int tokens) { return Scratch(a, tokens, nullptr).floats; }

size_t partial_floats(const AttentionArgs& a) { return static_cast<size_t>(a.heads) * (a.kv.head_dim + 2); }

void attention(const AttentionArgs& a, const AttentionItem& item, float* scratch) {
  const int dim = a.kv.head_dim, kv_heads = a.kv.kv_heads, group = a.heads / kv_heads;
  const int tokens = item.q1 - item.q0, rows = tokens * group;
  const Scratch s(a, tokens, scratch);
  const int first_position = item.seq->length - item.seq->extend + item.q0;
  const int seen = first_position + tokens;  // keys that the item's last query sees
  gather_queries(a, item, group, s.q);
  for (int r = 0; r < kv_heads * rows; ++r) clear(s.state + static_cast<size_t>(r) * (dim + 2), dim);
  for (int i = item.b0; i < item.b1; ++i) {
    const int at = i * kKvBlock, after = at + kKvBlock;
    const bool more = i + 1 < item.b1;
    const Block b{item.seq->slots + at, std::min(kKvBlock, seen - at), more ? item.seq->slots + after : nullptr,
                  std::min(kKvBlock, seen - after)};
    const int first_valid = first_position - at + 1;  // keys of this block that the first query sees, if not all
    for (int h = 0; h < kv_heads; ++h) {
      pack_keys(a.kv, b, h, s.k);
      pack_values(a.kv, b, a.kv.kv_heads + h, s.v);
      if (a.kv.kind == Kind::bf16) block_results<DotBf16>(a, s, b, h, rows, group, first_valid);
      else block_results<DotF32>(a, s, b, h, rows, group, first_valid);
      if (item.partial) {
        std::memcpy(item.partial + (static_cast<size_t>(i - item.b0) * a.heads + h * group) * (dim + 2), s.part,
                    sizeof(float) * static_cast<size_t>(rows) * (dim + 2));
        continue;
      }
      for (int r = 0; r < rows; ++r)
        if (first_valid + r / group > 0)
          fold(s.state + (static_cast<size_t>(h) * rows + r) * (dim + 2), s.part + static_cast<size_t>(r) * (dim + 2), dim);
    }
  }
  if (item.partial) return;
  for (int h = 0; h < kv_heads; ++h)
    for (int r = 0; r < rows; ++r) {
      const size_t row = static_cast<size_t>(item.seq->first_row) + item.q0 + r / group;
      finish(s.state + (static_cast<size_t>(h) * rows + r) * (dim + 2), dim, a.out + (row * a.heads + h * group + r % group) * dim);
    }
}

void fold_partials(const AttentionArgs& a, const float* partial, int blocks, int row) {
  const int dim = a.kv.head_dim;
  const size_t stride = partial_floats(a);
  float state[256 + 2];
  for (int h = 0; h < a.heads; ++h) {
    clear(state, dim);
    for (int i = 0; i < blocks; ++i) fold(state, partial + i * stride + static_cast<size_t>(h) * (dim + 2), dim);
    finish(state, dim, a.out + (static_cast<size_t>(row) * a.heads + h) * dim);
  }
}

}  // namespace headrace::HR_ISA
