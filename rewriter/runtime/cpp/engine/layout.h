// Reads the elements of a tensor in row-major order, whatever its strides are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "elements.h"

namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-fast-math", "tree-loop-vectorize")
#endif

// The dimensions of a tensor in row-major order, as few as possible: neighbouring dimensions that are
// contiguous are merged. Strides are in elements.
struct Dimensions {
  static constexpr int most = 64;  // the limit of torch
  int64_t size[most], stride[most];
  int count = 0;

  // False for more dimensions than `most`.
  bool read(const Layout& layout) {
    for (int i = 0; i < layout.dim; ++i) {
      if (layout.shape[i] == 1) continue;
      if (count && stride[count - 1] == layout.shape[i] * layout.stride[i]) {
        size[count - 1] *= layout.shape[i];
        stride[count - 1] = layout.stride[i];
        continue;
      }
      if (count == most) return false;
      size[count] = layout.shape[i];
      stride[count++] = layout.stride[i];
    }
    return true;
  }

  bool is_contiguous() const { return count == 0 || (count == 1 && stride[0] == 1); }
};

// Copies elements into contiguous memory, piece by piece.
class Gather {
 public:
  Gather(const Dimensions& dims, const char* data, int size)
      : dims_(dims), data_(data), size_(size) {}

  // The next piece starts at this element; before, at the first one.
  void seek(int64_t element) {
    at_ = data_;
    for (int i = dims_.count - 1; i >= 0; --i) {
      place_[i] = element % dims_.size[i];
      element /= dims_.size[i];
      at_ += place_[i] * dims_.stride[i] * size_;
    }
  }

  void next(int64_t count, char* to) {
    switch (size_) {
      case 1: return copy<uint8_t>(count, to);
      case 2: return copy<uint16_t>(count, to);
      case 4: return copy<uint32_t>(count, to);
      case 8: return copy<uint64_t>(count, to);
      default: return copy<Pair>(count, to);
    }
  }

 private:
  static constexpr int64_t block = 8;  // rows and columns that are copied together
  struct Pair {
    uint64_t first, second;
  };

  template <class T>
  void copy(int64_t count, char* to) {
    const int last = dims_.count - 1;
    const int64_t run = last < 0 ? 1 : dims_.size[last], stride = last < 0 ? 1 : dims_.stride[last];
    const bool by_blocks = last > 0 && std::abs(dims_.stride[last - 1]) < std::abs(stride) &&
        std::min(run, dims_.size[last - 1]) >= block;
    while (count) {
      const int64_t rows = by_blocks ? dims_.size[last - 1] - place_[last - 1] : 1;
      const int64_t left = last < 0 ? 1 : rows * run - place_[last];
      const int64_t some = left < count ? left : count;
      if (by_blocks) {
        copy_blocks<T>(some, to);
      } else if (stride == 1) {
        std::memcpy(to, at_, static_cast<std::size_t>(some) * sizeof(T));
      } else {
        for (int64_t i = 0; i < some; ++i) {
          std::memcpy(to + i * sizeof(T), at_ + i * stride * static_cast<int64_t>(sizeof(T)), sizeof(T));
        }
      }
      to += some * sizeof(T);
      count -= some;
      advance(some);
    }
  }

  // Of a transposed matrix, whose neighbours in memory are those of a column: row by row, each line of memory would
  // have left the cache before its next element is wanted.
  template <class T>
  void copy_blocks(int64_t count, char* to) const {
    constexpr int64_t size = sizeof(T);
    const int last = dims_.count - 1;
    const int64_t run = dims_.size[last], begin = place_[last], end = begin + count;
    const int64_t across = dims_.stride[last] * size, down = dims_.stride[last - 1] * size;
    for (int64_t column = 0; column < run; column += block) {
      const int64_t columns = std::min(block, run - column);
      for (int64_t row = 0; row * run + column < end; row += block) {
        const char* from = at_ + row * down + (column - begin) * across;
        const int64_t first = row * run + column - begin;
        const bool is_inside = first >= 0 && first + (block - 1) * run + columns <= count;
        if constexpr (size <= 8) {
          if (is_inside && columns == block && down == size) {
            copy_block<T>(from, across, to + first * size, run * size);
            continue;
          }
        }
        for (int64_t i = 0; i < block; ++i, from += down) {
          for (int64_t j = 0; j < columns; ++j) {
            const int64_t element = first + i * run + j;
            if (element >= 0 && element < count) std::memcpy(to + element * size, from + j * across, size);
          }
        }
      }
    }
  }

  // A square block, from columns that are contiguous and `across` bytes apart to rows `row_bytes` apart. Vectors of the
  // first half interleaved with those of the second one, as often as eight can be halved, are the block transposed.
  template <class T>
  static void copy_block(const char* from, int64_t across, char* to, int64_t row_bytes) {
    typedef T Vector __attribute__((vector_size(block * sizeof(T))));
    Vector vectors[block];
    for (int j = 0; j < block; ++j) {
      // The columns of the next block: no pointer, as they may be beyond the tensor.
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + (j + block) * across));
      std::memcpy(&vectors[j], from + j * across, sizeof vectors[j]);
    }
    for (int turn = 1; turn < block; turn *= 2) {
      Vector next[block];
      for (int i = 0; i < block / 2; ++i) {
        const Vector &a = vectors[i], &b = vectors[i + block / 2];
#ifdef __clang__
        next[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        next[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
        next[2 * i] = __builtin_shuffle(a, b, Vector{0, 8, 1, 9, 2, 10, 3, 11});
        next[2 * i + 1] = __builtin_shuffle(a, b, Vector{4, 12, 5, 13, 6, 14, 7, 15});
#endif
      }
      std::memcpy(vectors, next, sizeof vectors);
    }
    for (int i = 0; i < block; ++i) std::memcpy(to + i * row_bytes, &vectors[i], sizeof vectors[i]);
  }

  void advance(int64_t some) {
    for (int i = dims_.count - 1; i >= 0 && some; --i) {
      const int64_t size = dims_.size[i], before = place_[i], after = before + some;
      some = after < size ? 0 : after == size ? 1 : after / size;
      place_[i] = after - some * size;
      at_ += (place_[i] - before) * dims_.stride[i] * size_;
    }
  }

  const Dimensions& dims_;
  const char* const data_;
  const int size_;
  const char* at_ = data_;
  int64_t place_[Dimensions::most] = {};
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
