// Triton kernels are embedded as comments in /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl.wrapper.cpp

#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_native_layer_norm_0(float* in_out_ptr0,
                       const float* in_ptr0,
                       const float* in_ptr1,
                       const float* in_ptr2,
                       float* out_ptr1,
                       float* out_ptr2)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    auto out_ptr0 = in_out_ptr0;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(64L); x0+=static_cast<int64_t>(1L))
            {
                {
                    float tmp_acc0 = 0;
                    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(64L); x1+=static_cast<int64_t>(1L))
                    {
                        {
                            {
                                auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 64L*x0)];
                                tmp_acc0 = tmp_acc0 + tmp0;
                            }
                        }
                    }
                    out_ptr0[static_cast<int64_t>(x0)] = tmp_acc0;
                }
                {
                    {
                        auto tmp0 = out_ptr0[static_cast<int64_t>(x0)];
                        auto tmp1 = static_cast<float>(64.0);
                        auto tmp2 = tmp0 / tmp1;
                        in_out_ptr0[static_cast<int64_t>(x0)] = tmp2;
                    }
                }
                {
                    float tmp_acc0 = 0;
                    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(64L); x1+=static_cast<int64_t>(1L))
                    {
                        {
                            {
                                auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 64L*x0)];
                                auto tmp1 = in_out_ptr0[static_cast<int64_t>(x0)];
                                auto tmp2 = float(tmp0 - tmp1);
                                auto tmp3 = float(tmp2 * tmp2);
                                tmp_acc0 = tmp_acc0 + tmp3;
                            }
                        }
                    }
                    out_ptr1[static_cast<int64_t>(x0)] = tmp_acc0;
                }
                #pragma GCC ivdep
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(64L); x1+=static_cast<int64_t>(1L))
                {
                    {
                        {
                            auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 64L*x0)];
                            auto tmp1 = in_out_ptr0[static_cast<int64_t>(x0)];
                            auto tmp3 = out_ptr1[static_cast<int64_t>(x0)];
                            auto tmp10 = in_ptr1[static_cast<int64_t>(x1)];
                            auto tmp12 = in_ptr2[static_cast<int64_t>(x1)];
                            auto tmp2 = float(tmp0 - tmp1);
                            auto tmp4 = static_cast<float>(64.0);
                            auto tmp5 = tmp3 / tmp4;
                            auto tmp6 = static_cast<float>(1e-05);
                            auto tmp7 = float(tmp5 + tmp6);
                            auto tmp8 = 1 / std::sqrt(tmp7);
                            auto tmp9 = float(tmp2 * tmp8);
                            auto tmp11 = float(tmp9 * tmp10);
                            auto tmp13 = float(tmp11 + tmp12);
                            out_ptr2[static_cast<int64_t>(x1 + 64L*x0)] = tmp13;
                        }
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}

#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_add_native_layer_norm_view_1(float* in_out_ptr0,
                       const float* in_ptr0,
                       const float* in_ptr1,
                       const float* in_ptr2,
                       const float* in_ptr3,
                       float* out_ptr1,
                       float* out_ptr2)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    auto out_ptr0 = in_out_ptr0;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(64L); x0+=static_cast<int64_t>(1L))
            {
                {
                    float tmp_acc0 = 0;
                    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(64L); x1+=static_cast<int64_t>(1L))
                    {
                        {
                            {
                                auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 64L*x0)];
                                auto tmp1 = in_ptr1[static_cast<int64_t>(x1 + 64L*x0)];
                                auto tmp2 = float(tmp0 + tmp1);
                                tmp_acc0 = tmp_acc0 + tmp2;
                            }
                        }
                    }
                    out_ptr0[static_cast<int64_t>(x0)] = tmp_acc0;
                }
                {
                    {
                        auto tmp0 = out_ptr0[static_cast<int64_t>(x0)];
                        auto tmp1 = static_cast<float>(64.0);
                        auto tmp2 = tmp0 / tmp1;
                        in_out_ptr0[static_cast<int64_t>(x0)] = tmp2;
                    }
                }
                {
                    float tmp_acc0 = 0;
                    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(64L); x1+=static_cast<int64_t>(1L))
                    {
                        {
                            {
                                auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 64L*x0)];
                                auto tmp1 = in_ptr1[static_cast<int64_t>(x1 + 64L*x0)];
                                auto tmp3 = in_out_ptr0[static_cast<int64_t>(x0)];
                                auto tmp2 = float(tmp0 + tmp1);
                                auto tmp4 = float(tmp2 - tmp3);
                                auto tmp5 = float(tmp4 * tmp4);
                                tmp_acc0 = tmp_acc0 + tmp5;
                            }
                        }
                    }
                    out_ptr1[static_cast<int64_t>(x0)] = tmp_acc0;
                }
                #pragma GCC ivdep
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(64L); x1+=static_cast<int64_t>(1L))
                {
                    {
                        {
                            auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 64L*x0)];
                            auto tmp1 = in_ptr1[static_cast<int64_t>(x1 + 64L*x0)];
                            auto tmp3 = in_out_ptr0[static_cast<int64_t>(x0)];
                            auto tmp5 = out_ptr1[static_cast<int64_t>(x0)];
                            auto tmp12 = in_ptr2[static_cast<int64_t>(x1)];
                            auto tmp14 = in_ptr3[static_cast<int64_t>(x1)];
                            auto tmp2 = float(tmp0 + tmp1);
                            auto tmp4 = float(tmp2 - tmp3);
                            auto tmp6 = static_cast<float>(64.0);
                            auto tmp7 = tmp5 / tmp6;
                            auto tmp8 = static_cast<float>(1e-05);
                            auto tmp9 = float(tmp7 + tmp8);
                            auto tmp10 = 1 / std::sqrt(tmp9);
                            auto tmp11 = float(tmp4 * tmp10);
                            auto tmp13 = float(tmp11 * tmp12);
                            auto tmp15 = float(tmp13 + tmp14);
                            out_ptr2[static_cast<int64_t>(x1 + 64L*x0)] = tmp15;
                        }
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}

#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_gelu_view_2(float* in_out_ptr0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(16384L); x0+=static_cast<int64_t>(1L))
            {
                {
                    {
                        auto tmp0 = in_out_ptr0[static_cast<int64_t>(x0)];
                        auto tmp1 = static_cast<float>(0.5);
                        auto tmp2 = float(tmp0 * tmp1);
                        auto tmp3 = static_cast<float>(0.7071067811865476);
                        auto tmp4 = float(tmp0 * tmp3);
                        auto tmp5 = std::erf(tmp4);
                        auto tmp6 = static_cast<float>(1.0);
                        auto tmp7 = float(tmp5 + tmp6);
                        auto tmp8 = float(tmp2 * tmp7);
                        in_out_ptr0[static_cast<int64_t>(x0)] = tmp8;
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}

#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_add_view_3(float* in_out_ptr0,
                       const float* in_ptr0,
                       const float* in_ptr1)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(4096L); x0+=static_cast<int64_t>(1L))
            {
                {
                    {
                        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                        auto tmp1 = in_out_ptr0[static_cast<int64_t>(x0)];
                        auto tmp3 = in_ptr1[static_cast<int64_t>(x0)];
                        auto tmp2 = float(tmp0 + tmp1);
                        auto tmp4 = float(tmp2 + tmp3);
                        in_out_ptr0[static_cast<int64_t>(x0)] = tmp4;
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}

// Compile cmd
// g++ /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/crmumogjzx4yoigd76xt7avy76p52xvs5x6eraj4nb4eiksqhlil.kernel.cpp -D TORCH_INDUCTOR_CPP_WRAPPER -D STANDALONE_TORCH_HEADER -D  C10_USING_CUSTOM_GENERATED_MACROS  -O3 -DNDEBUG -fno-omit-frame-pointer -g1 -fno-trapping-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -fno-finite-math-only -fno-unsafe-math-optimizations -fmath-errno -ffp-contract=off -fexcess-precision=fast -fno-tree-loop-vectorize -march=native -fPIC -Wall -std=c++20 -Wno-unused-variable -Wno-unknown-pragmas -pedantic -fopenmp  -include /tmp/torchinductor_root/precompiled_headers/cfpwey2okr56no44otyeh5hyxozkrpsoei4m2e6uvxl7u76bun5n.h -I/root/.pyenv/versions/3.11.7/include/python3.11 -I/work/main/.venv/lib/python3.11/site-packages/torch/include -I/work/main/.venv/lib/python3.11/site-packages/torch/include/torch/csrc/api/include    -c -o /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/crmumogjzx4yoigd76xt7avy76p52xvs5x6eraj4nb4eiksqhlil.kernel.o
// Link cmd
// g++ /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl.wrapper.o /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/crmumogjzx4yoigd76xt7avy76p52xvs5x6eraj4nb4eiksqhlil.kernel.o /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl/cjeoeqmd2psdn7wcxmdur7e57j4deb2k5w6npvm23hhxntf4a4ac.weights.o -D TORCH_INDUCTOR_CPP_WRAPPER -D STANDALONE_TORCH_HEADER -D  C10_USING_CUSTOM_GENERATED_MACROS  -O3 -DNDEBUG -fno-omit-frame-pointer -g1 -fno-trapping-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -fno-finite-math-only -fno-unsafe-math-optimizations -fmath-errno -ffp-contract=off -fexcess-precision=fast -fno-tree-loop-vectorize -march=native -shared -fPIC -Wall -std=c++20 -Wno-unused-variable -Wno-unknown-pragmas -pedantic -fopenmp  -I/root/.pyenv/versions/3.11.7/include/python3.11 -I/work/main/.venv/lib/python3.11/site-packages/torch/include -I/work/main/.venv/lib/python3.11/site-packages/torch/include/torch/csrc/api/include    -o /tmp/torchinductor_root/c5l6ehm6kmk7x3zpx7ugso3bpweeydx4ihr4rfsryluajrsxc7zu/clp45egcmoxyarni6nmce2tyq3itzatcul7sxb523hrca2zpqmyl.wrapper.so  -ltorch -ltorch_cpu -lgomp  -L/root/.pyenv/versions/3.11.7/lib -L/work/main/.venv/lib/python3.11/site-packages/torch/lib 
