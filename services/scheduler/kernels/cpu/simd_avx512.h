// The sixteen-lane vectors of simd.h on AVX-512 with BF16 and VNNI.
#pragma once
#include <immintrin.h>

namespace headrace::avx512 {

struct F { __m512 v; };
struct I { __m512i v; };

inline F zero() { return {_mm512_setzero_ps()}; }
inline F set1(float x) { return {_mm512_set1_ps(x)}; }
inline F load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
inline F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
// The second operand wins when either is NaN.
inline F max_keep_nan(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F abs(F a) { return {_mm512_abs_ps(a.v)}; }
inline F round(F a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline F scale_by_power_of_two(F p, F n) { return {_mm512_scalef_ps(p.v, n.v)}; }
inline float sum(F a) { return _mm512_reduce_add_ps(a.v); }
inline float max_lane(F a) { return _mm512_reduce_max_ps(a.v); }
// Lanes i >= n become `fill`.
inline F keep_first(F a, int n, float fill) {
  const __mmask16 m = n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
  return {_mm512_mask_blend_ps(m, _mm512_set1_ps(fill), a.v)};
}

inline I set1(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I load_dwords(const void* p) { return {_mm512_loadu_si512(p)}; }
inline void store_dwords(void* p, I a) { _mm512_storeu_si512(p, a.v); }
inline I broadcast_dword(const void* p) { return {_mm512_set1_epi32(*static_cast<const int32_t*>(p))}; }
inline I add(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline F as_float(I a) { return {_mm512_castsi512_ps(a.v)}; }
inline I round_to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
inline int32_t sum(I a) { return _mm512_reduce_add_epi32(a.v); }
inline void store_bytes(int8_t* p, I a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v)); }

inline I times_128(I a) { return {_mm512_slli_epi32(a.v, 7)}; }
inline I low_nibbles(I a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
inline I high_nibbles(I a) { return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))}; }

inline F load_f16(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
inline F load_bf16(const uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
}
inline void store_bf16(uint16_t* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a.v)));
}
// Lane i = (a[i], b[i]) as a pair.
inline I interleave_bf16(const uint16_t* a, const uint16_t* b) {
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a))),
                                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)), 1);
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19,
                                         3, 18, 2, 17, 1, 16, 0);
  return {_mm512_permutexvar_epi16(order, both)};
}
inline F dot_bf16(F acc, I w, I x) {
  return {_mm512_dpbf16_ps(acc.v, reinterpret_cast<__m512bh>(w.v), reinterpret_cast<__m512bh>(x.v))};
}
// Unsigned quads of w times signed quads of x.
inline I dot_u8s8(I acc, I w, I x) { return {_mm512_dpbusd_epi32(acc.v, w.v, x.v)}; }

// Turns 16 rows of 16 dwords into 16 columns: lane i of out[j] = rows[i][j].
__attribute__((always_inline)) inline void transpose_dwords(const uint32_t* const* rows, I (&out)[16]) {
  __m512i r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows[i]);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    out[i] = {_mm512_shuffle_i32x4(t[i], t[i + 8], 0x88)};
    out[i + 8] = {_mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd)};
  }
}

// How many rows a register tile may have when it is `strips` vectors wide.
constexpr int tile_rows(int strips) { return strips >= 4 ? 6 : 12; }
constexpr int kMaxStrips = 4;
constexpr int kDirectRows = 6;  // query rows for which attention reads the pool through registers

}  // namespace headrace::avx512
