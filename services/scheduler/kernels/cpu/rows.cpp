// Float rows turned into what a product takes: f32, bf16, or bytes with a scale and an offset for each group.
#include "kernels.h"
#include "simd.h"

namespace headrace::HR_ISA {
namespace {

void quantize_group(const float* x, int8_t* q, Group* group) {
  F top = zero(), poison = zero();  // poison: NaN if any input is NaN or infinite, else 0
  for (int k = 0; k < kGroup; k += kLanes) {
    top = max_keep_nan(top, abs(load(x + k)));
    poison = fma(load(x + k), zero(), poison);
  }
  const float amax = max_lane(top);
  const F inverse = set1(amax > 0 ? 127.0f / amax : 0.0f);
  I bytes = set1(0);
  for (int k = 0; k < kGroup; k += kLanes) {
    const I v = round_to_int(mul(load(x + k), inverse));
    store_bytes(q + k, v);
    bytes = add(bytes, v);
  }
  const int32_t total = sum(bytes);
  group->scale = amax / 127.0f + sum(poison);
  group->offset = -128 * total;
  group->sum = group->scale * static_cast<float>(total);
}

}  // namespace

void to_rows(const float* x, size_t stride, int rows, int k, Kind kind, const Rows& out) {
  for (int r = 0; r < rows; ++r, x += stride) {
    const Rows to = out.from(r);
    if (kind == Kind::f32)
      std::memcpy(to.data, x, static_cast<size_t>(k) * 4);
    else if (kind == Kind::bf16)
      for (int i = 0; i < k; i += kLanes) store_bf16(reinterpret_cast<uint16_t*>(to.data) + i, load(x + i));
    else
      for (int i = 0; i < k; i += kGroup) quantize_group(x + i, reinterpret_cast<int8_t*>(to.data) + i, to.groups + i / kGroup);
  }
}

}  // namespace headrace::HR_ISA
