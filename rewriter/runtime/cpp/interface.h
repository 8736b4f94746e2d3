// What the injected lines and the table in the header are made of.
//
//     Call _rw(wrapper);                first in an entry's body
//     _rw.inputs(arg0_1, arg1_1);       once the inputs have names
//     _rw.before(12, arg0_1, _rw.view(buf0, 2, int_array_0, int_array_1, 0L), s0);
//     _rw.after(12, buf1);              around a launch
//     _rw.allocated(7, buf3);           where memory comes from; buf3 may become another tensor
//     _rw.checked(12);                  after a launch, for memory probes
//
// If the bodies are compiled apart, a wrapper needs only this and what it includes. Symbols are
// then hidden, and otherwise have internal linkage: one process may load many instrumented
// libraries.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "table.h"
#include "value.h"

// Around a line that the table may switch off: a function of its own, which is not optimized and which
// asks the table itself. The wrapper is one large function, and each branch in it takes the compiler
// more time than a call.
#ifdef __clang__
#define INDUCTOR_REWRITER_LINE [&]() __attribute__((noinline, optnone))
#else
#define INDUCTOR_REWRITER_LINE [&]() __attribute__((noinline, optimize("O0")))
#endif

namespace {
namespace inductor_rewriter {

enum class Phase { before, after, inputs };

// One call of a wrapper. Nothing here throws, and with REWRITER_PROBE=off nothing is done.
class Call {
 public:
  __attribute__((noinline)) explicit Call(Wrapper& wrapper) noexcept;
  __attribute__((noinline)) ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  template <class... T>
  void inputs(const T&... values) noexcept {
    if (running_) send(Phase::inputs, 0, Codes<T...>::text, pass(values)...);
  }
  template <class... T>
  void before(int launch, const T&... values) noexcept {
    if (running_) send(Phase::before, launch, Codes<T...>::text, pass(values)...);
  }
  template <class... T>
  void after(int launch, const T&... values) noexcept {
    if (running_) send(Phase::after, launch, Codes<T...>::text, pass(values)...);
  }

  // Whether a line passes anything. If a wrapper has the lines for every selection, the table says
  // which are used; this call, and that of the line, are the cost of the others.
  bool asks_inputs() const noexcept {
    return running_ && picks_[0].before;
  }
  bool asks_before(int launch) const noexcept {
    return running_ && picks_[launch + 1].before;
  }
  bool asks_after(int launch) const noexcept {
    return running_ && picks_[launch + 1].after;
  }

  // A buffer was allocated; another one may replace it.
  template <class T>
  void allocated(int event, T& buffer) noexcept {
    if (AtenTensorHandle other = replace(event, static_cast<AtenTensorHandle>(buffer))) {
      buffer = T(other);
    }
  }
  // A buffer took over memory whose content is no longer needed; or the wrapper is about to release
  // one.
  __attribute__((noinline)) void reused(int event, AtenTensorHandle buffer) noexcept;
  __attribute__((noinline)) void released(int event, AtenTensorHandle buffer) noexcept;
  // A launch was issued.
  __attribute__((noinline)) void checked(int launch) noexcept;

  // As `reinterpret_tensor_wrapper`, but the result needs no destructor.
  template <class T>
  Kept view(
      const T& base, int64_t dim, const int64_t* sizes, const int64_t* strides,
      int64_t offset) noexcept {
    if (!running_) return {0};
    if constexpr (IsArrayRef<T>::value) {
      Array array = view_array<T>(&base);
      array.data = base.data() + offset;
      array.sizes = sizes;
      array.strides = strides;
      array.dim = dim;
      return keep(array);
    } else {
      return keep(base, dim, sizes, strides, offset);
    }
  }

 private:
  template <class T>
  auto pass(const T& value) noexcept {
    if constexpr (std::is_same_v<T, Kept>) return value.place;
    else if constexpr (std::is_floating_point_v<T>) return static_cast<double>(value);
    else if constexpr (std::is_integral_v<T>) return static_cast<int64_t>(value);
    else if constexpr (std::is_convertible_v<const T&, AtenTensorHandle>) {
      return static_cast<AtenTensorHandle>(value);
    } else if constexpr (IsArrayRef<T>::value) {
      return keep(view_array<T>(&value)).place;
    } else {
      return int64_t{0};
    }
  }

  __attribute__((noinline)) void send(Phase phase, int launch, const char* codes, ...) noexcept;
  __attribute__((noinline)) Kept keep(
      AtenTensorHandle base, int64_t dim, const int64_t* sizes, const int64_t* strides,
      int64_t offset) noexcept;
  __attribute__((noinline)) Kept keep(const Array& array) noexcept;
  __attribute__((noinline)) AtenTensorHandle replace(int event, AtenTensorHandle made) noexcept;

  void* running_ = nullptr;  // a RunningCall
  const Pick* picks_ = nullptr;
};

}  // namespace inductor_rewriter
}  // namespace
