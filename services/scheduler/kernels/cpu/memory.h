// Large zeroed memory on huge pages where the system grants them: weights and the KV pool are read at random.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace {

class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Grows by large chunks; what it hands out is aligned to a cache line and lives as long as the arena.
class Arena {
 public:
  uint8_t* take(size_t bytes);

 private:
  std::vector<HugeBuffer> chunks_;
  size_t used_ = 0;
};

// Working memory that is only ever grown; its contents do not survive growth.
class Workspace {
 public:
  template <class T>
  T* at_least(size_t count) {
    if (count * sizeof(T) > buffer_.size()) buffer_ = HugeBuffer(count * sizeof(T) * 5 / 4 + 4096);
    return reinterpret_cast<T*>(buffer_.data());
  }

 private:
  HugeBuffer buffer_;
};

}  // namespace headrace
