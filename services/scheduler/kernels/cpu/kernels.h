// The kernels as function pointers, one table for each instruction set.
#pragma once
#include "types.h"

namespace headrace {

// A block of attention work: query rows [q0, q1) of one sequence against its KV blocks [b0, b1).
struct AttentionItem {
  const Sequence* seq;
  int q0, q1;
  int b0, b1;
  float* partial;  // null: the item covers all blocks and writes its output; else where the blocks' results go
};

struct AttentionArgs {
  const uint8_t* q;    // [tokens][heads][head_dim] in the pool's kind
  float* out;          // [tokens][heads * head_dim]
  KvLayer kv;
  int heads;
  float scale;
};

struct RopeArgs {
  float* qkv;             // [tokens][(heads + 2 kv_heads) * head_dim]; head norms are applied in place
  const int32_t* positions;
  const int32_t* out_slots;
  const float* cos;       // [context][head_dim / 2]
  const float* sin;
  const float* q_norm;    // [head_dim] or null
  const float* k_norm;
  float eps;
  int heads;
  KvLayer kv;
  uint8_t* q;             // [tokens][heads][head_dim] in the pool's kind
};

// A row-major [n, k] matrix of float or bf16.
struct Matrix {
  const void* data;
  bool bf16;
  int n, k;
};

struct Kernels {
  const char* isa;
  // Columns [16 * strip, 16 * (strip + strips)) of rows x weight^T, stored to (or added to) out, whose first column is
  // 16 * strip and whose rows are `stride` floats apart.
  void (*product)(const Rows& x, const Weight& w, int rows, int strip, int strips, float* out, size_t stride, bool add);
  // Float rows -> activations of `kind`.
  void (*to_rows)(const float* x, size_t stride, int rows, int k, Kind kind, const Rows& out);
  void (*rmsnorm)(const float* x, size_t stride, const float* weight, float eps, int rows, int k, float* out, size_t out_stride);
  void (*silu_mul)(const float* gate, const float* up, size_t stride, int rows, int k, float* out, size_t out_stride);
  void (*rope)(const RopeArgs& a, int first, int last);
  // Floats of scratch that one thread needs for `tokens` query rows an item.
  size_t (*attention_scratch)(const AttentionArgs& a, int tokens);
  void (*attention)(const AttentionArgs& a, const AttentionItem& item, float* scratch);
  // Floats of one block's result for one token.
  size_t (*partial_floats)(const AttentionArgs& a);
  // Folds the results of `blocks` blocks, which it overwrites, into row `row` of the output.
  void (*fold_partials)(const AttentionArgs& a, float* partial, int blocks, int row);
  // Whether rows [first, last) of `source` lie on a grid of 16 levels per group, so that i4 holds them as they are.
  bool (*fits_i4)(const Matrix& source, int first, int last);
  // Strips [first, last) of `w`, from `source`.
  void (*pack)(const Matrix& source, const Weight& w, int first, int last);
  void (*embed)(const Matrix& table, const int32_t* ids, int first, int last, float* out);
};

const Kernels& kernels_avx512();
const Kernels& kernels_avx2();
const Kernels& kernels_portable();

}  // namespace headrace
