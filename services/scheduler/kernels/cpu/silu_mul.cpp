// out = silu(gate) * up.
#include "kernels.h"
#include "simd.h"

namespace headrace::HR_ISA {

void silu_mul(const float* gate, const float* up, size_t stride, int rows, int k, float* out, size_t out_stride) {
  for (int r = 0; r < rows; ++r, gate += stride, up += stride, out += out_stride)
    for (int i = 0; i < k; i += kLanes) store(out + i, mul(silu(load(gate + i)), load(up + i)));
}

}  // namespace headrace::HR_ISA
