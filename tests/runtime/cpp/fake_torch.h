// What the recorder calls of torch, for dense tensors on the CPU: so that it is tested without torch, and under
// sanitizers, which do not go with torch's own libraries.
#pragma once

#include <memory>
#include <numeric>
#include <vector>

struct AtenTensorOpaque {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  std::shared_ptr<std::vector<float>> storage;
};

namespace fake {

// A contiguous tensor of float32 that is filled with one value.
inline AtenTensorOpaque full(std::vector<int64_t> sizes, float value) {
  AtenTensorOpaque made;
  made.strides.resize(sizes.size());
  int64_t numel = 1;
  for (std::size_t i = sizes.size(); i-- > 0; numel *= sizes[i]) made.strides[i] = numel;
  made.sizes = std::move(sizes);
  made.storage = std::make_shared<std::vector<float>>(static_cast<std::size_t>(numel), value);
  return made;
}

inline float* data(AtenTensorHandle tensor) { return tensor->storage->data() + tensor->offset; }

}  // namespace fake

extern "C" {
int32_t aoti_torch_device_type_cpu() { return 0; }
int32_t aoti_torch_device_type_cuda() { return 1; }
int32_t aoti_torch_layout_strided() { return 0; }
bool aoti_torch_grad_mode_is_enabled() { return false; }
void aoti_torch_grad_mode_set_enabled(bool) {}
void aoti_torch_print_tensor_handle(AtenTensorHandle, const char*) {}

AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** to) { return *to = fake::data(tensor), 0; }
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle, int32_t* to) { return *to = -1, 0; }
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle, int32_t* to) { return *to = 0; }
AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* to) {
  *to = static_cast<int64_t>(tensor->sizes.size());
  return 0;
}
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle, int32_t* to) { return *to = 6, 0; }
AOTITorchError aoti_torch_get_layout(AtenTensorHandle, int32_t* to) { return *to = 0; }
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** to) { return *to = tensor->sizes.data(), 0; }
AOTITorchError aoti_torch_get_storage_offset(AtenTensorHandle tensor, int64_t* to) { return *to = tensor->offset, 0; }
AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t* to) {
  *to = static_cast<int64_t>(tensor->storage->size() * sizeof(float));
  return 0;
}
AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** to) { return *to = tensor->strides.data(), 0; }
AOTITorchError aoti_torch_is_defined(AtenTensorHandle tensor, bool* to) { return *to = tensor->storage != nullptr, 0; }

AOTITorchError aoti_torch_copy_(AtenTensorHandle to, AtenTensorHandle from, int32_t) {
  if (to->sizes != from->sizes || to->strides != from->strides) return 1;
  int64_t numel = 1;
  for (const int64_t size : to->sizes) numel *= size;
  std::copy_n(fake::data(from), numel, fake::data(to));
  return 0;
}
AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor) { return delete tensor, 0; }
AOTITorchError aoti_torch_empty_strided(
    int64_t dim, const int64_t* sizes, const int64_t*, int32_t, int32_t, int32_t, AtenTensorHandle* made) {
  *made = new AtenTensorOpaque(fake::full({sizes, sizes + dim}, 0));
  return 0;
}
AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle tensor, AtenTensorHandle* made) {
  *made = new AtenTensorOpaque(*tensor);
  return 0;
}
AOTITorchError aoti_torch_new_uninitialized_tensor(AtenTensorHandle* made) {
  *made = new AtenTensorOpaque;
  return 0;
}
AOTITorchError aoti_torch__reinterpret_tensor(
    AtenTensorHandle tensor, int64_t dim, const int64_t* sizes, const int64_t* strides, int64_t offset,
    AtenTensorHandle* made) {
  *made = new AtenTensorOpaque{{sizes, sizes + dim}, {strides, strides + dim}, offset, tensor->storage};
  return 0;
}
}
