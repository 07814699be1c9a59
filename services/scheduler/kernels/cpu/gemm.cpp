// rows x weight^T for f32, bf16 and int8 weights packed by pack.cpp.
#include "kernels.h"
#include "tile.h"

namespace headrace::HR_ISA {
namespace {

// Integer sums are exact inside a group, and groups are added in order, so the result is the same for every R and S.
template <int R, int S, bool Wide>
struct IntTile {
  const Rows& x;
  const TileArgs& a;
  Ahead ahead;
  F acc[R][S];

  IntTile(const Rows& rows, const TileArgs& args) : x(rows), a(args), ahead(args.ahead) {
    for (auto& row : acc)
      for (F& v : row) v = zero();
  }

  const Group& group(int r, int g) const { return x.groups[r * x.row_groups + g]; }

  // Adds a quad of k: weights in w[s], bytes of the rows at column k.
  void quad(I (&sum)[R][S], const I (&w)[S], int k) const {
    for (int r = 0; r < R; ++r) {
      const I xv = broadcast_dword(x.data + r * x.row_bytes + k);
      for (int s = 0; s < S; ++s) sum[r][s] = dot_u8s8(sum[r][s], w[s], xv);
    }
  }

  // Calls add(column of x in bytes) for the bytes of group g, or for the high bytes, times 128, and then the low ones.
  template <class Add>
  static void planes(int g, I (&sum)[R][S], Add add) {
    if constexpr (Wide) {
      add(2 * g * kGroup);
      for (auto& row : sum)
        for (I& v : row) v = times_128(v);
      add(2 * g * kGroup + kGroup);
    } else {
      add(g * kGroup);
    }
  }

  void i8_group(const uint8_t* w, const uint8_t* scales, int g) {
    I sum[R][S];
    for (auto& row : sum)
      for (I& v : row) v = set1(0);
    planes(g, sum, [&](int column) {
      for (int k = 0; k < kGroup; k += 4) {
        I wv[S];
        for (int s = 0; s < S; ++s) wv[s] = load_dwords(w + k * 16 + s * a.w_stride);
        quad(sum, wv, column + k);
      }
    });
    if (!ahead.idle()) ahead.fetch(8 * S);
    for (int s = 0; s < S; ++s) {
      const F scale = load_f16(reinterpret_cast<const uint16_t*>(scales + s * a.w_stride));
      for (int r = 0; r < R; ++r) {
        const I exact = add(sum[r][s], set1(group(r, g).offset));
        acc[r][s] = fma(to_float(exact), mul(scale, set1(group(r, g).scale)), acc[r][s]);
      }
    }
  }

  void i4_group(const uint8_t* w, int g) {
    I sum[R][S];
    for (auto& row : sum)
      for (I& v : row) v = set1(0);
    planes(g, sum, [&](int column) {
      for (int k = 0; k < kGroup; k += 8) {
        I low[S], high[S];
        for (int s = 0; s < S; ++s) {
          const I both = load_dwords(w + k * 8 + s * a.w_stride);
          low[s] = low_nibbles(both);
          high[s] = high_nibbles(both);
        }
        quad(sum, low, column + k);
        quad(sum, high, column + k + 4);
      }
    });
    if (!ahead.idle()) ahead.fetch(5 * S);
    for (int s = 0; s < S; ++s) {
      const auto* f16 = reinterpret_cast<const uint16_t*>(w + 256 + s * a.w_stride);
      const F scale = load_f16(f16), minimum = load_f16(f16 + 16);
      for (int r = 0; r < R; ++r) {
        acc[r][s] = fma(minimum, set1(group(r, g).sum), acc[r][s]);
        acc[r][s] = fma(to_float(sum[r][s]), mul(scale, set1(group(r, g).scale)), acc[r][s]);
      }
    }
  }

  void run(Kind kind, int groups) {
    const uint8_t* w = a.w;
    if (kind == Kind::i4) {
      for (int g = 0; g < groups; ++g, w += 256 + 64) i4_group(w, g);
    } else {
      int g = 0;
      for (; g + 2 <= groups; g += 2, w += 2 * 512 + 64) {
        i8_group(w, w + 1024, g);
        i8_group(w + 512, w + 1024 + 32, g + 1);
        ahead.fetch(S);
      }
      if (g < groups) i8_group(w, w + 512, g);
    }
    finish_tile<R, S>(a, acc);
  }
};

constexpr int kIntRows = kMaxStrips >= 4 ? 6 : 2;  // two sets of accumulators halve the rows
constexpr int kIntStreamRows = 3;

void int_product(const Rows& x, const Weight& w, TileArgs a, int rows, int strips) {
  auto column = [&]<int S>() {
    for (int r = 0; r < rows;) {
      const int n = next_rows(rows - r, kIntRows);
      TileArgs t = a;
      t.ahead = Ahead::of(a.w, a.w_stride, S, r == 0);
      t.out += r * a.out_stride;
      with_rows<kIntRows>(n, [&]<int R>() {
        const Rows from = x.from(r);
        if (w.wide) IntTile<R, S, true>(from, t).run(w.kind, w.k / kGroup);
        else IntTile<R, S, false>(from, t).run(w.kind, w.k / kGroup);
      });
      r += n;
    }
    a.w += S * a.w_stride;
    a.out += 16 * S;
    if (a.bias) a.bias += 16 * S;
    strips -= S;
  };
  if (kMaxStrips >= 4 && rows > kIntStreamRows)
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
    case Kind::i16:
      return;  // activations only
  }
}

}  // namespace headrace::HR_ISA
