
#include <torch/csrc/inductor/aoti_include/cpu.h>
// Definition of AOTI runtime interface functions

#include <torch/csrc/inductor/aoti_runtime/interface.h>
#include <torch/csrc/inductor/aoti_runtime/model_container.h>

#include <iostream>
#include <string>
#include <unordered_map>
#include <vector>
// Instrumented by inductor-rewriter 0.2.0.dev0 with print, original sha256 e94552b6d090036a5822c14436c1659344be690608a62343eb4fa07f56252672  // rewriter:27228e38
// Options: {"artifact":"clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl.wrapper.cpp"}  // rewriter:27228e38
// What the probes need:  // rewriter:27228e38 begin
#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <cstdint>
#include <type_traits>
#include <utility>
#ifdef __clang__
#define INDUCTOR_REWRITER_LINE [&]() __attribute__((noinline, optnone))
#else
#define INDUCTOR_REWRITER_LINE [&]() __attribute__((noinline, optimize("O0")))
#endif
#if !defined(INDUCTOR_REWRITER_APART) || defined(INDUCTOR_REWRITER_BODIES)
#include <string>
#include <vector>
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <stdexcept>
#include <errno.h>
#include <poll.h>
#include <unistd.h>
#include <atomic>
#include <cstddef>
#include <fcntl.h>
#include <fnmatch.h>
#include <mutex>
#if __has_include(<stdio_ext.h>)
#include <stdio_ext.h>
#endif
#include <dirent.h>
#include <sys/stat.h>
#include <cerrno>
#include <ctime>
#include <deque>
#include <map>
#include <pthread.h>
#include <functional>
#include <memory>
#if __has_include(<torch/version.h>)
#include <torch/version.h>
#elif __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#endif
#ifndef TORCH_VERSION
#define TORCH_VERSION "unknown"
#endif
#include <signal.h>
#include <time.h>
#include <sys/mman.h>
#include <exception>
#include <cmath>
#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define INDUCTOR_REWRITER_SHARED __host__ __device__
#else
#define INDUCTOR_REWRITER_SHARED
#endif
#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#endif
#include <chrono>
#include <thread>
#include <glob.h>
#include <cstdarg>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("Og", "no-fast-math")
#endif

#ifdef INDUCTOR_REWRITER_APART
namespace { namespace inductor_rewriter {} }
namespace inductor_rewriter_apart __attribute__((visibility("hidden"))) {
using namespace inductor_rewriter;
#else
namespace {
namespace inductor_rewriter {
#endif

// The table of a wrapper: the facts of its launches, and the options of its probes. Includes nothing, so that
// it compiles fast: if it is compiled apart, that is done for each selection.

struct Options {
  const char* artifact;
  const char* sha256;
  const char* version;
  const char* probes;  // names, separated by commas
  const char* when;    // before, after, both; empty: as each probe prefers
  const char* format;  // text or upstream
  bool values;
  const char* outputs;  // returned by scopes: `scope name name`, separated by `; `; `-`: none
  const char* expected;  // a row for each input, separated by `; `: see rewriter/runtime/expected.py
  bool reads_inputs;  // whether probes that read values get the inputs
  const char* label;  // the name of the wrapper in prints; empty if there is only one
  const char* calls;  // which calls are recorded: 3-5,9,20-; empty for all
  int last;           // how many calls the dump keeps, the last ones; 0 for all
  const char* args;   // which arguments are shown: written, all, ends
  bool recheck;       // measure values again that were not written since they were measured
  const char* max_bytes;  // how much is saved, as `--max-bytes` takes it; empty for all
  const char* allow;  // values that may be NaN or infinite: KERNEL:BUFFER, separated by `; `
  bool stop;          // end the program at the first NaN that is not allowed
  const char* memory;  // memory lines: `event buffer[ held][ waits]`, separated by `; `
  bool dormant = false;  // probes do nothing until `rewriter control` switches them on
  const char* on = nullptr;  // when `record` writes a dump: nan,spike:10x; empty for never
  // Set by a control request for what it switches on.
  const char* dump = nullptr;  // the directory of the dump; empty for that of the program
  bool quiet = false;          // print nothing
};

// One launch of the table. Labels are `role name[ expr]`, separated by `; `; null if there is no line at that
// phase. `buffers` are `name buffer`, for arguments whose memory has another name. `reads` are labels of
// tensors that the launch takes and no line passes. `together`: nothing writes or frees the values of the
// line after the launch before the line after the next launch. `memory_waits`: the work of its memory line
// waits for that of the next one.
struct Row {
  int launch;
  const char* kernel;
  const char* kind;
  const char* scope;
  int line;
  const char* source_nodes;
  const char* origins;
  bool repeats;
  const char* buffers;
  const char* before;
  const char* after;
  const char* reads;
  bool together = false;
  bool memory_waits = false;
};

// Which values of a line are used, one character for each: `1` or `0`. Null if the line is not used.
struct Pick {
  const char* before;  // in the first pick: for the inputs
  const char* after;
};

// A wrapper's table. Constant-initialized; the first call makes what is needed at run time.
struct Wrapper {
  constexpr Wrapper(
      const Options& about, const Row* table, unsigned long count, const char* labels,
      const Pick* picked = nullptr)
      : options(about), rows(table), size(count), inputs(labels), picks(picked) {}

  const Options& options;
  const Row* rows;
  unsigned long size;
  const char* inputs;
  // The picks of the inputs, then of each launch, if the wrapper has the lines for every selection; null if
  // all of its lines are used.
  const Pick* picks;
  // A Recorder or a Dormant; never freed, since a thread may be in a call. Both fields are accessed with
  // atomic builtins of the compiler, as the table includes no header.
  void* recorder = nullptr;
  bool silent = false;
};


// Dtypes by number, which never changed so far: c10::ScalarType of
// torch/headeronly/core/ScalarType.h.

namespace dtypes {
enum : int32_t {
  uint8, int8, int16, int32, int64, float16, float32, float64, complex32, complex64, complex128,
  boolean, qint8, quint8, qint32, bfloat16, quint4x2, quint2x4, bits1x8, bits2x4, bits4x2, bits8,
  bits16, float8_e5m2, float8_e4m3fn, float8_e5m2fnuz, float8_e4m3fnuz, uint16, uint32, uint64,
  uint1, uint2, uint3, uint4, uint5, uint6, uint7, int1, int2, int3, int4, int5, int6, int7,
  float8_e8m0fnu, float4_e2m1fn_x2,
};
}  // namespace dtypes


// A value as a line passes it: a tensor, a scalar, or something that only has a name.

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

// Whether T is ConstantHandle of torch/csrc/inductor/aoti_runtime/utils.h, by its members: no other handle
// has both of these.
template <class T, class = void>
struct IsConstant : std::false_type {};
template <class T>
struct IsConstant<
    T,
    std::void_t<
        decltype(std::declval<const T&>().tensor()),
        decltype(std::declval<const T&>().data_ptr())>> : std::is_convertible<const T&, AtenTensorHandle> {};
template <class T>
constexpr bool is_constant() {
  return IsConstant<T>::value;
}

// Values are passed by value, through `...`. With addresses or arrays of thousands of variables in one
// function, compile time grows with the square of their number.
template <class T>
constexpr char code_of() {
  if constexpr (std::is_same_v<T, Kept>) return 'k';
  else if constexpr (std::is_same_v<T, bool>) return 'b';
  else if constexpr (std::is_floating_point_v<T>) return 'f';
  else if constexpr (std::is_integral_v<T>) return std::is_signed_v<T> ? 'i' : 'u';
  else if constexpr (is_constant<T>()) return 'c';
  else if constexpr (std::is_convertible_v<const T&, AtenTensorHandle>) return 't';
  else return IsArrayRef<T>::value ? 'k' : 'o';
}

template <class... T>
struct Codes {
  static constexpr char text[] = {code_of<T>()..., 0};
};


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
// Around a line that the table may switch off: a function of its own, which is not optimized and which
// asks the table itself. The wrapper is one large function, and each branch in it takes the compiler
// more time than a call.

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
      return keep(base, dim, sizes, strides, offset, is_constant<T>());
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
      int64_t offset, bool is_constant) noexcept;
  __attribute__((noinline)) Kept keep(const Array& array) noexcept;
  __attribute__((noinline)) AtenTensorHandle replace(int event, AtenTensorHandle made) noexcept;

  void* running_ = nullptr;  // a RunningCall
  const Pick* picks_ = nullptr;
};

#ifdef INDUCTOR_REWRITER_APART
}  // namespace inductor_rewriter_apart
namespace {
namespace inductor_rewriter {
using namespace inductor_rewriter_apart;
#endif
}  // namespace inductor_rewriter
}  // namespace

#if !defined(INDUCTOR_REWRITER_APART) || defined(INDUCTOR_REWRITER_BODIES)

// An event: the values that a wrapper passes at one point of a call, and what probes find out about them.
namespace {
namespace inductor_rewriter {

// An array of fixed size: compiles faster than std::vector.
template <class T>
class Fixed {
 public:
  Fixed() = default;
  explicit Fixed(std::size_t size) : size_(size) {
    if (size) all_ = new T[size];
  }
  Fixed(Fixed&& from) noexcept : all_(from.all_), size_(from.size_) { from.all_ = nullptr; }
  Fixed& operator=(Fixed&& from) noexcept {
    std::swap(all_, from.all_);
    std::swap(size_, from.size_);
    return *this;
  }
  Fixed(const Fixed&) = delete;
  Fixed& operator=(const Fixed&) = delete;
  ~Fixed() { delete[] all_; }

  std::size_t size() const { return size_; }
  void shrink(std::size_t size) { size_ = size; }
  T& operator[](std::size_t at) { return all_[at]; }
  const T& operator[](std::size_t at) const { return all_[at]; }
  T* begin() { return all_; }
  T* end() { return all_ + size_; }
  const T* begin() const { return all_; }
  const T* end() const { return all_ + size_; }

 private:
  T* all_ = nullptr;
  std::size_t size_ = 0;
};

// A value as a line passes it. Pointers are valid until the line returns.
struct Content {
  enum class Kind : char { tensor, view, array, integer, unsigned_integer, floating, boolean, other };

  Kind kind = Kind::other;
  bool is_constant = false;  // of the model, or a view of one
  Array array{};       // of a view only `sizes`, `strides` and `dim`
  int64_t offset = 0;  // of a view, in elements from its base
  union {
    AtenTensorHandle handle;  // for a view, that of its base
    int64_t integer = 0;
    double floating;
  };
};
using Contents = std::vector<Content>;

struct Label {
  std::string role, name, expr;
};
using Labels = Fixed<Label>;

// `role name[ expr]`, separated by `; `.
inline Labels read_labels(const char* joined) {
  std::string all = joined ? joined : "";
  std::size_t count = !all.empty(), place = 0;
  for (std::size_t at = all.find("; "); at != std::string::npos; at = all.find("; ", at + 2)) {
    ++count;
  }
  Labels labels(count);
  for (std::size_t start = 0; start < all.size();) {
    std::size_t end = all.find("; ", start);
    if (end == std::string::npos) end = all.size();
    std::string one = all.substr(start, end - start);
    std::size_t name = one.find(' ') + 1, expr = one.find(' ', name);
    Label& label = labels[place++];
    label.role = one.substr(0, name ? name - 1 : 0);
    label.name = one.substr(name, expr - name);
    label.expr = expr == std::string::npos ? label.name : one.substr(expr + 1);
    start = end + 2;
  }
  return labels;
}

struct ProbedLaunch {
  const Row* row = nullptr;
  Labels before, after;
};

// A tensor handle that we own.
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& from) noexcept : handle(from.handle) { from.handle = nullptr; }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Owned& operator=(Owned&&) = delete;
  ~Owned() { reset(); }
  void reset() {
    if (handle) aoti_torch_delete_tensor_object(handle);
    handle = nullptr;
  }
  AtenTensorHandle handle = nullptr;
};

// Statistics of one tensor, over its finite elements: see `rewriter/runtime/statistics.py`.
struct Statistics {
  int64_t numel = 0, finite = 0, nan = 0, inf = 0, negative_inf = 0, near_limit = 0;
  double low = 0, high = 0, mean = 0, std = 0;
  std::string low_text, high_text;  // for integers, which float64 may not hold
  bool magnitude = false;
};

// A tensor's facts, without its elements.
struct Tensor {
  AtenTensorHandle handle = nullptr;
  const char* data = nullptr;
  int32_t dtype = -1;
  std::string device;
  bool on_cpu = false;
  int device_index = -1;
  bool strided = true;
  bool in_memory = false;  // whether its elements can be read
  int64_t numel = 1;
  int64_t bytes = 0;  // from the first element to the end of the last one
  std::vector<int64_t> shape, stride;
};

// Elements that the host can read.
struct Host {
  bool ready = false;
  bool whole = false;
  const char* data = nullptr;
  std::vector<int64_t> shape, stride;
  Owned owner;
};

struct Item {
  const Label* label = nullptr;
  const char* kind = "other";  // tensor, int, float, bool
  std::string text;  // if it is not a tensor
  Tensor tensor;
  Host host;
  bool measured = false;
  Statistics statistics;
  bool has_head = false;
  std::vector<std::string> head;
  std::string fingerprint;  // of all elements, in hexadecimal
  std::string file;
  std::string unsaved;  // why there is no file, where `save` was to write one
  // For a view in the line: its base, its offset, and its handle once there is one.
  AtenTensorHandle base = nullptr;
  int64_t offset = 0;
  Owned view;

  bool is_tensor() const { return kind[0] == 't'; }

  // Resets what belongs to one event only.
  void reset() {
    tensor.handle = nullptr;
    tensor.data = nullptr;
    base = nullptr;
    host.ready = host.whole = false;
    host.data = nullptr;
    host.owner.reset();
    view.reset();
    measured = has_head = false;
    head.clear();
    fingerprint.clear();
    file.clear();
    unsaved.clear();
  }

  // All that is known about the value. A value that did not change has the same facts.
  std::string facts() const {
    std::string all = kind + ("\n" + text) + "\n" + tensor.device + "\n" + fingerprint;
    auto add = [&](const auto& value) {
      all.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    add(tensor.dtype);
    for (int64_t size : tensor.shape) add(size);
    for (int64_t stride : tensor.stride) add(stride);
    if (measured) {
      for (int64_t count : {statistics.numel, statistics.finite, statistics.nan, statistics.inf,
                            statistics.negative_inf, statistics.near_limit}) {
        add(count);
      }
      for (double one : {statistics.low, statistics.high, statistics.mean, statistics.std}) {
        add(one);
      }
      all += statistics.low_text + " " + statistics.high_text;
    }
    for (const std::string& element : head) all += "\n" + element;
    return all;
  }
};

// `#12`, or the phase if there is no launch.
inline std::string launch_text(const ProbedLaunch* launch, const char* phase) {
  return launch ? "#" + std::to_string(launch->row->launch) : std::string(phase);
}

// The values at one phase of one launch, or the inputs of a call, which have no launch.
struct Event {
  int64_t call = 0;  // the number of the call in this process
  const ProbedLaunch* launch = nullptr;
  const char* phase = "";
  int iteration = 0;
  const std::string* line = nullptr;  // `#12 before KERNEL`, if there is no iteration
  Fixed<Item> items;
  std::string error;  // the error of the device, in which case nothing can be read
  std::vector<std::pair<std::string, std::string>> unexpected;  // of inputs, by name
  bool captured = false;  // whether the values are of the last replay of a CUDA graph

  std::string about() const { return launch_text(launch, phase); }
};

}  // namespace inductor_rewriter
}  // namespace

// Numbers as Python writes them: repr, and the format .4g.
namespace {
namespace inductor_rewriter {

// Compiler flags of wrappers may make std::isnan always false: look at the bits.
inline uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline bool is_finite(double value) {
  return (bits_of(value) >> 52 & 0x7ff) != 0x7ff;
}

inline const char* name_special(double value) {
  uint64_t bits = bits_of(value);
  return bits << 12 ? "nan" : bits >> 63 ? "-inf" : "inf";
}

// 0.DIGITS times ten to the `point`.
struct Decimal {
  bool negative = false;
  char digits[40] = {};
  int count = 0;
  int point = 0;
  bool exact = false;  // the digits read back as the same value
};

// `std::to_chars` is ten times as fast. Looked up at run time: a library that links to it does not load with
// an older standard library.
struct ToChars {
  struct Result {
    char* end;
    int error;
  };
  using Shortest = Result (*)(char*, char*, double, int);
  using Precise = Result (*)(char*, char*, double, int, int);
  static constexpr int scientific = 1;  // std::chars_format

  const Shortest shortest = find<Shortest>("_ZSt8to_charsPcS_dSt12chars_format");
  const Precise precise = find<Precise>("_ZSt8to_charsPcS_dSt12chars_formati");

  static const ToChars& get() {
    static const ToChars functions;
    return functions;
  }

 private:
  template <class Function>
  static Function find(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }
};

inline Decimal read_decimal(const char* text) {
  Decimal result;
  result.negative = *text == '-';
  const char* exponent = std::strchr(text, 'e');
  result.point = std::atoi(exponent + 1) + 1;
  for (const char* at = text; at != exponent; ++at) {  // the locale sets the decimal point
    if (*at >= '0' && *at <= '9') result.digits[result.count++] = *at;
  }
  while (result.count > 1 && result.digits[result.count - 1] == '0') --result.count;
  return result;
}

inline Decimal to_decimal(double value, int precision) {
  char text[40];
  if (ToChars::get().precise) {
    *ToChars::get().precise(text, text + sizeof text - 1, value, ToChars::scientific, precision - 1)
         .end = 0;
    return read_decimal(text);
  }
  std::snprintf(text, sizeof text, "%.*e", precision - 1, value);
  bool exact = std::strtod(text, nullptr) == value;
  if (!exact && bits_of(value) << 12 == 0) {
    // Doubles are denser below a power of two: if the nearest decimal does not read back, try the next.
    char& last = std::strchr(text, 'e')[-1];
    if (last >= '0' && last < '9') {
      ++last;
      exact = std::strtod(text, nullptr) == value;
      last = static_cast<char>(exact ? last : last - 1);
    }
  }
  Decimal result = read_decimal(text);
  result.exact = exact;
  return result;
}

inline std::string write_decimal(const Decimal& from, int lowest, int highest, bool fraction) {
  char made[64];  // a sign, 17 digits and 16 zeros, or an exponent
  char* to = made;
  const auto add = [&](const char* text, int count) {
    std::memcpy(to, text, static_cast<std::size_t>(count));
    to += count;
  };
  const auto add_zeros = [&](int count) {
    std::memset(to, '0', static_cast<std::size_t>(count));
    to += count;
  };
  if (from.negative) add("-", 1);
  if (from.point <= lowest || from.point > highest) {
    add(from.digits, 1);
    if (from.count > 1) add(".", 1);
    add(from.digits + 1, from.count - 1);
    to += std::snprintf(to, 16, "e%+03d", from.point - 1);
  } else if (from.point <= 0) {
    add("0.", 2);
    add_zeros(-from.point);
    add(from.digits, from.count);
  } else if (from.count <= from.point) {
    add(from.digits, from.count);
    add_zeros(from.point - from.count);
    if (fraction) add(".0", 2);
  } else {
    add(from.digits, from.point);
    add(".", 1);
    add(from.digits + from.point, from.count - from.point);
  }
  return std::string(made, to);
}

// The shortest digits that read back as the same value.
inline std::string python_repr(double value, bool fraction = true) {
  if (!is_finite(value)) return name_special(value);
  if (ToChars::get().shortest) {
    char text[40];
    *ToChars::get().shortest(text, text + sizeof text - 1, value, ToChars::scientific).end = 0;
    return write_decimal(read_decimal(text), -4, 16, fraction);
  }
  bool subnormal = (bits_of(value) >> 52 & 0x7ff) == 0;
  Decimal shortest;
  for (int precision = subnormal ? 1 : 15; precision <= 17; ++precision) {
    shortest = to_decimal(value, precision);
    if (shortest.exact) break;
  }
  return write_decimal(shortest, -4, 16, fraction);
}

inline std::string python_general(double value, int precision = 4) {
  if (!is_finite(value)) return name_special(value);
  return write_decimal(to_decimal(value, precision), -4, precision, false);
}

inline std::string complex_repr(double real, double imag) {
  std::string text = python_repr(imag, false);
  if (bits_of(real) == 0) return text + "j";
  if (text[0] != '-') text = "+" + text;
  return "(" + python_repr(real, false) + text + "j)";
}

// A fingerprint as text.
inline std::string hexadecimal(const uint64_t (&words)[2]) {
  std::string text(32, '0');
  for (std::size_t i = 0; i < 32; ++i) {
    text[i] = "0123456789abcdef"[words[i / 16] >> (60 - 4 * (i % 16)) & 15];
  }
  return text;
}

inline std::string decimal(int64_t value) {
  return std::to_string(value);
}

// As Python prints a list.
inline std::string joined(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (int64_t number : numbers) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(number);
  }
  return text + "]";
}

}  // namespace inductor_rewriter
}  // namespace

// Counts NaN, infinities, and numbers near the limit of a half-precision type.
namespace {
namespace inductor_rewriter {

// `health` in rewriter/runtime/text.py; empty if there are none.
inline std::string health_of(const Item& item) {
  const Statistics& statistics = item.statistics;
  std::string text;
  auto add = [&](const char* name, int64_t count) {
    if (!count) return;
    if (!text.empty()) text += ' ';
    text += name + std::to_string(count);
  };
  if (!item.measured) return text;
  add("nan ", statistics.nan);
  add("+inf ", statistics.inf - statistics.negative_inf);
  add("-inf ", statistics.negative_inf);
  add("near the limit ", statistics.near_limit);
  if (text.empty()) return text;
  if (statistics.near_limit) {
    const double share = 100 * double(statistics.near_limit);
    text += " (" + python_general(share / double(statistics.numel)) + "%)";
  }
  text += " of " + std::to_string(statistics.numel);
  if (!statistics.finite) return text;
  auto number = [](double value, const std::string& whole) {
    return whole.empty() ? python_general(value) : whole;
  };
  text += statistics.magnitude ? "; |x| " : "; ";
  text += "min " + number(statistics.low, statistics.low_text);
  return text + " max " + number(statistics.high, statistics.high_text);
}

}  // namespace inductor_rewriter
}  // namespace

// Which calls of a wrapper are recorded: `Calls` in rewriter/runtime/calls.py.
namespace {
namespace inductor_rewriter {

// Numbers of calls: `3-5,9,20-,100-/10`; an empty text means all of them.
class Calls {
 public:
  explicit Calls(const std::string& text) {
    if (text.empty()) return;
    for (std::size_t at = 0, end; at <= text.size(); at = end + 1) {
      end = std::min(text.find(',', at), text.size());
      std::string part = text.substr(at, end - at);
      part.erase(0, std::min(part.find_first_not_of(' '), part.size()));
      part.erase(part.find_last_not_of(' ') + 1);
      const std::size_t slash = std::min(part.find('/'), part.size());
      const std::size_t dash = std::min(part.find('-'), slash);
      Range range;
      bool sound = read(part.substr(0, dash), range.low);
      range.high = range.low;
      if (dash < slash) {
        const std::string last = part.substr(dash + 1, slash - dash - 1);
        range.high = INT64_MAX;
        sound = sound && (last.empty() || read(last, range.high));
      }
      if (slash < part.size()) {
        sound = sound && dash < slash && read(part.substr(slash + 1), range.step) && range.step;
      }
      if (!sound || range.low > range.high) {
        throw std::runtime_error("'" + part + "' is no call or range of calls, such as 3-5");
      }
      ranges_.push_back(range);
    }
  }

  bool contains(int64_t number) const {
    for (const Range& range : ranges_) {
      const bool inside = range.low <= number && number <= range.high;
      if (inside && (number - range.low) % range.step == 0) return true;
    }
    return ranges_.empty();
  }

 private:
  struct Range {
    int64_t low = 0, high = 0, step = 1;
  };

  static bool read(const std::string& digits, int64_t& number) {
    number = std::atoll(digits.c_str());
    return !digits.empty() && digits.size() <= 15 &&
        digits.find_first_not_of("0123456789") == std::string::npos;
  }

  std::vector<Range> ranges_;
};

}  // namespace inductor_rewriter
}  // namespace

// The CUDA device, through libraries that the process has loaded already: links and initializes
// nothing.
namespace {
namespace inductor_rewriter {

// Functions that torch 2.6 lacks: looked up at run time.
template <class Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// A function of the driver, or null.
template <class Function>
Function find_driver(const char* name) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  return cuda ? reinterpret_cast<Function>(dlsym(cuda, name)) : Function{};
}

// The current stream of torch; false if there is none. -1 is the current device.
inline bool current_stream(void** stream, int device_index = -1) {
  using GetStream = AOTITorchError (*)(int32_t, void**);
  static const auto get = [] {
    const char* name = "aoti_torch_get_current_cuda_stream";
    if (auto linked = find<GetStream>(name)) return linked;
    void* torch = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    return torch ? reinterpret_cast<GetStream>(dlsym(torch, name)) : GetStream{};
  }();
  return get && !get(device_index, stream);
}

// Whether this thread has a current device.
inline bool has_device() {
  static const auto current = find_driver<int (*)(void**)>("cuCtxGetCurrent");
  void* context = nullptr;
  return current && !current(&context) && context;
}

// Inside a CUDA graph's capture a copy to the host is illegal, and waiting is, too.
inline bool is_captured(void* stream) {
  static const auto ask = find_driver<int (*)(void*, int*)>("cuStreamIsCapturing");
  int state = 0;
  return ask && ask(stream, &state) == 0 && state == 1;
}
inline bool is_capturing(int device_index = -1) {
  void* stream = nullptr;
  return has_device() && current_stream(&stream, device_index) && is_captured(stream);
}

// The text of a driver error, as in torch's messages.
inline std::string cuda_error(int code) {
  static const auto describe = find_driver<int (*)(int, const char**)>("cuGetErrorString");
  const char* text = nullptr;
  if (!describe || describe(code, &text) || !text) text = "unknown error";
  return std::string("CUDA error: ") + text;
}

// Whether launches of a kind run on a GPU, wherever their arguments are. Generated from
// grammars/names.toml by rewriter/instrumentation/bundle.py.
inline bool is_gpu_kind(const std::string& kind);

}  // namespace inductor_rewriter
}  // namespace

// Writes all of some data, although each system call may accept only a part of it.
namespace {
namespace inductor_rewriter {

// Waits until files that are saved are whole or removed, where any are: one that the disk has no
// room for holds the last of it until then. Set by `Saver`.
inline std::atomic<void (*)()>& wait_for_saved_files() {
  static std::atomic<void (*)()> wait{nullptr};
  return wait;
}

// Writes all of it, waiting for the reader if necessary. Returns 0, or the error. `done` is the number of
// bytes written.
inline int write_all(int descriptor, const char* data, std::size_t size, std::size_t& done) {
  bool has_waited = false;
  for (done = 0; done < size;) {
    const ssize_t count = ::write(descriptor, data + done, size - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd wait = {descriptor, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if ((errno == ENOSPC || errno == EDQUOT) && !has_waited && wait_for_saved_files()) {
      has_waited = true;
      wait_for_saved_files().load()();
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace inductor_rewriter
}  // namespace

// JSON as Python's json.dumps writes it, on one line or with indent=1.
namespace {
namespace inductor_rewriter {

// Decodes one character of UTF-8. Other bytes become lone surrogates, as with Python's
// surrogateescape.
inline uint32_t next_character(const char*& at) {
  unsigned char first = static_cast<unsigned char>(*at++);
  int more = first < 0xc2 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : 0;
  if (first < 0x80) return first;
  uint32_t code = first & (0x3f >> more);
  for (int i = 0; i < more; ++i) {
    if ((at[i] & 0xc0) != 0x80) more = 0;
    else code = code << 6 | (at[i] & 0x3f);
  }
  at += more;
  return more ? code : 0xdc00 + first;
}

inline bool stands_for_itself(char one) {
  return one >= 0x20 && one < 0x7f && one != '"' && one != '\\';
}

inline void append_string(std::string& text, const char* from) {
  text += '"';
  char escape[16];
  for (;;) {
    // Mostly all of it.
    const char* const start = from;
    while (stands_for_itself(*from)) ++from;
    text.append(start, static_cast<std::size_t>(from - start));
    if (!*from) break;
    uint32_t code = next_character(from);
    if (code == '"' || code == '\\') {
      text += '\\';
      text += static_cast<char>(code);
    } else if (code == '\n') {
      text += "\\n";
    } else if (code == '\r') {
      text += "\\r";
    } else if (code == '\t') {
      text += "\\t";
    } else if (code == '\b') {
      text += "\\b";
    } else if (code == '\f') {
      text += "\\f";
    } else if (code < 0x10000) {
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(code));
      text += escape;
    } else {
      code -= 0x10000;
      std::snprintf(
          escape, sizeof escape, "\\u%04x\\u%04x", static_cast<unsigned>(0xd800 + (code >> 10)),
          static_cast<unsigned>(0xdc00 + (code & 0x3ff)));
      text += escape;
    }
  }
  text += '"';
}

class Json {
 public:
  explicit Json(bool indented) : indented_(indented) {}

  std::string text;

  Json& open(char bracket) {
    separate();
    text += bracket;
    ++depth_;
    first_ = true;
    return *this;
  }
  Json& close(char bracket) {
    --depth_;
    if (!first_) wrap();
    text += bracket;
    first_ = false;
    return *this;
  }
  Json& key(const char* name) {
    separate();
    append_string(text, name);
    text += ": ";
    named_ = true;
    return *this;
  }
  // Adds text that is JSON already.
  Json& put(const std::string& value) {
    separate();
    text += value;
    return *this;
  }
  Json& number(int64_t value) { return put(decimal(value)); }
  // JSON has no infinity, so it is a string.
  Json& number(double value) {
    return is_finite(value) ? put(python_repr(value)) : string(name_special(value));
  }
  Json& string(const char* value) {
    separate();
    append_string(text, value);
    return *this;
  }
  Json& string(const std::string& value) { return string(value.c_str()); }

  // The parts of a text between separators; an empty text has none.
  Json& list(const char* joined, const std::string& separator) {
    open('[');
    std::string all = joined;
    for (std::size_t start = 0; start < all.size();) {
      std::size_t end = all.find(separator, start);
      if (end == std::string::npos) end = all.size();
      string(all.substr(start, end - start));
      start = end + separator.size();
    }
    return close(']');
  }

 private:
  void separate() {
    if (!named_ && depth_) {
      if (!first_) text.append(", ", indented_ ? 1 : 2);
      wrap();
    }
    first_ = named_ = false;
  }
  void wrap() {
    if (indented_) text += '\n' + std::string(depth_, ' ');
  }

  bool indented_;
  bool first_ = true;
  bool named_ = false;
  int depth_ = 0;
};

}  // namespace inductor_rewriter
}  // namespace

// How the probe `nan` handles a NaN: `rewriter/runtime/findings.py`.
namespace {
namespace inductor_rewriter {

// Whether a value may be NaN or infinite: `Allowed` in rewriter/runtime/allowed.py.
inline bool is_allowed(const char* patterns, const std::string& kernel, const std::string& name) {
  const std::string all = patterns ? patterns : "";
  auto fits = [](const std::string& pattern, const std::string& text) {
    return !fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE);
  };
  for (std::size_t start = 0; start < all.size();) {
    const std::size_t end = std::min(all.find("; ", start), all.size());
    const std::string pattern = all.substr(start, end - start);
    const std::size_t colon = pattern.rfind(':');
    start = end + 2;
    if (colon == std::string::npos || !fits(pattern.substr(0, colon), kernel)) continue;
    const std::string value = pattern.substr(colon + 1);
    if (fits(value, name) || fits(value, name.substr(0, name.find('[')))) return true;
  }
  return false;
}

// Records in the dump that a probe ended the program; only the first process does. `run` is the
// directory of the call.
inline void write_stopped(
    const std::string& run, int launch, const std::string& kernel, const std::string& name) {
  const std::size_t last = run.rfind('/');
  const std::size_t before = last == 0 ? last : run.rfind('/', last - 1);
  if (last == std::string::npos || before == std::string::npos) return;
  Json json(true);
  json.open('{').key("format").string("rewriter.stopped").key("version").number(int64_t{1});
  json.key("run").string(run.substr(before + 1)).key("pid").number(static_cast<int64_t>(getpid()));
  json.key("launch");
  if (launch < 0) json.put("null");
  else json.number(static_cast<int64_t>(launch));
  json.key("kernel").string(kernel).key("arg").string(name).close('}');
  const std::string path = run.substr(0, before) + "/stopped.json", text = json.text + "\n";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return;
  std::size_t done;
  write_all(file, text.data(), text.size(), done);
  ::close(file);
}

// Ends the process, not by an exception, which no caller of a kernel expects. Flushes what the
// program has printed first, also in Python.
[[noreturn]] inline void end_process(const std::string& message) {
  const auto initialized = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  const auto ensure = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  const auto run = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleString"));
  if (initialized && ensure && run && initialized()) {
    ensure();
    run("import sys\nfor _ in (sys.stdout, sys.stderr):\n  try: _.flush()\n  except Exception: 0\n");
  }
  std::fflush(nullptr);
  std::fwrite(message.data(), 1, message.size(), stderr);
  std::fflush(stderr);
  _exit(1);
}

}  // namespace inductor_rewriter
}  // namespace

// The number of this process in its job: `read_rank` of rewriter/runtime/process.py.
namespace {
namespace inductor_rewriter {

// The value of an environment variable; 0 if it is not a number, -1 if it is not set.
inline int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return -1;
  const bool sound = std::strspn(text, "0123456789") == std::strlen(text);
  return sound && std::strlen(text) < 10 ? std::atoi(text) : 0;
}

inline int read_rank() {
  const int rank = number_of("RANK"), local = number_of("LOCAL_RANK");
  const int host = number_of("GROUP_RANK"), step = number_of("SLURM_PROCID");
  if (rank >= 0) return rank;
  if (local >= 0 && host >= 0) {
    const int each = number_of("LOCAL_WORLD_SIZE");
    return host * (each > 0 ? each : 0) + local;
  }
  if (step >= 0 && (local < 0 || local == number_of("SLURM_LOCALID"))) return step;
  return local > 0 ? local : 0;
}

// The number of processes in the job, 0 if unknown.
inline int read_size() {
  const int size = number_of("WORLD_SIZE"), tasks = number_of("SLURM_NTASKS");
  if (size >= 0) return size;
  return number_of("SLURM_PROCID") >= 0 && tasks > 0 ? tasks : 0;
}

}  // namespace inductor_rewriter
}  // namespace

// Prints the output of one wrapper's probes, and warnings.
namespace {
namespace inductor_rewriter {

// Opens the standard streams that are closed, on nothing. Else the next file that is opened has the number
// of one, such as a file of the dump, and gets the printed lines.
inline void hold_standard_streams() {
  int file = -1;
  do file = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  while (file >= 0 && file <= STDERR_FILENO);
  if (file >= 0) ::close(file);
}

// Standard output and standard error of one wrapper.
class Printer {
 public:
  explicit Printer(const Options& options, bool be_quiet = false)
      : rank(read_rank()), upstream(!std::strcmp(options.format, "upstream")),
        quiet(be_quiet || options.quiet || read_quiet()), label_(options.label) {
    hold_standard_streams();
  }

  const int rank;
  const bool upstream;
  const bool quiet;

  // Writes to standard output immediately: what follows may crash. Flushes C's buffer first, and
  // uses one system call, so that other output does not come in between.
  void write_now(const char* text, std::size_t size) {
    if (quiet) return;
#if __has_include(<stdio_ext.h>)
    if (__fpending(stdout)) std::fflush(stdout);
#else
    std::fflush(stdout);
#endif
    std::size_t done;
    if (const int problem = write_all(fileno(stdout), text, size, done)) {
      warn("stdout", std::string("lines cannot be printed: ") + std::strerror(problem));
    }
  }

  // Writes a warning to standard error, once, for the first launch that it is about.
  void warn(const std::string& about, const std::string& message) {
    std::lock_guard<std::mutex> guard(warning_);
    // Two messages that differ only in paths and numbers are the same message.
    std::string text, word;
    for (char letter : message + " ") {
      if (letter != ' ') {
        if (letter < '0' || letter > '9') word += letter;
        continue;
      }
      if (word.find('/') == std::string::npos) text += word + letter;
      word.clear();
    }
    for (const std::string& before : warned_) {
      if (before == text) return;
    }
    warned_.push_back(text);
    say(rank, about, message);
  }

  static void say(int rank, const std::string& about, const std::string& message) {
    say("[rewriter " + std::to_string(rank) + "] warning: " + about + ": " + message + "\n");
  }

  static void say(const std::string& line) {
    std::fwrite(line.data(), 1, line.size(), stderr);
  }

  // The beginning of a line: `[rewriter 0] forward call 3`. A wrapper that was instrumented alone
  // has no label, and its first call no number.
  std::string start(int64_t call) const {
    std::string text = "[rewriter " + std::to_string(rank) + "]", label = label_;
    if (!label.empty()) text += " " + label;
    if (label.empty() && !call) return text;
    return text + " call " + std::to_string(call);
  }
  std::string start(const Event& event) const { return start(event.call); }

  // `[rewriter 0] #12 KERNEL`, for a line about a launch as a whole.
  std::string about(const Event& event) const {
    std::string text = start(event) + " " + event.about();
    if (!event.launch) return text;
    if (event.iteration) text += "." + std::to_string(event.iteration);
    return text + " " + event.launch->row->kernel;
  }

 private:
  static bool read_quiet() {
    const char* quiet = std::getenv("REWRITER_QUIET");
    return quiet && *quiet && std::strcmp(quiet, "0");
  }

  const char* const label_;
  std::mutex warning_;
  std::vector<std::string> warned_;
};

}  // namespace inductor_rewriter
}  // namespace

// Which calls stay in a dump: rewriter/runtime/rotation.py.
namespace {
namespace inductor_rewriter {

[[noreturn]] inline void fail(const char* what, const std::string& path) {
  throw std::runtime_error(std::string("cannot ") + what + " " + path + ": " + strerror(errno));
}

// The calls of one wrapper that are over. The last `keep` calls stay, 0 for all, up to `most` bytes, 0 for no
// limit. Saved tensors count if calls are removed; otherwise they have their own limit.
class KeptCalls {
 public:
  KeptCalls(std::string root, std::size_t keep, uint64_t most)
      : keep(keep), most(most), root_(std::move(root)) {}

  const std::size_t keep;
  const uint64_t most;

  uint64_t used() {
    std::lock_guard<std::mutex> guard(lock_);
    return used_;
  }

  // Makes the file that readers lock, before there is a call to read.
  void admit_readers() {
    if (!keep || has_readers_.exchange(true)) return;
    const int file = open((root_ + "/.readers").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file >= 0) close(file);
  }

  // Adds the directory of a call that is over.
  void add(const std::string& path) {
    if (!keep && !most) return;
    std::lock_guard<std::mutex> guard(lock_);
    Call call;
    call.path = path;
    const uint64_t before = used_;
    if (most) {
      measure(path, call);
      used_ += call.rows;
    }
    expected_ = used_ - before;
    if (!keep) return;
    calls_.push_back(std::move(call));
    if (calls_.size() <= keep) return;
    const Unread unread(*this);
    while (unread.may_remove && calls_.size() > keep) drop();
  }

  // Whether there is room for another call. If the dump rotates, old calls are removed for it.
  bool has_room() {
    if (!most) return true;
    std::lock_guard<std::mutex> guard(lock_);
    if (!keep) return used_ < most;
    while (!calls_.empty() && used_ + expected_ > most) drop();
    return true;
  }

 private:
  // The bytes of a call's rows, and its files, which it may share with other calls.
  struct Call {
    std::string path;
    uint64_t rows = 0;
    std::vector<std::pair<uint64_t, uint64_t>> files;
  };
  static constexpr int64_t patience = 30;  // seconds that a reader may hold up removing calls

  template <class Act>
  static void each(const std::string& path, Act&& act) {
    DIR* const folder = opendir(path.c_str());
    if (!folder) return;
    while (dirent* entry = readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") act(name);
    }
    closedir(folder);
  }

  void measure(const std::string& path, Call& call) {
    each(path, [&](const std::string& name) {
      struct stat about;
      if (lstat((path + "/" + name).c_str(), &about)) return;
      const uint64_t size = uint64_t(about.st_size);
      if (S_ISDIR(about.st_mode)) {
        if (keep) measure(path + "/" + name, call);
      } else if (name != "launches.json" && (name.size() < 3 || name.compare(name.size() - 3, 3, ".pt"))) {
        call.rows += size;
      } else {
        call.files.emplace_back(about.st_ino, size);
        if (++names_[about.st_ino] == 1) used_ += size;
      }
    });
  }

  // Removes the oldest call.
  void drop() {
    const Call call = std::move(calls_.front());
    calls_.pop_front();
    used_ -= call.rows;
    for (const auto& [number, size] : call.files) {
      if (--names_[number]) continue;
      names_.erase(number);
      used_ -= size;
    }
    const std::size_t end = call.path.rfind('/');
    const std::string ranked = call.path.substr(0, end);
    clear(ranked);
    const std::string gone = ranked + "/.gone." + std::to_string(getpid()) + "." + call.path.substr(end + 1);
    // The user may have moved it away, to keep it.
    if (!std::rename(call.path.c_str(), gone.c_str())) remove_tree(gone);
    else if (errno != ENOENT) fail("remove", call.path);
  }

  // Removes what a process left behind that was killed while it removed a call.
  void clear(const std::string& ranked) {
    if (is_clear_) return;
    is_clear_ = true;
    each(ranked, [&](const std::string& name) {
      if (!name.compare(0, 6, ".gone.")) remove_tree(ranked + "/" + name);
    });
  }

  static void remove_tree(const std::string& path) {
    if (!unlink(path.c_str())) return;
    // unlink() fails on a directory but removes a link to one, so this never leaves the dump.
    each(path, [&](const std::string& name) { remove_tree(path + "/" + name); });
    if (rmdir(path.c_str()) && errno != ENOENT) fail("remove", path);
  }

  // Keeps others from starting to read the dump. Calls must not be removed while a reader has the dump open,
  // unless it has had it for long. Readers lock the whole file; each process that removes calls locks one
  // byte.
  struct Unread {
    explicit Unread(KeptCalls& kept) {
      const std::string path = kept.root_ + "/.readers";
      file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      if (file < 0) return;
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      const uint64_t own = reinterpret_cast<uintptr_t>(&kept) * 0x9e3779b97f4a7c15u + uint64_t(getpid());
      lock.l_start = static_cast<off_t>(1 + (own >> 24));
      lock.l_len = 1;
      constexpr int set_lock = 37;  // F_OFD_SETLK, since Linux 3.15
      const bool is_read = fcntl(file, set_lock, &lock) && (errno == EAGAIN || errno == EACCES);
      timespec now;
      clock_gettime(CLOCK_MONOTONIC, &now);
      if (!is_read || !kept.since_) kept.since_ = is_read ? int64_t{now.tv_sec} + 1 : 0;
      may_remove = !is_read || int64_t{now.tv_sec} + 1 - kept.since_ >= patience;
    }
    Unread(const Unread&) = delete;
    Unread& operator=(const Unread&) = delete;
    ~Unread() {
      if (file >= 0) close(file);
    }
    int file = -1;
    bool may_remove = true;
  };

  const std::string root_;
  std::mutex lock_;
  std::deque<Call> calls_;
  std::map<uint64_t, uint64_t> names_;  // of files that calls may share
  uint64_t used_ = 0, expected_ = 0;
  int64_t since_ = 0;  // when a reader was first seen, plus 1
  bool is_clear_ = false;
  std::atomic<bool> has_readers_{false};
};

}  // namespace inductor_rewriter
}  // namespace

// Sizes as `--max-bytes` takes them: rewriter/runtime/sizes.py.
namespace {
namespace inductor_rewriter {

constexpr uint64_t most_bytes = ~uint64_t{0} >> 1;  // for a file

// Parses a size such as `500M`, `10GB` or `2GiB`.
inline uint64_t parse_bytes(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string number = text.substr(0, digits);
  std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  if (!unit.empty() && unit.back() == 'B') unit.pop_back();
  const bool binary = unit.size() == 2 && unit[1] == 'i';
  const std::string powers = " KMGT";
  const std::size_t power = unit.empty() ? 0 : powers.find(unit[0], 1);
  const bool sound = !number.empty() && number.size() <= 15 && std::atoll(number.c_str()) > 0 &&
      power != std::string::npos && unit.size() <= 1 + std::size_t(binary);
  if (!sound) throw std::runtime_error("'" + text + "' is no size, such as 500M or 10G");
  uint64_t size = static_cast<uint64_t>(std::atoll(number.c_str()));
  for (std::size_t i = 0; i < power; ++i) {
    const uint64_t factor = binary ? 1024 : 1000;
    if (size > most_bytes / factor) return most_bytes;
    size *= factor;
  }
  return size;
}

// The size limit of a dump in bytes; 0 for none.
inline uint64_t wanted_bytes(const char* from_table) {
  const char* wanted = std::getenv("REWRITER_MAX_BYTES");
  if (!wanted || !*wanted) return from_table && *from_table ? parse_bytes(from_table) : 0;
  try {
    return parse_bytes(wanted);
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("REWRITER_MAX_BYTES: ") + error.what());
  }
}

// How many calls, the last ones, a dump keeps; 0 for all.
inline std::size_t wanted_calls(int from_table) {
  const char* wanted = std::getenv("REWRITER_KEEP");
  if (!wanted || !*wanted) return static_cast<std::size_t>(from_table);
  const std::string text = wanted;
  const bool sound = text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  const int number = sound ? std::atoi(wanted) : 0;
  if (!number) {
    throw std::runtime_error("REWRITER_KEEP: '" + text + "' is no number of calls, such as 5");
  }
  return static_cast<std::size_t>(number);
}

}  // namespace inductor_rewriter
}  // namespace

// Writes a dump: a manifest, and per rank and call the events; the directory is that of
// `rewriter/runtime/dump.py`.
namespace {
namespace inductor_rewriter {

inline std::string host_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

// A file that gets its name only when it is completely written.
class WholeFile {
 public:
  explicit WholeFile(const std::string& path) : path_(path) {
    std::size_t folder = path.rfind('/') + 1;
    // The file's own name may have the maximal length, so do not add to it.
    static std::atomic<unsigned> number{0};
    // Hosts that share a directory may have the same process IDs.
    temporary_ = path.substr(0, folder) + ".writing." + host_name() + "." +
        std::to_string(getpid()) + "." + std::to_string(number++) + "." + std::to_string(reinterpret_cast<uintptr_t>(&number));
    file_ = std::fopen(temporary_.c_str(), "wb");
    if (!file_) fail("write", path_);
  }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile() {
    if (file_) std::fclose(file_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }
  void write(const void* data, std::size_t size) {
    if (size && std::fwrite(data, 1, size, file_) != size) fail("write", path_);
  }
  void write(const std::string& text) { write(text.data(), text.size()); }
  void close() {
    FILE* file = file_;
    file_ = nullptr;
    if (std::fclose(file)) fail("write", path_);
    if (std::rename(temporary_.c_str(), path_.c_str())) fail("write", path_);
    temporary_.clear();
  }

 private:
  std::string path_, temporary_;
  FILE* file_ = nullptr;
};

inline void write_whole(const std::string& path, const std::string& text) {
  WholeFile file(path);
  file.write(text);
  file.close();
}

inline void make_directories(const std::string& path) {
  for (std::size_t end = 1; end <= path.size(); ++end) {
    if (end < path.size() && path[end] != '/') continue;
    std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0777) && errno != EEXIST) {
      const int problem = errno;
      struct stat status;  // a read-only file system refuses even a directory that exists
      if (!stat(part.c_str(), &status)) continue;
      errno = problem;
      fail("make", part);
    }
  }
}

// The name of the current CUDA device, if there is one.
inline std::string device_name() {
  char name[256] = "cpu";
  if (void* cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY)) {
    int device = 0;
    auto current = reinterpret_cast<int (*)(int*)>(dlsym(cuda, "cuCtxGetDevice"));
    auto get = reinterpret_cast<int (*)(char*, int, int)>(dlsym(cuda, "cuDeviceGetName"));
    if (!current || !get || current(&device) || get(name, sizeof name, device)) {
      std::strcpy(name, "cpu");
    }
    dlclose(cuda);
  }
  return name;
}

// REWRITER_COMMAND, or the command line of this process.
inline std::string command_line() {
  if (const char* given = std::getenv("REWRITER_COMMAND")) return given;
  std::string text;
  if (FILE* file = std::fopen("/proc/self/cmdline", "rb")) {
    for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c ? c : ' ');
    std::fclose(file);
  }
  if (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

inline void write_labels(Json& json, const char* phase, const Labels& labels) {
  json.key(phase).open('[');
  for (const Label& label : labels) {
    json.open('[').string(label.role).string(label.name);
    if (label.expr != label.name) json.string(label.expr);
    json.close(']');
  }
  json.close(']');
}

inline void write_buffers(Json& json, const std::string& joined) {
  json.key("buffers").open('{');
  for (std::size_t start = 0, end; start < joined.size(); start = end + 2) {
    end = std::min(joined.find("; ", start), joined.size());
    std::size_t space = joined.find(' ', start);
    json.key(joined.substr(start, space - start).c_str());
    json.string(joined.substr(space + 1, end - space - 1));
  }
  json.close('}');
}

inline void write_outputs(Json& json, const std::string& joined) {
  json.key("outputs").open('{');
  for (std::size_t start = 0, end; start < joined.size(); start = end + 2) {
    end = std::min(joined.find("; ", start), joined.size());
    std::size_t space = std::min(joined.find(' ', start), end);
    json.key(joined.substr(start, space - start).c_str()).open('[');
    while (space < end) {
      std::size_t name = space + 1;
      space = std::min(joined.find(' ', name), end);
      std::string variable = joined.substr(name, space - name);
      json.string(variable == "-" ? "" : variable);
    }
    json.close(']');
  }
  json.close('}');
}

inline void write_launch(Json& json, const ProbedLaunch& launch) {
  const Row& row = *launch.row;
  json.open('{').key("launch").number(static_cast<int64_t>(row.launch));
  json.key("kernel").string(row.kernel).key("kind").string(row.kind);
  json.key("scope").string(row.scope).key("line").number(static_cast<int64_t>(row.line));
  json.key("source_nodes").list(row.source_nodes, ", ");
  json.key("origins").list(row.origins, ", ");
  json.key("repeats").put(row.repeats ? "true" : "false");
  if (row.buffers) write_buffers(json, row.buffers);
  if (row.before) write_labels(json, "before", launch.before);
  if (row.after) write_labels(json, "after", launch.after);
  if (row.reads) write_labels(json, "reads", read_labels(row.reads));
  json.close('}');
}

// Receives the rows of a call that has no directory; destroyed when the call is over. flight_calls.h, which
// only the probe `record` includes, makes them.
struct RecordedCall {
  virtual ~RecordedCall() = default;
  // Called with a measured value before its row is written.
  virtual void see(const Event& event, const Item& item, int place, bool is_allowed) = 0;
  virtual void rows(const char* data, std::size_t size) = 0;
  // The thread of the call begins or ends a launch.
  virtual void began(int launch, int iteration) = 0;
  virtual void ended(int launch, int iteration) = 0;
};
struct RecordedCalls {
  virtual ~RecordedCalls() = default;
  virtual std::unique_ptr<RecordedCall> start(int64_t call) = 0;
};

// The directory of one call. `begin` makes its files, later, so that the model need not wait. Rows are
// collected until `flush`.
class CallDirectory {
 public:
  CallDirectory(const std::string& path, std::unique_ptr<RecordedCall> instead)
      : path(path), recorded(std::move(instead)) {}
  CallDirectory(const std::string& path, std::function<void()> make_files)
      : path(path), make_files_(std::move(make_files)) {}
  CallDirectory(const CallDirectory&) = delete;
  CallDirectory& operator=(const CallDirectory&) = delete;
  ~CallDirectory() {
    if (events_ >= 0) ::close(events_);
  }

  bool has_begun() const { return !make_files_; }

  // Makes the files, if that was not tried before. Throws if it fails.
  void begin() {
    if (!make_files_) return;
    const auto make_files = std::exchange(make_files_, nullptr);
    make_files();
    const std::string name = path + "/events.jsonl";
    events_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (events_ < 0) fail("write", name);
  }

  void write(const std::string& lines) {
    rows_ += lines;
    if (rows_.size() > most) flush();
  }

  // Writes all rows since the last time, or none of them.
  void flush() {
    if (recorded) {
      recorded->rows(rows_.data(), rows_.size());
      rows_.clear();
      return;
    }
    begin();
    if (events_ < 0) return rows_.clear();  // `begin` has reported the reason
    std::size_t done = 0;
    const int problem = write_all(events_, rows_.data(), rows_.size(), done);
    rows_.clear();
    if (problem) {
      if (done && !ftruncate(events_, size_)) lseek(events_, size_, SEEK_SET);
      errno = problem;
      fail("write", path + "/events.jsonl");
    }
    size_ += static_cast<off_t>(done);
  }

  const std::string path;
  const std::unique_ptr<RecordedCall> recorded;  // receives the rows instead of a file

 private:
  static constexpr std::size_t most = 1 << 16;

  std::function<void()> make_files_;  // empty once it was called
  int events_ = -1;
  std::string rows_;
  off_t size_ = 0;  // of the complete rows
};

// The dump of one wrapper. Makes no file before the first call starts.
class DumpWriter {
 public:
  DumpWriter(
      const Options& options, std::string root, int rank, const Fixed<ProbedLaunch>& launches)
      : options_(options), root_(absolute(std::move(root))), rank_(rank),
        about_(describe(options, launches)), kernels_(kernels_of(launches)),
        kept_(root_, wanted_calls(options.last), wanted_bytes(options.max_bytes)) {}

  // Directories have the numbers of the calls, or the next free ones. Null if the dump has reached its size
  // limit.
  std::unique_ptr<CallDirectory> start(int64_t call) {
    if (!kept_.has_room()) return nullptr;
    if (make_recorded_) {
      {
        const std::lock_guard<std::mutex> guard(writing_);
        if (!recorded_) start_recording();
      }
      const std::string name = root_ + "/rank" + std::to_string(rank_) + "/run" + std::to_string(call);
      return std::make_unique<CallDirectory>(name, recorded_->start(call));
    }
    const std::string path = make_directory(call);
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const auto thread = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pthread_self()));
    return std::make_unique<CallDirectory>(path, [this, path, call, now, thread] {
      Json json(true);
      open_run(json);
      json.key("call").number(call).key("pid").number(static_cast<int64_t>(getpid()));
      json.key("thread").number(thread);
      json.key("started").number(static_cast<double>(now.tv_sec) + 1e-9 * double(now.tv_nsec));
      json.close('}');
      write_table(path);
      write_whole(path + "/run.json", json.text + "\n");
    });
  }

  // Sends calls to what `make` returns. Its arguments: the root, the rank, the text of the table, the
  // options, and the names of launches, a line `index name` each.
  using MakeRecorded = std::unique_ptr<RecordedCalls> (*)(
      const std::string&, int, const std::string&, const Options&, const std::string&);
  void record(MakeRecorded make) { make_recorded_ = make; }

  // Ends a call. With --keep, only the last calls stay in the dump; a process that is killed leaves those,
  // and the calls that were running.
  void finish(std::unique_ptr<CallDirectory> run) {
    const std::string path = run->path;
    run->begin();
    run.reset();
    kept_.add(path);
  }

  KeptCalls& kept() { return kept_; }

 private:
  static std::string kernels_of(const Fixed<ProbedLaunch>& launches) {
    std::string text;
    for (const ProbedLaunch& launch : launches) {
      text += std::to_string(launch.row->launch) + " " + launch.row->kernel + "\n";
    }
    return text;
  }

  // If this fails, such as on a full disk, it is not tried again for each call.
  void start_recording() {
    if (!problem_.empty()) throw std::runtime_error(problem_);
    try {
      make_directories(root_);
      write_manifest();
      Json run(true);
      open_run(run);
      const std::string table = "{\"run\": " + run.close('}').text + ", \"table\": " + about_ + "}\n";
      recorded_ = make_recorded_(root_, rank_, table, options_, kernels_);
    } catch (const std::exception& error) {
      problem_ = std::string(error.what()) + "; nothing is recorded, and the model runs on";
      throw std::runtime_error(problem_);
    }
  }

  // The beginning of every run.json.
  void open_run(Json& json) const {
    json.open('{').key("format").string("rewriter.run").key("version").number(int64_t{1});
    json.key("artifact").string(options_.artifact).key("sha256").string(options_.sha256);
    json.key("label").string(options_.label).key("host").string(host_name());
  }

  static std::string absolute(std::string path) {
    if (path[0] == '/') return path;
    std::unique_ptr<char, void (*)(void*)> here(getcwd(nullptr, 0), std::free);
    return here ? std::string(here.get()) + "/" + path : path;
  }

  // The table may be long, and is the same in all calls, so each call gets a hard link to the file of the
  // call before; earlier ones may be removed.
  void write_table(const std::string& path) {
    const std::string file = path + "/launches.json";
    const std::lock_guard<std::mutex> guard(writing_);
    // Linking fails if the file is gone, has too many links, or the file system has no links.
    if (table_.empty() || ::link(table_.c_str(), file.c_str())) write_whole(file, about_);
    table_ = file;
  }

  // The text of the table's file.
  static std::string describe(const Options& options, const Fixed<ProbedLaunch>& launches) {
    Json json(true);
    json.open('{').key("format").string("rewriter.run-launches").key("version").number(int64_t{1});
    write_outputs(json, options.outputs);
    json.key("launches").open('[');
    for (const ProbedLaunch& launch : launches) write_launch(json, launch);
    json.close(']').close('}');
    return json.text + "\n";
  }

  // Other wrappers and processes make directories here too: the first one to make it owns it.
  std::string make_directory(int64_t call) {
    const std::string ranked = root_ + "/rank" + std::to_string(rank_);
    for (int64_t number = std::max<int64_t>(next_, call);;) {
      const std::string path = ranked + "/run" + std::to_string(number);
      const bool is_made = has_manifest_ && !mkdir(path.c_str(), 0777);
      if (is_made) {
        next_ = number + 1;
        return path;
      }
      if (has_manifest_ && errno == EEXIST) {
        ++number;
      } else if (!has_manifest_ || errno == ENOENT) {
        // This is the first call, or the dump was removed.
        make_directories(ranked);
        write_manifest();
        kept_.admit_readers();
        has_manifest_ = true;
      } else {
        fail("make", path);
      }
    }
  }

  void write_manifest() {
    std::string path = root_ + "/manifest.json";
    if (!access(path.c_str(), F_OK)) return;
    Json json(true);
    json.open('{').key("format").string("rewriter.dump").key("version").number(int64_t{1});
    json.key("artifact").string(options_.artifact).key("sha256").string(options_.sha256);
    json.key("rewriter").string(options_.version).key("probes").list(options_.probes, ",");
    if (options_.allow && *options_.allow) json.key("allow").list(options_.allow, "; ");
    json.key("fingerprint").open('{').key("name").string("nh128");
    json.key("version").number(int64_t{1}).close('}');
    json.key("torch").string(TORCH_VERSION).key("device").string(device_name());
    json.key("host").string(host_name());
    if (const int size = read_size()) json.key("ranks").number(static_cast<int64_t>(size));
    json.key("command").string(command_line()).close('}');
    write_whole(path, json.text + "\n");
  }

  const Options& options_;
  MakeRecorded make_recorded_ = nullptr;
  std::unique_ptr<RecordedCalls> recorded_;
  std::string problem_;  // why recording failed
  const std::string root_;
  const int rank_;
  const std::string about_, kernels_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> has_manifest_{false};
  KeptCalls kept_;
  std::mutex writing_;
  std::string table_;  // of the last call
};

}  // namespace inductor_rewriter
}  // namespace

// A queue of jobs that write in order, some of them not before a device has finished; one thread runs it.
namespace {
namespace inductor_rewriter {

// Something to be written when it is known. Neither function throws.
class Job {
 public:
  virtual ~Job() = default;
  // Whether `emit` can be called. It is asked again and again, so it has to be cheap.
  virtual bool is_ready() { return true; }
  // Writes it, or collects it for `Output::flush`. The queue does not touch the job afterwards: it may
  // free itself here, or go back to a pool.
  virtual void emit() = 0;

  Job* next = nullptr;  // in the queue
};

// The output that jobs write to.
class Output {
 public:
  virtual ~Output() = default;
  // Passes the collected output to the operating system. Called when the queue is empty.
  virtual void flush() = 0;
  // The library is unloaded or the process exits: last chance to put jobs.
  virtual void close() {}

  std::atomic<int> waiting{0};  // how many threads wait until the queue is empty
};

class Locked {
 public:
  explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t& mutex_;
};

// Emits jobs in the order in which they are put. If the queue is empty and the job is ready, the caller
// of `put` emits it at once (`put_behind`: never). Otherwise a thread does, which is started by the first
// such job. It polls whether the next job is ready, so that putting a job needs no system call, and goes
// to sleep when no job came for a while.
//
// `Writers` joins the thread before the library is unloaded, and before the process exits. A fork has no
// such thread, and must not call anything here.
class Writer {
 public:
  explicit Writer(Output& output) : output_(output) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { stop(); }

  static constexpr std::size_t most = 4096;  // jobs in the queue; `put` waits if it is full

  // Whether all jobs have been emitted.
  bool is_idle() const { return !queued_.load(std::memory_order_acquire); }

  // Takes a job. `at_once`: returns when it has been emitted.
  void put(Job* job, bool at_once = false) {
    if (is_idle() && (at_once || job->is_ready() || !start())) {
      Locked guard(emitting_);
      emitter_ = pthread_self();
      is_emitting_ = true;
      wait_for(*job, 4096);
      job->emit();
      output_.flush();
      is_emitting_ = false;
      return;
    }
    add(job);
    if (at_once) drain();
  }

  // Takes a job that is slow to write: the thread emits it, unless no thread can be started.
  void put_behind(Job* job) {
    if (start()) add(job);
    else put(job);
  }

  // Waits until all jobs have been emitted and flushed.
  void drain() {
    ++output_.waiting;
    for (long us = 0; !is_idle(); us = us < 100 ? us + 10 : us) pause(us);
    --output_.waiting;
  }

  // Whether the calling thread is inside `emit`.
  bool is_emitting() const {
    return is_emitting_.load(std::memory_order_acquire) &&
        pthread_equal(emitter_.load(std::memory_order_relaxed), pthread_self());
  }

  void close() { output_.close(); }

  // Emits all jobs and ends the thread. Another `put` starts it again.
  void stop() {
    if (!is_started_ || pid_ != getpid()) return;
    ++output_.waiting;
    {
      Locked guard(queue_);
      stopping_ = true;
    }
    pthread_cond_signal(&came_);
    pthread_join(thread_, nullptr);
    stopping_ = is_started_ = false;
    --output_.waiting;
  }

 private:
  void add(Job* job) {
    while (queued_.load(std::memory_order_relaxed) >= most) pause(50);
    job->next = nullptr;
    bool wake = false;
    {
      Locked guard(queue_);
      (last_ ? last_->next : first_) = job;
      last_ = job;
      ++queued_;
      wake = asleep_;
    }
    if (wake) pthread_cond_signal(&came_);
  }

  static void pause(long us) {
    timespec time = {0, us * 1000};
    nanosleep(&time, nullptr);
  }

  // Polls: `spins` times without a pause, then every 50 us.
  static void wait_for(Job& job, int spins) {
    while (!job.is_ready()) {
      if (spins-- <= 0) pause(50);
    }
  }

  // Starts the thread. False if the system has no more threads: then callers of `put` emit their jobs.
  bool start() {
    Locked guard(queue_);
    if (is_started_) return true;
    pid_ = getpid();
    // The program's own threads take its signals.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_started_ = !pthread_create(&thread_, nullptr, &Writer::run, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return is_started_;
  }

  static void* run(void* self) {
    static_cast<Writer*>(self)->work();
    return nullptr;
  }

  void work() {
    std::size_t unflushed = 0;
    while (Job* job = take()) {
      Locked guard(emitting_);
      emitter_ = pthread_self();
      is_emitting_ = true;
      if (!job->is_ready() && unflushed) {
        output_.flush();
        unflushed = 0;
      }
      wait_for(*job, 0);
      job->emit();
      // Flushed before it counts as done: `drain` waits for that.
      if (++unflushed >= 256 || queued_.load(std::memory_order_acquire) == 1) {
        output_.flush();
        unflushed = 0;
      }
      is_emitting_ = false;
      --queued_;
    }
  }

  // Waits for the next job. Null if the thread has to end.
  Job* take() {
    for (int idle = 0;; ++idle) {
      {
        Locked guard(queue_);
        if (!first_ && !stopping_ && idle > 200) {
          asleep_ = true;
          pthread_cond_wait(&came_, &queue_);
          asleep_ = false;
          idle = 0;
        }
        if (Job* job = first_) {
          first_ = job->next;
          if (!first_) last_ = nullptr;
          return job;
        }
        if (stopping_) return nullptr;
      }
      pause(50);
    }
  }

  Output& output_;
  pthread_mutex_t queue_ = PTHREAD_MUTEX_INITIALIZER, emitting_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t came_ = PTHREAD_COND_INITIALIZER;
  Job *first_ = nullptr, *last_ = nullptr;
  std::atomic<std::size_t> queued_{0};  // jobs that were not emitted yet
  std::atomic<pthread_t> emitter_{};
  std::atomic<bool> is_emitting_{false};
  bool asleep_ = false, stopping_ = false, is_started_ = false;
  pid_t pid_ = 0;
  pthread_t thread_{};
};

// Stops all writers when the library is unloaded, or the process exits.
class Writers {
 public:
  static void add(Writer& writer) {
    // Constructed with the first writer, so that it is destroyed before what existed by then, such as
    // CUDA's own state.
    static Writers all;
    Locked guard(mutex());
    writers().push_back(&writer);
  }

  // The caller stops and destroys the writer.
  static void remove(Writer& writer) {
    Locked guard(mutex());
    auto& all = writers();
    all.erase(std::remove(all.begin(), all.end(), &writer), all.end());
  }

  Writers() = default;
  Writers(const Writers&) = delete;
  Writers& operator=(const Writers&) = delete;
  ~Writers() {
    Locked guard(mutex());
    for (Writer* writer : writers()) {
      writer->close();
      writer->stop();
    }
  }

 private:
  static pthread_mutex_t& mutex() {
    static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
    return adding;
  }
  // Never destroyed: threads may still run while the process exits.
  static std::vector<Writer*>& writers() {
    static std::vector<Writer*>& all = *new std::vector<Writer*>;
    return all;
  }
};

}  // namespace inductor_rewriter
}  // namespace

// The interface of probes: `Probe` in rewriter/runtime/probes/__init__.py.
namespace {
namespace inductor_rewriter {

class Probe;
class Recorder;
struct RunningCall;

using Probes = std::vector<Probe*>;

// What is remembered about the values of one moment, so that later events cost less.
struct Plans {
  virtual ~Plans() = default;
};

// A moment: one phase of a launch, or the inputs of a call, with what is known before any event.
struct Moment {
  const ProbedLaunch* launch = nullptr;
  const char* phase = "inputs";
  const Labels* labels = nullptr;
  const Probes* probes = nullptr;
  std::string line;  // `#12 before KERNEL`
  std::string row;   // for events without values
  std::atomic<Plans*> plans{nullptr};  // made by the first thread that needs them

  ~Moment() { delete plans.load(std::memory_order_relaxed); }
};

// An event that waits to be emitted. Its measuring is issued, and what it does not need is
// released.
class EventJob : public Job {
 public:
  Event event;
  const Moment* moment = nullptr;
  RunningCall* call = nullptr;
  bool has_values = false;

  void emit() override;
  // Stores what was measured in the event.
  virtual void complete() {}
  // The job is not used any more.
  virtual void release() { delete this; }
};

// Reads and measures values. Implemented in values.h, which only probes that read values include.
struct Values {
  // Makes an event of all values that can be read; throws if none can.
  virtual EventJob* read(
      Moment& moment, const Contents& contents, RunningCall& call, Recorder& recorder) const = 0;
  // Measures the values of an event that `read` made, or issues it.
  virtual void measure(EventJob& job, bool heads, Recorder& recorder) const = 0;
  // Call before the memory of values that wait to be measured may be written or freed.
  virtual void settle() const = 0;
  // Finishes all measuring that was issued, if nothing follows for now.
  virtual void finish() const = 0;
  virtual void describe(Json& json, const Item& item) const = 0;
  // Whether a CUDA graph is being captured, so that waiting is not allowed.
  virtual bool is_in_capture() const = 0;
  // Waits for the replays that were issued.
  virtual void wait_for_replays() const = 0;
  // The number of replays that measured an event of a graph.
  virtual uint64_t replays(const EventJob& captured) const = 0;
  // A copy of the event with what the last replay measured, if there was one.
  virtual EventJob* replayed(const EventJob& captured) const = 0;
};

// Acts on memory events, for all memory probes. Implemented in memory/watch.h, which only these
// include.
struct MemoryWatch {
  virtual ~MemoryWatch() = default;
  // Returns a tensor that replaces one that was allocated; null if that one stays.
  virtual AtenTensorHandle allocated(RunningCall& call, int event, AtenTensorHandle made) = 0;
  // The wrapper no longer needs the value of a buffer; if `is_reused`, it goes on using the memory.
  virtual void gone(RunningCall& call, int event, AtenTensorHandle buffer, bool is_reused) = 0;
  virtual void checked(RunningCall& call, int launch) = 0;
  // The call is over.
  virtual void finish(RunningCall& call) = 0;
};

// One probe of one wrapper, for all threads. State of a single call goes into `call.state`. All
// methods except `measured` are called by the thread of the model.
class Probe {
 public:
  // Declared by the probe's class in Python; set by `make_probe`.
  const char* when = "both";
  bool spans = false;
  bool of_results = false;
  const Values* values = nullptr;  // null if it does not read values
  bool measures = false;
  bool saves = false;
  bool marks = false;
  std::unique_ptr<MemoryWatch> (*watch)(const Options&, Recorder&) = nullptr;  // of memory probes

  // If it `marks`: makes the probe that acts before launches for it, and what receives its calls.
  std::unique_ptr<Probe> (*make_mark)() = nullptr;
  DumpWriter::MakeRecorded make_recorded = nullptr;

  virtual ~Probe() = default;
  virtual void at(Event&, RunningCall&, Recorder&) {}
  // Called once the event is measured, maybe later and by another thread. There are no handles
  // then.
  virtual void measured(Event&, RunningCall&, Recorder&) {}
  // Gets the inputs of a call, before the wrapper looks at them, if `when` is "inputs".
  virtual void given(Event&, const Contents&, RunningCall&, Recorder&) {}
  // Called before values are read: sets `event.error` if the device is faulty.
  virtual void check(Event&, RunningCall&, Recorder&) {}
  // `start` is the last call before the launch is issued, `stop` the first one after it.
  virtual void start(Event&, RunningCall&, Recorder&) {}
  virtual void stop(Event&, RunningCall&, Recorder&) {}
};

// Generated by rewriter/instrumentation/bundle.py for the selected probes, with what their classes
// in Python declare. Null for any other name.
inline std::unique_ptr<Probe> make_probe(const std::string& name);

}  // namespace inductor_rewriter
}  // namespace

// Events as rows of a dump: JSON, one line each.
namespace {
namespace inductor_rewriter {

// The beginning of a row.
inline void open_row(Json& json, const Event& event) {
  json.open('{');
  if (event.launch) {
    json.key("launch").number(static_cast<int64_t>(event.launch->row->launch));
  }
  json.key("phase").string(event.phase);
  if (event.launch) {
    json.key("kernel").string(event.launch->row->kernel);
    if (event.launch->row->repeats || event.iteration) {
      json.key("iteration").number(static_cast<int64_t>(event.iteration));
    }
  }
}

// One line per value, or one line if no value was read.
inline std::string event_rows(const Event& event, const Values* reader) {
  constexpr std::size_t usual = 400;  // bytes of a row
  Json json(false);
  json.text.reserve(usual * std::max<std::size_t>(event.items.size(), 1));
  for (std::size_t i = 0; i == 0 || i < event.items.size(); ++i) {
    open_row(json, event);
    if (reader && i < event.items.size()) {
      reader->describe(json, event.items[i]);
      for (const auto& [name, problem] : event.unexpected) {
        if (name == event.items[i].label->name) json.key("unexpected").string(problem);
      }
    }
    if (event.captured) json.key("captured").put("true");
    json.close('}').text += '\n';
  }
  return std::move(json.text);
}

}  // namespace inductor_rewriter
}  // namespace

// A call of a wrapper, while it runs and until it is written: where it dumps, and what waits for
// its end.
namespace {
namespace inductor_rewriter {

inline int64_t clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

struct Session;
struct Capture;

struct RunningCall {
  RunningCall(Recorder& from, int64_t call) : recorder(from), number(call) {}
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  void catch_up() {
    for (auto& act : later) act();
    later.clear();
  }

  // Adds a separate row about an event to the dump, if there is one; `add` writes its fields.
  template <class Add>
  void note(const Event& event, Add&& add) {
    if (!directory) return;
    Json json(false);
    open_row(json, event);
    add(json);
    write_row(json.close('}').text + "\n");
  }

  // The state of a probe for this call.
  template <class State>
  State& state(const Probe* of) {
    std::lock_guard<std::mutex> guard(keeping_);
    for (auto& [probe, kept] : states_) {
      if (probe == of) return *static_cast<State*>(kept.get());
    }
    states_.emplace_back(of, std::make_shared<State>());
    return *static_cast<State*>(states_.back().second.get());
  }

  // Writes rows into the dump, after all earlier ones.
  void write_row(std::string&& lines);

  Recorder& recorder;
  const int64_t number;  // number of the call in this process, from 0
  std::string start;     // the beginning of its printed lines
  std::unique_ptr<CallDirectory> directory;
  std::vector<int> before, after;  // how often each phase of each launch was reached
  Contents contents;  // memory for the current line, and the views in it
  Contents kept;
  std::vector<std::function<void()>> later;  // run at the end of the call; do not throw
  int64_t started = clock_ns();
  bool named = false;  // whether a name was printed
  bool is_behind = false;  // whether another thread writes it
  Session* session = nullptr;  // set if probes are dormant
  Capture* capture = nullptr;  // set if it is captured into a CUDA graph
  // The last launch whose values were shown before it, and their facts by name.
  const ProbedLaunch* shown_launch = nullptr;
  int shown_iteration = 0;
  std::vector<std::pair<std::string, std::string>> shown;

 private:
  std::mutex keeping_;
  std::vector<std::pair<const Probe*, std::shared_ptr<void>>> states_;
};

}  // namespace inductor_rewriter
}  // namespace

// Receives the calls that an instrumented wrapper makes, and passes them to the probes.
namespace {
namespace inductor_rewriter {

// Detects a fork: a forked process sees this page zeroed.
class ForkMark {
 public:
  ForkMark() {
    constexpr int wipe_on_fork = 18;  // MADV_WIPEONFORK, since Linux 4.14
    void* page = mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (madvise(page, 1, wipe_on_fork)) munmap(page, 1);
    else *(page_ = static_cast<char*>(page)) = 1;
  }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;
  ~ForkMark() {
    if (page_) munmap(const_cast<char*>(page_), 1);
  }
  bool is_fork() const { return page_ ? !*page_ : getpid() != pid_; }

 private:
  const int pid_ = getpid();
  volatile char* page_ = nullptr;
};

// The events of one CUDA graph, in order. `call` is the call that captured it, until it is written. `seen`
// counts the replays that were reported.
struct Capture {
  RunningCall* call = nullptr;
  int64_t number = 0;
  std::vector<EventJob*> events;
  uint64_t seen = 0;
};

class Recorder : public Printer, private Output {
 public:
  // `directory` is where it dumps to; null means the one of the environment.
  explicit Recorder(const Wrapper& wrapper, const char* directory = nullptr, bool be_quiet = false)
      : Printer(wrapper.options, be_quiet), heads(wrapper.options.values),
        fingerprints(
            holds(wrapper.options.probes, "hash") || holds(wrapper.options.probes, "record")),
        options_(wrapper.options),
        inputs_(read_labels(wrapper.inputs)), launches_(wrapper.size),
        moments_(2 * wrapper.size + 1), wanted_(wanted_calls(wrapper.options)), writer_(*this) {
    bool on_device = false;
    choose_probes();
    for (std::size_t i = 0; i < wrapper.size; ++i) {
      const Row& row = wrapper.rows[i];
      launches_[i].row = &row;
      launches_[i].before = read_labels(row.before);
      launches_[i].after = read_labels(row.after);
      make_moment(moments_[2 * i], launches_[i], "before", launches_[i].before, before_);
      make_moment(moments_[2 * i + 1], launches_[i], "after", launches_[i].after, after_);
      if (places_.size() <= std::size_t(row.launch)) places_.resize(row.launch + 1, -1);
      places_[row.launch] = static_cast<int>(i);
      on_device = on_device || is_gpu_kind(row.kind);
      on_cpu_ = on_cpu_ || !std::strcmp(row.kind, "cpp");
    }
    on_cpu_ = on_cpu_ && !on_device;
    moments_[2 * wrapper.size].labels = &inputs_;
    moments_[2 * wrapper.size].probes = &readers_;
    const bool has_own = options_.dump && *options_.dump;
    const char* wanted =
        directory ? directory : has_own ? options_.dump : std::getenv("REWRITER_DUMP");
    bool dumping = wanted && *wanted;
    for (auto& probe : probes_) dumping = dumping || probe->saves;
    if (dumping) {
      const char* root = wanted && *wanted ? wanted : "rewriter_dump";
      dump_ = std::make_unique<DumpWriter>(options_, root, rank, launches_);
      for (auto& probe : probes_) {
        if (probe->marks) dump_->record(probe->make_recorded);
      }
    }
    Writers::add(writer_);
    // With these probes the user looks for a crash: everything is written before a launch runs.
    prompt = upstream || options_.stop || has("sync") || (has("names") && probes_.size() > 1);
  }

  // All calls are over and written.
  ~Recorder() override {
    Writers::remove(writer_);
    retire();
  }

  const bool heads;
  const bool fingerprints;  // whether fingerprints are shown
  bool prompt = false;      // whether an event is written before the line returns

  // Whether the wrapper has this probe.
  bool has(const char* probe) const { return holds(options_.probes, probe); }

  const char* expected() const { return options_.expected ? options_.expected : ""; }
  const char* max_bytes() const { return options_.max_bytes; }
  bool rechecks() const { return options_.recheck; }
  // Whether elements are printed or saved, not only measured.
  bool uses_elements() const {
    return heads || upstream ||
        std::any_of(probes_.begin(), probes_.end(), [](const auto& probe) { return probe->saves; });
  }
  bool has_ends() const { return options_.args && !std::strcmp(options_.args, "ends"); }

  // Whether the user named a value in `--allow`.
  bool allows(const Event& event, const Item& item) const {
    if (!options_.allow) return false;
    return is_allowed(
        options_.allow, event.launch ? event.launch->row->kernel : "inputs", item.label->name);
  }

  bool stops() const { return options_.stop; }

  // Ends the program at this NaN once the event is written.
  void stop_at(const Event& event, const Item& item) {
    std::lock_guard<std::mutex> guard(finding_);
    if (finding_name_.empty()) {
      finding_name_ = item.label->name;
      finding_count_ = std::to_string(item.statistics.nan) + " of " +
          std::to_string(item.statistics.numel);
      finding_launch_ = event.launch;
      has_finding_ = true;
    }
  }

  // Whether a launch writes a variable or its memory, or might.
  bool may_be_written(const Label& label) const {
    if (launches_.size() != places_.size()) return true;
    for (const ProbedLaunch& launch : launches_) {
      for (const Labels* labels : {&launch.before, &launch.after}) {
        for (const Label& other : *labels) {
          if (other.role != "in" && other.name == label.name) return true;
        }
      }
      const char* buffers = launch.row->buffers;
      if (buffers && (" " + std::string(buffers) + ";").find(" " + label.name + ";") != std::string::npos) {
        return true;  // through a view
      }
    }
    return false;
  }

  // Whether device events can time a launch, by the kinds of all launches.
  bool runs_on_gpu(const Event& event) const {
    return event.launch && std::strcmp(event.launch->row->kind, "cpp") && !on_cpu_;
  }

  // Writes to standard output, after all earlier output.
  void write(std::string&& text) {
    if (text.empty() || quiet) return;
    if (writer_.is_emitting()) return collect(text);
    put(new TextJob(*this, nullptr, std::move(text)));
  }
  void write(const std::string& text) { write(std::string(text)); }

  void write_row(RunningCall& call, std::string&& lines) {
    if (writer_.is_emitting()) return add_row(call, lines);
    put(new TextJob(*this, &call, std::move(lines)));
  }

  // Whether a thread waits until all is written.
  bool is_waited_for() const { return waiting != 0; }

  // Waits until all jobs are written.
  void drain() { writer_.drain(); }

  // Waits until the calls that ended are written.
  void finish() {
    if (reader_) reader_->finish();
    drain();
  }

  // Calls `then` when the call is over, or earlier if too many wait. It gets the event without its values.
  template <class Act>
  void later(const Event& event, RunningCall& call, Act then) {
    const ProbedLaunch* launch = event.launch;
    const char* phase = event.phase;
    int iteration = event.iteration;
    call.later.push_back([this, &call, launch, phase, iteration, then] {
      Event past;
      past.call = call.number;
      past.launch = launch;
      past.phase = phase;
      past.iteration = iteration;
      this->act(past, [&] { then(past); });
    });
    if (call.later.size() >= most_later) call.catch_up();
  }

  // Whether this process is a data loader worker, by the name that torch gives its thread.
  static bool is_worker() {
    char name[16] = "";
    return !pthread_getname_np(pthread_self(), name, sizeof name) &&
        !std::strcmp(name, "pt_data_worker");
  }

  // Whether this is a forked process: it inherits the recorder, but must not be recorded.
  bool is_fork() {
    if (!mark_.is_fork()) return false;
    int pid = getpid();
    if (fork_.exchange(pid) != pid) {
      std::string where = "process " + std::to_string(pid);
      say(rank, where, "a fork of the probed process is not recorded; one that is started anew (spawn) is");
    }
    return true;
  }

  // Starts a call; null if it is not recorded.
  RunningCall* begin() {
    const int64_t number = number_++;
    read_replays();
    return wanted_.contains(number) ? start_call(number).release() : nullptr;
  }

  // Reports the CUDA graphs that were replayed since the last time. With `is_last`, also those that never
  // were. The process may then be exiting, where asking torch for its current stream may crash.
  void read_replays(bool is_last = false) {
    if (!has_captures_.load(std::memory_order_acquire) || !reader_) return;
    if (!is_last && reader_->is_in_capture()) return;
    std::lock_guard<std::mutex> guard(capturing_);
    reader_->wait_for_replays();
    for (auto& capture : captures_) {
      act("replay", [&] { report_replay(*capture, is_last); });
    }
  }

  // Starts a recorded call with this number.
  std::unique_ptr<RunningCall> start_call(int64_t number) {
    auto call = std::make_unique<RunningCall>(*this, number);
    call->before.resize(launches_.size());
    call->after.resize(launches_.size());
    call->start = start(number) + " ";
    // On the CPU, or if a crash is looked for, events are written immediately. On a device, another thread
    // writes them, since the device would be idle meanwhile. Names alone have nothing for it, and a call
    // would wait for it when it is over.
    call->is_behind = !prompt && !on_cpu_ && (observes_ || memory_ || dump_) && has_device();
    if (dump_) {
      act("dump", [&] { call->directory = dump_->start(number); });
      if (call->directory && !call->directory->has_begun()) begin_files(*call);
      if (!call->directory && dump_->kept().most && !dump_->kept().has_room()) warn_of_full_dump();
    }
    return call;
  }

  // The calls that stay in the dump; null without a dump.
  KeptCalls* kept() { return dump_ ? &dump_->kept() : nullptr; }

  // Whether a CUDA graph measures for this recorder, which then has to live as long as the graph.
  bool has_captures() const { return has_captures_; }

  // Waits until all is written, and stops the thread. No call may follow.
  void retire() {
    drain();
    writer_.stop();
  }

  // The sides of a launch at which probes act.
  struct Sides {
    bool before = false, after = false;
  };
  static Sides sides_of(const Options& options) {
    Sides sides;
    for_each_probe(options, [&](std::unique_ptr<Probe> probe, const std::string&, const std::string& when) {
      sides.before = sides.before || when == "before" || when == "both" || probe->marks;
      sides.after = sides.after || when == "after" || when == "both";
    });
    return sides;
  }

  // Ends a call, which is freed once it is written. Prints are written before this returns; the dump may be
  // written later.
  void end(RunningCall& call) {
    call.catch_up();
    if (reader_) reader_->settle();
    if (memory_) act("memory", [&] { memory_->finish(call); });
    // A captured call is written after the first replay of its graph.
    const bool is_captured = call.capture;
    if (is_captured && reader_->is_in_capture()) return;
    read_replays();
    if (!is_captured) put(call, new EndJob(*this, call));
    if (!quiet) finish();
  }

  void at_inputs(RunningCall& call, Contents& contents) {
    Event event;
    event.call = call.number;
    event.phase = "inputs";
    if (faulty_) return;
    for (Probe* probe : checkers_) {
      act(event, [&] { probe->given(event, contents, call, *this); });
    }
    const auto unexpected = event.unexpected;
    EventJob* job = nullptr;
    Moment& moment = moments_[moments_.size() - 1];
    if (options_.reads_inputs && !readers_.empty()) {
      job = report(call, event, moment, contents);
    } else if (!checkers_.empty() && call.directory) {
      act(event, [&] { job = checkers_[0]->values->read(moment, contents, call, *this); });
      if (job) adopt(*job, call, event, unread_);
    }
    // Only values have rows.
    std::vector<std::pair<std::string, std::string>> rest;
    for (const auto& one : unexpected) {
      if (!job || !has_value(job->event, one.first)) rest.push_back(one);
    }
    if (job) {
      job->event.unexpected = unexpected;
      put(call, job);
      if (has_finding_) end_program(call);
    }
    for (const auto& [name, problem] : rest) note_unexpected(call, event, name, problem);
  }

  void at_launch(RunningCall& call, int index, bool before, Contents& contents) {
    if (index < 0 || std::size_t(index) >= places_.size() || places_[index] < 0) return;
    if (faulty_) return;
    const int place = places_[index];
    Moment& moment = moments_[2 * place + !before];
    Event event;
    event.call = call.number;
    event.launch = moment.launch;
    event.phase = moment.phase;
    event.iteration = (before ? call.before : call.after)[place]++;
    event.line = &moment.line;
    const Probes& probes = *moment.probes;
    if (options_.dormant && probes.empty()) return;  // other probes may be switched on later
    for (std::size_t i = before ? 0 : probes.size(); i-- > 0;) {
      act(event, [&] { probes[i]->stop(event, call, *this); });
    }
    const bool is_mark = before && marks_alone_;
    EventJob* job = is_mark ? nullptr : report(call, event, moment, contents);
    if (job) put(call, job);
    if (has_finding_) end_program(call);
    if (!before || !event.error.empty()) return;
    for (Probe* probe : probes) {
      act(event, [&] { probe->start(event, call, *this); });
    }
  }

  // Handles a memory line.
  template <class Act>
  void at_memory(RunningCall& call, Act&& act_on) {
    if (!memory_ || faulty_ || is_fork()) return;
    act("memory", [&] { act_on(*memory_, call); });
  }

  // The row of a launch, by index; null if the launch has no lines.
  const Row* row_of(int index) const {
    if (index < 0 || std::size_t(index) >= places_.size() || places_[index] < 0) return nullptr;
    return launches_[std::size_t(places_[index])].row;
  }

  // Prints a complete event, and writes it into the dump.
  void emit(EventJob& job) {
    Event& event = job.event;
    RunningCall& call = *job.call;
    for (Probe* probe : *job.moment->probes) {
      act(event, [&] { probe->measured(event, call, *this); });
    }
    if (!call.directory) return;
    const Values* reader = job.has_values ? reader_ : nullptr;
    if (reader || event.iteration || job.moment->row.empty()) {
      add_row(call, event_rows(event, reader));
    } else {
      add_row(call, job.moment->row);
    }
  }

  // Calls `act`; an exception becomes a warning, so that the other probes go on.
  template <class About, class Act>
  void act(const About& about, Act&& act) {
    try {
      act();
    } catch (const std::exception& error) {
      warn(text_of(about), error.what());
    } catch (...) {
      warn(text_of(about), "unknown failure");
    }
  }

 private:
  static constexpr std::size_t most_later = 4096;  // timed launches that wait to be read

  // Writes text to standard output, or rows to a call's directory.
  struct TextJob : Job {
    TextJob(Recorder& recorder, RunningCall* call, std::string&& text)
        : recorder_(recorder), call_(call), text_(std::move(text)) {}
    void emit() override {
      if (call_) recorder_.add_row(*call_, text_);
      else recorder_.collect(text_);
      delete this;
    }

   private:
    Recorder& recorder_;
    RunningCall* const call_;
    const std::string text_;
  };

  void begin_files(RunningCall& call) {
    if (!call.is_behind) act("dump", [&] { call.directory->begin(); });
    else writer_.put_behind(new BeginJob(*this, call));
  }

  // Comes before all other jobs of its call.
  struct BeginJob : Job {
    BeginJob(Recorder& recorder, RunningCall& call) : recorder_(recorder), call_(call) {}
    void emit() override {
      recorder_.act("dump", [&] { call_.directory->begin(); });
      delete this;
    }

   private:
    Recorder& recorder_;
    RunningCall& call_;
  };

  struct EndJob : Job {
    EndJob(Recorder& recorder, RunningCall& call) : recorder_(recorder), call_(call) {}
    void emit() override {
      recorder_.flush();
      std::unique_ptr<CallDirectory> directory = std::move(call_.directory);
      delete &call_;  // waits until its tensors are in files
      if (directory) recorder_.act("dump", [&] { recorder_.dump_->finish(std::move(directory)); });
      delete this;
    }

   private:
    Recorder& recorder_;
    RunningCall& call_;
  };

  void warn_of_full_dump() {
    const std::string size = std::to_string(dump_->kept().most);
    warn("dump", "--max-bytes: the rows have " + size +
        " bytes; no more calls are recorded, and the model runs on");
  }

  static std::string text_of(const Event& event) { return event.about(); }
  static std::string text_of(const std::string& text) { return text; }  // or a string literal

  static bool holds(const std::string& names, const std::string& name) {
    return ("," + names + ",").find("," + name + ",") != std::string::npos;
  }

  static void make_moment(
      Moment& moment, const ProbedLaunch& launch, const char* phase, const Labels& labels,
      const Probes& probes) {
    moment.launch = &launch;
    moment.phase = phase;
    moment.labels = &labels;
    moment.probes = &probes;
    Event event;
    event.launch = &launch;
    event.phase = phase;
    moment.line = event.about() + " " + phase + (phase[0] == 'a' ? "  " : " ");
    moment.line += launch.row->kernel;
    moment.row = event_rows(event, nullptr);
  }

  void put(Job* job) { writer_.put(job, prompt); }
  void put(const RunningCall& call, Job* job) {
    if (call.is_behind) writer_.put_behind(job);
    else put(job);
  }

  // While a job is emitted.
  void collect(const std::string& text) {
    text_ += text;
    if (text_.size() > most_text) flush();
  }

  void add_row(RunningCall& call, const std::string& lines) {
    if (!call.directory) return;
    if (last_written_ != call.directory.get()) flush_rows();
    last_written_ = call.directory.get();
    act("dump", [&] { call.directory->write(lines); });
  }

  void flush_rows() {
    if (last_written_) act("dump", [&] { last_written_->flush(); });
    last_written_ = nullptr;
  }

  void flush() override {
    flush_rows();
    if (text_.empty()) return;
    write_now(text_.data(), text_.size());
    text_.clear();
  }

  // An event with its values, measured or being measured; null if it has none.
  EventJob* report(RunningCall& call, Event& event, Moment& moment, Contents& contents) {
    // Print the name first: everything after this may crash.
    const Probes& probes = *moment.probes;
    const Values* reader = nullptr;
    for (Probe* probe : probes) {
      if (probe->values) reader = probe->values;
      else act(event, [&] { probe->at(event, call, *this); });
    }
    if (!reader && !call.directory && !observes_) return nullptr;
    EventJob* job = nullptr;
    if (reader) {
      act(event, [&] { job = reader->read(moment, contents, call, *this); });
    }
    const bool has_values = job;  // what the reader made; others are not for it
    if (!job) job = new EventJob;
    adopt(*job, call, event, moment);
    job->has_values = has_values;
    if (!reader) return job;
    bool measures = call.directory || fingerprints;
    for (Probe* probe : probes) {
      measures = measures || probe->measures;
      act(event, [&] { probe->check(job->event, call, *this); });
    }
    if (!job->event.error.empty()) {
      event.error = job->event.error;
      job->release();
      stop(event, call);
      return nullptr;
    }
    if (!has_values) return job;
    for (Probe* probe : probes) {
      if (!probe->values) continue;
      if (job->event.captured && probe->saves) decline("save", job->event);
      else act(event, [&] { probe->at(job->event, call, *this); });
    }
    if (measures || heads || upstream) {
      act(event, [&] { reader->measure(*job, heads || upstream, *this); });
    }
    if (!job->event.captured) return job;
    if (fingerprints) decline("hash", job->event);
    keep(call, *job);
    return nullptr;
  }

  void decline(const std::string& probe, const Event& event) {
    warn(event.about(), probe + " cannot copy to the host while a CUDA graph is being captured: "
        "only statistics come from a replay");
  }

  // Keeps an event of a CUDA graph capture: replays measure its values, and it is reported then.
  void keep(RunningCall& call, EventJob& job) {
    std::lock_guard<std::mutex> guard(capturing_);
    if (!call.capture) {
      captures_.emplace_back(new Capture);
      call.capture = captures_.back().get();
      call.capture->call = &call;
      call.capture->number = call.number;
      has_captures_.store(true, std::memory_order_release);
    }
    call.capture->events.push_back(&job);
  }

  // The first replay belongs to the call that captured the graph. Each other one gets a call of its own,
  // since no line of the wrapper runs in a replay.
  void report_replay(Capture& capture, bool is_last) {
    uint64_t replays = 0;
    for (EventJob* captured : capture.events) {
      replays = std::max(replays, reader_->replays(*captured));
    }
    const bool is_new = replays != capture.seen;
    if (!is_new && !(is_last && capture.call)) return;
    if (!is_new) {
      warn("exit", "a CUDA graph was captured and never replayed: it has no values");
    }
    capture.seen = replays;
    RunningCall* call = std::exchange(capture.call, nullptr);
    if (!call) call = start_call(capture.number).release();
    call->capture = nullptr;
    for (const EventJob* captured : capture.events) {
      EventJob* const job = reader_->replayed(*captured);
      adopt(*job, *call, captured->event, *captured->moment);
      job->event.call = call->number;
      job->event.captured = true;
      put(job);
    }
    put(new EndJob(*this, *call));
  }

  // Called when the program ends, or the library of the wrapper is unloaded.
  void close() override {
    if (!mark_.is_fork()) read_replays(true);
  }

  static void adopt(EventJob& job, RunningCall& call, const Event& event, const Moment& moment) {
    job.moment = &moment;
    job.call = &call;
    job.has_values = true;
    job.event.call = event.call;
    job.event.launch = event.launch;
    job.event.phase = event.phase;
    job.event.iteration = event.iteration;
    job.event.line = event.line;
    job.event.error.clear();
    job.event.unexpected.clear();
  }

  static bool has_value(const Event& event, const std::string& name) {
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      if (event.items[i].label->name == name) return true;
    }
    return false;
  }

  void note_unexpected(
      RunningCall& call, const Event& event, const std::string& name, const std::string& problem) {
    act(event, [&] {
      call.note(event, [&](Json& json) {
        json.key("arg").string(name).key("role").string("in").key("unexpected").string(problem);
      });
    });
  }

  // Ends the program at a NaN, after everything is written, including what waits for the end of the call.
  [[noreturn]] void end_program(RunningCall& call) {
    const Row* row = finding_launch_ ? finding_launch_->row : nullptr;
    const std::string kernel = row ? row->kernel : "";
    const std::string where = row ? "#" + std::to_string(row->launch) + " " + kernel : "the inputs";
    const std::string text = start(call.number) + " stopped at " + where + ": " + finding_count_ +
        " elements of " + finding_name_ + " are NaN (--stop)\n";
    const std::string run = call.directory ? call.directory->path : "";
    if (!run.empty()) write_stopped(run, row ? row->launch : -1, kernel, finding_name_);
    call.catch_up();
    put(new EndJob(*this, call));
    drain();
    end_process(text);
  }

  // Reports a device fault and stops recording: nothing can be read from the device any more.
  void stop(const Event& event, RunningCall& call) {
    if (!event.launch) return;  // the first launch will find it, too
    faulty_ = true;
    act(event, [&] {
      call.note(event, [&](Json& json) { json.key("error").string(event.error); });
    });
    const char* earlier = event.phase[0] == 'b' ? " (of something before this launch)" : "";
    say(about(event) + ": " + event.error + earlier + "\n");
  }

  // Calls `act` with each probe of a wrapper, its name, and when it acts.
  template <class Act>
  static void for_each_probe(const Options& options, Act&& act) {
    const std::string names = options.probes, wanted = options.when;
    for (std::size_t start = 0; start < names.size();) {
      std::size_t end = names.find(',', start);
      if (end == std::string::npos) end = names.size();
      std::string name = names.substr(start, end - start);
      if (auto probe = make_probe(name)) {
        const bool checks = !std::strcmp(probe->when, "inputs");
        const bool fixed = checks || probe->spans || probe->marks || wanted.empty();
        const bool after =
            probe->of_results && options.args && !std::strcmp(options.args, "written");
        const std::string when = !fixed ? wanted : after && wanted.empty() ? "after" : probe->when;
        act(std::move(probe), name, when);
      }
      start = end + 1;
    }
  }

  void choose_probes() {
    for_each_probe(
        options_, [&](std::unique_ptr<Probe> probe, const std::string& name, const std::string& when) {
          if (probe->watch) {
            if (!memory_) memory_ = probe->watch(options_, *this);
            probes_.push_back(std::move(probe));
            return;
          }
          const bool checks = when == "inputs";
          if (checks) checkers_.push_back(probe.get());
          if (when == "before" || when == "both") before_.push_back(probe.get());
          if (when == "after" || when == "both") after_.push_back(probe.get());
          if (probe->values && !checks) readers_.push_back(probe.get());
          if (probe->values) reader_ = probe->values;
          if (probe->marks) marker_ = probe->make_mark();
          observes_ = observes_ || name != "names";
          probes_.push_back(std::move(probe));
        });
    if (!marker_) return;
    marks_alone_ = before_.empty();
    before_.push_back(marker_.get());  // the last thing before a launch
  }

  static Calls wanted_calls(const Options& options) {
    const char* calls = std::getenv("REWRITER_CALLS");
    if (!calls || !*calls) return Calls(options.calls ? options.calls : "");
    try {
      return Calls(calls);
    } catch (const std::exception& error) {
      throw std::runtime_error(std::string("REWRITER_CALLS: ") + error.what());
    }
  }

  static constexpr std::size_t most_text = 1 << 16;

  const Options& options_;
  const ForkMark mark_;
  Labels inputs_;
  Fixed<ProbedLaunch> launches_;
  Fixed<Moment> moments_;  // two for each launch, and one for the inputs
  const Probes none_;
  const Moment unread_{nullptr, "inputs", nullptr, &none_, "", "", nullptr};
  const Calls wanted_;
  std::vector<int> places_;  // positions of launches in the table, by index
  std::vector<std::unique_ptr<Probe>> probes_;
  Probes before_, after_, readers_, checkers_;
  std::unique_ptr<Probe> marker_;  // marks the beginning of launches
  bool marks_alone_ = false;     // whether it is the only probe that acts before launches
  const Values* reader_ = nullptr;
  std::unique_ptr<MemoryWatch> memory_;  // if there are memory probes
  bool observes_ = false;  // whether any probe needs what was measured
  bool on_cpu_ = false;
  std::atomic<int64_t> number_{0};  // number of the next call
  std::atomic<bool> faulty_{false};
  // CUDA graph captures.
  std::mutex capturing_;
  std::vector<std::unique_ptr<Capture>> captures_;
  std::atomic<bool> has_captures_{false};
  // The NaN that ends the program.
  std::mutex finding_;
  std::atomic<bool> has_finding_{false};
  const ProbedLaunch* finding_launch_ = nullptr;
  std::string finding_name_, finding_count_;
  std::unique_ptr<DumpWriter> dump_;
  std::atomic<int> fork_{0};
  // Emitted and not flushed yet.
  std::string text_;
  CallDirectory* last_written_ = nullptr;
  Writer writer_;
};

inline void EventJob::emit() {
  Recorder& recorder = call->recorder;
  recorder.act(event, [&] { complete(); });
  recorder.emit(*this);
  release();
}

inline void RunningCall::write_row(std::string&& lines) {
  recorder.write_row(*this, std::move(lines));
}

}  // namespace inductor_rewriter
}  // namespace

// The beginning of a printed line.
namespace {
namespace inductor_rewriter {

// `[rewriter 0] #12.1 before KERNEL`, or `[rewriter 0] inputs`.
inline std::string line_start(const Event& event, const Recorder& recorder) {
  std::string text = recorder.start(event) + " ";
  if (event.line && !event.iteration) return text + *event.line;
  if (!event.launch) return text + event.phase;
  text += event.about();
  if (event.iteration) text += "." + std::to_string(event.iteration);
  text += std::string(" ") + event.phase;
  text.append(event.phase[0] == 'a' ? 2 : 1, ' ');
  return text + event.launch->row->kernel;
}

}  // namespace inductor_rewriter
}  // namespace

// Converts elements of every dtype to float64. Vectors are written out, since wrappers are compiled
// at -O1 or without loop vectorization.
namespace {
namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-fast-math", "tree-loop-vectorize")
#endif

typedef double Doubles __attribute__((vector_size(64), may_alias));
typedef int64_t Longs __attribute__((vector_size(64), may_alias));
typedef float Floats __attribute__((vector_size(32), may_alias));
typedef uint32_t Words __attribute__((vector_size(32), may_alias));
typedef uint16_t Halves __attribute__((vector_size(16), may_alias));

// `make` turns 8 elements into 8 doubles; `to` has room for a multiple of 8.
template <class From, class Make>
inline void convert_by_8(const char* from, int count, double* to, Make make) {
  typedef From Froms __attribute__((vector_size(8 * sizeof(From))));
  Froms some;
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    std::memcpy(&some, from + i * sizeof(From), sizeof some);
    make(some, *reinterpret_cast<Doubles*>(to + i));
  }
  if (i < count) {
    some = Froms{};
    std::memcpy(&some, from + i * sizeof(From), (count - i) * sizeof(From));
    make(some, *reinterpret_cast<Doubles*>(to + i));
  }
}

template <class From>
inline void widen(const char* from, int count, double* to) {
  convert_by_8<From>(from, count, to, [](const auto& some, Doubles& out) {
    out = __builtin_convertvector(some, Doubles);
  });
}

inline void convert_bfloat16(const char* from, int count, double* to) {
  convert_by_8<uint16_t>(from, count, to, [](const auto& some, Doubles& out) {
    Words bits = __builtin_convertvector(some, Words) << 16;
    out = __builtin_convertvector((Floats)bits, Doubles);
  });
}

inline void convert_float16(const char* from, int count, double* to) {
  convert_by_8<uint16_t>(from, count, to, [](const auto& some, Doubles& out) {
    Words half = __builtin_convertvector(some, Words);
    Words size = (half & 0x7fff) << 13;
    // The exponent's bias differs by 112; that of Inf and NaN stays the highest.
    Words bits = (Words)((Floats)size * 0x1p112f);
    bits |= (Words)(size >= 0x0f800000) & 0x7f800000;
    bits |= (half & 0x8000) << 16;
    out = __builtin_convertvector((Floats)bits, Doubles);
  });
}

inline double double_of(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr uint64_t infinity_bits = uint64_t{0x7ff} << 52;
constexpr uint64_t nan_bits = infinity_bits | uint64_t{1} << 51;

// A float8 with so many bits of mantissa. `finite_only`: the variants fn and fnuz, without
// infinity.
inline double from_float8(
    unsigned byte, int mantissas, int bias, bool finite_only, bool unsigned_zero) {
  int exponents = 7 - mantissas;
  int exponent = byte >> mantissas & ((1 << exponents) - 1);
  int mantissa = byte & ((1 << mantissas) - 1);
  bool highest = exponent == (1 << exponents) - 1;
  double sign = byte >> 7 ? -1.0 : 1.0;
  if (unsigned_zero && byte == 0x80) return double_of(nan_bits);
  if (!unsigned_zero && finite_only && (byte & 0x7f) == 0x7f) return double_of(nan_bits);
  if (!finite_only && highest) {
    return double_of(mantissa ? nan_bits : infinity_bits | uint64_t{byte >> 7} << 63);
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissas);
  return sign * std::ldexp((1 << mantissas) + mantissa, exponent - bias - mantissas);
}

inline void convert_float8(int32_t dtype, const char* from, int count, double* to) {
  double table[256];
  for (unsigned byte = 0; byte < 256; ++byte) {
    switch (dtype) {
      case dtypes::float8_e5m2: table[byte] = from_float8(byte, 2, 15, false, false); break;
      case dtypes::float8_e4m3fn: table[byte] = from_float8(byte, 3, 7, true, false); break;
      case dtypes::float8_e5m2fnuz: table[byte] = from_float8(byte, 2, 16, true, true); break;
      case dtypes::float8_e4m3fnuz: table[byte] = from_float8(byte, 3, 8, true, true); break;
      default:
        table[byte] = byte == 255 ? double_of(nan_bits) : std::ldexp(1.0, int(byte) - 127);
    }
  }
  for (int i = 0; i < count; ++i) to[i] = table[static_cast<unsigned char>(from[i])];
}

// The magnitudes of `count` pairs in `parts`. NaN where either part is, else infinite.
inline void magnitudes(const double* parts, int count, bool wide, double* to) {
  for (int i = 0; i < count; ++i) {
    double real = parts[2 * i], imag = parts[2 * i + 1];
    uint64_t a = bits_of(real) << 1, b = bits_of(imag) << 1, limit = infinity_bits << 1;
    if (a > limit || b > limit) to[i] = double_of(nan_bits);
    else if (a == limit || b == limit) to[i] = double_of(infinity_bits);
    // Squares of narrower parts are exact, and within the range of float64.
    else to[i] = wide ? std::hypot(real, imag) : std::sqrt(real * real + imag * imag);
  }
}

// Converts `count` contiguous elements, which for complex dtypes have twice as many parts; `to` has
// room for a multiple of 8. Not for 64-bit integers, which float64 cannot hold.
inline void convert(int32_t dtype, const char* from, int count, double* to) {
  switch (dtype) {
    case dtypes::uint8: case dtypes::boolean: return widen<uint8_t>(from, count, to);
    case dtypes::int8: return widen<int8_t>(from, count, to);
    case dtypes::int16: return widen<int16_t>(from, count, to);
    case dtypes::int32: return widen<int32_t>(from, count, to);
    case dtypes::int64: return widen<int64_t>(from, count, to);
    case dtypes::float16: return convert_float16(from, count, to);
    case dtypes::float32: return widen<float>(from, count, to);
    case dtypes::float64: return static_cast<void>(std::memcpy(to, from, count * sizeof(double)));
    case dtypes::complex32: return convert_float16(from, 2 * count, to);
    case dtypes::complex64: return widen<float>(from, 2 * count, to);
    case dtypes::complex128:
      return static_cast<void>(std::memcpy(to, from, 2 * count * sizeof(double)));
    case dtypes::bfloat16: return convert_bfloat16(from, count, to);
    case dtypes::uint16: return widen<uint16_t>(from, count, to);
    case dtypes::uint32: return widen<uint32_t>(from, count, to);
    case dtypes::uint64: return widen<uint64_t>(from, count, to);
    default: return convert_float8(dtype, from, count, to);
  }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
}  // namespace

// The measurement of a tensor by one pass over it, and the layout of a tensor. These structures are the same
// in C++, in the GPU's kernels and in Python (rewriter/runtime/engine.py).
namespace {
namespace inductor_rewriter {

// Elements are counted as the shape says: one that an expanded dimension repeats counts each time. For dtypes
// whose elements are no numbers (packed, quantized) only the fingerprint is known, and `finite` is -1.
struct Measured {
  int64_t finite, nan, positive_infinite, negative_infinite;
  // The exact extremes of the finite elements: bits of float64, or the integer itself for int64 and uint64.
  uint64_t low, high;
  // Of the finite elements; the deviation is that of a sample (n - 1), and 0 for fewer than two elements.
  double mean, deviation;
  // The fingerprint (fingerprint.h). As text, each word is 16 hexadecimal digits.
  uint64_t fingerprint[2];
  // For dtypes of 16 and 8 bits: how many finite elements are near the largest number (elements.h).
  int64_t near_limit;
};
static_assert(sizeof(Measured) == 88, "Python has it as 88 bytes");

struct Layout {
  int32_t dtype;  // c10::ScalarType
  int32_t dim;
  int64_t numel;
  const int64_t* shape;
  const int64_t* stride;  // in elements; any, also 0 and negative
  int32_t device;         // -1: CPU
};

}  // namespace inductor_rewriter
}  // namespace

// The fingerprint "nh128", version 1: 128 bits that tell whether two tensors have the same bytes. It depends
// on the position of each byte, and is not cryptographic.
//
// The bytes of the elements in row-major order are cut into vectors of 16 bytes, the last one filled up with
// zeros; a vector is two little-endian words (a, b). 4096 vectors are a tile. Vector p of a tile
// adds (a + K0[p]) * (b + K1[p]), as 128 bits, to the two sums of the tile, the lower half to one
// and the upper half to the other, each modulo 2^64: NH of UMAC (RFC 4418) with words of 64 bits.
// Each tile's sums go through a mixer with the number of the tile, and are added to the total, and
// this is mixed with the number of bytes. All is sums: parts may come in any order, from any number
// of threads, blocks or devices.
//
// K0[p] = A0[p % 64] ^ B0[p / 64], and K1 from A1 and B1: a thread that takes each 64th vector needs
// one word of A0 and A1. rewriter/runtime/fingerprint.py has the same for torch's operators.
namespace {
namespace inductor_rewriter {

namespace fingerprint {

constexpr int64_t vector_bytes = 16;
constexpr int64_t tile_vectors = 4096;
constexpr int64_t tile_bytes = vector_bytes * tile_vectors;
constexpr uint64_t golden = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio

// The mixer of splitmix64: each bit of the result depends on all of `x`; one to one.
INDUCTOR_REWRITER_SHARED constexpr uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Word `place` of table 0 to 3 (A0, A1, B0, B1): splitmix64 with a seed for each table.
INDUCTOR_REWRITER_SHARED constexpr uint64_t key(int table, int place) {
  return mix(mix(static_cast<uint64_t>(table) + 1) + (static_cast<uint64_t>(place) + 1) * golden);
}

struct Pair {
  uint64_t low, high;
};

// What a tile adds to the total, from the two sums of its products. One to one for each number of a tile.
INDUCTOR_REWRITER_SHARED constexpr Pair tile(Pair sums, uint64_t number) {
  uint64_t first = mix(sums.low + (number + 1) * golden);
  uint64_t second = mix(sums.high ^ first);
  return {second, mix(first + second)};
}

// The fingerprint, from the total of all tiles.
INDUCTOR_REWRITER_SHARED constexpr Pair finish(Pair total, uint64_t bytes) {
  uint64_t first = mix(total.low + bytes * golden);
  uint64_t second = mix(total.high ^ first);
  return {mix(first + second), second};
}

}  // namespace fingerprint

}  // namespace inductor_rewriter
}  // namespace

// The elements of each dtype: their size, and whether they are numbers.
namespace {
namespace inductor_rewriter {

namespace elements {

// The bytes of one element, 0 for an unknown dtype. An element of a packed dtype is a byte.
INDUCTOR_REWRITER_SHARED constexpr int size(int32_t dtype) {
  switch (dtype) {
    case dtypes::complex128: return 16;
    case dtypes::int64: case dtypes::uint64: case dtypes::float64: case dtypes::complex64: return 8;
    case dtypes::int32: case dtypes::uint32: case dtypes::float32: case dtypes::complex32:
    case dtypes::qint32: return 4;
    case dtypes::int16: case dtypes::uint16: case dtypes::float16: case dtypes::bfloat16:
    case dtypes::bits16: return 2;
    default: return dtype >= 0 && dtype <= dtypes::float4_e2m1fn_x2 ? 1 : 0;
  }
}

// Whether elements are numbers. Others (quantized, packed, bits) only have a fingerprint.
INDUCTOR_REWRITER_SHARED constexpr bool is_number(int32_t dtype) {
  return (dtype >= dtypes::uint8 && dtype <= dtypes::boolean) || dtype == dtypes::bfloat16 ||
      (dtype >= dtypes::float8_e5m2 && dtype <= dtypes::uint64) || dtype == dtypes::float8_e8m0fnu;
}

INDUCTOR_REWRITER_SHARED constexpr bool is_complex(int32_t dtype) {
  return dtype >= dtypes::complex32 && dtype <= dtypes::complex128;
}

// Whether there are integers that float64 cannot hold.
INDUCTOR_REWRITER_SHARED constexpr bool is_wide(int32_t dtype) {
  return dtype == dtypes::int64 || dtype == dtypes::uint64;
}

// Whether squares and sums can leave the range of float64.
INDUCTOR_REWRITER_SHARED constexpr bool is_huge(int32_t dtype) {
  return dtype == dtypes::float64 || dtype == dtypes::complex128;
}

// Half of the largest finite number of a floating-point dtype of 16 or 8 bits; 0 for other dtypes. A number
// above it overflows if it is doubled.
INDUCTOR_REWRITER_SHARED constexpr double half_of_largest(int32_t dtype) {
  switch (dtype) {
    case dtypes::float16: return 32752;
    case dtypes::bfloat16: return 0x1.fep126;
    case dtypes::float8_e5m2: case dtypes::float8_e5m2fnuz: return 28672;
    case dtypes::float8_e4m3fn: return 224;
    case dtypes::float8_e4m3fnuz: return 120;
    case dtypes::float8_e8m0fnu: return 0x1p126;
    default: return 0;
  }
}

// Whether a finite element is above `half` of the largest number of its dtype. The lowest number of a dtype
// of 16 bits does not count: attention masks are made of it (`torch.finfo(dtype).min`).
INDUCTOR_REWRITER_SHARED constexpr bool is_near_limit(double value, double half, int32_t dtype) {
  if (value > half) return half != 0;
  return half != 0 && value < -half && (size(dtype) != 2 || value != -2 * half);
}

}  // namespace elements

}  // namespace inductor_rewriter
}  // namespace

// Reads the elements of a tensor in row-major order, whatever its strides are.
namespace {
namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-fast-math", "tree-loop-vectorize")
#endif

// The dimensions of a tensor in row-major order, as few as possible: neighbouring dimensions that are
// contiguous are merged. Strides are in elements.
struct Dimensions {
  static constexpr int most = 64;  // the limit of torch's operators
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
}  // namespace

// Measures a tensor on the CPU in one pass: statistics and fingerprint.
//
// The elements in row-major order are cut into the tiles of the fingerprint, 64 KiB each, and tiles into
// pieces that stay in the first-level cache. What is merged in which order depends only on the number of
// elements, so that the result is the same for any number of threads.
namespace {
namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-fast-math", "tree-loop-vectorize")
#endif

namespace cpu {

constexpr int block_elements = 1024;
constexpr int64_t piece_bytes = 16384;  // a quarter of a tile
constexpr int64_t chunk_tiles = 8;      // how many tiles a thread takes at a time, at least
constexpr int64_t most_chunks = 1024;

// The difference of two integers, which may be too large for int64.
inline double difference(int64_t a, int64_t b) {
  return a > b ? static_cast<double>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b))
               : -static_cast<double>(static_cast<uint64_t>(b) - static_cast<uint64_t>(a));
}

inline double smaller(double a, double b) { return b < a ? b : a; }
inline double larger(double a, double b) { return b > a ? b : a; }

// A power of two that brings the larger of these magnitudes near one.
inline double scale_for(double a, double b, double c) {
  auto exponent = [](double value) { return bits_of(value) << 1 >> 53; };
  uint64_t most = exponent(a) > exponent(b) ? exponent(a) : exponent(b);
  most = exponent(c) > most ? exponent(c) : most;
  return double_of((most >= 2046 ? 1 : 2046 - most) << 52);
}

// The measurement of some elements. `mean` is relative to the tensor's origin and multiplied by `scale`.
// `squares` is the sum of the squared differences from the mean, of the same scale.
struct Part {
  int64_t finite = 0, nan = 0, positive_infinite = 0, negative_infinite = 0;
  double low = 0, high = 0;
  int64_t low_key = 0, high_key = 0;  // for int64, and for uint64 minus 2^63
  double mean = 0, squares = 0, scale = 1;
  fingerprint::Pair total = {0, 0};

  void rescale(double to) {
    double change = to / scale;
    mean *= change;
    squares = squares * change * change;
    scale = to;
  }

  // Chan's formula.
  void merge(Part other) {
    nan += other.nan;
    positive_infinite += other.positive_infinite;
    negative_infinite += other.negative_infinite;
    total.low += other.total.low;
    total.high += other.total.high;
    if (!other.finite) return;
    if (!finite) {
      finite = other.finite;
      low = other.low;
      high = other.high;
      low_key = other.low_key;
      high_key = other.high_key;
      mean = other.mean;
      squares = other.squares;
      scale = other.scale;
      return;
    }
    if (other.scale < scale) rescale(other.scale);
    if (scale < other.scale) other.rescale(scale);
    low = smaller(low, other.low);
    high = larger(high, other.high);
    low_key = other.low_key < low_key ? other.low_key : low_key;
    high_key = other.high_key > high_key ? other.high_key : high_key;
    double before = static_cast<double>(finite), size = static_cast<double>(other.finite);
    double apart = other.mean - mean, share = size / (before + size);
    finite += other.finite;
    mean += apart * share;
    squares += other.squares + apart * apart * before * share;
  }
};

__extension__ typedef unsigned __int128 uint128;

// The tables of the fingerprint.
struct Keys {
  uint64_t a0[64], a1[64], b0[64], b1[64];
};
constexpr Keys make_keys() {
  Keys keys = {};
  for (int i = 0; i < 64; ++i) {
    keys.a0[i] = fingerprint::key(0, i);
    keys.a1[i] = fingerprint::key(1, i);
    keys.b0[i] = fingerprint::key(2, i);
    keys.b1[i] = fingerprint::key(3, i);
  }
  return keys;
}
constexpr Keys keys = make_keys();

// Adds the products of `count` vectors, from vector `first` of their tile on.
inline void add_vectors(const char* from, int first, int count, fingerprint::Pair& sums) {
  uint64_t low = 0, high = 0;
  for (int done = 0; done < count;) {
    const int row = (first + done) / 64, column = (first + done) % 64;
    const int some = 64 - column < count - done ? 64 - column : count - done;
    const uint64_t b0 = keys.b0[row], b1 = keys.b1[row];
    const char* at = from + std::size_t(done) * fingerprint::vector_bytes;
    for (int i = 0; i < some; ++i) {
      uint64_t words[2];
      std::memcpy(words, at + i * fingerprint::vector_bytes, sizeof words);
      uint64_t a = words[0] + (keys.a0[column + i] ^ b0);
      uint64_t b = words[1] + (keys.a1[column + i] ^ b1);
      const uint128 product = static_cast<uint128>(a) * b;
      low += static_cast<uint64_t>(product);
      high += static_cast<uint64_t>(product >> 64);
    }
    done += some;
  }
  sums.low += low;
  sums.high += high;
}

inline void add_bytes(const char* from, int64_t first_byte, int64_t bytes, fingerprint::Pair& sums) {
  const int first = static_cast<int>(first_byte / fingerprint::vector_bytes);
  const int whole = static_cast<int>(bytes / fingerprint::vector_bytes);
  add_vectors(from, first, whole, sums);
  const int64_t rest = bytes % fingerprint::vector_bytes;
  if (!rest) return;
  char last[fingerprint::vector_bytes] = {};
  std::memcpy(last, from + whole * fingerprint::vector_bytes, static_cast<std::size_t>(rest));
  add_vectors(last, first + whole, 1, sums);
}

// Pads the values to a multiple of 8. Returns the new count.
template <class T>
inline int fill(T* values, int count, T with) {
  int whole = (count + 7) / 8 * 8;
  for (int i = count; i < whole; ++i) values[i] = with;
  return whole;
}

inline bool has_special(const double* values, int count) {
  Longs special = {};
  for (int i = 0; i < count; i += 8) {
    const Longs& bits = *reinterpret_cast<const Longs*>(values + i);
    special |= (bits & static_cast<int64_t>(infinity_bits)) == static_cast<int64_t>(infinity_bits);
  }
  int64_t any = 0;
  for (int i = 0; i < 8; ++i) any |= special[i];
  return any != 0;
}

// Moves the finite values to the front, and counts the others.
inline int keep_finite(double* values, int count, Part& part) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t bits = bits_of(values[i]), size = bits << 1;
    values[kept] = values[i];
    kept += size < infinity_bits << 1;
    part.nan += size > infinity_bits << 1;
    part.positive_infinite += bits == infinity_bits;
    part.negative_infinite += bits == (infinity_bits | uint64_t{1} << 63);
  }
  return kept;
}

template <class T, class Vector>
inline void extremes(const T* values, int count, T& low, T& high) {
  const Vector* all = reinterpret_cast<const Vector*>(values);
  Vector lows = all[0], highs = all[0];
  for (int i = 1; i < count / 8; ++i) {
    lows = all[i] < lows ? all[i] : lows;
    highs = all[i] > highs ? all[i] : highs;
  }
  low = lows[0];
  high = highs[0];
  for (int i = 1; i < 8; ++i) {
    low = lows[i] < low ? lows[i] : low;
    high = highs[i] > high ? highs[i] : high;
  }
}

inline double total(const Doubles& sums) {
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Computes mean and squares of `count` differences into `part`. Overwrites what follows them in memory.
// Several sums lose less to rounding than one, and do not depend on one another.
inline void moments(double* values, int count, Part& part) {
  const int whole = fill(values, count, 0.0);
  const Doubles* all = reinterpret_cast<const Doubles*>(values);
  const int vectors = whole / 8;
  Doubles sums[4] = {}, squares[4] = {};
  int i = 0;
  for (; i + 4 <= vectors; i += 4) {
    for (int j = 0; j < 4; ++j) sums[j] += all[i + j];
  }
  for (; i < vectors; ++i) sums[0] += all[i];
  const double mean = total((sums[0] + sums[1]) + (sums[2] + sums[3])) / count;
  fill(values, count, mean);
  for (i = 0; i + 4 <= vectors; i += 4) {
    for (int j = 0; j < 4; ++j) squares[j] += (all[i + j] - mean) * (all[i + j] - mean);
  }
  for (; i < vectors; ++i) squares[0] += (all[i] - mean) * (all[i] - mean);
  part.mean = mean;
  part.squares = total((squares[0] + squares[1]) + (squares[2] + squares[3]));
}

// The same from sums of differences from `shift`, which is relative to the origin. False if `shift` was so
// far from the mean that the squares have lost their precision.
inline bool finish_sums(double sum, double squares, double shift, Part& part) {
  const double mean = sum / static_cast<double>(part.finite);
  part.mean = shift + mean;
  part.squares = larger(squares - sum * mean, 0);
  return part.squares * 128 >= squares;
}

// The same from exact sums of integers. What follows is exact, too: n * squares < 2^63.
inline Part exact(int64_t count, double low, double high, int64_t sum, int64_t squares, double origin) {
  Part part;
  part.finite = count;
  part.low = low;
  part.high = high;
  part.mean = static_cast<double>(sum - count * static_cast<int64_t>(origin)) /
      static_cast<double>(count);
  part.squares = static_cast<double>(count * squares - sum * sum) / static_cast<double>(count);
  return part;
}

inline double centre(double low, double high) { return low + (high / 2 - low / 2); }
// The middle of [low, high], rounded up because int64 reaches one further down: no value of the range differs
// from it by more than int64 holds.
inline int64_t centre(int64_t low, int64_t high) { return (low | high) - ((low ^ high) >> 1); }

// `values` has room for a multiple of 8 and is overwritten.
inline Part measure_values(double* values, int count, bool huge, double origin) {
  Part part;
  if (has_special(values, fill(values, count, 0.0))) count = keep_finite(values, count, part);
  if (!count) return part;
  part.finite = count;
  const int whole = fill(values, count, values[0]);
  extremes<double, Doubles>(values, whole, part.low, part.high);
  if (huge) part.scale = scale_for(part.low, part.high, origin);
  const double middle = centre(part.low * part.scale, part.high * part.scale);
  Doubles* all = reinterpret_cast<Doubles*>(values);
  for (int i = 0; i < whole / 8; ++i) all[i] = all[i] * part.scale - middle;
  moments(values, count, part);
  part.mean += middle - origin * part.scale;
  return part;
}

inline Part measure_keys(int64_t* values, int count, int64_t origin) {
  Part part;
  part.finite = count;
  const int whole = fill(values, count, values[0]);
  extremes<int64_t, Longs>(values, whole, part.low_key, part.high_key);
  const int64_t middle = centre(part.low_key, part.high_key);
  alignas(64) double offsets[block_elements];
  const Longs* all = reinterpret_cast<const Longs*>(values);
  for (int i = 0; i < whole / 8; ++i) {
    reinterpret_cast<Doubles*>(offsets)[i] = __builtin_convertvector(all[i] - middle, Doubles);
  }
  moments(offsets, count, part);
  part.mean += difference(middle, origin);
  return part;
}

// Floats in vectors of eight, 32 bytes at a time.
struct Lanes {
  Doubles sums = {}, squares = {}, more_sums = {}, more_squares = {};
  Floats lows, highs;
  Words largest = {};  // magnitudes, as bits
};

inline void add_floats(Lanes& lanes, const Floats& some, double shift, Doubles& sums, Doubles& squares) {
  lanes.lows = some < lanes.lows ? some : lanes.lows;
  lanes.highs = some > lanes.highs ? some : lanes.highs;
  const Doubles apart = __builtin_convertvector(some, Doubles) - shift;
  sums += apart;
  squares += apart * apart;
}

struct Float32 {
  static constexpr int size = 4;
  static void add(Lanes& lanes, const char* from, double shift, bool odd) {
    Floats some;
    std::memcpy(&some, from, sizeof some);
    const Words magnitude = (Words)some & 0x7fffffff;
    lanes.largest = magnitude > lanes.largest ? magnitude : lanes.largest;
    add_floats(
        lanes, some, shift, odd ? lanes.more_sums : lanes.sums,
        odd ? lanes.more_squares : lanes.squares);
  }
  static constexpr uint32_t infinite = 0x7f800000;
};

struct BFloat16 {
  static constexpr int size = 2;
  static void add(Lanes& lanes, const char* from, double shift, bool) {
    Halves first, second;
    std::memcpy(&first, from, sizeof first);
    std::memcpy(&second, from + sizeof first, sizeof second);
    const Words a = __builtin_convertvector(first, Words) << 16;
    const Words b = __builtin_convertvector(second, Words) << 16;
    const Words magnitude = (a & 0x7fffffff) > (b & 0x7fffffff) ? a & 0x7fffffff : b & 0x7fffffff;
    lanes.largest = magnitude > lanes.largest ? magnitude : lanes.largest;
    add_floats(lanes, (Floats)a, shift, lanes.sums, lanes.squares);
    add_floats(lanes, (Floats)b, shift, lanes.more_sums, lanes.more_squares);
  }
  static constexpr uint32_t infinite = 0x7f800000;
};

struct Float16 {
  static constexpr int size = 2;
  static void add(Lanes& lanes, const char* from, double shift, bool) {
    Halves first, second;
    std::memcpy(&first, from, sizeof first);
    std::memcpy(&second, from + sizeof first, sizeof second);
    add_half(lanes, __builtin_convertvector(first, Words), shift, lanes.sums, lanes.squares);
    add_half(
        lanes, __builtin_convertvector(second, Words), shift, lanes.more_sums, lanes.more_squares);
  }
  static void add_half(
      Lanes& lanes, const Words& bits, double shift, Doubles& sums, Doubles& squares) {
    const Words magnitude = bits & 0x7fff;
    lanes.largest = magnitude > lanes.largest ? magnitude : lanes.largest;
    // The exponents' biases differ by 112, for subnormal numbers too.
    const Floats size = (Floats)(magnitude << 13) * 0x1p112f;
    add_floats(lanes, (Floats)((Words)size | (bits & 0x8000) << 16), shift, sums, squares);
  }
  static constexpr uint32_t infinite = 0x7c00;
};

// What `count` rows of 64 vectors have, statistics and products, from row `first` of their tile on.
// False where one is not finite, or `shift` far from the others: then `part` says nothing.
template <class Type>
inline bool measure_rows(
    const char* from, int first, int count, double shift, double origin, Part& part,
    fingerprint::Pair& sums) {
  Lanes lanes;
  lanes.lows = Floats{} + __builtin_inff();
  lanes.highs = -lanes.lows;
  uint64_t low = 0, high = 0;
  for (int row = 0; row < count; ++row) {
    const uint64_t b0 = keys.b0[first + row], b1 = keys.b1[first + row];
    auto add_product = [&](const char* at, int i) {
      uint64_t words[2];
      std::memcpy(words, at, sizeof words);
      const uint64_t a = words[0] + (keys.a0[i] ^ b0), b = words[1] + (keys.a1[i] ^ b1);
      const uint128 product = static_cast<uint128>(a) * b;
      low += static_cast<uint64_t>(product);
      high += static_cast<uint64_t>(product >> 64);
    };
    for (int i = 0; i < 64; i += 4, from += 64) {
      add_product(from, i);
      add_product(from + 16, i + 1);
      Type::add(lanes, from, shift, false);
      add_product(from + 32, i + 2);
      add_product(from + 48, i + 3);
      Type::add(lanes, from + 32, shift, true);
    }
  }
  sums.low += low;
  sums.high += high;
  for (int i = 0; i < 8; ++i) {
    if (lanes.largest[i] >= Type::infinite) return false;
  }
  float lowest = lanes.lows[0], highest = lanes.highs[0];
  for (int i = 1; i < 8; ++i) {
    lowest = lanes.lows[i] < lowest ? lanes.lows[i] : lowest;
    highest = lanes.highs[i] > highest ? lanes.highs[i] : highest;
  }
  part.finite = count * (64 * 16 / Type::size);
  part.low = lowest;
  part.high = highest;
  return finish_sums(
      total(lanes.sums + lanes.more_sums), total(lanes.squares + lanes.more_squares),
      shift - origin, part);
}

// The same for float64, if no square leaves its range.
inline bool measure_double_rows(
    const char* from, int first, int count, double shift, double origin, Part& part,
    fingerprint::Pair& sums) {
  add_vectors(from, 64 * first, 64 * count, sums);
  Doubles lows, highs, total_sums[2] = {}, squares[2] = {};
  std::memcpy(&lows, from, sizeof lows);
  highs = lows;
  Longs largest = {};
  for (int i = 0; i < count * 8; ++i, from += 128) {
    for (int j = 0; j < 2; ++j) {
      Doubles some;
      std::memcpy(&some, from + 64 * j, sizeof some);
      const Longs magnitude = (Longs)some & 0x7fffffffffffffff;
      largest = magnitude > largest ? magnitude : largest;
      lows = some < lows ? some : lows;
      highs = some > highs ? some : highs;
      const Doubles apart = some - shift;
      total_sums[j] += apart;
      squares[j] += apart * apart;
    }
  }
  int64_t most = 0;
  for (int i = 0; i < 8; ++i) most = largest[i] > most ? largest[i] : most;
  if (most >= int64_t{1023 + 400} << 52 || most < int64_t{1023 - 400} << 52) return false;
  part.low = lows[0];
  part.high = highs[0];
  for (int i = 1; i < 8; ++i) {
    part.low = smaller(part.low, lows[i]);
    part.high = larger(part.high, highs[i]);
  }
  part.finite = count * 128;
  return finish_sums(
      total(total_sums[0] + total_sums[1]), total(squares[0] + squares[1]), shift - origin, part);
}

// Integers of 8 and 16 bits: sums over up to `piece_bytes` are exact.
template <class Integer, class Sum>
inline Part measure_small(const char* from, int count, double origin) {
  Integer low = 0, high = 0;
  std::memcpy(&low, from, sizeof low);
  high = low;
  Sum sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) {
    Integer value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    low = value < low ? value : low;
    high = value > high ? value : high;
    sum += static_cast<Sum>(value);
    squares += static_cast<Sum>(static_cast<Sum>(value) * static_cast<Sum>(value));
  }
  return exact(count, low, high, sum, squares, origin);
}

// Dtypes of 8 bits, which have few values: counts how often each one occurs.
inline Part measure_bytes(
    const char* from, int count, const double (&values)[256], double origin) {
  uint32_t often[4][256] = {};
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) ++often[j][static_cast<unsigned char>(from[i + j])];
  }
  for (; i < count; ++i) ++often[0][static_cast<unsigned char>(from[i])];
  Part part;
  double sum = 0, squares = 0, shift = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t number = often[0][byte] + often[1][byte] + often[2][byte] + often[3][byte];
    if (!number) continue;
    const double value = values[byte];
    if (!is_finite(value)) {
      const bool is_nan = bits_of(value) << 12;
      (is_nan ? part.nan : value > 0 ? part.positive_infinite : part.negative_infinite) += number;
      continue;
    }
    if (!part.finite) shift = part.low = part.high = value;
    part.low = smaller(part.low, value);
    part.high = larger(part.high, value);
    part.finite += number;
    sum += number * (value - shift);
    squares += number * ((value - shift) * (value - shift));
  }
  if (!part.finite) return part;
  finish_sums(sum, squares, shift - origin, part);
  return part;
}

// The value of each of the 256 bytes, for a dtype of 8 bits.
struct Table {
  double values[256];
  explicit Table(int32_t dtype) {
    char bytes[256];
    for (int i = 0; i < 256; ++i) bytes[i] = static_cast<char>(i);
    convert_float8(dtype, bytes, 256, values);
  }
};
inline const Table& table_of(int32_t dtype) {
  static const Table e5m2(dtypes::float8_e5m2), e4m3fn(dtypes::float8_e4m3fn),
      e5m2fnuz(dtypes::float8_e5m2fnuz), e4m3fnuz(dtypes::float8_e4m3fnuz),
      e8m0(dtypes::float8_e8m0fnu);
  switch (dtype) {
    case dtypes::float8_e5m2: return e5m2;
    case dtypes::float8_e4m3fn: return e4m3fn;
    case dtypes::float8_e5m2fnuz: return e5m2fnuz;
    case dtypes::float8_e4m3fnuz: return e4m3fnuz;
    default: return e8m0;
  }
}

// The number that is subtracted from all elements before they are summed.
struct Origin {
  double value = 0;
  int64_t key = 0;  // for int64, and for uint64 minus 2^63
};

// One tensor: where its elements are, and its origin.
class Pass {
 public:
  Pass(const Layout& layout, const Dimensions& dims, const char* data)
      : dtype_(layout.dtype), size_(elements::size(layout.dtype)),
        bytes_(layout.numel * elements::size(layout.dtype)), data_(data), dims_(dims),
        contiguous_(dims.is_contiguous()) {
    flip_ = dtype_ == dtypes::uint64 ? uint64_t{1} << 63 : 0;
    switch (dtype_) {
      case dtypes::float32: add_rows_ = &Pass::add_rows<Float32>; break;
      case dtypes::bfloat16: add_rows_ = &Pass::add_rows<BFloat16>; break;
      case dtypes::float16: add_rows_ = &Pass::add_rows<Float16>; break;
      case dtypes::float64: add_rows_ = &Pass::add_double_rows; break;
      default: break;
    }
    find_origin();
  }

  Origin origin() const { return {origin_, origin_key_}; }

  // Measures the tiles from `first` up to, but without, `last`.
  Part measure(int64_t first, int64_t last) const {
    Part all;
    Gather gather(dims_, data_, size_);
    alignas(64) char gathered[piece_bytes];
    if (!contiguous_) gather.seek(first * fingerprint::tile_bytes / size_);
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t begin = tile * fingerprint::tile_bytes;
      const int64_t end = smaller_of(begin + fingerprint::tile_bytes, bytes_);
      fingerprint::Pair sums = {0, 0};
      for (int64_t at = begin; at < end; at += piece_bytes) {
        const int64_t some = smaller_of(piece_bytes, end - at);
        const char* from = data_ + at;
        if (!contiguous_) {
          gather.next(some / size_, gathered);
          from = gathered;
        }
        measure_piece(from, at - begin, some, all, sums);
      }
      const fingerprint::Pair mixed = fingerprint::tile(sums, static_cast<uint64_t>(tile));
      all.total.low += mixed.low;
      all.total.high += mixed.high;
    }
    return all;
  }

 private:
  static int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

  // The origin is the first finite element among the first few, or else among some that are far apart. With
  // it, a large offset that all elements have in common costs no precision.
  void find_origin() {
    constexpr int some = 16;
    if (!bytes_ || !elements::is_number(dtype_)) return;
    const int64_t numel = bytes_ / size_;
    if (find_origin(0, static_cast<int>(smaller_of(some, numel))) || numel <= some) return;
    constexpr int64_t places = 256;
    for (int64_t i = 1; i <= places; ++i) {
      // Avoids a product that could overflow.
      if (find_origin((numel - 1) / places * i + (numel - 1) % places * i / places, 1)) return;
    }
  }

  bool find_origin(int64_t place, int count) {
    alignas(64) char first[16 * 16];
    alignas(64) double values[16];
    Gather gather(dims_, data_, size_);
    gather.seek(place);
    gather.next(count, first);
    if (elements::is_wide(dtype_)) {
      std::memcpy(&origin_key_, first, sizeof origin_key_);
      origin_key_ = static_cast<int64_t>(static_cast<uint64_t>(origin_key_) ^ flip_);
      return true;
    }
    to_values(first, count, values);
    for (int i = 0; i < count; ++i) {
      if (!is_finite(values[i])) continue;
      origin_ = values[i];
      return true;
    }
    return false;
  }

  void to_values(const char* from, int count, double* values) const {
    if (!elements::is_complex(dtype_)) {
      convert(dtype_, from, count, values);
      if (dtype_ == dtypes::boolean) {
        for (int i = 0; i < count; ++i) values[i] = values[i] != 0;
      }
      return;
    }
    alignas(64) double parts[2 * block_elements];
    convert(dtype_, from, count, parts);
    magnitudes(parts, count, dtype_ == dtypes::complex128, values);
  }

  // Measures up to `piece_bytes` bytes, which begin `at` bytes after the start of their tile.
  void measure_piece(
      const char* from, int64_t at, int64_t bytes, Part& all, fingerprint::Pair& sums) const {
    const int rows = static_cast<int>(bytes / 1024), first = static_cast<int>(at / 1024);
    int64_t done = 0;
    if (rows && (this->*add_rows_)(from, first, rows, all, sums)) done = int64_t{rows} * 1024;
    add_bytes(from + done, at + done, bytes - done, sums);
    measure_elements(from + done, bytes - done, all);
  }

  bool add_no_rows(const char*, int, int, Part&, fingerprint::Pair&) const { return false; }

  template <class Type>
  bool add_rows(const char* from, int first, int rows, Part& all, fingerprint::Pair& sums) const {
    alignas(64) double shift[8];
    convert(dtype_, from, 1, shift);
    Part part;
    if (measure_rows<Type>(from, first, rows, shift[0], origin_, part, sums)) all.merge(part);
    else measure_elements(from, int64_t{rows} * 1024, all);
    return true;
  }

  bool add_double_rows(
      const char* from, int first, int rows, Part& all, fingerprint::Pair& sums) const {
    double shift;
    std::memcpy(&shift, from, sizeof shift);
    Part part;
    if (measure_double_rows(from, first, rows, shift, origin_, part, sums)) all.merge(part);
    else measure_elements(from, int64_t{rows} * 1024, all);
    return true;
  }

  void measure_elements(const char* from, int64_t bytes, Part& all) const {
    const int count = static_cast<int>(bytes / size_);
    if (!count || !elements::is_number(dtype_)) return;
    switch (dtype_) {
      case dtypes::uint8: return all.merge(measure_small<uint8_t, int32_t>(from, count, origin_));
      case dtypes::int8: return all.merge(measure_small<int8_t, int32_t>(from, count, origin_));
      case dtypes::uint16: return all.merge(measure_small<uint16_t, int64_t>(from, count, origin_));
      case dtypes::int16: return all.merge(measure_small<int16_t, int64_t>(from, count, origin_));
      case dtypes::boolean: {
        int64_t number = 0;
        for (int i = 0; i < count; ++i) number += from[i] != 0;
        return all.merge(exact(count, number == count, number > 0, number, number, origin_));
      }
      case dtypes::float8_e5m2: case dtypes::float8_e4m3fn: case dtypes::float8_e5m2fnuz:
      case dtypes::float8_e4m3fnuz: case dtypes::float8_e8m0fnu:
        return all.merge(measure_bytes(from, count, table_of(dtype_).values, origin_));
      default: break;
    }
    for (int done = 0; done < count; done += block_elements) {
      const int some = count - done < block_elements ? count - done : block_elements;
      all.merge(measure_block(from + std::size_t(done) * std::size_t(size_), some));
    }
  }

  Part measure_block(const char* from, int count) const {
    if (elements::is_wide(dtype_)) {
      alignas(64) int64_t values[block_elements];
      std::memcpy(values, from, count * sizeof *values);
      for (int i = 0; flip_ && i < count; ++i) {
        values[i] = static_cast<int64_t>(static_cast<uint64_t>(values[i]) ^ flip_);
      }
      return measure_keys(values, count, origin_key_);
    }
    alignas(64) double values[block_elements];
    to_values(from, count, values);
    return measure_values(values, count, elements::is_huge(dtype_), origin_);
  }

  const int32_t dtype_;
  const int size_;
  const int64_t bytes_;
  const char* const data_;
  const Dimensions& dims_;
  const bool contiguous_;
  bool (Pass::*add_rows_)(const char*, int, int, Part&, fingerprint::Pair&) const =
      &Pass::add_no_rows;
  uint64_t flip_ = 0;
  double origin_ = 0;
  int64_t origin_key_ = 0;
};

inline void finish(
    const Part& part, const Origin& origin, int32_t dtype, int64_t bytes, Measured& to) {
  const uint64_t flip = dtype == dtypes::uint64 ? uint64_t{1} << 63 : 0;
  to = Measured{};
  const fingerprint::Pair text = fingerprint::finish(part.total, static_cast<uint64_t>(bytes));
  to.fingerprint[0] = text.low;
  to.fingerprint[1] = text.high;
  to.finite = elements::is_number(dtype) ? part.finite : -1;
  to.nan = part.nan;
  to.positive_infinite = part.positive_infinite;
  to.negative_infinite = part.negative_infinite;
  if (!part.finite) return;
  double low = part.low, high = part.high;
  if (elements::is_wide(dtype)) {
    auto number = [&](int64_t key) {
      const uint64_t value = static_cast<uint64_t>(key) ^ flip;
      return flip ? static_cast<double>(value) : static_cast<double>(key);
    };
    to.low = static_cast<uint64_t>(part.low_key) ^ flip;
    to.high = static_cast<uint64_t>(part.high_key) ^ flip;
    low = number(part.low_key);
    high = number(part.high_key);
    // Differences from the middle of the extremes, which may be nearer to the mean than the origin is.
    const int64_t middle = centre(part.low_key, part.high_key);
    to.mean = number(middle) + (part.mean + difference(origin.key, middle));
  } else {
    to.low = bits_of(low);
    to.high = bits_of(high);
    const double middle = centre(low, high);
    to.mean = middle + (part.mean + (origin.value * part.scale - middle * part.scale)) / part.scale;
  }
  to.mean = larger(smaller(to.mean, high), low);  // rounding may have moved it outside
  if (part.finite > 1) {
    to.deviation = std::sqrt(part.squares / static_cast<double>(part.finite - 1)) / part.scale;
  }
}

// Counts finite elements that are near the limit of their dtype: in another pass, if the extremes say that
// there may be some.
inline int64_t count_near_limit(
    const Layout& layout, const Dimensions& dims, const char* data, const Measured& of) {
  const int32_t dtype = layout.dtype;
  const double half = elements::half_of_largest(dtype);
  if (half == 0 || of.finite <= 0) return 0;
  const double low = double_of(of.low), high = double_of(of.high);
  if (high <= half && low >= -half) return 0;
  const int size = elements::size(dtype);
  alignas(64) double values[block_elements];
  alignas(64) char room[block_elements * 2];
  Gather gather(dims, data, size);
  if (layout.numel) gather.seek(0);
  int64_t count = 0;
  for (int64_t done = 0; done < layout.numel; done += block_elements) {
    const int64_t left = layout.numel - done;
    const int some = left < block_elements ? static_cast<int>(left) : block_elements;
    gather.next(some, room);
    if (size == 1) {
      const double* table = table_of(dtype).values;
      for (int i = 0; i < some; ++i) values[i] = table[static_cast<unsigned char>(room[i])];
    } else {
      convert(dtype, room, some, values);
    }
    for (int i = 0; i < some; ++i) {
      count += is_finite(values[i]) && elements::is_near_limit(values[i], half, dtype);
    }
  }
  return count;
}

// Does `work(0)` to `work(count - 1)` in threads of the OpenMP library that torch has loaded, whatever compiler
// this was compiled with. False, with nothing done, if there is none.
template <class Work>
inline bool share(int64_t count, int threads, const Work& work) {
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  static const Parallel parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  if (!parallel) return false;
  struct Shared {
    const Work& work;
    const int64_t count;
    std::atomic<int64_t> next;
  } shared{work, count, {0}};
  auto take = [](void* of) {
    Shared& all = *static_cast<Shared*>(of);
    for (int64_t i; (i = all.next++) < all.count;) all.work(i);
  };
  parallel(take, &shared, static_cast<unsigned>(threads), 0);
  return true;
}

}  // namespace cpu

// Measures a tensor on the CPU. Elements are read as they are in memory: torch's bits for conjugate and
// negative views are ignored. With more than one thread, large tensors are shared among OpenMP's threads.
// False, with nothing measured, for more than 64 dimensions or an unknown dtype.
inline bool measure_on_cpu(const Layout& layout, const void* data, int threads, Measured& to) {
  Dimensions dims;
  const int size = elements::size(layout.dtype);
  if (!size || !dims.read(layout)) return false;
  const int64_t bytes = layout.numel * size;
  const int64_t tiles = (bytes + fingerprint::tile_bytes - 1) / fingerprint::tile_bytes;
  const int64_t least = (tiles + cpu::most_chunks - 1) / cpu::most_chunks;
  const int64_t chunk = least > cpu::chunk_tiles ? least : cpu::chunk_tiles;
  const int64_t chunks = (tiles + chunk - 1) / chunk;
  const cpu::Pass pass(layout, dims, static_cast<const char*>(data));
  auto measure = [&](int64_t i) {
    return pass.measure(i * chunk, (i + 1) * chunk < tiles ? (i + 1) * chunk : tiles);
  };
  cpu::Part all;
  if (chunks > 1 && threads > 1) {
    std::vector<cpu::Part> parts(static_cast<std::size_t>(chunks));
    if (cpu::share(chunks, threads, [&](int64_t i) { parts[static_cast<std::size_t>(i)] = measure(i); })) {
      for (const cpu::Part& part : parts) all.merge(part);
      cpu::finish(all, pass.origin(), layout.dtype, bytes, to);
      to.near_limit = cpu::count_near_limit(layout, dims, static_cast<const char*>(data), to);
      return true;
    }
  }
  for (int64_t i = 0; i < chunks; ++i) all.merge(measure(i));
  cpu::finish(all, pass.origin(), layout.dtype, bytes, to);
  to.near_limit = cpu::count_near_limit(layout, dims, static_cast<const char*>(data), to);
  return true;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
}  // namespace

// A tensor's facts and elements, read through the C shim.
namespace {
namespace inductor_rewriter {

struct Dtype {
  int32_t number;
  const char* name;
  int size;
  bool plain;  // whether its elements are numbers that we can read
  const char* type;  // its name in ATen's C++
};

constexpr Dtype dtype_table[] = {
    {dtypes::uint8, "uint8", 1, true, "Byte"},
    {dtypes::int8, "int8", 1, true, "Char"},
    {dtypes::int16, "int16", 2, true, "Short"},
    {dtypes::int32, "int32", 4, true, "Int"},
    {dtypes::int64, "int64", 8, true, "Long"},
    {dtypes::float16, "float16", 2, true, "Half"},
    {dtypes::float32, "float32", 4, true, "Float"},
    {dtypes::float64, "float64", 8, true, "Double"},
    {dtypes::complex32, "complex32", 4, true, "ComplexHalf"},
    {dtypes::complex64, "complex64", 8, true, "ComplexFloat"},
    {dtypes::complex128, "complex128", 16, true, "ComplexDouble"},
    {dtypes::boolean, "bool", 1, true, "Bool"},
    {dtypes::qint8, "qint8", 1, false, "QInt8"},
    {dtypes::quint8, "quint8", 1, false, "QUInt8"},
    {dtypes::qint32, "qint32", 4, false, "QInt32"},
    {dtypes::bfloat16, "bfloat16", 2, true, "BFloat16"},
    {dtypes::quint4x2, "quint4x2", 1, false, "QUInt4x2"},
    {dtypes::quint2x4, "quint2x4", 1, false, "QUInt2x4"},
    {dtypes::bits1x8, "bits1x8", 1, false, "Bits1x8"},
    {dtypes::bits2x4, "bits2x4", 1, false, "Bits2x4"},
    {dtypes::bits4x2, "bits4x2", 1, false, "Bits4x2"},
    {dtypes::bits8, "bits8", 1, false, "Bits8"},
    {dtypes::bits16, "bits16", 2, false, "Bits16"},
    {dtypes::float8_e5m2, "float8_e5m2", 1, true, "Float8_e5m2"},
    {dtypes::float8_e4m3fn, "float8_e4m3fn", 1, true, "Float8_e4m3fn"},
    {dtypes::float8_e5m2fnuz, "float8_e5m2fnuz", 1, true, "Float8_e5m2fnuz"},
    {dtypes::float8_e4m3fnuz, "float8_e4m3fnuz", 1, true, "Float8_e4m3fnuz"},
    {dtypes::uint16, "uint16", 2, true, "UInt16"},
    {dtypes::uint32, "uint32", 4, true, "UInt32"},
    {dtypes::uint64, "uint64", 8, true, "UInt64"},
    {dtypes::uint1, "uint1", 1, false, "UInt1"},
    {dtypes::uint2, "uint2", 1, false, "UInt2"},
    {dtypes::uint3, "uint3", 1, false, "UInt3"},
    {dtypes::uint4, "uint4", 1, false, "UInt4"},
    {dtypes::uint5, "uint5", 1, false, "UInt5"},
    {dtypes::uint6, "uint6", 1, false, "UInt6"},
    {dtypes::uint7, "uint7", 1, false, "UInt7"},
    {dtypes::int1, "int1", 1, false, "Int1"},
    {dtypes::int2, "int2", 1, false, "Int2"},
    {dtypes::int3, "int3", 1, false, "Int3"},
    {dtypes::int4, "int4", 1, false, "Int4"},
    {dtypes::int5, "int5", 1, false, "Int5"},
    {dtypes::int6, "int6", 1, false, "Int6"},
    {dtypes::int7, "int7", 1, false, "Int7"},
    {dtypes::float8_e8m0fnu, "float8_e8m0fnu", 1, true, "Float8_e8m0fnu"},
    {dtypes::float4_e2m1fn_x2, "float4_e2m1fn_x2", 1, false, "Float4_e2m1fn_x2"},
};
constexpr int32_t dtype_count = sizeof dtype_table / sizeof *dtype_table;

constexpr bool is_in_order() {
  for (int32_t i = 0; i < dtype_count; ++i) {
    if (dtype_table[i].number != i) return false;
  }
  return true;
}
static_assert(is_in_order(), "a row of the table is missing, or in another place");

inline const Dtype& dtype_info(int32_t dtype) {
  static const Dtype unknown = {-1, "unknown", 0, false, "Unknown"};
  return dtype >= 0 && dtype < dtype_count ? dtype_table[dtype] : unknown;
}

inline bool is_complex(int32_t dtype) {
  return dtype >= dtypes::complex32 && dtype <= dtypes::complex128;
}

// Integers that float64 cannot hold.
inline bool is_wide(int32_t dtype) {
  return dtype == dtypes::int64 || dtype == dtypes::uint64;
}

inline bool is_integer(int32_t dtype) {
  return (dtype >= dtypes::uint8 && dtype <= dtypes::int64) ||
      (dtype >= dtypes::uint16 && dtype <= dtypes::uint64);
}

// Names by number (c10::DeviceType).
inline std::string device_text(int32_t type, int32_t index) {
  static const char* const names[] = {
      "cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
      "fpga", "maia", "xla", "vulkan", "metal", "xpu", "mps",
      "meta", "hpu", "ve", "lazy", "ipu", "mtia", "privateuseone"};
  constexpr int32_t count = sizeof names / sizeof *names;
  std::string text = type >= 0 && type < count ? names[type] : "unknown";
  return index < 0 ? text : text + ":" + std::to_string(index);
}

inline void check(AOTITorchError error, const char* what) {
  if (error) throw std::runtime_error(std::string("cannot read a tensor: ") + what + " failed");
}

inline bool is_defined(AtenTensorHandle handle, int32_t dtype) {
  static const auto ask =
      find<AOTITorchError (*)(AtenTensorHandle, bool*)>("aoti_torch_is_defined");
  bool defined = true;
  if (ask) {
    check(ask(handle, &defined), "is_defined");
    return defined;
  }
  static const int32_t undefined = [] {
    Owned made;
    int32_t number = -1;
    aoti_torch_new_uninitialized_tensor(&made.handle);
    aoti_torch_get_dtype(made.handle, &number);
    return number;
  }();
  return dtype != undefined;
}

// The current facts of a value, from the shim. Pointers belong to the tensor or to the line.
struct Seen {
  bool is_present = false, is_tensor = false, is_strided = true;
  int32_t dtype = -1, device_type = 0, device_index = -1;
  int64_t dim = 0, offset = 0;
  const int64_t *sizes = nullptr, *strides = nullptr;
  AtenTensorHandle handle = nullptr;  // for a view, that of its base
  const char* data = nullptr;         // for an array
};

// Not present: a null handle, or an undefined tensor.
inline void look(const Content& content, Seen& seen) {
  seen = Seen();
  if (content.kind == Content::Kind::array) {
    const Array& array = content.array;
    seen.is_present = seen.is_tensor = true;
    seen.dtype = array.dtype;
    seen.device_type = array.device_type;
    if (array.device_type != aoti_torch_device_type_cpu()) seen.device_index = array.device_index;
    seen.dim = array.dim;
    seen.sizes = array.sizes;
    seen.strides = array.strides;
    seen.data = static_cast<const char*>(array.data);
    return;
  }
  AtenTensorHandle handle = content.handle;
  if (!handle) return;
  check(aoti_torch_get_dtype(handle, &seen.dtype), "get_dtype");
  if (!is_defined(handle, seen.dtype)) return;
  check(aoti_torch_get_device_type(handle, &seen.device_type), "get_device_type");
  check(aoti_torch_get_device_index(handle, &seen.device_index), "get_device_index");
  seen.handle = handle;
  if (content.kind == Content::Kind::view) {
    seen.dim = content.array.dim;
    seen.sizes = content.array.sizes;
    seen.strides = content.array.strides;
    seen.offset = content.offset;
    seen.is_present = seen.is_tensor = true;
    return;
  }
  int64_t *sizes = nullptr, *strides = nullptr;
  check(aoti_torch_get_dim(handle, &seen.dim), "get_dim");
  check(aoti_torch_get_sizes(handle, &sizes), "get_sizes");
  using GetLayout = AOTITorchError (*)(AtenTensorHandle, int32_t*);
  static const auto get_layout = find<GetLayout>("aoti_torch_get_layout");
  int32_t layout = 0;
  if (get_layout) {
    check(get_layout(handle, &layout), "get_layout");
    seen.is_strided = layout == aoti_torch_layout_strided();
  }
  if (seen.is_strided && aoti_torch_get_strides(handle, &strides)) seen.is_strided = false;
  seen.sizes = sizes;
  seen.strides = strides;
  seen.is_present = seen.is_tensor = true;
}

// Bytes from the first element to the end of the last one; strides are not negative.
inline int64_t extent(const Tensor& tensor) {
  int64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    last += (tensor.shape[i] - 1) * tensor.stride[i];
  }
  return (last + 1) * dtype_info(tensor.dtype).size;
}

// Facts that only depend on shape, strides, dtype and device.
inline void set_facts(const Seen& seen, Tensor& tensor) {
  tensor.dtype = seen.dtype;
  tensor.device = device_text(seen.device_type, seen.device_index);
  tensor.on_cpu = seen.device_type == aoti_torch_device_type_cpu();
  tensor.device_index = tensor.on_cpu ? -1 : seen.device_index;
  tensor.strided = seen.is_strided;
  tensor.shape.assign(seen.sizes, seen.sizes + seen.dim);
  tensor.stride.clear();
  if (seen.is_strided) tensor.stride.assign(seen.strides, seen.strides + seen.dim);
  tensor.numel = 1;
  for (int64_t size : tensor.shape) tensor.numel *= size;
  tensor.bytes = tensor.strided && tensor.numel ? extent(tensor) : 0;
}

// The address of its elements, if they are in memory.
inline void locate(const Seen& seen, Tensor& tensor) {
  tensor.handle = nullptr;
  tensor.data = nullptr;
  tensor.in_memory = false;
  constexpr int32_t meta = 14;
  const int size = dtype_info(seen.dtype).size;
  if (!tensor.strided || seen.device_type == meta || !size) return;
  if (!seen.handle) {
    tensor.data = seen.data;
    tensor.in_memory = tensor.on_cpu && (seen.data || !tensor.numel);
    return;
  }
  tensor.in_memory = !tensor.numel;
  if (tensor.in_memory) return;
  int64_t offset = 0, bytes = 0;
  void* data = nullptr;
  check(aoti_torch_get_storage_offset(seen.handle, &offset), "get_storage_offset");
  check(aoti_torch_get_storage_size(seen.handle, &bytes), "get_storage_size");
  if (bytes < (offset + seen.offset) * size + tensor.bytes) return;
  check(aoti_torch_get_data_ptr(seen.handle, &data), "get_data_ptr");
  if (data) tensor.data = static_cast<const char*>(data) + seen.offset * size;
  tensor.in_memory = data != nullptr;
}

// False if it is not a value.
inline bool read_tensor(const Content& content, Tensor& tensor) {
  Seen seen;
  look(content, seen);
  if (!seen.is_present) return false;
  set_facts(seen, tensor);
  locate(seen, tensor);
  return true;
}

struct Dimension {
  int64_t size, stride;
};

// The same elements in the same order, in as few dimensions as possible.
inline std::vector<Dimension> merge(const std::vector<Dimension>& all) {
  std::vector<Dimension> merged;
  for (const Dimension& next : all) {
    if (!merged.empty() && merged.back().stride == next.size * next.stride) {
      merged.back() = {merged.back().size * next.size, next.stride};
    } else {
      merged.push_back(next);
    }
  }
  return merged;
}

// The dimensions in memory order, as few as possible, without expanded ones; and how often the
// expanded ones repeat the elements.
inline std::vector<Dimension> distinct(
    const std::vector<int64_t>& shape, const std::vector<int64_t>& stride, int64_t& repeat) {
  std::vector<Dimension> all;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (!stride[i]) {
      repeat *= shape[i];
      continue;
    }
    std::size_t at = all.size();
    all.push_back({shape[i], stride[i]});
    for (; at && all[at - 1].stride < stride[i]; --at) std::swap(all[at], all[at - 1]);
  }
  return merge(all);
}

// Whether the elements fill a contiguous range of memory, without overlap.
inline bool is_dense(const Tensor& tensor) {
  int64_t repeat = 1;
  if (tensor.numel <= 1) return true;
  auto dims = distinct(tensor.shape, tensor.stride, repeat);
  return repeat == 1 && dims.size() == 1 && dims[0].stride == 1;
}

// The strides that a dense copy gets: at::infer_dense_strides in ATen/ExpandUtils.cpp.
inline std::vector<int64_t> dense_strides(const Tensor& tensor) {
  int dim = static_cast<int>(tensor.shape.size());
  std::vector<int> order(dim);
  for (int i = 0; i < dim; ++i) order[i] = dim - 1 - i;
  auto compare = [&](int a, int b) {
    int64_t first = tensor.stride[a], second = tensor.stride[b];
    if (!first || !second) return 0;
    if (first != second) return first < second ? -1 : 1;
    return tensor.shape[a] > tensor.shape[b] ? 1 : 0;
  };
  for (int i = 1; i < dim; ++i) {
    int at = i;
    for (int j = i - 1; j >= 0; --j) {
      int sign = compare(order[j], order[at]);
      if (sign < 0) break;
      if (sign > 0) {
        std::swap(order[j], order[at]);
        at = j;
      }
    }
  }
  std::vector<int64_t> strides(dim);
  int64_t next = 1;
  for (int place : order) {
    strides[place] = next;
    if (tensor.shape[place] > 1) next *= tensor.shape[place];
  }
  return strides;
}

}  // namespace inductor_rewriter
}  // namespace

// Copies a tensor's elements to the host, at most once per event.
namespace {
namespace inductor_rewriter {

// Copies are not recorded by autograd.
class NoGrad {
 public:
  NoGrad() { aoti_torch_grad_mode_set_enabled(false); }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  ~NoGrad() { aoti_torch_grad_mode_set_enabled(before_); }

 private:
  bool before_ = aoti_torch_grad_mode_is_enabled();
};

// A new tensor on the CPU with the same elements; waits for the copy.
inline void copy_to_cpu(
    AtenTensorHandle from, int32_t dtype, const std::vector<int64_t>& shape,
    const std::vector<int64_t>& stride, Host& host) {
  NoGrad guard;
  void* data = nullptr;
  check(
      aoti_torch_empty_strided(
          static_cast<int64_t>(shape.size()), shape.data(), stride.data(), dtype,
          aoti_torch_device_type_cpu(), 0, &host.owner.handle),
      "empty_strided");
  check(aoti_torch_copy_(host.owner.handle, from, 0), "copy_");
  check(aoti_torch_get_data_ptr(host.owner.handle, &data), "get_data_ptr");
  host.data = static_cast<const char*>(data);
  host.shape = shape;
  host.stride = stride;
}

// The handle of the tensor; for a view in the line, it is made here.
inline AtenTensorHandle handle_of(Item& item) {
  Tensor& tensor = item.tensor;
  if (tensor.handle || !item.base) return tensor.handle;
  check(
      aoti_torch__reinterpret_tensor(
          item.base, static_cast<int64_t>(tensor.shape.size()), tensor.shape.data(),
          tensor.stride.data(), item.offset, &item.view.handle),
      "reinterpret_tensor");
  return tensor.handle = item.view.handle;
}

// Makes `item.host` readable. With `whole`, it is a dense tensor that can be saved, with the
// strides of torch's own copy. Otherwise it has any strides: a tensor on the CPU is not copied, and
// the copy of one on a device takes no more memory than it has there, since expanded dimensions are
// copied once.
inline void fetch(Item& item, bool whole) {
  const Tensor& tensor = item.tensor;
  Host& host = item.host;
  if (host.ready && (host.whole || !whole)) return;
  bool dense = is_dense(tensor);
  // A complex tensor may be marked as conjugate, which only torch's copy sees.
  bool direct = tensor.on_cpu && (!whole || (dense && !is_complex(tensor.dtype)));
  AtenTensorHandle handle = direct || !tensor.numel ? nullptr : handle_of(item);
  host.owner.reset();
  if (!handle) {
    host.data = tensor.data;
    host.shape = tensor.shape;
    host.stride = tensor.stride;
  } else if (dense) {
    copy_to_cpu(handle, tensor.dtype, tensor.shape, tensor.stride, host);
  } else if (whole) {
    copy_to_cpu(handle, tensor.dtype, tensor.shape, dense_strides(tensor), host);
  } else {
    Owned view;
    std::vector<int64_t> sizes = tensor.shape, target(sizes.size());
    int64_t next = 1;
    for (std::size_t i = sizes.size(); i-- > 0; next *= sizes[i]) {
      if (!tensor.stride[i]) sizes[i] = 1;
      target[i] = next;
    }
    check(
        aoti_torch__reinterpret_tensor(
            handle, static_cast<int64_t>(sizes.size()), sizes.data(), tensor.stride.data(), 0,
            &view.handle),
        "reinterpret_tensor");
    copy_to_cpu(view.handle, tensor.dtype, sizes, target, host);
    host.shape = tensor.shape;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != tensor.shape[i]) host.stride[i] = 0;
    }
  }
  host.ready = true;
  host.whole = whole;
}

}  // namespace inductor_rewriter
}  // namespace

// Guard bands: memory before and after a buffer that holds a pattern, and that no kernel may write. They
// are compared after launches, on the host or by a kernel of the GPU (memory_kernels.h); the first damage
// of each band is recorded. The same kernel fills memory with patterns.
namespace {
namespace inductor_rewriter {

constexpr int most_bands = 120;     // that one launch compares
constexpr int few_bands = 24;       // for a launch with fewer bytes of arguments, which is issued faster
constexpr int most_damaged = 4096;  // records of damage; the first one counts the damaged bands

struct Band {
  const unsigned char* data;
  uint64_t pattern;  // byte `address % 8` of it is expected at each address
  uint32_t bytes;
  uint16_t slot;       // the index of its record of damage
  uint8_t before;      // 1: before its buffer, 0: after it
  uint8_t item_bytes;  // size of an element of the buffer
};

// The record of a band's damage. `launch` is 0 while the band is whole, otherwise the index of the launch
// after which it was not, plus 1. `distance` is from the edge of the buffer to the nearest damaged byte,
// `element` the element there, and `count` how many bytes are damaged.
struct Damage {
  uint64_t launch, distance, count;
  unsigned char element[8];
};

// Memory to be filled with a pattern.
struct Filled {
  unsigned char* data;
  uint64_t bytes, pattern;
};
constexpr int most_filled = 16;  // that one launch fills

// The argument of a launch that compares bands after a launch of the model and fills memory, in no
// particular order.
template <int most>
struct MemoryJobOf {
  Damage* damage;
  uint64_t launch;
  uint32_t bands_count, parts_count;
  uint32_t blocks, unused;  // how many blocks fill memory
  Filled parts[most_filled];
  Band bands[most];
};
using MemoryJob = MemoryJobOf<most_bands>;
using SmallMemoryJob = MemoryJobOf<few_bands>;  // the beginning of a MemoryJob
static_assert(sizeof(MemoryJob) <= 4096, "the limit for arguments of a launch");

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)

inline unsigned char expected_byte(const Band& band, const unsigned char* at) {
  return static_cast<unsigned char>(band.pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
}

inline bool is_whole(const Band& band) {
  const unsigned char* at = band.data;
  const unsigned char* const end = at + band.bytes;
  for (; at < end && reinterpret_cast<uintptr_t>(at) % 8; ++at) {
    if (*at != expected_byte(band, at)) return false;
  }
  uint64_t differs = 0;
  for (; at + 8 <= end; at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    differs |= word ^ band.pattern;
  }
  for (; at < end; ++at) differs |= static_cast<uint64_t>(*at ^ expected_byte(band, at));
  return !differs;
}

// Compares bands in host memory. Returns how many are damaged and were not before.
inline int compare_bands(const Band* bands, int count, uint64_t launch, Damage* damage) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    const Band& band = bands[i];
    Damage& mine = damage[band.slot];
    if (mine.launch || is_whole(band)) continue;
    uint64_t nearest = band.bytes;
    mine.count = 0;
    for (uint32_t place = 0; place < band.bytes; ++place) {
      if (band.data[place] == expected_byte(band, band.data + place)) continue;
      const uint64_t distance = band.before ? band.bytes - 1 - place : place;
      nearest = distance < nearest ? distance : nearest;
      ++mine.count;
    }
    mine.distance = nearest;
    const uint64_t item = band.item_bytes ? band.item_bytes : 1, element = nearest / item;
    const uint64_t start = band.before ? band.bytes - (element + 1) * item : element * item;
    for (uint64_t i_byte = 0; i_byte < 8; ++i_byte) {
      mine.element[i_byte] = i_byte < item && start + i_byte < band.bytes
          ? band.data[start + i_byte] : static_cast<unsigned char>(0);
    }
    mine.launch = launch;
    ++found;
  }
  return found;
}

// Fills host memory, as the kernel fills a GPU's.
inline void fill_memory(void* data, uint64_t bytes, uint64_t pattern) {
  unsigned char* at = static_cast<unsigned char*>(data);
  unsigned char* const end = at + bytes;
  for (; at < end && reinterpret_cast<uintptr_t>(at) % 8; ++at) {
    *at = static_cast<unsigned char>(pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
  }
  for (; at + 8 <= end; at += 8) std::memcpy(at, &pattern, 8);
  for (; at < end; ++at) {
    *at = static_cast<unsigned char>(pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
  }
}

// Does a job in host memory. Returns how many bands are damaged and were not before.
inline int act_on_host(const MemoryJob& job) {
  const int found =
      compare_bands(job.bands, static_cast<int>(job.bands_count), job.launch, job.damage);
  for (uint32_t part = 0; part < job.parts_count; ++part) {
    fill_memory(job.parts[part].data, job.parts[part].bytes, job.parts[part].pattern);
  }
  return found;
}

// Compares any number of bands, with as many jobs as that takes. False if `act` failed.
template <class Act>
bool compare_all(const Band* bands, std::size_t count, uint64_t launch, Act act) {
  MemoryJob job = {};
  job.launch = launch;
  for (std::size_t done = 0; done < count; done += job.bands_count) {
    job.bands_count = static_cast<uint32_t>(std::min<std::size_t>(count - done, most_bands));
    std::memcpy(job.bands, bands + done, sizeof(Band) * job.bands_count);
    if (!act(job)) return false;
  }
  return true;
}

// Collects what successive lines of a wrapper do to memory, as long as nothing runs between them that
// reads or writes memory; one job then does all of it. A job has no order, so its parts never overlap.
// Callers keep the memory alive until the job is done.
class MemoryWork {
 public:
  bool is_empty() const { return !job_.bands_count && !job_.parts_count; }

  // Whether this memory can be filled by the same job.
  bool takes(const Filled* parts, int count, int device, void* stream) const {
    if (is_empty()) return count <= most_filled;
    if (device != device_ || stream != stream_) return false;
    if (job_.parts_count + static_cast<uint32_t>(count) > most_filled) return false;
    for (int i = 0; i < count; ++i) {
      if (overlaps(parts[i].data, parts[i].bytes)) return false;
    }
    return true;
  }
  // Adds memory to fill. `probe` is which probe asked for it, for `filled`.
  void fill(const Filled* parts, int count, int device, void* stream, int probe) {
    device_ = device;
    stream_ = stream;
    for (int i = 0; i < count; ++i) job_.parts[job_.parts_count++] = parts[i];
    ++filled_[probe];
  }
  // Whether the job can compare so many bands: it has to be empty.
  bool takes_bands(std::size_t count) const { return is_empty() && count <= most_bands; }
  void compare(const Band* bands, std::size_t count, uint64_t launch, int device, void* stream) {
    device_ = device;
    stream_ = stream;
    job_.launch = launch;
    job_.bands_count = static_cast<uint32_t>(count);
    std::memcpy(job_.bands, bands, sizeof(Band) * count);
  }

  MemoryJob& job() { return job_; }
  int device() const { return device_; }
  void* stream() const { return stream_; }
  // Whether the job compares bands, and how often it fills memory for a probe.
  bool compares() const { return job_.bands_count; }
  int filled(int probe) const { return filled_[probe]; }
  // Starts an empty job.
  void clear() {
    forget_parts();
    job_.bands_count = 0;
  }
  // Fills nothing after all.
  void forget_parts() {
    job_.parts_count = 0;
    for (int& count : filled_) count = 0;
  }

 private:
  bool overlaps(const unsigned char* data, uint64_t bytes) const {
    const auto meets = [&](const unsigned char* other, uint64_t length) {
      return data < other + length && other < data + bytes;
    };
    for (uint32_t i = 0; i < job_.parts_count; ++i) {
      if (meets(job_.parts[i].data, job_.parts[i].bytes)) return true;
    }
    for (uint32_t i = 0; i < job_.bands_count; ++i) {
      if (meets(job_.bands[i].data, job_.bands[i].bytes)) return true;
    }
    return false;
  }

  MemoryJob job_ = {};
  int filled_[3] = {};  // index: bounds, poison, stale
  int device_ = -1;
  void* stream_ = nullptr;
};

#endif

}  // namespace inductor_rewriter
}  // namespace

// The arguments of the GPU's kernels, and the rows that they write.
namespace {
namespace inductor_rewriter {

namespace gpu {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int most_dims = 8;
constexpr int most_tasks = 16;
constexpr int row_words = 16;

// The result for the elements of one block, and of one row. `sum` and `squares` are of the differences
// from `shift`, times a scale; for int64 and uint64 `shift` is a key.
struct Sum {
  uint64_t nan, positive, negative;
  int64_t low, high;  // extremes as keys, which order as the elements do: int64, or bits of float64
  uint64_t shift;     // the bits of float64, or a key
  double sum, squares;
  uint64_t first, second;  // of the fingerprint
  uint64_t scale;          // which scale: 0 for small values, 1 for none, 2 for large values
  uint64_t near_limit;     // how many elements are near the dtype's limit (elements.h)
};
struct alignas(16) Part {  // a Sum as words; `scale` and `near_limit` share one
  uint64_t words[12];
};

// One tensor of a launch.
struct Task {
  const char* data;
  int64_t numel;
  int64_t whole;      // how many vectors of 16 bytes are complete
  uint64_t* row;      // `row_words` words in host memory
  uint64_t* replays;  // counts the replays of a captured launch; null otherwise
  Part* parts;        // partial results, one for each block
  uint32_t* counter;  // counts finished blocks; 0 between launches
  uint64_t sequence;
  int32_t dtype;
  int32_t dims;    // how many of `size` and `stride` are used, in row-major order; strides in elements
  uint32_t units;  // how many tiles of the fingerprint, or quarters of tiles
  uint32_t first_block, blocks;
  uint16_t direct;  // 1: contiguous and aligned
  uint16_t split;   // 2: units are quarters of tiles, and blocks have one each; 0: tiles
  int64_t size[most_dims], stride[most_dims];
};

struct Job {
  int64_t count;
  Task tasks[most_tasks];
};
static_assert(sizeof(Job) <= 4096, "the limit for arguments of a launch");

// Sixteen bytes: elements, or a piece of a partial result.
struct alignas(16) Vector {
  uint64_t first, second;
};

// The quick kernel takes the common case: a few tensors of float32, float16 or bfloat16 that are
// contiguous, or whose innermost dimension is a whole number of vectors. Its blocks write partial results,
// which the merging kernel combines later, for many tensors at once, so that the model does not wait for
// merging. A partial result is five vectors, each of three words of 32 bits and a mark that says which row
// it is for; `parts` has the first vectors of all blocks, then the second ones, and so on.
// Tensors of few elements, of any dtype, are not measured on the GPU: the kernel copies their bytes into
// the row, and the host measures them.
constexpr int quick_tasks = 12;
constexpr int quick_vectors = 5;
constexpr int most_parted = 32;         // tensors that are merged at once
constexpr int most_carried_words = 12;  // how many words of a row can hold elements
constexpr uint32_t carried = 16;        // `split` of tensors whose elements the row holds

struct QuickTask {
  const char* data;
  int64_t numel;
  int64_t whole;
  uint64_t* row;
  Vector* parts;
  uint64_t sequence;
  int32_t dtype;
  uint32_t units;
  uint32_t first_block, blocks;
  uint32_t split;
};

// Division by `size` as a multiplication: n / size is n * factor >> (31 + shift), for n below 2^31.
struct Divisor {
  uint32_t size, factor, shift;
};

// Where the vectors of a tensor lie in memory: in runs, which three indices address, the last one first.
// Strides are in vectors, or in elements where the elements of a vector are `apart`.
struct QuickRows {
  enum : uint32_t { contiguous, aligned, apart };
  uint32_t kind;
  Divisor run, sizes[2];
  uint32_t strides[3];
  uint32_t step;        // stride between the elements of a vector
  uint32_t by_columns;  // 1: neighbouring rows are closer in memory than neighbouring elements
  // Division by the number of vectors in a column of a unit, and by that number plus 1: 2^28 divided by
  // it. Second row: the same for the last unit.
  uint32_t factors[2][2];
};

struct QuickJob {
  uint32_t count;
  QuickTask tasks[quick_tasks];
  QuickRows rows[quick_tasks];
};
static_assert(sizeof(QuickJob) <= 4096, "the limit for arguments of a launch");

// A launch that measures tensors, and then compares guard bands and fills memory. The first `blocks`
// blocks measure; each adds 1 to `measured` when it has finished. The counter is that of all such
// launches on one stream; the other blocks wait until it is `until`.
struct JoinedJob {
  QuickJob quick;
  SmallMemoryJob memory;
  uint32_t* measured;
  uint32_t blocks, until;
};
static_assert(sizeof(JoinedJob) <= 4096, "the limit for arguments of a launch");

// A launch of the merging kernel. With `checks` it writes no row for a tensor whose partial results have
// not come yet, or were replaced by those of another tensor.
struct MergeJob {
  uint32_t count, checks;
  QuickTask tasks[most_parted];
};

INDUCTOR_REWRITER_SHARED constexpr uint32_t part_mark(uint64_t sequence) {
  return static_cast<uint32_t>(sequence) | 0x80000000u;  // never 0, which memory holds at first
}

// A row: the words of Sum, or the elements themselves; then the number of elements, the dtype, the
// sequence number, and a checksum of all these words, which shows that the row is complete.
constexpr int numel_word = 12, dtype_word = 13, sequence_word = 14, checksum_word = 15;
constexpr uint64_t has_elements = uint64_t{1} << 32;  // flag beside the dtype: it holds the elements

INDUCTOR_REWRITER_SHARED constexpr uint64_t checked(uint64_t word, int place) {
  return (word ^ word >> 32 ^ fingerprint::golden) * (fingerprint::golden * (2 * place + 1));
}
INDUCTOR_REWRITER_SHARED inline uint64_t checksum(const uint64_t* row) {
  uint64_t sum = 0;
  for (int i = 0; i < checksum_word; ++i) sum += checked(row[i], i);
  return sum;
}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace

// Rows of measurements in host memory that the GPU's kernel writes to by itself.
//
// A row is there when it has the sequence number that is waited for, and a checksum that is right:
// no fence, no event and no copy, and what was measured can still be read after the device failed.
namespace {
namespace inductor_rewriter {

// The measurement of a tensor whose elements are in the row itself.
inline Measured measure_carried(const uint64_t* words) {
  const int64_t numel = static_cast<int64_t>(words[gpu::numel_word]), stride = 1;
  const int32_t dtype = static_cast<int32_t>(words[gpu::dtype_word] & 0xffffffffu);
  Measured measured{};
  measure_on_cpu({dtype, 1, numel, &numel, &stride, -1}, words, 1, measured);
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
  auto value = [](int64_t key) {
    return double_of(static_cast<uint64_t>(key ^ (key >> 63 & 0x7fffffffffffffff)));
  };
  part.low_key = sums.low;
  part.high_key = sums.high;
  part.low = value(sums.low);
  part.high = value(sums.high);
  part.scale = sums.scale == 1 ? 1.0 : sums.scale ? 0x1p-600 : 0x1p600;
  if (part.finite) {
    part.mean = sums.sum / static_cast<double>(part.finite);
    part.squares = cpu::larger(sums.squares - sums.sum * part.mean, 0);
  }
  part.total = {sums.first, sums.second};
  cpu::Origin origin;
  origin.value = double_of(sums.shift);
  origin.key = static_cast<int64_t>(sums.shift);
  Measured measured;
  cpu::finish(part, origin, dtype, numel * elements::size(dtype), measured);
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

// Rows by sequence number, from 1 on. One thread at a time may reserve rows, and one read and release.
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

  // Releases all rows up to this one: they were read, or nobody will read them.
  void release(uint64_t sequence) { released_.store(sequence, std::memory_order_release); }

 private:
  uint64_t* rows_ = nullptr;
  uint64_t next_ = 1;
  uint64_t free_below_ = 0;  // `released_` when it was last read
  std::atomic<uint64_t> released_{0};
};

// Finds which rows can be released where several threads read them, and finish in any order.
class ClosedRows {
 public:
  // `count` rows from `first` on were read. Returns the last row up to which all rows were read.
  uint64_t add(uint64_t first, uint32_t count) {
    waiting_[first % Ring::capacity] = count;
    while (const uint32_t some = waiting_[next_ % Ring::capacity]) {
      waiting_[next_ % Ring::capacity] = 0;
      next_ += some;
    }
    return next_ - 1;
  }

 private:
  uint64_t next_ = 1;  // the first row that was not read
  uint32_t waiting_[Ring::capacity] = {};  // by row: how many rows were read from it on, after `next_`
};

}  // namespace inductor_rewriter
}  // namespace

// How the GPU's kernels split a tensor among blocks.
namespace {
namespace inductor_rewriter {

namespace gpu {

constexpr int blocks_per_processor = 2;  // blocks that run at once, by the kernel's launch bounds
constexpr int few = threads;             // partial results that a block merges in one step
constexpr int64_t large_bytes = 64 << 20;
// Tensors of up to so many tiles are split into quarters of tiles, also when the launch measures others.
// Quarters keep the whole device busy with a single tensor, but starting and ending a block takes longer
// than reading a quarter: with whole tiles, measuring a pass of the GPT of benchmarks/probes.py takes 843
// us in place of 951 (H200).
constexpr int64_t few_tiles = 32;

inline int most_blocks(int processors) {
  return processors * blocks_per_processor > few ? processors * blocks_per_processor : few;
}

// Sets what a task says of a tensor. False if the kernel cannot read it.
inline bool make_task(const Layout& layout, const void* data, int processors, Task& task) {
  Dimensions dims;
  const int size = elements::size(layout.dtype);
  if (!size || layout.numel < 0 || !dims.read(layout) || dims.count > most_dims) return false;
  const auto address = reinterpret_cast<uintptr_t>(data);
  task.data = static_cast<const char*>(data);
  task.numel = layout.numel;
  task.dtype = layout.dtype;
  task.direct = dims.is_contiguous() && address % 16 == 0 ? 1 : 0;
  task.dims = dims.count;
  for (int i = 0; i < dims.count; ++i) {
    task.size[i] = dims.size[i];
    task.stride[i] = dims.stride[i];
  }
  const int64_t bytes = layout.numel * size;
  const int64_t tiles = (bytes + fingerprint::tile_bytes - 1) / fingerprint::tile_bytes;
  task.split = 4 * tiles <= few ? 2 : 0;
  const int64_t unit = fingerprint::tile_bytes >> task.split;
  const int64_t units = (bytes + unit - 1) / unit;
  task.units = static_cast<uint32_t>(units);
  task.whole = bytes / fingerprint::vector_bytes;
  const int64_t most = bytes < large_bytes ? int64_t{few} : int64_t{most_blocks(processors)};
  task.blocks = static_cast<uint32_t>(units < 1 ? 1 : units < most ? units : most);
  return true;
}

inline bool fits(int64_t stride) { return stride >= 0 && stride >> 31 == 0; }

inline Divisor make_divisor(int64_t size) {
  Divisor result = {static_cast<uint32_t>(size), 0, 0};
  while (int64_t{1} << result.shift < size) ++result.shift;
  result.factor = static_cast<uint32_t>(((uint64_t{1} << (31 + result.shift)) - 1) / size + 1);
  return result;
}

// Sets where the vectors of a strided tensor lie. False if it cannot be read in vectors.
inline bool make_quick_rows(const Dimensions& dims, int size, bool is_aligned, QuickRows& rows) {
  if (dims.count < 1 || dims.count > 4) return false;
  const int last = dims.count - 1, per = 16 / size;
  if (dims.size[last] % per || !fits(dims.stride[last])) return false;
  rows.kind = is_aligned && dims.stride[last] == 1 ? QuickRows::aligned : QuickRows::apart;
  for (int i = 0; i < last; ++i) {
    if (!fits(dims.stride[i])) return false;
    if (dims.stride[i] % per) rows.kind = QuickRows::apart;
  }
  rows.run = make_divisor(dims.size[last] / per);
  rows.step = static_cast<uint32_t>(dims.stride[last]);
  const int unit = rows.kind == QuickRows::aligned ? per : 1;
  for (int i = 0; i < last; ++i) {
    const int dim = last - 1 - i;
    if (i + 1 < last) rows.sizes[i] = make_divisor(dims.size[dim]);
    rows.strides[i] = static_cast<uint32_t>(dims.stride[dim] / unit);
  }
  rows.by_columns = last > 0 && dims.stride[last - 1] < dims.stride[last];
  return true;
}

// Sets the factors that divide by the height of a column, for a unit of so many vectors.
inline void make_factors(uint32_t vectors, const QuickRows& rows, uint32_t (&factors)[2]) {
  const uint32_t height = rows.by_columns ? vectors / rows.run.size : 0;
  for (uint32_t i = 0; i < 2; ++i) {
    factors[i] = height + i ? ((1u << 28) + height + i - 1) / (height + i) : 0;
  }
}

// Sets what a quick task says of a tensor. False if the quick kernel cannot measure it, or not quickly.
// `with_others`: the launch measures other tensors too, which keep the device busy.
inline bool make_quick_task(
    const Layout& layout, const void* data, bool with_others, QuickTask& task, QuickRows& rows) {
  int64_t step = 1;
  bool is_contiguous = true;
  for (int i = layout.dim; i-- > 0;) {
    is_contiguous = is_contiguous && (layout.shape[i] == 1 || layout.stride[i] == step);
    step *= layout.shape[i];
  }
  rows = {};
  const int size = elements::size(layout.dtype);
  const int64_t bytes = layout.numel * size;
  if (size && (!bytes || (is_contiguous && bytes > 0 && bytes <= most_carried_words * 8))) {
    task.data = static_cast<const char*>(data);
    task.numel = layout.numel;
    task.whole = bytes;
    task.dtype = layout.dtype;
    task.split = carried;
    task.units = 0;  // no partial results
    task.blocks = 1;
    return true;
  }
  switch (layout.dtype) {
    case dtypes::float32: case dtypes::bfloat16: case dtypes::float16: break;
    default: return false;
  }
  if (bytes <= 0 || bytes > large_bytes) return false;
  const bool is_aligned = reinterpret_cast<uintptr_t>(data) % 16 == 0;
  if (!is_contiguous || !is_aligned) {
    Dimensions dims;
    if (!dims.read(layout) || !make_quick_rows(dims, size, is_aligned, rows)) return false;
  }
  const int64_t tiles = (bytes + fingerprint::tile_bytes - 1) / fingerprint::tile_bytes;
  task.data = static_cast<const char*>(data);
  task.numel = layout.numel;
  task.whole = bytes / fingerprint::vector_bytes;
  task.dtype = layout.dtype;
  task.split = tiles <= (with_others ? few_tiles : few / 4) ? 2 : 0;
  const int64_t unit = fingerprint::tile_bytes >> task.split;
  task.units = static_cast<uint32_t>((bytes + unit - 1) / unit);
  task.blocks = task.units;
  if (rows.kind == QuickRows::apart) {
    const uint32_t whole = static_cast<uint32_t>(task.whole);
    const uint32_t length = static_cast<uint32_t>(unit / fingerprint::vector_bytes);
    make_factors(length, rows, rows.factors[0]);
    make_factors(whole - (task.units - 1) * length, rows, rows.factors[1]);
  }
  return true;
}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace

// Measures tensors on a GPU: finds the driver and the compiler in the process, compiles the kernels
// once per machine, and launches them. Nothing is linked. Apart from `start`, nothing waits for the
// device or takes memory from it.
//
// Two things are deferred. Tensors whose memory nobody writes or frees soon wait, and are measured by
// the same launch as the tensors that come next. And the quick kernel leaves partial results, one for
// each block, which a merging kernel later combines into rows: when there is no room for more of them,
// or on demand (`merge`). When no launch follows for a while, the thread that waits for a row measures
// what is deferred, and merges it on the default stream into rows of its own (`find`).
namespace {
namespace inductor_rewriter {

namespace gpu {

// Functions of the driver, with their names in CUDA and in HIP. Handles are pointers, sizes are size_t,
// device memory is an integer of pointer size. HIP was never tried on a device.
struct Driver {
  bool is_hip = false;
  int (*get_context)(void**) = nullptr;
  int (*set_context)(void*) = nullptr;
  int (*get_device)(int*) = nullptr;
  int (*get_attribute)(int*, int, int) = nullptr;
  int (*allocate)(uintptr_t*, std::size_t) = nullptr;
  int (*clear)(uintptr_t, unsigned char, std::size_t) = nullptr;
  int (*allocate_host)(void**, std::size_t, unsigned) = nullptr;
  int (*get_device_pointer)(uintptr_t*, void*, unsigned) = nullptr;
  int (*load)(void**, const void*) = nullptr;
  int (*get_function)(void**, void*, const char*) = nullptr;
  int (*launch)(
      void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
      void**) = nullptr;
  int (*launch_with)(const void*, void*, void**, void**) = nullptr;  // with attributes; may be null
  int (*is_capturing)(void*, int*) = nullptr;
  int (*synchronize)(void*) = nullptr;
  int (*get_error)(int, const char**) = nullptr;

  std::string find() {
    void* library = nullptr;
    for (const char* name : {"libcuda.so.1", "libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.7"}) {
      library = dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
      is_hip = name[3] == 'a';
      if (library) break;
    }
    if (!library) return "no driver of a GPU is loaded";
    struct Name {
      void* to;
      const char* cuda;
      const char* hip;
    };
    const Name names[] = {
        {&get_context, "cuCtxGetCurrent", "hipCtxGetCurrent"},
        {&set_context, "cuCtxSetCurrent", "hipCtxSetCurrent"},
        {&get_device, "cuCtxGetDevice", "hipGetDevice"},
        {&get_attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute"},
        {&allocate, "cuMemAlloc_v2", "hipMalloc"},
        {&clear, "cuMemsetD8_v2", "hipMemsetD8"},
        {&allocate_host, "cuMemHostAlloc", "hipHostMalloc"},
        {&get_device_pointer, "cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer"},
        {&load, "cuModuleLoadData", "hipModuleLoadData"},
        {&get_function, "cuModuleGetFunction", "hipModuleGetFunction"},
        {&launch, "cuLaunchKernel", "hipModuleLaunchKernel"},
        {&is_capturing, "cuStreamIsCapturing", "hipStreamIsCapturing"},
        {&synchronize, "cuStreamSynchronize", "hipStreamSynchronize"},
        {&get_error, "cuGetErrorString", "hipDrvGetErrorString"},
    };
    for (const Name& name : names) {
      void* function = dlsym(library, is_hip ? name.hip : name.cuda);
      if (!function) return std::string("the driver lacks ") + (is_hip ? name.hip : name.cuda);
      std::memcpy(name.to, &function, sizeof function);
    }
    if (!is_hip) {
      void* function = dlsym(library, "cuLaunchKernelEx");
      std::memcpy(&launch_with, &function, sizeof function);
    }
    return "";
  }

  std::string describe(const char* what, int code) const {
    const char* text = nullptr;
    if (!get_error || get_error(code, &text) || !text) text = "unknown error";
    return std::string(what) + ": " + text;
  }
};

// NVRTC or hipRTC, the compiler that torch ships: already loaded, or found beside torch's libraries.
struct Compiler {
  int (*version)(int*, int*) = nullptr;
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*) =
      nullptr;
  int (*compile)(void*, int, const char* const*) = nullptr;
  int (*get_log_size)(void*, std::size_t*) = nullptr;
  int (*get_log)(void*, char*) = nullptr;
  int (*get_code_size)(void*, std::size_t*) = nullptr;
  int (*get_code)(void*, char*) = nullptr;
  int (*destroy)(void**) = nullptr;

  // `torch` is the directory of torch's libraries.
  std::string find(const std::string& torch, bool is_hip) {
    void* library = open(torch, is_hip);
    if (!library) return is_hip ? "no libhiprtc.so was found" : "no libnvrtc.so was found";
    struct Name {
      void* to;
      const char* cuda;
      const char* hip;
    };
    const Name names[] = {
        {&version, "nvrtcVersion", "hiprtcVersion"},
        {&create, "nvrtcCreateProgram", "hiprtcCreateProgram"},
        {&compile, "nvrtcCompileProgram", "hiprtcCompileProgram"},
        {&get_log_size, "nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize"},
        {&get_log, "nvrtcGetProgramLog", "hiprtcGetProgramLog"},
        {&get_code_size, "nvrtcGetCUBINSize", "hiprtcGetCodeSize"},
        {&get_code, "nvrtcGetCUBIN", "hiprtcGetCode"},
        {&destroy, "nvrtcDestroyProgram", "hiprtcDestroyProgram"},
    };
    for (const Name& name : names) {
      void* function = dlsym(library, is_hip ? name.hip : name.cuda);
      if (!function) return std::string("the compiler lacks ") + (is_hip ? name.hip : name.cuda);
      std::memcpy(name.to, &function, sizeof function);
    }
    return "";
  }

 private:
  static void* open(const std::string& torch, bool is_hip) {
    const std::vector<std::string> names = is_hip
        ? std::vector<std::string>{"libhiprtc.so", "libhiprtc.so.6", "libhiprtc.so.7"}
        : std::vector<std::string>{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
    auto first = [&](int flags) -> void* {
      for (const std::string& name : names) {
        if (void* library = dlopen(name.c_str(), flags)) return library;
      }
      return nullptr;
    };
    if (void* library = first(RTLD_NOLOAD | RTLD_LAZY)) return library;
    // A library of torch is linked with the compiler, so it has the compiler's path.
    if (!is_hip && dlopen((torch + "/libcaffe2_nvrtc.so").c_str(), RTLD_LAZY)) {
      if (void* library = first(RTLD_NOLOAD | RTLD_LAZY)) return library;
    }
    for (const std::string& name : names) {
      const std::string beside = torch + "/" + name;
      if (void* library = dlopen(beside.c_str(), RTLD_LAZY)) return library;
      glob_t found;
      void* library = nullptr;
      if (!glob((torch + "/../../nvidia/*/lib/" + name).c_str(), 0, nullptr, &found)) {
        library = dlopen(found.gl_pathv[0], RTLD_LAZY);
        globfree(&found);
      }
      if (library) return library;
    }
    return first(RTLD_LAZY);
  }
};

// Which compiler would be used, such as "NVRTC 12.9", or why there is none. Works without a device.
inline std::string describe_compiler(const std::string& torch, bool is_hip) {
  Compiler compiler;
  const std::string problem = compiler.find(torch, is_hip);
  if (!problem.empty()) return problem;
  int major = 0, minor = 0;
  compiler.version(&major, &minor);
  return std::string(is_hip ? "hipRTC " : "NVRTC ") + std::to_string(major) + "." +
      std::to_string(minor);
}

}  // namespace gpu

// The GPU of the current context: one object per device, which one thread uses at a time.
class Gpu {
 public:
  static constexpr int regions = 16;               // streams and captures that measure
  static constexpr uint64_t captured_rows = 8192;  // of all graphs

  // The kernel is compiled without the standard library.
  static constexpr const char* integers =
      "typedef signed char int8_t; typedef unsigned char uint8_t;\n"
      "typedef short int16_t; typedef unsigned short uint16_t;\n"
      "typedef int int32_t; typedef unsigned int uint32_t;\n"
      "typedef long long int64_t; typedef unsigned long long uint64_t;\n";

  // Compiles and loads the kernels and takes memory, the first time. Must be called before a CUDA graph
  // is captured. `source` is the text of the kernels, `torch` the directory of torch's libraries, `cache`
  // a directory for compiled kernels, or empty. False: it failed, and `problem` says why.
  bool start(const char* source, const std::string& torch, const std::string& cache) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!tried_) {
      tried_ = true;
      problem_ = prepare(source, torch, cache);
    }
    return problem_.empty();
  }

  bool is_started() const { return tried_ && problem_.empty(); }
  const std::string& problem() const { return problem_; }
  // Which compiler compiled the kernels, such as "NVRTC 12.9", and whether they came from the cache.
  const std::string& about() const { return about_; }

  Ring ring;

  // How soon tensors are measured and their rows are written.
  //   at_once: measured and merged by this launch.
  //   soon: measured by this launch, merged later or when `find` asks for a row.
  //   together: the launch itself may be deferred to the next `measure` or `settle`, since nobody writes
  //   or frees the memory before that.
  enum class When { at_once, soon, together };

  // Measures `count` tensors on a stream that is not being captured, into reserved rows from `first_row`
  // on. False: it failed, and nothing was launched.
  bool measure(
      const Layout* const* layouts, const void* const* data, int count, void* stream,
      uint64_t first_row, When when = When::soon) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (when == When::at_once) {
      launch_gathered();
      return issue(layouts, data, count, stream, false, first_row);
    }
    // All tensors are checked before the first launch, so that none is measured if one cannot be.
    if (count > gpu::quick_tasks && !can_read(layouts, data, count)) return false;
    for (int done = 0; done < count; done += gpu::quick_tasks) {
      const int some = count - done < gpu::quick_tasks ? count - done : gpu::quick_tasks;
      const uint64_t first = first_row + static_cast<uint64_t>(done);
      if (gather(layouts + done, data + done, some, stream, first, when)) continue;
      if (!issue(layouts + done, data + done, some, stream, false, first)) return false;
    }
    const bool waits = when == When::together && keeps_memory() && gathered_vectors_ < most_gathered_;
    return waits || launch_gathered();
  }

  // Launches what is deferred. After it on the stream, the tensors may be written or freed.
  void settle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!quick_job_.count) return;
    const Current current(driver_, context_);  // another device may be current
    launch_gathered();
  }

  static constexpr int64_t patience = 1000000;  // nanoseconds

  inline static std::atomic<int> gathering{0};  // GPUs with deferred tensors: `settle` launches them

  // Launches what is deferred, and merges all partial results, each on its own stream.
  void merge() {
    const std::lock_guard<std::mutex> lock(mutex_);
    launch_gathered();
    for (int i = 0; i < used_; ++i) merge(regions_[i]);
  }

  // Reads a row; false if it is not there yet. `waited` is for how many nanoseconds the caller has waited
  // for it: after `patience` no launch is expected to follow, so this one measures and merges it, with
  // all other partial results of its stream.
  bool find(uint64_t sequence, int64_t waited, Measured& to) {
    if (ring.read(sequence, to)) return true;
    if (waited < patience && !late_.load(std::memory_order_relaxed)) return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (gathers(sequence)) {
      if (waited < patience) return false;
      const Current current(driver_, context_);
      launch_gathered();
      return false;
    }
    for (int i = 0; i < used_; ++i) {
      Region& region = regions_[i];
      for (uint32_t place = 0; place < region.parted; ++place) {
        if (region.tasks[place].sequence != sequence) continue;
        uint64_t wanted = sequence;
        if (!read_row(region.late_rows + place * gpu::row_words, wanted, to)) {
          if (waited >= patience) merge_late(region);
          return false;
        }
        region.found |= 1u << place;
        return true;
      }
    }
    return false;
  }

  // Adds the measuring of tensors to a CUDA graph that is being captured on the stream: each replay
  // measures them, into rows that only this graph uses. `first` is set to the number of the first one.
  bool capture(
      const Layout* const* layouts, const void* const* data, int count, void* stream,
      uint64_t& first) {
    const std::lock_guard<std::mutex> lock(mutex_);
    launch_gathered();
    if (captured_ + static_cast<uint64_t>(count) > captured_rows) {
      problem_of_last_ = "more tensors were captured than there are rows for";
      return false;
    }
    first = captured_;
    if (!issue(layouts, data, count, stream, true, first)) return false;
    captured_ += static_cast<uint64_t>(count);
    return true;
  }

  // Reads what the last replay measured, and how many replays there were. False before the first one.
  bool read_captured(uint64_t number, uint64_t& replays, Measured& to) const {
    replays = 0;
    return read_row(captured_rows_ + number * gpu::row_words, replays, to);
  }

  bool is_capturing(void* stream) const {
    int state = 0;
    return is_started() && !driver_.is_capturing(stream, &state) && state == 1;
  }

  // Waits for rows that were launched on a stream, and releases them. Returns what went wrong, or an
  // empty text. After a failure, `to` has zeros in place of rows that did not come.
  std::string fetch(uint64_t first, int count, void* stream, Measured* to) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    std::string failed;
    for (int i = 0; i < count; ++i) {
      const uint64_t sequence = first + static_cast<uint64_t>(i);
      for (int turn = 0; !ring.read(sequence, to[i]); ++turn) {
        if (!failed.empty()) {
          to[i] = Measured{};
          break;
        }
        if (turn < 4096) continue;
        const auto waited = Clock::now() - start;
        if (find(sequence, std::chrono::nanoseconds(waited).count(), to[i])) break;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        if (Clock::now() - start < std::chrono::milliseconds(200)) continue;
        // Either the device is still busy with earlier work, or it failed.
        failed = synchronize(stream);
        if (failed.empty() && Clock::now() - start < std::chrono::seconds(2)) continue;
        if (failed.empty()) failed = "a measurement did not come";
      }
    }
    ring.release(first + static_cast<uint64_t>(count) - 1);
    return failed;
  }

  // Waits until the stream is idle. Returns the device's error, or an empty text.
  std::string synchronize(void* stream) const {
    const int code = driver_.synchronize(stream);
    return code ? driver_.describe("the device failed", code) : "";
  }

  // The same, called by a thread for which another device may be current.
  std::string synchronize_elsewhere(void* stream) const {
    driver_.set_context(context_);
    return synchronize(stream);
  }

  // The records of damaged guard bands, in pinned host memory that the device writes to. Null if it cannot
  // be allocated.
  Damage* damage() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!damage_ && is_started()) {
      void* host = nullptr;
      const std::size_t bytes = sizeof(Damage) * most_damaged;
      if (driver_.allocate_host(&host, bytes, 1 | 2)) return nullptr;
      std::memset(host, 0, bytes);
      uintptr_t there = 0;
      if (driver_.get_device_pointer(&there, host, 0)) return nullptr;
      damage_there_ = reinterpret_cast<Damage*>(there);
      damage_ = static_cast<Damage*>(host);
    }
    return damage_;
  }

  // Launches a job that compares guard bands and fills memory. Tensors deferred on this stream are
  // measured before, by the same launch if possible. `captured`: the stream is being captured. False: the
  // launch failed.
  bool act(MemoryJob& job, void* stream, bool captured) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_started() || (job.bands_count && !damage_)) return false;
    const bool joined = !captured && quick_job_.count && gathering_->stream == stream &&
        job.bands_count <= few_bands;
    if (!joined) launch_gathered();
    job.damage = damage_there_;
    const uint64_t most = (joined ? 1 : 8) * static_cast<uint64_t>(processors_);
    job.blocks = 0;
    for (uint32_t part = 0; part < job.parts_count; ++part) {
      const uint64_t wanted = job.parts[part].bytes / (16 * gpu::threads) + 1;
      const uint32_t some = static_cast<uint32_t>(wanted < most ? wanted : most);
      if (some > job.blocks) job.blocks = some;
    }
    if (joined) return launch_gathered(&job);
    void* const kernel = job.bands_count <= few_bands ? small_memory_kernel_ : memory_kernel_;
    return !launch(kernel, &job, job.bands_count + job.blocks, stream, !captured);
  }

  // Why the last `measure` or `capture` failed.
  const std::string& problem_of_last() const { return problem_of_last_; }

 private:
  struct Region {
    void* stream = nullptr;
    bool captured = false;
    gpu::Part* parts = nullptr;
    // One for each task; the last one counts the blocks of joined launches (JoinedJob) that have finished
    // measuring, and `measured` is what it is when all of them have.
    uint32_t* counters = nullptr;
    uint32_t measured = 0;
    // Tensors whose partial results are not merged yet.
    gpu::Vector* quick_parts = nullptr;
    gpu::QuickTask tasks[gpu::most_parted];
    uint32_t parted = 0, used_parts = 0;
    uint32_t found = 0;    // a bit for each tensor whose row was merged by `merge_late`, and read
    bool is_late = false;  // whether `merge_late` has run since the last merge
    uint64_t* late_rows = nullptr;
    std::chrono::steady_clock::time_point next_try;
    std::chrono::microseconds pause{};
  };
  static constexpr uint32_t quick_parts = gpu::most_parted * gpu::few;

  // Makes a context current for this thread, for as long as the object lives.
  class Current {
   public:
    Current(const gpu::Driver& driver, void* context) : driver_(driver), context_(context) {
      driver_.get_context(&before_);
      if (before_ != context_) driver_.set_context(context_);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() {
      if (before_ && before_ != context_) driver_.set_context(before_);
    }

   private:
    const gpu::Driver& driver_;
    void* const context_;
    void* before_ = nullptr;
  };

  std::string prepare(const char* source, const std::string& torch, const std::string& cache) {
    std::string problem = driver_.find();
    if (!problem.empty()) return problem;
    if (driver_.get_context(&context_) || !context_) return "no device is in use";
    int device = 0, major = 0, minor = 0;
    driver_.get_device(&device);
    if (!driver_.is_hip) {
      driver_.get_attribute(&processors_, 16, device);
      driver_.get_attribute(&major, 75, device);
      driver_.get_attribute(&minor, 76, device);
      int cache = 0;  // bytes of the L2 cache
      driver_.get_attribute(&cache, 38, device);
      if (cache > 0) most_gathered_ = cache / 16 * 7 / fingerprint::vector_bytes;
    }
    if (processors_ <= 0 || processors_ > 512) processors_ = 128;
    const std::string target = driver_.is_hip ? "" : std::to_string(10 * major + minor);
    std::string code;
    problem = find_code((std::string(integers) + source).c_str(), torch, cache, target, code);
    if (!problem.empty()) return problem;
    void* module = nullptr;
    if (int error = driver_.load(&module, code.data())) {
      return driver_.describe("the kernel cannot be loaded", error);
    }
    const std::pair<void**, const char*> kernels[] = {
        {&kernel_, "inductor_rewriter_measure"},
        {&quick_kernel_, "inductor_rewriter_measure_quickly"},
        {&merging_kernel_, "inductor_rewriter_merge"},
        {&memory_kernel_, "inductor_rewriter_memory"},
        {&small_memory_kernel_, "inductor_rewriter_memory_few"},
        {&joined_kernel_, "inductor_rewriter_measure_and_act"}};
    for (const auto& one : kernels) {
      if (int error = driver_.get_function(one.first, module, one.second)) {
        return driver_.describe("the kernel is not there", error);
      }
    }
    return take_memory();
  }

  // The kernel for this device: kept from an earlier process, or compiled.
  std::string find_code(
      const char* source, const std::string& torch, const std::string& cache,
      const std::string& target, std::string& code) {
    gpu::Compiler compiler;
    const std::string problem = compiler.find(torch, driver_.is_hip);
    about_ = gpu::describe_compiler(torch, driver_.is_hip);
    const std::string path = cache.empty() ? "" : cache + "/" + file_name(source, target, about_);
    if (!path.empty() && read_file(path, code)) return "";
    if (!problem.empty()) return problem;
    const std::string failed = compile(compiler, source, target, code);
    if (!failed.empty()) return failed;
    if (!path.empty()) write_file(path, code);
    return "";
  }

  static std::string compile(
      const gpu::Compiler& compiler, const char* source, const std::string& target,
      std::string& code) {
    std::vector<std::string> options = {"-std=c++17"};
    if (!target.empty()) {
      options.push_back("--gpu-architecture=sm_" + target);
      options.emplace_back("--fmad=false");  // numbers are those of the CPU; fma() is called explicitly
    } else {
      options.emplace_back("-ffp-contract=off");
    }
    std::vector<const char*> given;
    for (const std::string& option : options) given.push_back(option.c_str());
    void* program = nullptr;
    if (compiler.create(&program, source, "measure.cu", 0, nullptr, nullptr)) {
      return "the compiler of kernels cannot start";
    }
    std::string problem;
    if (compiler.compile(program, static_cast<int>(given.size()), given.data())) {
      std::size_t size = 0;
      compiler.get_log_size(program, &size);
      std::string log(size, 0);
      if (size) compiler.get_log(program, &log[0]);
      const std::size_t at = log.find("error");
      problem = "the kernel was not compiled: " + log.substr(at == std::string::npos ? 0 : at, 200);
      problem.resize(std::strlen(problem.c_str()));
    } else {
      std::size_t size = 0;
      compiler.get_code_size(program, &size);
      code.resize(size);
      if (!size || compiler.get_code(program, &code[0])) problem = "the compiler gave no kernel";
    }
    compiler.destroy(&program);
    return problem;
  }

  // The name contains the fingerprint of the source, the architecture and the compiler.
  static std::string file_name(
      const char* source, const std::string& target, const std::string& compiler) {
    const std::string all = std::string(source) + "\n" + target + "\n" + compiler;
    const int64_t shape = static_cast<int64_t>(all.size()), stride = 1;
    Layout layout = {dtypes::uint8, 1, shape, &shape, &stride, -1};
    Measured measured;
    measure_on_cpu(layout, all.data(), 1, measured);
    char name[80];
    std::snprintf(
        name, sizeof name, "kernel-%016llx%016llx.bin",
        static_cast<unsigned long long>(measured.fingerprint[0]),
        static_cast<unsigned long long>(measured.fingerprint[1]));
    return name;
  }

  static bool read_file(const std::string& path, std::string& to) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (!file) return false;
    char piece[1 << 16];
    std::string content;
    for (std::size_t size; (size = std::fread(piece, 1, sizeof piece, file)) > 0;) {
      content.append(piece, size);
    }
    std::fclose(file);
    // The file ends with 16 bytes that are computed from the rest: otherwise it is not complete.
    if (content.size() < 16) return false;
    const std::string end = content.substr(content.size() - 16);
    content.resize(content.size() - 16);
    if (end != seal(content)) return false;
    to = content;
    return true;
  }

  static void write_file(const std::string& path, const std::string& content) {
    const std::string partial = path + "." + std::to_string(getpid()) + ".part";
    std::FILE* file = std::fopen(partial.c_str(), "wb");
    if (!file) return;
    const std::string end = seal(content);
    bool whole = std::fwrite(content.data(), 1, content.size(), file) == content.size();
    whole = std::fwrite(end.data(), 1, end.size(), file) == end.size() && whole;
    whole = !std::fclose(file) && whole;
    if (!whole || std::rename(partial.c_str(), path.c_str())) std::remove(partial.c_str());
  }

  static std::string seal(const std::string& content) {
    const int64_t shape = static_cast<int64_t>(content.size()), stride = 1;
    Layout layout = {dtypes::uint8, 1, shape, &shape, &stride, -1};
    Measured measured;
    measure_on_cpu(layout, content.data(), 1, measured);
    std::string text(16, 0);
    std::memcpy(&text[0], measured.fingerprint, 16);
    return text;
  }

  // Allocates all device and pinned memory that is ever used.
  std::string take_memory() {
    const std::size_t parts = std::size_t(gpu::most_tasks) *
        static_cast<std::size_t>(gpu::most_blocks(processors_)) * sizeof(gpu::Part);
    const std::size_t counters = (gpu::most_tasks + 1) * sizeof(uint32_t);
    const std::size_t quick = std::size_t(quick_parts) * gpu::quick_vectors * sizeof(gpu::Vector);
    const std::size_t region = (parts + quick + counters + 255) / 256 * 256;
    const std::size_t bytes = region * regions + captured_rows * sizeof(uint64_t);
    uintptr_t memory = 0;
    if (int error = driver_.allocate(&memory, bytes)) {
      return driver_.describe("no memory on the device", error);
    }
    if (int error = driver_.clear(memory, 0, bytes)) {
      return driver_.describe("no memory on the device", error);
    }
    for (int i = 0; i < regions; ++i) {
      const uintptr_t start = memory + region * static_cast<std::size_t>(i);
      regions_[i].parts = reinterpret_cast<gpu::Part*>(start);
      regions_[i].quick_parts = reinterpret_cast<gpu::Vector*>(start + parts);
      regions_[i].counters = reinterpret_cast<uint32_t*>(start + parts + quick);
    }
    replays_ = reinterpret_cast<uint64_t*>(memory + region * regions);
    const std::size_t captured = captured_rows * gpu::row_words * sizeof(uint64_t);
    const std::size_t late = gpu::most_parted * gpu::row_words;
    const std::size_t rows = Ring::bytes + captured + regions * late * sizeof(uint64_t);
    void* host = nullptr;
    // Flags: usable in every context (1), mapped into the device's address space (2).
    if (int error = driver_.allocate_host(&host, rows, 1 | 2)) {
      return driver_.describe("no pinned memory", error);
    }
    std::memset(host, 0, rows);
    uintptr_t there = 0;
    if (int error = driver_.get_device_pointer(&there, host, 0)) {
      return driver_.describe("no mapped memory", error);
    }
    to_device_ = there - reinterpret_cast<uintptr_t>(host);
    ring.attach(static_cast<uint64_t*>(host));
    captured_rows_ = reinterpret_cast<uint64_t*>(static_cast<char*>(host) + Ring::bytes);
    auto* late_rows =
        reinterpret_cast<uint64_t*>(static_cast<char*>(host) + Ring::bytes + captured);
    for (int i = 0; i < regions; ++i) regions_[i].late_rows = late_rows + std::size_t(i) * late;
    return "";
  }

  Region* find_region(void* stream, bool captured) {
    for (int i = 0; i < used_; ++i) {
      if (regions_[i].stream == stream && regions_[i].captured == captured) return &regions_[i];
    }
    if (used_ == regions) return nullptr;
    Region* region = &regions_[used_++];
    region->stream = stream;
    region->captured = captured;
    return region;
  }

  uint64_t* device_row(uint64_t* row) const {
    return reinterpret_cast<uint64_t*>(reinterpret_cast<uintptr_t>(row) + to_device_);
  }

  // Adds tensors to the next launch of the quick kernel. False if that kernel cannot measure one of them:
  // then none is added. How a tensor is split among blocks depends only on the tensor and on `when`, so
  // that two runs give the same numbers to the last bit.
  bool gather(
      const Layout* const* layouts, const void* const* data, int count, void* stream,
      uint64_t first, When when) {
    if (!is_started() || count > gpu::quick_tasks) return false;
    gpu::QuickJob& job = quick_job_;
    Region* const region = find_region(stream, false);
    if (!region) return false;
    if ((region != gathering_ || job.count + static_cast<uint32_t>(count) > gpu::quick_tasks) &&
        !launch_gathered()) {
      return false;
    }
    uint32_t blocks = 0, parted = 0;
    int64_t vectors = 0;
    for (int i = 0; i < count; ++i) {
      const uint32_t place = job.count + static_cast<uint32_t>(i);
      gpu::QuickTask& task = job.tasks[place];
      const bool with_others = when == When::together;
      if (!gpu::make_quick_task(*layouts[i], data[i], with_others, task, job.rows[place])) return false;
      if (task.split == gpu::carried) continue;
      blocks += task.blocks;
      vectors += task.whole;
      ++parted;
    }
    if (blocks > quick_parts) return false;
    if (region->parted + parted > gpu::most_parted || region->used_parts + blocks > quick_parts) {
      // There is no room for more partial results: measure the deferred tensors, then merge.
      const uint32_t before = job.count;
      if (!launch_gathered() || !merge(*region)) return false;
      for (int i = 0; i < count; ++i) {
        job.tasks[i] = job.tasks[before + static_cast<uint32_t>(i)];
        job.rows[i] = job.rows[before + static_cast<uint32_t>(i)];
      }
    }
    if (!job.count) {
      gathering_ = region;
      gathered_from_ = region->parted;
      ++gathering;
    }
    gathered_vectors_ += vectors;
    for (int i = 0; i < count; ++i) {
      gpu::QuickTask& task = job.tasks[job.count++];
      task.sequence = first + static_cast<uint64_t>(i);
      task.row = device_row(ring.row(task.sequence));
      task.first_block = gathered_blocks_;
      gathered_blocks_ += task.blocks;
      if (task.split == gpu::carried) continue;
      task.parts = region->quick_parts + region->used_parts * gpu::quick_vectors;
      region->used_parts += task.blocks;
      region->tasks[region->parted++] = task;
    }
    region->pause = std::chrono::microseconds(50);
    region->next_try = {};
    return true;
  }

  // Whether freed device memory stays readable. A wrapper that fails frees tensors whose measuring is
  // deferred. PyTorch's caching allocator keeps the memory mapped, cudaMallocAsync does not.
  static bool keeps_memory() {
    static const bool keeps = [] {
      if (std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING")) return false;
      for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
        const char* const text = std::getenv(name);
        if (text && std::strstr(text, "cudaMallocAsync")) return false;
      }
      return true;
    }();
    return keeps;
  }

  // Whether the tensor of this row is deferred, and not launched yet.
  bool gathers(uint64_t sequence) const {
    for (uint32_t i = 0; i < quick_job_.count; ++i) {
      if (quick_job_.tasks[i].sequence == sequence) return true;
    }
    return false;
  }

  // Measures the gathered tensors, and after that does a job about memory in the same launch, if given.
  bool launch_gathered(const MemoryJob* then = nullptr) {
    if (!quick_job_.count) return true;
    const uint32_t blocks = gathered_blocks_;
    Region& region = *gathering_;
    bool done;
    if (then) {
      gpu::JoinedJob& job = joined_job_;
      const std::size_t bands = sizeof(Band) * then->bands_count;
      std::memcpy(&job.memory, then, offsetof(SmallMemoryJob, bands) + bands);
      job.measured = region.counters + gpu::most_tasks;
      job.blocks = blocks;
      job.until = region.measured + blocks;
      const uint32_t more = then->bands_count + then->blocks;
      done = !launch(joined_kernel_, &job, blocks + more, region.stream, true);
      if (done) region.measured = job.until;
    } else {
      done = !launch(quick_kernel_, &quick_job_, blocks, region.stream, true);
    }
    quick_job_.count = gathered_blocks_ = 0;
    gathered_vectors_ = 0;
    --gathering;
    if (done) return true;
    // The launch failed, so these tensors have no partial results to merge.
    for (uint32_t i = gathered_from_; i < region.parted; ++i) region.found |= 1u << i;
    return false;
  }

  // Merges the partial results of a region into rows, on its stream. Afterwards the region is empty.
  bool merge(Region& region) {
    gpu::MergeJob& job = merge_job_;
    job.count = job.checks = 0;
    for (uint32_t i = 0; i < region.parted; ++i) {
      // A row that was read already may have been reserved for another tensor since.
      if (!(region.found >> i & 1)) job.tasks[job.count++] = region.tasks[i];
    }
    if (job.count && launch(merging_kernel_, &job, job.count, region.stream, true)) return false;
    region.parted = region.found = region.used_parts = 0;
    if (region.is_late) {
      region.is_late = false;
      bool others = false;
      for (int i = 0; i < used_; ++i) others = others || regions_[i].is_late;
      late_ = others;
    }
    return true;
  }

  // The same for a thread that waits for a row, on the default stream. The partial results may not be
  // there yet, or may have been replaced when the kernel runs: it checks that, and then writes no row.
  void merge_late(Region& region) {
    const auto now = std::chrono::steady_clock::now();
    if (now < region.next_try) return;
    region.next_try = now + region.pause;
    if (region.pause < std::chrono::milliseconds(5)) region.pause *= 2;
    gpu::MergeJob& job = merge_job_;
    job.checks = 1;
    job.count = region.parted;
    for (uint32_t i = 0; i < region.parted; ++i) {
      job.tasks[i] = region.tasks[i];
      job.tasks[i].row = device_row(region.late_rows + i * gpu::row_words);
    }
    const Current current(driver_, context_);
    launch(merging_kernel_, &job, job.count, nullptr, false);
    late_ = region.is_late = true;
  }

  // `early`: the launch may start while the one before it ends (programmatic dependent launch); the
  // kernel itself waits for that end.
  int launch(void* kernel, void* job, uint32_t blocks, void* stream, bool early) {
    void* arguments[] = {job};
    if (early && driver_.launch_with) {
      struct Attribute {
        int id;
        char pad[4];
        int value[16];
      } attribute = {6, {}, {1}};
      struct Configuration {
        unsigned grid[3], block[3], shared;
        void* stream;
        Attribute* attributes;
        unsigned count;
      } configuration = {{blocks, 1, 1}, {gpu::threads, 1, 1}, 0, stream, &attribute, 1};
      return driver_.launch_with(&configuration, kernel, arguments, nullptr);
    }
    return driver_.launch(
        kernel, blocks, 1, 1, gpu::threads, 1, 1, 0, stream, arguments, nullptr);
  }

  bool can_read(const Layout* const* layouts, const void* const* data, int count) {
    for (int i = 0; i < count; ++i) {
      if (gpu::make_task(*layouts[i], data[i], processors_, job_.tasks[0])) continue;
      problem_of_last_ = "more dimensions than the kernel reads";
      return false;
    }
    return true;
  }

  bool issue(
      const Layout* const* layouts, const void* const* data, int count, void* stream,
      bool captured, uint64_t first) {
    if (!is_started()) return false;
    Region* region = find_region(stream, captured);
    if (!region) {
      problem_of_last_ = "more streams measure than there is memory for";
      return false;
    }
    // All tensors are checked before the first launch, so that none is measured if one cannot be.
    if (!can_read(layouts, data, count)) return false;
    for (int done = 0; done < count; done += gpu::most_tasks) {
      const int some = count - done < gpu::most_tasks ? count - done : gpu::most_tasks;
      uint32_t blocks = 0;
      for (int i = 0; i < some; ++i) {
        gpu::Task& task = job_.tasks[i];
        gpu::make_task(*layouts[done + i], data[done + i], processors_, task);
        const uint64_t number = first + static_cast<uint64_t>(done + i);
        uint64_t* row = captured ? captured_rows_ + number * gpu::row_words : ring.row(number);
        task.row = device_row(row);
        task.replays = captured ? replays_ + number : nullptr;
        task.sequence = number;
        task.parts = region->parts + blocks;
        task.counter = region->counters + i;
        task.first_block = blocks;
        blocks += task.blocks;
      }
      job_.count = some;
      void* arguments[] = {&job_};
      const int error = driver_.launch(
          kernel_, blocks, 1, 1, gpu::threads, 1, 1, 0, stream, arguments, nullptr);
      if (error) {
        problem_of_last_ = driver_.describe("the kernel cannot be launched", error);
        return false;
      }
    }
    return true;
  }

  std::mutex mutex_;
  bool tried_ = false;
  std::string problem_, about_, problem_of_last_;
  gpu::Driver driver_;
  void* kernel_ = nullptr;
  void* quick_kernel_ = nullptr;
  void* merging_kernel_ = nullptr;
  void* memory_kernel_ = nullptr;
  void* small_memory_kernel_ = nullptr;
  void* joined_kernel_ = nullptr;
  void* context_ = nullptr;
  int processors_ = 0;
  // How many vectors of 16 bytes are deferred at most. A launch costs 2.3 us, but tensors that were
  // written last are still in the L2 cache: somewhat less than half of it is a good limit (50 MiB on an
  // H200).
  int64_t most_gathered_ = (21 << 20) / fingerprint::vector_bytes;
  Region regions_[regions];
  std::atomic<bool> late_{false};  // whether any region `is_late`
  int used_ = 0;
  uint64_t* replays_ = nullptr;
  uint64_t* captured_rows_ = nullptr;
  uint64_t captured_ = 0;
  uintptr_t to_device_ = 0;  // from an address of pinned memory to the device's
  Damage* damage_ = nullptr;
  Damage* damage_there_ = nullptr;
  gpu::Job job_;
  gpu::JoinedJob joined_job_{};
  gpu::QuickJob& quick_job_ = joined_job_.quick;  // the deferred tensors
  uint32_t gathered_blocks_ = 0;
  uint32_t gathered_from_ = 0;  // the first of them among the region's `tasks`
  int64_t gathered_vectors_ = 0;
  Region* gathering_ = nullptr;  // the region of their stream
  gpu::MergeJob merge_job_;
};

}  // namespace inductor_rewriter
}  // namespace

// Measures tensors on a GPU without waiting for it, by the engine's kernel, which writes rows.
namespace {
namespace inductor_rewriter {

// The text of the kernel, which rewriter/instrumentation/bundle.py makes of
// rewriter/runtime/cpp/engine/kernel.h.
inline const char* kernel_source();

// One device, for all wrappers of this copy of the runtime. Never destroyed: the driver may be gone
// when the process exits.
class GpuRows {
 public:
  // Null if the device is not the current one, or cannot measure: `problem` says why.
  static GpuRows* of(int device, std::string& problem) {
    GpuRows* const one = started(device, problem);
    if (one && !one->gpu_.is_started()) {
      problem = "values are copied to the host, which takes long: " + one->gpu_.problem();
      return nullptr;
    }
    return one;
  }

  // The engine of a device; null if it could not be started.
  static Gpu* engine(int device, std::string& problem) {
    GpuRows* const one = started(device, problem);
    if (!one || one->gpu_.is_started()) return one ? &one->gpu_ : nullptr;
    problem = one->gpu_.problem();
    return nullptr;
  }

  // Call before the memory of values that wait to be measured may be written or freed (engine/gpu.h).
  static void settle() {
    All& all = All::get();
    if (!all.waits.exchange(false)) return;
    std::lock_guard<std::mutex> guard(all.lock);
    for (const auto& one : all.rows) {
      if (GpuRows* rows = one; rows && rows->gpu_.is_started()) rows->gpu_.settle();
    }
  }

  // Starts merging what was issued, if nothing follows for now (engine/gpu.h).
  static void merge() {
    All& all = All::get();
    std::lock_guard<std::mutex> guard(all.lock);
    for (const auto& one : all.rows) {
      if (GpuRows* rows = one; rows && rows->gpu_.is_started()) rows->gpu_.merge();
    }
  }

  // Issues the measuring of tensors; their rows begin at `first`. False if it failed.
  bool issue(
      const std::vector<const Layout*>& layouts, const std::vector<const void*>& data, void* stream,
      Gpu::When when, uint64_t& first) {
    const int count = static_cast<int>(layouts.size());
    std::lock_guard<std::mutex> guard(issuing_);
    if (All::get().several && All::get().waits) settle_others();
    first = gpu_.ring.reserve(static_cast<uint64_t>(count));
    if (gpu_.measure(layouts.data(), data.data(), count, stream, first, when)) {
      // Set after measuring: another thread that settles in between resets it.
      if (when == Gpu::When::together) All::get().waits = true;
      return true;
    }
    close(first, static_cast<uint32_t>(count));
    return false;
  }

  // Makes each replay of the CUDA graph that a stream is captured into measure tensors. `first` is the number
  // of the first row; these rows belong to the graph. Does not wait.
  bool capture(
      const std::vector<const Layout*>& layouts, const std::vector<const void*>& data, void* stream,
      uint64_t& first) {
    const int count = static_cast<int>(layouts.size());
    return gpu_.capture(layouts.data(), data.data(), count, stream, first);
  }

  // Reads what the last replay measured, and the number of replays; false before the first one.
  bool read_captured(uint64_t number, uint64_t& replays, Measured& to) const {
    return gpu_.read_captured(number, replays, to);
  }

  // Reads a row, if it has arrived; `waited` is for how many nanoseconds it was waited for.
  bool read(uint64_t sequence, int64_t waited, Measured& to) {
    return gpu_.find(sequence, waited, to);
  }

  // Releases rows: they were read, or will not be. `issue` does not wait for this.
  void close(uint64_t first, uint32_t count) {
    std::lock_guard<std::mutex> guard(closing_);
    gpu_.ring.release(closed_.add(first, count));
  }

  // Waits for the stream, in any thread. Returns the error of the device; empty if there is none.
  std::string synchronize(void* stream) const {
    static const auto set = find_driver<int (*)(void*)>("cuCtxSetCurrent");
    static const auto get = find_driver<int (*)(void**)>("cuCtxGetCurrent");
    void* before = nullptr;
    if (set && get && !get(&before) && !before) set(context_);
    return gpu_.synchronize(stream);
  }

  std::string problem_of_last() const { return gpu_.problem_of_last(); }

 private:
  static constexpr int most_devices = 64;

  struct All {
    std::mutex lock;
    std::atomic<GpuRows*> rows[most_devices] = {};  // null if not started
    std::atomic<bool> waits{false};    // whether measuring may be deferred
    std::atomic<bool> several{false};  // whether more than one device measures
    int started = 0;
    static All& get() {
      static All* all = new All;
      return *all;
    }
  };

  GpuRows() = default;

  // The object of a device, whether it can measure or not; null if the device is not the current one.
  static GpuRows* started(int device, std::string& problem) {
    if (device < 0 || device >= most_devices) return nullptr;
    All& all = All::get();
    GpuRows* one = all.rows[device].load(std::memory_order_acquire);
    if (one) return one;
    std::lock_guard<std::mutex> guard(all.lock);
    one = all.rows[device];
    if (one) return one;
    static const auto get_device = find_driver<int (*)(int*)>("cuCtxGetDevice");
    int current = -1;
    if (get_device && (get_device(&current) || current != device)) return nullptr;
    if (is_capturing(device)) {
      problem = "values of a CUDA graph are measured where the wrapper ran before it was captured";
      return nullptr;
    }
    one = new GpuRows;
    one->start();
    all.rows[device] = one;
    all.several = ++all.started > 1;
    return one;
  }

  // Settles the other devices: what this one measures does not settle them.
  void settle_others() {
    All& all = All::get();
    std::lock_guard<std::mutex> guard(all.lock);
    for (const auto& one : all.rows) {
      GpuRows* const rows = one;
      if (rows && rows != this && rows->gpu_.is_started()) rows->gpu_.settle();
    }
  }

  void start() {
    static const auto get = find_driver<int (*)(void**)>("cuCtxGetCurrent");
    if (get) get(&context_);
    gpu_.start(kernel_source(), torch_directory(), cache_directory());
  }

  static std::string torch_directory() {
    Dl_info about;
    if (!dladdr(reinterpret_cast<const void*>(&aoti_torch_get_dtype), &about)) return "";
    const std::string path = about.dli_fname ? about.dli_fname : "";
    return path.substr(0, path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }

  // `cache_directory` of rewriter/runtime/cache_directory.py; empty if there is no cache.
  static std::string cache_directory() {
    auto variable = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value ? value : "");
    };
    std::string base = variable("REWRITER_CACHE_DIR");
    if (base.size() == 3 && (base[0] | 32) == 'o' && (base[1] | 32) == 'f' && (base[2] | 32) == 'f') {
      return "";
    }
    if (base.empty()) {
      base = variable("XDG_CACHE_HOME");
      if (base.empty() || base[0] != '/') base = variable("HOME") + "/.cache";
      if (base[0] != '/') return "";
      base += "/rewriter";
    }
    base += "/engine";
    for (std::size_t end = 1; end <= base.size(); ++end) {
      if (end == base.size() || base[end] == '/') mkdir(base.substr(0, end).c_str(), 0777);
    }
    return base;
  }

  Gpu gpu_;
  void* context_ = nullptr;
  std::mutex issuing_, closing_;
  ClosedRows closed_;
};

}  // namespace inductor_rewriter
}  // namespace

// Recognizes inputs that are the tensors of an earlier call, not written since as far as torch knows.
namespace {
namespace inductor_rewriter {

// Functions of Python and of torch for Python, if the process has them. Found by name, since a package is
// compiled without the headers of Python.
struct Python {
  using Object = void*;
  Object (*thread)() = nullptr;
  int (*has_lock)() = nullptr;
  int (*lock)() = nullptr;
  void (*unlock)(int) = nullptr;
  Object (*weak_reference)(Object, Object) = nullptr;
  Object (*attribute)(Object, Object) = nullptr;
  Object (*interned)(const char*) = nullptr;
  Object (*new_dictionary)() = nullptr;
  Object (*run)(const char*, int, Object, Object) = nullptr;
  Object (*item)(Object, const char*) = nullptr;
  Object (*call)(Object, Object) = nullptr;
  int (*is_true)(Object) = nullptr;
  long long (*integer)(Object) = nullptr;
  void (*clear_error)() = nullptr;
  void (*release)(Object) = nullptr;
  // The Python object of a tensor (THPVariable_Wrap). No stable interface has this; without it, every input
  // is measured in every call.
  Object (*object_of)(const void*) = nullptr;
  // The object that a weak reference refers to, borrowed, to be compared only. Null from Python 3.15 on.
  Object (*referent)(Object) = nullptr;

  static const Python& get() {
    static const Python python;
    return python;
  }
  // Whether Python called this thread and released the global interpreter lock before. Such a thread has to
  // take the lock anyway when it returns, so taking it here cannot deadlock. A caller that holds the lock,
  // as that of a package does, relies on having it throughout: code of Python that ran here could pass the
  // lock to another thread, which then waits for the model that runs here, for ever.
  bool can_be_asked() const { return is_complete_ && thread() && !has_lock(); }

 private:
  Python() {
    void* torch = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!torch) return;
    is_complete_ = find(RTLD_DEFAULT, "PyGILState_GetThisThreadState", thread) &&
        find(RTLD_DEFAULT, "PyGILState_Check", has_lock) &&
        find(RTLD_DEFAULT, "PyGILState_Ensure", lock) &&
        find(RTLD_DEFAULT, "PyGILState_Release", unlock) &&
        find(RTLD_DEFAULT, "PyWeakref_NewRef", weak_reference) &&
        find(RTLD_DEFAULT, "PyObject_GetAttr", attribute) &&
        find(RTLD_DEFAULT, "PyUnicode_InternFromString", interned) &&
        find(RTLD_DEFAULT, "PyDict_New", new_dictionary) &&
        find(RTLD_DEFAULT, "PyRun_String", run) &&
        find(RTLD_DEFAULT, "PyDict_GetItemString", item) &&
        find(RTLD_DEFAULT, "PyObject_CallObject", call) &&
        find(RTLD_DEFAULT, "PyObject_IsTrue", is_true) &&
        find(RTLD_DEFAULT, "PyLong_AsLongLong", integer) &&
        find(RTLD_DEFAULT, "PyErr_Clear", clear_error) &&
        find(RTLD_DEFAULT, "Py_DecRef", release) &&
        find(torch, "_Z16THPVariable_WrapRKN2at10TensorBaseE", object_of);
    find(RTLD_DEFAULT, "PyWeakref_GetObject", referent);
  }

  template <class Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }

  bool is_complete_ = false;
};

// How many writes to a tensor torch has counted; -1 if it does not count them.
inline int64_t version_of(AtenTensorHandle tensor) {
  using Version = int64_t (*)(const void*);
  static const auto version = find<Version>("_ZNK2at10TensorBase8_versionEv");
  if (!version) return -1;
  try {
    return version(tensor);
  } catch (...) {
    return -1;  // an inference tensor
  }
}

// Runs for each input of each call, before the device has anything to do: see plan.h.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2", "no-fast-math")
#endif

// Whether a tensor needs a gradient; true if that cannot be asked.
inline bool needs_gradient(AtenTensorHandle tensor) {
  using Asked = bool (*)(const void*);
  static const auto asked = find<Asked>("_ZNK3c1010TensorImpl13requires_gradEv");
  return !asked || asked(*reinterpret_cast<const void* const*>(tensor));
}

class KnownTensors {
 public:
  // A number for each value. It stays the same while the value is the same tensor and torch counts no write
  // to it; 0 if that is not known. `trains`: nothing is known of tensors that need a gradient; programs that
  // train without an optimizer often write `weight.data`, which torch does not count. Python's garbage
  // collector may run here, and call anything.
  std::vector<uint64_t> numbers_of(const Contents& contents, bool trains) {
    std::vector<uint64_t> numbers(contents.size());
    const Python& python = Python::get();
    if (!python.can_be_asked() || is_busy_.test_and_set(std::memory_order_acquire)) return numbers;
    inputs_.resize(contents.size());  // now, since it may raise, and Python's lock has to be released
    const int state = python.lock();
    if (!is_shared_) prepare(python);
    Trust trust = swaps(python) ? Trust::none : trains ? Trust::untrained : Trust::not_asked;
    for (std::size_t i = 0; i < contents.size(); ++i) {
      const Content& content = contents[i];
      if (trust == Trust::none) {
        forget(python, inputs_[i]);
      } else if (
          content.kind == Content::Kind::tensor && !content.is_constant && content.handle) {
        numbers[i] = number_of(python, trust, content.handle, inputs_[i]);
      }
    }
    python.unlock(state);
    is_busy_.clear(std::memory_order_release);
    return numbers;
  }

 private:
  // The input at one place of the line. There is no destructor that releases the reference: it could run in
  // a thread that Python does not know.
  struct Input {
    Python::Object reference = nullptr;
    Python::Object object = nullptr;       // what the reference refers to as long as that lives
    const void* implementation = nullptr;  // the TensorImpl of that
    const void* address = nullptr;         // of its elements
    int64_t version = 0;
    uint64_t number = 0;
    bool is_trained = false;  // whether it needed a gradient since it was remembered

    // Whether the tensor is still the same, found out without asking torch for its object, which takes most
    // of the time. While the object lives, so does its TensorImpl, and no other is at that address: torch
    // swaps no tensor that has a weak reference.
    bool is_still(const Python& python, AtenTensorHandle handle) const {
      return reference && implementation == implementation_of(handle) && python.referent &&
          python.referent(reference) == object && address == address_of(handle);
    }

    // The number of the same tensor, a new one if it was written. It stays 0 if it had no version: asking an
    // inference tensor for one raises an exception, which is slow.
    uint64_t number_now(AtenTensorHandle handle) {
      if (!number) return 0;
      const int64_t now = version_of(handle);
      if (now != version) renew(now);
      return number;
    }

    void renew(int64_t now) {
      static std::atomic<uint64_t> numbers{0};
      number = now < 0 ? 0 : ++numbers;
      version = now;
    }
  };

  // A handle is the address of an at::Tensor, which is a pointer to its TensorImpl.
  static const void* implementation_of(AtenTensorHandle handle) {
    return *reinterpret_cast<const void* const*>(handle);
  }

  static const void* address_of(AtenTensorHandle handle) {
    void* address = nullptr;
    return aoti_torch_get_data_ptr(handle, &address) ? nullptr : address;
  }

  // Which tensors have a version that changes with every write; `_trust` in known_inputs.py says why. It is
  // asked for the first tensor that needs a gradient: the answer makes no difference to the others.
  enum class Trust { not_asked = -1, none = 0, untrained = 1, all = 2 };

  // Keeps the Python function that returns it, and the module that says whether parameters are swapped.
  void prepare(const Python& python) {
    static const char* const text = R"(
import torch
from torch import __future__ as future
def trust():
    if future.get_swap_module_params_on_conversion():
        return 0
    kinds = [torch.optim.Optimizer]
    while kinds:
        kind = kinds.pop()
        if hasattr(getattr(kind, "step", None), "hooked"):
            return 1
        kinds += kind.__subclasses__()
    return 2
)";
    const int is_file = 257;  // Py_file_input
    is_shared_ = python.interned("is_shared");
    swaps_ = python.interned("_swap_module_params_on_conversion");
    Python::Object names = python.new_dictionary();
    Python::Object done = names ? python.run(text, is_file, names, names) : nullptr;
    if (!done) {
      python.clear_error();
      return;
    }
    python.release(done);
    // Borrowed from `names`, which is never released.
    trust_ = python.item(names, "trust");
    future_ = python.item(names, "future");
  }

  // Whether `nn.Module` swaps parameters, by the variable behind the function that says so: a call of
  // Python takes longer, at each call of the model.
  bool swaps(const Python& python) const {
    Python::Object value = future_ ? python.attribute(future_, swaps_) : nullptr;
    if (!value) {
      python.clear_error();
      return ask(python) == Trust::none;
    }
    const int yes = python.is_true(value);
    if (yes < 0) python.clear_error();
    python.release(value);
    return yes != 0;
  }

  Trust ask(const Python& python) const {
    Python::Object answer = trust_ ? python.call(trust_, nullptr) : nullptr;
    if (!answer) {
      python.clear_error();
      return Trust::none;
    }
    const auto trust = static_cast<Trust>(python.integer(answer));
    python.release(answer);
    return trust;
  }

  static void forget(const Python& python, Input& input) {
    if (input.reference) python.release(input.reference);
    input = Input();
  }

  // Whether other processes may write to the memory of a tensor. Every tensor of a GPU says so.
  bool is_shared(const Python& python, Python::Object tensor, AtenTensorHandle handle) const {
    int32_t device = 0;
    if (aoti_torch_get_device_type(handle, &device)) return true;
    if (device != aoti_torch_device_type_cpu()) return false;
    Python::Object method = python.attribute(tensor, is_shared_);
    Python::Object answer = method ? python.call(method, nullptr) : nullptr;
    const int is = answer ? python.is_true(answer) : -1;
    if (is < 0) python.clear_error();
    if (method) python.release(method);
    if (answer) python.release(answer);
    return is != 0;
  }

  uint64_t number_of(
      const Python& python, Trust& trust, AtenTensorHandle handle, Input& input) const {
    input.is_trained = input.is_trained || needs_gradient(handle);
    if (input.is_trained) {
      if (trust == Trust::not_asked) trust = ask(python);
      if (trust != Trust::all) {
        forget(python, input);
        return 0;
      }
    }
    if (input.is_still(python, handle)) return input.number_now(handle);
    Python::Object tensor = python.object_of(handle);
    if (!tensor) {
      python.clear_error();
      return 0;
    }
    // A tensor that somebody refers to has the same object for good. Without `referent`, Python is asked
    // for a weak reference: it is the same one for the same object.
    bool is_same = input.reference && python.referent && python.referent(input.reference) == tensor;
    if (!is_same) {
      Python::Object reference = python.weak_reference(tensor, nullptr);
      if (!reference) {
        python.clear_error();
        python.release(tensor);
        return 0;
      }
      is_same = reference == input.reference;
      if (input.reference) python.release(input.reference);
      input.reference = reference;
      if (!is_same) input.is_trained = needs_gradient(handle);
    }
    input.object = tensor;
    input.implementation = implementation_of(handle);
    const void* const address = address_of(handle);
    is_same = is_same && address == input.address;
    input.address = address;
    if (!is_same) input.renew(is_shared(python, tensor, handle) ? -1 : version_of(handle));
    python.release(tensor);
    return is_same ? input.number_now(handle) : input.number;
  }

  Python::Object is_shared_ = nullptr, swaps_ = nullptr;  // names of attributes
  Python::Object trust_ = nullptr, future_ = nullptr;
  std::vector<Input> inputs_;
  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
}  // namespace

// Converts what the engine measured to statistics: `rewriter/runtime/statistics.py` explains them.
namespace {
namespace inductor_rewriter {

inline Statistics statistics_of(const Measured& measured, const Tensor& tensor) {
  Statistics result;
  result.numel = tensor.numel;
  result.magnitude = is_complex(tensor.dtype);
  result.finite = measured.finite;
  result.nan = measured.nan;
  result.inf = measured.positive_infinite + measured.negative_infinite;
  result.negative_inf = measured.negative_infinite;
  result.near_limit = measured.near_limit;
  if (!result.finite) return result;
  result.mean = measured.mean;
  result.std = measured.deviation;
  if (tensor.dtype == dtypes::uint64) {
    result.low = static_cast<double>(measured.low);
    result.high = static_cast<double>(measured.high);
    result.low_text = std::to_string(measured.low);
    result.high_text = std::to_string(measured.high);
    return result;
  }
  if (tensor.dtype == dtypes::int64) {
    result.low = static_cast<double>(static_cast<int64_t>(measured.low));
    result.high = static_cast<double>(static_cast<int64_t>(measured.high));
  } else {
    std::memcpy(&result.low, &measured.low, sizeof result.low);
    std::memcpy(&result.high, &measured.high, sizeof result.high);
    if (!is_integer(tensor.dtype) && tensor.dtype != dtypes::boolean) return result;
  }
  const bool wide = tensor.dtype == dtypes::int64;
  auto whole = [&](uint64_t bits, double value) {
    return std::to_string(wide ? static_cast<int64_t>(bits) : static_cast<int64_t>(value));
  };
  result.low_text = whole(measured.low, result.low);
  result.high_text = whole(measured.high, result.high);
  return result;
}

}  // namespace inductor_rewriter
}  // namespace

// The plans of a moment: what is known about its values from earlier events, so that the next event costs
// less. Most of this runs at each launch, so it is compiled with optimization; the rest of the runtime is
// not, so that it compiles fast (bundle.py).
namespace {
namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2", "no-fast-math")
#endif

class ReadJob;

// Which tensor a value was: a number, and its memory. `KnownTensors` numbers inputs, and `number_of` numbers
// constants of the model. While both stay the same, so do the elements. The number 0 is equal to none.
struct Identity {
  uint64_t number = 0;
  const char* data = nullptr;

  bool operator==(const Identity& other) const {
    return number && number == other.number && data == other.data;
  }
};

// Results that need not be measured again, and the values they are of; the index is that of `Plan::places`.
// Never changed once it is shared.
struct KnownResults {
  explicit KnownResults(std::size_t size) : of(size), results(size) {}
  std::vector<Identity> of;
  std::vector<Measured> results;
};

// The facts about the values of an event: kind, dtype, shape, strides, device. Events for which these are the
// same share a plan.
struct Plan {
  // Of everything that the line hands over.
  std::vector<Content::Kind> kinds;
  std::vector<Seen> facts;                 // its pointers are out of date
  std::vector<std::vector<int64_t>> dims;  // sizes, and strides if there are any

  std::vector<std::size_t> places;  // in the line, of what is a value
  std::vector<char> is_constant;    // of each of these: a constant of the model that no launch writes
  int gpu = -1;                     // the device of the first tensor on a GPU

  std::mutex known_lock;
  std::shared_ptr<const KnownResults> known;

  std::mutex lock;
  std::vector<std::unique_ptr<ReadJob>> free;  // jobs of earlier events

  // `same` has 1 for each value that is as it was when this plan was used last, and may be null.
  bool fits(const Contents& contents, const std::vector<Seen>& seen, const char* same) const {
    if (kinds.size() != seen.size()) return false;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (same && same[i]) continue;
      const Seen &now = seen[i], &then = facts[i];
      if (contents[i].kind != kinds[i] || now.is_present != then.is_present) return false;
      if (!now.is_tensor) continue;
      if (now.dtype != then.dtype || now.dim != then.dim || now.is_strided != then.is_strided) {
        return false;
      }
      if (now.device_type != then.device_type || now.device_index != then.device_index) {
        return false;
      }
      const std::size_t bytes = static_cast<std::size_t>(now.dim) * sizeof(int64_t);
      if (bytes && std::memcmp(now.sizes, dims[i].data(), bytes)) return false;
      if (!bytes || !now.is_strided) continue;
      if (std::memcmp(now.strides, dims[i].data() + now.dim, bytes)) return false;
    }
    return true;
  }
};

// An event whose values are measured. Those on a GPU are measured there, and their results arrive later.
class ReadJob : public EventJob {
 public:
  static constexpr char repeated = 2;  // in `is_measured`: the result is in `known`

  explicit ReadJob(const std::shared_ptr<Plan>& of)
      : plan(of), bits(of->places.size()), results(of->places.size()),
        layouts(of->places.size()), datas(of->places.size()), is_measured(of->places.size()),
        numbers(of->places.size()) {}

  std::shared_ptr<Plan> plan;  // null while the job is in the plan's pool
  // The index is that of `Plan::places`.
  std::vector<int64_t> bits;       // of scalars
  std::vector<Measured> results;   // of tensors
  std::vector<Layout> layouts;     // of tensors in their own memory
  std::vector<const char*> datas;  // the addresses of tensors
  std::vector<char> is_measured;   // 0, 1, or `repeated`
  std::vector<uint64_t> numbers;   // for `Identity`; 0: there is no use in remembering the result

  std::shared_ptr<const KnownResults> known;  // what `share_known` took from the plan

  // The values that a GPU measures, in the order of their rows.
  std::vector<std::size_t> on_gpu;
  std::vector<const Layout*> gpu_layouts;
  std::vector<const void*> gpu_data;
  GpuRows* gpu = nullptr;  // null: measuring was not issued
  bool has_stream = false;
  void* stream = nullptr;  // torch's current one
  uint64_t first_row = 0;
  GpuRows* graph = nullptr;  // if the event was captured into a CUDA graph, whose replays measure it
  bool is_pooled = true;     // whether `release` returns it to the plan

  bool is_ready() override {
    if (!gpu) return true;
    for (; arrived_ < on_gpu.size(); ++arrived_) {
      const std::size_t place = on_gpu[arrived_];
      if (!gpu->read(first_row + arrived_, waited(), results[place])) return is_lost();
      is_measured[place] = true;
    }
    return true;
  }

  void complete() override {
    if (gpu) gpu->close(first_row, static_cast<uint32_t>(on_gpu.size()));
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      Item& item = event.items[i];
      if (!item.is_tensor()) {
        write_scalar(item, plan->kinds[plan->places[i]], bits[i]);
        continue;
      }
      if (!is_measured[i]) continue;
      const Measured& result = is_measured[i] == repeated ? known->results[i] : results[i];
      if (result.finite >= 0 && dtype_info(item.tensor.dtype).plain) {
        item.statistics = statistics_of(result, item.tensor);
        item.measured = true;
      }
      if (call->recorder.fingerprints && !event.captured) item.fingerprint = hexadecimal(result.fingerprint);
    }
    if (!event.captured) remember();
  }

  // Gives values that are the same as in the last call the results of that, if these have arrived. Nothing
  // else of such values is read or kept.
  void repeat(const std::vector<char>& same, const std::vector<Identity>& last) {
    if (!share_known()) return;
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      const std::size_t place = plan->places[i];
      if (same[place] && known->of[i] == last[place]) is_measured[i] = repeated;
    }
  }

  // Whether the value was measured before and not written since; then it gets that result. Not an input in
  // a CUDA graph, which may be another tensor in each replay.
  bool is_known(std::size_t place, const char* data) {
    if (!numbers[place] || (event.captured && !plan->is_constant[place])) return false;
    if (!share_known() || !(known->of[place] == Identity{numbers[place], data})) return false;
    results[place] = known->results[place];
    return true;
  }

  // How many replays of the graph measured this event; 0 if it has no values on a GPU.
  uint64_t replays() const {
    uint64_t count = 0;
    Measured last;
    if (!on_gpu.empty()) graph->read_captured(first_row, count, last);
    return count;
  }

  // A copy of this event, with what the last replay measured.
  ReadJob* replayed() const {
    std::unique_ptr<ReadJob> job = copy();
    uint64_t count = 0;
    for (std::size_t i = 0; i < on_gpu.size(); ++i) {
      const std::size_t place = on_gpu[i];
      job->is_measured[place] = graph->read_captured(first_row + i, count, job->results[place]);
    }
    return job.release();
  }

  // Returns the job to the pool of its plan, for the next event.
  void release() override {
    if (!is_pooled) {
      delete this;
      return;
    }
    for (Item& item : event.items) item.reset();
    std::fill(is_measured.begin(), is_measured.end(), 0);
    on_gpu.clear();
    gpu_layouts.clear();
    gpu_data.clear();
    gpu = graph = nullptr;
    known.reset();
    event.captured = false;
    arrived_ = 0;
    waiting_since_ = 0;
    std::shared_ptr<Plan> of = std::move(plan);
    std::lock_guard<std::mutex> guard(of->lock);
    of->free.emplace_back(this);
  }

 private:
  // Takes the results that the plan has now, unless this event took some before. False: there are none.
  bool share_known() {
    if (known) return true;
    std::lock_guard<std::mutex> guard(plan->known_lock);
    known = plan->known;
    return known != nullptr;
  }

  // Adds what was measured to the plan, for later events. A result of a later version of an input is kept.
  void remember() {
    std::shared_ptr<KnownResults> all;
    std::unique_lock<std::mutex> guard;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (!numbers[i] || !is_measured[i]) continue;
      if (!guard) guard = std::unique_lock<std::mutex>(plan->known_lock);
      const KnownResults* const old = all ? all.get() : plan->known.get();
      const Identity now{numbers[i], datas[i]};
      if (old && (old->of[i] == now || (!plan->is_constant[i] && old->of[i].number > now.number))) continue;
      if (!all) {
        all = old ? std::make_shared<KnownResults>(*old) : std::make_shared<KnownResults>(numbers.size());
      }
      all->of[i] = now;
      all->results[i] = results[i];
    }
    if (all) plan->known = std::move(all);
  }

  static void write_scalar(Item& item, Content::Kind kind, int64_t bits) {
    using Kind = Content::Kind;
    double floating;
    switch (kind) {
      case Kind::integer: item.text = std::to_string(bits); return;
      case Kind::unsigned_integer: item.text = std::to_string(static_cast<uint64_t>(bits)); return;
      case Kind::floating:
        std::memcpy(&floating, &bits, sizeof floating);
        item.text = python_repr(floating);
        return;
      case Kind::boolean: item.text = bits ? "True" : "False"; return;
      default: item.text = "?";
    }
  }

  // A copy that is not of the pool, with the results so far.
  std::unique_ptr<ReadJob> copy() const {
    auto job = std::make_unique<ReadJob>(plan);
    job->is_pooled = false;
    job->event.items = Fixed<Item>(event.items.size());
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      Item& item = job->event.items[i];
      item.label = event.items[i].label;
      item.kind = event.items[i].kind;
      item.tensor = event.items[i].tensor;
      item.tensor.handle = nullptr;  // the tensor may be freed by now
    }
    job->bits = bits;
    job->results = results;
    job->is_measured = is_measured;
    return job;
  }

  int64_t waited() const {
    if (call->recorder.is_waited_for()) return Gpu::patience;
    return waiting_since_ ? clock_ns() - waiting_since_ : 0;
  }

  // Whether rows that have not arrived in time never will. If the device only has much to do before, they are
  // waited for; if it failed, the event goes on without them.
  bool is_lost() {
    const int64_t now = clock_ns(), patience = 1000000000;
    if (!waiting_since_) waiting_since_ = now;
    if (now - waiting_since_ < patience) return false;
    std::string problem = gpu->synchronize(stream);
    // Partial results that no later launch merges get a launch of their own, which may take a while.
    Measured last;
    for (int turn = 0; problem.empty() && turn < 1000; ++turn) {
      if (gpu->read(first_row + arrived_, Gpu::patience, last)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (problem.empty()) problem = "a measurement did not come";
    call->recorder.warn(event.about(), problem);
    arrived_ = on_gpu.size();
    return true;
  }

  std::size_t arrived_ = 0;
  int64_t waiting_since_ = 0;
};

// The plans that one moment used last.
class RecentPlans : public Plans {
 public:
  // Makes the event of the values that a line hands over. Values that cannot be read are left out, with a
  // warning.
  ReadJob* read(Moment& moment, const Contents& contents, Recorder& recorder) {
    const Labels& labels = *moment.labels;
    const std::size_t count = labels.size() < contents.size() ? labels.size() : contents.size();
    // Before taking `lock_`: this takes Python's lock, and a thread that has that may wait for `lock_`.
    std::vector<uint64_t> numbers;
    if (!moment.launch && keeps_inputs(labels, recorder)) numbers = known_.numbers_of(contents, trains_);
    std::lock_guard<std::mutex> guard(lock_);
    seen_.resize(count);
    find_same(contents, numbers, recorder);
    look_at_others(moment, contents, recorder);
    const std::shared_ptr<Plan>& plan = find_plan(moment, contents, recorder);
    std::unique_ptr<ReadJob> job = take(plan, labels, contents);
    if (plan == last_plan_) job->repeat(is_same_, last_);
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      if (job->is_measured[i]) {
        job->numbers[i] = 0;
        continue;
      }
      const std::size_t place = plan->places[i];
      if (plan->is_constant[i]) job->numbers[i] = number_of(contents[place].handle, place);
      else job->numbers[i] = numbers.empty() ? 0 : numbers[place];
      job->bits[i] = contents[place].integer;
      if (job->event.items[i].is_tensor()) {
        locate_tensor(moment, contents[place], seen_[place], job->event.items[i], recorder);
      }
    }
    if (!numbers.empty()) keep_identities(plan, *job, numbers);
    return job.release();
  }

 private:
  static constexpr std::size_t most = 8;  // plans, for dynamic shapes

  // `#12 buf1`; the text is only made if there is a warning.
  struct About {
    const Moment& moment;
    const Label& label;
    operator std::string() const {
      return launch_text(moment.launch, moment.phase) + " " + label.name;
    }
  };

  // Whether inputs are not measured again while torch counts no write to them. Not if a kernel writes an
  // input: torch does not count that, and other inputs may share its memory.
  bool keeps_inputs(const Labels& labels, const Recorder& recorder) {
    std::call_once(asked_, [&] {
      keeps_inputs_ = !recorder.rechecks() &&
          std::none_of(labels.begin(), labels.end(), [&](const Label& label) {
            return recorder.may_be_written(label);
          });
      // Inductor's names of the inputs of a graph of training, as in fast_paths.py.
      trains_ = std::any_of(labels.begin(), labels.end(), [](const Label& label) {
        return !label.name.compare(0, 8, "primals_");
      });
    });
    return keeps_inputs_;
  }

  // Finds which inputs are the same tensors as in the last call, not written since, of the same form and in
  // the same memory. Their results are all that is needed of them. Finds none if elements are shown or
  // saved, or if the call is captured into a CUDA graph, which may be replayed with other inputs.
  void find_same(
      const Contents& contents, const std::vector<uint64_t>& numbers, const Recorder& recorder) {
    is_same_.assign(seen_.size(), 0);
    if (numbers.empty() || !last_plan_ || last_plan_->kinds.size() != seen_.size()) return;
    if (recorder.uses_elements() || (last_plan_->gpu >= 0 && is_capturing(last_plan_->gpu))) return;
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (numbers[i] && numbers[i] == last_[i].number) {
        is_same_[i] = has_stayed(contents[i].handle, last_plan_->facts[i], last_plan_->dims[i], i);
      }
    }
  }

  // Whether a tensor still has the form and the memory of the last call. A program that sets `x.data` changes
  // them, and torch does not count that as a write. The memory that its number stands for is not enough:
  // Python may have run since that was read.
  bool has_stayed(
      AtenTensorHandle handle, const Seen& facts, const std::vector<int64_t>& dims, std::size_t place) {
    void* data = nullptr;
    int32_t dtype = -1;
    int64_t dim = -1, *sizes = nullptr, *strides = nullptr;
    if (aoti_torch_get_data_ptr(handle, &data) || data != last_[place].data) return false;
    if (aoti_torch_get_dtype(handle, &dtype) || dtype != facts.dtype) return false;
    if (aoti_torch_get_dim(handle, &dim) || dim != facts.dim) return false;
    if (aoti_torch_get_sizes(handle, &sizes) || aoti_torch_get_strides(handle, &strides)) return false;
    if (!std::equal(sizes, sizes + dim, dims.data())) return false;
    if (!std::equal(strides, strides + dim, dims.data() + dim)) return false;
    seen_[place].handle = handle;
    seen_[place].sizes = sizes;
    seen_[place].strides = strides;
    return true;
  }

  // Remembers what `find_same` compares the inputs of the next call with.
  void keep_identities(
      const std::shared_ptr<Plan>& plan, const ReadJob& job, const std::vector<uint64_t>& numbers) {
    if (plan != last_plan_) last_.assign(seen_.size(), Identity());
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      if (job.is_measured[i]) continue;
      const Item& item = job.event.items[i];
      const Tensor& tensor = item.tensor;
      const bool is_there = item.is_tensor() && tensor.in_memory && tensor.data;
      last_[plan->places[i]] = {is_there ? numbers[plan->places[i]] : 0, tensor.data};
    }
    last_plan_ = plan;
  }

  // Reads the facts about the values that `find_same` did not find.
  void look_at_others(const Moment& moment, const Contents& contents, Recorder& recorder) {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (is_same_[i]) continue;
      if (contents[i].kind > Content::Kind::array) {
        seen_[i] = Seen();
        seen_[i].is_present = true;
        continue;
      }
      recorder.act(About{moment, (*moment.labels)[i]}, [&] { look(contents[i], seen_[i]); });
    }
  }

  // The plan with the facts that were seen, a new one if there is none. It is the first from now on.
  const std::shared_ptr<Plan>& find_plan(
      const Moment& moment, const Contents& contents, const Recorder& recorder) {
    std::size_t place = 0;
    for (; place < plans_.size(); ++place) {
      const bool is_last = plans_[place] == last_plan_;
      if (plans_[place]->fits(contents, seen_, is_last ? is_same_.data() : nullptr)) break;
    }
    if (place == plans_.size()) {
      if (plans_.size() >= most) plans_.pop_back();
      plans_.insert(plans_.begin(), make(moment, contents, recorder));
    } else if (place) {
      std::swap(plans_[place], plans_[0]);
    }
    return plans_[0];
  }

  static void locate_tensor(
      const Moment& moment, const Content& content, const Seen& seen, Item& item, Recorder& recorder) {
    recorder.act(About{moment, *item.label}, [&] { locate(seen, item.tensor); });
    if (content.kind == Content::Kind::view) {
      item.base = content.handle;
      item.offset = content.offset;
    } else if (content.kind == Content::Kind::tensor) {
      item.tensor.handle = content.handle;
    }
  }

  // The number of a constant for `Identity`: its handle and its version. A program that replaces constants
  // makes new handles. One that has the constants may write them, which torch counts.
  uint64_t number_of(AtenTensorHandle constant, std::size_t place) {
    const uint64_t number = reinterpret_cast<uintptr_t>(constant);
    if (place >= without_version_.size()) without_version_.resize(place + 1);
    if (without_version_[place] == constant) return number;
    const int64_t version = version_of(constant);
    if (version < 0) without_version_[place] = constant;
    return version < 0 ? number : number ^ static_cast<uint64_t>(version) << 48;
  }

  // A new plan with the facts that were seen.
  std::shared_ptr<Plan> make(
      const Moment& moment, const Contents& contents, const Recorder& recorder) const {
    // With `--args ends`, an argument is measured again after the launch that reads it last, to find
    // out whether it was overwritten.
    const bool rechecks = recorder.rechecks() || (recorder.has_ends() && moment.launch);
    auto plan = std::make_shared<Plan>();
    plan->facts = seen_;
    plan->dims.resize(seen_.size());
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      plan->kinds.push_back(contents[i].kind);
      const Seen& seen = seen_[i];
      if (seen.is_present) plan->places.push_back(i);
      if (!seen.is_tensor) continue;
      const bool is_on_gpu = seen.device_type == aoti_torch_device_type_cuda();
      if (is_on_gpu && plan->gpu < 0) plan->gpu = seen.device_index;
      plan->dims[i].assign(seen.sizes, seen.sizes + seen.dim);
      if (!seen.is_strided) continue;
      plan->dims[i].insert(plan->dims[i].end(), seen.strides, seen.strides + seen.dim);
    }
    for (const std::size_t place : plan->places) {
      plan->is_constant.push_back(
          contents[place].is_constant && !rechecks && !recorder.may_be_written((*moment.labels)[place]));
    }
    return plan;
  }

  // A job from the pool of the plan, or a new one.
  std::unique_ptr<ReadJob> take(
      const std::shared_ptr<Plan>& plan, const Labels& labels, const Contents& contents) const {
    {
      std::lock_guard<std::mutex> guard(plan->lock);
      if (!plan->free.empty()) {
        std::unique_ptr<ReadJob> job = std::move(plan->free.back());
        plan->free.pop_back();
        job->plan = plan;
        return job;
      }
    }
    static const char* const kinds[] = {
        "tensor", "tensor", "tensor", "int", "int", "float", "bool", "other"};
    auto job = std::make_unique<ReadJob>(plan);
    job->event.items = Fixed<Item>(plan->places.size());
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      const std::size_t place = plan->places[i];
      Item& item = job->event.items[i];
      item.label = &labels[place];
      item.kind = kinds[static_cast<int>(contents[place].kind)];
      if (!item.is_tensor()) continue;
      set_facts(seen_[place], item.tensor);
      const Tensor& tensor = item.tensor;
      job->layouts[i] = {
          tensor.dtype, static_cast<int32_t>(tensor.shape.size()), tensor.numel,
          tensor.shape.data(), tensor.stride.data(), tensor.device_index};
    }
    return job;
  }

  std::once_flag asked_;
  bool keeps_inputs_ = false, trains_ = false;
  KnownTensors known_;
  std::vector<AtenTensorHandle> without_version_;  // the last constant at each place, if it has no version
  std::mutex lock_;
  std::vector<Seen> seen_;      // of each value of the line
  std::vector<char> is_same_;   // of each value of the line: see find_same
  std::vector<Identity> last_;  // of each value of the line, in the last call
  std::shared_ptr<Plan> last_plan_;
  std::vector<std::shared_ptr<Plan>> plans_;  // the one used last is the first
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
}  // namespace

// Reads and measures values of launches, for probes that need them.
namespace {
namespace inductor_rewriter {

constexpr int64_t most_values = 64;  // printed elements of a tensor, as in Inductor's debug printer

// The number of threads that the model uses.
inline int thread_count() {
  static const auto count = find<int (*)()>("omp_get_max_threads");
  return count ? count() : 1;
}

// Pointers to the first elements in logical order.
inline std::vector<const char*> first_elements(const Host& host, int32_t dtype) {
  std::vector<const char*> elements;
  std::vector<int64_t> place(host.shape.size(), 0);
  for (int64_t size : host.shape) {
    if (!size) return elements;
  }
  while (static_cast<int64_t>(elements.size()) < most_values) {
    int64_t offset = 0;
    for (std::size_t i = 0; i < place.size(); ++i) offset += place[i] * host.stride[i];
    elements.push_back(host.data + offset * dtype_info(dtype).size);
    std::size_t dim = place.size();
    for (; dim-- > 0; place[dim] = 0) {
      if (++place[dim] < host.shape[dim]) break;
    }
    if (dim == std::size_t(-1)) break;
  }
  return elements;
}

inline std::string element_text(const char* from, int32_t dtype) {
  alignas(64) double parts[8];
  int64_t whole = 0;
  if (is_wide(dtype)) {
    std::memcpy(&whole, from, sizeof whole);
    const bool has_sign = dtype == dtypes::int64;
    return has_sign ? std::to_string(whole) : std::to_string(static_cast<uint64_t>(whole));
  }
  convert(dtype, from, 1, parts);
  if (dtype == dtypes::boolean) return parts[0] ? "True" : "False";
  if (is_complex(dtype)) return complex_repr(parts[0], parts[1]);
  if (is_integer(dtype)) return std::to_string(static_cast<int64_t>(parts[0]));
  return python_general(parts[0]);
}

class Reading : public Values {
 public:
  EventJob* read(
      Moment& moment, const Contents& contents, RunningCall&, Recorder& recorder) const override {
    if (moment.labels->size() != contents.size()) {
      recorder.warn(
          launch_text(moment.launch, moment.phase),
          "the line and the table differ in the number of values");
    }
    Plans* plans = moment.plans.load(std::memory_order_acquire);
    if (!plans) {
      static std::mutex making;
      std::lock_guard<std::mutex> guard(making);
      plans = moment.plans.load(std::memory_order_relaxed);
      if (!plans) moment.plans.store(plans = new RecentPlans, std::memory_order_release);
    }
    ReadJob* job = static_cast<RecentPlans*>(plans)->read(moment, contents, recorder);
    const int gpu = job->plan->gpu;
    job->has_stream = gpu >= 0 && current_stream(&job->stream, gpu);
    job->event.captured = job->has_stream && has_device() && is_captured(job->stream);
    return job;
  }

  void measure(EventJob& of, bool heads, Recorder& recorder) const override {
    ReadJob& job = static_cast<ReadJob&>(of);
    const int gpu = job.plan->gpu;
    for (std::size_t i = 0; i < job.event.items.size(); ++i) {
      if (job.is_measured[i]) continue;
      Item& item = job.event.items[i];
      const Tensor& tensor = item.tensor;
      if (!item.is_tensor() || !tensor.strided || !tensor.in_memory) continue;
      const Dtype& dtype = dtype_info(tensor.dtype);
      if (!dtype.plain && !recorder.fingerprints) continue;
      job.datas[i] = tensor.data;
      if (job.is_known(i, tensor.data)) {
        job.is_measured[i] = true;
        continue;
      }
      if (job.event.captured) {
        if (tensor.device_index == gpu && tensor.numel && dtype.plain) add_to_gpu(job, i);
        else if (tensor.on_cpu || !tensor.numel) measure_on_host(job, i, recorder);
        continue;  // nothing else can be read during a capture
      }
      if (tensor.device_index == gpu && gpu >= 0 && tensor.numel && !is_copied(tensor, recorder)) {
        add_to_gpu(job, i);
      } else {
        measure_on_host(job, i, recorder);
      }
    }
    if (job.event.captured) {
      if (!job.on_gpu.empty() && !issue_captured(job, recorder)) job.on_gpu.clear();
      return;
    }
    if (!job.on_gpu.empty() && !issue(job, recorder)) {
      for (std::size_t i : job.on_gpu) measure_on_host(job, i, recorder);
      job.on_gpu.clear();
    }
    if (job.on_gpu.empty()) settle();
    if (!heads) return;
    for (Item& item : job.event.items) {
      const Tensor& tensor = item.tensor;
      if (!item.is_tensor() || !tensor.strided || !tensor.in_memory) continue;
      if (!dtype_info(tensor.dtype).plain) continue;
      try {
        read_head(item, recorder);
      } catch (const std::exception& error) {
        recorder.warn(job.event.about() + " " + item.label->name, error.what());
      }
    }
  }

  void settle() const override { GpuRows::settle(); }
  void finish() const override { GpuRows::merge(); }

  bool is_in_capture() const override { return is_capturing(); }

  void wait_for_replays() const override {
    // Errors are ignored: even if the device failed, the rows of earlier replays can be read.
    static const auto wait = find_driver<int (*)()>("cuCtxSynchronize");
    if (wait && has_device()) wait();
  }

  uint64_t replays(const EventJob& captured) const override {
    return static_cast<const ReadJob&>(captured).replays();
  }

  EventJob* replayed(const EventJob& captured) const override {
    return static_cast<const ReadJob&>(captured).replayed();
  }

  void describe(Json& json, const Item& item) const override {
    const Tensor& tensor = item.tensor;
    const Statistics& statistics = item.statistics;
    json.key("arg").string(item.label->name).key("role").string(item.label->role);
    if (!item.is_tensor()) {
      json.key("type").string(item.kind).key("value").string(item.text);
      return;
    }
    json.key("dtype").string(dtype_info(tensor.dtype).name);
    json.key("shape").open('[');
    for (int64_t size : tensor.shape) json.number(size);
    json.close(']').key("stride").open('[');
    for (int64_t stride : tensor.stride) json.number(stride);
    json.close(']').key("device").string(tensor.device);
    if (item.measured) {
      json.key("numel").number(statistics.numel);
      extreme(json.key("min"), statistics, statistics.low, statistics.low_text);
      extreme(json.key("max"), statistics, statistics.high, statistics.high_text);
      extreme(json.key("mean"), statistics, statistics.mean, "");
      if (statistics.finite > 1) json.key("std").number(statistics.std);
      else json.key("std").put("null");
      json.key("nan").number(statistics.nan).key("inf").number(statistics.inf);
      if (statistics.negative_inf) json.key("neginf").number(statistics.negative_inf);
      if (statistics.near_limit) json.key("near_limit").number(statistics.near_limit);
      if (statistics.magnitude) json.key("of").string("magnitude");
    }
    if (!item.fingerprint.empty()) json.key("fingerprint").string(item.fingerprint);
    if (!item.file.empty()) json.key("file").string(item.file);
    if (!item.unsaved.empty()) json.key("unsaved").string(item.unsaved);
  }

 private:
  // Whether a tensor is measured in a copy on the host. A complex one may be marked as conjugate, which
  // changes its fingerprint but no magnitude, and only a copy by torch takes that into account.
  static bool is_copied(const Tensor& tensor, const Recorder& recorder) {
    return recorder.fingerprints && is_complex(tensor.dtype);
  }

  // Issues the measuring on the GPU, in one launch. False: it was not issued.
  static bool issue(ReadJob& job, Recorder& recorder) {
    std::string problem;
    GpuRows* gpu = GpuRows::of(job.plan->gpu, problem);
    if (gpu && job.on_gpu.size() > Ring::usable) {  // it would wait for its own rows
      problem = "values are copied to the host, which takes long: there are rows for " +
          std::to_string(Ring::usable) + " at a time, and these are " + std::to_string(job.on_gpu.size());
      gpu = nullptr;
    }
    if (!problem.empty()) recorder.warn(job.event.about(), problem);
    if (!gpu || !job.has_stream) return false;
    const Gpu::When when = recorder.prompt ? Gpu::When::at_once
        : is_together(job)                 ? Gpu::When::together
                                           : Gpu::When::soon;
    if (!gpu->issue(job.gpu_layouts, job.gpu_data, job.stream, when, job.first_row)) {
      recorder.warn(job.event.about(), gpu->problem_of_last());
      return false;
    }
    job.gpu = gpu;
    return true;
  }

  // Whether measuring can wait for that of the next launch: nothing writes or frees the values before.
  static bool is_together(const ReadJob& job) {
    const ProbedLaunch* launch = job.event.launch;
    return launch && launch->row->together && job.moment->phase[0] == 'a';
  }

  static void add_to_gpu(ReadJob& job, std::size_t place) {
    job.on_gpu.push_back(place);
    job.gpu_layouts.push_back(&job.layouts[place]);
    job.gpu_data.push_back(job.event.items[place].tensor.data);
  }

  // Has each replay of the CUDA graph that is being captured measure the values. False: it cannot.
  static bool issue_captured(ReadJob& job, Recorder& recorder) {
    std::string problem;
    GpuRows* gpu = GpuRows::of(job.plan->gpu, problem);
    if (gpu) {
      if (gpu->capture(job.gpu_layouts, job.gpu_data, job.stream, job.first_row)) {
        job.graph = gpu;
        return true;
      }
      problem = gpu->problem_of_last();
    }
    if (!gpu && problem.find("copied to the host") != std::string::npos) {
      problem = "values of a CUDA graph are measured by the engine alone, which is not there";
    }
    recorder.warn(job.event.about(), problem);
    return false;
  }

  static void measure_on_host(ReadJob& job, std::size_t place, Recorder& recorder) {
    Item& item = job.event.items[place];
    const Tensor& tensor = item.tensor;
    try {
      const bool direct = (tensor.on_cpu && !is_copied(tensor, recorder)) || !tensor.numel;
      if (!direct) fetch(item, tensor.on_cpu);
      Layout layout = job.layouts[place];
      if (!direct) {
        layout.shape = item.host.shape.data();
        layout.stride = item.host.stride.data();
      }
      const char* data = direct ? tensor.data : item.host.data;
      if (!measure_on_cpu(layout, data, thread_count(), job.results[place])) {
        throw std::runtime_error("it has more dimensions than can be measured");
      }
      job.is_measured[place] = true;
    } catch (const std::exception& error) {
      recorder.warn(job.event.about() + " " + item.label->name, error.what());
    }
  }

  static void read_head(Item& item, const Recorder& recorder) {
    const Tensor& tensor = item.tensor;
    fetch(item, !tensor.on_cpu || is_complex(tensor.dtype));
    item.has_head = true;
    if (recorder.upstream) return;
    for (const char* element : first_elements(item.host, tensor.dtype)) {
      item.head.push_back(element_text(element, tensor.dtype));
    }
  }

  static void extreme(
      Json& json, const Statistics& statistics, double value, const std::string& whole) {
    if (!statistics.finite) json.put("null");
    else if (!whole.empty()) json.put(whole);
    else json.number(value);
  }
};

const Reading reading;

}  // namespace inductor_rewriter
}  // namespace

// Our own text format of values: `Text` in rewriter/runtime/text.py.
namespace {
namespace inductor_rewriter {

// `f32`, `bf16`, `i64`, `b8`, `c64`, `f8e4m3fn`.
inline std::string short_dtype(const std::string& name) {
  static const char* const pairs[][2] = {
      {"float8_", "f8"}, {"bfloat", "bf"}, {"float", "f"}, {"complex", "c"},
      {"uint", "u"}, {"int", "i"}, {"bool", "b8"}};
  for (auto& pair : pairs) {
    std::string start = pair[0];
    if (name.compare(0, start.size(), start) == 0) return pair[1] + name.substr(start.size());
  }
  return name;
}

inline std::string statistics_text(const Item& item) {
  const Statistics& statistics = item.statistics;
  if (!item.measured) return "not measured";
  if (!statistics.numel) return "empty";
  auto number = [&](double value, const std::string& whole) {
    return !statistics.finite ? "-" : whole.empty() ? python_general(value) : whole;
  };
  std::string text = statistics.magnitude ? "|x| min " : "min ";
  text += number(statistics.low, statistics.low_text);
  text += " max " + number(statistics.high, statistics.high_text);
  text += " mean " + number(statistics.mean, "");
  text += " std " + (statistics.finite > 1 ? python_general(statistics.std) : "-");
  return text + " nan " + std::to_string(statistics.nan) + " inf " + std::to_string(statistics.inf);
}

// The beginning of a line, before the results of the probes.
inline std::string about_value(const Event& event, const Item& item, const Recorder& recorder) {
  const Tensor& tensor = item.tensor;
  std::string text = line_start(event, recorder);
  text += "  " + item.label->role + " " + item.label->name + "  ";
  if (!item.is_tensor()) return text + item.kind + " " + item.text;
  text += short_dtype(dtype_info(tensor.dtype).name) + joined(tensor.shape);
  return text + "  " + tensor.device;
}

inline std::string fingerprint_text(const Item& item) {
  return item.fingerprint.empty() ? "not hashed" : "fingerprint=" + item.fingerprint;
}

inline std::string value_text(const Event& event, const Item& item, const Recorder& recorder) {
  std::string text = about_value(event, item, recorder);
  if (!item.is_tensor()) return text + "\n";
  text += "  " + statistics_text(item);
  if (!item.fingerprint.empty()) text += "  " + fingerprint_text(item);
  if (item.has_head) {
    text += "\n    [";
    for (std::size_t i = 0; i < item.head.size(); ++i) text += (i ? ", " : "") + item.head[i];
    text += item.tensor.numel > static_cast<int64_t>(item.head.size()) ? " ...]" : "]";
  }
  return text + "\n";
}

inline std::string digest_text(const Event& event, const Item& item, const Recorder& recorder) {
  return about_value(event, item, recorder) + "  " + fingerprint_text(item) + "\n";
}

inline std::string health_text(const Event& event, const Item& item, const Recorder& recorder) {
  const std::string text = health_of(item);
  return text.empty() ? text : about_value(event, item, recorder) + "  " + text + "\n";
}

}  // namespace inductor_rewriter
}  // namespace

// Which values of an event are shown: `RunningCall.fresh` in rewriter/runtime/running_call.py.
namespace {
namespace inductor_rewriter {

// An input is shown before a launch, and again after it only if it changed: something wrote out of
// bounds, or the wrapper does not declare that the launch writes it.
class Shown {
 public:
  Shown(const Event& event, RunningCall& call, const Recorder& recorder)
      : all_(recorder.upstream), before_(event.phase[0] == 'b'), after_(event.phase[0] == 'a'),
        call_(call) {
    if (before_) {
      call_.shown_launch = event.launch;
      call_.shown_iteration = event.iteration;
      call_.shown.clear();
    }
    after_ = after_ && call_.shown_launch == event.launch &&
        call_.shown_iteration == event.iteration;
  }

  bool is_fresh(const Item& item) {
    if (all_) return true;
    if (before_) call_.shown.emplace_back(item.label->name, item.facts());
    if (!after_ || item.label->role != "in") return true;
    for (const auto& [name, facts] : call_.shown) {
      if (name == item.label->name) return facts != item.facts();
    }
    return true;
  }

 private:
  const bool all_, before_;
  bool after_;
  RunningCall& call_;
};

}  // namespace inductor_rewriter
}  // namespace

// Prints what a launch reads and writes: type, shape, statistics, counts of NaN and Inf.
namespace {
namespace inductor_rewriter {

class Print : public Probe {
 public:
  void measured(Event& event, RunningCall& call, Recorder& recorder) override {
    if (recorder.quiet) return;
    std::string text;
    Shown shown(event, call, recorder);
    for (const Item& item : event.items) {
      if (shown.is_fresh(item)) text += value_text(event, item, recorder);
    }
    recorder.write(text);
  }
};

}  // namespace inductor_rewriter
}  // namespace

// Replaces dormant.h, which takes long to compile, if probes are not dormant.
namespace {
namespace inductor_rewriter {

struct Session {};

class Dormant {
 public:
  explicit Dormant(const Wrapper&) {}
  RunningCall* begin() { return nullptr; }
};

inline void end_session(Session&) {}

}  // namespace inductor_rewriter
}  // namespace

// The probes of this file, and the kinds of launches that run on a GPU.
namespace {
namespace inductor_rewriter {

inline std::unique_ptr<Probe> make_probe(const std::string& name) {
  std::unique_ptr<Probe> probe;
  if (name == "print") {
    probe = std::make_unique<Print>();
    probe->when = "both";
    probe->values = &reading;
    probe->of_results = true;
    probe->measures = true;
  }
  return probe;
}

inline bool is_gpu_kind(const std::string& kind) {
  return kind == "combo" || kind == "cuda" || kind == "flydsl" || kind == "metal" || kind == "multi_kernel" || kind == "nv_universal_gemm" || kind == "triton" || kind == "triton_template" || kind == "triton_user";
}

inline const char* kernel_source() {
  return R"kernel(
#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define INDUCTOR_REWRITER_DEVICE static __device__ __forceinline__
#define INDUCTOR_REWRITER_SPECIAL __device__ __forceinline__
#define INDUCTOR_REWRITER_MEMBER __device__ __forceinline__
#define INDUCTOR_REWRITER_TABLE static __device__ const
#define INDUCTOR_REWRITER_RARE static __device__ __noinline__
#endif
#if defined(__CUDACC_RTC__)
#define INDUCTOR_REWRITER_CONSTANT __grid_constant__  // arguments are read in place, not copied first
#elif defined(__HIPCC_RTC__)
#define INDUCTOR_REWRITER_CONSTANT
#endif




#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif


#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#endif

namespace {
namespace inductor_rewriter {

constexpr int most_bands = 120;     // that one launch compares
constexpr int few_bands = 24;       // for a launch with fewer bytes of arguments, which is issued faster
constexpr int most_damaged = 4096;  // records of damage; the first one counts the damaged bands

struct Band {
  const unsigned char* data;
  uint64_t pattern;  // byte `address % 8` of it is expected at each address
  uint32_t bytes;
  uint16_t slot;       // the index of its record of damage
  uint8_t before;      // 1: before its buffer, 0: after it
  uint8_t item_bytes;  // size of an element of the buffer
};

struct Damage {
  uint64_t launch, distance, count;
  unsigned char element[8];
};

struct Filled {
  unsigned char* data;
  uint64_t bytes, pattern;
};
constexpr int most_filled = 16;  // that one launch fills

template <int most>
struct MemoryJobOf {
  Damage* damage;
  uint64_t launch;
  uint32_t bands_count, parts_count;
  uint32_t blocks, unused;  // how many blocks fill memory
  Filled parts[most_filled];
  Band bands[most];
};
using MemoryJob = MemoryJobOf<most_bands>;
using SmallMemoryJob = MemoryJobOf<few_bands>;  // the beginning of a MemoryJob
static_assert(sizeof(MemoryJob) <= 4096, "the limit for arguments of a launch");

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)

inline unsigned char expected_byte(const Band& band, const unsigned char* at) {
  return static_cast<unsigned char>(band.pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
}

inline bool is_whole(const Band& band) {
  const unsigned char* at = band.data;
  const unsigned char* const end = at + band.bytes;
  for (; at < end && reinterpret_cast<uintptr_t>(at) % 8; ++at) {
    if (*at != expected_byte(band, at)) return false;
  }
  uint64_t differs = 0;
  for (; at + 8 <= end; at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    differs |= word ^ band.pattern;
  }
  for (; at < end; ++at) differs |= static_cast<uint64_t>(*at ^ expected_byte(band, at));
  return !differs;
}

inline int compare_bands(const Band* bands, int count, uint64_t launch, Damage* damage) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    const Band& band = bands[i];
    Damage& mine = damage[band.slot];
    if (mine.launch || is_whole(band)) continue;
    uint64_t nearest = band.bytes;
    mine.count = 0;
    for (uint32_t place = 0; place < band.bytes; ++place) {
      if (band.data[place] == expected_byte(band, band.data + place)) continue;
      const uint64_t distance = band.before ? band.bytes - 1 - place : place;
      nearest = distance < nearest ? distance : nearest;
      ++mine.count;
    }
    mine.distance = nearest;
    const uint64_t item = band.item_bytes ? band.item_bytes : 1, element = nearest / item;
    const uint64_t start = band.before ? band.bytes - (element + 1) * item : element * item;
    for (uint64_t i_byte = 0; i_byte < 8; ++i_byte) {
      mine.element[i_byte] = i_byte < item && start + i_byte < band.bytes
          ? band.data[start + i_byte] : static_cast<unsigned char>(0);
    }
    mine.launch = launch;
    ++found;
  }
  return found;
}

inline void fill_memory(void* data, uint64_t bytes, uint64_t pattern) {
  unsigned char* at = static_cast<unsigned char*>(data);
  unsigned char* const end = at + bytes;
  for (; at < end && reinterpret_cast<uintptr_t>(at) % 8; ++at) {
    *at = static_cast<unsigned char>(pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
  }
  for (; at + 8 <= end; at += 8) std::memcpy(at, &pattern, 8);
  for (; at < end; ++at) {
    *at = static_cast<unsigned char>(pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
  }
}

inline int act_on_host(const MemoryJob& job) {
  const int found =
      compare_bands(job.bands, static_cast<int>(job.bands_count), job.launch, job.damage);
  for (uint32_t part = 0; part < job.parts_count; ++part) {
    fill_memory(job.parts[part].data, job.parts[part].bytes, job.parts[part].pattern);
  }
  return found;
}

template <class Act>
bool compare_all(const Band* bands, std::size_t count, uint64_t launch, Act act) {
  MemoryJob job = {};
  job.launch = launch;
  for (std::size_t done = 0; done < count; done += job.bands_count) {
    job.bands_count = static_cast<uint32_t>(std::min<std::size_t>(count - done, most_bands));
    std::memcpy(job.bands, bands + done, sizeof(Band) * job.bands_count);
    if (!act(job)) return false;
  }
  return true;
}

class MemoryWork {
 public:
  bool is_empty() const { return !job_.bands_count && !job_.parts_count; }

  bool takes(const Filled* parts, int count, int device, void* stream) const {
    if (is_empty()) return count <= most_filled;
    if (device != device_ || stream != stream_) return false;
    if (job_.parts_count + static_cast<uint32_t>(count) > most_filled) return false;
    for (int i = 0; i < count; ++i) {
      if (overlaps(parts[i].data, parts[i].bytes)) return false;
    }
    return true;
  }
  void fill(const Filled* parts, int count, int device, void* stream, int probe) {
    device_ = device;
    stream_ = stream;
    for (int i = 0; i < count; ++i) job_.parts[job_.parts_count++] = parts[i];
    ++filled_[probe];
  }
  bool takes_bands(std::size_t count) const { return is_empty() && count <= most_bands; }
  void compare(const Band* bands, std::size_t count, uint64_t launch, int device, void* stream) {
    device_ = device;
    stream_ = stream;
    job_.launch = launch;
    job_.bands_count = static_cast<uint32_t>(count);
    std::memcpy(job_.bands, bands, sizeof(Band) * count);
  }

  MemoryJob& job() { return job_; }
  int device() const { return device_; }
  void* stream() const { return stream_; }
  bool compares() const { return job_.bands_count; }
  int filled(int probe) const { return filled_[probe]; }
  void clear() {
    forget_parts();
    job_.bands_count = 0;
  }
  void forget_parts() {
    job_.parts_count = 0;
    for (int& count : filled_) count = 0;
  }

 private:
  bool overlaps(const unsigned char* data, uint64_t bytes) const {
    const auto meets = [&](const unsigned char* other, uint64_t length) {
      return data < other + length && other < data + bytes;
    };
    for (uint32_t i = 0; i < job_.parts_count; ++i) {
      if (meets(job_.parts[i].data, job_.parts[i].bytes)) return true;
    }
    for (uint32_t i = 0; i < job_.bands_count; ++i) {
      if (meets(job_.bands[i].data, job_.bands[i].bytes)) return true;
    }
    return false;
  }

  MemoryJob job_ = {};
  int filled_[3] = {};  // index: bounds, poison, stale
  int device_ = -1;
  void* stream_ = nullptr;
};

#endif

}  // namespace inductor_rewriter
}  // namespace

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif


#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif

namespace {
namespace inductor_rewriter {

namespace dtypes {
enum : int32_t {
  uint8, int8, int16, int32, int64, float16, float32, float64, complex32, complex64, complex128,
  boolean, qint8, quint8, qint32, bfloat16, quint4x2, quint2x4, bits1x8, bits2x4, bits4x2, bits8,
  bits16, float8_e5m2, float8_e4m3fn, float8_e5m2fnuz, float8_e4m3fnuz, uint16, uint32, uint64,
  uint1, uint2, uint3, uint4, uint5, uint6, uint7, int1, int2, int3, int4, int5, int6, int7,
  float8_e8m0fnu, float4_e2m1fn_x2,
};
}  // namespace dtypes

}  // namespace inductor_rewriter
}  // namespace

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif


#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif

namespace {
namespace inductor_rewriter {

struct Measured {
  int64_t finite, nan, positive_infinite, negative_infinite;
  uint64_t low, high;
  double mean, deviation;
  uint64_t fingerprint[2];
  int64_t near_limit;
};
static_assert(sizeof(Measured) == 88, "Python has it as 88 bytes");

struct Layout {
  int32_t dtype;  // c10::ScalarType
  int32_t dim;
  int64_t numel;
  const int64_t* shape;
  const int64_t* stride;  // in elements; any, also 0 and negative
  int32_t device;         // -1: CPU
};

}  // namespace inductor_rewriter
}  // namespace

#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define INDUCTOR_REWRITER_SHARED __host__ __device__
#else
#define INDUCTOR_REWRITER_SHARED
#endif

namespace {
namespace inductor_rewriter {

namespace fingerprint {

constexpr int64_t vector_bytes = 16;
constexpr int64_t tile_vectors = 4096;
constexpr int64_t tile_bytes = vector_bytes * tile_vectors;
constexpr uint64_t golden = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio

INDUCTOR_REWRITER_SHARED constexpr uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

INDUCTOR_REWRITER_SHARED constexpr uint64_t key(int table, int place) {
  return mix(mix(static_cast<uint64_t>(table) + 1) + (static_cast<uint64_t>(place) + 1) * golden);
}

struct Pair {
  uint64_t low, high;
};

INDUCTOR_REWRITER_SHARED constexpr Pair tile(Pair sums, uint64_t number) {
  uint64_t first = mix(sums.low + (number + 1) * golden);
  uint64_t second = mix(sums.high ^ first);
  return {second, mix(first + second)};
}

INDUCTOR_REWRITER_SHARED constexpr Pair finish(Pair total, uint64_t bytes) {
  uint64_t first = mix(total.low + bytes * golden);
  uint64_t second = mix(total.high ^ first);
  return {mix(first + second), second};
}

}  // namespace fingerprint

}  // namespace inductor_rewriter
}  // namespace

namespace {
namespace inductor_rewriter {

namespace elements {

INDUCTOR_REWRITER_SHARED constexpr int size(int32_t dtype) {
  switch (dtype) {
    case dtypes::complex128: return 16;
    case dtypes::int64: case dtypes::uint64: case dtypes::float64: case dtypes::complex64: return 8;
    case dtypes::int32: case dtypes::uint32: case dtypes::float32: case dtypes::complex32:
    case dtypes::qint32: return 4;
    case dtypes::int16: case dtypes::uint16: case dtypes::float16: case dtypes::bfloat16:
    case dtypes::bits16: return 2;
    default: return dtype >= 0 && dtype <= dtypes::float4_e2m1fn_x2 ? 1 : 0;
  }
}

INDUCTOR_REWRITER_SHARED constexpr bool is_number(int32_t dtype) {
  return (dtype >= dtypes::uint8 && dtype <= dtypes::boolean) || dtype == dtypes::bfloat16 ||
      (dtype >= dtypes::float8_e5m2 && dtype <= dtypes::uint64) || dtype == dtypes::float8_e8m0fnu;
}

INDUCTOR_REWRITER_SHARED constexpr bool is_complex(int32_t dtype) {
  return dtype >= dtypes::complex32 && dtype <= dtypes::complex128;
}

INDUCTOR_REWRITER_SHARED constexpr bool is_wide(int32_t dtype) {
  return dtype == dtypes::int64 || dtype == dtypes::uint64;
}

INDUCTOR_REWRITER_SHARED constexpr bool is_huge(int32_t dtype) {
  return dtype == dtypes::float64 || dtype == dtypes::complex128;
}

INDUCTOR_REWRITER_SHARED constexpr double half_of_largest(int32_t dtype) {
  switch (dtype) {
    case dtypes::float16: return 32752;
    case dtypes::bfloat16: return 0x1.fep126;
    case dtypes::float8_e5m2: case dtypes::float8_e5m2fnuz: return 28672;
    case dtypes::float8_e4m3fn: return 224;
    case dtypes::float8_e4m3fnuz: return 120;
    case dtypes::float8_e8m0fnu: return 0x1p126;
    default: return 0;
  }
}

INDUCTOR_REWRITER_SHARED constexpr bool is_near_limit(double value, double half, int32_t dtype) {
  if (value > half) return half != 0;
  return half != 0 && value < -half && (size(dtype) != 2 || value != -2 * half);
}

}  // namespace elements

}  // namespace inductor_rewriter
}  // namespace

namespace {
namespace inductor_rewriter {

namespace gpu {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int most_dims = 8;
constexpr int most_tasks = 16;
constexpr int row_words = 16;

struct Sum {
  uint64_t nan, positive, negative;
  int64_t low, high;  // extremes as keys, which order as the elements do: int64, or bits of float64
  uint64_t shift;     // the bits of float64, or a key
  double sum, squares;
  uint64_t first, second;  // of the fingerprint
  uint64_t scale;          // which scale: 0 for small values, 1 for none, 2 for large values
  uint64_t near_limit;     // how many elements are near the dtype's limit (elements.h)
};
struct alignas(16) Part {  // a Sum as words; `scale` and `near_limit` share one
  uint64_t words[12];
};

struct Task {
  const char* data;
  int64_t numel;
  int64_t whole;      // how many vectors of 16 bytes are complete
  uint64_t* row;      // `row_words` words in host memory
  uint64_t* replays;  // counts the replays of a captured launch; null otherwise
  Part* parts;        // partial results, one for each block
  uint32_t* counter;  // counts finished blocks; 0 between launches
  uint64_t sequence;
  int32_t dtype;
  int32_t dims;    // how many of `size` and `stride` are used, in row-major order; strides in elements
  uint32_t units;  // how many tiles of the fingerprint, or quarters of tiles
  uint32_t first_block, blocks;
  uint16_t direct;  // 1: contiguous and aligned
  uint16_t split;   // 2: units are quarters of tiles, and blocks have one each; 0: tiles
  int64_t size[most_dims], stride[most_dims];
};

struct Job {
  int64_t count;
  Task tasks[most_tasks];
};
static_assert(sizeof(Job) <= 4096, "the limit for arguments of a launch");

struct alignas(16) Vector {
  uint64_t first, second;
};

constexpr int quick_tasks = 12;
constexpr int quick_vectors = 5;
constexpr int most_parted = 32;         // tensors that are merged at once
constexpr int most_carried_words = 12;  // how many words of a row can hold elements
constexpr uint32_t carried = 16;        // `split` of tensors whose elements the row holds

struct QuickTask {
  const char* data;
  int64_t numel;
  int64_t whole;
  uint64_t* row;
  Vector* parts;
  uint64_t sequence;
  int32_t dtype;
  uint32_t units;
  uint32_t first_block, blocks;
  uint32_t split;
};

struct Divisor {
  uint32_t size, factor, shift;
};

struct QuickRows {
  enum : uint32_t { contiguous, aligned, apart };
  uint32_t kind;
  Divisor run, sizes[2];
  uint32_t strides[3];
  uint32_t step;        // stride between the elements of a vector
  uint32_t by_columns;  // 1: neighbouring rows are closer in memory than neighbouring elements
  uint32_t factors[2][2];
};

struct QuickJob {
  uint32_t count;
  QuickTask tasks[quick_tasks];
  QuickRows rows[quick_tasks];
};
static_assert(sizeof(QuickJob) <= 4096, "the limit for arguments of a launch");

struct JoinedJob {
  QuickJob quick;
  SmallMemoryJob memory;
  uint32_t* measured;
  uint32_t blocks, until;
};
static_assert(sizeof(JoinedJob) <= 4096, "the limit for arguments of a launch");

struct MergeJob {
  uint32_t count, checks;
  QuickTask tasks[most_parted];
};

INDUCTOR_REWRITER_SHARED constexpr uint32_t part_mark(uint64_t sequence) {
  return static_cast<uint32_t>(sequence) | 0x80000000u;  // never 0, which memory holds at first
}

constexpr int numel_word = 12, dtype_word = 13, sequence_word = 14, checksum_word = 15;
constexpr uint64_t has_elements = uint64_t{1} << 32;  // flag beside the dtype: it holds the elements

INDUCTOR_REWRITER_SHARED constexpr uint64_t checked(uint64_t word, int place) {
  return (word ^ word >> 32 ^ fingerprint::golden) * (fingerprint::golden * (2 * place + 1));
}
INDUCTOR_REWRITER_SHARED inline uint64_t checksum(const uint64_t* row) {
  uint64_t sum = 0;
  for (int i = 0; i < checksum_word; ++i) sum += checked(row[i], i);
  return sum;
}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace


namespace {
namespace inductor_rewriter {

namespace gpu {

constexpr uint64_t infinity = 0x7ff0000000000000;


#if defined(__HIPCC_RTC__)
template <class T>
INDUCTOR_REWRITER_DEVICE T exchange(T value, int with) {
  return __shfl_xor(value, with, 32);
}
template <class T>
INDUCTOR_REWRITER_DEVICE T from_lane(T value, int lane) {
  return __shfl(value, lane, 32);
}
INDUCTOR_REWRITER_DEVICE uint32_t vote(bool value) {
  const uint64_t all = __ballot(value);
  return static_cast<uint32_t>(threadIdx.x & 32 ? all >> 32 : all);
}
#else
template <class T>
INDUCTOR_REWRITER_DEVICE T exchange(T value, int with) {
  return __shfl_xor_sync(0xffffffffu, value, with);
}
template <class T>
INDUCTOR_REWRITER_DEVICE T from_lane(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
INDUCTOR_REWRITER_DEVICE uint32_t vote(bool value) { return __ballot_sync(0xffffffffu, value); }
#endif

INDUCTOR_REWRITER_DEVICE double sum_of(double value, int width = 32) {
#pragma unroll
  for (int with = 16; with; with >>= 1) {
    if (with < width) value += exchange(value, with);
  }
  return value;
}
INDUCTOR_REWRITER_DEVICE int64_t least_of(int64_t value, int width = 32) {
#pragma unroll
  for (int with = 16; with; with >>= 1) {
    if (with >= width) continue;
    const int64_t other = exchange(value, with);
    value = other < value ? other : value;
  }
  return value;
}
INDUCTOR_REWRITER_DEVICE int64_t greatest_of(int64_t value, int width = 32) {
  return ~least_of(~value, width);
}
INDUCTOR_REWRITER_DEVICE uint64_t sum_of(uint64_t value, int width = 32) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if (width == 32) {
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < 64; i += 16) {
      const uint32_t part = static_cast<uint32_t>(value >> i) & 0xffffu;
      sum += static_cast<uint64_t>(__reduce_add_sync(0xffffffffu, part)) << i;
    }
    return sum;
  }
#endif
#pragma unroll
  for (int with = 16; with; with >>= 1) {
    if (with < width) value += exchange(value, with);
  }
  return value;
}
INDUCTOR_REWRITER_DEVICE int32_t least_of(int32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_min_sync(0xffffffffu, value);
#else
#pragma unroll
  for (int with = 16; with; with >>= 1) {
    const int32_t other = exchange(value, with);
    value = other < value ? other : value;
  }
  return value;
#endif
}


INDUCTOR_REWRITER_DEVICE uint64_t bits_of(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value));
}
INDUCTOR_REWRITER_DEVICE double from_bits(uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}
INDUCTOR_REWRITER_DEVICE double from_upper(uint32_t bits) {
  return __hiloint2double(static_cast<int>(bits), 0);
}

INDUCTOR_REWRITER_DEVICE bool is_finite(double value) {
  return bits_of(value) << 1 < infinity << 1;
}

INDUCTOR_REWRITER_DEVICE int32_t key_of(float value) {
  const int32_t bits = __float_as_int(value);
  return bits ^ (bits >> 31 & 0x7fffffff);
}
INDUCTOR_REWRITER_DEVICE float float_of(int32_t key) {
  return __int_as_float(key ^ (key >> 31 & 0x7fffffff));
}
INDUCTOR_REWRITER_DEVICE int64_t key_of(double value) {
  const int64_t bits = __double_as_longlong(value);
  return bits ^ (bits >> 63 & 0x7fffffffffffffffll);
}
INDUCTOR_REWRITER_DEVICE double double_of(int64_t key) {
  return __longlong_as_double(key ^ (key >> 63 & 0x7fffffffffffffffll));
}
constexpr int64_t greatest_key = 0x7fffffffffffffff;

INDUCTOR_REWRITER_DEVICE double scale(int number) {
  return number == 1 ? 1.0 : from_upper(number ? (1023u - 600) << 20 : (1023u + 600) << 20);
}
INDUCTOR_REWRITER_DEVICE int scale_for(double value) {
  const uint32_t exponent = static_cast<uint32_t>(bits_of(value) >> 52) & 0x7ff;
  return exponent < 1023 - 400 ? 0 : exponent < 1023 + 400 ? 1 : 2;
}
INDUCTOR_REWRITER_DEVICE double rescaled(double value, int from, int to) {
#pragma unroll 1
  for (; from < to; ++from) value *= from_upper((1023u - 600) << 20);
  return value;
}

INDUCTOR_REWRITER_DEVICE double difference(int64_t a, int64_t b) {
  const double upper = static_cast<double>((a >> 32) - (b >> 32));
  const double lower = static_cast<double>((a & 0xffffffffll) - (b & 0xffffffffll));
  return fma(upper, 4294967296.0, lower);
}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace

namespace {
namespace inductor_rewriter {

namespace gpu {

INDUCTOR_REWRITER_DEVICE uint64_t element_bits(const Vector& vector, int size, int i) {
  const int at = i * size;
  return (at < 8 ? vector.first : vector.second) >> 8 * (at & 7);
}
INDUCTOR_REWRITER_DEVICE uint32_t word_of(const Vector& vector, int i) {
  const uint64_t half = i < 2 ? vector.first : vector.second;
  return static_cast<uint32_t>(i & 1 ? half >> 32 : half);
}

INDUCTOR_REWRITER_DEVICE double magnitude(double real, double imaginary, bool is_wide) {
  const uint64_t a = bits_of(real) << 1, b = bits_of(imaginary) << 1, limit = infinity << 1;
  if (a > limit || b > limit) return from_bits(infinity + 1);
  if (a == limit || b == limit) return from_bits(infinity);
  if (!is_wide) return sqrt(fma(real, real, imaginary * imaginary));
  return hypot(real, imaginary);
}

struct Small8 {
  uint32_t move;
  double factor;
};
INDUCTOR_REWRITER_DEVICE Small8 float8_of(int32_t dtype) {
  const bool is_e5m2 = dtype == dtypes::float8_e5m2 || dtype == dtypes::float8_e5m2fnuz;
  const bool is_fnuz = dtype == dtypes::float8_e5m2fnuz || dtype == dtypes::float8_e4m3fnuz;
  const uint32_t bias = (is_e5m2 ? 15 : 7) + is_fnuz;
  return {is_e5m2 ? 18u : 17u, from_upper((1023u + 1023 - bias) << 20)};
}
INDUCTOR_REWRITER_DEVICE double float8_value(uint32_t bits, const Small8& how) {
  return from_upper((bits & 0x80u) << 24 | (bits & 0x7fu) << how.move) * how.factor;
}

INDUCTOR_REWRITER_DEVICE double from_float8(uint32_t bits, int32_t dtype) {
  const uint32_t size = bits & 0x7fu;
  const double not_a_number = from_bits(infinity + 1);
  switch (dtype) {
    case dtypes::float8_e5m2:
      if (size > 0x7cu) return not_a_number;
      if (size == 0x7cu) return from_upper((bits & 0x80u) << 24 | 0x7ff00000u);
      break;
    case dtypes::float8_e4m3fn:
      if (size == 0x7fu) return not_a_number;
      break;
    case dtypes::float8_e8m0fnu:
      return bits == 0xffu ? not_a_number : from_upper((bits + 896) << 20);
    default:
      if (bits == 0x80u) return not_a_number;
      break;
  }
  return float8_value(bits, float8_of(dtype));
}

INDUCTOR_REWRITER_DEVICE double from_float16(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, size = bits & 0x7fffu;
  if (size >= 0x7c00u) return from_upper(sign | 0x7ff00000u | (size & 0x3ffu) << 10);
  return from_upper(sign | size << 10) * from_upper((1023u + 1008) << 20);
}

INDUCTOR_REWRITER_RARE double value_of(Vector vector, int i, int32_t dtype) {
  const uint64_t bits = element_bits(vector, elements::size(dtype), i);
  const uint32_t word = static_cast<uint32_t>(bits);
  switch (dtype) {
    case dtypes::float32: return __uint_as_float(word);
    case dtypes::bfloat16: return __uint_as_float(word << 16);
    case dtypes::float16: return from_float16(word & 0xffffu);
    case dtypes::float64: return from_bits(bits);
    case dtypes::boolean: return (word & 0xffu) != 0;
    case dtypes::uint8: return word & 0xffu;
    case dtypes::int8: return static_cast<int8_t>(word);
    case dtypes::uint16: return word & 0xffffu;
    case dtypes::int16: return static_cast<int16_t>(word);
    case dtypes::uint32: return word;
    case dtypes::int32: return static_cast<int32_t>(word);
    case dtypes::complex32:
      return magnitude(from_float16(word & 0xffffu), from_float16(word >> 16), false);
    case dtypes::complex64:
      return magnitude(
          __uint_as_float(word), __uint_as_float(static_cast<uint32_t>(bits >> 32)), false);
    case dtypes::complex128:
      return magnitude(from_bits(vector.first), from_bits(vector.second), true);
    default: return from_float8(word & 0xffu, dtype);
  }
}

INDUCTOR_REWRITER_DEVICE void add_product(uint64_t a, uint64_t b, uint64_t& low, uint64_t& high) {
  const uint32_t a_low = static_cast<uint32_t>(a), a_high = static_cast<uint32_t>(a >> 32);
  const uint32_t b_low = static_cast<uint32_t>(b), b_high = static_cast<uint32_t>(b >> 32);
  const uint64_t lower = static_cast<uint64_t>(a_low) * b_low;
  const uint64_t middle = static_cast<uint64_t>(a_low) * b_high + (lower >> 32);
  const uint64_t other = static_cast<uint64_t>(a_high) * b_low + static_cast<uint32_t>(middle);
  low += other << 32 | static_cast<uint32_t>(lower);
  high += static_cast<uint64_t>(a_high) * b_high + (middle >> 32) + (other >> 32);
}

INDUCTOR_REWRITER_DEVICE double value_near(const Vector& vector, int32_t dtype) {
  const uint32_t word = static_cast<uint32_t>(vector.first);
  const uint32_t upper = static_cast<uint32_t>(vector.first >> 32);
  const auto larger = [](double a, double b) {
    return bits_of(a) << 1 > bits_of(b) << 1 ? fabs(a) : fabs(b);
  };
  switch (dtype) {
    case dtypes::float32: return __uint_as_float(word);
    case dtypes::bfloat16: return __uint_as_float(word << 16);
    case dtypes::float16: return from_float16(word & 0xffffu);
    case dtypes::float64: return from_bits(vector.first);
    case dtypes::boolean: return (word & 0xffu) != 0;
    case dtypes::uint8: return word & 0xffu;
    case dtypes::int8: return static_cast<int8_t>(word);
    case dtypes::uint16: return word & 0xffffu;
    case dtypes::int16: return static_cast<int16_t>(word);
    case dtypes::uint32: return word;
    case dtypes::int32: return static_cast<int32_t>(word);
    case dtypes::complex32:
      return larger(from_float16(word & 0xffffu), from_float16(word >> 16));
    case dtypes::complex64: return larger(__uint_as_float(word), __uint_as_float(upper));
    case dtypes::complex128: return larger(from_bits(vector.first), from_bits(vector.second));
    default: return from_float8(word & 0xffu, dtype);
  }
}

struct Shared {
  Vector keys[64];  // B0 and B1
  uint64_t low[2][warps], high[2][warps];
  double sum[warps], squares[warps];
  int64_t least[warps], greatest[warps];
  uint32_t nan, positive, negative, near_limit;
  int scale;
  bool is_last;
  Part parts[warps];
};

template <class Extreme>
struct Sums {
  double sum, squares;
  Extreme low, high;
  int scale;
};

struct Origin {
  double shift;
  int64_t key;  // the same for int64, and for uint64 minus 2^63
  int32_t dtype;
};


template <class T>
struct Extremes;
template <>
struct Extremes<float> {
  INDUCTOR_REWRITER_DEVICE float most() { return 3.402823466e38f; }
  INDUCTOR_REWRITER_DEVICE float fewest() { return -most(); }
  INDUCTOR_REWRITER_DEVICE void take(float& low, float& high, double value) {
    low = fminf(low, static_cast<float>(value));
    high = fmaxf(high, static_cast<float>(value));
  }
  INDUCTOR_REWRITER_DEVICE int64_t least(float value) {
    return key_of(static_cast<double>(float_of(least_of(key_of(value)))));
  }
  INDUCTOR_REWRITER_DEVICE int64_t greatest(float value) {
    return key_of(static_cast<double>(float_of(~least_of(~key_of(value)))));
  }
};
template <>
struct Extremes<double> {
  INDUCTOR_REWRITER_DEVICE double most() { return 1.7976931348623157e308; }
  INDUCTOR_REWRITER_DEVICE double fewest() { return -most(); }
  INDUCTOR_REWRITER_DEVICE void take(double& low, double& high, double value) {
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  INDUCTOR_REWRITER_DEVICE int64_t least(double value) { return least_of(key_of(value)); }
  INDUCTOR_REWRITER_DEVICE int64_t greatest(double value) { return greatest_of(key_of(value)); }
};

template <class Type>
struct Two;
INDUCTOR_REWRITER_DEVICE uint32_t smaller_half(uint32_t a, uint32_t b) {
  const auto key = [](uint32_t x) {
    return static_cast<int>((x & 0x8000u) ? (x ^ 0x7fffu) | 0xffff0000u : x);
  };
  return key(b) < key(a) ? b : a;
}
INDUCTOR_REWRITER_DEVICE uint32_t larger_half(uint32_t a, uint32_t b) {
  return smaller_half(a, b) == a ? b : a;
}
INDUCTOR_REWRITER_DEVICE uint32_t smaller_of(uint32_t a, uint32_t b) {
  return smaller_half(a & 0xffffu, b & 0xffffu) | smaller_half(a >> 16, b >> 16) << 16;
}
INDUCTOR_REWRITER_DEVICE uint32_t larger_of(uint32_t a, uint32_t b) {
  return larger_half(a & 0xffffu, b & 0xffffu) | larger_half(a >> 16, b >> 16) << 16;
}
template <class Type>
struct Extremes<Two<Type>> {
  INDUCTOR_REWRITER_DEVICE Two<Type> most() { return {Type::most}; }
  INDUCTOR_REWRITER_DEVICE Two<Type> fewest() { return {Type::least}; }
  INDUCTOR_REWRITER_DEVICE void take(Two<Type>& low, Two<Type>& high, double value) {
    const uint32_t bits = Type::of(static_cast<float>(value));
    low = {Type::smaller(low.bits, bits | bits << 16)};
    high = {Type::larger(high.bits, bits | bits << 16)};
  }
  INDUCTOR_REWRITER_DEVICE int64_t least(Two<Type> two) {
    return Extremes<float>::least(fminf(Two<Type>::first(two), Two<Type>::second(two)));
  }
  INDUCTOR_REWRITER_DEVICE int64_t greatest(Two<Type> two) {
    return Extremes<float>::greatest(fmaxf(Two<Type>::first(two), Two<Type>::second(two)));
  }
};

template <class Kind>
INDUCTOR_REWRITER_RARE Sums<typename Kind::Extreme> add_value(
    Sums<typename Kind::Extreme> sums, double value, Origin origin, Shared& shared) {
  const uint64_t bits = bits_of(value), size = bits << 1;
  if (size >= infinity << 1) {
    atomicAdd(size > infinity << 1 ? &shared.nan : bits >> 63 ? &shared.negative : &shared.positive, 1u);
    return sums;
  }
  if (elements::is_near_limit(value, elements::half_of_largest(origin.dtype), origin.dtype)) {
    atomicAdd(&shared.near_limit, 1u);
  }
  Extremes<typename Kind::Extreme>::take(sums.low, sums.high, value);
  double by = 1;
  if (Kind::huge) {
    const int wanted = scale_for(value);
    if (wanted > sums.scale) {
      sums.sum = rescaled(sums.sum, sums.scale, wanted);
      sums.squares = rescaled(rescaled(sums.squares, sums.scale, wanted), sums.scale, wanted);
      sums.scale = wanted;
    }
    by = scale(sums.scale);
  }
  const double apart = value * by - origin.shift * by;
  sums.sum += apart;
  sums.squares = fma(apart, apart, sums.squares);
  return sums;
}

template <class Kind>
INDUCTOR_REWRITER_DEVICE void add_each(
    Sums<typename Kind::Extreme>& sums, const Vector& vector, int count, const Origin& origin,
    Shared& shared) {
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    sums = add_value<Kind>(sums, value_of(vector, i, origin.dtype), origin, shared);
  }
}

template <class Extreme>
INDUCTOR_REWRITER_DEVICE void add_apart(Sums<Extreme>& sums, Extreme extreme, double apart) {
  sums.low = extreme < sums.low ? extreme : sums.low;
  sums.high = extreme > sums.high ? extreme : sums.high;
  sums.sum += apart;
  sums.squares = fma(apart, apart, sums.squares);
}

template <class Type>
struct Narrow {
  using Extreme = typename Type::Extreme;
  static constexpr bool huge = false;

  INDUCTOR_REWRITER_DEVICE void add(
      Sums<Extreme>& sums, const Vector& vector, const Origin& origin) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = word_of(vector, i);
      if (Type::pairs) add_one(sums, Type::lower(word), origin);
      add_one(sums, Type::upper(word), origin);
    }
  }
  INDUCTOR_REWRITER_DEVICE void add_one(Sums<Extreme>& sums, double value, const Origin& origin) {
    const double apart = value - origin.shift;
    sums.sum += apart;
    sums.squares = fma(apart, apart, sums.squares);
  }
};

struct Float32 {
  using Extreme = float;
  static constexpr bool pairs = false;
  static constexpr uint32_t step = 0x00800000u, exponents = 0x7f800000u, carries = 0x80000000u;
  INDUCTOR_REWRITER_DEVICE uint32_t bits(float value) { return __float_as_uint(value); }
  INDUCTOR_REWRITER_DEVICE float of_bits(uint32_t bits) { return __uint_as_float(bits); }
  INDUCTOR_REWRITER_DEVICE uint32_t smaller(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("min.NaN.f32 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
#else
    return key_of(__uint_as_float(b)) < key_of(__uint_as_float(a)) ? b : a;
#endif
  }
  INDUCTOR_REWRITER_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("max.NaN.f32 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
#else
    return key_of(__uint_as_float(b)) > key_of(__uint_as_float(a)) ? b : a;
#endif
  }
  INDUCTOR_REWRITER_DEVICE double lower(uint32_t) { return 0; }
  INDUCTOR_REWRITER_DEVICE double upper(uint32_t bits) { return __uint_as_float(bits); }
};

template <class Type>
struct Two {
  uint32_t bits;
  INDUCTOR_REWRITER_DEVICE float first(Two two) { return Type::plain(two.bits & 0xffffu); }
  INDUCTOR_REWRITER_DEVICE float second(Two two) { return Type::plain(two.bits >> 16); }
};

struct BFloat16 {
  using Extreme = Two<BFloat16>;
  static constexpr bool pairs = true;
  static constexpr uint32_t step = 0x01000100u, exponents = 0x7f807f80u, carries = 0x80008000u;
  static constexpr uint32_t most = 0x7f7f7f7fu, least = 0xff7fff7fu;
  INDUCTOR_REWRITER_DEVICE uint32_t bits(Extreme two) { return two.bits; }
  INDUCTOR_REWRITER_DEVICE Extreme of_bits(uint32_t bits) { return {bits}; }
  INDUCTOR_REWRITER_DEVICE float plain(uint32_t bits) { return __uint_as_float(bits << 16); }
  INDUCTOR_REWRITER_DEVICE uint32_t of(float value) { return __float_as_uint(value) >> 16; }
  INDUCTOR_REWRITER_DEVICE uint32_t smaller(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
#else
    return smaller_of(a, b);
#endif
  }
  INDUCTOR_REWRITER_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
#else
    return larger_of(a, b);
#endif
  }
  INDUCTOR_REWRITER_DEVICE double lower(uint32_t word) { return __uint_as_float(word << 16); }
  INDUCTOR_REWRITER_DEVICE double upper(uint32_t word) {
    return __uint_as_float(word & 0xffff0000u);
  }
};

struct Float16 {
  using Extreme = Two<Float16>;
  static constexpr bool pairs = true;
  static constexpr uint32_t step = 0x08000800u, exponents = 0x7c007c00u, carries = 0x80008000u;
  static constexpr uint32_t most = 0x7bff7bffu, least = 0xfbfffbffu;
  INDUCTOR_REWRITER_DEVICE uint32_t bits(Extreme two) { return two.bits; }
  INDUCTOR_REWRITER_DEVICE Extreme of_bits(uint32_t bits) { return {bits}; }
  INDUCTOR_REWRITER_DEVICE float plain(uint32_t bits) {
    return __uint_as_float((bits & 0x8000u) << 16 | (bits & 0x7fffu) << 13) * 0x1p112f;
  }
  INDUCTOR_REWRITER_DEVICE uint32_t of(float value) {
    const uint32_t bits = __float_as_uint(value * 0x1p-112f);
    return (bits >> 16 & 0x8000u) | (bits >> 13 & 0x7fffu);
  }
  INDUCTOR_REWRITER_DEVICE uint32_t smaller(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
#else
    return smaller_of(a, b);
#endif
  }
  INDUCTOR_REWRITER_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
#else
    return larger_of(a, b);
#endif
  }
#if defined(__CUDACC_RTC__)
  INDUCTOR_REWRITER_DEVICE double lower(uint32_t word) {
    float value;
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, a;}" : "=f"(value) : "r"(word));
    return value;
  }
  INDUCTOR_REWRITER_DEVICE double upper(uint32_t word) {
    float value;
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, b;}" : "=f"(value) : "r"(word));
    return value;
  }
#else
  INDUCTOR_REWRITER_DEVICE double lower(uint32_t word) { return from_float16(word & 0xffffu); }
  INDUCTOR_REWRITER_DEVICE double upper(uint32_t word) { return from_float16(word >> 16); }
#endif
};

struct Float8 {
  using Extreme = float;
  static constexpr bool huge = false;
  INDUCTOR_REWRITER_DEVICE bool passes(
      const Sums<float>&, const Vector& vector, const Origin& origin) {
    const bool is_fnuz = origin.dtype == dtypes::float8_e5m2fnuz ||
        origin.dtype == dtypes::float8_e4m3fnuz;
    const uint32_t step = origin.dtype == dtypes::float8_e4m3fn ? 0x09090909u
        : origin.dtype == dtypes::float8_e5m2fnuz               ? 0x04040404u
                                                                : 0x08080808u;
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = word_of(vector, i), flipped = word ^ 0x80808080u;
      any |= (word & 0x7f7f7f7fu) + step;
      if (is_fnuz) any |= (flipped - 0x01010101u) & ~flipped;
    }
    return !(any & 0x80808080u) && origin.dtype != dtypes::float8_e8m0fnu;
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<float>& sums, const Vector& vector, const Origin& origin) {
    const Small8 how = float8_of(origin.dtype);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const double value = float8_value(word_of(vector, i / 4) >> 8 * (i % 4) & 0xffu, how);
      add_apart(sums, static_cast<float>(value), value - origin.shift);
    }
  }
};

struct Float64 {
  using Extreme = double;
  static constexpr bool huge = true;
  INDUCTOR_REWRITER_DEVICE bool passes(
      const Sums<double>& sums, const Vector& vector, const Origin&) {
    const uint32_t limit = sums.scale == 0 ? 1023 - 400 : sums.scale == 1 ? 1023 + 400 : 2047;
    const uint32_t step = 0x80000000u - (limit << 20);
    const uint32_t any = ((word_of(vector, 1) & 0x7ff00000u) + step) |
        ((word_of(vector, 3) & 0x7ff00000u) + step);
    return !(any & 0x80000000u);
  }
  INDUCTOR_REWRITER_DEVICE void add(
      Sums<double>& sums, const Vector& vector, const Origin& origin) {
    const double by = scale(sums.scale), shift = origin.shift * by;
    add_apart(sums, from_bits(vector.first), from_bits(vector.first) * by - shift);
    add_apart(sums, from_bits(vector.second), from_bits(vector.second) * by - shift);
  }
};

template <class Type>
struct Converted {
  using Extreme = double;
  static constexpr bool huge = false;
  INDUCTOR_REWRITER_DEVICE bool passes(
      const Sums<double>&, const Vector& vector, const Origin& origin) {
    return Type::passes(vector, origin.dtype);
  }
  INDUCTOR_REWRITER_DEVICE void add(
      Sums<double>& sums, const Vector& vector, const Origin& origin) {
#pragma unroll
    for (int i = 0; i < 16 / Type::bytes; ++i) {
      const double value = Type::value(vector, i, origin.dtype);
      add_apart(sums, value, value - origin.shift);
    }
  }
};

struct Complex64 {
  static constexpr int bytes = 8;
  INDUCTOR_REWRITER_DEVICE bool passes(const Vector& vector, int32_t) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) any |= (word_of(vector, i) & 0x7f800000u) + 0x00800000u;
    return !(any >> 31);
  }
  INDUCTOR_REWRITER_DEVICE double value(const Vector& vector, int i, int32_t) {
    const double real = __uint_as_float(word_of(vector, 2 * i));
    const double imaginary = __uint_as_float(word_of(vector, 2 * i + 1));
    return sqrt(fma(real, real, imaginary * imaginary));
  }
};

struct Integer32 {
  static constexpr int bytes = 4;
  INDUCTOR_REWRITER_DEVICE bool passes(const Vector&, int32_t) { return true; }
  INDUCTOR_REWRITER_DEVICE double value(const Vector& vector, int i, int32_t dtype) {
    const uint32_t word = word_of(vector, i);
    return dtype == dtypes::uint32 ? static_cast<double>(word)
                                   : static_cast<double>(static_cast<int32_t>(word));
  }
};

struct Rare {
  using Extreme = double;
  static constexpr bool huge = true;
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<double>&, const Vector&, const Origin&) {
    return false;
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<double>&, const Vector&, const Origin&) {}
};

template <int bytes>
struct Small {
  using Extreme = float;
  static constexpr bool huge = false;
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<float>&, const Vector&, const Origin&) {
    return true;
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<float>& sums, const Vector& vector, const Origin& origin) {
    const int flip =
        origin.dtype == dtypes::int8 ? 1 << 7 : origin.dtype == dtypes::int16 ? 1 << 15 : 0;
    const int shift = static_cast<int>(origin.shift) + flip;
    int sum = 0, low = 1 << 20, high = -(1 << 20);
    uint64_t squares = 0;
#pragma unroll
    for (int i = 0; i < 16 / bytes; ++i) {
      const uint32_t word = word_of(vector, i * bytes / 4) >> 8 * (i * bytes % 4);
      const int apart = (static_cast<int>(word & ((1u << 8 * bytes) - 1)) ^ flip) - shift;
      low = apart < low ? apart : low;
      high = apart > high ? apart : high;
      sum += apart;
      const uint32_t size = static_cast<uint32_t>(apart < 0 ? -apart : apart);
      squares += bytes == 1 ? static_cast<uint64_t>(size * size) : static_cast<uint64_t>(size) * size;
    }
    const int start = shift - flip;
    sums.low = fminf(sums.low, static_cast<float>(low + start));
    sums.high = fmaxf(sums.high, static_cast<float>(high + start));
    sums.sum += sum;
    sums.squares += static_cast<double>(squares);
  }
};

struct Boolean {
  using Extreme = float;
  static constexpr bool huge = false;
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<float>&, const Vector&, const Origin&) {
    return true;
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<float>& sums, const Vector& vector, const Origin& origin) {
    int zeros = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = word_of(vector, i);
      zeros += __popc(~(((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word | 0x7f7f7f7fu));
    }
    if (zeros) sums.low = fminf(sums.low, 0.0f), sums.high = fmaxf(sums.high, 0.0f);
    if (zeros < 16) sums.low = fminf(sums.low, 1.0f), sums.high = fmaxf(sums.high, 1.0f);
    const int others = origin.shift != 0 ? zeros : 16 - zeros;
    sums.sum += origin.shift != 0 ? -others : others;
    sums.squares += others;
  }
};

struct Wide {
  using Extreme = int64_t;
  static constexpr bool huge = false;
  INDUCTOR_REWRITER_DEVICE int64_t key(uint64_t bits, int32_t dtype) {
    return static_cast<int64_t>(dtype == dtypes::uint64 ? bits ^ 1ull << 63 : bits);
  }
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<int64_t>&, const Vector&, const Origin&) {
    return true;
  }
  INDUCTOR_REWRITER_DEVICE void add(
      Sums<int64_t>& sums, const Vector& vector, const Origin& origin) {
    const int64_t first = key(vector.first, origin.dtype), second = key(vector.second, origin.dtype);
    add_apart(sums, first, difference(first, origin.key));
    add_apart(sums, second, difference(second, origin.key));
  }
};
template <>
struct Extremes<int64_t> {
  INDUCTOR_REWRITER_DEVICE int64_t most() { return greatest_key; }
  INDUCTOR_REWRITER_DEVICE int64_t fewest() { return ~greatest_key; }
  INDUCTOR_REWRITER_DEVICE int64_t least(int64_t value) { return least_of(value); }
  INDUCTOR_REWRITER_DEVICE int64_t greatest(int64_t value) { return greatest_of(value); }
};

struct Bytes {
  using Extreme = double;
  static constexpr bool huge = false;
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<double>&, const Vector&, const Origin&) {
    return true;
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<double>&, const Vector&, const Origin&) {}
};

template <class Kind>
struct Look {
  bool all;
  INDUCTOR_REWRITER_MEMBER Look(const Sums<typename Kind::Extreme>&) : all(true) {}
  INDUCTOR_REWRITER_MEMBER void see(
      const Sums<typename Kind::Extreme>& sums, const Vector& vector, const Origin& origin) {
    all &= Kind::passes(sums, vector, origin);
  }
  INDUCTOR_REWRITER_MEMBER bool keep(Sums<typename Kind::Extreme>&) const { return all; }
};
template <class Type>
struct Look<Narrow<Type>> {
  uint32_t low, high;
  INDUCTOR_REWRITER_MEMBER Look(const Sums<typename Type::Extreme>&)
      : low(Type::bits(Extremes<typename Type::Extreme>::most())),
        high(Type::bits(Extremes<typename Type::Extreme>::fewest())) {}
  INDUCTOR_REWRITER_MEMBER void see(
      const Sums<typename Type::Extreme>&, const Vector& vector, const Origin&) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low = Type::smaller(low, word_of(vector, i));
      high = Type::larger(high, word_of(vector, i));
    }
  }
  INDUCTOR_REWRITER_MEMBER bool keep(Sums<typename Type::Extreme>& sums) const {
    const uint32_t any =
        ((low & Type::exponents) + Type::step) | ((high & Type::exponents) + Type::step);
    if (any & Type::carries) return false;
    sums.low = Type::of_bits(Type::smaller(low, Type::bits(sums.low)));
    sums.high = Type::of_bits(Type::larger(high, Type::bits(sums.high)));
    return true;
  }
};

template <class Kind>
INDUCTOR_REWRITER_DEVICE void add_some(
    Sums<typename Kind::Extreme>& sums, const Vector& vector, int count, const Origin& origin,
    Shared& shared) {
  add_each<Kind>(sums, vector, count, origin, shared);
}
template <>
INDUCTOR_REWRITER_SPECIAL void add_some<Wide>(
    Sums<int64_t>& sums, const Vector& vector, int, const Origin& origin, Shared&) {
  const int64_t first = Wide::key(vector.first, origin.dtype);
  add_apart(sums, first, difference(first, origin.key));
}
template <>
INDUCTOR_REWRITER_SPECIAL void add_some<Bytes>(
    Sums<double>&, const Vector&, int, const Origin&, Shared&) {}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace


namespace {
namespace inductor_rewriter {

namespace gpu {

constexpr int ahead = 4;  // vectors that a thread loads before it uses the first

INDUCTOR_REWRITER_DEVICE uint64_t pair_of(uint32_t low, uint32_t high) {
  return low | static_cast<uint64_t>(high) << 32;
}

INDUCTOR_REWRITER_DEVICE uint32_t divided(uint32_t number, const Divisor& by) {
  return static_cast<uint32_t>(static_cast<uint64_t>(number) * by.factor >> 31) >> by.shift;
}

INDUCTOR_REWRITER_DEVICE int64_t place_in_rows(const QuickRows& rows, uint32_t vector) {
  const uint32_t row = divided(vector, rows.run);
  const uint32_t outer = divided(row, rows.sizes[0]);
  const uint32_t outermost = divided(outer, rows.sizes[1]);
  return static_cast<int64_t>(vector - row * rows.run.size) +
      static_cast<int64_t>(row - outer * rows.sizes[0].size) * rows.strides[0] +
      static_cast<int64_t>(outer - outermost * rows.sizes[1].size) * rows.strides[1] +
      static_cast<int64_t>(outermost) * rows.strides[2];
}


template <class Type, bool in_rows>
struct Aligned {
  static constexpr int size = Type::pairs ? 2 : 4, stride = ahead * threads;
  static constexpr bool is_whole = false;  // the last vector of the tensor may have few elements
  struct Group {
    Vector vectors[ahead];
  };
  using Coming = Group;
  using Taken = Group;
  const QuickRows& rows;
  const Vector* data;
  int64_t begin;
  int full;
  Vector own;
  const Vector* keys;

  INDUCTOR_REWRITER_MEMBER Aligned(
      const QuickTask& task, const QuickRows& in, int64_t first, int count)
      : rows(in), data(reinterpret_cast<const Vector*>(task.data)), begin(first), full(count) {}
  INDUCTOR_REWRITER_MEMBER const Vector* at(int vector) const {
    return data + (in_rows ? place_in_rows(rows, static_cast<uint32_t>(begin + vector))
                           : begin + vector);
  }
  INDUCTOR_REWRITER_MEMBER const char* element(int number) const {
    return reinterpret_cast<const char*>(at(number * size / 16)) + number * size % 16;
  }
  INDUCTOR_REWRITER_MEMBER bool has(int turn) const { return turn + (ahead - 1) * threads < full; }
  INDUCTOR_REWRITER_MEMBER Coming load(int turn) const {
    Coming coming;
#pragma unroll
    for (int j = 0; j < ahead; ++j) coming.vectors[j] = *at(turn + j * threads);
    return coming;
  }
  INDUCTOR_REWRITER_MEMBER Taken take(const Coming& coming) const { return coming; }
  INDUCTOR_REWRITER_MEMBER Vector again(int turn, int j) const { return *at(turn + j * threads); }
  INDUCTOR_REWRITER_MEMBER int first_alone(int turn) const { return turn; }
  INDUCTOR_REWRITER_MEMBER Vector alone(int turn) const { return *at(turn); }

  INDUCTOR_REWRITER_MEMBER void share_keys(
      const Vector (&a)[64], const Vector (&b)[64], Vector (&)[64], Vector (&to)[64]) {
    const int thread = static_cast<int>(threadIdx.x);
    own = a[thread % 64];
    if (thread < 64) to[thread] = b[thread];
    keys = to + (static_cast<int>(begin % fingerprint::tile_vectors) + thread) / 64;
  }
  INDUCTOR_REWRITER_MEMBER Vector key(const Taken&, int j) const { return of(keys[j * threads / 64]); }
  INDUCTOR_REWRITER_MEMBER void pass() { keys += stride / 64; }
  INDUCTOR_REWRITER_MEMBER Vector key_alone(int) const { return of(*keys); }
  INDUCTOR_REWRITER_MEMBER void pass_alone() { keys += threads / 64; }
  INDUCTOR_REWRITER_MEMBER Vector of(const Vector& key) const {
    return {own.first ^ key.first, own.second ^ key.second};
  }
};

template <class Type>
struct Apart {
  static constexpr int size = Type::pairs ? 2 : 4, per = 16 / size, stride = threads;
  static constexpr bool is_whole = true;
  struct Coming {
    uint32_t elements[ahead][per];
    uint32_t place;  // of the first vector in its unit
  };
  struct Taken {
    Vector vectors[ahead];
    uint32_t place;
  };
  const QuickRows& rows;
  const char* data;
  int64_t step;
  uint32_t begin;
  int full, groups;
  uint32_t shift, columns, height, longer, start, factor, longer_factor;
  const Vector *first_keys, *second_keys;

  INDUCTOR_REWRITER_MEMBER Apart(
      const QuickTask& task, const QuickRows& in, int64_t first, int count)
      : rows(in), data(task.data), step(static_cast<int64_t>(in.step) * size),
        begin(static_cast<uint32_t>(first)), full(count) {
    const bool is_last = begin + static_cast<uint32_t>(count) == static_cast<uint32_t>(task.whole);
    const bool is_grouped = rows.by_columns && rows.run.size % ahead == 0;
    shift = is_grouped ? 2 : 0;
    groups = is_grouped ? count / ahead : 0;
    columns = rows.run.size >> shift;
    height = rows.by_columns ? divided(static_cast<uint32_t>(count), rows.run) : 0;
    longer = (static_cast<uint32_t>(count) >> shift) - height * columns;
    start = longer * (height + 1);
    factor = is_last ? rows.factors[1][0] : rows.factors[0][0];
    longer_factor = is_last ? rows.factors[1][1] : rows.factors[0][1];
  }
  static_assert(ahead == 4, "a group has as many vectors as are loaded ahead");

  INDUCTOR_REWRITER_MEMBER uint32_t place_of(int turn) const {
    uint32_t number = static_cast<uint32_t>(turn);
    const bool is_longer = number < start;
    const uint32_t some = is_longer ? height + 1 : height;
    const uint32_t by = is_longer ? longer_factor : factor;
    number -= is_longer ? 0 : start;
    const uint32_t column = static_cast<uint32_t>(static_cast<uint64_t>(number << 4) * by >> 32);
    return (column + (is_longer ? 0 : longer) + (number - column * some) * columns) << shift;
  }
  INDUCTOR_REWRITER_MEMBER const char* at(uint32_t place) const {
    const uint32_t vector = begin + place;
    uint32_t row = divided(vector, rows.run);
    int64_t element = static_cast<int64_t>((vector - row * rows.run.size) * per) * rows.step;
    if (rows.sizes[0].size) {
      const uint32_t outer = divided(row, rows.sizes[0]);
      const uint32_t outermost = divided(outer, rows.sizes[1]);
      row -= outer * rows.sizes[0].size;
      element += static_cast<int64_t>(outer - outermost * rows.sizes[1].size) * rows.strides[1] +
          static_cast<int64_t>(outermost) * rows.strides[2];
    }
    return data + (element + static_cast<int64_t>(row) * rows.strides[0]) * size;
  }
  INDUCTOR_REWRITER_MEMBER const char* element(int number) const {
    return at(static_cast<uint32_t>(number / per)) + number % per * step;
  }
  INDUCTOR_REWRITER_MEMBER uint32_t read(const char* from) const {
    return Type::pairs ? *reinterpret_cast<const uint16_t*>(from)
                       : *reinterpret_cast<const uint32_t*>(from);
  }
  INDUCTOR_REWRITER_MEMBER Vector vector_of(const uint32_t (&elements)[per]) const {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = Type::pairs ? elements[i * per / 4] | elements[(2 * i + 1) % per] << 16 : elements[i];
    }
    return {pair_of(words[0], words[1]), pair_of(words[2], words[3])};
  }

  INDUCTOR_REWRITER_MEMBER bool has(int turn) const { return turn < groups; }
  INDUCTOR_REWRITER_MEMBER Coming load(int turn) const {
    Coming coming;
    coming.place = place_of(turn);
    const char* from = at(coming.place);
#pragma unroll
    for (int j = 0; j < ahead; ++j) {
#pragma unroll
      for (int i = 0; i < per; ++i, from += step) coming.elements[j][i] = read(from);
    }
    return coming;
  }
  INDUCTOR_REWRITER_MEMBER Taken take(const Coming& coming) const {
    Taken taken;
    taken.place = coming.place;
#pragma unroll
    for (int j = 0; j < ahead; ++j) taken.vectors[j] = vector_of(coming.elements[j]);
    return taken;
  }
  INDUCTOR_REWRITER_MEMBER Vector read_vector(const char* from) const {
    uint32_t elements[per];
#pragma unroll
    for (int i = 0; i < per; ++i, from += step) elements[i] = read(from);
    return vector_of(elements);
  }
  INDUCTOR_REWRITER_MEMBER Vector again(int turn, int j) const {
    return read_vector(at(place_of(turn)) + j * per * step);
  }
  INDUCTOR_REWRITER_MEMBER int first_alone(int turn) const { return groups ? full : turn; }
  INDUCTOR_REWRITER_MEMBER Vector alone(int turn) const { return read_vector(at(place_of(turn))); }

  INDUCTOR_REWRITER_MEMBER void share_keys(
      const Vector (&a)[64], const Vector (&b)[64], Vector (&first)[64], Vector (&second)[64]) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < 64) first[thread] = a[thread];
    else if (thread < 128) second[(thread - 64) ^ (thread - 64) >> 3] = b[thread - 64];
    first_keys = first;
    second_keys = second;
  }
  INDUCTOR_REWRITER_MEMBER Vector key_at(uint32_t first_place, int j) const {
    const uint32_t place = begin % static_cast<uint32_t>(fingerprint::tile_vectors) + first_place;
    const Vector& first = first_keys[place % 64 + static_cast<uint32_t>(j)];
    const Vector& second = second_keys[place >> 6 ^ place >> 9];
    return {first.first ^ second.first, first.second ^ second.second};
  }
  INDUCTOR_REWRITER_MEMBER Vector key(const Taken& taken, int j) const {
    return key_at(taken.place, j);
  }
  INDUCTOR_REWRITER_MEMBER void pass() {}
  INDUCTOR_REWRITER_MEMBER Vector key_alone(int turn) const { return key_at(place_of(turn), 0); }
  INDUCTOR_REWRITER_MEMBER void pass_alone() {}
};

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace

namespace {
namespace inductor_rewriter {

namespace gpu {


INDUCTOR_REWRITER_DEVICE Vector read_new(const Vector* from) {
#if defined(__CUDACC_RTC__)
  Vector result;
  asm volatile("ld.volatile.v2.u64 {%0, %1}, [%2];"
               : "=l"(result.first), "=l"(result.second) : "l"(from) : "memory");
  return result;
#else
  const volatile uint64_t* words = reinterpret_cast<const uint64_t*>(from);
  return {words[0], words[1]};
#endif
}

INDUCTOR_REWRITER_RARE const char* place_of(const Task& task, int size, int64_t element) {
  const char* at = task.data;
#pragma unroll 1
  for (int dim = task.dims - 1; dim >= 0; --dim) {
    const int64_t length = task.size[dim];
    int64_t here = element, rest = 0;
    if (element >= length) {
      rest = (element | length) >> 32 ? element / length
                                      : static_cast<uint32_t>(element) / static_cast<uint32_t>(length);
      here = element - rest * length;
    }
    element = rest;
    at += here * task.stride[dim] * size;
  }
  return at;
}

INDUCTOR_REWRITER_DEVICE Vector collect(const char* at, int64_t step, int size, int count) {
  Vector result = {0, 0};
  if (step == size && count * size == 16 && !(reinterpret_cast<uint64_t>(at) & 15)) {
    return *reinterpret_cast<const Vector*>(at);
  }
  if (size == 2 && count == 8) {
    uint64_t bits[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) bits[i] = *reinterpret_cast<const uint16_t*>(at + i * step);
    return {
        bits[0] | bits[1] << 16 | bits[2] << 32 | bits[3] << 48,
        bits[4] | bits[5] << 16 | bits[6] << 32 | bits[7] << 48};
  }
  if (size == 4 && count == 4) {
    uint64_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = *reinterpret_cast<const uint32_t*>(at + i * step);
    return {bits[0] | bits[1] << 32, bits[2] | bits[3] << 32};
  }
#pragma unroll 1
  for (int i = 0; i < count; ++i, at += step) {
    uint64_t bits = 0;
    switch (size) {
      case 1: bits = *reinterpret_cast<const uint8_t*>(at); break;
      case 2: bits = *reinterpret_cast<const uint16_t*>(at); break;
      case 4: bits = *reinterpret_cast<const uint32_t*>(at); break;
      case 8: bits = *reinterpret_cast<const uint64_t*>(at); break;
      default:  // complex numbers of 16 bytes are aligned to 8
        return {reinterpret_cast<const uint64_t*>(at)[0], reinterpret_cast<const uint64_t*>(at)[1]};
    }
    const int from = i * size;
    if (from < 8) result.first |= bits << 8 * from;
    else result.second |= bits << 8 * (from - 8);
  }
  return result;
}

INDUCTOR_REWRITER_RARE Vector gather(const Task& task, int size, int64_t vector) {
  const int64_t per = 16 / size, element = vector * per, left = task.numel - element;
  const int count = static_cast<int>(left < per ? left : per), last = task.dims - 1;
  const int64_t run = last < 0 ? 1 : task.size[last];
  const int64_t step = last < 0 ? 0 : task.stride[last] * size;
  const int64_t place = element < run ? element
      : (element | run) >> 32 ? element % run
                              : static_cast<uint32_t>(element) % static_cast<uint32_t>(run);
  if (place + count <= run) return collect(place_of(task, size, element), step, size, count);
  Vector result = {0, 0};
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const Vector one = collect(place_of(task, size, element + i), 0, size, 1);
    const int from = i * size;
    if (from < 8) result.first |= one.first << 8 * from;
    else result.second |= one.first << 8 * (from - 8);
  }
  return result;
}


template <int count>
INDUCTOR_REWRITER_DEVICE uint64_t pick(const uint64_t (&words)[count], int lane) {
  uint64_t word = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) word = lane == i ? words[i] : word;
  return word;
}

INDUCTOR_REWRITER_DEVICE void write_part(Part* part, const Sum& sum, uint64_t finite) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint64_t words[12] = {
      finite, sum.shift, bits_of(sum.sum), bits_of(sum.squares), static_cast<uint64_t>(sum.low),
      static_cast<uint64_t>(sum.high), sum.first, sum.second, sum.nan, sum.positive, sum.negative,
      sum.scale | sum.near_limit << 2};
  const uint64_t word = pick(words, lane);
  if (lane < 12) part->words[lane] = word;
}

INDUCTOR_REWRITER_DEVICE bool is_last(uint32_t* counter, uint32_t blocks) {
  uint32_t before = 0;
#if defined(__CUDACC_RTC__)
  __syncwarp();
  if (threadIdx.x == 0) {
#if __CUDA_ARCH__ >= 700
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before) : "l"(counter), "r"(blocks - 1) : "memory");
#else
    __threadfence();
    before = atomicInc(counter, blocks - 1);
    __threadfence();
#endif
  }
#else
  __threadfence();
  if (threadIdx.x == 0) before = atomicInc(counter, blocks - 1);
  __threadfence();
#endif
  return from_lane(before, 0) == blocks - 1;
}

struct PartsRead {
  const Part* parts;
  INDUCTOR_REWRITER_MEMBER void operator()(int i, Vector (&words)[6]) const {
    const Vector* from = reinterpret_cast<const Vector*>(parts[i].words);
#pragma unroll
    for (int j = 0; j < 6; ++j) words[j] = read_new(from + j);
  }
};

template <class Read>
INDUCTOR_REWRITER_DEVICE uint64_t merge_parts(
    const Read& read, int start, int count, bool split, bool is_wide, bool is_huge, Sum& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  total.nan = total.positive = total.negative = total.near_limit = 0;
  total.low = greatest_key;
  total.high = ~greatest_key;
  total.shift = total.first = total.second = 0;
  total.sum = total.squares = 0;
  total.scale = is_huge ? 0 : 1;
  uint64_t all_finite = 0;
  bool known = false;
#pragma unroll 1
  for (; start < count; start += threads) {
    const bool has = start + lane < count;
    Vector words[6] = {};
    if (has) read(start + lane, words);
    const double finite = static_cast<double>(static_cast<int64_t>(words[0].first));
    const uint32_t any = vote(words[0].first != 0);
    if (!known && any) {
      total.shift = from_lane(words[0].second, __ffs(static_cast<int>(any)) - 1);
      known = true;
    }
    double sum = from_bits(words[1].first), squares = from_bits(words[1].second);
    double by = 1;
    if (is_huge) {
      const int own = static_cast<int>(words[5].second & 3), before = static_cast<int>(total.scale);
      const bool has_large = vote(words[0].first && own == 2);
      const int wanted = has_large ? 2 : vote(words[0].first && own == 1) ? 1 : 0;
      const int number = wanted > before ? wanted : before;
      total.sum = rescaled(total.sum, before, number);
      total.squares = rescaled(rescaled(total.squares, before, number), before, number);
      total.scale = static_cast<uint64_t>(number);
      sum = rescaled(sum, own, number);
      squares = rescaled(rescaled(squares, own, number), own, number);
      by = scale(number);
    }
    if (words[0].first) {
      const double apart = is_wide
          ? difference(static_cast<int64_t>(words[0].second), static_cast<int64_t>(total.shift))
          : from_bits(words[0].second) * by - from_bits(total.shift) * by;
      total.sum += fma(finite, apart, sum);
      total.squares += fma(apart, fma(finite, apart, 2 * sum), squares);
      const int64_t low = static_cast<int64_t>(words[2].first);
      const int64_t high = static_cast<int64_t>(words[2].second);
      total.low = low < total.low ? low : total.low;
      total.high = high > total.high ? high : total.high;
    }
    all_finite += words[0].first;
    total.nan += words[4].first;
    total.positive += words[4].second;
    total.negative += words[5].first;
    total.near_limit += words[5].second >> 2;
    uint64_t first = words[3].first, second = words[3].second;
    if (split) {
      first = sum_of(first, 4);
      second = sum_of(second, 4);
      const fingerprint::Pair mixed =
          fingerprint::tile({first, second}, static_cast<uint64_t>(start + lane) >> 2);
      first = has && lane % 4 == 0 ? mixed.low : 0;
      second = has && lane % 4 == 0 ? mixed.high : 0;
    }
    total.first += first;
    total.second += second;
  }
  total.sum = sum_of(total.sum);
  total.squares = sum_of(total.squares);
  total.low = least_of(total.low);
  total.high = greatest_of(total.high);
  total.first = sum_of(total.first);
  total.second = sum_of(total.second);
  if (vote((total.nan | total.positive | total.negative | total.near_limit) != 0)) {
    total.near_limit = sum_of(total.near_limit);
    total.nan = sum_of(total.nan);
    total.positive = sum_of(total.positive);
    total.negative = sum_of(total.negative);
  }
  return sum_of(all_finite);
}

template <class AnyTask>
INDUCTOR_REWRITER_DEVICE void write_row(const AnyTask& task, uint64_t sequence, const Sum& sum) {
  const int lane = static_cast<int>(threadIdx.x);
  const uint64_t words[row_words] = {
      sum.nan, sum.positive, sum.negative, static_cast<uint64_t>(sum.low),
      static_cast<uint64_t>(sum.high), sum.shift, bits_of(sum.sum), bits_of(sum.squares),
      sum.first, sum.second, sum.scale, sum.near_limit, static_cast<uint64_t>(task.numel),
      static_cast<uint64_t>(task.dtype), sequence, 0};
  uint64_t word = pick(words, lane);
  const uint64_t whole = sum_of(lane < checksum_word ? checked(word, lane) : 0);
  if (lane == checksum_word) word = whole;
  if (lane < row_words) reinterpret_cast<volatile uint64_t*>(task.row)[lane] = word;
}

INDUCTOR_REWRITER_DEVICE void carry_elements(const QuickTask& task) {
  const int lane = static_cast<int>(threadIdx.x), bytes = static_cast<int>(task.whole);
  uint64_t word = 0;
#pragma unroll 1
  for (int i = 8 * lane; i < 8 * lane + 8 && i < bytes; ++i) {
    word |= static_cast<uint64_t>(static_cast<unsigned char>(task.data[i])) << i % 8 * 8;
  }
  if (lane == numel_word) word = static_cast<uint64_t>(task.numel);
  if (lane == dtype_word) word = static_cast<uint64_t>(task.dtype) | has_elements;
  if (lane == sequence_word) word = task.sequence;
  const uint64_t whole = sum_of(lane < checksum_word ? checked(word, lane) : 0);
  if (lane == checksum_word) word = whole;
  if (lane < row_words) reinterpret_cast<volatile uint64_t*>(task.row)[lane] = word;
}

struct Share {
  int size, per;  // bytes of an element, elements of a vector
  int length;     // vectors of a unit
  uint32_t first;
  uint64_t a0, a1;
};

struct Found {
  double sum, squares;
  int64_t least, greatest;
  uint64_t first, second;
  int scale, turn;
};

template <class Kind>
INDUCTOR_REWRITER_DEVICE void measure(
    const Task& task, const Share& share, const Origin& origin, Vector (&some)[ahead], bool loaded,
    Shared& shared, Found& found) {
  using namespace fingerprint;
  using Extreme = typename Kind::Extreme;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const bool direct = task.direct;
  Sums<Extreme> sums;
  sums.sum = sums.squares = 0;
  sums.low = Extremes<Extreme>::most();
  sums.high = Extremes<Extreme>::fewest();
  sums.scale = Kind::huge ? scale_for(origin.shift) : 1;
#pragma unroll 1
  for (uint32_t unit = share.first; unit < task.units; unit += task.blocks) {
    const int64_t begin = static_cast<int64_t>(unit) * share.length;
    const int64_t left = task.whole - begin;  // the last vector may lack elements, and is one more
    const bool is_whole = left >= share.length;
    const int full = is_whole ? share.length : static_cast<int>(left);
    const bool has_rest = !is_whole && (begin + full) * share.per < task.numel;
    const int count = full + has_rest;
    const int ready = direct ? full : 0;
    const int row = static_cast<int>(begin % tile_vectors) / 64;
    const Vector* from = reinterpret_cast<const Vector*>(task.data) + begin;
    uint64_t low = 0, high = 0;
    auto add_vector = [&](const Vector& vector, int i) {
      const Vector keys = shared.keys[row + i / 64];
      add_product(
          vector.first + (share.a0 ^ keys.first), vector.second + (share.a1 ^ keys.second), low,
          high);
    };
    int i = thread;
#pragma unroll 1
    for (; i + (ahead - 1) * threads < ready; i += ahead * threads) {
      if (!loaded) {
#pragma unroll
        for (int j = 0; j < ahead; ++j) some[j] = from[i + j * threads];
      }
      loaded = false;
      Look<Kind> look(sums);
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        add_vector(some[j], i + j * threads);
        look.see(sums, some[j], origin);
      }
      if (look.keep(sums)) {
#pragma unroll
        for (int j = 0; j < ahead; ++j) Kind::add(sums, some[j], origin);
      } else {
#pragma unroll 1
        for (int j = 0; j < ahead; ++j) {
          add_some<Kind>(sums, from[i + j * threads], share.per, origin, shared);
        }
      }
    }
#pragma unroll 1
    for (; i < count; i += threads) {
      const Vector vector = i < ready ? from[i] : gather(task, share.size, begin + i);
      add_vector(vector, i);
      Look<Kind> look(sums);
      look.see(sums, vector, origin);
      const bool complete = i < full;
      if (complete && look.keep(sums)) {
        Kind::add(sums, vector, origin);
      } else {
        const int64_t rest = task.numel - (begin + i) * share.per;
        add_some<Kind>(
            sums, vector, complete ? share.per : static_cast<int>(rest), origin, shared);
      }
    }
    low = sum_of(low);
    high = sum_of(high);
    if (lane == 0) {
      shared.low[found.turn][warp] = low;
      shared.high[found.turn][warp] = high;
    }
    if (unit + task.blocks >= task.units) break;  // the last unit needs no barrier
    __syncthreads();
    if (warp == 0) {
      const uint64_t lows = sum_of(shared.low[found.turn][lane % warps], warps);
      const uint64_t highs = sum_of(shared.high[found.turn][lane % warps], warps);
      const Pair mixed = tile({lows, highs}, static_cast<uint64_t>(unit));
      found.first += mixed.low;
      found.second += mixed.high;
    }
    found.turn ^= 1;
  }
  found.sum = sums.sum;
  found.squares = sums.squares;
  found.least = Extremes<Extreme>::least(sums.low);
  found.greatest = Extremes<Extreme>::greatest(sums.high);
  found.scale = sums.scale;
}

struct KeyTable {
  Vector a[64], b[64];
  INDUCTOR_REWRITER_SHARED constexpr KeyTable() : a(), b() {
    for (int i = 0; i < 64; ++i) {
      a[i] = {fingerprint::key(0, i), fingerprint::key(1, i)};
      b[i] = {fingerprint::key(2, i), fingerprint::key(3, i)};
    }
  }
};
INDUCTOR_REWRITER_TABLE KeyTable key_table;

INDUCTOR_REWRITER_DEVICE void measure_share(
    const Task& task, uint32_t block, Share& share, Origin& origin, Shared& shared,
    Found& found) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int32_t dtype = task.dtype;
  const bool is_wide = dtype == dtypes::int64 || dtype == dtypes::uint64;
  const int split = task.split;
  share.size = elements::size(dtype);
  share.per = 16 / share.size;
  share.length = static_cast<int>(fingerprint::tile_vectors) >> split;
  share.first = block;

  const int64_t begin = static_cast<int64_t>(share.first) * share.length;
  const int64_t begin_element = begin * share.per, left = task.numel - begin_element;
  const int unit_elements = share.length * share.per;
  const int sampled = left < unit_elements ? static_cast<int>(left) : unit_elements;
  auto sample = [&](int64_t element) {
    const char* at = task.direct ? task.data + element * share.size
                                     : place_of(task, share.size, element);
    return collect(at, 0, share.size, 1);
  };
  Vector one = {0, 0};
  if (sampled > 0) one = sample(begin_element + sampled / 2);
  Vector some[ahead] = {};
  const bool loaded = task.direct && begin + share.length <= task.whole;
  if (loaded) {
    const Vector* from = reinterpret_cast<const Vector*>(task.data) + begin;
#pragma unroll
    for (int j = 0; j < ahead; ++j) some[j] = from[thread + j * threads];
  }
  const Vector own = key_table.a[thread % 64];
  share.a0 = own.first;
  share.a1 = own.second;
  if (thread < 64) shared.keys[thread] = key_table.b[thread];
  if (thread == 64) {
    shared.nan = shared.positive = shared.negative = shared.near_limit = 0;
    shared.scale = 0;
  }
  origin = {0, 0, dtype};
  if (is_wide) {
    origin.key = Wide::key(one.first, dtype);
  } else if (elements::is_number(dtype) && sampled > 0) {
    origin.shift = value_near(one, dtype);
    if (!is_finite(origin.shift)) {
      const double value = value_near(
          sample(begin_element + static_cast<int64_t>(sampled - 1) * lane / 31), dtype);
      const uint32_t usable = vote(is_finite(value));
      origin.shift = usable ? from_lane(value, __ffs(static_cast<int>(usable)) - 1) : 0;
    }
  }
  __syncthreads();

  switch (dtype) {
    case dtypes::float32:
      measure<Narrow<Float32>>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::bfloat16:
      measure<Narrow<BFloat16>>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::float16:
      measure<Narrow<Float16>>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::float64:
      measure<Float64>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::int64: case dtypes::uint64:
      measure<Wide>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::uint8: case dtypes::int8:
      measure<Small<1>>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::uint16: case dtypes::int16:
      measure<Small<2>>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::int32: case dtypes::uint32:
      measure<Converted<Integer32>>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::boolean:
      measure<Boolean>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::complex64:
      measure<Converted<Complex64>>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::complex32: case dtypes::complex128:
      measure<Rare>(task, share, origin, some, loaded, shared, found);
      break;
    case dtypes::float8_e5m2: case dtypes::float8_e4m3fn: case dtypes::float8_e5m2fnuz:
    case dtypes::float8_e4m3fnuz: case dtypes::float8_e8m0fnu:
      measure<Float8>(task, share, origin, some, loaded, shared, found);
      break;
    default: measure<Bytes>(task, share, origin, some, loaded, shared, found); break;
  }
}

INDUCTOR_REWRITER_DEVICE void sum_block(
    uint32_t units, uint32_t blocks, bool split, bool any, const Share& share, Shared& shared,
    const Found& found, Sum& total) {
  const int other = static_cast<int>(threadIdx.x) % warps;
  total.nan = shared.nan;
  total.positive = shared.positive;
  total.negative = shared.negative;
  total.near_limit = shared.near_limit;
  total.sum = sum_of(shared.sum[other], warps);
  total.squares = sum_of(shared.squares[other], warps);
  total.low = least_of(shared.least[other], warps);
  total.high = greatest_of(shared.greatest[other], warps);
  total.first = found.first;
  total.second = found.second;
  if (!any) return;
  fingerprint::Pair pair = {
      sum_of(shared.low[found.turn][other], warps), sum_of(shared.high[found.turn][other], warps)};
  const uint32_t own = (units - 1 - share.first) / blocks;  // units after the first
  if (!split || blocks == 1) {
    pair = fingerprint::tile(pair, split ? 0 : share.first + own * blocks);
  }
  total.first += pair.low;
  total.second += pair.high;
}

template <class AnyTask>
INDUCTOR_REWRITER_DEVICE int64_t count_of(
    const AnyTask& task, uint32_t block, int64_t unit_elements) {
  const uint32_t after = task.units - 1 - block, own = after / task.blocks;
  int64_t count = static_cast<int64_t>(own + 1) * unit_elements;
  if (own * task.blocks == after) {
    count -= static_cast<int64_t>(task.units) * unit_elements - task.numel;
  }
  return count;
}

INDUCTOR_REWRITER_DEVICE void share_sums(Found& found, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  found.sum = sum_of(found.sum);
  found.squares = sum_of(found.squares);
  if (lane == 0) {
    shared.sum[warp] = found.sum;
    shared.squares[warp] = found.squares;
    shared.least[warp] = found.least;
    shared.greatest[warp] = found.greatest;
  }
  __syncthreads();
}

template <class Read>
INDUCTOR_REWRITER_DEVICE void merge(
    const Read& read, int count, bool split, bool is_wide, bool is_huge, Shared& shared,
    Sum& total) {
  const int warp = static_cast<int>(threadIdx.x) / 32, start = 32 * warp;
  const uint64_t finite = merge_parts(read, start, count, split, is_wide, is_huge, total);
  if (count <= 32) return;
  write_part(&shared.parts[warp], total, finite);
  __syncthreads();
  merge_parts(PartsRead{shared.parts}, start, warps, false, is_wide, is_huge, total);
}


struct QuickSums {
  double sum, squares;
  uint64_t low, high;  // of the fingerprint
  int32_t least, greatest;  // keys of floats
};

INDUCTOR_REWRITER_DEVICE void sum_quickly(QuickSums& sums, int with) {
#pragma unroll 1
  for (; with; with >>= 1) {
    sums.sum += exchange(sums.sum, with);
    sums.squares += exchange(sums.squares, with);
    sums.low += exchange(sums.low, with);
    sums.high += exchange(sums.high, with);
    const int32_t least = exchange(sums.least, with), greatest = exchange(sums.greatest, with);
    sums.least = least < sums.least ? least : sums.least;
    sums.greatest = greatest > sums.greatest ? greatest : sums.greatest;
  }
}

struct QuickShared {
  Vector keys[64];
  QuickSums sums[warps];
};

template <class Type>
INDUCTOR_REWRITER_DEVICE double sample_quickly(const char* from) {
  if (Type::pairs) return Type::lower(*reinterpret_cast<const uint16_t*>(from));
  return Type::upper(*reinterpret_cast<const uint32_t*>(from));
}

INDUCTOR_REWRITER_DEVICE int32_t least_key(float extreme) { return key_of(extreme); }
INDUCTOR_REWRITER_DEVICE int32_t greatest_key_of(float extreme) { return key_of(extreme); }
template <class Type>
INDUCTOR_REWRITER_DEVICE int32_t least_key(Two<Type> two) {
  return key_of(fminf(Two<Type>::first(two), Two<Type>::second(two)));
}
template <class Type>
INDUCTOR_REWRITER_DEVICE int32_t greatest_key_of(Two<Type> two) {
  return key_of(fmaxf(Two<Type>::first(two), Two<Type>::second(two)));
}

template <class Type, class Reader>
INDUCTOR_REWRITER_DEVICE void measure_quickly(
    const QuickTask& task, const QuickRows& rows, uint32_t block, Shared& counts,
    QuickShared& shared) {
  using Kind = Narrow<Type>;
  using Extreme = typename Type::Extreme;
  constexpr int per = Type::pairs ? 8 : 4;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int length = static_cast<int>(fingerprint::tile_vectors) >> task.split;
  const int64_t begin = static_cast<int64_t>(block) * length, left = task.whole - begin;
  const int full = left < length ? static_cast<int>(left) : length;
  const int64_t begin_element = begin * per, elements = task.numel - begin_element;
  const int sampled = elements < length * per ? static_cast<int>(elements) : length * per;
  Reader reader(task, rows, begin, full);
  const auto sample = [&](int element) { return sample_quickly<Type>(reader.element(element)); };
  typename Reader::Coming first;
  int i = thread;
  if (reader.has(i)) first = reader.load(i);
  Origin origin = {sample(sampled / 2), 0, task.dtype};
  reader.share_keys(key_table.a, key_table.b, counts.keys, shared.keys);
  if (thread == 128) counts.nan = counts.positive = counts.negative = counts.near_limit = 0;
  if (!is_finite(origin.shift)) {
    const double value =
        sample(static_cast<int>(static_cast<int64_t>(sampled - 1) * lane / 31));
    const uint32_t usable = vote(is_finite(value));
    origin.shift = usable ? from_lane(value, __ffs(static_cast<int>(usable)) - 1) : 0;
  }
  __syncthreads();

  QuickSums total = {};
  Sums<Extreme> sums;
  sums.sum = sums.squares = 0;
  sums.low = Extremes<Extreme>::most();
  sums.high = Extremes<Extreme>::fewest();
  sums.scale = 1;
  auto add_vector = [&](const Vector& vector, const Vector& key) {
    add_product(vector.first + key.first, vector.second + key.second, total.low, total.high);
  };
  if (reader.has(i)) {
    typename Reader::Taken some = reader.take(first);
#pragma unroll 1
    for (;;) {
      const int next = i + Reader::stride;
      const bool more = reader.has(next);
      typename Reader::Coming coming;
      if (more) coming = reader.load(next);
      Look<Kind> look(sums);
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        add_vector(some.vectors[j], reader.key(some, j));
        look.see(sums, some.vectors[j], origin);
      }
      if (look.keep(sums)) {
#pragma unroll
        for (int j = 0; j < ahead; ++j) Kind::add(sums, some.vectors[j], origin);
      } else {
#pragma unroll 1
        for (int j = 0; j < ahead; ++j) {
          add_some<Kind>(sums, reader.again(i, j), per, origin, counts);
        }
      }
      i = next;
      reader.pass();
      if (!more) break;
      some = reader.take(coming);
    }
  }
  const int count = full + (full < length && (begin + full) * per < task.numel);
#pragma unroll 1
  for (i = reader.first_alone(i); i < count; i += threads) {
    const bool complete = Reader::is_whole || i < full;
    const int size = 16 / per, rest = static_cast<int>(task.numel - (begin + i) * per);
    const Vector vector =
        complete ? reader.alone(i) : collect(reader.element(i * per), size, size, rest);
    add_vector(vector, reader.key_alone(i));
    reader.pass_alone();
    Look<Kind> look(sums);
    look.see(sums, vector, origin);
    if (complete && look.keep(sums)) Kind::add(sums, vector, origin);
    else add_some<Kind>(sums, vector, complete ? per : rest, origin, counts);
  }

  total.sum = sums.sum;
  total.squares = sums.squares;
  total.least = least_key(sums.low);
  total.greatest = greatest_key_of(sums.high);
  sum_quickly(total, 16);
  if (lane == 0) shared.sums[warp] = total;
  __syncthreads();
  if (warp) return;
  total = shared.sums[lane % warps];
  sum_quickly(total, warps / 2);
  if (lane) return;
  fingerprint::Pair pair = {total.low, total.high};
  if (!task.split || task.blocks == 1) pair = fingerprint::tile(pair, task.split ? 0 : block);
  const uint32_t mark = part_mark(task.sequence);
  const uint64_t sum = bits_of(total.sum), squares = bits_of(total.squares);
  const auto half = [](uint64_t word, int which) { return static_cast<uint32_t>(word >> 32 * which); };
  const uint32_t words[3 * quick_vectors] = {
      __float_as_uint(static_cast<float>(origin.shift)), counts.nan, counts.positive,
      counts.negative, __float_as_uint(float_of(total.least)),
      __float_as_uint(float_of(total.greatest)), half(sum, 0), half(sum, 1), half(squares, 0),
      half(squares, 1), half(pair.low, 0), half(pair.low, 1), half(pair.high, 0),
      half(pair.high, 1), counts.near_limit};
#pragma unroll
  for (int j = 0; j < quick_vectors; ++j) {
    task.parts[static_cast<uint32_t>(j) * task.blocks + block] = {
        pair_of(words[3 * j], words[3 * j + 1]), pair_of(words[3 * j + 2], mark)};
  }
}

template <class Type>
INDUCTOR_REWRITER_DEVICE void measure_quickly(
    const QuickTask& task, const QuickRows& rows, uint32_t block, Shared& counts,
    QuickShared& shared) {
  if (rows.kind == QuickRows::contiguous) {
    measure_quickly<Type, Aligned<Type, false>>(task, rows, block, counts, shared);
  } else if (rows.kind == QuickRows::aligned) {
    measure_quickly<Type, Aligned<Type, true>>(task, rows, block, counts, shared);
  } else {
    measure_quickly<Type, Apart<Type>>(task, rows, block, counts, shared);
  }
}

struct QuickPartsRead {
  const QuickTask& task;
  bool& is_there;
  INDUCTOR_REWRITER_MEMBER void operator()(int i, Vector (&to)[6]) const {
    uint32_t words[3 * quick_vectors];
#pragma unroll
    for (int j = 0; j < quick_vectors; ++j) {
      const Vector vector = read_new(task.parts + static_cast<uint32_t>(j) * task.blocks + i);
      words[3 * j] = static_cast<uint32_t>(vector.first);
      words[3 * j + 1] = static_cast<uint32_t>(vector.first >> 32);
      words[3 * j + 2] = static_cast<uint32_t>(vector.second);
      is_there = is_there && static_cast<uint32_t>(vector.second >> 32) == part_mark(task.sequence);
    }
    const auto value = [](uint32_t bits) { return static_cast<double>(__uint_as_float(bits)); };
    const int per = 16 / elements::size(task.dtype);
    const int64_t all = count_of(
        task, static_cast<uint32_t>(i), (fingerprint::tile_vectors >> task.split) * per);
    const int64_t others = static_cast<int64_t>(words[1]) + words[2] + words[3];
    to[0] = {static_cast<uint64_t>(all - others), bits_of(value(words[0]))};
    to[1] = {pair_of(words[6], words[7]), pair_of(words[8], words[9])};
    to[2] = {
        static_cast<uint64_t>(key_of(value(words[4]))), static_cast<uint64_t>(key_of(value(words[5])))};
    to[3] = {pair_of(words[10], words[11]), pair_of(words[12], words[13])};
    to[4] = {words[1], words[2]};
    to[5] = {words[3], 1 | static_cast<uint64_t>(words[14]) << 2};
  }
};

INDUCTOR_REWRITER_DEVICE void merge_quick_parts(const QuickTask& task, bool checks, Shared& shared) {
  bool is_there = true;
  Sum total = {};
  const int blocks = static_cast<int>(task.blocks);
  if (threadIdx.x == 0) shared.nan = 0;
  __syncthreads();
  merge(
      QuickPartsRead{task, is_there}, blocks, task.split && blocks > 1, false, false, shared, total);
  if (checks) {
    if (!is_there) atomicAdd(&shared.nan, 1u);
    __syncthreads();
    if (shared.nan) return;
  }
  if (threadIdx.x < 32) write_row(task, task.sequence, total);
}

INDUCTOR_REWRITER_DEVICE void wait_for_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

INDUCTOR_REWRITER_DEVICE void measure_block(const QuickJob& job, uint32_t number) {
  __shared__ Shared shared;
  __shared__ QuickShared quick_shared;
  uint32_t place = 0;
  while (place + 1 < job.count && number >= job.tasks[place + 1].first_block) ++place;
  const QuickTask& task = job.tasks[place];
  const uint32_t block = number - task.first_block;
  const QuickRows& rows = job.rows[place];
  if (task.split == carried) {
    if (threadIdx.x < 32) carry_elements(task);
    return;
  }
  switch (task.dtype) {
    case dtypes::float32: measure_quickly<Float32>(task, rows, block, shared, quick_shared); break;
    case dtypes::bfloat16: measure_quickly<BFloat16>(task, rows, block, shared, quick_shared); break;
    default: measure_quickly<Float16>(task, rows, block, shared, quick_shared); break;
  }
}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace

extern "C" __global__ void __launch_bounds__(256, 2)
inductor_rewriter_measure_quickly(
    const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::gpu::QuickJob job) {
  inductor_rewriter::gpu::wait_for_launch_before();
  inductor_rewriter::gpu::measure_block(job, blockIdx.x);
}

extern "C" __global__ void __launch_bounds__(256, 2)
inductor_rewriter_merge(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::gpu::MergeJob job) {
  __shared__ inductor_rewriter::gpu::Shared shared;
  inductor_rewriter::gpu::wait_for_launch_before();
  inductor_rewriter::gpu::merge_quick_parts(job.tasks[blockIdx.x], job.checks, shared);
}

extern "C" __global__ void __launch_bounds__(256, 2)
inductor_rewriter_measure(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::gpu::Job job) {
  using namespace inductor_rewriter;
  using namespace inductor_rewriter::gpu;
  __shared__ Shared shared;
  int place = 0;
  while (place + 1 < job.count && blockIdx.x >= job.tasks[place + 1].first_block) ++place;
  const Task& task = job.tasks[place];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int32_t dtype = task.dtype;
  const bool is_wide = dtype == dtypes::int64 || dtype == dtypes::uint64;
  const bool is_huge = elements::is_huge(dtype) || dtype == dtypes::complex32;
  Share share;
  Origin origin;
  Found found = {};
  measure_share(task, blockIdx.x - task.first_block, share, origin, shared, found);
  int number = found.scale;
  if (is_huge) {
    atomicMax(&shared.scale, found.scale);
    __syncthreads();
    number = shared.scale;
    found.sum = rescaled(found.sum, found.scale, number);
    found.squares = rescaled(rescaled(found.squares, found.scale, number), found.scale, number);
  }
  share_sums(found, shared);
  if (warp && task.blocks == 1) return;

  Sum total = {};
  if (warp == 0) {
    total.scale = static_cast<uint64_t>(number);
    total.shift = is_wide ? static_cast<uint64_t>(origin.key) : bits_of(origin.shift);
    sum_block(task.units, task.blocks, task.split, task.numel > 0, share, shared, found, total);
    if (task.blocks > 1) {
      const int64_t all = count_of(
          task, share.first, static_cast<int64_t>(share.length) * share.per);
      const int64_t others = static_cast<int64_t>(total.nan + total.positive + total.negative);
      const int64_t count = elements::is_number(dtype) ? all - others : 0;
      write_part(task.parts + share.first, total, static_cast<uint64_t>(count));
      const bool is_last_one = is_last(task.counter, task.blocks);
      if (lane == 0) shared.is_last = is_last_one;
    }
  }
  if (task.blocks > 1) {
    __syncthreads();
    if (!shared.is_last) return;
    merge(
        PartsRead{task.parts}, static_cast<int>(task.blocks), task.split, is_wide, is_huge, shared,
        total);
    if (warp) return;
  }
  uint64_t sequence = task.sequence;
  if (task.replays) {
    sequence = 0;
    if (lane == 0) sequence = ++*task.replays;
    sequence = from_lane(sequence, 0);
  }
  write_row(task, sequence, total);
}


namespace {
namespace inductor_rewriter {
namespace gpu {

INDUCTOR_REWRITER_DEVICE void compare_band(
    Damage* const all_damage, uint64_t launch, const Band& band) {
  __shared__ int nearest;  // bytes of the band minus the distance to the nearest damage; 0 for none
  __shared__ uint32_t count, is_damaged;
  if (threadIdx.x == 0) {
    nearest = 0;
    count = is_damaged = 0;
  }
  __syncthreads();
  const uint64_t first = reinterpret_cast<uint64_t>(band.data), end = first + band.bytes;
  const uint64_t words = (first + 7) / 8 * 8, behind = end / 8 * 8;
  uint64_t differs = 0;
  for (uint64_t at = words + 8 * threadIdx.x; at + 8 <= end; at += 8 * 256) {
    differs |= *reinterpret_cast<const uint64_t*>(at) ^ band.pattern;
  }
  if (threadIdx.x < 16) {  // the bytes before the first word, and after the last one
    const uint64_t at = threadIdx.x < 8 ? first + threadIdx.x : behind + threadIdx.x - 8;
    if (at < end && (threadIdx.x < 8 ? at < words : at >= words)) {
      differs |= *reinterpret_cast<const unsigned char*>(at) ^ (band.pattern >> (at % 8 * 8) & 255);
    }
  }
  if (differs) is_damaged = 1;
  __syncthreads();
  if (!is_damaged) return;
  for (uint32_t place = threadIdx.x; place < band.bytes; place += 256) {
    const uint64_t expected = band.pattern >> ((first + place) % 8 * 8) & 255;
    if (band.data[place] == expected) continue;
    const uint32_t distance = band.before ? band.bytes - 1 - place : place;
    atomicMax(&nearest, static_cast<int>(band.bytes - distance));
    atomicAdd(&count, 1u);
  }
  __syncthreads();
  Damage& damage = all_damage[band.slot];
  if (threadIdx.x != 0 || damage.launch) return;
  const uint64_t distance = band.bytes - static_cast<uint32_t>(nearest);
  const uint64_t item = band.item_bytes ? band.item_bytes : 1, element = distance / item;
  const uint64_t start = band.before ? band.bytes - (element + 1) * item : element * item;
  for (uint64_t i = 0; i < 8; ++i) {
    damage.element[i] = i < item && start + i < band.bytes ? band.data[start + i]
                                                           : static_cast<unsigned char>(0);
  }
  damage.distance = distance;
  damage.count = count;
  __threadfence();
  damage.launch = launch;
  all_damage[0].launch = launch;
}

INDUCTOR_REWRITER_DEVICE void wait_a_moment() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  asm volatile("nanosleep.u32 100;");
#endif
}

struct alignas(16) TwoWords {
  uint64_t one, other;
};

INDUCTOR_REWRITER_DEVICE void fill_share(
    const Filled& part, uint64_t thread, uint64_t threads) {
  const uint64_t first = reinterpret_cast<uint64_t>(part.data), end = first + part.bytes;
  const uint64_t words = (first + 15) / 16 * 16, behind = end / 16 * 16;
  const TwoWords pattern = {part.pattern, part.pattern};
  for (uint64_t at = words + 16 * thread; at + 16 <= end; at += 16 * threads) {
    *reinterpret_cast<TwoWords*>(at) = pattern;
  }
  if (thread >= 32) return;
  const uint64_t at = thread < 16 ? first + thread : behind + thread - 16;
  if (at >= end || (thread < 16 ? at >= words : at < words)) return;
  *reinterpret_cast<unsigned char*>(at) = static_cast<unsigned char>(part.pattern >> (at % 8 * 8));
}

template <class Job, class Read>
INDUCTOR_REWRITER_DEVICE void act_on_memory(const Job& job, uint32_t number, Read was_read) {
  if (number < job.bands_count) {
    compare_band(job.damage, job.launch, job.bands[number]);
    return;
  }
  was_read();
  const uint64_t block = number - job.bands_count;
  const uint64_t thread = block * 256 + threadIdx.x, threads = uint64_t{job.blocks} * 256;
  for (uint32_t part = 0; part < job.parts_count; ++part) fill_share(job.parts[part], thread, threads);
}

}  // namespace gpu
}  // namespace inductor_rewriter
}  // namespace

extern "C" __global__ void __launch_bounds__(256)
inductor_rewriter_memory(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::MemoryJob job) {
  inductor_rewriter::gpu::wait_for_launch_before();
  inductor_rewriter::gpu::act_on_memory(job, blockIdx.x, [] {});
}

extern "C" __global__ void __launch_bounds__(256)
inductor_rewriter_memory_few(
    const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::SmallMemoryJob job) {
  inductor_rewriter::gpu::wait_for_launch_before();
  inductor_rewriter::gpu::act_on_memory(job, blockIdx.x, [] {});
}

extern "C" __global__ void __launch_bounds__(256, 2)
inductor_rewriter_measure_and_act(
    const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::gpu::JoinedJob job) {
  using namespace inductor_rewriter::gpu;
  wait_for_launch_before();
  if (blockIdx.x < job.blocks) {
    measure_block(job.quick, blockIdx.x);
    __syncthreads();  // all threads of the block have finished reading
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(job.measured, 1u);
    }
    return;
  }
  act_on_memory(job.memory, blockIdx.x - job.blocks, [&job] {
    if (threadIdx.x == 0) {
      while (static_cast<int>(atomicAdd(job.measured, 0u) - job.until) < 0) wait_a_moment();
      __threadfence();
    }
    __syncthreads();
  });
}
)kernel";
}

}  // namespace inductor_rewriter
}  // namespace

#ifdef INDUCTOR_REWRITER_APART
namespace { namespace inductor_rewriter {} }
namespace inductor_rewriter_apart __attribute__((visibility("hidden"))) {
using namespace inductor_rewriter;
#else
namespace {
namespace inductor_rewriter {
#endif

// The bodies of what a wrapper calls.

// Held while the recorder of a wrapper is made.
inline std::mutex& starting() {
  static std::mutex mutex;
  return mutex;
}

inline void be_silent(Wrapper& wrapper, bool yes) {
  __atomic_store_n(&wrapper.silent, yes, __ATOMIC_RELAXED);
}

// The Recorder of a wrapper, or with dormant probes its Dormant; made at the first call. Null if there is
// nothing to do.
template <class Recorder>
Recorder* recorder_of(Wrapper& wrapper) {
  if (__atomic_load_n(&wrapper.silent, __ATOMIC_RELAXED)) return nullptr;
  void* made = __atomic_load_n(&wrapper.recorder, __ATOMIC_ACQUIRE);
  if (made) return static_cast<Recorder*>(made);
  std::lock_guard<std::mutex> guard(starting());
  made = __atomic_load_n(&wrapper.recorder, __ATOMIC_ACQUIRE);
  if (made) return static_cast<Recorder*>(made);
  const char* off = std::getenv("REWRITER_PROBE");
  if (off && (off[0] | 32) == 'o' && (off[1] | 32) == 'f' && (off[2] | 32) == 'f' && !off[3]) {
    be_silent(wrapper, true);
    return nullptr;
  }
  try {
    Recorder* recorder = new Recorder(wrapper);
    __atomic_store_n(&wrapper.recorder, static_cast<void*>(recorder), __ATOMIC_RELEASE);
    return recorder;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[rewriter] warning: no probes: %s\n", error.what());
    be_silent(wrapper, true);
    return nullptr;
  }
}

// For code that puts probes into a running program: calls that begin from now on are recorded into this
// directory, by a new recorder, or not at all if it is null. Waits until earlier calls are written. False if
// that failed.
inline bool record_into(Wrapper& wrapper, const char* directory, bool quiet) noexcept {
  if (wrapper.options.dormant) return false;  // its control file switches it
  std::lock_guard<std::mutex> guard(starting());
  try {
    void* const before = __atomic_load_n(&wrapper.recorder, __ATOMIC_ACQUIRE);
    if (directory) {
      void* const recorder = new Recorder(wrapper, directory, quiet);
      __atomic_store_n(&wrapper.recorder, recorder, __ATOMIC_RELEASE);
    }
    be_silent(wrapper, !directory);
    if (before) static_cast<Recorder*>(before)->finish();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[rewriter] warning: no probes: %s\n", error.what());
    be_silent(wrapper, true);
    return false;
  }
}

// Waits until the calls that ended are written.
inline void finish_writing(Wrapper& wrapper) noexcept {
  if (wrapper.options.dormant) return;
  void* const made = __atomic_load_n(&wrapper.recorder, __ATOMIC_ACQUIRE);
  if (!made) return;
  static_cast<Recorder*>(made)->read_replays();
  static_cast<Recorder*>(made)->finish();
}

Call::Call(Wrapper& wrapper) noexcept : picks_(wrapper.picks) {
  try {
    if (wrapper.options.dormant) {
      Dormant* dormant = recorder_of<Dormant>(wrapper);
      if (dormant) running_ = dormant->begin();
      return;
    }
    Recorder* recorder = recorder_of<Recorder>(wrapper);
    if (!recorder || recorder->is_worker() || recorder->is_fork()) return;
    running_ = recorder->begin();
  } catch (...) {
    // Out of memory: the model runs on without probes.
  }
}

Call::~Call() {
  if (!running_) return;
  RunningCall& running = *static_cast<RunningCall*>(running_);
  try {
    // A forked process must neither write nor free what it inherited.
    if (running.recorder.is_fork()) return;
    Session* const session = running.session;
    running.recorder.end(running);
    if (session) end_session(*session);
  } catch (...) {
    // Out of memory.
  }
}

inline void report_to(RunningCall& call, Phase phase, int launch, Contents& contents) {
  if (call.recorder.is_fork()) return;
  if (phase == Phase::inputs) call.recorder.at_inputs(call, contents);
  else call.recorder.at_launch(call, launch, phase == Phase::before, contents);
}

inline const char* pick_of(const Pick* picks, Phase phase, int launch) {
  if (phase == Phase::inputs) return picks[0].before;
  return phase == Phase::before ? picks[launch + 1].before : picks[launch + 1].after;
}

[[maybe_unused]] void Call::send(Phase phase, int launch, const char* codes, ...) noexcept {
  if (!running_) return;
  RunningCall& running = *static_cast<RunningCall*>(running_);
  va_list from;
  va_start(from, codes);
  try {
    Contents& contents = running.contents;
    contents.clear();
    contents.reserve(std::strlen(codes));
    const char* pick = picks_ ? pick_of(picks_, phase, launch) : nullptr;
    for (; *codes; ++codes) {
      using Kind = Content::Kind;
      if (pick && *pick++ == '0') {
        if (*codes == 'f') va_arg(from, double);
        else if (*codes == 't' || *codes == 'c') va_arg(from, AtenTensorHandle);
        else va_arg(from, int64_t);
        continue;
      }
      contents.emplace_back();
      Content& content = contents.back();
      switch (*codes) {
        case 't':
        case 'c':
          content.kind = Kind::tensor;
          content.is_constant = *codes == 'c';
          content.handle = va_arg(from, AtenTensorHandle);
          continue;
        case 'f':
          content.kind = Kind::floating;
          content.floating = va_arg(from, double);
          continue;
      }
      content.integer = va_arg(from, int64_t);
      switch (*codes) {
        case 'i': content.kind = Kind::integer; break;
        case 'u': content.kind = Kind::unsigned_integer; break;
        case 'b': content.kind = Kind::boolean; break;
        case 'k': content = running.kept[static_cast<std::size_t>(content.integer)]; break;
        default: break;
      }
    }
    report_to(running, phase, launch, contents);
    running.kept.clear();
  } catch (...) {
    // Out of memory: the model runs on without this event.
  }
  va_end(from);
}

// Passes something to the memory probes, if there are any.
template <class Act>
inline void watch_memory(void* running, Act&& act) {
  if (!running) return;
  RunningCall& call = *static_cast<RunningCall*>(running);
  try {
    call.recorder.at_memory(call, act);
  } catch (...) {
    // Out of memory.
  }
}

[[maybe_unused]] AtenTensorHandle Call::replace(int event, AtenTensorHandle made) noexcept {
  AtenTensorHandle other = nullptr;
  watch_memory(running_, [&](MemoryWatch& watch, RunningCall& call) {
    if (made) other = watch.allocated(call, event, made);
  });
  return other;
}

[[maybe_unused]] void Call::reused(int event, AtenTensorHandle buffer) noexcept {
  watch_memory(running_, [&](MemoryWatch& watch, RunningCall& call) {
    if (buffer) watch.gone(call, event, buffer, true);
  });
}

[[maybe_unused]] void Call::released(int event, AtenTensorHandle buffer) noexcept {
  watch_memory(running_, [&](MemoryWatch& watch, RunningCall& call) {
    if (buffer) watch.gone(call, event, buffer, false);
  });
}

[[maybe_unused]] void Call::checked(int launch) noexcept {
  watch_memory(running_, [&](MemoryWatch& watch, RunningCall& call) { watch.checked(call, launch); });
}

[[maybe_unused]] Kept Call::keep(
    AtenTensorHandle base, int64_t dim, const int64_t* sizes, const int64_t* strides,
    int64_t offset, bool is_constant) noexcept {
  Array array{};
  array.sizes = sizes;
  array.strides = strides;
  array.dim = dim;
  Kept kept = keep(array);
  if (!running_) return kept;
  Content& view = static_cast<RunningCall*>(running_)->kept.back();
  view.kind = Content::Kind::view;
  view.handle = base;
  view.offset = offset;
  view.is_constant = is_constant;
  return kept;
}

[[maybe_unused]] Kept Call::keep(const Array& array) noexcept {
  if (!running_) return {0};
  Contents& all = static_cast<RunningCall*>(running_)->kept;
  all.emplace_back();
  all.back().kind = Content::Kind::array;
  all.back().array = array;
  return {static_cast<int64_t>(all.size()) - 1};
}

#ifdef INDUCTOR_REWRITER_APART
}  // namespace inductor_rewriter_apart
namespace {
namespace inductor_rewriter {
using namespace inductor_rewriter_apart;
#endif
}  // namespace inductor_rewriter
}  // namespace

#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
// What is known of each launch.
#ifdef INDUCTOR_REWRITER_APART
namespace inductor_rewriter_apart __attribute__((visibility("hidden"))) {
extern Wrapper wrapper;
}
#endif
#if !defined(INDUCTOR_REWRITER_APART) || defined(INDUCTOR_REWRITER_TABLE)
#ifdef INDUCTOR_REWRITER_APART
namespace inductor_rewriter_apart __attribute__((visibility("hidden"))) {
#else
namespace { namespace inductor_rewriter {
#endif
const Options options{"clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl.wrapper.cpp", "e94552b6d090036a5822c14436c1659344be690608a62343eb4fa07f56252672", "0.2.0.dev0", "print", "", "text", false, "run_impl buf8", nullptr, true, "", "", 0, "written", false, "", nullptr, false, nullptr, false};
const Row rows[] = {
    {0, "cpp_fused_native_layer_norm_0", "cpp", "run_impl", 1005, "", "", false, "buf1 buf0", nullptr, "out buf1; in norm_weight; in norm_bias; out buf2; out buf3", "in arg12_1", true},
    {1, "aoti_torch_cpu_addmm_out", "extern_out", "run_impl", 1016, "layer_norm, linear", "aten.native_layer_norm, aten.view, aten.t, aten.addmm", false, nullptr, nullptr, "out buf4; in qkv_bias; in qkv_weight wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(qkv_weight, 2, int_array_8, int_array_9, 0L))", "in buf3 wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf3, 2, int_array_6, int_array_7, 0L))", true},
    {2, "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu", "fallback", "run_impl", 1022, "linear, unflatten, permute, unbind, scaled_dot_product_attention", "aten.view, aten.permute, aten.unbind, aten._scaled_dot_product_flash_attention_for_cpu", false, nullptr, nullptr, "out buf6; out buf7", "in buf4 wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf4, 4, int_array_10, int_array_11, 0L)); in buf4.2 wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf4, 4, int_array_10, int_array_11, 64L)); in buf4.3 wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf4, 4, int_array_10, int_array_11, 128L))"},
    {3, "aoti_torch_cpu_addmm_out", "extern_out", "run_impl", 1032, "transpose, flatten, linear_1", "aten.transpose, aten.view, aten.t, aten.addmm", false, "buf8 buf3", nullptr, "out buf8; in out_bias; in out_weight wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(out_weight, 2, int_array_6, int_array_9, 0L))", "in buf6 wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf6, 2, int_array_6, int_array_7, 0L))", true},
    {4, "cpp_fused_add_native_layer_norm_view_1", "cpp", "run_impl", 1037, "", "", false, "buf10 buf2; buf11 buf0; buf12 buf6; buf8 buf3", nullptr, "inout buf10; in mlp_0_weight; in mlp_0_bias; out buf11; out buf12", "inout buf10; in arg12_1; in buf8"},
    {5, "aoti_torch_cpu_addmm_out", "extern_out", "run_impl", 1047, "linear_1, add, layer_norm_1, linear_2", "aten.view, aten.add, aten.native_layer_norm, aten.t, aten.addmm", false, "buf12 buf6", nullptr, "out buf13; in mlp_1_bias; in mlp_1_weight wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(mlp_1_weight, 2, int_array_16, int_array_9, 0L))", "in buf12 wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf12, 2, int_array_6, int_array_7, 0L))"},
    {6, "cpp_fused_gelu_view_2", "cpp", "run_impl", 1052, "", "", false, "buf14 buf13", nullptr, "inout buf14", "inout buf14", true},
    {7, "aoti_torch_cpu_addmm_out", "extern_out", "run_impl", 1060, "linear_2, gelu, linear_3", "aten.view, aten.gelu, aten.t, aten.addmm", false, "buf14 buf13", nullptr, "out buf15; in mlp_3_bias; in mlp_3_weight wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(mlp_3_weight, 2, int_array_20, int_array_21, 0L))", "in buf14 wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf14, 2, int_array_16, int_array_19, 0L))"},
    {8, "cpp_fused_add_view_3", "cpp", "run_impl", 1063, "", "", false, "buf16 buf3", nullptr, "inout buf16", "inout buf16; in arg12_1; in buf15"},
};
Wrapper wrapper(options, rows, sizeof rows / sizeof *rows, "in arg12_1");
}
#ifndef INDUCTOR_REWRITER_APART
}
#endif
#endif
// Here it ends.  // rewriter:27228e38 end

// Stores the last error message from a failed AOTI runtime call so that
// callers on the other side of the C ABI boundary can retrieve it via
// AOTInductorGetLastError(). Without this, exception messages (e.g.
// "CUDA error: an illegal memory access was encountered") are lost when
// CONVERT_EXCEPTION_TO_ERROR_CODE catches them and returns an error code.
static thread_local std::string g_aoti_last_error;

#define CONVERT_EXCEPTION_TO_ERROR_CODE(...)      \
  try {                                           \
    g_aoti_last_error.clear();                    \
    __VA_ARGS__                                   \
  } catch (const std::exception& e) {             \
    g_aoti_last_error = e.what();                 \
    std::cerr << "Error: " << e.what() << '\n';   \
    return AOTI_RUNTIME_FAILURE;                  \
  } catch (...) {                                 \
    g_aoti_last_error = "Unknown exception";      \
    std::cerr << "Unknown exception occurred.\n"; \
    return AOTI_RUNTIME_FAILURE;                  \
  }                                               \
  return AOTI_RUNTIME_SUCCESS;

#define AOTI_VECTOR_SIZE_CHECK(actual_size, expected_size, name)  \
  do {                                                            \
    AOTI_RUNTIME_CHECK(                                           \
        actual_size == expected_size,                             \
        "expected " + std::string(name) + " vector size to be " + \
            std::to_string(expected_size) + ", but got " +        \
            std::to_string(actual_size));                         \
  } while (0)

// AOTInductor uses at::addmm_out, which doesn't supports
// arguments that requires gradient. For this reason, we
// enforce no_grad context for run APIs.
//
// A RAII, thread local (!) guard that enables or disables grad mode upon
// construction, and sets it back to the original value upon destruction.
struct AOTINoGradGuard {
  AOTINoGradGuard() {
    aoti_torch_grad_mode_set_enabled(false);
  }
  AOTINoGradGuard(const AOTINoGradGuard&) = delete;
  AOTINoGradGuard(AOTINoGradGuard&&) noexcept = delete;
  ~AOTINoGradGuard() {
    aoti_torch_grad_mode_set_enabled(prev_mode);
  }
  AOTINoGradGuard& operator=(const AOTINoGradGuard&) = delete;
  AOTINoGradGuard& operator=(AOTINoGradGuard&&) noexcept = delete;
  bool prev_mode{aoti_torch_grad_mode_is_enabled()};
};

namespace {

std::unordered_map<std::string, AtenTensorHandle> constant_map_from_pairs(
    const AOTInductorConstantMapEntry* pairs,
    size_t num_pairs) {
  std::unordered_map<std::string, AtenTensorHandle> input_map;
  input_map.reserve(num_pairs);
  for (size_t i = 0; i < num_pairs; ++i) {
    input_map.emplace(pairs[i].name, pairs[i].handle);
  }
  return input_map;
}

// Shared constructor for AOTInductorModelCreate / AOTInductorModelCreateV2.
// `populate(constant_map)` is called between model construction and
// optional embedded-blob loading.
template <typename Populate>
AOTIRuntimeError createModelImpl(
    AOTInductorModelHandle* model_handle,
    bool load_constants_from_blob,
    Populate&& populate) {
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    auto constant_map = std::make_shared<torch::aot_inductor::ConstantMap>();
    auto constant_array = std::make_shared<
        std::vector<torch::aot_inductor::ConstantHandle>>();
    auto* model = new torch::aot_inductor::AOTInductorModel(
        constant_map,
        constant_array,
        // device_str is hardcoded, as AOTInductorModelCreate is only used
        // for CPU models.
        "cpu",
        "");
    populate(*constant_map);
    if (load_constants_from_blob) {
      model->load_constants();
    }
    *model_handle = reinterpret_cast<AOTInductorModelHandle>(model);
  })
}

} // namespace

extern "C" {

AOTIRuntimeError AOTInductorModelContainerCreate(
    AOTInductorModelContainerHandle* container_handle,
    size_t num_models,
    bool is_cpu,
    const char* cubin_dir) {
      return AOTInductorModelContainerCreateWithDevice(
        container_handle,
        num_models,
        is_cpu ? "cpu" : "cuda",
        cubin_dir);
}

AOTIRuntimeError AOTInductorModelContainerCreateWithDevice(
    AOTInductorModelContainerHandle* container_handle,
    size_t num_models,
    const char* device_str,
    const char* cubin_dir) {

  if (num_models == 0) {
    std::cerr << "Error: num_models must be positive, but got 0\n";
    return AOTI_RUNTIME_FAILURE;
  }
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    std::optional<std::string> cubin_dir_opt;
    if (cubin_dir != nullptr) {
      cubin_dir_opt.emplace(cubin_dir);
    }
    auto* container = new torch::aot_inductor::AOTInductorModelContainer(
        num_models, std::string(device_str), cubin_dir_opt);
    *container_handle =
        reinterpret_cast<AOTInductorModelContainerHandle>(container);
  })
}


AOTIRuntimeError AOTInductorModelContainerDelete(
    AOTInductorModelContainerHandle container_handle) {
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    auto* container =
        reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
            container_handle);
    delete container;
  });
}

AOTIRuntimeError AOTInductorModelContainerRun(
    AOTInductorModelContainerHandle container_handle,
    AtenTensorHandle* input_handles, // array of input AtenTensorHandle; handles
                                     // are stolen; the array itself is borrowed
    size_t num_inputs,
    AtenTensorHandle*
        output_handles, // array for writing output AtenTensorHandle; handles
                        // will be stolen by the caller; the array itself is
                        // borrowed
    size_t num_outputs,
    AOTInductorStreamHandle stream_handle,
    AOTIProxyExecutorHandle proxy_executor_handle) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  AOTI_VECTOR_SIZE_CHECK(num_inputs, container->num_inputs(), "inputs");
  AOTI_VECTOR_SIZE_CHECK(num_outputs, container->num_outputs(), "outputs");

  auto stream =
      reinterpret_cast<torch::aot_inductor::DeviceStreamType>(stream_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    AOTINoGradGuard guard;
    container->run(
        input_handles, output_handles, stream, proxy_executor_handle);
  })
}

AOTIRuntimeError AOTInductorModelContainerRunSingleThreaded(
    AOTInductorModelContainerHandle container_handle,
    AtenTensorHandle* input_handles, // array of input AtenTensorHandle; handles
                                     // are stolen; the array itself is borrowed
    size_t num_inputs,
    AtenTensorHandle*
        output_handles, // array for writing output AtenTensorHandle; handles
                        // will be stolen by the caller; the array itself is
                        // borrowed
    size_t num_outputs,
    AOTInductorStreamHandle stream_handle,
    AOTIProxyExecutorHandle proxy_executor_handle) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  AOTI_VECTOR_SIZE_CHECK(num_inputs, container->num_inputs(), "inputs");
  AOTI_VECTOR_SIZE_CHECK(num_outputs, container->num_outputs(), "outputs");

  auto stream =
      reinterpret_cast<torch::aot_inductor::DeviceStreamType>(stream_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    AOTINoGradGuard guard;
    container->run_single_threaded(
        input_handles, output_handles, stream, proxy_executor_handle);
  })
}

AOTIRuntimeError AOTInductorModelContainerGetNumConstants(
    AOTInductorModelContainerHandle container_handle,
    size_t* num_constants) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
    { *num_constants = container->num_constants(); })
}

AOTIRuntimeError AOTInductorModelContainerGetConstantName(
    AOTInductorModelContainerHandle container_handle,
    size_t idx,
    const char** name) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
    { *name = container->constant_name(idx); })
}

AOTIRuntimeError AOTInductorModelContainerGetConstantOriginalFQN(
    AOTInductorModelContainerHandle container_handle,
    size_t idx,
    const char** original_fqn) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
    { *original_fqn = container->constant_original_fqn(idx); })
}

AOTIRuntimeError AOTInductorModelContainerGetConstantFromFolded(
    AOTInductorModelContainerHandle container_handle,
    size_t idx,
    bool* from_folded) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({ *from_folded = container->constant_from_folded(idx); })
}

AOTIRuntimeError AOTInductorModelContainerGetConstantType(
    AOTInductorModelContainerHandle container_handle,
    size_t idx,
    int32_t* type) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({ *type = container->constant_type(idx); })
}

AOTIRuntimeError AOTInductorModelContainerGetConstantDtype(
    AOTInductorModelContainerHandle container_handle,
    size_t idx,
    int32_t* dtype) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
    { *dtype = container->constant_dtype(idx); })
}

AOTIRuntimeError AOTInductorModelContainerGetConstantDataSize(
  AOTInductorModelContainerHandle container_handle,
  size_t idx,
  size_t* data_size) {
  auto* container =
    reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
        container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
    { *data_size = container->constant_data_size(idx); })
}

AOTIRuntimeError AOTInductorModelContainerExtractConstantsMap(
    AOTInductorModelContainerHandle container_handle,
    AOTInductorConstantMapHandle constant_map_handle,
    bool use_inactive) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  auto constants_map = reinterpret_cast<std::unordered_map<std::string, AtenTensorHandle>*>(constant_map_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
    { const auto ret = container->extract_constants_map(use_inactive);
      for (const auto& pair: ret) {
        constants_map->emplace(pair.first, pair.second);
      }
    })
}

AOTIRuntimeError AOTInductorModelContainerExtractConstantsMapEntries(
    AOTInductorModelContainerHandle container_handle,
    const AOTInductorConstantMapEntry** entries,
    size_t* num_entries,
    bool use_inactive) {
  if (!entries || !num_entries) {
    return AOTI_RUNTIME_FAILURE;
  }
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    const auto& extracted =
        container->extract_constants_map_entries(use_inactive);
    *entries = extracted.empty() ? nullptr : extracted.data();
    *num_entries = extracted.size();
  })
}

AOTIRuntimeError AOTInductorModelContainerUpdateUserManagedConstantBuffer(
    AOTInductorModelContainerHandle container_handle,
    AOTInductorConstantMapHandle constant_map_handle,
    bool use_inactive,
    bool validate_full_update) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  auto input_map = reinterpret_cast<std::unordered_map<std::string, AtenTensorHandle>*>(constant_map_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    container->update_constant_buffer(
        *input_map, use_inactive, validate_full_update, /* user_managed = */ true);
  })
}

AOTIRuntimeError AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(
    AOTInductorModelContainerHandle container_handle,
    const AOTInductorConstantMapEntry* pairs,
    size_t num_pairs,
    bool use_inactive,
    bool validate_full_update) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(container_handle);
  // Build a local unordered_map inside
  std::unordered_map<std::string, AtenTensorHandle> input_map;
  input_map.reserve(num_pairs);
  for (size_t i = 0; i < num_pairs; ++i) {
      input_map.emplace(pairs[i].name, pairs[i].handle);
  }
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    container->update_constant_buffer(
        input_map, use_inactive, validate_full_update, /*user_managed=*/true);
  })
}

AOTIRuntimeError AOTInductorModelContainerUpdateConstantBuffer(
    AOTInductorModelContainerHandle container_handle,
    AOTInductorConstantMapHandle constant_map_handle,
    bool use_inactive,
    bool validate_full_update) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  auto input_map = reinterpret_cast<std::unordered_map<std::string, AtenTensorHandle>*>(constant_map_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    container->update_constant_buffer(
        *input_map, use_inactive, validate_full_update);
  })
}

AOTIRuntimeError AOTInductorModelContainerUpdateConstantBufferPairs(
    AOTInductorModelContainerHandle container_handle,
    const AOTInductorConstantMapEntry* pairs,
    size_t num_pairs,
    bool use_inactive,
    bool validate_full_update) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  auto input_map = constant_map_from_pairs(pairs, num_pairs);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    container->update_constant_buffer(
        input_map, use_inactive, validate_full_update);
  })
}

AOTIRuntimeError AOTInductorModelContainerUpdateConstantBufferFromCpu(
    AOTInductorModelContainerHandle container_handle,
    AOTInductorConstantMapHandle constant_map_handle,
    bool use_inactive,
    bool validate_full_update) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  auto input_map = reinterpret_cast<std::unordered_map<std::string, AtenTensorHandle>*>(constant_map_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    container->update_constant_buffer(
        *input_map,
        use_inactive,
        validate_full_update,
        /*user_managed=*/false,
        /*allow_h2d_copy=*/true);
  })
}

AOTIRuntimeError AOTInductorModelContainerUpdateConstantBufferFromCpuPairs(
    AOTInductorModelContainerHandle container_handle,
    const AOTInductorConstantMapEntry* pairs,
    size_t num_pairs,
    bool use_inactive,
    bool validate_full_update) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  auto input_map = constant_map_from_pairs(pairs, num_pairs);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    container->update_constant_buffer(
        input_map,
        use_inactive,
        validate_full_update,
        /*user_managed=*/false,
        /*allow_h2d_copy=*/true);
  })
}

AOTIRuntimeError AOTInductorModelContainerUpdateInactiveConstantBuffer(
    AOTInductorModelContainerHandle container_handle,
    AOTInductorConstantMapHandle constant_map_handle) {
  return AOTInductorModelContainerUpdateConstantBuffer(
      container_handle,
      constant_map_handle,
      /*use_inactive=*/true,
      /*validate_full_update=*/true);
}

AOTIRuntimeError AOTInductorModelContainerUpdateInactiveConstantBufferPairs(
    AOTInductorModelContainerHandle container_handle,
    const AOTInductorConstantMapEntry* pairs,
    size_t num_pairs) {
  return AOTInductorModelContainerUpdateConstantBufferPairs(
      container_handle,
      pairs,
      num_pairs,
      /*use_inactive=*/true,
      /*validate_full_update=*/true);
}

AOTIRuntimeError AOTInductorModelContainerFreeInactiveConstantBuffer(
    AOTInductorModelContainerHandle container_handle) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    container->free_inactive_constant_buffer();
  })
}

AOTIRuntimeError AOTInductorModelContainerRunConstantFolding(
    AOTInductorModelContainerHandle container_handle,
    bool use_inactive,
    AOTInductorStreamHandle stream_handle,
    AOTIProxyExecutorHandle proxy_executor_handle) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  auto stream =
      reinterpret_cast<torch::aot_inductor::DeviceStreamType>(stream_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    AOTINoGradGuard guard;
    container->run_const_fold(use_inactive, stream, proxy_executor_handle);
  })
}

AOTIRuntimeError AOTInductorModelContainerSwapConstantBuffer(
    AOTInductorModelContainerHandle container_handle) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    container->swap_constant_buffer();
  })
}

AOTIRuntimeError AOTInductorModelContainerGetNumInputs(
    AOTInductorModelContainerHandle container_handle,
    size_t* ret_num_inputs) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
      { *ret_num_inputs = container->num_inputs(); })
}

AOTIRuntimeError AOTInductorModelContainerGetInputName(
    AOTInductorModelContainerHandle container_handle,
    size_t input_idx,
    const char** ret_input_names) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
      { *ret_input_names = container->input_name(input_idx); })
}

AOTIRuntimeError AOTInductorModelContainerGetNumOutputs(
    AOTInductorModelContainerHandle container_handle,
    size_t* ret_num_outputs) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
      { *ret_num_outputs = container->num_outputs(); })
}

AOTIRuntimeError AOTInductorModelContainerGetOutputName(
    AOTInductorModelContainerHandle container_handle,
    size_t output_idx,
    const char** ret_output_names) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
      { *ret_output_names = container->output_name(output_idx); })
}

AOTIRuntimeError AOTInductorModelContainerGetCallSpec(
    AOTInductorModelContainerHandle container_handle,
    const char** in_spec,
    const char** out_spec) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    *in_spec = container->get_in_spec();
    *out_spec = container->get_out_spec();
  })
}

AOTIRuntimeError AOTInductorModelCreate(
    AOTInductorModelHandle* model_handle,
    AOTInductorConstantMapHandle constant_map_handle) {
  return createModelImpl(
      model_handle, constant_map_handle == nullptr, [=](auto& constant_map) {
        auto* input_map = reinterpret_cast<
            std::unordered_map<std::string, AtenTensorHandle>*>(
            constant_map_handle);
        if (input_map) {
          for (const auto& kv : *input_map) {
            constant_map.emplace(kv.first, kv.second);
          }
        }
      });
}

AOTIRuntimeError AOTInductorModelCreateV2(
    AOTInductorModelHandle* model_handle,
    const AOTInductorConstantMapEntry* pairs,
    size_t num_pairs) {
  return createModelImpl(
      model_handle, pairs == nullptr || num_pairs == 0, [=](auto& constant_map) {
        if (pairs && num_pairs > 0) {
          constant_map.reserve(num_pairs);
          for (size_t i = 0; i < num_pairs; ++i) {
            constant_map.emplace(pairs[i].name, pairs[i].handle);
          }
        }
      });
}

AOTIRuntimeError AOTInductorModelRun(
    AOTInductorModelHandle model_handle,
    AtenTensorHandle* input_handles,
    AtenTensorHandle* output_handles) {
  auto model =
      reinterpret_cast<torch::aot_inductor::AOTInductorModel*>(model_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    AOTINoGradGuard guard;
    model->run_impl(
        input_handles,
        output_handles,
        (torch::aot_inductor::DeviceStreamType) nullptr,
        nullptr);
  })
}

AOTIRuntimeError AOTInductorModelDelete(AOTInductorModelHandle model_handle){
    CONVERT_EXCEPTION_TO_ERROR_CODE({
      auto model = reinterpret_cast<torch::aot_inductor::AOTInductorModel*>(
          model_handle);
      delete model;
    })}

AOTIRuntimeError AOTInductorModelGetNumOutputs(
    AOTInductorModelHandle model_handle,
    size_t* ret_num_outputs) {
  CONVERT_EXCEPTION_TO_ERROR_CODE({
      auto model = reinterpret_cast<torch::aot_inductor::AOTInductorModel*>(model_handle);
      *ret_num_outputs = model->num_outputs();
  })
}

AOTIRuntimeError AOTInductorModelUpdateConstantsMap(
    AOTInductorModelHandle model_handle,
    AOTInductorConstantMapHandle constant_map_handle) {
  auto model =
      reinterpret_cast<torch::aot_inductor::AOTInductorModel*>(model_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    auto constant_map = std::make_shared<torch::aot_inductor::ConstantMap>();
    auto input_map =
        reinterpret_cast<std::unordered_map<std::string, AtenTensorHandle>*>(
            constant_map_handle);

    for (auto const& kv : *input_map) {
      constant_map->emplace(kv.first, kv.second);
    }
    model->update_constants_map(std::move(constant_map));
  })
}

// C-ABI-safe variant: uses an array of (name, handle) pairs instead of an
// opaque pointer to std::unordered_map, so the host and DSO can use
// different C++ standard libraries without ABI conflicts.
AOTIRuntimeError AOTInductorModelUpdateConstantsMapV2(
    AOTInductorModelHandle model_handle,
    const AOTInductorConstantMapEntry* pairs,
    int32_t num_pairs) {
  auto model =
      reinterpret_cast<torch::aot_inductor::AOTInductorModel*>(model_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    auto constant_map = std::make_shared<torch::aot_inductor::ConstantMap>();
    constant_map->reserve(num_pairs);
    for (int32_t i = 0; i < num_pairs; ++i) {
      constant_map->emplace(pairs[i].name, pairs[i].handle);
    }
    model->update_constants_map(std::move(constant_map));
  })
}

AOTIRuntimeError AOTInductorModelContainerGetConstantsBlobSize(
    AOTInductorModelContainerHandle container_handle,
    uint64_t* ret_size) {
  auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
      { *ret_size = container->constant_blob_size(); })
}


// Load weights from a single blob in weight_blob_ptr
AOTIRuntimeError AOTInductorModelUpdateConstantsFromBlob(
    AOTInductorModelContainerHandle container_handle,
    const uint8_t* weight_blob_ptr){
    auto* container =
      reinterpret_cast<torch::aot_inductor::AOTInductorModelContainer*>(
          container_handle);
  CONVERT_EXCEPTION_TO_ERROR_CODE(
      {container->update_constants_from_blob(weight_blob_ptr); })
    }


AOTIRuntimeError AOTInductorGetLastError(
    const char** error_msg) {
  *error_msg = g_aoti_last_error.c_str();
  return AOTI_RUNTIME_SUCCESS;
}

} // extern "C"

extern "C"  void  cpp_fused_native_layer_norm_0(float* in_out_ptr0,
                       const float* in_ptr0,
                       const float* in_ptr1,
                       const float* in_ptr2,
                       float* out_ptr1,
                       float* out_ptr2);
extern "C"  void  cpp_fused_add_native_layer_norm_view_1(float* in_out_ptr0,
                       const float* in_ptr0,
                       const float* in_ptr1,
                       const float* in_ptr2,
                       const float* in_ptr3,
                       float* out_ptr1,
                       float* out_ptr2);
extern "C"  void  cpp_fused_gelu_view_2(float* in_out_ptr0);
extern "C"  void  cpp_fused_add_view_3(float* in_out_ptr0,
                       const float* in_ptr0,
                       const float* in_ptr1);
CACHE_TORCH_DTYPE(float32);
CACHE_TORCH_DEVICE(cpu);
CACHE_TORCH_LAYOUT(strided);
namespace torch::aot_inductor {
namespace {
class AOTInductorModelKernels : public AOTInductorModelKernelsBase {
  public:
    void* cpp_fused_add_native_layer_norm_view_1{nullptr};
    void* cpp_fused_add_view_3{nullptr};
    void* cpp_fused_gelu_view_2{nullptr};
    void* cpp_fused_native_layer_norm_0{nullptr};
};
}  // namespace



AOTInductorModel::AOTInductorModel(std::shared_ptr<ConstantMap> constants_map,
                                   std::shared_ptr<std::vector<ConstantHandle>> constants_array,
                                   const std::string& device_str,
                                   std::optional<std::string> cubin_dir)
    : AOTInductorModelBase(1,
                           1,
                           12,
                           device_str,
                           std::move(cubin_dir),
                           true) {
    inputs_info_[0].name = "arg12_1";
    constants_info_[0].name = "norm_weight";
    constants_info_[0].dtype = cached_torch_dtype_float32;
    constants_info_[0].device_type = cached_torch_device_type_cpu;
    constants_info_[0].offset = 0;
    constants_info_[0].data_size = 256;
    constants_info_[0].from_folded = false;
    constants_info_[0].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[0].shape = {64};
    constants_info_[0].stride = {1};
    constants_info_[0].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[0].original_fqn = "norm.weight";
    constants_info_[1].name = "norm_bias";
    constants_info_[1].dtype = cached_torch_dtype_float32;
    constants_info_[1].device_type = cached_torch_device_type_cpu;
    constants_info_[1].offset = 0;
    constants_info_[1].data_size = 256;
    constants_info_[1].from_folded = false;
    constants_info_[1].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[1].shape = {64};
    constants_info_[1].stride = {1};
    constants_info_[1].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[1].original_fqn = "norm.bias";
    constants_info_[2].name = "qkv_weight";
    constants_info_[2].dtype = cached_torch_dtype_float32;
    constants_info_[2].device_type = cached_torch_device_type_cpu;
    constants_info_[2].offset = 0;
    constants_info_[2].data_size = 49152;
    constants_info_[2].from_folded = false;
    constants_info_[2].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[2].shape = {192, 64};
    constants_info_[2].stride = {64, 1};
    constants_info_[2].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[2].original_fqn = "qkv.weight";
    constants_info_[3].name = "qkv_bias";
    constants_info_[3].dtype = cached_torch_dtype_float32;
    constants_info_[3].device_type = cached_torch_device_type_cpu;
    constants_info_[3].offset = 0;
    constants_info_[3].data_size = 768;
    constants_info_[3].from_folded = false;
    constants_info_[3].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[3].shape = {192};
    constants_info_[3].stride = {1};
    constants_info_[3].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[3].original_fqn = "qkv.bias";
    constants_info_[4].name = "out_weight";
    constants_info_[4].dtype = cached_torch_dtype_float32;
    constants_info_[4].device_type = cached_torch_device_type_cpu;
    constants_info_[4].offset = 0;
    constants_info_[4].data_size = 16384;
    constants_info_[4].from_folded = false;
    constants_info_[4].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[4].shape = {64, 64};
    constants_info_[4].stride = {64, 1};
    constants_info_[4].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[4].original_fqn = "out.weight";
    constants_info_[5].name = "out_bias";
    constants_info_[5].dtype = cached_torch_dtype_float32;
    constants_info_[5].device_type = cached_torch_device_type_cpu;
    constants_info_[5].offset = 0;
    constants_info_[5].data_size = 256;
    constants_info_[5].from_folded = false;
    constants_info_[5].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[5].shape = {64};
    constants_info_[5].stride = {1};
    constants_info_[5].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[5].original_fqn = "out.bias";
    constants_info_[6].name = "mlp_0_weight";
    constants_info_[6].dtype = cached_torch_dtype_float32;
    constants_info_[6].device_type = cached_torch_device_type_cpu;
    constants_info_[6].offset = 0;
    constants_info_[6].data_size = 256;
    constants_info_[6].from_folded = false;
    constants_info_[6].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[6].shape = {64};
    constants_info_[6].stride = {1};
    constants_info_[6].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[6].original_fqn = "mlp.0.weight";
    constants_info_[7].name = "mlp_0_bias";
    constants_info_[7].dtype = cached_torch_dtype_float32;
    constants_info_[7].device_type = cached_torch_device_type_cpu;
    constants_info_[7].offset = 0;
    constants_info_[7].data_size = 256;
    constants_info_[7].from_folded = false;
    constants_info_[7].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[7].shape = {64};
    constants_info_[7].stride = {1};
    constants_info_[7].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[7].original_fqn = "mlp.0.bias";
    constants_info_[8].name = "mlp_1_weight";
    constants_info_[8].dtype = cached_torch_dtype_float32;
    constants_info_[8].device_type = cached_torch_device_type_cpu;
    constants_info_[8].offset = 0;
    constants_info_[8].data_size = 65536;
    constants_info_[8].from_folded = false;
    constants_info_[8].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[8].shape = {256, 64};
    constants_info_[8].stride = {64, 1};
    constants_info_[8].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[8].original_fqn = "mlp.1.weight";
    constants_info_[9].name = "mlp_1_bias";
    constants_info_[9].dtype = cached_torch_dtype_float32;
    constants_info_[9].device_type = cached_torch_device_type_cpu;
    constants_info_[9].offset = 0;
    constants_info_[9].data_size = 1024;
    constants_info_[9].from_folded = false;
    constants_info_[9].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[9].shape = {256};
    constants_info_[9].stride = {1};
    constants_info_[9].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[9].original_fqn = "mlp.1.bias";
    constants_info_[10].name = "mlp_3_weight";
    constants_info_[10].dtype = cached_torch_dtype_float32;
    constants_info_[10].device_type = cached_torch_device_type_cpu;
    constants_info_[10].offset = 0;
    constants_info_[10].data_size = 65536;
    constants_info_[10].from_folded = false;
    constants_info_[10].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[10].shape = {64, 256};
    constants_info_[10].stride = {256, 1};
    constants_info_[10].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[10].original_fqn = "mlp.3.weight";
    constants_info_[11].name = "mlp_3_bias";
    constants_info_[11].dtype = cached_torch_dtype_float32;
    constants_info_[11].device_type = cached_torch_device_type_cpu;
    constants_info_[11].offset = 0;
    constants_info_[11].data_size = 256;
    constants_info_[11].from_folded = false;
    constants_info_[11].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[11].shape = {64};
    constants_info_[11].stride = {1};
    constants_info_[11].layout = static_cast<int32_t>(cached_torch_layout_strided);
    constants_info_[11].original_fqn = "mlp.3.bias";
    update_constants_map(std::move(constants_map));
    update_constants_array(std::move(constants_array));
    in_spec_ = R"([1, {"type": "builtins.tuple", "context": "null", "children_spec": [{"type": "builtins.tuple", "context": "null", "children_spec": [{"type": null, "context": null, "children_spec": []}]}, {"type": "builtins.dict", "context": "[]", "children_spec": []}]}])";
    out_spec_ = R"([1, {"type": null, "context": null, "children_spec": []}])";
    outputs_info_[0].name = "output0";
    this->kernels_ = std::make_unique<AOTInductorModelKernels>();
}

std::unordered_map<std::string, AtenTensorHandle> AOTInductorModel::const_run_impl(
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor,
    bool initialization
) {

    if (!initialization) {
        std::cerr << "[WARNING] Calling constant_folding in model, but compiled with config: "
                  << "aot_inductor.use_runtime_constant_folding=False\n";
    }
    return {};
}
} // namespace torch::aot_inductor
using namespace torch::aot_inductor;
namespace torch::aot_inductor {

void AOTInductorModel::_const_run_impl(
    std::vector<AtenTensorHandle>& output_handles,
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor
) {}

AOTI_NOINLINE static void check_input_0(
    AtenTensorHandle* input_handles
) {
    ConstantHandle arg12_1 = ConstantHandle(input_handles[0]);
    int32_t arg12_1_dtype;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(arg12_1, &arg12_1_dtype));

    int32_t arg12_1_expected_dtype = aoti_torch_dtype_float32();
    if (arg12_1_expected_dtype != arg12_1_dtype) {
        std::stringstream ss;
        ss << "input_handles[0]: unmatched dtype, "
           << "expected: " << arg12_1_expected_dtype << "(at::kFloat), "
           << "but got: " << arg12_1_dtype << "\n";
        throw std::runtime_error(std::move(ss).str());
    }
    auto arg12_1_size = arg12_1.sizes();

    if (2 != arg12_1_size[0]) {
        std::stringstream ss;
        ss << "input_handles[0]: unmatched dim value at 0, "
           << "expected: 2, " << "but got: " << arg12_1_size[0]
           << "\n";
        throw std::runtime_error(std::move(ss).str());
    }

    if (32 != arg12_1_size[1]) {
        std::stringstream ss;
        ss << "input_handles[0]: unmatched dim value at 1, "
           << "expected: 32, " << "but got: " << arg12_1_size[1]
           << "\n";
        throw std::runtime_error(std::move(ss).str());
    }

    if (64 != arg12_1_size[2]) {
        std::stringstream ss;
        ss << "input_handles[0]: unmatched dim value at 2, "
           << "expected: 64, " << "but got: " << arg12_1_size[2]
           << "\n";
        throw std::runtime_error(std::move(ss).str());
    }
    auto arg12_1_stride = arg12_1.strides();

    if (2048 != arg12_1_stride[0]) {
        std::stringstream ss;
        ss << "input_handles[0]: unmatched stride value at 0, "
           << "expected: 2048, " << "but got: " << arg12_1_stride[0]
           << "\n";
        throw std::runtime_error(std::move(ss).str());
    }

    if (64 != arg12_1_stride[1]) {
        std::stringstream ss;
        ss << "input_handles[0]: unmatched stride value at 1, "
           << "expected: 64, " << "but got: " << arg12_1_stride[1]
           << "\n";
        throw std::runtime_error(std::move(ss).str());
    }

    if (1 != arg12_1_stride[2]) {
        std::stringstream ss;
        ss << "input_handles[0]: unmatched stride value at 2, "
           << "expected: 1, " << "but got: " << arg12_1_stride[2]
           << "\n";
        throw std::runtime_error(std::move(ss).str());
    }
    int32_t arg12_1_device_type;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(arg12_1, &arg12_1_device_type));

    int32_t arg12_1_expected_device_type = 0;
    if (arg12_1_expected_device_type != arg12_1_device_type) {
        std::stringstream ss;
        ss << "input_handles[0]: unmatched device type, "
        << "expected: " << arg12_1_expected_device_type << "0(cpu), "
        << "but got: " << arg12_1_device_type << "\n";
        throw std::runtime_error(std::move(ss).str());
    }
}

static bool _check_aoti_runtime_check_inputs_env() {
    const static char* env_var_value = getenv("AOTI_RUNTIME_CHECK_INPUTS");
    const static bool result = env_var_value != nullptr && env_var_value[0] != '0';
    return result;
}

AOTI_NOINLINE static void __check_inputs_outputs(
    AtenTensorHandle* input_handles,
    AtenTensorHandle* output_handles) {
    if (!_check_aoti_runtime_check_inputs_env()){
        return;
    }
    check_input_0(input_handles);
}

void AOTInductorModel::run_impl(
    AtenTensorHandle*
        input_handles, // array of input AtenTensorHandle; handles
                        // are stolen; the array itself is borrowed
    AtenTensorHandle*
        output_handles, // array for writing output AtenTensorHandle; handles
                        // will be stolen by the caller; the array itself is
                        // borrowed
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor
) {
    inductor_rewriter::Call _rw(inductor_rewriter::wrapper);  // rewriter:27228e38
    __check_inputs_outputs(input_handles, output_handles);
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 1);
    auto arg12_1 = std::move(inputs[0]);
    _rw.inputs(arg12_1);  // rewriter:27228e38
    [[maybe_unused]] auto& norm_weight = constants_->at(0);
    [[maybe_unused]] auto& norm_bias = constants_->at(1);
    [[maybe_unused]] auto& qkv_weight = constants_->at(2);
    [[maybe_unused]] auto& qkv_bias = constants_->at(3);
    [[maybe_unused]] auto& out_weight = constants_->at(4);
    [[maybe_unused]] auto& out_bias = constants_->at(5);
    [[maybe_unused]] auto& mlp_0_weight = constants_->at(6);
    [[maybe_unused]] auto& mlp_0_bias = constants_->at(7);
    [[maybe_unused]] auto& mlp_1_weight = constants_->at(8);
    [[maybe_unused]] auto& mlp_1_bias = constants_->at(9);
    [[maybe_unused]] auto& mlp_3_weight = constants_->at(10);
    [[maybe_unused]] auto& mlp_3_bias = constants_->at(11);
    inputs.clear();
    [[maybe_unused]] auto& kernels = static_cast<AOTInductorModelKernels&>(*this->kernels_.get());
    if (_check_aoti_runtime_check_inputs_env()) { assert_size_stride(arg12_1, {2L, 32L, 64L}, {2048L, 64L, 1L}, "input"); }
    static constexpr int64_t int_array_0[] = {2L, 32L, 1L};
    static constexpr int64_t int_array_1[] = {32L, 1L, 64L};
    AtenTensorHandle buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(3, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, this->device_idx_, &buf0_handle));
    RAIIAtenTensorHandle buf0(buf0_handle);
    auto buf1 = std::move(buf0);  // reuse
    AtenTensorHandle buf2_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(3, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, this->device_idx_, &buf2_handle));
    RAIIAtenTensorHandle buf2(buf2_handle);
    static constexpr int64_t int_array_2[] = {2L, 32L, 64L};
    static constexpr int64_t int_array_3[] = {2048L, 64L, 1L};
    AtenTensorHandle buf3_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(3, int_array_2, int_array_3, cached_torch_dtype_float32, cached_torch_device_type_cpu, this->device_idx_, &buf3_handle));
    RAIIAtenTensorHandle buf3(buf3_handle);
    cpp_fused_native_layer_norm_0((float*)(buf1.data_ptr()), (const float*)(arg12_1.data_ptr()), (const float*)(norm_weight.data_ptr()), (const float*)(norm_bias.data_ptr()), (float*)(buf2.data_ptr()), (float*)(buf3.data_ptr()));
    _rw.after(0, buf1, norm_weight, norm_bias, buf2, buf3);  // rewriter:27228e38
    static constexpr int64_t int_array_4[] = {64L, 192L};
    static constexpr int64_t int_array_5[] = {192L, 1L};
    AtenTensorHandle buf4_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_4, int_array_5, cached_torch_dtype_float32, cached_torch_device_type_cpu, this->device_idx_, &buf4_handle));
    RAIIAtenTensorHandle buf4(buf4_handle);
    // Topologically Sorted Source Nodes: [layer_norm, linear], Original ATen: [aten.native_layer_norm, aten.view, aten.t, aten.addmm]
    static constexpr int64_t int_array_6[] = {64L, 64L};
    static constexpr int64_t int_array_7[] = {64L, 1L};
    static constexpr int64_t int_array_8[] = {64L, 192L};
    static constexpr int64_t int_array_9[] = {1L, 64L};
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf4, qkv_bias, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf3, 2, int_array_6, int_array_7, 0L)), wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(qkv_weight, 2, int_array_8, int_array_9, 0L)), 1L, 1L));
    _rw.after(1, buf4, qkv_bias, _rw.view(qkv_weight, 2, int_array_8, int_array_9, 0L));  // rewriter:27228e38
    // Topologically Sorted Source Nodes: [linear, unflatten, permute, unbind, scaled_dot_product_attention], Original ATen: [aten.view, aten.permute, aten.unbind, aten._scaled_dot_product_flash_attention_for_cpu]
    static constexpr int64_t int_array_10[] = {2L, 4L, 32L, 16L};
    static constexpr int64_t int_array_11[] = {6144L, 16L, 192L, 1L};
    AtenTensorHandle buf6_handle;
    AtenTensorHandle buf7_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf4, 4, int_array_10, int_array_11, 0L)), wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf4, 4, int_array_10, int_array_11, 64L)), wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf4, 4, int_array_10, int_array_11, 128L)), 0.0, 1, nullptr, nullptr, &buf6_handle, &buf7_handle));
    RAIIAtenTensorHandle buf6(buf6_handle);
    RAIIAtenTensorHandle buf7(buf7_handle);
    _rw.after(2, buf6, buf7);  // rewriter:27228e38
    buf4.reset();
    if (_check_aoti_runtime_check_inputs_env()) { assert_size_stride(buf6, {2L, 4L, 32L, 16L}, {2048L, 16L, 64L, 1L}, "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default"); }

    static constexpr int64_t int_array_12[] = {64L, 64L};
    static constexpr int64_t int_array_13[] = {64L, 1L};
    auto buf8 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf3, 2, int_array_12, int_array_13, 0L)); buf3.reset();  // reuse
    // Topologically Sorted Source Nodes: [transpose, flatten, linear_1], Original ATen: [aten.transpose, aten.view, aten.t, aten.addmm]
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf8, out_bias, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf6, 2, int_array_6, int_array_7, 0L)), wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(out_weight, 2, int_array_6, int_array_9, 0L)), 1L, 1L));
    _rw.after(3, buf8, out_bias, _rw.view(out_weight, 2, int_array_6, int_array_9, 0L));  // rewriter:27228e38
    auto buf9 = std::move(buf2);  // reuse
    auto buf10 = std::move(buf9);  // reuse
    auto buf11 = std::move(buf1);  // reuse
    auto buf12 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf6, 3, int_array_2, int_array_3, 0L)); buf6.reset();  // reuse
    cpp_fused_add_native_layer_norm_view_1((float*)(buf10.data_ptr()), (const float*)(arg12_1.data_ptr()), (const float*)(buf8.data_ptr()), (const float*)(mlp_0_weight.data_ptr()), (const float*)(mlp_0_bias.data_ptr()), (float*)(buf11.data_ptr()), (float*)(buf12.data_ptr()));
    _rw.after(4, buf10, mlp_0_weight, mlp_0_bias, buf11, buf12);  // rewriter:27228e38
    buf10.reset();
    buf11.reset();
    static constexpr int64_t int_array_14[] = {64L, 256L};
    static constexpr int64_t int_array_15[] = {256L, 1L};
    AtenTensorHandle buf13_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_14, int_array_15, cached_torch_dtype_float32, cached_torch_device_type_cpu, this->device_idx_, &buf13_handle));
    RAIIAtenTensorHandle buf13(buf13_handle);
    // Topologically Sorted Source Nodes: [linear_1, add, layer_norm_1, linear_2], Original ATen: [aten.view, aten.add, aten.native_layer_norm, aten.t, aten.addmm]
    static constexpr int64_t int_array_16[] = {64L, 256L};
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf13, mlp_1_bias, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf12, 2, int_array_6, int_array_7, 0L)), wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(mlp_1_weight, 2, int_array_16, int_array_9, 0L)), 1L, 1L));
    _rw.after(5, buf13, mlp_1_bias, _rw.view(mlp_1_weight, 2, int_array_16, int_array_9, 0L));  // rewriter:27228e38
    buf12.reset();
    static constexpr int64_t int_array_17[] = {2L, 32L, 256L};
    static constexpr int64_t int_array_18[] = {8192L, 256L, 1L};
    auto buf14 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf13, 3, int_array_17, int_array_18, 0L)); buf13.reset();  // reuse
    cpp_fused_gelu_view_2((float*)(buf14.data_ptr()));
    _rw.after(6, buf14);  // rewriter:27228e38
    AtenTensorHandle buf15_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_12, int_array_13, cached_torch_dtype_float32, cached_torch_device_type_cpu, this->device_idx_, &buf15_handle));
    RAIIAtenTensorHandle buf15(buf15_handle);
    // Topologically Sorted Source Nodes: [linear_2, gelu, linear_3], Original ATen: [aten.view, aten.gelu, aten.t, aten.addmm]
    static constexpr int64_t int_array_19[] = {256L, 1L};
    static constexpr int64_t int_array_20[] = {256L, 64L};
    static constexpr int64_t int_array_21[] = {1L, 256L};
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf15, mlp_3_bias, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf14, 2, int_array_16, int_array_19, 0L)), wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(mlp_3_weight, 2, int_array_20, int_array_21, 0L)), 1L, 1L));
    _rw.after(7, buf15, mlp_3_bias, _rw.view(mlp_3_weight, 2, int_array_20, int_array_21, 0L));  // rewriter:27228e38
    buf14.reset();
    auto buf16 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf8, 3, int_array_2, int_array_3, 0L)); buf8.reset();  // reuse
    cpp_fused_add_view_3((float*)(buf16.data_ptr()), (const float*)(arg12_1.data_ptr()), (const float*)(buf15.data_ptr()));
    _rw.after(8, buf16);  // rewriter:27228e38
    arg12_1.reset();
    output_handles[0] = buf16.release();
} // AOTInductorModel::run_impl
} // namespace torch::aot_inductor




// Compile cmd
// g++ /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl.wrapper.cpp -D TORCH_INDUCTOR_CPP_WRAPPER -D STANDALONE_TORCH_HEADER -D  C10_USING_CUSTOM_GENERATED_MACROS  -O1 -DNDEBUG -fno-omit-frame-pointer -g1 -fno-trapping-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -fno-finite-math-only -fno-unsafe-math-optimizations -fmath-errno -ffp-contract=off -fexcess-precision=fast -fno-tree-loop-vectorize -march=native -fPIC -Wall -std=c++20 -Wno-unused-variable -Wno-unknown-pragmas -pedantic -fopenmp  -include /tmp/torchinductor_root/precompiled_headers/catfxnc56yp52dxyw7g5ctsu33gnhd6rqv2nqu2vhklbzkejccyu.h -I/root/.pyenv/versions/3.11.7/include/python3.11 -I/work/main/.venv/lib/python3.11/site-packages/torch/include -I/work/main/.venv/lib/python3.11/site-packages/torch/include/torch/csrc/api/include    -c -o /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl.wrapper.o
// Link cmd
// g++ /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl.wrapper.o /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/crmumogjzx4yoigd76xt7avy76p52xvs5x6eraj4nb4eiksqhlil.kernel.o /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl/cjeoeqmd2psdn7wcxmdur7e57j4deb2k5w6npvm23hhxntf4a4ac.weights.o -D TORCH_INDUCTOR_CPP_WRAPPER -D STANDALONE_TORCH_HEADER -D  C10_USING_CUSTOM_GENERATED_MACROS  -O3 -DNDEBUG -fno-omit-frame-pointer -g1 -fno-trapping-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -fno-finite-math-only -fno-unsafe-math-optimizations -fmath-errno -ffp-contract=off -fexcess-precision=fast -fno-tree-loop-vectorize -march=native -shared -fPIC -Wall -std=c++20 -Wno-unused-variable -Wno-unknown-pragmas -pedantic -fopenmp  -I/root/.pyenv/versions/3.11.7/include/python3.11 -I/work/main/.venv/lib/python3.11/site-packages/torch/include -I/work/main/.venv/lib/python3.11/site-packages/torch/include/torch/csrc/api/include    -o /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl.wrapper.so  -ltorch -ltorch_cpu -lgomp  -L/root/.pyenv/versions/3.11.7/lib -L/work/main/.venv/lib/python3.11/site-packages/torch/lib 
