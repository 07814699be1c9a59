// rows x weight^T for f32, bf16 and int8 weights packed by pack.cpp.
#include "kernels.h"
#include "tile.h"

namespace headrace::HR_ISA {
namespace {

// Integer sums are exact inside a group, and groups are added in order, so the result is the same for every R and S.
template <int R, int S>
inline void i8_tile(const Rows& x, const Weight& w, const TileArgs& a) {
  F acc[R][S];
  for (auto& row : acc)
    for (F& v : row) v = zero();
  const uint8_t *wp = a.w, *xp = x.data;
  const uint8_t* scales = a.w + w.scales_at();
  for (int g = 0; g < w.k / kGroup; ++g, scales += 32) {
    I sum[R][S];
    for (int r = 0; r < R; ++r)
      for (int s = 0; s < S; ++s) sum[r][s] = set1(x.groups[r * x.row_groups + g].offset);
    for (int k = 0; k < kGroup; k += 4, wp += 64, xp += 4) {
      I wv[S];
      for (int s = 0; s < S; ++s) {
        wv[s] = load_dwords(wp + s * a.w_stride);
        if (R <= 4) __builtin_prefetch(wp + s * a.w_stride + kAhead);
      }
      for (int r = 0; r < R; ++r) {
        const I xv = broadcast_dword(xp + r * x.row_bytes);
        for (int s = 0; s < S; ++s) sum[r][s] = dot_u8s8(sum[r][s], wv[s], xv);
      }
    }
    for (int s = 0; s < S; ++s) {
      const F scale = load_f16(reinterpret_cast<const uint16_t*>(scales + s * a.w_stride));
      for (int r = 0; r < R; ++r) acc[r][s] = fma(to_float(sum[r][s]), mul(scale, set1(x.groups[r * x.row_groups + g].scale)), acc[r][s]);
    }
  }
  finish_tile<R, S>(a, acc);
}

template <int R, int S>
inline void i4_tile(const Rows& x, const Weight& w, const TileArgs& a) {
  F acc[R][S];
  for (auto& row : acc)
    for (F& v : row) v = zero();
  const uint8_t *wp = a.w, *xp = x.data;
  const uint8_t* scales = a.w + w.scales_at();
  for (int g = 0; g < w.k / kGroup; ++g, scales += 64) {
    I sum[R][S];
    for (auto& row : sum)
      for (I& v : row) v = set1(0);
    for (int k = 0; k < kGroup; k += 8, wp += 64, xp += 8) {
      I low[S], high[S];
      for (int s = 0; s < S; ++s) {
        const I both = load_dwords(wp + s * a.w_stride);
        low[s] = low_nibbles(both);
        high[s] = high_nibbles(both);
        if (R <= 4) __builtin_prefetch(wp + s * a.w_stride + kAhead);
      }
      for (int r = 0; r < R; ++r) {
        const I x0 = broadcast_dword(xp + r * x.row_bytes), x1 = broadcast_dword(xp + r * x.row_bytes + 4);
        for (int s = 0; s < S; ++s) sum[r][s] = dot_u8s8(dot_u8s8(sum[r][s], low[s], x0), high[s], x1);
      }
    }
    for (int s = 0; s < S; ++s) {
      const auto* f16 = reinterpret_cast<const uint16_t*>(scales + s * a.w_stride);
      const F scale = load_f16(f16), minimum = load_f16(f16 + 16);
      for (int r = 0; r < R; ++r) {
        const Group& group = x.groups[r * x.row_groups + g];
        acc[r][s] = fma(minimum, set1(group.sum), acc[r][s]);
        acc[r][s] = fma(to_float(sum[r][s]), mul(scale, set1(group.scale)), acc[r][s]);
      }
    }
  }
  finish_tile<R, S>(a, acc);
}

constexpr int kIntRows = kMaxStrips >= 4 ? 6 : 2;  // two sets of accumulators halve the rows

void int_product(const Rows& x, const Weight& w, TileArgs a, int rows, int strips) {
  auto column = [&]<int S>() {
    for (int r = 0; r < rows;) {
      const int n = next_rows(rows - r, kIntRows);
      TileArgs t = a;
      t.out += r * a.out_stride;
      with_rows<kIntRows>(n, [&]<int R>() {
        if (w.kind == Kind::i8) i8_tile<R, S>(x.from(r), w, t);
        else i4_tile<R, S>(x.from(r), w, t);
      });
      r += n;
    }
    a.w += S * a.w_stride;
    a.out += 16 * S;
    if (a.bias) a.bias += 16 * S;
    strips -= S;
  };
  if constexpr (kMaxStrips >= 4)
    while (strips >= 2) column.template operator()<2>();
  while (strips >= 1) column.template operator()<1>();
}

}  // namespace

void product(const Rows& x, const Weight& w, int rows, int strip, int strips, float* out, size_t stride, bool add) {
  TileArgs a{};
  a.x = x.data;
  a.x_stride = x.row_bytes;
  a.w = w.data + strip * w.strip_bytes;
  a.w_stride = w.strip_bytes;
  a.out = out;
  a.out_stride = stride;
  a.bias = w.bias ? w.bias + 16 * strip : nullptr;
  a.accumulate = add;
  switch (w.kind) {
    case Kind::f32:
      a.steps = w.k;
      return float_product<DotF32>(a, rows, strips);
    case Kind::bf16:
      a.steps = w.k / 2;
      return float_product<DotBf16>(a, rows, strips);
    case Kind::i8:
    case Kind::i4:
      return int_product(x, w, a, rows, strips);
  }
}

}  // namespace headrace::HR_ISA
