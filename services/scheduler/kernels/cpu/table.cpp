// The kernels of one instruction set, as a table.
#include "kernels.h"

namespace headrace::HR_ISA {

void product(const Rows& x, const Weight& w, int rows, int strip, int strips, float* out, size_t stride, bool add);
void to_rows(const float* x, size_t stride, int rows, int k, Kind kind, const Rows& out);
void rmsnorm(const float* x, size_t stride, const float* weight, float eps, int rows, int k, float* out, size_t out_stride);
void silu_mul(const float* gate, const float* up, size_t stride, int rows, int k, float* out, size_t out_stride);
void rope(const RopeArgs& a, int first, int last);
size_t attention_scratch(const AttentionArgs& a, int tokens);
void attention(const AttentionArgs& a, const AttentionItem& item, float* scratch);
size_t partial_floats(const AttentionArgs& a);
void fold_partials(const AttentionArgs& a, float* partial, int blocks, int row);
bool fits_i4(const Matrix& source, int first, int last);
void pack(const Matrix& source, const Weight& w, int first, int last);
void embed(const Matrix& table, const int32_t* ids, int first, int last, float* out);

}  // namespace headrace::HR_ISA

#define HR_TEXT_(x) #x
#define HR_TEXT(x) HR_TEXT_(x)
#define HR_JOIN_(a, b) a##b
#define HR_JOIN(a, b) HR_JOIN_(a, b)

namespace headrace {

const Kernels& HR_JOIN(kernels_, HR_ISA)() {
  using namespace HR_ISA;
  static constexpr Kernels table{HR_TEXT(HR_ISA), product,   to_rows,        rmsnorm,       silu_mul, rope, attention_scratch,
                                 attention,       partial_floats, fold_partials, fits_i4, pack,     embed};
  return table;
}

}  // namespace headrace
