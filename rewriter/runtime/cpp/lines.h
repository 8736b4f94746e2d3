// What the injected lines call:
//
//     Call _rw(wrapper);                first in an entry's body
//     _rw.inputs(arg0_1, arg1_1);       once the inputs have names
//     _rw.before(12, arg0_1, _rw.view(buf0, 2, int_array_0, int_array_1, 0L), s0);
//     _rw.after(12, buf1);              around a launch
//     _rw.allocated(7, buf3);           where memory comes from; buf3 may become another tensor
//     _rw.reused(7, buf3);              a buffer took over memory whose content is no longer needed
//     _rw.released(7, buf3);            the wrapper is about to release a buffer
//     _rw.checked(12);                  after a launch, for memory probes
#pragma once

#include <type_traits>
#ifdef ARRAYS
#include <typeinfo>
#include <utility>
#endif

namespace inductor_rewriter {

#ifdef ARRAYS
// ArrayRefTensor of torch/csrc/inductor/aoti_runtime, by its members: a wrapper may not include its header.
template <class T, class = void> constexpr bool is_array = false;
template <class T>
constexpr bool is_array<T, std::void_t<decltype(std::declval<const T&>().device_idx())>> = true;
#endif

struct Call {
  explicit Call(Table& table) noexcept {
    static const Functions* const found = find_recorder();
    if ((to_ = found)) call_ = to_->begin(table);
  }
  __attribute__((noinline)) ~Call() { if (call_) to_->end(call_); }
  template <class... T> void inputs(const T&... x) noexcept { pass('i', 0, x...); }
  // Not inlined: in a wrapper of 193 launches that costs the compiler a tenth of its time.
  template <class... T> [[gnu::noinline]] void before(int n, const T&... x) noexcept { pass('b', n, x...); }
  template <class... T> [[gnu::noinline]] void after(int n, const T&... x) noexcept { pass('a', n, x...); }
  template <class... T> void pass(char phase, int launch, const T&... x) noexcept {
    if (call_) to_->at(call_, phase, launch, sizeof...(x), value(x)...);
  }
  template <class T> [[gnu::noinline]] Value view(const T& base, int64_t dim, const int64_t* sizes,
                                                  const int64_t* strides, int64_t offset) noexcept {
#ifdef ARRAYS
    if constexpr (is_array<T>) return array(base, offset, dim, sizes, strides);
    else
#endif
    return call_ ? to_->view(call_, value(base), dim, sizes, strides, offset) : Value{'o'};
  }
#ifdef ARRAYS
  template <class T> Value array(const T& from, int64_t offset, int64_t dim, const int64_t* sizes,
                                 const int64_t* strides) noexcept {
    if (!call_) return {'o'};
    return to_->array(call_, from.data() + offset, typeid(*from.data()).name(), dim, sizes, strides,
                      from.device_type(), from.device_idx());
  }
#endif
#ifdef MEMORY
  template <class T> void allocated(int event, T& buffer) noexcept {
    if (AtenTensorHandle other = memory('a', event, buffer)) buffer = T(other);
  }
  void reused(int event, AtenTensorHandle buffer) noexcept { memory('r', event, buffer); }
  void released(int event, AtenTensorHandle buffer) noexcept { memory('f', event, buffer); }
  void checked(int launch) noexcept { memory('c', launch, nullptr); }
  AtenTensorHandle memory(char line, int number, AtenTensorHandle buffer) noexcept {
    return call_ ? to_->memory(call_, line, number, buffer) : nullptr;
  }
#endif
  template <class T> Value value(const T& x) noexcept {
    if constexpr (std::is_same_v<T, Value>) return x;
    if constexpr (std::is_same_v<T, bool>) return {'b', x};
    if constexpr (std::is_floating_point_v<T>) return {'f', 0, static_cast<double>(x)};
    if constexpr (std::is_integral_v<T>) return {std::is_signed_v<T> ? 'i' : 'u', int64_t(x)};
    if constexpr (std::is_convertible_v<const T&, AtenTensorHandle>) return {'t', 0, 0, x};
#ifdef ARRAYS
    if constexpr (is_array<T>) {
      return array(x, 0, x.sizes().size(), x.sizes().data(), x.strides().data());
    }
#endif
    return {'o'};
  }
  const Functions* to_ = nullptr; void* call_ = nullptr;
};

}  // namespace inductor_rewriter
