// Reads the elements of a tensor in row-major order, whatever its strides are.
#pragma once

#include <cstdint>
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

  // The next piece starts at this element.
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
  struct Pair {
    uint64_t first, second;
  };

  template <class T>
  void copy(int64_t count, char* to) {
    const int last = dims_.count - 1;
    const int64_t run = last < 0 ? 1 : dims_.size[last], stride = last < 0 ? 1 : dims_.stride[last];
    while (count) {
      const int64_t left = last < 0 ? 1 : run - place_[last];
      const int64_t some = left < count ? left : count;
      if (stride == 1) {
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

  void advance(int64_t some) {
    for (int i = dims_.count - 1; i >= 0; --i) {
      at_ += some * dims_.stride[i] * size_;
      place_[i] += some;
      if (place_[i] < dims_.size[i]) return;
      at_ -= dims_.size[i] * dims_.stride[i] * size_;
      place_[i] = 0;
      some = 1;
    }
  }

  const Dimensions& dims_;
  const char* const data_;
  const int size_;
  const char* at_ = nullptr;
  int64_t place_[Dimensions::most];
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
