// Causal attention over keys and values at scattered slots, in decode, prefill and everything between.
//
// Keys are taken in blocks of kKvBlock absolute positions. A block's result for a query (weighted values, maximum,
// sum) depends on that query alone, and results are folded in block order; so a query's output has the same bits
// whether it is computed alone, in a chunk, or with its blocks spread over threads.
#include "attention_block.h"

namespace headrace::HR_ISA {
namespace {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kMinusInfinity = -__builtin_huge_valf();

// Results of rows: weighted values, and for each row the maximum (in log2 units) and the sum of its probabilities.
struct Results {
  float *values, *maximum, *sum;
  Results from(int row, int dim) const { return {values + static_cast<size_t>(row) * dim, maximum + row, sum + row}; }
  static size_t floats(size_t rows, size_t dim) { return padded(rows * dim) + 2 * padded(rows); }
  static Results at(float* base, size_t rows, size_t dim) {
    return {base, base + padded(rows * dim), base + padded(rows * dim) + padded(rows)};
  }
};

// Scratch of one thread; rows = tokens of the item * query heads of a group.
struct Scratch {
  float* q;      // [kv_heads][rows][dim] queries gathered by group, in the pool's kind
  float* k;      // [4 strips][dim dwords][16], one block of keys
  float* v;      // [dim / 16 strips][64 tokens or 32 pairs][16]
  float* score;  // [rows][64] scores, then probabilities in the pool's kind
  Results part;  // of one block and key head
  Results state; // folded so far, [kv_heads][rows]
  size_t floats;
  Scratch(const AttentionArgs& a, int tokens, float* base) {
    const size_t dim = a.kv.head_dim, rows = static_cast<size_t>(tokens) * (a.heads / a.kv.kv_heads), all = a.kv.kv_heads * rows;
    size_t at = 0;
    auto take = [&](size_t n) {
      float* p = base + at;
      at += padded(n);
      return p;
    };
    q = take(all * dim);
    k = take(4 * padded(dim) * 16);
    v = take(dim * kKvBlock);
    score = take(rows * kKvBlock);
    part = Results::at(take(Results::floats(rows, dim)), rows, dim);
    state = Results::at(take(Results::floats(all, dim)), all, dim);
    floats = at;
  }
};

// Scores of one row, of which the first `valid` count -> probabilities against the row's own maximum in this block.
void softmax_row(float* score, int valid, float scale, Kind kind, float* maximum, float* total) {
  constexpr int kVectors = kKvBlock / 16;
  F s[kVectors];
  for (int i = 0; i < kVectors; ++i) s[i] = keep_first(load(score + 16 * i), valid - 16 * i, kMinusInfinity);
  F top = s[0];
  for (int i = 1; i < kVectors; ++i) top = max_keep_nan(top, s[i]);
  *maximum = max_lane(top) * scale;
  const F c = set1(scale), m = set1(-*maximum);
  for (F& x : s) x = exp2(fma(x, c, m));
  *total = sum(add(add(s[0], s[1]), add(s[2], s[3])));
  for (int i = 0; i < kVectors; ++i) {
    if (kind == Kind::bf16) store_bf16(reinterpret_cast<uint16_t*>(score) + 16 * i, s[i]);
    else store(score + 16 * i, s[i]);
  }
}

template <class Dot>
void scores_and_values(const AttentionArgs& a, const Scratch& s, const Block& b, int head, int first, int rows, int group, int first_valid) {
  const int dim = a.kv.head_dim, steps = key_steps(a.kv);
  const float* q = s.q + (static_cast<size_t>(head) * rows + first) * steps;
  const int count = rows - first;
  const bool direct = count <= kDirectRows;
  TileArgs t{};
  t.out = s.score;
  t.out_stride = kKvBlock;
  if (direct) {
    with_rows<kDirectRows>(count, [&]<int R>() { direct_scores<Dot, R>(a.kv, b, head, q, s.score); });
  } else {
    pack_keys(a.kv, b, head, s.k);
    t.x = reinterpret_cast<const uint8_t*>(q);
    t.x_stride = static_cast<size_t>(steps) * 4;
    t.w = reinterpret_cast<const uint8_t*>(s.k);
    t.w_stride = padded(steps) * 64;
    t.steps = steps;
    float_product<Dot>(t, count, (b.tokens + 15) / 16);
  }
  for (int r = 0; r < count; ++r)
    softmax_row(s.score + r * kKvBlock, std::min(first_valid + (first + r) / group, b.tokens), a.scale * kLog2e, a.kv.kind,
                s.part.maximum + r, s.part.sum + r);
  const int value_head = a.kv.kv_heads + head;
  if (direct) {
    with_rows<kDirectRows>(count, [&]<int R>() { direct_values<Dot, R>(a.kv, b, value_head, s.score, s.part.values); });
  } else {
    pack_values(a.kv, b, value_head, s.v);
    t.x = reinterpret_cast<const uint8_t*>(s.score);
    t.x_stride = kKvBlock * 4;
    t.w = reinterpret_cast<const uint8_t*>(s.v);
    t.w_stride = static_cast<size_t>(value_steps(a.kv, kKvBlock)) * 64;
    t.steps = value_steps(a.kv, b.tokens);
    t.out = s.part.values;
    t.out_stride = dim;
    float_product<Dot>(t, count, dim / 16);
  }
}

void clear(const Results& state, int rows, int dim) {
  for (int i = 0; i < rows * dim; i += 16) store(state.values + i, zero());
  for (int r = 0; r < rows; ++r) {
    state.maximum[r] = kMinusInfinity;
    state.sum[r] = 0;
  }
}

void fold(const Results& state, const Results& part, int rows, int dim) {
  for (int r0 = 0; r0 < rows; r0 += 16) {
    const int count = std::min(16, rows - r0);
    float before[16] = {}, now[16] = {}, keep[16], take[16];
    for (int r = 0; r < count; ++r) {
      before[r] = state.maximum[r0 + r];
      now[r] = part.maximum[r0 + r];
    }
    const F top = max_keep_nan(load(before), load(now));
    store(keep, exp2(sub(load(before), top)));
    store(take, exp2(sub(load(now), top)));
    store(now, top);
    for (int r = 0; r < count; ++r) {
      const Results s = state.from(r0 + r, dim), p = part.from(r0 + r, dim);
      const F k = set1(keep[r]), t = set1(take[r]);
      for (int d = 0; d < dim; d += 16) store(s.values + d, fma(load(p.values + d), t, mul(load(s.values + d), k)));
      *s.maximum = now[r];
      *s.sum = *p.sum * take[r] + *s.sum * keep[r];
    }
  }
}

void finish(const Results& state, int dim, float* out) {
  const F inverse = set1(1.0f / *state.sum);
  for (int d = 0; d < dim; d += 16) store(out + d, mul(load(state.values + d), inverse));
}

void copy_part(const Results& part, const Results& to, int rows, int dim) {
  std::memcpy(to.values, part.values, sizeof(float) * static_cast<size_t>(rows) * dim);
  std::memcpy(to.maximum, part.maximum, sizeof(float) * rows);
  std::memcpy(to.sum, part.sum, sizeof(float) * rows);
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

size_t partial_floats(const AttentionArgs& a) { return Results::floats(a.heads, a.kv.head_dim); }

void attention(const AttentionArgs& a, const AttentionItem& item, float* scratch) {
  const int dim = a.kv.head_dim, kv_heads = a.kv.kv_heads, group = a.heads / kv_heads;
  const int tokens = item.q1 - item.q0, rows = tokens * group;
  const Scratch s(a, tokens, scratch);
  const int first_position = item.seq->length - item.seq->extend + item.q0;
  const int seen = first_position + tokens;  // keys that the item's last query sees
  fetch_slots(a.kv, item.seq->slots + item.b0 * kKvBlock, 0, std::min(kKvBlock, seen - item.b0 * kKvBlock));
  gather_queries(a, item, group, s.q);
  if (!item.partial) clear(s.state, kv_heads * rows, dim);
  for (int i = item.b0; i < item.b1; ++i) {
    const int at = i * kKvBlock, after = at + kKvBlock;
    const Block b{item.seq->slots + at, std::min(kKvBlock, seen - at), item.seq->slots + after,
                  i + 1 < item.b1 ? std::min(kKvBlock, seen - after) : 0};
    const int first_valid = first_position - at + 1;             // keys of this block that the item's first query sees
    const int first = std::max(0, 1 - first_valid) * group;      // rows before this one see none of them
    for (int h = 0; h < kv_heads; ++h) {
      if (a.kv.kind == Kind::bf16) scores_and_values<DotBf16>(a, s, b, h, first, rows, group, first_valid);
      else scores_and_values<DotF32>(a, s, b, h, first, rows, group, first_valid);
      if (item.partial)
        copy_part(s.part, Results::at(item.partial + (i - item.b0) * partial_floats(a), a.heads, dim).from(h * group, dim), rows, dim);
      else
        fold(s.state.from(h * rows + first, dim), s.part, rows - first, dim);
    }
  }
  if (item.partial) return;
  for (int h = 0; h < kv_heads; ++h)
    for (int r = 0; r < rows; ++r) {
      const size_t row = static_cast<size_t>(item.seq->first_row) + item.q0 + r / group;
      finish(s.state.from(h * rows + r, dim), dim, a.out + (row * a.heads + h * group + r % group) * dim);
    }
}

void fold_partials(const AttentionArgs& a, float* partial, int blocks, int row) {
  const int dim = a.kv.head_dim;
  const Results state = Results::at(partial, a.heads, dim);  // folding into an empty state is the first part itself
  for (int i = 1; i < blocks; ++i) fold(state, Results::at(partial + i * partial_floats(a), a.heads, dim), a.heads, dim);
  for (int h = 0; h < a.heads; ++h) finish(state.from(h, dim), dim, a.out + (static_cast<size_t>(row) * a.heads + h) * dim);
}

}  // namespace headrace::HR_ISA
