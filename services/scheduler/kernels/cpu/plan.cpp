// What a step needs before its region starts: buffers of the right size and the attention's work items.
#include <algorithm>

#include "decoder.h"

namespace headrace {
namespace {
constexpr int kQueryTile = 32;  // query tokens that share one packing of a KV block
constexpr int kLeastBlocks = 2;  // of an item of a split row: the second is fetched while the first is computed
int tiles(int n, int of) { return (n + of - 1) / of; }
}  // namespace

Rows Decoder::make_rows(Workspace& bytes, Workspace& groups, int rows, int k) const {
  const Kind kind = config_.kind == Kind::i8 ? Kind::i16 : config_.kind;  // room for the widest
  Rows out;
  out.row_bytes = static_cast<size_t>(k) * element_bytes(kind);
  out.data = bytes.at_least<uint8_t>(rows * out.row_bytes);
  if (kind == Kind::i16) {
    out.row_groups = static_cast<size_t>(k) / kGroup;
    out.groups = groups.at_least<Group>(rows * out.row_groups);
  }
  return out;
}

void Decoder::prepare(const Step& step) {
  const DecoderConfig& c = config_;
  const auto rows = static_cast<size_t>(std::max(step.tokens, step.logits));
  const int q_width = c.heads * c.head_dim, qkv_width = q_width + 2 * c.kv_heads * c.head_dim;
  b_.residual = residual_.at_least<float>(rows * c.hidden);
  b_.picked = picked_.at_least<float>(static_cast<size_t>(step.logits) * c.hidden);
  b_.wide = wide_.at_least<float>(rows * qkv_width);
  b_.attention = attention_.at_least<float>(rows * q_width);
  b_.q = q_.at_least<uint8_t>(rows * q_width * (c.kind == Kind::f32 ? 4 : 2));
  b_.x = make_rows(x_bytes_, x_groups_, std::max(static_cast<int>(rows), kPrivateRows * pool_.threads()), std::max(c.hidden, q_width));
  b_.act = make_rows(act_bytes_, act_groups_, static_cast<int>(rows), c.intermediate);
  size_t most = 96 * 128 + static_cast<size_t>(c.hidden);
  most = std::max(most, k_.attention_scratch(attention_args(0), std::min(kQueryTile, std::max(step.tokens, 1))));
  b_.scratch_stride = (most + 63) / 16 * 16;
  b_.scratch = scratch_.at_least<float>(b_.scratch_stride * pool_.threads());
}

// Queries of a chunk go in tiles; a decode row that is long beside the others is split by blocks, which changes no bit
// of its result.
void Decoder::plan_attention(const Step& step) {
  sequences_.resize(step.sequences);
  items_.clear();
  folds_.clear();
  int row = 0, decode_blocks = 0, split_blocks = 0;
  for (int i = 0; i < step.sequences; ++i) {
    sequences_[i] = {step.req_to_token + static_cast<size_t>(step.row_index[i]) * step.req_stride, step.seq_lens[i], step.extend_lens[i], row};
    row += step.extend_lens[i];
    if (step.extend_lens[i] == 1) decode_blocks += tiles(step.seq_lens[i], kKvBlock);
  }
  const int chunk = pool_.threads() == 1 ? decode_blocks : std::max(kLeastBlocks, decode_blocks / (4 * pool_.threads()));
  for (const Sequence& s : sequences_)
    if (s.extend == 1 && tiles(s.length, kKvBlock) > chunk) split_blocks += tiles(s.length, kKvBlock);
  const size_t size = k_.partial_floats(attention_args(0));
  float* partial = split_blocks ? partials_.at_least<float>(split_blocks * size) : nullptr;

  for (const Sequence& s : sequences_) {
    const int blocks = tiles(s.length, kKvBlock);
    if (s.extend == 1 && blocks > chunk) {
      folds_.push_back({s.first_row, blocks, partial});
      for (int at = 0; at < blocks; at += chunk)
        items_.push_back({&s, 0, 1, at, std::min(blocks, at + chunk), partial + at * size});
      partial += blocks * size;
      continue;
    }
    for (int q0 = 0; q0 < s.extend; q0 += kQueryTile) {
      const int q1 = std::min(s.extend, q0 + kQueryTile);
      items_.push_back({&s, q0, q1, 0, tiles(s.length - s.extend + q1, kKvBlock), nullptr});
    }
  }
  std::stable_sort(items_.begin(), items_.end(), [](const AttentionItem& a, const AttentionItem& b) {
    return (a.b1 - a.b0) * (a.q1 - a.q0 + 1) > (b.b1 - b.b0) * (b.q1 - b.q0 + 1);
  });
  plan_last_layer(step);
}

// The last layer's items without the queries that nothing follows from; a tile with one wanted query is cut down to it.
void Decoder::plan_last_layer(const Step& step) {
  last_items_.clear();
  if (step.logits >= step.tokens) return;
  wanted_.assign(step.tokens, false);
  for (int i = 0; i < step.logits; ++i) wanted_[step.logits_index[i]] = true;
  for (AttentionItem item : items_) {
    const auto row = [&](int q) { return wanted_.begin() + item.seq->first_row + q; };
    const auto first = std::find(row(item.q0), row(item.q1), true);
    if (first == row(item.q1) && !item.partial) continue;
    if (item.q1 - item.q0 > 1 && std::find(first + 1, row(item.q1), true) == row(item.q1)) {
      item.q0 = static_cast<int>(first - row(0));
      item.q1 = item.q0 + 1;
      item.b1 = tiles(item.seq->length - item.seq->extend + item.q1, kKvBlock);
    }
    last_items_.push_back(item);
  }
}

}  // namespace headrace
