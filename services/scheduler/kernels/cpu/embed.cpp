// Rows of the embedding table, widened to float.
#include "kernels.h"
#include "simd.h"

namespace headrace::HR_ISA {

void embed(const Matrix& table, const int32_t* ids, int first, int last, float* out) {
  for (int t = first; t < last; ++t) {
    const size_t at = static_cast<size_t>(ids[t]) * table.k;
    float* o = out + static_cast<size_t>(t) * table.k;
    if (table.bf16)
      for (int i = 0; i < table.k; i += kLanes) store(o + i, load_bf16(static_cast<const uint16_t*>(table.data) + at + i));
    else
      std::memcpy(o, static_cast<const float*>(table.data) + at, static_cast<size_t>(table.k) * 4);
  }
}

}  // namespace headrace::HR_ISA
