// out = x / sqrt(mean(x^2) + eps) * weight, row by row.
#include <cmath>

#include "kernels.h"
#include "simd.h"

namespace headrace::HR_ISA {

void rmsnorm(const float* x, size_t stride, const float* weight, float eps, int rows, int k, float* out, size_t out_stride) {
  for (int r = 0; r < rows; ++r, x += stride, out += out_stride) {
    F squares = zero();
    for (int i = 0; i < k; i += kLanes) {
      const F v = load(x + i);
      squares = fma(v, v, squares);
    }
    const F factor = set1(1.0f / std::sqrt(sum(squares) / static_cast<float>(k) + eps));
    for (int i = 0; i < k; i += kLanes) store(out + i, mul(mul(load(x + i), factor), load(weight + i)));
  }
}

}  // namespace headrace::HR_ISA
