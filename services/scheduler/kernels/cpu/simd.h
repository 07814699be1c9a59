// Sixteen-lane vectors with one meaning on every instruction set.
//
// HR_ISA (avx512, avx2 or portable) is given by the build for each compilation of a kernel and names the
// namespace, so that code compiled for a newer processor can never be picked by the linker for an older one.
// F holds 16 floats, I 16 dwords. "Pairs" are two bf16 numbers in one dword, "quads" four bytes in one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#define HR_ISA_IS_avx512 1
#define HR_ISA_IS_avx2 2
#define HR_ISA_IS_portable 3
#define HR_CAT_(a, b) a##b
#define HR_CAT(a, b) HR_CAT_(a, b)
#define HR_LEVEL HR_CAT(HR_ISA_IS_, HR_ISA)

#if HR_LEVEL == 1
#include "simd_avx512.h"
#elif HR_LEVEL == 2
#include "simd_avx2.h"
#else
#include "simd_portable.h"
#endif

namespace headrace::HR_ISA {

constexpr int kLanes = 16;

inline float bf16_to_float(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// 2^x for x <= 0 (also right for any x below 126): Cephes-style polynomial on [-1/2, 1/2], then the exponent.
// A NaN stays a NaN, so that a poisoned row is seen and not hidden.
inline F exp2(F x) {
  x = max_keep_nan(set1(-160.0f), x);
  const F n = round(x);
  const F f = sub(x, n);
  F p = set1(1.535336188319500e-4f);
  p = fma(p, f, set1(1.339887440266574e-3f));
  p = fma(p, f, set1(9.618437357674640e-3f));
  p = fma(p, f, set1(5.550332471162809e-2f));
  p = fma(p, f, set1(2.402264791363012e-1f));
  p = fma(p, f, set1(6.931472028550421e-1f));
  p = fma(p, f, set1(1.0f));
  return scale_by_power_of_two(p, n);
}

inline F silu(F x) {
  const F e = exp2(min(mul(x, set1(-1.4426950408889634f)), set1(125.0f)));
  return div(x, add(set1(1.0f), e));
}

}  // namespace headrace::HR_ISA
