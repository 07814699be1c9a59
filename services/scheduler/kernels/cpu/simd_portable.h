// The sixteen-lane vectors of simd.h in plain GCC/Clang vector extensions: right everywhere, fast nowhere.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace headrace::portable {

typedef float F16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));
typedef uint32_t U16 __attribute__((vector_size(64)));

struct F { F16 v; };
struct I { I16 v; };

template <class To, class From> inline To bits(From a) {
  static_assert(sizeof(To) == sizeof(From));
  To b;
  std::memcpy(&b, &a, sizeof b);
  return b;
}

inline F set1(float x) { return {x - F16{}}; }
inline F zero() { return {F16{}}; }
inline F load(const float* p) {
  F a;
  std::memcpy(&a.v, p, 64);
  return a;
}
inline void store(float* p, F a) { std::memcpy(p, &a.v, 64); }
inline F add(F a, F b) { return {a.v + b.v}; }
inline F sub(F a, F b) { return {a.v - b.v}; }
inline F mul(F a, F b) { return {a.v * b.v}; }
inline F div(F a, F b) { return {a.v / b.v}; }
inline F fma(F a, F b, F c) { return {a.v * b.v + c.v}; }
inline F min(F a, F b) { return {a.v < b.v ? a.v : b.v}; }
inline F max_keep_nan(F a, F b) { return {a.v > b.v ? a.v : b.v}; }
inline F abs(F a) { return {bits<F16>(bits<U16>(a.v) & 0x7fffffffu)}; }
// Adding and taking away 1.5 * 2^23 rounds to nearest even, as long as |a| < 2^22.
inline F round(F a) {
  const F16 magic = set1(12582912.0f).v;
  return {(a.v + magic) - magic};
}
inline F scale_by_power_of_two(F p, F n) {
  const I16 e = __builtin_convertvector(n.v, I16);
  const F16 scaled = bits<F16>(bits<I16>(p.v) + (e << 23));
  return {n.v != n.v ? n.v : (n.v < -126.0f ? F16{} : scaled)};
}
inline float sum(F a) {
  float s = 0;
  for (int i = 0; i < 16; ++i) s += a.v[i];
  return s;
}
inline float max_lane(F a) {
  float m = a.v[0];
  for (int i = 1; i < 16; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}
inline F keep_first(F a, int n, float fill) {
  for (int i = n < 0 ? 0 : n; i < 16; ++i) a.v[i] = fill;
  return a;
}

inline I set1(int32_t x) { return {x + I16{}}; }
inline I load_dwords(const void* p) {
  I a;
  std::memcpy(&a.v, p, 64);
  return a;
}
inline void store_dwords(void* p, I a) { std::memcpy(p, &a.v, 64); }
inline I broadcast_dword(const void* p) {
  int32_t x;
  std::memcpy(&x, p, 4);
  return set1(x);
}
inline I add(I a, I b) { return {a.v + b.v}; }
inline F to_float(I a) { return {__builtin_convertvector(a.v, F16)}; }
inline F as_float(I a) { return {bits<F16>(a.v)}; }
inline I round_to_int(F a) { return {__builtin_convertvector(round(a).v, I16)}; }
inline int32_t sum(I a) {
  int32_t s = 0;
  for (int i = 0; i < 16; ++i) s += a.v[i];
  return s;
}
inline void store_bytes(int8_t* p, I a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.v[i]);
}

inline I times_128(I a) { return {a.v << 7}; }
inline I low_nibbles(I a) { return {a.v & 0x0f0f0f0f}; }
inline I high_nibbles(I a) { return {(a.v >> 4) & 0x0f0f0f0f}; }

// The exponent's bias is corrected by a multiplication, which also handles subnormal numbers.
inline F load_f16(const uint16_t* p) {
  U16 u;
  for (int i = 0; i < 16; ++i) u[i] = static_cast<uint32_t>(p[i] & 0x7fff) << 13;
  F16 f = bits<F16>(u) * 0x1p112f;
  for (int i = 0; i < 16; ++i) f[i] = p[i] & 0x8000 ? -f[i] : f[i];
  return {f};
}
inline F load_bf16(const uint16_t* p) {
  U16 a;
  for (int i = 0; i < 16; ++i) a[i] = static_cast<uint32_t>(p[i]) << 16;
  return {bits<F16>(a)};
}
inline void store_bf16(uint16_t* p, F a) {
  const U16 u = bits<U16>(a.v);
  for (int i = 0; i < 16; ++i) {
    const bool nan = (u[i] & 0x7fffffffu) > 0x7f800000u;
    p[i] = nan ? static_cast<uint16_t>((u[i] >> 16) | 0x40) : static_cast<uint16_t>((u[i] + 0x7fff + ((u[i] >> 16) & 1)) >> 16);
  }
}
inline I interleave_bf16(const uint16_t* a, const uint16_t* b) {
  U16 r;
  for (int i = 0; i < 16; ++i) r[i] = a[i] | static_cast<uint32_t>(b[i]) << 16;
  return {bits<I16>(r)};
}
inline F dot_bf16(F acc, I w, I x) {
  const U16 wu = bits<U16>(w.v), xu = bits<U16>(x.v);
  const F16 hi = bits<F16>(wu & 0xffff0000u) * bits<F16>(xu & 0xffff0000u);
  const F16 lo = bits<F16>(wu << 16) * bits<F16>(xu << 16);
  return {(acc.v + lo) + hi};
}
inline I dot_u8s8(I acc, I w, I x) {
  const U16 wu = bits<U16>(w.v);
  for (int s = 0; s < 32; s += 8) {
    const I16 wb = bits<I16>((wu >> s) & 0xffu);
    const I16 xb = (x.v << (24 - s)) >> 24;
    acc.v += wb * xb;
  }
  return acc;
}

inline void transpose_dwords(const uint32_t* const* rows, I (&out)[16]) {
  uint32_t columns[16][16];
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) columns[j][i] = rows[i][j];
  for (int j = 0; j < 16; ++j) out[j] = load_dwords(columns[j]);
}

constexpr int tile_rows(int) { return 2; }
constexpr int kMaxStrips = 1;
constexpr int kDirectRows = 1;

}  // namespace headrace::portable
