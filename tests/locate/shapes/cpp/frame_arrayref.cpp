
#include <torch/csrc/inductor/aoti_include/array_ref.h>

@KERNELS@
namespace torch::aot_inductor {
template <>
AOTInductorModelOutputs AOTInductorModel::run_impl_minimal_arrayref_interface<
  AOTInductorModelInputs, AOTInductorModelOutputs>(
    const AOTInductorModelInputs& inputs,
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor
) {
    auto arg0_1 = std::get<0>(inputs);
    auto arg1_1 = std::get<1>(inputs);
    auto arg2_1 = std::get<2>(inputs);
    auto w = constants_->at(0);
    int64_t s0 = 4L;
    static constexpr int64_t int_array_0[] = {4L, 4L};
    static constexpr int64_t int_array_1[] = {4L, 1L};
    AtenTensorHandle buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &buf0_handle));
    RAIIAtenTensorHandle buf0(buf0_handle);
    AtenTensorHandle buf1_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &buf1_handle));
    RAIIAtenTensorHandle buf1(buf1_handle);
    auto workspace_0 = std::move(buf1_unused);
@BODY@    AOTInductorModelOutputs output_arrayref_tensors;
    return output_arrayref_tensors;
} // AOTInductorModel::run_impl
} // namespace torch::aot_inductor
