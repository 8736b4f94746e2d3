// Copies a tensor's elements to the host, at most once per event.
#pragma once

#include "engine/relaxed.h"
#include "tensor.h"

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
  const Relaxed relaxed;
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
