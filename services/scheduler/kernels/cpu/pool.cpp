#include "pool.h"

#include <sched.h>

#include <chrono>

namespace headrace {
namespace {

constexpr int kSpins = 4000;
constexpr auto kIdleSpin = std::chrono::microseconds(60);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Pool::Pool(int threads) : threads_(threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker(i); });
}

Pool::~Pool() {
  {
    std::lock_guard lock(sleep_);
    stopping_ = true;
    regions_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& w : workers_) w.join();
}

void Pool::start(Function function, void* context) {
  std::lock_guard one(region_);
  if (threads_ == 1) return function(context, 0);
  function_ = function;
  context_ = context;
  regions_.fetch_add(1);
  if (sleepers_.load() > 0) {
    std::lock_guard lock(sleep_);
    wake_.notify_all();
  }
  function(context, 0);
  barrier();
}

void Pool::worker(int thread) {
  for (unsigned seen = 0;; ++seen) {
    wait_for_region(seen);
    if (stopping_) return;
    function_(context_, thread);
    barrier();
  }
}

void Pool::wait_for_region(unsigned seen) {
  const auto until = std::chrono::steady_clock::now() + kIdleSpin;
  do {
    for (int i = 0; i < 100; ++i) {
      if (regions_.load(std::memory_order_acquire) != seen) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() < until);
  std::unique_lock lock(sleep_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return regions_.load() != seen; });
  sleepers_.fetch_sub(1);
}

void Pool::barrier() {
  const unsigned generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    tile_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; generation_.load(std::memory_order_acquire) == generation; ++spins) {
    if (spins < kSpins) relax();
    else sched_yield();
  }
}

}  // namespace headrace
