#include "decoder.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace {
namespace {

constexpr int kRowTile = 8;        // rows of a norm, rope or embedding tile
constexpr int kProductRows = 96;   // rows of a product tile: what a panel of weights in L2 is used for
constexpr int kActStrips = 4;      // strips of the gate (and of the up) matrix in one gate/up tile

int tiles(int n, int of) { return (n + of - 1) / of; }

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

}  // namespace

void Decoder::spend(Cost cost, int thread) {
  if (thread != 0) return;
  const int64_t t = now();
  costs_[cost] += t - mark_;
  mark_ = t;
}

std::array<int64_t, Decoder::kCosts> Decoder::take_costs() { return std::exchange(costs_, {}); }

void Decoder::forward(const Step& step) {
  mark_ = now();
  prepare(step);
  plan_attention(step);
  pool_.run([&](int thread) {
    pool_.each(tiles(step.tokens, kRowTile), [&](int i) {
      k_.embed(embedding_, step.ids, i * kRowTile, std::min(step.tokens, (i + 1) * kRowTile), b_.residual);
    });
    Live live{b_.residual, step.tokens, nullptr};
    for (int i = 0; i < config_.layers; ++i) layer(layers_[i], i, step, live, thread);
    if (step.logits == 0) return;
    if (live.residual == b_.residual) live.pick = step.logits_index;
    live.rows = step.logits;
    norm_rows(live, final_norm_, head_.activations(), thread);
    spend(kRest, thread);
    product(inputs(step.logits, thread), head_, step.logits, step.out, static_cast<size_t>(padded_vocab()), false);
    spend(kHeadCost, thread);
  });
}

void Decoder::layer(const Layer& w, int index, const Step& step, Live& live, int thread) {
  norm_rows(live, w.input_norm, w.qkv.activations(), thread);
  spend(kRest, thread);
  product(inputs(live.rows, thread), w.qkv, live.rows, b_.wide, w.qkv.n, false);
  spend(kProducts, thread);
  const bool last = index + 1 == config_.layers && step.logits < step.tokens;
  attend(w, index, step, last ? last_items_ : items_, thread);
  if (last) {
    if (step.logits == 0) return;
    keep_picked(step, live);
  }
  attention_rows(live, w.out.activations(), thread);
  live.pick = nullptr;
  product(inputs(live.rows, thread), w.out, live.rows, live.residual, config_.hidden, true);
  spend(kProducts, thread);
  norm_rows(live, w.post_norm, w.gate_up.activations(), thread);
  spend(kRest, thread);
  gate_up(w, live.rows, thread);
  product(b_.act, w.down, live.rows, live.residual, config_.hidden, true);
  spend(kProducts, thread);
}

// Once the last layer's keys and values are written, only the rows that logits are wanted for go on.
void Decoder::keep_picked(const Step& step, Live& live) {
  const int hidden = config_.hidden;
  pool_.each(tiles(step.logits, kRowTile), [&](int i) {
    for (int r = i * kRowTile; r < std::min(step.logits, (i + 1) * kRowTile); ++r)
      std::copy_n(live.residual + static_cast<size_t>(step.logits_index[r]) * hidden, hidden, b_.picked + static_cast<size_t>(r) * hidden);
  });
  live = {b_.picked, step.logits, step.logits_index};
}

// body(r) for every row: a few on every thread, for its own inputs; many shared out, with a barrier after them.
template <class Body>
void Decoder::each_row(int rows, Body&& body) {
  if (rows <= kPrivateRows) {
    for (int r = 0; r < rows; ++r) body(r);
    return;
  }
  pool_.each(tiles(rows, kRowTile), [&](int i) {
    for (int r = i * kRowTile; r < std::min(rows, (i + 1) * kRowTile); ++r) body(r);
  });
}

// Where the inputs of the next product are.
Rows Decoder::inputs(int rows, int thread) const { return rows <= kPrivateRows ? b_.x.from(thread * kPrivateRows) : b_.x; }

// The normalized rows of the residual become the inputs of the next product.
void Decoder::norm_rows(const Live& live, const float* weight, Kind kind, int thread) {
  const int hidden = config_.hidden;
  float* line = b_.scratch + thread * b_.scratch_stride;
  const Rows to = inputs(live.rows, thread);
  each_row(live.rows, [&](int r) {
    k_.rmsnorm(live.residual + static_cast<size_t>(live.from(r)) * hidden, hidden, weight, config_.eps, 1, hidden, line, hidden);
    k_.to_rows(line, hidden, 1, hidden, kind, to.from(r));
  });
}

// What attention gave for each row, likewise.
void Decoder::attention_rows(const Live& live, Kind kind, int thread) {
  const int width = config_.heads * config_.head_dim;
  const Rows to = inputs(live.rows, thread);
  each_row(live.rows, [&](int r) { k_.to_rows(b_.attention + static_cast<size_t>(live.from(r)) * width, width, 1, width, kind, to.from(r)); });
  spend(kRest, thread);
}

void Decoder::product(const Rows& x, const Weight& w, int rows, float* out, size_t stride, bool add) {
  const int panel = w.strips() >= 512 ? 8 : w.strips() >= 48 ? 4 : 2;
  const int row_tiles = tiles(rows, kProductRows);
  pool_.each(tiles(w.strips(), panel) * row_tiles, [&](int i) {
    const int strip = i / row_tiles * panel, row = i % row_tiles * kProductRows;
    k_.product(x.from(row), w, std::min(kProductRows, rows - row), strip, std::min(panel, w.strips() - strip),
               out + static_cast<size_t>(row) * stride + 16 * strip, stride, add);
  });
}

// silu(gate) * up, a tile of columns at a time, straight into the activations of the next product.
void Decoder::gate_up(const Layer& w, int rows, int thread) {
  const int strips = config_.intermediate / 16;
  const int row_tiles = tiles(rows, kProductRows);
  const size_t stride = 2 * kActStrips * 16;
  float* tile = b_.scratch + thread * b_.scratch_stride;
  const Rows x = inputs(rows, thread);
  pool_.each(tiles(strips, kActStrips) * row_tiles, [&](int i) {
    const int strip = i / row_tiles * kActStrips, row = i % row_tiles * kProductRows;
    const int width = std::min(kActStrips, strips - strip), count = std::min(kProductRows, rows - row);
    float* up = tile + kActStrips * 16;
    k_.product(x.from(row), w.gate_up, count, strip, width, tile, stride, false);
    k_.product(x.from(row), w.gate_up, count, strips + strip, width, up, stride, false);
    k_.silu_mul(tile, up, stride, count, width * 16, tile, stride);
    const Kind kind = w.down.activations();
    k_.to_rows(tile, stride, count, width * 16, kind, b_.act.from(row).column(strip * 16, kind));
  });
}

void Decoder::attend(const Layer& w, int index, const Step& step, const std::vector<AttentionItem>& items, int thread) {
  const AttentionArgs args = attention_args(index);
  const RopeArgs rope{b_.wide,   step.positions, step.out_slots, cos_.data(), sin_.data(), w.q_norm,
                      w.k_norm,  config_.eps,    config_.heads,  args.kv,     b_.q};
  pool_.each(tiles(step.tokens, kRowTile), [&](int i) { k_.rope(rope, i * kRowTile, std::min(step.tokens, (i + 1) * kRowTile)); });
  spend(kRest, thread);
  float* scratch = b_.scratch + thread * b_.scratch_stride;
  pool_.each(static_cast<int>(items.size()), [&](int i) { k_.attention(args, items[i], scratch); });
  if (!folds_.empty())
    pool_.each(static_cast<int>(folds_.size()), [&](int i) { k_.fold_partials(args, folds_[i].partial, folds_[i].blocks, folds_[i].row); });
  spend(kAttention, thread);
}

AttentionArgs Decoder::attention_args(int layer) const {
  return {b_.q, b_.attention, kv_layer(layer), config_.heads, 1.0f / std::sqrt(static_cast<float>(config_.head_dim))};
}

KvLayer Decoder::kv_layer(int layer) const {
  return {kv_.data() + static_cast<size_t>(layer) * (config_.slots + 1) * slot_bytes_, slot_bytes_, config_.kv_heads, config_.head_dim,
          config_.kind == Kind::f32 ? Kind::f32 : Kind::bf16};
}

}  // namespace headrace
