// Weights [n, k] row-major -> strips of 16 columns (types.h), quantized on the way for i8 and i4.
#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "simd.h"

namespace headrace::HR_ISA {
namespace {

float at(const Matrix& m, int n, int k) {
  const size_t i = static_cast<size_t>(n) * m.k + k;
  return m.bf16 ? bf16_to_float(static_cast<const uint16_t*>(m.data)[i]) : static_cast<const float*>(m.data)[i];
}

uint16_t to_bf16(float x) {
  uint16_t out[16];
  store_bf16(out, set1(x));
  return out[0];
}

// Round to nearest even; values beyond the range become infinite, which no caller lets through.
uint16_t to_f16(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000);
  const float a = std::fabs(x);
  if (a == 0) return sign;
  if (!(a < 65520.0f)) return sign | 0x7c00;
  int e;
  std::frexp(a, &e);
  const int unit = std::max(e, -13) - 11;  // exponent of the last bit kept
  const auto m = static_cast<uint32_t>(std::nearbyint(std::ldexp(a, -unit)));
  return static_cast<uint16_t>(sign | (m + (static_cast<uint32_t>(unit + 24) << 10)));
}

float round_to_f16(float x) {
  uint16_t h[16] = {to_f16(x)};
  float out[16];
  store(out, load_f16(h));
  return out[0];
}

struct Grid {
  float scale, minimum;
};

bool on_grid(const float* x, const Grid& grid, float tolerance) {
  const float inverse = grid.scale > 0 ? 1.0f / grid.scale : 0.0f;
  for (int k = 0; k < kGroup; ++k) {
    const float level = std::nearbyint((x[k] - grid.minimum) * inverse);
    if (!(level >= 0 && level <= 15 && std::fabs(grid.scale * level + grid.minimum - x[k]) <= tolerance)) return false;
  }
  return true;
}

// The line through the numbers over their levels: takes out the rounding that a bf16 file added to the 4-bit one.
Grid fit(const float* x, const Grid& grid) {
  double n = kGroup, sum_l = 0, sum_x = 0, sum_ll = 0, sum_lx = 0;
  for (int k = 0; k < kGroup; ++k) {
    const double level = std::nearbyint((x[k] - grid.minimum) / grid.scale);
    sum_l += level;
    sum_x += x[k];
    sum_ll += level * level;
    sum_lx += level * x[k];
  }
  const double scale = (n * sum_lx - sum_l * sum_x) / (n * sum_ll - sum_l * sum_l);
  return {round_to_f16(static_cast<float>(scale)), round_to_f16(static_cast<float>((sum_x - scale * sum_l) / n))};
}

// The grid of at most 16 levels that the 32 numbers at `x` lie on, up to the rounding of their own format.
bool find_grid(const float* x, bool bf16, Grid* grid) {
  float lo = x[0], hi = x[0];
  for (int k = 1; k < kGroup; ++k) {
    lo = std::min(lo, x[k]);
    hi = std::max(hi, x[k]);
  }
  const float range = hi - lo, top = std::max(std::fabs(lo), std::fabs(hi));
  const float tolerance = bf16 ? top / 256.0f : top * 4e-6f;
  for (int steps = 15; steps >= 1; --steps) {
    *grid = {round_to_f16(range / static_cast<float>(steps)), round_to_f16(lo)};
    if (tolerance * 4 > grid->scale && range > 0) continue;  // too fine to tell the levels apart
    if (!on_grid(x, *grid, tolerance)) continue;
    const Grid better = bf16 && range > 0 ? fit(x, *grid) : *grid;
    if (on_grid(x, better, tolerance)) *grid = better;
    return true;
  }
  return false;
}

void read_group(const Matrix& m, int n, int k, float* x) {
  for (int i = 0; i < kGroup; ++i) x[i] = at(m, n, k + i);
}

void pack_i8(const Matrix& m, int n, int k0, uint8_t* bytes, uint16_t* scale) {
  float x[kGroup], top = 0;
  read_group(m, n, k0, x);
  for (float v : x) top = std::max(top, std::fabs(v));
  *scale = to_f16(top / 127.0f);
  const float rounded = round_to_f16(top / 127.0f), inverse = rounded > 0 ? 1.0f / rounded : 0.0f;
  for (int k = 0; k < kGroup; ++k) {
    const float level = std::clamp(std::nearbyint(x[k] * inverse), -127.0f, 127.0f);
    bytes[(k / 4) * 64 + k % 4] = static_cast<uint8_t>(static_cast<int>(level) + 128);
  }
}

void pack_i4(const Matrix& m, int n, int k0, uint8_t* bytes, uint16_t* scale, uint16_t* minimum) {
  float x[kGroup];
  read_group(m, n, k0, x);
  Grid grid{};
  find_grid(x, m.bf16, &grid);
  *scale = to_f16(grid.scale);
  *minimum = to_f16(grid.minimum);
  const float inverse = grid.scale > 0 ? 1.0f / grid.scale : 0.0f;
  for (int k = 0; k < kGroup; ++k) {
    const auto level = static_cast<uint8_t>(std::nearbyint((x[k] - grid.minimum) * inverse));
    bytes[(k / 8) * 64 + k % 4] |= static_cast<uint8_t>(k % 8 < 4 ? level : level << 4);
  }
}

void pack_column(const Matrix& m, const Weight& w, int n, uint8_t* strip, int lane) {
  auto f16 = [&](size_t at) { return reinterpret_cast<uint16_t*>(strip + at) + lane; };
  switch (w.kind) {
    case Kind::f32:
      for (int k = 0; k < w.k; ++k) reinterpret_cast<float*>(strip)[k * 16 + lane] = at(m, n, k);
      break;
    case Kind::bf16:
      for (int k = 0; k < w.k; ++k) reinterpret_cast<uint16_t*>(strip)[(k / 2) * 32 + 2 * lane + k % 2] = to_bf16(at(m, n, k));
      break;
    case Kind::i8:
      for (int g = 0; g < w.k / kGroup; ++g) {
        const size_t pair = static_cast<size_t>(g / 2) * (2 * 512 + 64);
        const size_t groups = std::min(2, w.k / kGroup - g / 2 * 2);  // in this pair
        pack_i8(m, n, g * kGroup, strip + pair + g % 2 * 512 + 4 * lane, f16(pair + groups * 512 + g % 2 * 32));
      }
      break;
    case Kind::i4:
      for (int g = 0; g < w.k / kGroup; ++g) {
        const size_t at = static_cast<size_t>(g) * (256 + 64);
        pack_i4(m, n, g * kGroup, strip + at + 4 * lane, f16(at + 256), f16(at + 256 + 32));
      }
      break;
    case Kind::i16:
      break;  // activations only
  }
}

}  // namespace

bool fits_i4(const Matrix& source, int first, int last) {
  float x[kGroup];
  Grid grid{};
  for (int n = first; n < last; ++n)
    for (int k = 0; k < source.k; k += kGroup) {
      read_group(source, n, k, x);
      if (!find_grid(x, source.bf16, &grid)) return false;
    }
  return true;
}

void pack(const Matrix& source, const Weight& w, int first, int last) {
  for (int s = first; s < last; ++s) {
    uint8_t* strip = w.data + s * w.strip_bytes;
    std::memset(strip, 0, w.strip_bytes);
    for (int lane = 0; lane < 16 && 16 * s + lane < source.n; ++lane) pack_column(source, w, 16 * s + lane, strip, lane);
  }
}

}  // namespace headrace::HR_ISA
