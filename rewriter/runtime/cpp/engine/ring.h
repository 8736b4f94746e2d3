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

#include "cpu.h"
#include "job.h"

namespace inductor_rewriter {

// The measurement of a tensor whose elements are in the row itself.
inline Measured measure_carried(const uint64_t* words) {
  const int64_t numel = static_cast<int64_t>(words[gpu::numel_word]), stride = 1;
  const int32_t dtype = static_cast<int32_t>(words[gpu::dtype_word] & 0xffffffffu);
  Measured measured{};
  measure_on_cpu({dtype, 1, numel, &numel, &stride, reinterpret_cast<const char*>(words)}, 1, measured);
  return measured;
}

// The measurement in a row. The kernel leaves sums; mean, deviation and fingerprint are computed here.
inline Measured finish_row(const uint64_t* words) {
  if (words[gpu::dtype_word] & gpu::has_elements) return measure_carried(words);
  gpu::Sum sums;
  std::memcpy(&sums, words, sizeof sums);
  const int64_t numel = static_cast<int64_t>(words[gpu::numel_word]);
  const int32_t dtype = static_cast<int32_t>(words[gpu::dtype_word]);
  cpu::Part part;
  part.nan = static_cast<int64_t>(sums.nan);
  part.positive_infinite = static_cast<int64_t>(sums.positive);
  part.negative_infinite = static_cast<int64_t>(sums.negative);
  part.finite = numel - part.nan - part.positive_infinite - part.negative_infinite;
  if (!elements::is_number(dtype)) part.finite = 0;
  part.low = sums.low;
  part.high = sums.high;
  if (elements::is_wide(dtype)) part.shift_key = static_cast<int64_t>(sums.shift);
  else part.shift = double_of(sums.shift);
  part.scale = sums.scale == 1 ? 1.0 : sums.scale ? 0x1p-600 : 0x1p600;
  if (part.finite) {
    part.mean = sums.sum / static_cast<double>(part.finite);
    part.squares = cpu::larger(sums.squares - sums.sum * part.mean, 0);
  }
  part.total = {sums.first, sums.second};
  Measured measured = cpu::finish(part, dtype, numel * elements::size(dtype));
  measured.near_limit = static_cast<int64_t>(sums.near_limit);
  return measured;
}

// Reads a row with this sequence number, or with any for 0. False while the row is not complete.
inline bool read_row(const uint64_t* row, uint64_t& sequence, Measured& to) {
  uint64_t words[gpu::row_words];
  const volatile uint64_t* from = row;
  for (int i = 0; i < gpu::row_words; ++i) words[i] = from[i];
  const uint64_t number = words[gpu::sequence_word];
  if (!number || (sequence && number != sequence)) return false;
  if (words[gpu::checksum_word] != gpu::checksum(words)) return false;
  sequence = number;
  to = finish_row(words);
  return true;
}

// Rows by sequence number, from 1 on. One thread at a time may reserve rows, and one release them.
class Ring {
 public:
  static constexpr uint64_t capacity = 4096;  // rows; a power of two
  // A row may be read before the launch that was to write it has run (`Gpu::find`). It is not reserved
  // again before half of the other rows were.
  static constexpr uint64_t usable = capacity / 2;
  static constexpr std::size_t bytes = capacity * gpu::row_words * sizeof(uint64_t);

  // Uses this memory, which holds zeros.
  void attach(uint64_t* rows) { rows_ = rows; }

  uint64_t* row(uint64_t sequence) const {
    return rows_ + (sequence - 1) % capacity * gpu::row_words;
  }

  // Reserves `count` consecutive rows; returns the first. Waits until enough rows are released.
  uint64_t reserve(uint64_t count) {
    const uint64_t first = next_;
    next_ += count;
    while (next_ - 1 - free_below_ > usable) {
      free_below_ = released_.load(std::memory_order_acquire);
      if (next_ - 1 - free_below_ <= usable) break;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return first;
  }

  bool read(uint64_t sequence, Measured& to) const {
    return read_row(row(sequence), sequence, to);
  }

  // Releases `count` rows from `first` on: they were read, or nobody will read them. Who reads them may finish in any
  // order. Returns the last row up to which all are released.
  uint64_t release(uint64_t first, uint32_t count) {
    waiting_[first % capacity] = count;
    while (const uint32_t some = waiting_[unread_ % capacity]) {
      waiting_[unread_ % capacity] = 0;
      unread_ += some;
    }
    released_.store(unread_ - 1, std::memory_order_release);
    return unread_ - 1;
  }

 private:
  uint64_t* rows_ = nullptr;
  uint64_t next_ = 1;
  uint64_t free_below_ = 0;  // `released_` when it was last read
  std::atomic<uint64_t> released_{0};  // the last row up to which all were released
  uint64_t unread_ = 1;
  uint32_t waiting_[capacity] = {};  // by row: how many were released from it on, after `unread_`
};

}  // namespace inductor_rewriter
