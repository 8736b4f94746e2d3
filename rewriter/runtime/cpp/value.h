// What a line hands over: a tensor, a scalar, or something that only has a name.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace {
namespace inductor_rewriter {

// A tensor without a handle, as wrappers in arrayref mode have them.
struct Array {
  const void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t dim;
  int32_t dtype;
  int32_t device_type;
  int32_t device_index;
};

// The number of a dtype (c10::ScalarType), or -1.
template <class T>
constexpr int32_t dtype_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return 11;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr int32_t with_sign[] = {-1, 1, 2, -1, 3, -1, -1, -1, 4};
    constexpr int32_t without[] = {-1, 0, 27, -1, 28, -1, -1, -1, 29};
    return std::is_signed_v<T> ? with_sign[sizeof(T)] : without[sizeof(T)];
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? 6 : sizeof(T) == 8 ? 7 : -1;
  } else if constexpr (std::is_same_v<T, c10::Half>) {
    return 5;
  } else if constexpr (std::is_same_v<T, c10::BFloat16>) {
    return 15;
  } else if constexpr (std::is_same_v<T, c10::complex<float>>) {
    return 9;
  } else if constexpr (std::is_same_v<T, c10::complex<double>>) {
    return 10;
  } else {
    return -1;
  }
}

// ArrayRefTensor of torch/csrc/inductor/aoti_runtime/arrayref_tensor.h, known by its members: a
// wrapper need not include that header.
template <class T, class = void>
struct IsArrayRef : std::false_type {};
template <class T>
struct IsArrayRef<
    T,
    std::void_t<
        decltype(std::declval<const T&>().sizes().data()),
        decltype(std::declval<const T&>().strides().data()),
        decltype(std::declval<const T&>().device_idx()),
        decltype(*std::declval<const T&>().data())>> : std::true_type {};

template <class T>
Array view_array(const void* from) {
  const T& tensor = *static_cast<const T*>(from);
  using Element = std::remove_cv_t<std::remove_reference_t<decltype(*tensor.data())>>;
  return {
      tensor.data(),
      tensor.sizes().data(),
      tensor.strides().data(),
      static_cast<int64_t>(tensor.sizes().size()),
      dtype_of<Element>(),
      tensor.device_type(),
      tensor.device_idx()};
}

// A view or an array that its call keeps until the line is over.
struct Kept {
  int64_t place;
};

// How a value travels to a call: by value, through `...`. The addresses of thousands of variables
// in one function, or arrays of them, make a compiler's work grow with their square.
template <class T>
constexpr char code_of() {
  if constexpr (std::is_same_v<T, Kept>) return 'k';
  else if constexpr (std::is_same_v<T, bool>) return 'b';
  else if constexpr (std::is_floating_point_v<T>) return 'f';
  else if constexpr (std::is_integral_v<T>) return std::is_signed_v<T> ? 'i' : 'u';
  else if constexpr (std::is_convertible_v<const T&, AtenTensorHandle>) return 't';
  else return IsArrayRef<T>::value ? 'k' : 'o';
}

template <class... T>
struct Codes {
  static constexpr char text[] = {code_of<T>()..., 0};
};

}  // namespace inductor_rewriter
}  // namespace
