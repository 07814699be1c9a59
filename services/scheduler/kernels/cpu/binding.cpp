// The only file that knows torch: tensors in, pointers out. Shapes and index ranges are checked here.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>
#include <memory>

#include "decoder.h"

namespace headrace {
namespace {

using at::Tensor;

const Kernels& kernels_of(const std::string& isa) {
#if defined(__x86_64__)
  if (isa == "avx512") return kernels_avx512();
  if (isa == "avx2") return kernels_avx2();
#endif
  TORCH_CHECK_VALUE(isa == "portable", "unknown instruction set ", isa);
  return kernels_portable();
}

// What this processor can run, best first.
std::vector<std::string> supported_isas() {
  std::vector<std::string> all;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16"))
    all.emplace_back("avx512");
  if (avx2) all.emplace_back("avx2");
#endif
  all.emplace_back("portable");
  return all;
}

const int32_t* ints(const Tensor& t, const char* name, int64_t size) {
  TORCH_CHECK_VALUE(t.scalar_type() == at::kInt && t.is_contiguous(), name, " must be contiguous int32");
  TORCH_CHECK_VALUE(t.numel() == size, name, " must have ", size, " elements, not ", t.numel());
  return t.data_ptr<int32_t>();
}

void check_range(const int32_t* v, int64_t n, int64_t lo, int64_t hi, const char* name) {
  for (int64_t i = 0; i < n; ++i) TORCH_CHECK_VALUE(v[i] >= lo && v[i] < hi, name, "[", i, "] = ", v[i], " is outside ", lo, "..", hi - 1);
}

float* floats(const Tensor& t, const char* name) {
  TORCH_CHECK_VALUE(t.scalar_type() == at::kFloat && t.is_contiguous(), name, " must be contiguous float32");
  return t.data_ptr<float>();
}

Matrix matrix(const Tensor& t, const char* name) {
  TORCH_CHECK_VALUE(t.is_contiguous() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16), name,
                    " must be contiguous float32 or bfloat16");
  TORCH_CHECK_VALUE(t.dim() == 1 || t.dim() == 2, name, " must be a vector or a matrix");
  return {t.data_ptr(), t.scalar_type() == at::kBFloat16, static_cast<int>(t.size(0)), t.dim() == 2 ? static_cast<int>(t.size(1)) : 1};
}

Decoder& decoder(int64_t handle) { return *reinterpret_cast<Decoder*>(handle); }

int64_t create(at::IntArrayRef d, double eps, int64_t kind, int64_t threads, const std::string& isa) {
  TORCH_CHECK_VALUE(d.size() == 9, "nine dimensions expected");
  auto at = [&](int i) { return static_cast<int>(d[i]); };
  const DecoderConfig config{at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), static_cast<float>(eps), static_cast<Kind>(kind)};
  return reinterpret_cast<int64_t>(new Decoder(config, kernels_of(isa), static_cast<int>(threads)));
}

void destroy(int64_t handle) { delete reinterpret_cast<Decoder*>(handle); }

void load(int64_t handle, int64_t part, int64_t layer, at::TensorList rows) {
  std::vector<Matrix> all;
  for (const Tensor& t : rows) all.push_back(matrix(t, "weight"));
  decoder(handle).load(static_cast<Decoder::Part>(part), static_cast<int>(layer), all);
}

void set_rope(int64_t handle, const Tensor& cos, const Tensor& sin) {
  decoder(handle).set_rope(floats(cos, "cos"), floats(sin, "sin"), static_cast<int>(cos.size(0)));
}

Tensor forward(int64_t handle, const Tensor& ids, const Tensor& positions, const Tensor& out_slots, const Tensor& row_index,
               const Tensor& extend_lens, const Tensor& seq_lens, const Tensor& req_to_token, const Tensor& logits_index) {
  Decoder& d = decoder(handle);
  const DecoderConfig& c = d.config();
  const int64_t tokens = ids.numel(), sequences = row_index.numel(), logits = logits_index.numel();
  TORCH_CHECK_VALUE(req_to_token.dim() == 2 && req_to_token.scalar_type() == at::kInt && req_to_token.stride(1) == 1,
                    "req_to_token must be int32 [rows, context]");
  Step s{static_cast<int>(tokens), static_cast<int>(sequences), static_cast<int>(logits),
         ints(ids, "input_ids", tokens), ints(positions, "positions", tokens), ints(out_slots, "out_slots", tokens),
         ints(row_index, "row_index", sequences), ints(extend_lens, "extend_lens", sequences), ints(seq_lens, "seq_lens", sequences),
         req_to_token.data_ptr<int32_t>(), static_cast<size_t>(req_to_token.stride(0)), ints(logits_index, "logits_index", logits), nullptr};
  check_range(s.ids, tokens, 0, c.vocab, "input_ids");
  check_range(s.positions, tokens, 0, c.max_context, "positions");
  check_range(s.out_slots, tokens, 0, c.slots + 1, "out_slots");
  check_range(s.row_index, sequences, 0, req_to_token.size(0), "row_index");
  check_range(s.extend_lens, sequences, 1, tokens + 1, "extend_lens");
  check_range(s.logits_index, logits, 0, tokens, "logits_index");
  int64_t total = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    total += s.extend_lens[i];
    TORCH_CHECK_VALUE(s.seq_lens[i] >= s.extend_lens[i] && s.seq_lens[i] <= req_to_token.size(1), "seq_lens[", i, "] = ", s.seq_lens[i],
                      " does not fit extend_lens or req_to_token");
    check_range(s.req_to_token + s.row_index[i] * s.req_stride, s.seq_lens[i], 0, c.slots + 1, "req_to_token");
  }
  TORCH_CHECK_VALUE(total == tokens, "extend_lens add up to ", total, ", not to ", tokens, " tokens");
  Tensor out = at::empty({logits, d.padded_vocab()}, at::TensorOptions().dtype(at::kFloat));
  s.out = out.data_ptr<float>();
  if (tokens > 0) d.forward(s);
  return out.narrow(1, 0, c.vocab);
}

void copy_slots(int64_t handle, const Tensor& from, const Tensor& to) {
  Decoder& d = decoder(handle);
  const int32_t *f = ints(from, "from", from.numel()), *t = ints(to, "to", from.numel());
  check_range(f, from.numel(), 0, d.config().slots + 1, "from");
  check_range(t, from.numel(), 0, d.config().slots + 1, "to");
  d.copy_slots(f, t, static_cast<int>(from.numel()));
}

void zero_slots(int64_t handle, const Tensor& slots) {
  Decoder& d = decoder(handle);
  const int32_t* s = ints(slots, "slots", slots.numel());
  check_range(s, slots.numel(), 0, d.config().slots + 1, "slots");
  d.zero_slots(s, static_cast<int>(slots.numel()));
}

Tensor read_kv(int64_t handle, int64_t slot, int64_t layer) {
  const DecoderConfig& c = decoder(handle).config();
  TORCH_CHECK_VALUE(slot >= 0 && slot <= c.slots && layer >= 0 && layer < c.layers, "no slot ", slot, " in layer ", layer);
  Tensor out = at::empty({2, c.kv_heads, c.head_dim}, at::TensorOptions().dtype(at::kFloat));
  decoder(handle).read_kv(static_cast<int>(slot), static_cast<int>(layer), out.data_ptr<float>());
  return out;
}

// [bytes of weights, bytes of a slot in one layer, then nanoseconds by Decoder::Cost since the last call]
std::vector<int64_t> stats(int64_t handle) {
  Decoder& d = decoder(handle);
  std::vector<int64_t> out{static_cast<int64_t>(d.weight_bytes()), static_cast<int64_t>(d.slot_bytes())};
  for (int64_t ns : d.take_costs()) out.push_back(ns);
  return out;
}

}  // namespace

TORCH_LIBRARY(headrace_cpu, m) {
  m.def("isas() -> str[]", &supported_isas);
  m.def("decoder_create(int[] dims, float eps, int kind, int threads, str isa) -> int", &create);
  m.def("decoder_destroy(int handle) -> ()", &destroy);
  m.def("decoder_load(int handle, int part, int layer, Tensor[] rows) -> ()", &load);
  m.def("decoder_rope(int handle, Tensor cos, Tensor sin) -> ()", &set_rope);
  m.def(
      "decoder_forward(int handle, Tensor input_ids, Tensor positions, Tensor out_slots, Tensor row_index, Tensor extend_lens, "
      "Tensor seq_lens, Tensor req_to_token, Tensor logits_index) -> Tensor",
      &forward);
  m.def("decoder_copy_slots(int handle, Tensor source, Tensor target) -> ()", &copy_slots);
  m.def("decoder_zero_slots(int handle, Tensor slots) -> ()", &zero_slots);
  m.def("decoder_read_kv(int handle, int slot, int layer) -> Tensor", &read_kv);
  m.def("decoder_stats(int handle) -> int[]", &stats);
}

}  // namespace headrace
