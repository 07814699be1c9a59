// The only file that knows torch: tensors in, pointers out. Shapes and index ranges are checked here.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

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

// ---- single operations, on the calling thread ----

Kind kind_of(const std::string& name) {
  if (name == "f32") return Kind::f32;
  if (name == "bf16") return Kind::bf16;
  if (name == "i8") return Kind::i8;
  TORCH_CHECK_VALUE(name == "i4", "kind ", name, " is not one of f32, bf16, i8, i4");
  return Kind::i4;
}

Weight weight_of(const Tensor& packed, int64_t n, int64_t k, Kind kind) {
  const int unit = kind == Kind::i8 || kind == Kind::i4 ? kGroup : 16;
  TORCH_CHECK_VALUE(k > 0 && k % unit == 0, "k = ", k, " is not a multiple of ", unit);
  Weight w;
  w.n = static_cast<int>(n);
  w.k = static_cast<int>(k);
  w.kind = kind;
  w.strip_bytes = Weight::bytes_of_strip(kind, w.k);
  TORCH_CHECK_VALUE(packed.scalar_type() == at::kByte && packed.is_contiguous() &&
                        packed.numel() == static_cast<int64_t>(w.strip_bytes * w.strips()),
                    "packed must be the bytes that gemm_pack gave for this n, k and kind");
  w.data = packed.data_ptr<uint8_t>();
  return w;
}

bool gemm_fits_i4(const Tensor& weight, const std::string& isa) {
  const Matrix m = matrix(weight, "weight");
  return kernels_of(isa).fits_i4(m, 0, m.n);
}

Tensor gemm_pack(const Tensor& weight, const std::string& kind, const std::string& isa) {
  const Matrix m = matrix(weight, "weight");
  const int64_t bytes = static_cast<int64_t>(Weight::bytes_of_strip(kind_of(kind), m.k)) * ((m.n + 15) / 16);
  Tensor packed = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
  const Weight w = weight_of(packed, m.n, m.k, kind_of(kind));
  kernels_of(isa).pack(m, w, 0, w.strips());
  return packed;
}

Tensor gemm(const Tensor& x, const Tensor& packed, int64_t n, const std::string& kind, bool wide, const std::string& isa) {
  const Kernels& k = kernels_of(isa);
  TORCH_CHECK_VALUE(x.dim() == 2, "x must be [rows, k]");
  const int rows = static_cast<int>(x.size(0));
  Weight w = weight_of(packed, n, x.size(1), kind_of(kind));
  w.wide = wide;
  const Kind activation = w.activations();
  std::vector<Group> groups(static_cast<size_t>(rows) * (w.k / kGroup + 1));
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * w.k * element_bytes(activation) + 64);
  const Rows from{bytes.data(), static_cast<size_t>(w.k) * element_bytes(activation), groups.data(), static_cast<size_t>(w.k / kGroup)};
  k.to_rows(floats(x, "x"), w.k, rows, w.k, activation, from);
  Tensor out = at::empty({rows, w.strips() * 16}, at::TensorOptions().dtype(at::kFloat));
  if (rows > 0) k.product(from, w, rows, 0, w.strips(), out.data_ptr<float>(), static_cast<size_t>(w.strips()) * 16, false);
  return out.narrow(1, 0, n);
}

Tensor rmsnorm(const Tensor& x, const Tensor& weight, double eps, const std::string& isa) {
  TORCH_CHECK_VALUE(x.dim() == 2 && x.size(1) == weight.numel() && x.size(1) % 16 == 0, "x must be [rows, k], k a multiple of 16 like weight");
  Tensor out = at::empty(x.sizes(), x.options());
  const size_t k = x.size(1);
  kernels_of(isa).rmsnorm(floats(x, "x"), k, floats(weight, "weight"), static_cast<float>(eps), static_cast<int>(x.size(0)),
                          static_cast<int>(k), out.data_ptr<float>(), k);
  return out;
}

Tensor silu_mul(const Tensor& gate, const Tensor& up, const std::string& isa) {
  TORCH_CHECK_VALUE(gate.dim() == 2 && gate.sizes() == up.sizes() && gate.size(1) % 16 == 0, "gate and up must be [rows, k], k a multiple of 16");
  Tensor out = at::empty(gate.sizes(), gate.options());
  const size_t k = gate.size(1);
  kernels_of(isa).silu_mul(floats(gate, "gate"), floats(up, "up"), k, static_cast<int>(gate.size(0)), static_cast<int>(k),
                           out.data_ptr<float>(), k);
  return out;
}

KvLayer kv_of(const Tensor& kv) {
  TORCH_CHECK_VALUE(kv.dim() == 4 && kv.size(1) == 2 && kv.is_contiguous(), "kv must be contiguous [slots, 2, kv_heads, head_dim]");
  TORCH_CHECK_VALUE(kv.scalar_type() == at::kFloat || kv.scalar_type() == at::kBFloat16, "kv must be float32 or bfloat16");
  TORCH_CHECK_VALUE(kv.size(3) % 16 == 0 && kv.size(3) >= 32 && kv.size(3) <= 256, "head_dim must be a multiple of 16 from 32 to 256");
  const Kind kind = kv.scalar_type() == at::kFloat ? Kind::f32 : Kind::bf16;
  return {static_cast<uint8_t*>(kv.data_ptr()), static_cast<size_t>(kv.stride(0)) * element_bytes(kind), static_cast<int>(kv.size(2)),
          static_cast<int>(kv.size(3)), kind};
}

// Queries [tokens, heads, head_dim] in kv's dtype; `qkv` is consumed by the head norms.
Tensor rope(const Tensor& qkv, const Tensor& positions, const Tensor& out_slots, const Tensor& cos, const Tensor& sin, const Tensor& kv,
            const std::optional<Tensor>& q_norm, const std::optional<Tensor>& k_norm, double eps, const std::string& isa) {
  const KvLayer layer = kv_of(kv);
  const int64_t tokens = qkv.size(0), heads = qkv.size(1) / layer.head_dim - 2 * layer.kv_heads;
  TORCH_CHECK_VALUE(qkv.dim() == 2 && heads > 0 && qkv.size(1) == (heads + 2 * layer.kv_heads) * layer.head_dim, "qkv does not match kv");
  TORCH_CHECK_VALUE(cos.size(1) * 2 == layer.head_dim && cos.sizes() == sin.sizes(), "cos and sin must be [context, head_dim / 2]");
  const int32_t *at_position = ints(positions, "positions", tokens), *slots = ints(out_slots, "out_slots", tokens);
  check_range(at_position, tokens, 0, cos.size(0), "positions");
  check_range(slots, tokens, 0, kv.size(0), "out_slots");
  Tensor q = at::empty({tokens, heads, layer.head_dim}, kv.options());
  kernels_of(isa).rope({floats(qkv, "qkv"), at_position, slots, floats(cos, "cos"), floats(sin, "sin"),
                        q_norm ? floats(*q_norm, "q_norm") : nullptr, k_norm ? floats(*k_norm, "k_norm") : nullptr, static_cast<float>(eps),
                        static_cast<int>(heads), layer, static_cast<uint8_t*>(q.data_ptr())},
                       0, static_cast<int>(tokens));
  return q;
}

// `tile` query tokens share an item; with `split`, single queries go block by block and are folded.
Tensor attention(const Tensor& q, const Tensor& kv, const Tensor& row_index, const Tensor& extend_lens, const Tensor& seq_lens,
                 const Tensor& req_to_token, double scale, int64_t tile, bool split, const std::string& isa) {
  const Kernels& k = kernels_of(isa);
  const KvLayer layer = kv_of(kv);
  TORCH_CHECK_VALUE(q.dim() == 3 && q.is_contiguous() && q.scalar_type() == kv.scalar_type() && q.size(2) == layer.head_dim &&
                        q.size(1) % layer.kv_heads == 0, "q must be [tokens, heads, head_dim] in kv's dtype");
  const int64_t sequences = row_index.numel();
  const int32_t *rows = ints(row_index, "row_index", sequences), *extend = ints(extend_lens, "extend_lens", sequences),
                *lengths = ints(seq_lens, "seq_lens", sequences), *table = ints(req_to_token, "req_to_token", req_to_token.numel());
  check_range(rows, sequences, 0, req_to_token.size(0), "row_index");
  Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, at::TensorOptions().dtype(at::kFloat));
  const AttentionArgs args{static_cast<const uint8_t*>(q.data_ptr()), out.data_ptr<float>(), layer, static_cast<int>(q.size(1)),
                           static_cast<float>(scale)};
  std::vector<float> scratch(k.attention_scratch(args, static_cast<int>(tile)) + 16), partial;
  int first_row = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    const int blocks = (lengths[i] + kKvBlock - 1) / kKvBlock;
    TORCH_CHECK_VALUE(extend[i] >= 0 && extend[i] <= lengths[i] && lengths[i] <= req_to_token.size(1) && first_row + extend[i] <= q.size(0),
                      "extend_lens[", i, "] or seq_lens[", i, "] does not fit");
    const Sequence s{table + rows[i] * req_to_token.size(1), lengths[i], extend[i], first_row};
    check_range(s.slots, s.length, 0, kv.size(0), "req_to_token");
    if (split && s.extend == 1) {
      partial.resize(k.partial_floats(args) * blocks);
      for (int b = 0; b < blocks; ++b) k.attention(args, {&s, 0, 1, b, b + 1, partial.data() + b * k.partial_floats(args)}, scratch.data());
      k.fold_partials(args, partial.data(), blocks, first_row);
    } else {
      for (int q0 = 0; q0 < s.extend; q0 += static_cast<int>(tile)) {
        const int q1 = std::min(s.extend, q0 + static_cast<int>(tile));
        k.attention(args, {&s, q0, q1, 0, (s.length - s.extend + q1 + kKvBlock - 1) / kKvBlock, nullptr}, scratch.data());
      }
    }
    first_row += s.extend;
  }
  TORCH_CHECK_VALUE(first_row == q.size(0), "extend_lens add up to ", first_row, ", not to ", q.size(0), " queries");
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
  m.def("gemm_fits_i4(Tensor weight, str isa) -> bool", &gemm_fits_i4);
  m.def("gemm_pack(Tensor weight, str kind, str isa) -> Tensor", &gemm_pack);
  m.def("gemm(Tensor x, Tensor packed, int n, str kind, bool wide, str isa) -> Tensor", &gemm);
  m.def("rmsnorm(Tensor x, Tensor weight, float eps, str isa) -> Tensor", &rmsnorm);
  m.def("silu_mul(Tensor gate, Tensor up, str isa) -> Tensor", &silu_mul);
  m.def(
      "rope(Tensor(a!) qkv, Tensor positions, Tensor out_slots, Tensor cos, Tensor sin, Tensor(b!) kv, Tensor? q_norm, Tensor? k_norm, "
      "float eps, str isa) -> Tensor",
      &rope);
  m.def(
      "attention(Tensor q, Tensor kv, Tensor row_index, Tensor extend_lens, Tensor seq_lens, Tensor req_to_token, float scale, int tile, "
      "bool split, str isa) -> Tensor",
      &attention);
}

}  // namespace headrace
