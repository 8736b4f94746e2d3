// Rows of measurements in host memory that the GPU's kernel writes to by itself.
//
// A row is there when it has the sequence number that is waited for, and a checksum that is right:
// no fence, no event and no copy, and what was measured can still be read after the device failed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "job.h"

namespace {
namespace inductor_rewriter {

// Reads a row that has this sequence number, or whatever it has for 0; false while it is not there.
inline bool read_row(const uint64_t* row, uint64_t& sequence, Measured& to) {
  uint64_t words[gpu::row_words];
  const volatile uint64_t* from = row;
  for (int i = 0; i < gpu::row_words; ++i) words[i] = from[i];
  const uint64_t number = words[gpu::row_words - 2];
  if (!number || (sequence && number != sequence)) return false;
  if (words[gpu::row_words - 1] != gpu::checksum(words)) return false;
  sequence = number;
  std::memcpy(&to, words, sizeof to);
  return true;
}

// Rows by sequence number, from 1 on. One thread may reserve, and one may read and release.
class Ring {
 public:
  static constexpr uint64_t capacity = 4096;  // rows; a power of two
  static constexpr std::size_t bytes = capacity * gpu::row_words * sizeof(uint64_t);

  // `rows` is zeros.
  void attach(uint64_t* rows) { rows_ = rows; }

  uint64_t* row(uint64_t sequence) const {
    return rows_ + (sequence - 1) % capacity * gpu::row_words;
  }

  // The first of so many rows in a row. Waits until there is room: until others are released.
  uint64_t reserve(uint64_t count) {
    const uint64_t first = next_;
    next_ += count;
    while (next_ - 1 - released_.load(std::memory_order_acquire) > capacity) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return first;
  }

  bool read(uint64_t sequence, Measured& to) const {
    return read_row(row(sequence), sequence, to);
  }

  // All rows up to this one were read, or are given up.
  void release(uint64_t sequence) { released_.store(sequence, std::memory_order_release); }

 private:
  uint64_t* rows_ = nullptr;
  uint64_t next_ = 1;
  std::atomic<uint64_t> released_{0};
};

}  // namespace inductor_rewriter
}  // namespace
