"""What the locator finds in real wrappers, against tables checked by reading the files."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from artifacts import ARTIFACTS, FIXTURES, Fixture, get, plain
from rewriter.cli import main
from rewriter.locate.types import Argument, Launch
from rewriter.locate.vocabulary import vocabulary

pytestmark = pytest.mark.properties

all_fixtures = pytest.mark.parametrize("fixture", FIXTURES, ids=str)

# How many launches of which kind each wrapper has.
KINDS_OF = {
    "cpu-halide-torch2.15/inplace": {"extern_out": 1, "halide": 2},
    "cpu-halide-torch2.15/mlp": {"extern_out": 1, "halide": 2},
    "cpu-pallas-torch2.15/inplace": {"extern_out": 1, "pallas": 2},
    "cpu-pallas-torch2.15/mlp": {"extern_out": 1, "pallas": 2},
    "cpu-torch2.13/complex_numbers": {"cpp": 1, "fallback": 4},
    "cpu-torch2.13/cond": {"cpp": 3, "extern_out": 1},
    "cpu-torch2.13/conv": {"cpp": 2, "extern_alloc": 1},
    "cpu-torch2.13/customop": {"cpp": 3, "custom_op": 3},
    "cpu-torch2.13/dropout": {"cpp": 1, "extern_out": 1},
    "cpu-torch2.13/dtypes": {"cpp": 3, "extern_out": 2},
    "cpu-torch2.13/dynamic": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.13/empty": {"fallback": 1},
    "cpu-torch2.13/frozen": {"cpp": 2, "fallback": 1},
    "cpu-torch2.13/mlp": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.13/mutate": {"cpp": 1},
    "cpu-torch2.13/scatter": {"cpp": 2, "fallback": 4},
    "cpu-torch2.13/subgraph": {"cpp": 1, "extern_out": 1},
    "cpu-torch2.13/transformer": {"cpp": 4, "extern_out": 4, "fallback": 1},
    "cpu-torch2.13/transformer 1": {"cpp": 6, "extern_out": 8, "fallback": 1},
    "cpu-torch2.13/unbacked": {"cpp": 2, "fallback": 1},
    "cpu-torch2.13/while_loop": {"cpp": 3},
    "cpu-torch2.15/cond": {"cpp": 3, "extern_out": 1},
    "cpu-torch2.15/customop": {"cpp": 3, "custom_op": 2},
    "cpu-torch2.15/external": {"external": 2, "triton": 2},
    "cpu-torch2.15/mlp": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.6/customop": {"cpp": 3, "custom_op": 2},
    "cpu-torch2.6/mlp": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.8/customop": {"cpp": 3, "custom_op": 2},
    "cpu-torch2.8/mlp": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cuda-halide-torch2.15/mlp": {"extern_out": 1, "halide": 2},
    "cuda-pallas-torch2.15/mlp": {"extern_out": 1, "pallas": 2},
    "cuda-torch2.11/autotune": {"triton_template": 2},
    "cuda-torch2.11/combo": {"combo": 1, "triton": 1},
    "cuda-torch2.11/cond": {"extern_out": 1, "triton": 3},
    "cuda-torch2.11/conv": {"extern_alloc": 2, "extern_out": 1, "triton": 6},
    "cuda-torch2.11/customop": {"custom_op": 2, "triton": 3},
    "cuda-torch2.11/flex_training": {"triton": 2, "triton_template": 1},
    "cuda-torch2.11/flex_training 1": {"triton": 2, "triton_template": 1},
    "cuda-torch2.11/gpt": {"extern_out": 17, "fallback": 4, "triton": 13},
    "cuda-torch2.11/gpt_train": {"extern_out": 18, "fallback": 2, "triton": 26},
    "cuda-torch2.11/gpt_train 1": {"extern_out": 9, "fallback": 2, "triton": 9},
    "cuda-torch2.11/mlp": {"extern_out": 2, "fallback": 1, "triton": 2},
    "cuda-torch2.11/mlp_dyn": {"extern_out": 2, "fallback": 1, "triton": 2},
    "cuda-torch2.11/multikernel": {"multi_kernel": 2},
    "cuda-torch2.11/mutate": {"triton": 3},
    "cuda-torch2.11/partition": {"cpp": 1, "extern_out": 1, "triton": 2},
    "cuda-torch2.11/scatter": {"triton": 6},
    "cuda-torch2.11/subgraph": {"extern_out": 1, "triton": 1},
    "cuda-torch2.11/unbacked": {"fallback": 1, "triton": 3},
    "cuda-torch2.11/usertriton": {"triton": 3, "triton_user": 2},
    "cuda-torch2.11/while": {"triton": 4},
    "cuda-torch2.15/cutedsl": {"cuda": 1, "triton": 2},
    "cuda-torch2.15/flydsl": {"flydsl": 1, "triton": 2},
    "cuda-torch2.15/gpt": {"extern_out": 12, "triton": 17},
    "cuda-torch2.15/mempool": {"extern_out": 1, "triton": 2},
    "cuda-torch2.15/mlp": {"extern_out": 2, "triton": 2},
    "cuda-torch2.15/streams": {"extern_out": 1, "triton": 3},
    "cuda-torch2.6/gpt": {"extern_out": 12, "triton": 17},
    "cuda-torch2.6/mlp": {"extern_out": 2, "triton": 2},
    "cuda-torch2.8/gpt": {"extern_out": 12, "triton": 17},
    "cuda-torch2.8/mlp": {"extern_out": 2, "triton": 2},
    "mps-torch2.15/inplace": {"extern_out": 1, "metal": 2},
    "mps-torch2.15/mlp": {"extern_out": 1, "metal": 2},
}

# Launches as `shown` writes them: where, kind, kernel; arguments; source nodes <- original ATen.
GOLDEN = """
cuda-torch2.11/mlp_dyn
  #0 Runner.call:220 extern_out extern_kernels.mm
    in arg3_1 | in arg0_1 = reinterpret_tensor(arg0_1, (32, 64), (1, 32), 0) | out buf0
    linear <- aten.t aten.addmm
  #1 Runner.call:228 triton triton_poi_fused_addmm_gelu_0
    inout buf1 @ buf0 | in arg1_1 | in scalar triton_poi_fused_addmm_gelu_0_xnumel | in other stream0
    h <- aten.addmm aten.gelu
  #2 Runner.call:233 extern_out extern_kernels.addmm
    in arg5_1 | in buf1 @ buf0 | in arg4_1 = reinterpret_tensor(arg4_1, (64, 16), (1, 64), 0) | in scalar 1 | in scalar 1 | out buf2
    h linear_1 <- aten.addmm aten.gelu aten.t
  #3 Runner.call:242 triton triton_per_fused__softmax_exp_native_layer_norm_prepare_softmax_online_sub_1
    inout buf6 @ buf2 | in arg6_1 | in arg7_1 | out buf12 | in scalar s77 @ arg2_1 | in scalar 16 | in other stream0
    h_1 softmax <- aten.native_layer_norm prims.prepare_softmax_online aten.sub aten.exp aten._softmax
  #4 Runner.call:247 fallback torch.ops.aten.topk.default
    in buf6 @ buf2 | in scalar 3 | out buf8 = buf7[0]
    topk <- aten.topk
cuda-torch2.11/mutate
  #0 Runner.call:200 triton triton_poi_fused_add_copy__sum_0
    inout arg0_1 | in arg1_1 | out buf0 | inout arg0_1 | in scalar 8 | in other stream0
    sum_1 add_ <- aten.sum aten.add aten.copy_
  #1 Runner.call:206 triton triton_poi_fused_add_copy__mul_1
    inout arg1_1 | in buf0 | out buf1 | inout arg1_1 | in scalar 32 | in other stream0
    mul_ add <- aten.mul aten.add aten.copy_
  #2 Runner.call:212 triton triton_poi_fused_add_copy__2
    inout arg2_1 | inout arg2_1 | in scalar 1 | in other stream0
    iadd <- aten.add aten.copy_
cuda-torch2.11/scatter
  #0 Runner.call:339 triton triton_poi_fused_scatter_add_zeros_0
    out buf0 | in scalar 128 | in other stream0
    zeros y <- aten.zeros aten.scatter_add
  #1 Runner.call:344 triton triton_poi_fused_index_put_select_1
    in arg0_1 | out buf4 | in scalar 128 | in other stream0
    getitem index_put_ <- aten.select aten.index_put
  #2 Runner.call:348 triton triton_poi_fused_index_put_scatter_add_select_zeros_2
    in arg1_1 | in arg2_1 | inout buf0 | inout buf4 | in scalar 32 | in other stream0
    zeros y getitem index_put_ <- aten.zeros aten.scatter_add aten.select aten.index_put
  #3 Runner.call:356 triton triton_per_fused_cumsum_sort_3
    in buf0 | out buf2 | out buf6 | in scalar 8 | in scalar 16 | in other stream0
    sort cumsum <- aten.sort aten.cumsum
  #4 Runner.call:361 triton triton_poi_fused_clone_select_4
    in buf0 | out buf7 | in scalar 16 | in other stream0
    getitem_3 contiguous <- aten.select aten.clone
  #5 Runner.call:367 triton triton_poi_fused_clone_searchsorted_select_5
    in arg0_1 | in buf7 | out buf8 | in scalar 16 | in other stream0
    getitem_3 contiguous getitem_4 contiguous_1 searchsorted <- aten.select aten.clone aten.searchsorted
cuda-torch2.11/usertriton
  #0 Runner.call:239 triton triton_poi_fused_relu_0
    in arg1_1 | out buf1 | in scalar 256 | in other stream0
    relu <- aten.relu
  #1 Runner.call:244 triton_user add_k_0
    in arg0_1 | in buf1 | out buf0 | in scalar 256 | in scalar 2.5 | in scalar 4 | in scalar 1 | in scalar 1 | in other stream0
    relu <- aten.relu
  #2 Runner.call:251 triton triton_poi_fused_add_1
    in buf0 | out buf4 | in scalar 256 | in other stream0
    add <- aten.add
  #3 Runner.call:255 triton_user mul_k_1
    in buf4 | out buf3 @ buf1 | in scalar 256 | in other stream0
    add <- aten.add
  #4 Runner.call:261 triton triton_per_fused_sum_2
    in buf3 @ buf1 | out buf6 | in scalar 32 | in scalar 8 | in other stream0
    sum_1 <- aten.sum
cuda-torch2.11/cond
  #0 true_graph_0:144 extern_out extern_kernels.mm (repeats)
    in true_graph_0_arg0_1 | in true_graph_0_arg2_1 = reinterpret_tensor(true_graph_0_arg2_1, (8, 8), (1, 8), 0) | out true_graph_0_buf0
    cond gt linear <- aten.gt aten.addmm aten.t
  #1 true_graph_0:151 triton triton_poi_fused_add_addmm_gt_relu_1 (repeats)
    inout true_graph_0_buf1 @ true_graph_0_buf0 | in true_graph_0_arg1_1 | in scalar 32 | in other stream0
    cond gt add relu <- aten.gt aten.add aten.relu aten.addmm
  #2 false_graph_0:207 triton triton_poi_fused_gt_mul_sin_2 (repeats)
    in false_graph_0_arg0_1 | out false_graph_0_buf0 | in scalar 32 | in other stream0
    cond gt mul sin <- aten.gt aten.mul aten.sin
  #3 Runner.call:237 triton triton_per_fused_gt_sum_0
    in arg0_1 | out buf1 | in scalar 1 | in scalar 32 | in other stream0
    sum_1 gt <- aten.sum aten.gt
cuda-torch2.11/while
  #0 while_loop_cond_graph_0:119 triton triton_poi_fused_lt_zeros_1 (repeats)
    in while_loop_cond_graph_0_arg0_1 | out while_loop_cond_graph_0_buf0 | in scalar 1 | in other stream0
    while_loop i lt <- aten.zeros aten.lt
  #1 while_loop_body_graph_0:210 triton triton_poi_fused_add_sin_zeros_2 (repeats)
    in while_loop_body_graph_0_arg1_1 | out while_loop_body_graph_0_buf0 | in scalar 32 | in other stream0
    while_loop i child_4 sin <- aten.zeros aten.add aten.sin
  #2 while_loop_body_graph_0:216 triton triton_poi_fused_add_zeros_3 (repeats)
    in while_loop_body_graph_0_arg0_1 | out while_loop_body_graph_0_buf1 | in scalar 1 | in other stream0
    while_loop i child <- aten.zeros aten.add
  #3 Runner.call:244 triton triton_poi_fused_zeros_0
    out buf0 | in scalar 1 | in other stream0
    i <- aten.zeros
cuda-torch2.11/partition
  #0 partition_0:116 triton triton_poi_fused__to_copy_add_sin_0
    in arg0_1 | out buf0 | out buf4 | in scalar 64 | in other stream0
    sin y cpu <- aten.sin aten.add aten._to_copy
  #1 partition_1:168 extern_out extern_kernels.mm
    in buf3 | in buf4 = reinterpret_tensor(buf4, (8, 8), (1, 8), 0) | out buf5
    sin y t matmul <- aten.sin aten.add aten.t aten.mm
  #2 partition_1:175 triton triton_poi_fused_relu_2
    inout buf6 @ buf5 | in scalar 64 | in other stream0
    relu <- aten.relu
  #3 Runner.call:204 cpp cpp_fused__to_copy_mul_1
    inout buf2 @ buf1
    -
cuda-torch2.11/unbacked
  #0 Runner.call:218 triton triton_per_fused__to_copy_abs_gt_sum_0
    in arg0_1 | out buf0 | out buf6 | in scalar 1 | in scalar 32 | in other stream0
    gt sum_1 to abs_1 <- aten.gt aten.sum aten._to_copy aten.abs
  #1 Runner.call:221 fallback torch.ops.aten.nonzero.default
    in buf0 | out buf1
    gt n <- aten.gt aten.nonzero
  #2 Runner.call:248 triton triton_poi_fused_index_mul_select_1
    in buf2 @ buf1 | in arg0_1 | out buf10 | in scalar u0 | in scalar u0 | in other stream0
    getitem getitem_1 getitem_2 mul <- aten.select aten.index aten.mul
  #3 Runner.call:255 triton triton_poi_fused_full_mul_2
    out buf11 | in scalar u1 | in scalar 4 | in other stream0
    full mul_1 <- aten.full aten.mul
cuda-torch2.11/multikernel
  #0 Runner.call:323 multi_kernel multi_kernel_0
    in arg0_1 | out buf0 | out buf1 | in scalar 64 | in scalar 1000 | in other stream0
     <- prims.prepare_softmax_online
  #1 Runner.call:328 multi_kernel multi_kernel_1
    in arg0_1 | in buf0 | in buf1 | out buf2 | in scalar 1000 | in scalar 64 | in other stream0
    softmax sum_1 <- aten.sub aten.exp aten._softmax aten.sum
cuda-torch2.11/combo
  #0 Runner.call:160 combo triton_poi_fused_0
    in arg0_1 | in arg1_1 | out buf0 | out buf1 | in other stream0
    sin add cos mul exp sum_1 <- aten.sin aten.add aten.cos aten.mul aten.exp aten.sum
  #1 Runner.call:164 triton triton_per_fused_1
    in arg2_1 | out buf2 | in scalar 16 | in scalar 64 | in other stream0
    sin add cos mul exp sum_1 <- aten.sin aten.add aten.cos aten.mul aten.exp aten.sum
cuda-torch2.11/autotune
  #0 Runner.call:302 triton_template triton_tem_fused_addmm_relu_t_0
    in arg2_1 | in arg0_1 | in arg1_1 | out buf1 | in scalar 16 | in scalar 1 | in scalar 1 | in other stream0
    input_1 input_2 <- aten.t aten.addmm aten.relu
  #1 Runner.call:310 triton_template triton_tem_fused_addmm_relu_t_1
    in arg4_1 | in buf1 | in arg3_1 | out buf2 | in scalar 4 | in scalar 1 | in scalar 1 | in other stream0
    input_2 input_3 <- aten.addmm aten.relu aten.t
cuda-torch2.11/conv
  #2 Runner.call:464 extern_alloc extern_kernels.convolution
    in buf0 | in buf1 | in scalar 1 | in scalar 1 | in scalar 1 | in scalar 1 | in scalar 1 | in scalar 1 | in other False | in scalar 0 | in scalar 0 | in scalar 1 | in other None | out buf2
    conv2d <- aten.convolution
  #3 Runner.call:472 triton triton_poi_fused__native_batch_norm_legit_no_training_convolution_relu_2
    inout buf3 @ buf2 | in arg1_1 | in arg3_1 | in arg4_1 | in arg5_1 | in arg6_1 | in scalar 4096 | in other stream0
    conv2d batch_norm x <- aten.convolution aten._native_batch_norm_legit_no_training aten.relu
  #5 Runner.call:486 extern_alloc extern_kernels.convolution
    in buf3 @ buf2 | in buf4 | in scalar 2 | in scalar 2 | in scalar 1 | in scalar 1 | in scalar 1 | in scalar 1 | in other False | in scalar 0 | in scalar 0 | in scalar 1 | in other None | out buf5
    conv2d batch_norm x conv2d_1 <- aten.convolution aten._native_batch_norm_legit_no_training aten.relu
  #7 Runner.call:501 triton triton_per_fused__native_batch_norm_legit_no_training_convolution_max_pool2d_with_indices_mean_relu_5
    out buf8 @ buf7 | in buf6 @ buf5 | in scalar 16 | in scalar 16 | in other stream0
    conv2d batch_norm x conv2d_1 x_1 x_2 mean <- aten.convolution aten._native_batch_norm_legit_no_training aten.relu aten.max_pool2d_with_indices aten.mean
  #8 Runner.call:506 extern_out extern_kernels.addmm
    in arg10_1 | in buf8 @ buf7 | in arg9_1 = reinterpret_tensor(arg9_1, (8, 5), (1, 8), 0) | in scalar 1 | in scalar 1 | out buf9
    conv2d batch_norm x conv2d_1 x_1 x_2 mean linear <- aten.convolution aten._native_batch_norm_legit_no_training aten.relu aten.max_pool2d_with_indices aten.mean aten.t aten.addmm
cuda-torch2.11/customop
  #0 Runner.call:187 triton triton_poi_fused_mul_0
    in arg0_1 | out buf0 | in scalar 32 | in other stream0
    y <- aten.mul
  #1 Runner.call:191 custom_op torch.ops.corp.inc_.default
    inout buf0
     <- corp.inc_
  #2 Runner.call:196 triton triton_poi_fused_relu_scale_1
    in buf0 | out buf3 | in scalar 32 | in other stream0
    relu scale <- aten.relu corp.scale
  #3 Runner.call:199 custom_op torch.ops.corp.scale.default
    in buf3 | in scalar 2.5 | in scalar 3 | out buf4
    relu scale <- aten.relu corp.scale
  #4 Runner.call:209 triton triton_per_fused_sum_2
    in buf5 @ buf4 | out buf6 | in scalar 4 | in scalar 8 | in other stream0
    sum_1 <- aten.sum
cuda-torch2.11/subgraph
  #0 repeated_subgraph0:86 extern_out extern_kernels.mm (repeats)
    in repeated_subgraph0_arg0_1 | in repeated_subgraph0_arg1_1 | out repeated_subgraph0_buf0
    invoke_subgraph matmul <- aten.mm
  #1 repeated_subgraph0:93 triton triton_poi_fused_add_relu_0 (repeats)
    inout repeated_subgraph0_buf1 @ repeated_subgraph0_buf0 | in scalar 64 | in other stream0
    invoke_subgraph add relu <- aten.add aten.relu
cuda-torch2.11/gpt_train
  #0 Runner.call:987 triton triton_poi_fused_mm_t_view_0
    in tangents_1 | out buf0 | in scalar 3328 | in other stream0
    view_22 permute_13 <- aten.view aten.t aten.mm
  #2 Runner.call:997 extern_out extern_kernels.mm
    in tangents_1 = reinterpret_tensor(tangents_1, (32, 101), (101, 1), 0) | in primals_30 | out buf2
    view_22 linear_8 permute_15 mm_2 <- aten.view aten.t aten.mm
  #8 Runner.call:1033 triton triton_poi_fused_gelu_gelu_backward_view_4
    inout buf11 @ buf8 | in addmm_6 | in scalar 8192 | in other stream0
    view_26 linear_6 gelu_1 mul_24 mul_25 mul_26 exp mul_27 mul_28 add_18 mul_29 <- aten.view aten.gelu aten.gelu_backward
  #9 Runner.call:1038 extern_out extern_kernels.mm
    in buf11 = reinterpret_tensor(buf11, (32, 256), (256, 1), 0) @ buf8 | in primals_24 | out buf12 @ buf2
    view_26 linear_6 gelu_1 mul_24 mul_25 mul_26 exp mul_27 mul_28 add_18 mul_29 view_27 permute_21 mm_5 <- aten.view aten.gelu aten.gelu_backward aten.t aten.mm
  #12 Runner.call:1055 triton triton_per_fused_add_native_layer_norm_backward_view_6
    inout buf19 @ buf5 | in buf12 @ buf2 | in primals_22 | in mul_9 | in div_1 | in scalar 32 | in scalar 64 | in other stream0
    view_29 mul_31 mul_32 sum_7 mul_33 sum_8 mul_34 sub_9 sub_10 mul_35 add_19 <- aten.view aten.native_layer_norm_backward aten.add
  #17 Runner.call:1081 fallback torch.ops.aten._scaled_dot_product_efficient_attention_backward.default
    in buf20 = reinterpret_tensor(buf20, (2, 4, 16, 16), (1024, 16, 64, 1), 0) @ buf2 | in select_3 | in select_4 | in select_5 | in other None | in getitem_10 | in getitem_11 | in getitem_12 | in getitem_13 | in scalar 0.0 | in other True | in other True | in other True | in other False | in other True | out buf24 = buf23[0] | out buf25 = buf23[1] | out buf26 = buf23[2]
    view_32 view_33 permute_29 _scaled_dot_product_efficient_attention_backward <- aten.view aten.transpose aten._scaled_dot_product_efficient_attention_backward
  #18 Runner.call:1104 triton triton_poi_fused_add_clone_permute_select_backward_7
    in buf26 | in buf25 | in buf24 | out buf27 | in scalar 6144 | in other stream0
    full _generalized_scatter _generalized_scatter_1 add_20 _generalized_scatter_2 add_21 permute_30 clone <- aten.select_backward aten.add aten.permute aten.clone
  #19 Runner.call:1110 extern_out extern_kernels.mm
    in buf27 = reinterpret_tensor(buf27, (32, 192), (192, 1), 0) | in primals_18 | out buf28 @ buf26
    full _generalized_scatter _generalized_scatter_1 add_20 _generalized_scatter_2 add_21 permute_30 clone view_34 view_35 linear_4 permute_31 mm_9 <- aten.select_backward aten.add aten.permute aten.clone aten._unsafe_view aten.view aten.t aten.mm
  #42 Runner.call:1255 triton triton_per_fused_add_embedding_dense_backward_native_layer_norm_backward_view_10
    inout buf63 @ buf5 | in buf56 @ buf54 | in primals_4 | in mul | in div_4 | in primals_2 | inout buf66 | in scalar 32 | in scalar 64 | in other stream0
    view_51 mul_59 mul_60 sum_25 mul_61 sum_26 mul_62 sub_18 sub_19 mul_63 add_28 scalar_tensor eq_1 unsqueeze_1 where_1 full_7 index_put_1 <- aten.view aten.native_layer_norm_backward aten.add aten.embedding_dense_backward
  #45 Runner.call:1275 triton triton_poi_fused_embedding_dense_backward_sum_view_12
    in iota | in buf63 @ buf5 | inout buf64 | in scalar 1024 | in other stream0
    sum_29 view_52 eq unsqueeze scalar_tensor where full_6 index_put <- aten.sum aten.view aten.embedding_dense_backward
cuda-torch2.11/flex_training
  #1 Runner.call:717 triton_template triton_tem_fused_flex_attention_1
    in buf0 | in primals_2 | in primals_3 | out buf1 | out buf2 | in primals_5 | in primals_4 | in primals_7 | in primals_8 | in primals_6 | out buf3 | in scalar 2 | in scalar 2 | in scalar 4 | in other stream0
    flex_attention <- flex_attention
cuda-torch2.11/flex_training 1
  #0 Runner.call:1072 triton triton_per_fused_exp_flex_attention_backward_mul_neg_reciprocal_squeeze_sum_tanh_tanh_backward_unsqueeze_0
    out buf4 @ buf2 | in tangents_1 | in getitem | in getitem_1 | out buf1 | in scalar 2048 | in scalar 64 | in other stream0
    sum_1 lse_scaled getitem_3 exp reciprocal mul_2 neg mul_3 mul_4 squeeze tanh mul_5 sub mul_6 mul_7 flex_attention_backward <- aten.sum aten.mul aten.unsqueeze aten.exp aten.reciprocal aten.neg aten.squeeze aten.tanh aten.tanh_backward flex_attention_backward
  #1 Runner.call:1080 triton_template triton_tem_fused_exp_flex_attention_backward_mul_neg_reciprocal_squeeze_tanh_tanh_backward_unsqueeze_1
    in mul | in primals_2 | in primals_3 | in getitem_1 | in buf4 @ buf2 | in buf1 | out buf5 | out buf6 | in primals_5 | in primals_4 | in primals_9 | in primals_10 | in primals_7 | in primals_8 | in primals_11 | in primals_12 | in primals_6 | out buf7 | in scalar 32 | in scalar 2 | in scalar 4 | in other stream0
    lse_scaled getitem_3 exp reciprocal mul_2 neg mul_3 mul_4 squeeze tanh mul_5 sub mul_6 mul_7 flex_attention_backward <- aten.mul aten.unsqueeze aten.exp aten.reciprocal aten.neg aten.squeeze aten.tanh aten.tanh_backward flex_attention_backward
cpu-torch2.6/mlp
  #0 call:186 extern_out extern_kernels.addmm
    in arg1_1 | in arg2_1 | in arg0_1 = reinterpret_tensor(arg0_1, (32, 64), (1, 32), 0) | in scalar 1 | in scalar 1 | out buf0
    linear <- aten.addmm
  #1 call:191 cpp cpp_fused_gelu_0
    inout buf1 @ buf0
    -
  #2 call:194 extern_out extern_kernels.addmm
    in arg4_1 | in buf1 @ buf0 | in arg3_1 = reinterpret_tensor(arg3_1, (64, 16), (1, 64), 0) | in scalar 1 | in scalar 1 | out buf2
    h linear_1 <- aten.gelu aten.addmm
  #3 call:204 cpp cpp_fused__softmax_native_layer_norm_1
    inout buf6 @ buf2 | in arg5_1 | in arg6_1 | out buf3 | out buf4 | out buf10 | out buf12 | out buf13
    -
  #4 call:212 fallback torch.ops.aten.topk.default
    in buf6 @ buf2 | in scalar 3 | out buf8 = buf7[0]
    topk <- aten.topk
cpu-torch2.6/customop
  #0 call:115 cpp cpp_fused_mul_0
    in arg0_1 | out buf0
    -
  #1 call:118 custom_op torch.ops.corp.inc_.default
    inout buf0
    inc__default <-
  #2 call:120 cpp cpp_fused_relu_scale_1
    in buf0 | out buf3
    -
  #3 call:122 custom_op torch.ops.corp.scale.default
    in buf3 | in scalar 2.5 | in scalar 3 | out buf4
    relu scale <- aten.relu corp.scale
  #4 call:127 cpp cpp_fused_sum_2
    in buf5 @ buf4 | out buf6
    -
cpu-torch2.8/mlp
  #3 call:208 cpp cpp_fused__softmax_native_layer_norm_1
    inout buf6 @ buf2 | in arg5_1 | in arg6_1 | out buf3 | out buf4 | out buf10 | out buf12 | out buf13
    -
  #4 call:216 fallback torch.ops.aten.topk.default
    in buf6 @ buf2 | in scalar 3 | out buf8 = buf7[0]
    topk <- aten.topk
cpu-torch2.15/cond
  #0 false_graph_0:112 cpp cpp_fused_gt_mul_sin_1 (repeats)
    in false_graph_0_arg0_1 | out false_graph_0_buf0
    -
  #1 true_graph_0:152 extern_out extern_kernels.addmm (repeats)
    in true_graph_0_arg1_1 | in true_graph_0_arg0_1 | in true_graph_0_arg2_1 = reinterpret_tensor(true_graph_0_arg2_1, (8, 8), (1, 8), 0) | in scalar 1 | in scalar 1 | out true_graph_0_buf0
    cond gt linear <- aten.gt aten.addmm aten.t
  #2 true_graph_0:158 cpp cpp_fused_add_gt_relu_2 (repeats)
    inout true_graph_0_buf1 @ true_graph_0_buf0
    -
  #3 Runner.call:183 cpp cpp_fused_gt_sum_0
    in arg0_1 | out buf0 | out buf1
    -
cpu-torch2.15/mlp
  #0 Runner.call:259 extern_out extern_kernels.addmm
    in arg1_1 | in arg2_1 | in arg0_1 = reinterpret_tensor(arg0_1, (32, 64), (1, 32), 0) | in scalar 1 | in scalar 1 | out buf0
    linear <- aten.t aten.addmm
  #1 Runner.call:266 cpp cpp_fused_gelu_0
    inout buf1 @ buf0
    -
  #2 Runner.call:270 extern_out extern_kernels.addmm
    in arg4_1 | in buf1 @ buf0 | in arg3_1 = reinterpret_tensor(arg3_1, (64, 16), (1, 64), 0) | in scalar 1 | in scalar 1 | out buf2
    h linear_1 <- aten.gelu aten.t aten.addmm
  #3 Runner.call:284 cpp cpp_fused__softmax_native_layer_norm_1
    out buf4 @ buf3 | inout buf6 @ buf2 | out buf13 @ buf11 | in arg5_1 | in arg6_1 | out buf5 | out buf10 | out buf12
    -
  #4 Runner.call:293 fallback torch.ops.aten.topk.default
    in buf6 @ buf2 | in scalar 3 | in scalar -1 | in other True | in other True | out buf8 = buf7[0]
    topk <- aten.topk
cpu-torch2.13/scatter
  #0 Runner.call:134 cpp cpp_fused_scatter_add_zeros_like_0
    out buf0
    -
  #1 Runner.call:135 fallback aten.scatter_reduce_.two
    inout buf0 | in scalar 0 | in arg1_1 | in arg2_1 | in other 'sum' | in other True
    -
  #2 Runner.call:137 fallback torch.ops.aten.cumsum.default
    in buf0 | in scalar 0 | in other None | out buf9
    cumsum <- aten.cumsum
  #3 Runner.call:143 fallback torch.ops.aten.sort.stable
    in buf0 | in other False | in scalar 0 | in other False | out buf3 = buf2[0] | out buf4 = buf2[1]
    sort <- aten.sort
  #4 Runner.call:154 cpp cpp_fused_index_put_scatter_reduce_select_1
    in arg0_1 | in arg1_1 | in arg2_1 | out buf5 @ buf0 | out buf7
    -
  #5 Runner.call:156 fallback aten.scatter_reduce_.two
    inout buf7 | in scalar 0 | in arg1_1 | in arg2_1 | in other 'prod' | in other True
    -
cpu-torch2.13/mutate
  #0 Runner.call:121 cpp cpp_fused_add_copy__mul_sum_0
    inout arg0_1 | in arg1_1 | inout arg2_1 | out buf0 | inout arg0_1 | out buf1 | inout arg2_1
    -
cpu-torch2.13/dropout
  #0 Runner.call:121 extern_out aten.randint.low_out
    in scalar -9223372036854775808 | in scalar 9223372036854775807 | in scalar 2 | out buf0
    -
  #1 Runner.call:125 cpp cpp_fused_add_native_dropout_rand_like_relu_0
    out buf3 @ buf1 | in buf0 | in arg0_1
    -
cpu-torch2.13/complex_numbers
  #0 Runner.call:80 fallback torch.ops.aten._fft_r2c.default
    in arg0_1 | in scalar 1 | in scalar 0 | in other False | out buf0
    fft_fft <- aten._fft_r2c
  #1 Runner.call:86 fallback torch.ops.aten.mul.Tensor
    in buf1 @ buf0 | in scalar 2j | out buf2
    mul <- aten.mul
  #4 Runner.call:105 cpp cpp_fused_add_exp_select_0
    in buf7 @ buf6 | in arg0_1 | out buf8
    -
cpu-torch2.13/transformer
  #0 Runner.call:386 cpp cpp_fused_native_layer_norm_0
    out buf1 @ buf0 | out buf3 @ buf2 | in primals_1 | in primals_2 | in primals_3 | out buf4
    -
  #2 Runner.call:393 fallback torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    in buf5 = reinterpret_tensor(buf5, (2, 2, 6, 8), (288, 8, 48, 1), 0) | in buf5.2 = reinterpret_tensor(buf5, (2, 2, 6, 8), (288, 8, 48, 1), 16) @ buf5 | in buf5.3 = reinterpret_tensor(buf5, (2, 2, 6, 8), (288, 8, 48, 1), 32) @ buf5 | in scalar 0.0 | in other True | out buf7 = buf6[0] | out buf8 = buf6[1]
    linear split view q view_1 k view_2 v attended <- aten.view aten.split aten.transpose aten._scaled_dot_product_flash_attention_for_cpu
  #8 Runner.call:431 cpp cpp_fused_add_view_3
    inout buf18 @ buf17 | in primals_1 | in buf9
    -
cpu-torch2.13/transformer 1
  #7 Runner.call:627 cpp cpp_fused_cat_gelu_gelu_backward_sum_transpose_view_3
    in tangents_1 | in buf11 | in buf17 | in buf18 | in buf19 | in buf3 @ buf0 | out buf23 | out buf2 | out buf14 | out buf20 @ buf23 | out buf21 @ buf23 | out buf22 @ buf23 | out buf6 | out buf26
    -
cpu-torch2.13/frozen
  #1 Runner.call:186 fallback torch.ops.mkldnn._convolution_pointwise.default
    in buf1 | in _frozen_param17 | in buf0 | in scalar 1 | in scalar 1 | in scalar 1 | in scalar 1 | in scalar 1 | in scalar 1 | in scalar 1 | in other 'relu' | in other None | in other '' | out buf2
    relu <- aten.relu
"""  # noqa: E501


def shown(launch: Launch) -> list[str]:
    """The three lines of a launch in `GOLDEN`."""
    nodes = f"{' '.join(launch.source_nodes)} <- {' '.join(launch.origins)}"
    return [
        f"  #{launch.index} {launch.scope}:{launch.line} {launch.kind} {launch.kernel}"
        + (" (repeats)" if launch.repeats else ""),
        "    " + " | ".join(map(shown_argument, launch.args)),
        "    " + (nodes.rstrip() if launch.source_nodes or launch.origins else "-"),
    ]


def shown_argument(argument: Argument) -> str:
    """`role [type] name [= expression] [@ buffer]`, less what can be told from the rest."""
    type_ = "" if argument.type == "tensor" else f"{argument.type} "
    expr = "" if argument.expr == argument.name else f" = {argument.expr}"
    buffer = "" if argument.buffer in (argument.name, "") else f" @ {argument.buffer}"
    return f"{argument.role} {type_}{argument.name}{expr}{buffer}"


def _golden() -> Iterator[tuple[str, int, list[str]]]:
    """`(fixture, index, lines)` of every launch in `GOLDEN`."""
    fixture = ""
    lines = GOLDEN.strip("\n").split("\n")
    for number, line in enumerate(lines):
        if not line.startswith(" "):
            fixture = line
        elif line.startswith("  #"):
            index = int(line.split()[0].removeprefix("#"))
            yield fixture, index, lines[number : number + 3]


def calls_by_text(fixture: Fixture) -> list[int]:
    """Lines of the calls that look like launches, told by nothing but their first words."""
    prefixes = (
        *("extern_kernels.", "torch.ops.", "aten.", "cpp_fused"),
        *("generated_kernel_", "halide_kernel_", "triton_unk_"),
    )
    found = []
    for function in ast.walk(ast.parse(fixture.data)):
        if isinstance(function, ast.FunctionDef) and "args" in [a.arg for a in function.args.args]:
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    callee = ast.unparse(node.func)
                    if callee.startswith("torch.ops.streams."):
                        continue
                    if callee.endswith(".run") or callee.startswith(prefixes):
                        found.append(node.lineno)
    return sorted(found)


def test_every_fixture_is_in_the_table() -> None:
    assert [str(fixture) for fixture in FIXTURES] == sorted(KINDS_OF)
    assert {fixture.folder for fixture in FIXTURES} >= {
        *(f"cpu-torch{version}" for version in ("2.6", "2.8", "2.13", "2.15")),
        *(f"cuda-torch{version}" for version in ("2.6", "2.8", "2.11", "2.15")),
    }


@all_fixtures
def test_every_call_is_recognised(fixture: Fixture) -> None:
    assert plain(fixture).unrecognised == ()


@all_fixtures
def test_launches_per_kind(fixture: Fixture) -> None:
    launches = plain(fixture).launches
    assert Counter(launch.kind for launch in launches) == Counter(KINDS_OF[str(fixture)])
    assert {launch.kind for launch in launches} <= set(vocabulary().kinds)


@all_fixtures
def test_launches_are_in_file_order(fixture: Fixture) -> None:
    launches = plain(fixture).launches
    assert [launch.index for launch in launches] == list(range(len(launches)))
    assert [launch.line for launch in launches] == calls_by_text(fixture)


@all_fixtures
def test_a_launch_is_on_its_line(fixture: Fixture) -> None:
    lines = fixture.data.decode().split("\n")
    for launch in plain(fixture).launches:
        line = lines[launch.line - 1]
        assert re.search(rf"(?<![\w.]){re.escape(launch.kernel)}[.(]", line)
        # Positional arguments stand on the line as they are shown, results in what is assigned.
        for argument in launch.args:
            if not argument.expr.startswith(f"{line.split('=')[0].strip()}["):
                assert argument.expr in line


@all_fixtures
def test_nothing_stands_in_the_way_of_a_probe(fixture: Fixture) -> None:
    for launch in plain(fixture).launches:
        assert not launch.insertion_point.obstacle
        assert not launch.insertion_point.open_ended
        assert (
            fixture.data[launch.insertion_point.start : launch.insertion_point.end].count(b"\n")
            == 1
        )


@all_fixtures
def test_every_launch_has_a_tensor(fixture: Fixture) -> None:
    for launch in plain(fixture).launches:
        tensors = [argument for argument in launch.args if argument.type == "tensor"]
        assert any(argument.role != "in" for argument in tensors), "it writes something"
        assert all(argument.buffer for argument in tensors)


ROWS = list(_golden())


@pytest.mark.parametrize(
    ("name", "index", "lines"), ROWS, ids=[f"{name}#{index}" for name, index, _ in ROWS]
)
def test_golden(name: str, index: int, lines: list[str]) -> None:
    assert shown(plain(get(name)).launches[index]) == lines


@all_fixtures
def test_list_json_has_the_schema_of_the_contract(
    fixture: Fixture, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nothing held the events of that one in their places when it was made.
    races = str(fixture) == "cuda-torch2.15/streams"
    assert main(["list", "--json", "--strict", str(fixture.path)]) == races
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == [
        "format", "version", "launches", "unrecognised", "wrappers", "inputs", "damaged", "races"
    ]  # fmt: skip
    assert bool(listed["races"]) == races
    assert (listed["format"], listed["version"]) == ("rewriter.launches", 1)
    assert listed["unrecognised"] == []
    types = {
        "index": int, "scope": str, "kernel": str, "kind": str, "line": int, "args": list,
        "origins": list, "source_nodes": list, "lines": list, "computes": list, "wrapper": str,
    }  # fmt: skip
    argument_types = dict.fromkeys(("name", "expr", "buffer", "role", "type"), str)
    launches = plain(fixture).launches
    assert len(listed["launches"]) == len(launches)
    for shown_, launch in zip(listed["launches"], launches, strict=True):
        assert {key: type(value) for key, value in shown_.items()} == types
        assert shown_["wrapper"] == fixture.path.name
        for argument in shown_["args"]:
            assert {key: type(value) for key, value in argument.items()} == argument_types
            assert argument["role"] in ("in", "out", "inout")
            assert argument["type"] in ("tensor", "scalar", "other")
        texts = shown_["origins"] + shown_["source_nodes"] + shown_["computes"]
        assert all(type(text) is str for text in texts)
        # Only an entry of a cache tells them, and a wrapper by itself has none beside it.
        assert shown_["lines"] == []
        assert [a["name"] for a in shown_["args"]] == [a.name for a in launch.args]


def test_list_json_of_a_directory_names_each_wrapper(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ARTIFACTS / "cuda-torch2.11" / "gpt_train"
    # A Python wrapper and a C++ one for each of its two graphs.
    assert main(["list", "--json", str(folder)]) == 0
    wrappers = Counter(
        launch["wrapper"] for launch in json.loads(capsys.readouterr().out)["launches"]
    )
    assert wrappers == {
        "cpp_wrapper/output_code.py": 46,
        "cpp_wrapper/output_code1.py": 19,
        "python/output_code.py": 46,
        "python/output_code1.py": 20,
    }
