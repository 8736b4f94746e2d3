// A value as a line passes it: a tensor, a scalar, or something that only has a name.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "dtype.h"

namespace {
namespace inductor_rewriter {

// A tensor without a handle, in arrayref mode.
struct Array {
  const void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t dim;
  int32_t dtype;
  int32_t device_type;
  int32_t device_index;
};

// The number of a dtype, or -1.
template <class T>
constexpr int32_t dtype_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return dtypes::boolean;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr bool has_sign = std::is_signed_v<T>;
    switch (sizeof(T)) {
      case 1: return has_sign ? dtypes::int8 : dtypes::uint8;
      case 2: return has_sign ? dtypes::int16 : dtypes::uint16;
      case 4: return has_sign ? dtypes::int32 : dtypes::uint32;
      case 8: return has_sign ? dtypes::int64 : dtypes::uint64;
      default: return -1;
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    switch (sizeof(T)) {
      case 4: return dtypes::float32;
      case 8: return dtypes::float64;
      default: return -1;
    }
  } else if constexpr (std::is_same_v<T, c10::Half>) {
    return dtypes::float16;
  } else if constexpr (std::is_same_v<T, c10::BFloat16>) {
    return dtypes::bfloat16;
  } else if constexpr (std::is_same_v<T, c10::complex<float>>) {
    return dtypes::complex64;
  } else if constexpr (std::is_same_v<T, c10::complex<double>>) {
    return dtypes::complex128;
  } else {
    return -1;
  }
}

// Whether T is ArrayRefTensor of torch/csrc/inductor/aoti_runtime/arrayref_tensor.h, by its members: a
// wrapper may not include that header.
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

// A view or an array that its call keeps until the line returns.
struct Kept {
  int64_t place;
};

// Values are passed by value, through `...`. With addresses or arrays of thousands of variables in one
// function, compile time grows with the square of their number.
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
