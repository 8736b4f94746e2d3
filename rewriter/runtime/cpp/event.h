// An event: the values that a wrapper passes at one point of a call, and what probes find out about them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shim.h"  // before abi.h, which takes it from there
#include "abi.h"
#include "engine/elements.h"
#include "read_table.h"
#include "texts.h"

namespace inductor_rewriter {

// The current facts of a value, as the line or the shim has them. Pointers belong to the tensor or to the line.
struct Seen {
  bool is_present = false, is_tensor = false, is_strided = true;
  int32_t dtype = -1, device_type = 0, device_index = -1;
  int64_t dim = 0, offset = 0;
  const int64_t *sizes = nullptr, *strides = nullptr;
  AtenTensorHandle handle = nullptr;  // for a view, that of its base
  const char* data = nullptr;         // for an array: a tensor without a handle, in arrayref mode
};

// The number of a dtype, by the name that the compiler gives its type; or -1.
inline int32_t dtype_named(const std::string& name) {
  static const struct {
    const char* name;
    int32_t dtype;
  } all[] = {
      {"b", dtypes::boolean}, {"a", dtypes::int8}, {"h", dtypes::uint8}, {"s", dtypes::int16},
      {"t", dtypes::uint16}, {"i", dtypes::int32}, {"j", dtypes::uint32}, {"l", dtypes::int64},
      {"x", dtypes::int64}, {"m", dtypes::uint64}, {"y", dtypes::uint64}, {"f", dtypes::float32},
      {"d", dtypes::float64}, {"N3c104HalfE", dtypes::float16}, {"N3c108BFloat16E", dtypes::bfloat16},
      {"N3c107complexIfEE", dtypes::complex64}, {"N3c107complexIdEE", dtypes::complex128}};
  for (const auto& one : all) {
    if (name == one.name) return one.dtype;
  }
  return -1;
}

// A value as a line passes it. Pointers are valid until the line returns.
struct Content {
  enum class Kind : char {
    tensor, view, array, integer, unsigned_integer, floating, boolean, other, text
  };

  Kind kind = Kind::other;
  Seen seen;  // all of an array, the handle of a tensor, and of a view sizes, strides and offset, too
  const char *type = nullptr, *text = nullptr;  // of an object of Python
  union {
    int64_t integer = 0;
    double floating;
  };
};
using Contents = std::vector<Content>;

struct Label {
  std::string role, name, expr;
};
using Labels = std::vector<Label>;

// `role name[ expr]`, separated by `; `.
inline Labels read_labels(const char* joined) {
  Labels labels;
  for (const std::string& one : split(joined, "; ")) {
    const std::size_t name = one.find(' ') + 1, expr = one.find(' ', name);
    const std::string named = one.substr(name, expr - name);
    labels.push_back(
        {one.substr(0, name ? name - 1 : 0), named, expr == std::string::npos ? named : one.substr(expr + 1)});
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
  ~Owned() { reset(); }
  void reset() {
    if (handle) aoti_torch_delete_tensor_object(handle);
    handle = nullptr;
  }
  AtenTensorHandle handle = nullptr;
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

  Layout layout() const {
    return {dtype, static_cast<int32_t>(shape.size()), numel, shape.data(), stride.data(), data};
  }
};

// Elements that the host can read.
struct Host {
  bool ready = false;
  bool whole = false;
  const char* data = nullptr;
  std::vector<int64_t> shape, stride;
  Owned owner;
};

// What is known of a value without its elements.
struct ItemFacts {
  const Label* label = nullptr;
  const char* kind = "other";  // tensor, int, float, bool, or another type of Python
  int64_t bits = 0;  // of a number
  std::string text;  // if it is not a tensor
  Tensor tensor;
  bool is_measured = false;
  Measured measurement;
};

struct Item : ItemFacts {
  Host host;
  bool has_head = false;
  std::vector<std::string> head;
  std::string fingerprint;  // of all elements, in hexadecimal
  std::string file;
  std::string unsaved;  // why there is no file, where `save` was to write one
  // For a view in the line: its base, its offset, and its handle once there is one.
  AtenTensorHandle base = nullptr;
  int64_t offset = 0;
  Owned view;

  // Of the elements that the host can read.
  Layout fetched() const {
    return {tensor.dtype, static_cast<int32_t>(host.shape.size()), tensor.numel, host.shape.data(),
            host.stride.data(), host.data};
  }

  bool is_tensor() const { return kind[0] == 't'; }
  bool has_statistics() const { return is_measured && measurement.finite >= 0; }

  // Resets what belongs to one event only.
  void reset() {
    tensor.handle = nullptr;
    tensor.data = nullptr;
    base = nullptr;
    host.ready = host.whole = false;
    host.data = nullptr;
    host.owner.reset();
    view.reset();
    is_measured = has_head = false;
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
    if (is_measured) add(measurement);
    for (const std::string& element : head) all += "\n" + element;
    return all;
  }
};

// `#12`, or the phase if there is no launch.
inline std::string launch_text(const ProbedLaunch* launch, const char* phase, int iteration = 0) {
  if (!launch) return phase;
  return "#" + std::to_string(launch->row->launch) + (iteration ? "." + std::to_string(iteration) : "");
}

// `#12 buf1`; the text is only made if there is a warning.
struct AboutValue {
  const ProbedLaunch* launch;
  const char* phase;
  const Label& label;
  operator std::string() const { return launch_text(launch, phase) + " " + label.name; }
};

// What an event is about: one phase of one launch, or the inputs of a call, which have no launch.
struct EventPlace {
  int64_t call = 0;  // the number of the call in this process
  const ProbedLaunch* launch = nullptr;
  const char* phase = "";
  int iteration = 0;
  const std::string* line = nullptr;  // `#12 before KERNEL`, if there is no iteration
};

// `#12.1 before KERNEL`, or the phase if there is no launch.
inline std::string line_text(const EventPlace& place) {
  if (!place.launch) return place.phase;
  if (place.line && !place.iteration) return *place.line;
  std::string text = launch_text(place.launch, place.phase, place.iteration);
  text += std::string(" ") + place.phase + (place.phase[0] == 'a' ? "  " : " ");
  return text + place.launch->row->kernel;
}

// The values at such a place.
struct Event : EventPlace {
  Event() = default;
  explicit Event(const EventPlace& place) : EventPlace(place) {}

  std::vector<Item> items;
  std::string error;  // the error of the device, in which case nothing can be read
  std::vector<std::pair<std::string, std::string>> unexpected;  // of inputs, by name
  bool captured = false;  // whether the values are of the last replay of a CUDA graph

  std::string about() const { return launch_text(launch, phase); }
  operator std::string() const { return about(); }
  AboutValue about(const Item& item) const { return {launch, phase, *item.label}; }
};

}  // namespace inductor_rewriter
