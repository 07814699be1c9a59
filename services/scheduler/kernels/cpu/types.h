// Plain descriptions of the data that kernels read and write: pointers, sizes, strides. No torch.
#pragma once
#include <cstddef>
#include <cstdint>

namespace headrace {

// i16 is a kind of activations only.
enum class Kind : int { f32 = 0, bf16 = 1, i8 = 2, i4 = 3, i16 = 4 };

constexpr int kGroup = 32;  // numbers that share a scale, in int8 activations and in i8 and i4 weights

// A packed [n, k] matrix. Columns of the product (n) come in strips of 16, and a strip is contiguous:
//   f32   [k][16] floats
//   bf16  [k/2][16] pairs
//   i8    for each two groups of k: [16][16] quads of (weight / scale + 128) as unsigned bytes, then [2][16] f16 scales
//   i4    for each group of k: [4][16] quads of bytes, low nibbles for one quad of k and high nibbles for the next, then
//         [2][16] f16, scale and minimum; weight = scale * nibble + minimum
// n is padded to a multiple of 16 with zero weights.
struct Weight {
  uint8_t* data = nullptr;
  size_t strip_bytes = 0;
  int n = 0, k = 0;
  Kind kind = Kind::f32;
  bool wide = false;            // i8 and i4 take 16-bit activations: twice the work, almost no rounding
  const float* bias = nullptr;  // padded like n, or null

  int strips() const { return (n + 15) / 16; }
  static size_t bytes_of_strip(Kind kind, int k) {
    const auto n = static_cast<size_t>(k), groups = n / kGroup;
    switch (kind) {
      case Kind::f32: return n * 64;
      case Kind::bf16: return n * 32;
      case Kind::i8: return n * 16 + (groups + 1) / 2 * 64;
      case Kind::i4: return n * 8 + groups * 64;
      case Kind::i16: break;
    }
    return 0;
  }
  Kind activations() const { return kind == Kind::f32 || kind == Kind::bf16 ? kind : wide ? Kind::i16 : Kind::i8; }
};

constexpr size_t element_bytes(Kind activation) {
  return activation == Kind::f32 ? 4 : activation == Kind::bf16 || activation == Kind::i16 ? 2 : 1;
}

// Of one group of integer activations.
struct Group {
  float scale;     // value = scale * integer
  int32_t offset;  // -128 * sum of the integers: undoes the +128 of i8 weights
  float sum;       // sum of the values: what the minimum of i4 weights is multiplied with
  float unused;
};

// The left side of a product, row-major: f32; bf16; i8, bytes with a Group for each 32 of them; or i16, where the
// integer is 128 * high + low and each group is 32 high bytes and then 32 low bytes.
struct Rows {
  uint8_t* data = nullptr;
  size_t row_bytes = 0;
  Group* groups = nullptr;
  size_t row_groups = 0;

  Rows from(int row) const {
    const auto r = static_cast<size_t>(row);
    return {data + r * row_bytes, row_bytes, groups ? groups + r * row_groups : nullptr, row_groups};
  }
  // The same rows, from column k on; k is a multiple of kGroup when there are groups.
  Rows column(int k, Kind activation) const {
    return {data + static_cast<size_t>(k) * element_bytes(activation), row_bytes, groups ? groups + k / kGroup : nullptr, row_groups};
  }
};

// Where keys and values live: one layer of the pool, [slot][2][kv_heads][head_dim] of f32 or bf16.
struct KvLayer {
  uint8_t* data = nullptr;
  size_t slot_bytes = 0;
  int kv_heads = 0, head_dim = 0;
  Kind kind = Kind::bf16;
};

// One sequence of a batch as attention sees it: its last `extend` tokens are queries.
struct Sequence {
  const int32_t* slots = nullptr;  // slots[p] holds token p, for p < length
  int length = 0;
  int extend = 0;
  int first_row = 0;  // row of its first query in the flat batch
};

constexpr int kKvBlock = 64;  // keys are reduced in blocks of 64 absolute positions, always

}  // namespace headrace
