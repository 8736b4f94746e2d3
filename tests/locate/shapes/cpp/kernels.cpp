const char* mps_lib_0_source = (R"MTL(
    [[max_total_threads_per_threadgroup(64)]]
    kernel void generated_kernel(
        device float* out_ptr0,
        constant float* in_ptr0,
        constant long& ks0,
        uint2 thread_pos [[thread_position_in_grid]],
        uint2 group_pos [[thread_position_in_threadgroup]]
    ) {
    }
)MTL");
extern "C"  void  cpp_fused_relu_0(const float* in_ptr0,
                       float* out_ptr0);
extern "C"  void  cpp_fused_add_1(float* in_out_ptr0,
                       const float* in_ptr0,
                       const int64_t ks0,
                       const int64_t ks1);
extern "C"  void  cpp_fused_inplace_2(float* in_out_ptr0,
                       const float* in_ptr0);
extern "C"  void  cpp_fused_cat_4(const float* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0,
                       float* out_ptr1);
extern "C" 
void cpp_fused_mm_3(const float* X, const float* W, float* Y);

template <typename in_ptr0_type_, typename out_ptr0_type_, typename kernels_type_>
static inline void call_triton_poi_fused_relu_0(
    const in_ptr0_type_& in_ptr0,
    const out_ptr0_type_& out_ptr0,
    int64_t xnumel,
    int32_t device_idx_,
    cudaStream_t stream_,
    kernels_type_& kernels_,
    const std::optional<std::string>& cubin_dir_ = std::nullopt
){
    launchKernel(kernels_.triton_poi_fused_relu_0, grid_0, 1, 1, 4, 0, kernel_args_, stream_);
}

template <typename in_out_ptr0_type_, typename in_ptr0_type_, typename kernels_type_>
static inline void call_triton_poi_fused_add_1(
    const in_out_ptr0_type_& in_out_ptr0,
    const in_ptr0_type_& in_ptr0,
    int64_t xnumel,
    int32_t device_idx_,
    cudaStream_t stream_,
    kernels_type_& kernels_,
    const std::optional<std::string>& cubin_dir_ = std::nullopt
){
}

template <typename a_type_, typename b_type_, typename o_type_, typename kernels_type_>
static __attribute__((noinline)) void call_add_k_0(
    const a_type_& a,
    const b_type_& b,
    const o_type_& o,
    int64_t n,
    float scale,
    int64_t _grid_0,
    int64_t _grid_1,
    int64_t _grid_2,
    int32_t device_idx_,
    cudaStream_t stream_,
    kernels_type_& kernels_,
    const std::optional<std::string>& cubin_dir_ = std::nullopt
){
    /*
    async_compile.triton('add_k', '''
    @triton_heuristics.user_autotune(
        triton_meta={'signature': {'a': '*fp32', 'b': '*fp32', 'o': '*fp32', 'n': 'i32', 'scale': 'fp32', 'B': 'constexpr'}},
        custom_kernel=True,
    )
    @triton.jit
    def add_k(a, b, o, n, scale, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(o + i, tl.load(a + i) + scale * tl.load(b + i))
    ''', device_str='cuda')
    */
}

template <typename in_ptr0_type_, typename out_ptr0_type_, typename out_ptr1_type_>
static inline void call_triton_poi_fused_2(
    const in_ptr0_type_& in_ptr0,
    const out_ptr0_type_& out_ptr0,
    const out_ptr1_type_& out_ptr1,
    int32_t device_idx_,
    cudaStream_t stream_,
    kernels_type_& kernels_,
    const std::optional<std::string>& cubin_dir_ = std::nullopt
){
    /*
    async_compile.triton('triton_poi_fused_2', '''
    @triton_heuristics.foreach(
        triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'out_ptr1': '*fp32'}},
        inductor_meta={'grid_type': 'SequentialComboKernelGrid', 'combo_grid_meta': {'num_kernels': 2}},
    )
    @triton.jit
    def triton_poi_fused_2(in_ptr0, out_ptr0, out_ptr1):
        pass
    ''', device_str='cuda')
    */
}
