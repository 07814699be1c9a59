// The register tile that every product is made of: `R` rows times `S` strips of 16 columns.
//
// out[r][16 s + lane] = sum over steps k of w[s][k][lane] . x[r][k]. One accumulator walks k in order whatever R and
// S are, so a row's result does not depend on the rows beside it.
#pragma once
#include "simd.h"

namespace headrace::HR_ISA {

// Few rows are limited by memory: they take one strip after the other, in the order of the addresses.
constexpr int kStreamRows = 4;
constexpr int kAhead = 2048;

// Weights to bring near while a tile computes, in the order of their addresses: memory delivers a run of lines about
// twice as fast as two runs side by side.
struct Ahead {
  const uint8_t* next;
  size_t step;  // 64, or 0 to stay put: the other row tiles of the same strips have nothing to fetch

  // For the first of several row tiles: a single strip fetches a little ahead, a pair fetches the next pair.
  static Ahead of(const uint8_t* w, size_t w_stride, int strips, bool first) {
    if (!first) return {w, 0};
    return {w + (strips == 1 ? kAhead : strips * w_stride), 64};
  }
  bool idle() const { return step == 0; }
  void fetch(int lines) {
    for (int i = 0; i < lines; ++i, next += step) __builtin_prefetch(next, 0, 2);
  }
};

// How many of `left` rows the next tile takes: no tile is left with a single row.
inline int next_rows(int left, int most) { return left <= most ? left : left < 2 * most ? (left + 1) / 2 : most; }

struct DotF32 {
  static constexpr bool kPairs = false;
  static F step(F acc, I w, I x) { return fma(as_float(w), as_float(x), acc); }
};
struct DotBf16 {
  static constexpr bool kPairs = true;
  static F step(F acc, I w, I x) { return dot_bf16(acc, w, x); }
};

struct TileArgs {
  const uint8_t* x;     // dwords, one row every x_stride bytes
  size_t x_stride;
  const uint8_t* w;     // strips of [steps][16] dwords
  size_t w_stride;      // bytes between strips
  int steps;            // dwords of k
  float* out;
  size_t out_stride;    // floats between rows
  const float* bias;    // S * 16 floats or null
  bool accumulate;      // add to what out holds
  Ahead ahead;
};

template <int R, int S>
inline void finish_tile(const TileArgs& a, F (&acc)[R][S]) {
  for (int s = 0; s < S; ++s) {
    for (int r = 0; r < R; ++r) {
      float* o = a.out + static_cast<size_t>(r) * a.out_stride + 16 * s;
      F v = acc[r][s];
      if (a.bias) v = add(v, load(a.bias + 16 * s));
      if (a.accumulate) v = add(load(o), v);
      store(o, v);
    }
  }
}

template <class Dot, int R, int S>
inline void float_tile(const TileArgs& a) {
  F acc[R][S];
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) acc[r][s] = zero();
  const uint8_t* w = a.w;
  const uint8_t* x = a.x;
  Ahead ahead = a.ahead;
  for (int k = 0; k < a.steps; ++k, w += 64, x += 4) {
    I wv[S];
    for (int s = 0; s < S; ++s) wv[s] = load_dwords(w + s * a.w_stride);
    ahead.fetch(S);
    for (int r = 0; r < R; ++r) {
      const I xv = broadcast_dword(x + r * a.x_stride);
      for (int s = 0; s < S; ++s) acc[r][s] = Dot::step(acc[r][s], wv[s], xv);
    }
  }
  finish_tile<R, S>(a, acc);
}

// Calls f<R>() for the run-time number of rows.
template <int Max, class Fn>
inline void with_rows(int rows, Fn&& f) {
  if constexpr (Max > 1) {
    if (rows < Max) return with_rows<Max - 1>(rows, f);
  }
  f.template operator()<Max>();
}

// All rows and strips of one product, cut into register tiles.
template <class Dot>
inline void float_product(TileArgs a, int rows, int strips) {
  auto column = [&]<int S>() {
    for (int r = 0; r < rows;) {
      const int n = next_rows(rows - r, tile_rows(S));
      TileArgs t = a;
      t.ahead = Ahead::of(a.w, a.w_stride, S, r == 0);
      t.x += r * a.x_stride;
      t.out += r * a.out_stride;
      with_rows<tile_rows(S)>(n, [&]<int R>() { float_tile<Dot, R, S>(t); });
      r += n;
    }
    a.w += S * a.w_stride;
    a.out += 16 * S;
    if (a.bias) a.bias += 16 * S;
    strips -= S;
  };
  if (kMaxStrips >= 4 && rows > kStreamRows) {
    if (rows <= tile_rows(4))
      while (strips >= 4) column.template operator()<4>();
    while (strips >= 2) column.template operator()<2>();
  }
  while (strips >= 1) column.template operator()<1>();
}

}  // namespace headrace::HR_ISA
