// A few threads that run one region together, with dynamic tiles and a barrier that spins, then yields.
//
// Other processes take cores away at any moment, so work is handed out tile by tile, and a thread that waits for a
// descheduled one gives its core up instead of burning it. Between regions the threads spin for a moment, then sleep.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace headrace {

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // Runs body(thread) on every thread, the caller being thread 0, and returns when all are done.
  template <class Body>
  void run(Body&& body) {
    start([](void* context, int thread) { (*static_cast<Body*>(context))(thread); }, &body);
  }

  // Inside a region: calls body(i) for i < items, each once on some thread, and waits until all are done.
  template <class Body>
  void each(int items, Body&& body) {
    if (threads_ == 1) {
      for (int i = 0; i < items; ++i) body(i);
      return;
    }
    for (int i = next(); i < items; i = next()) body(i);
    barrier();
  }

 private:
  using Function = void (*)(void*, int);
  void start(Function function, void* context);
  void worker(int thread);
  void wait_for_region(unsigned seen);
  int next() { return tile_.fetch_add(1, std::memory_order_relaxed); }
  void barrier();

  const int threads_;
  std::vector<std::thread> workers_;
  std::mutex region_;  // one region at a time

  Function function_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<int> tile_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> generation_{0};
  alignas(64) std::atomic<unsigned> regions_{0};
  std::atomic<int> sleepers_{0};
  bool stopping_ = false;
  std::mutex sleep_;
  std::condition_variable wake_;
};

}  // namespace headrace
