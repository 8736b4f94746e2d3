// What the recorder calls of torch: functions of its stable C interface, which are the same in torch 2.6 to 2.15, as
// torch/csrc/inductor/aoti_torch/c/shim.h declares them. With these declarations the recorder compiles without
// torch, once for all of its releases.
#pragma once

#include <cstdint>

struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
using AOTITorchError = int32_t;

#pragma GCC visibility push(default)
extern "C" {
int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_layout_strided();
bool aoti_torch_grad_mode_is_enabled();
void aoti_torch_grad_mode_set_enabled(bool enabled);

AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** data);
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* index);
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t* type);
AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* dim);
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t* dtype);
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** sizes);
AOTITorchError aoti_torch_get_storage_offset(AtenTensorHandle tensor, int64_t* offset);
AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t* bytes);
AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** strides);

AOTITorchError aoti_torch_copy_(AtenTensorHandle to, AtenTensorHandle from, int32_t non_blocking);
AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor);
AOTITorchError aoti_torch_empty_strided(
    int64_t dim, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device_type,
    int32_t device_index, AtenTensorHandle* made);
AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle tensor, AtenTensorHandle* made);
AOTITorchError aoti_torch_new_uninitialized_tensor(AtenTensorHandle* made);
AOTITorchError aoti_torch__reinterpret_tensor(
    AtenTensorHandle tensor, int64_t dim, const int64_t* sizes, const int64_t* strides, int64_t offset,
    AtenTensorHandle* made);
}
#pragma GCC visibility pop
