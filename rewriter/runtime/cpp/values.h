// Reads what a launch was handed: for probes that look at values.
#pragma once

#include <string>
#include <vector>

#include "host.h"
#include "recorder.h"
#include "statistics.h"

namespace {
namespace inductor_rewriter {

constexpr int64_t most_values = 64;  // shown of a tensor, as upstream does

inline bool is_capturing(const Contents& contents) {
  for (const Content& content : contents) {
    int32_t type = -1, index = 0;
    AtenTensorHandle handle = content.kind == Content::Kind::tensor ? content.handle : nullptr;
    if (!handle || aoti_torch_get_dtype(handle, &type) || !is_defined(handle, type)) continue;
    aoti_torch_get_device_type(handle, &type);
    if (type != aoti_torch_device_type_cuda()) continue;
    aoti_torch_get_device_index(handle, &index);
    if (is_capturing(index)) return true;
  }
  return false;
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

inline std::string complex_repr(double real, double imag) {
  std::string text = python_repr(imag, false);
  if (bits_of(real) == 0) return text + "j";
  if (text[0] != '-') text = "+" + text;
  return "(" + python_repr(real, false) + text + "j)";
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
  void read(
      Event& event, const Labels& labels, Contents& contents,
      Recorder& recorder) const override {
    if (is_capturing(contents)) {
      throw std::runtime_error("values cannot be read while a CUDA graph is being captured");
    }
    if (labels.size() != contents.size()) {
      recorder.warn(event.about(), "the line and the table differ in the number of values");
    }
    std::size_t count = labels.size() < contents.size() ? labels.size() : contents.size();
    event.items = Fixed<Item>(count);
    std::size_t read = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Item& item = event.items[read];
      item.label = &labels[i];
      item.tensor = Tensor();  // of one before it that could not be read
      recorder.act(event.about() + " " + labels[i].name, [&] {
        read += read_one(contents[i], item);
      });
    }
    event.items.shrink(read);
  }

  void measure(Event& event, bool statistics, bool heads, Recorder& recorder) const override {
    for (Item& item : event.items) {
      const Tensor& tensor = item.tensor;
      if (!item.is_tensor() || !tensor.strided || !tensor.in_memory) continue;
      if (!dtype_info(tensor.dtype).plain || !(statistics || heads)) continue;
      recorder.act(event.about() + " " + item.label->name, [&] {
        fetch(item, heads && (!tensor.on_cpu || is_complex(tensor.dtype)));
        if (statistics) {
          item.statistics = inductor_rewriter::measure(item.host, tensor.dtype, tensor.numel);
          item.measured = true;
        }
        if (!heads) return;
        item.has_head = true;
        if (recorder.upstream) return;
        for (const char* element : first_elements(item.host, tensor.dtype)) {
          item.head.push_back(element_text(element, tensor.dtype));
        }
      });
    }
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
      if (statistics.magnitude) json.key("of").string("magnitude");
    }
    if (!item.sha256.empty()) json.key("sha256").string(item.sha256);
    if (!item.file.empty()) json.key("file").string(item.file);
    if (!item.unsaved.empty()) json.key("unsaved").string(item.unsaved);
  }

 private:
  static bool read_one(Content& given, Item& item) {
    using Kind = Content::Kind;
    const Content& content = item.content = std::move(given);
    switch (content.kind) {
      case Kind::tensor:
        item.kind = "tensor";
        return read_tensor(content.handle, item.tensor);
      case Kind::array:
        item.kind = "tensor";
        read_array(content.array, item.tensor);
        return true;
      case Kind::integer:
        item.kind = "int";
        item.text = std::to_string(content.integer);
        return true;
      case Kind::unsigned_integer:
        item.kind = "int";
        item.text = std::to_string(static_cast<uint64_t>(content.integer));
        return true;
      case Kind::floating:
        item.kind = "float";
        item.text = python_repr(content.floating);
        return true;
      case Kind::boolean:
        item.kind = "bool";
        item.text = content.integer ? "True" : "False";
        return true;
      case Kind::other:
        break;
    }
    item.kind = "other";
    item.text = "?";
    return true;
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
