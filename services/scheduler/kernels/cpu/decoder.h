// A whole step of a llama-shaped decoder in one call: every thread walks the layers together, barrier by barrier.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "kernels.h"
#include "memory.h"
#include "pool.h"

namespace headrace {

struct DecoderConfig {
  int layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, max_context, slots;
  float eps;
  Kind kind;  // of the weights; i8 stands for "i8, or i4 where a weight already lies on such a grid"
};

struct Step {
  int tokens, sequences, logits;
  const int32_t *ids, *positions, *out_slots;         // [tokens]
  const int32_t *row_index, *extend_lens, *seq_lens;  // [sequences]
  const int32_t* req_to_token;
  size_t req_stride;
  const int32_t* logits_index;  // [logits]
  float* out;                   // [logits][padded_vocab]
};

class Decoder {
 public:
  enum Part { kQkv, kOut, kGateUp, kDown, kHead, kInputNorm, kPostNorm, kQNorm, kKNorm, kFinalNorm, kEmbedding, kQkvBias };
  enum Cost { kProducts, kAttention, kHeadCost, kRest, kCosts };

  Decoder(const DecoderConfig& config, const Kernels& kernels, int threads);

  // Rows of the parts stacked are the rows of the matrix; a norm or bias is a matrix of one row per element.
  void load(Part part, int layer, const std::vector<Matrix>& rows);
  void set_rope(const float* cos, const float* sin, int context);
  void forward(const Step& step);

  void copy_slots(const int32_t* from, const int32_t* to, int count);
  void zero_slots(const int32_t* slots, int count);
  void read_kv(int slot, int layer, float* out) const;  // [2][kv_heads][head_dim]

  int padded_vocab() const { return (config_.vocab + 15) / 16 * 16; }
  size_t slot_bytes() const { return slot_bytes_; }
  const DecoderConfig& config() const { return config_; }
  const char* isa() const { return k_.isa; }
  size_t weight_bytes() const { return weight_bytes_; }
  // Nanoseconds spent on each Cost since the last call.
  std::array<int64_t, kCosts> take_costs();

 private:
  struct Layer {
    Weight qkv, out, gate_up, down;
    const float *input_norm = nullptr, *post_norm = nullptr, *q_norm = nullptr, *k_norm = nullptr;
  };
  struct Buffers {  // of one step; rows are tokens
    float *residual, *wide, *attention, *picked;
    Rows x, act;
    uint8_t* q;
    float* scratch;  // of each thread
    size_t scratch_stride;
  };

  struct Live {  // the rows that a step still computes, as each thread knows them
    float* residual;
    int rows;
    const int32_t* pick;  // where the next operation finds row r, or null: in row r
    int from(int r) const { return pick ? pick[r] : r; }
  };

  void plan_attention(const Step& step);
  void plan_last_layer(const Step& step);
  void prepare(const Step& step);
  void layer(const Layer& w, int index, const Step& step, Live& live, int thread);
  void attend(const Layer& w, int index, const Step& step, const std::vector<AttentionItem>& items, int thread);
  void keep_picked(const Step& step, Live& live);
  // Rows a thread prepares all by itself: cheaper than meeting the others once more.
  static constexpr int kPrivateRows = 8;
  template <class Body>
  void each_row(int rows, Body&& body);
  Rows inputs(int rows, int thread) const;
  void norm_rows(const Live& live, const float* weight, Kind kind, int thread);
  void attention_rows(const Live& live, Kind kind, int thread);
  void product(const Rows& x, const Weight& w, int rows, float* out, size_t stride, bool add);
  void gate_up(const Layer& w, int rows, int thread);
  AttentionArgs attention_args(int layer) const;
  KvLayer kv_layer(int layer) const;
  Rows make_rows(Workspace& bytes, Workspace& groups, int rows, int k) const;
  float* copy_floats(const std::vector<Matrix>& rows, int padded);
  void load_weight(Weight& w, const std::vector<Matrix>& rows, bool wide = false);
  void spend(Cost cost, int thread);

  DecoderConfig config_;
  const Kernels& k_;
  Pool pool_;
  Arena arena_;
  size_t weight_bytes_ = 0;
  std::vector<Layer> layers_;
  Weight head_;
  Matrix embedding_{};
  const float* final_norm_ = nullptr;
  std::vector<float> cos_, sin_;
  HugeBuffer kv_;
  size_t slot_bytes_ = 0;

  Buffers b_{};
  Workspace residual_, picked_, wide_, attention_, x_bytes_, x_groups_, act_bytes_, act_groups_, q_, scratch_, partials_;
  std::vector<Sequence> sequences_;
  std::vector<AttentionItem> items_, last_items_;  // of a layer, and of the last one
  std::vector<bool> wanted_;                       // rows that logits are wanted for
  struct Fold { int row, blocks; float* partial; };
  std::vector<Fold> folds_;

  std::array<int64_t, kCosts> costs_{};
  int64_t mark_ = 0;
};

}  // namespace headrace
