#include "memory.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace headrace {
namespace {
constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kChunk = size_t{64} << 20;
size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
}  // namespace

HugeBuffer::HugeBuffer(size_t bytes) {
  // A tail page stays unused so that a 64-byte load at the very end of the data is legal.
  const size_t want = round_up(bytes + 64, bytes >= kHuge ? kHuge : 4096);
  const size_t room = bytes >= kHuge ? want + kHuge : want;
  void* p = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  auto at = reinterpret_cast<uintptr_t>(p);
  if (bytes >= kHuge) {
    const uintptr_t start = round_up(at, kHuge);
    if (start > at) munmap(p, start - at);
    if (at + room > start + want) munmap(reinterpret_cast<void*>(start + want), at + room - start - want);
    at = start;
    madvise(reinterpret_cast<void*>(at), want, MADV_HUGEPAGE);
  }
  data_ = reinterpret_cast<uint8_t*>(at);
  size_ = want;
}

HugeBuffer::~HugeBuffer() {
  if (data_) munmap(data_, size_);
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

uint8_t* Arena::take(size_t bytes) {
  bytes = round_up(bytes, 64);
  if (chunks_.empty() || used_ + bytes > chunks_.back().size()) {
    chunks_.emplace_back(bytes > kChunk ? bytes : kChunk);
    used_ = 0;
  }
  uint8_t* p = chunks_.back().data() + used_;
  used_ += bytes;
  return p;
}

}  // namespace headrace
