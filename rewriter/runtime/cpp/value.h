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

// What a value is, once somebody looks at it. It may own its handle: that of a view made for it.
struct Content {
  enum class Kind : char { tensor, array, integer, unsigned_integer, floating, boolean, other };

  Content() : integer(0) {}
  template <class T>
  explicit Content(const T& from) {
    if constexpr (std::is_same_v<T, bool>) {
      kind = Kind::boolean;
      integer = from;
    } else if constexpr (std::is_floating_point_v<T>) {
      kind = Kind::floating;
      floating = static_cast<double>(from);
    } else if constexpr (std::is_integral_v<T>) {
      kind = std::is_signed_v<T> ? Kind::integer : Kind::unsigned_integer;
      integer = static_cast<int64_t>(from);
    } else if constexpr (std::is_convertible_v<const T&, AtenTensorHandle>) {
      kind = Kind::tensor;
      handle = from;
    } else if constexpr (IsArrayRef<T>::value) {
      kind = Kind::array;
      array = view_array<T>(&from);
    } else {
      integer = 0;
    }
  }
  Content(Content&& from) noexcept { *this = std::move(from); }
  Content& operator=(Content&& from) noexcept {
    std::swap(kind, from.kind);
    std::swap(owned, from.owned);
    std::swap(array, from.array);
    std::swap(integer, from.integer);
    return *this;
  }
  ~Content() {
    if (owned) aoti_torch_delete_tensor_object(handle);
  }

  Kind kind = Kind::other;
  bool owned = false;
  Array array{};
  union {
    AtenTensorHandle handle;
    int64_t integer;
    double floating;
  };
};

// Two pointers, since a wrapper makes thousands of them and has to be compiled: where the value
// stands, and how to read one of its type. Gone after its line, like what it points to.
class Value {
 public:
  template <class T>
  Value(const T& from) : from_(&from), read_(&read<T>) {}

  // The view that `reinterpret_tensor_wrapper` makes of the same arguments, made when it is read.
  template <class T>
  Value(
      const T& base, int64_t dim, const int64_t* sizes, const int64_t* strides, int64_t offset)
      : from_(&base), read_(&read_view<T>), sizes_(sizes), strides_(strides), dim_(dim),
        offset_(offset) {}

  // Of a tensor that cannot be viewed (the wrapper would fail at it, too), something without value.
  Content content() const { return read_(*this); }

 private:
  template <class T>
  static Content read(const Value& value) {
    return Content(*static_cast<const T*>(value.from_));
  }
  template <class T>
  static Content read_view(const Value& value) {
    Content base = read<T>(value), view;
    if (base.kind != Content::Kind::tensor || !base.handle) return view;
    view.owned = !aoti_torch__reinterpret_tensor(
        base.handle, value.dim_, value.sizes_, value.strides_, value.offset_, &view.handle);
    view.kind = view.owned ? Content::Kind::tensor : Content::Kind::other;
    return view;
  }

  const void* from_;
  Content (*read_)(const Value&);
  const int64_t* sizes_;  // these of a view only
  const int64_t* strides_;
  int64_t dim_;
  int64_t offset_;
};

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
