// Float rows turned into what a product takes: f32, bf16, or bytes with a scale and an offset for each group.
#include "kernels.h"
#include "simd.h"

namespace headrace::HR_ISA {
namespace {

// The scale's numerator and how it is found are the same for both widths; `levels` is 127 or 127 * 128.
struct Quantizer {
  F inverse;
  float scale;
  Quantizer(const float* x, float levels) {
    F top = zero(), poison = zero();  // poison: NaN if any input is NaN or infinite, else 0
    for (int k = 0; k < kGroup; k += kLanes) {
      top = max_keep_nan(top, abs(load(x + k)));
      poison = fma(load(x + k), zero(), poison);
    }
    const float amax = max_lane(top);
    inverse = set1(amax > 0 ? levels / amax : 0.0f);
    scale = amax / levels + sum(poison);
  }
  void finish(int32_t total, Group* group) const {
    group->scale = scale;
    group->offset = -128 * total;
    group->sum = scale * static_cast<float>(total);
  }
};

void quantize_narrow(const float* x, int8_t* q, Group* group) {
  const Quantizer quantizer(x, 127.0f);
  I total = set1(0);
  for (int k = 0; k < kGroup; k += kLanes) {
    const I v = round_to_int(mul(load(x + k), quantizer.inverse));
    store_bytes(q + k, v);
    total = add(total, v);
  }
  quantizer.finish(sum(total), group);
}

void quantize_wide(const float* x, int8_t* q, Group* group) {
  const Quantizer quantizer(x, 127.0f * 128.0f);
  I total = set1(0);
  for (int k = 0; k < kGroup; k += kLanes) {
    const F scaled = round(mul(load(x + k), quantizer.inverse));
    const F high = round(mul(scaled, set1(1.0f / 128.0f)));
    store_bytes(q + k, round_to_int(high));
    store_bytes(q + kGroup + k, round_to_int(fma(high, set1(-128.0f), scaled)));
    total = add(total, round_to_int(scaled));
  }
  quantizer.finish(sum(total), group);
}

}  // namespace

void to_rows(const float* x, size_t stride, int rows, int k, Kind kind, const Rows& out) {
  for (int r = 0; r < rows; ++r, x += stride) {
    const Rows to = out.from(r);
    if (kind == Kind::f32)
      std::memcpy(to.data, x, static_cast<size_t>(k) * 4);
    else if (kind == Kind::bf16)
      for (int i = 0; i < k; i += kLanes) store_bf16(reinterpret_cast<uint16_t*>(to.data) + i, load(x + i));
    else if (kind == Kind::i16)
      for (int i = 0; i < k; i += kGroup) quantize_wide(x + i, reinterpret_cast<int8_t*>(to.data) + 2 * i, to.groups + i / kGroup);
    else
      for (int i = 0; i < k; i += kGroup) quantize_narrow(x + i, reinterpret_cast<int8_t*>(to.data) + i, to.groups + i / kGroup);
  }
}

}  // namespace headrace::HR_ISA
