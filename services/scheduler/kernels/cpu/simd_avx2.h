// The sixteen-lane vectors of simd.h as two AVX2 registers.
#pragma once
#include <immintrin.h>
#include <cstdint>
#include <cstring>

namespace headrace::avx2 {

struct F { __m256 a, b; };
struct I { __m256i a, b; };

inline F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
// The second operand wins when either is NaN.
inline F max_keep_nan(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F abs(F x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline F round(F x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, mode), _mm256_round_ps(x.b, mode)};
}
inline __m256 scale_half(__m256 p, __m256 n) {
  const __m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const __m256 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), e));
  const __m256 small = _mm256_cmp_ps(n, _mm256_set1_ps(-126.0f), _CMP_LT_OQ);
  const __m256 nan = _mm256_cmp_ps(n, n, _CMP_UNORD_Q);
  return _mm256_blendv_ps(_mm256_andnot_ps(small, scaled), n, nan);
}
inline F scale_by_power_of_two(F p, F n) { return {scale_half(p.a, n.a), scale_half(p.b, n.b)}; }
inline float sum(F x) {
  const __m256 s = _mm256_add_ps(x.a, x.b);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
inline float max_lane(F x) {
  const __m256 s = _mm256_max_ps(x.a, x.b);
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
inline F keep_first(F x, int n, float fill) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 f = _mm256_set1_ps(fill);
  const __m256 ka = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane));
  const __m256 kb = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane));
  return {_mm256_blendv_ps(f, x.a, ka), _mm256_blendv_ps(f, x.b, kb)};
}

inline __m256i load_half(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline I set1(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I load_dwords(const void* p) { return {load_half(p), load_half(static_cast<const char*>(p) + 32)}; }
inline void store_dwords(void* p, I x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, x.b);
}
inline I broadcast_dword(const void* p) {
  int32_t x;
  std::memcpy(&x, p, 4);
  return set1(x);
}
inline I add(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline F as_float(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline I round_to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline int32_t sum(I x) {
  const __m256i s = _mm256_add_epi32(x.a, x.b);
  __m128i q = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
inline void store_bytes(int8_t* p, I x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

inline I times_128(I x) { return {_mm256_slli_epi32(x.a, 7), _mm256_slli_epi32(x.b, 7)}; }
inline I low_nibbles(I x) {
  const __m256i m = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
inline I high_nibbles(I x) { return low_nibbles({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)}); }

inline F load_f16(const uint16_t* p) {
  const auto* h = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
inline __m256i widen(const uint16_t* p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline F load_bf16(const uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(widen(p), 16)), _mm256_castsi256_ps(_mm256_slli_epi32(widen(p + 8), 16))};
}
inline __m256i narrow(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
}
inline void store_bf16(uint16_t* p, F x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(narrow(x.a), narrow(x.b)), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
}
inline I interleave_bf16(const uint16_t* x, const uint16_t* y) {
  return {_mm256_or_si256(widen(x), _mm256_slli_epi32(widen(y), 16)),
          _mm256_or_si256(widen(x + 8), _mm256_slli_epi32(widen(y + 8), 16))};
}
inline __m256 dot_half(__m256 acc, __m256i w, __m256i x) {
  const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u));
  acc = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(w, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)), acc);
  return _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(w, high)), _mm256_castsi256_ps(_mm256_and_si256(x, high)), acc);
}
inline F dot_bf16(F acc, I w, I x) { return {dot_half(acc.a, w.a, x.a), dot_half(acc.b, w.b, x.b)}; }
// Widened to 16 bits first: vpmaddubsw would saturate.
inline __m256i dot_half(__m256i acc, __m256i w, __m256i x) {
  const __m256i even = _mm256_set1_epi16(0x00ff);
  const __m256i lo = _mm256_madd_epi16(_mm256_and_si256(w, even), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
  const __m256i hi = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(x, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(lo, hi));
}
inline I dot_u8s8(I acc, I w, I x) { return {dot_half(acc.a, w.a, x.a), dot_half(acc.b, w.b, x.b)}; }

inline void transpose_dwords(const uint32_t* const* rows, I (&out)[16]) {
  uint32_t columns[16][16];
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) columns[j][i] = rows[i][j];
  for (int j = 0; j < 16; ++j) out[j] = load_dwords(columns[j]);
}

constexpr int tile_rows(int) { return 4; }
constexpr int kMaxStrips = 1;
constexpr int kDirectRows = 1;

}  // namespace headrace::avx2
