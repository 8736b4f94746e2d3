"""What the locator finds in real C++ wrappers, against tables checked by reading the files."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rewriter
from artifacts import CPP_FIXTURES, FIXTURES, Fixture, get, plain
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.cli import main
from rewriter.core import markers
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.instrumentation.types import Selection
from rewriter.locate.cpp import embedded
from rewriter.locate.types import Argument, Launch
from rewriter.locate.vocabulary import vocabulary
from sampling import one_in, sampled

pytestmark = pytest.mark.properties

all_fixtures = pytest.mark.parametrize("fixture", CPP_FIXTURES, ids=str)

# How many launches of which kind each wrapper has.
KINDS_OF = {
    "cpu-torch2.13/buffers cpp_wrapper": {"cpp": 2, "extern_out": 1},
    "cpu-torch2.13/complex_numbers cpp_wrapper": {"cpp": 1, "fallback": 4},
    "cpu-torch2.13/cond cpp_wrapper": {"cpp": 3, "extern_out": 1},
    "cpu-torch2.13/conv cpp_wrapper": {"cpp": 2, "extern_alloc": 1},
    "cpu-torch2.13/conv_train cpp_wrapper": {"cpp": 2, "extern_alloc": 1},
    "cpu-torch2.13/conv_train cpp_wrapper 1": {"cpp": 1, "fallback": 1},
    "cpu-torch2.13/customop cpp_wrapper": {"cpp": 3, "custom_op": 3},
    "cpu-torch2.13/decompositions cpp_wrapper": {"cpp": 4, "extern_out": 2, "fallback": 3},
    "cpu-torch2.13/dropout cpp_wrapper": {"cpp": 1, "extern_out": 1},
    "cpu-torch2.13/dtypes cpp_wrapper": {"cpp": 3, "extern_out": 2},
    "cpu-torch2.13/dynamic cpp_wrapper": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.13/empty cpp_wrapper": {"fallback": 1},
    "cpu-torch2.13/float8 cpp_wrapper": {"cpp": 1},
    "cpu-torch2.13/folded cpp_wrapper": {"cpp": 1, "extern_out": 2},
    "cpu-torch2.13/frozen cpp_wrapper": {"cpp": 2, "fallback": 1},
    "cpu-torch2.13/mixed_arguments cpp_wrapper": {"cpp": 1, "custom_op": 2},
    "cpu-torch2.13/mlp cpp_wrapper": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.13/mutate cpp_wrapper": {"cpp": 1},
    "cpu-torch2.13/nested cpp_wrapper": {"cpp": 7, "extern_out": 2},
    "cpu-torch2.13/random cpp_wrapper": {"cpp": 2, "fallback": 5},
    "cpu-torch2.13/scalars cpp_wrapper": {"cpp": 2, "extern_out": 1},
    "cpu-torch2.13/scatter cpp_wrapper": {"cpp": 2, "fallback": 4},
    "cpu-torch2.13/transformer cpp_wrapper": {"cpp": 4, "extern_out": 4, "fallback": 1},
    "cpu-torch2.13/transformer cpp_wrapper 1": {"cpp": 6, "extern_out": 8, "fallback": 1},
    "cpu-torch2.13/unbacked cpp_wrapper": {"cpp": 2, "fallback": 1},
    "cpu-torch2.13/while_loop cpp_wrapper": {"cpp": 3},
    "cpu-torch2.15/cond cpp_wrapper": {"cpp": 3, "extern_out": 1},
    "cpu-torch2.15/customop cpp_wrapper": {"cpp": 3, "custom_op": 2},
    "cpu-torch2.15/mlp cpp_wrapper": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.6/mlp cpp_wrapper": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.8/customop cpp_wrapper": {"cpp": 3, "custom_op": 2},
    "cpu-torch2.8/mlp cpp_wrapper": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cuda-torch2.11/autotune cpp_wrapper": {"triton_template": 2},
    "cuda-torch2.11/combo cpp_wrapper": {"combo": 1, "triton": 1},
    "cuda-torch2.11/cond cpp_wrapper": {"extern_out": 1, "triton": 3},
    "cuda-torch2.11/conv cpp_wrapper": {"extern_alloc": 2, "extern_out": 1, "triton": 6},
    "cuda-torch2.11/customop cpp_wrapper": {"custom_op": 2, "triton": 3},
    "cuda-torch2.11/gpt cpp_wrapper": {"extern_out": 17, "fallback": 4, "triton": 14},
    "cuda-torch2.11/gpt_train cpp_wrapper": {"extern_out": 18, "fallback": 2, "triton": 26},
    "cuda-torch2.11/gpt_train cpp_wrapper 1": {"extern_out": 9, "fallback": 2, "triton": 8},
    "cuda-torch2.11/mlp cpp_wrapper": {"extern_out": 2, "fallback": 1, "triton": 2},
    "cuda-torch2.11/mlp_dyn cpp_wrapper": {"extern_out": 2, "fallback": 1, "triton": 2},
    "cuda-torch2.11/multikernel cpp_wrapper": {"multi_kernel": 2},
    "cuda-torch2.11/mutate cpp_wrapper": {"triton": 3},
    "cuda-torch2.11/partition cpp_wrapper": {"cpp": 1, "extern_out": 1, "triton": 2},
    "cuda-torch2.11/scatter cpp_wrapper": {"triton": 6},
    "cuda-torch2.11/unbacked cpp_wrapper": {"fallback": 1, "triton": 3},
    "cuda-torch2.11/usertriton cpp_wrapper": {"triton": 3, "triton_user": 2},
    "cuda-torch2.15/gpt cpp_wrapper": {"extern_out": 12, "triton": 17},
    "cuda-torch2.15/mlp cpp_wrapper": {"extern_out": 2, "triton": 2},
    "cuda-torch2.6/gpt cpp_wrapper": {"extern_out": 12, "triton": 17},
    "cuda-torch2.6/mlp cpp_wrapper": {"extern_out": 2, "triton": 2},
    "mps-torch2.15/inplace cpp_wrapper": {"extern_out": 1, "metal": 2},
    "mps-torch2.15/mlp cpp_wrapper": {"extern_out": 1, "metal": 2},
    "cpu-torch2.13/buffers aoti": {"cpp": 2, "extern_out": 1},
    "cpu-torch2.13/complex_numbers aoti": {"cpp": 1, "fallback": 4},
    "cpu-torch2.13/cond aoti": {"cpp": 3, "extern_out": 1},
    "cpu-torch2.13/cond aoti-cpp-only": {"cpp": 3, "extern_out": 1},
    "cpu-torch2.13/conv aoti": {"cpp": 2, "extern_alloc": 1},
    "cpu-torch2.13/conv_train aoti": {"cpp": 2, "extern_alloc": 1},
    "cpu-torch2.13/customop aoti": {"cpp": 3, "custom_op": 3},
    "cpu-torch2.13/decompositions aoti": {"cpp": 4, "extern_out": 2, "fallback": 3},
    "cpu-torch2.13/dropout aoti": {"cpp": 1, "extern_out": 1},
    "cpu-torch2.13/dropout aoti-arrayref": {"cpp": 2, "extern_out": 2},
    "cpu-torch2.13/dtypes aoti": {"cpp": 3, "extern_out": 2},
    "cpu-torch2.13/dtypes aoti-arrayref": {"cpp": 6, "extern_out": 4},
    "cpu-torch2.13/dynamic aoti": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.13/empty aoti": {"fallback": 1},
    "cpu-torch2.13/float8 aoti": {"cpp": 1},
    "cpu-torch2.13/float8 aoti-arrayref": {"cpp": 2},
    "cpu-torch2.13/float8 aoti-stack": {"cpp": 1},
    "cpu-torch2.13/folded aoti": {"cpp": 1, "extern_out": 2},
    "cpu-torch2.13/frozen aoti": {"cpp": 2, "fallback": 1},
    "cpu-torch2.13/mixed_arguments aoti": {"cpp": 1, "custom_op": 2},
    "cpu-torch2.13/mixed_arguments aoti-cpp-only": {"cpp": 1, "custom_op": 2},
    "cpu-torch2.13/mlp aoti": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.13/mlp aoti-cpp-only": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.13/nested aoti": {"cpp": 7, "extern_out": 2},
    "cpu-torch2.13/random aoti": {"cpp": 2, "fallback": 5},
    "cpu-torch2.13/scalars aoti": {"cpp": 2, "extern_out": 1},
    "cpu-torch2.13/scatter aoti": {"cpp": 2, "fallback": 4},
    "cpu-torch2.13/subgraph aoti": {"cpp": 3, "extern_out": 3},
    "cpu-torch2.13/transformer aoti": {"cpp": 4, "extern_out": 4, "fallback": 1},
    "cpu-torch2.13/unbacked aoti": {"cpp": 2, "fallback": 1},
    "cpu-torch2.13/while_loop aoti": {"cpp": 3},
    "cpu-torch2.15/cond aoti": {"cpp": 3, "extern_out": 1},
    "cpu-torch2.15/customop aoti": {"cpp": 3, "custom_op": 2},
    "cpu-torch2.15/mlp aoti": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.6/customop aoti": {"cpp": 3, "custom_op": 2},
    "cpu-torch2.6/mlp aoti": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cpu-torch2.8/customop aoti": {"cpp": 3, "custom_op": 2},
    "cpu-torch2.8/mlp aoti": {"cpp": 2, "extern_out": 2, "fallback": 1},
    "cuda-torch2.11/autotune aoti": {"triton_template": 2},
    "cuda-torch2.11/combo aoti": {"combo": 1, "triton": 1},
    "cuda-torch2.11/cond aoti": {"extern_out": 1, "triton": 4},
    "cuda-torch2.11/conv aoti": {"extern_alloc": 2, "extern_out": 1, "triton": 7},
    "cuda-torch2.11/customop aoti": {"custom_op": 2, "triton": 3},
    "cuda-torch2.11/gpt aoti": {"extern_out": 17, "fallback": 4, "triton": 13},
    "cuda-torch2.11/mlp aoti": {"extern_out": 2, "fallback": 1, "triton": 2},
    "cuda-torch2.11/mlp_dyn aoti": {"extern_out": 2, "fallback": 1, "triton": 2},
    "cuda-torch2.11/multikernel aoti": {"multi_kernel": 2},
    "cuda-torch2.11/mutate aoti": {"triton": 3},
    "cuda-torch2.11/scatter aoti": {"triton": 6},
    "cuda-torch2.11/unbacked aoti": {"fallback": 1, "triton": 3},
    "cuda-torch2.11/while aoti": {"triton": 4},
    "mps-torch2.15/mlp aoti": {"extern_out": 1, "metal": 2},
}

# What is asked for; each is to be stripped exactly.
SELECTIONS: dict[str, dict[str, Any]] = {
    "all": {"probe": "names,print,save", "when": "both"},
    "upstream": {"probe": "print", "format": "upstream", "when": "both"},
    "names": {"probe": "names"},
    "print": {"probe": "print", "values": True},
    "save": {"probe": "save"},
    "before": {"probe": "print,save", "when": "before"},
    "after": {"probe": "names,print", "when": "after"},
    "one launch": {"probe": "names,save", "launches": [0]},
}


# Launches as `shown` writes them: where, kind, kernel; arguments; source nodes <- original ATen.
GOLDEN = """
= cuda-torch2.11/customop aoti
  #0 run_impl:910 triton triton_poi_fused_mul_0
    in arg0_1 | out buf0 | in scalar 32L
    mul <- aten.mul
  #1 run_impl:913 custom_op torch.ops.corp.inc_.default
    inout buf0
    inc_ <- corp.inc_
  #2 run_impl:920 triton triton_poi_fused_relu_scale_1
    in buf0 | out buf3 | in scalar 32L
    relu scale <- aten.relu corp.scale
  #3 run_impl:925 custom_op torch.ops.corp.scale.default
    in buf3 | out buf5 | in scalar 2.5 | in scalar 3
    relu scale <- aten.relu corp.scale
  #4 run_impl:934 triton triton_per_fused_sum_2
    in buf5 | out buf6 | in scalar 4L | in scalar 8L
    sum_1 <- aten.sum
= cuda-torch2.11/customop cpp_wrapper
  #0 inductor_entry_impl:360 triton triton_poi_fused_mul_0
    in arg0_1 | out buf0 | in scalar 32L
    y <- aten.mul
  #1 inductor_entry_impl:369 custom_op torch.ops.corp.inc_.default
    inout buf0
     <- corp.inc_
  #2 inductor_entry_impl:379 triton triton_poi_fused_relu_scale_1
    in buf0 | out buf3 | in scalar 32L
    relu scale <- aten.relu corp.scale
  #3 inductor_entry_impl:388 custom_op torch.ops.corp.scale.default
    in buf3 | in scalar 2.5 | in scalar 3L | out buf5
    relu scale <- aten.relu corp.scale
  #4 inductor_entry_impl:401 triton triton_per_fused_sum_2
    in buf5 | out buf6 | in scalar 4L | in scalar 8L
    sum_1 <- aten.sum
= cuda-torch2.11/cond aoti
  #0 run_impl:1009 triton triton_per_fused_gt_sum_0
    in arg2_1 | out buf1 | in scalar 1L | in scalar 32L
    sum_1 gt <- aten.sum aten.gt
  #1 run_impl:1016 triton triton_poi_fused_1
    out buf2 | in scalar 8L
    -
  #2 true_graph_0:1040 extern_out aoti_torch_cuda_mm_out
    out true_graph_0_buf0 | in true_graph_0_arg0_1 @ arg2_1 | in true_graph_0_arg2_1 = view(true_graph_0_arg2_1, 2, int_array_5, int_array_6, 0L) @ l_weight
    cond gt linear <- aten.gt aten.addmm aten.t
  #3 true_graph_0:1045 triton triton_poi_fused_add_addmm_gt_relu_2
    inout true_graph_0_buf1 @ true_graph_0_buf0 | in true_graph_0_arg1_1 @ buf2 | in scalar 32L
    cond gt add relu linear <- aten.gt aten.add aten.relu aten.addmm
  #4 false_graph_0:1067 triton triton_poi_fused_gt_mul_sin_3
    in false_graph_0_arg0_1 @ arg2_1 | out false_graph_0_buf0 | in scalar 32L
    cond gt mul sin <- aten.gt aten.mul aten.sin
= cuda-torch2.11/while aoti
  #0 run_impl:948 triton triton_poi_fused_zeros_0
    out buf0 | in scalar 1L
    zeros <- aten.zeros
  #1 while_loop_cond_graph_0:970 triton triton_poi_fused_lt_zeros_1 (repeats)
    in while_loop_cond_graph_0_arg0_1 @ buf0 | out while_loop_cond_graph_0_buf0 | in scalar 1L
    while_loop zeros lt <- aten.zeros aten.lt
  #2 while_loop_body_graph_0:991 triton triton_poi_fused_add_sin_zeros_2 (repeats)
    in while_loop_body_graph_0_arg1_1 @ arg0_1 | out while_loop_body_graph_0_buf0 | in scalar 32L
    while_loop zeros add_1 sin <- aten.zeros aten.add aten.sin
  #3 while_loop_body_graph_0:998 triton triton_poi_fused_add_zeros_3 (repeats)
    in while_loop_body_graph_0_arg0_1 @ buf0 | out while_loop_body_graph_0_buf1 | in scalar 1L
    while_loop zeros add <- aten.zeros aten.add
= cuda-torch2.11/unbacked cpp_wrapper
  #0 inductor_entry_impl:405 triton triton_per_fused__to_copy_abs_gt_sum_0
    in arg0_1 | out buf0 | out buf6 | in scalar 1L | in scalar 32L
    gt sum_1 to abs_1 <- aten.gt aten.sum aten._to_copy aten.abs
  #1 inductor_entry_impl:409 fallback aoti_torch_cuda_nonzero
    in buf0 | out buf2
    gt n <- aten.gt aten.nonzero
  #2 inductor_entry_impl:430 triton triton_poi_fused_index_mul_select_1
    in buf2 | in arg0_1 | out buf10 | in scalar u0 | in scalar u0
    getitem getitem_1 getitem_2 mul <- aten.select aten.index aten.mul
  #3 inductor_entry_impl:440 triton triton_poi_fused_full_mul_2
    out buf11 | in scalar u1 | in scalar 4L
    full mul_1 <- aten.full aten.mul
= cuda-torch2.11/usertriton cpp_wrapper
  #0 inductor_entry_impl:487 triton triton_poi_fused_relu_0
    in arg1_1 | out buf1 | in scalar 256L
    relu <- aten.relu
  #1 inductor_entry_impl:491 triton_user add_k_0
    in arg0_1 | in buf1 | out buf0 | in scalar 256 | in scalar 2.5 | in scalar 4L | in scalar 1L | in scalar 1L
    relu <- aten.relu
  #2 inductor_entry_impl:501 triton triton_poi_fused_add_1
    in buf0 | out buf4 | in scalar 256L
    add <- aten.add
  #3 inductor_entry_impl:504 triton_user mul_k_1
    in buf4 | out buf3 @ buf1 | in scalar 256
    add <- aten.add
  #4 inductor_entry_impl:513 triton triton_per_fused_sum_2
    in buf3 @ buf1 | out buf6 | in scalar 32L | in scalar 8L
    sum_1 <- aten.sum
= cuda-torch2.11/mutate aoti
  #0 run_impl:935 triton triton_poi_fused_add_sum_0
    inout n | in arg2_1 | out buf0 | inout n | in scalar 8L
    sum_1 add_ <- aten.sum aten.add
  #1 run_impl:942 triton triton_poi_fused_add_mul_1
    inout arg2_1 | in buf0 | out buf1 | inout arg2_1 | in scalar 32L
    mul_ add <- aten.mul aten.add
  #2 run_impl:946 triton triton_poi_fused_add_2
    inout k | in scalar 1L
    add__1 <- aten.add
= cuda-torch2.6/mlp cpp_wrapper
  #0 inductor_entry_impl:165 extern_out aoti_torch_cuda_mm_out
    out buf0 | in arg6_1 | in arg0_1 = tmp_tensor_handle_0_raii
    -
  #1 inductor_entry_impl:181 triton triton_poi_fused_0
    inout buf1 @ buf0 | inout arg1_1 | in scalar var_2
    -
  #2 inductor_entry_impl:194 extern_out aoti_torch_cuda_addmm_out
    out buf2 | in arg3_1 | in buf1 @ buf0 | in arg2_1 = tmp_tensor_handle_1_raii | in scalar 1L | in scalar 1L
    -
  #3 inductor_entry_impl:211 triton triton_per_fused_1
    inout buf6 @ buf2 | inout arg4_1 | inout arg5_1 | in scalar var_6 | in scalar var_7
    -
= cpu-torch2.6/customop aoti
  #0 run_impl:514 cpp cpp_fused_mul_0
    in arg0_1 | out buf0
    -
  #1 run_impl:517 custom_op torch.ops.corp.inc_.default
    inout buf0
    inc_ <- corp.inc_
  #2 run_impl:521 cpp cpp_fused_relu_scale_1
    in buf0 | out buf3
    -
  #3 run_impl:526 custom_op torch.ops.corp.scale.default
    in buf3 | out buf5 | in scalar 2.5 | in scalar 3
    relu scale <- aten.relu corp.scale
  #4 run_impl:534 cpp cpp_fused_sum_2
    in buf5 | out buf6
    -
= cpu-torch2.15/customop cpp_wrapper
  #0 inductor_entry_impl:41 cpp cpp_fused_mul_0
    in arg0_1 | out buf0
    -
  #1 inductor_entry_impl:50 custom_op torch.ops.corp.inc_.default
    inout buf0
     <- corp.inc_
  #2 inductor_entry_impl:57 cpp cpp_fused_relu_scale_1
    in buf0 | out buf3
    -
  #3 inductor_entry_impl:68 custom_op torch.ops.corp.scale.default
    in buf3 | in scalar 2.5 | in scalar 3L | out buf4
    relu scale <- aten.relu corp.scale
  #4 inductor_entry_impl:80 cpp cpp_fused_sum_2
    in buf4 | out buf5
    -
= cpu-torch2.13/nested cpp_wrapper
  #0 inductor_entry_impl:44 cpp cpp_fused_zeros_0
    out buf0
    -
  #1 while_loop_cond_graph_0:64 cpp cpp_fused_lt_zeros_1 (repeats)
    in while_loop_cond_graph_0_arg0_1 @ buf0 | out while_loop_cond_graph_0_buf0
    -
  #2 while_loop_body_graph_0:82 cpp cpp_fused_eq_remainder_zeros_2 (repeats)
    in while_loop_body_graph_0_arg0_1 @ buf0 | out while_loop_body_graph_0_buf0
    -
  #3 true_graph_0:96 cpp cpp_fused_eq_remainder_sin_zeros_3 (repeats)
    in while_loop_body_graph_0_true_graph_0_arg0_1 @ arg0_1 | out while_loop_body_graph_0_true_graph_0_buf0
    -
  #4 true_graph_0:103 extern_out aoti_torch_cpu_mm_out (repeats)
    out while_loop_body_graph_0_true_graph_0_buf1 | in while_loop_body_graph_0_true_graph_0_buf0 | in while_loop_body_graph_0_true_graph_0_arg0_1 = view(while_loop_body_graph_0_true_graph_0_arg0_1, 2, int_array_5, int_array_6, 0L) @ arg0_1
    while_loop start cond eq mod matmul sin t <- aten.zeros aten.eq aten.remainder aten.mm aten.sin aten.t
  #5 true_graph_0:106 extern_out aoti_torch_cpu_mm_out (repeats)
    out while_loop_body_graph_0_true_graph_0_buf2 @ while_loop_body_graph_0_true_graph_0_buf0 | in while_loop_body_graph_0_true_graph_0_buf1 | in while_loop_body_graph_0_true_graph_0_arg0_1 @ arg0_1
    while_loop start cond eq mod matmul_1 <- aten.zeros aten.eq aten.remainder aten.mm
  #6 false_graph_0:121 cpp cpp_fused_add_eq_remainder_zeros_4 (repeats)
    in while_loop_body_graph_0_false_graph_0_arg0_1 @ arg0_1 | out while_loop_body_graph_0_false_graph_0_buf0
    -
  #7 while_loop_body_graph_0:133 cpp cpp_fused_add_zeros_5 (repeats)
    in while_loop_body_graph_0_arg0_1 @ buf0 | out while_loop_body_graph_0_buf3
    -
  #8 inductor_entry_impl:149 cpp cpp_fused_mul_6
    in buf3 @ arg0_1 | out buf4
    -
= cpu-torch2.13/mixed_arguments cpp_wrapper
  #0 inductor_entry_impl:42 cpp cpp_fused_add_mixed_mul_0
    in arg0_1 | out buf0 | out buf1
    -
  #1 inductor_entry_impl:65 custom_op torch.ops.rewriter_demo.mixed.default
    in buf0 | in buf1 | in arg1_1 | in scalar 2L | in scalar 8L | in scalar 1 | out buf3 | out buf4
    add mul mixed_default <- aten.add aten.mul rewriter_demo.mixed
  #2 inductor_entry_impl:94 custom_op torch.ops.rewriter_demo.mixed.default
    in buf4 | in arg1_1 | in buf4 | in scalar 4L | in scalar 4L | in scalar 0 | out buf6 | out buf7
    mixed_default_1 <- rewriter_demo.mixed
= cpu-torch2.13/mixed_arguments aoti
  #0 run_impl:889 cpp cpp_fused_add_mixed_mul_0
    in arg0_1 | out buf0 | out buf1
    -
  #1 run_impl:898 custom_op torch.ops.rewriter_demo.mixed.default
    in buf0 | in buf1 | in arg1_1 | out buf3 | out buf4 | in scalar true
    add mul mixed <- aten.add aten.mul rewriter_demo.mixed
  #2 run_impl:911 custom_op torch.ops.rewriter_demo.mixed.default
    in buf4 | in arg1_1 | in buf4 | out buf6 | out buf7 | in scalar false
    mixed_1 <- rewriter_demo.mixed
= cpu-torch2.13/decompositions aoti
  #0 run_impl:946 extern_out aoti_torch_cpu_mm_out
    out buf0 | in arg0_1 | in arg0_1.2 = view(arg0_1, 2, int_array_2, int_array_3, 0L) @ arg0_1
    t matmul <- aten.t aten.mm
  #1 run_impl:949 cpp cpp_fused_add_0
    inout buf1 @ buf0
    -
  #2 run_impl:960 fallback torch.ops.aten._linalg_svd.default
    in buf1 @ buf0 | out buf3 | out buf4 | out buf5 | in scalar true | in scalar true
    add linalg_svd <- aten.add aten._linalg_svd
  #3 run_impl:977 fallback torch.ops.aten._unique2.default
    in arg1_1 | out buf7 | out buf8 | out buf9 | in scalar true | in scalar true | in scalar true
    _unique2 <- aten._unique2
  #4 run_impl:992 cpp cpp_fused__embedding_bag_forward_only_arange_1
    out buf14
    -
  #5 run_impl:998 fallback aoti_torch_cpu__embedding_bag_forward_only
    in arg2_1 | in arg1_1 | in buf14 | in scalar 0 | in scalar 0L | in scalar 0 | in scalar 0 | in scalar -1L | out buf16 | out buf17 | out buf18 | out buf19
    arange embedding_bag <- aten.arange aten._embedding_bag_forward_only
  #6 run_impl:1009 cpp cpp_fused_mul_2
    inout buf20 @ buf3 | in buf4
    -
  #7 run_impl:1015 extern_out aoti_torch_cpu_mm_out
    out buf21 | in buf20 @ buf3 | in buf5
    mul matmul_1 <- aten.mul aten.mm
  #8 run_impl:1019 cpp cpp_fused_add_3
    inout buf22 @ buf7 | in scalar u0
    -
= cpu-torch2.13/float8 aoti-arrayref
  #0 run_impl_minimal_arrayref_interface:834 cpp cpp_fused__to_copy_add_mul_sum_0
    in arg0_1 | out buf0 | out buf1 | out buf3 | out buf2
    -
  #1 run_impl_minimal_arrayref_interface_v2_raw:902 cpp cpp_fused__to_copy_add_mul_sum_0
    in arg0_1 | out buf0 | out buf1 | out buf3 | out buf2
    -
= cpu-torch2.13/scatter aoti
  #0 run_impl:957 cpp cpp_fused_scatter_add_zeros_like_0
    out buf0
    -
  #1 run_impl:958 fallback aoti_torch_cpu_scatter_reduce_two_out
    inout buf0 | inout buf0 | in scalar 0 | in arg1_1 | in arg2_1 | in scalar 1
    -
  #2 run_impl:961 fallback aoti_torch_cpu_cumsum
    in buf0 | in scalar 0L | out buf10
    cumsum <- aten.cumsum
  #3 run_impl:969 fallback aoti_torch_cpu_sort_stable
    in buf0 | in scalar var_0 | in scalar 0L | in scalar 0 | out buf3 | out buf4
    sort <- aten.sort
  #4 run_impl:980 cpp cpp_fused_index_put_scatter_reduce_select_1
    in arg0_1 | in arg1_1 | in arg2_1 | out buf5 @ buf0 | out buf7
    -
  #5 run_impl:982 fallback aoti_torch_cpu_scatter_reduce_two_out
    inout buf7 | inout buf7 | in scalar 0 | in arg1_1 | in arg2_1 | in scalar 1
    -
= cpu-torch2.13/random cpp_wrapper
  #0 inductor_entry_impl:33 fallback aoti_torch_cpu_rand
    in scalar 2 | in scalar var_0 | in scalar 0 | in scalar var_2 | out buf1
    bernoulli <- aten.bernoulli
  #1 inductor_entry_impl:41 fallback aoti_torch_cpu_rand_like
    in arg0_1 | in scalar 0 | in scalar var_3 | out buf3
    rand_like <- aten.rand_like
  #2 inductor_entry_impl:50 fallback aoti_torch_cpu_randperm
    in scalar 8L | in scalar var_4 | in scalar 0 | in scalar var_6 | out buf5
    order <- aten.randperm
  #3 inductor_entry_impl:59 fallback aoti_torch_cpu_randint_low
    in scalar 3L | in scalar 9L | in scalar 1 | in scalar var_7 | in scalar 0 | in scalar var_9 | out buf7
    randint <- aten.randint
  #4 inductor_entry_impl:64 cpp cpp_fused_add_bernoulli_sigmoid_0
    inout buf10 @ buf1 | in arg0_1 | in buf3
    -
  #5 inductor_entry_impl:69 fallback aoti_torch_cpu_randn_like
    in arg0_1 | in scalar 0 | in scalar var_10 | out buf9
    randn_like <- aten.randn_like
  #6 inductor_entry_impl:75 cpp cpp_fused_mul_1
    inout buf11 @ buf9
    -
= cuda-torch2.11/gpt_train cpp_wrapper
  #8 inductor_entry_impl:1619 triton triton_poi_fused_gelu_gelu_backward_view_4
    inout buf11 @ buf8 | in addmm_6 | in scalar 8192L
    view_26 linear_6 gelu_1 mul_24 mul_25 mul_26 exp mul_27 mul_28 add_18 mul_29 <- aten.view aten.gelu aten.gelu_backward
  #9 inductor_entry_impl:1628 extern_out aoti_torch_cuda_mm_out
    out buf12 @ buf2 | in buf11 = view(buf11, 2, int_array_24, int_array_25, 0L) @ buf8 | in primals_24 = tmp_primals_24_2
    view_26 linear_6 gelu_1 mul_24 mul_25 mul_26 exp mul_27 mul_28 add_18 mul_29 view_27 permute_21 mm_5 <- aten.view aten.gelu aten.gelu_backward aten.t aten.mm
  #12 inductor_entry_impl:1653 triton triton_per_fused_add_native_layer_norm_backward_view_6
    inout buf19 @ buf5 | in buf12 @ buf2 | in primals_22 | in mul_9 | in div_1 | in scalar 32L | in scalar 64L
    view_29 mul_31 mul_32 sum_7 mul_33 sum_8 mul_34 sub_9 sub_10 mul_35 add_19 <- aten.view aten.native_layer_norm_backward aten.add
  #17 inductor_entry_impl:1703 fallback aoti_torch_cuda__scaled_dot_product_efficient_attention_backward
    in buf20 = view(buf20, 4, int_array_40, int_array_41, 0L) @ buf2 | in select_3 | in select_4 | in select_5 | in getitem_10 | in getitem_11 | in getitem_12 | in getitem_13 | in scalar 0.0 | in scalar 4 | in scalar 1 | out buf24 | out buf25 | out buf26
    view_32 view_33 permute_29 _scaled_dot_product_efficient_attention_backward <- aten.view aten.transpose aten._scaled_dot_product_efficient_attention_backward
  #18 inductor_entry_impl:1723 triton triton_poi_fused_add_clone_permute_select_backward_7
    in buf26 | in buf25 | in buf24 | out buf27 | in scalar 6144L
    full _generalized_scatter _generalized_scatter_1 add_20 _generalized_scatter_2 add_21 permute_30 clone <- aten.select_backward aten.add aten.permute aten.clone
  #42 inductor_entry_impl:1946 triton triton_per_fused_add_embedding_dense_backward_native_layer_norm_backward_view_10
    inout buf63 @ buf5 | in buf56 @ buf54 | in primals_4 | in mul | in div_4 | in primals_2 | inout buf66 | in scalar 32L | in scalar 64L
    view_51 mul_59 mul_60 sum_25 mul_61 sum_26 mul_62 sub_18 sub_19 mul_63 add_28 scalar_tensor eq_1 unsqueeze_1 where_1 full_7 index_put_1 <- aten.view aten.native_layer_norm_backward aten.add aten.embedding_dense_backward
"""  # noqa: E501


def shown(launch: Launch) -> list[str]:
    """The three lines of a launch in `GOLDEN`."""
    nodes = f"{' '.join(launch.source_nodes)} <- {' '.join(launch.origins)}"
    return [
        f"  #{launch.index} {launch.scope}:{launch.line} {launch.kind} {launch.kernel}"
        + (" (repeats)" if launch.repeats else ""),
        "    " + " | ".join(shown_argument(a) for a in launch.args if a.type != "other"),
        "    " + (nodes.rstrip() if launch.source_nodes or launch.origins else "-"),
    ]


def shown_argument(argument: Argument) -> str:
    """`role [type] name [= expression] [@ buffer]`, less what can be told from the rest."""
    type_ = "" if argument.type == "tensor" else f"{argument.type} "
    expr = "" if argument.expr == argument.name else f" = {argument.expr}"
    expr = expr.replace("wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(", "view(")
    expr = expr.replace("))", ")")
    buffer = "" if argument.buffer in (argument.name, "") else f" @ {argument.buffer}"
    return f"{argument.role} {type_}{argument.name}{expr}{buffer}"


def opened(fixture: Fixture, data: bytes) -> Artifact:
    """Other bytes in the place of a fixture."""
    operators = plain(fixture).only.operators
    wrapper = Wrapper(fixture.path.name, data, "cpp", fixture.path, operators)
    return Artifact(fixture.path, (wrapper,))


def cpp(data: bytes) -> str:
    """The C++ of a wrapper, be it in a string or not."""
    return embedded.extract(Source("wrapper", data)).data.decode()


# --- A reader of its own, which knows lines and names only --------------------------------------

_HEAD = re.compile(
    r"\bAOTInductorModel\w*::(?:run_impl|_const_run_impl|run_impl_minimal_arrayref_interface\w*)\b"
    r"|^void inductor_entry_impl\(",
    re.MULTILINE,
)
_LITERAL = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAUNCH = re.compile(
    r"\b(?:call_\w+|cpp_fused\w*|launchKernel|callBoxed|PyObject_CallObject"
    r"|aoti_torch_(?:proxy_executor_call_function|call_dispatcher|index_put_out)"
    r"|aoti_torch_(?:cpu|cuda)_(?!view_dtype)\w+|aoti_torch_mps_(?:mm_out|run_command_block))\("
)


def _blank(match: re.Match[str]) -> str:
    """Strings and comments become blanks, but for our marks."""
    ours = match[0].startswith("//") and "rewriter:" in match[0]
    return "//ours" if ours else "\n".join(" " * len(line) for line in match[0].split("\n"))


def bodies(text: str) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each entry's body, without strings and comments."""
    text = _LITERAL.sub(_blank, text)
    lines = text.split("\n")
    end = -1  # of the last one
    for head in _HEAD.finditer(text):
        number = text.count("\n", 0, head.start())
        if number <= end:
            continue
        while not lines[number].rstrip().endswith(("{", ";", "{}")):
            number += 1
        if lines[number].rstrip().endswith("{"):
            depth, body = 1, []
            while depth > 0:
                number += 1
                depth += lines[number].count("{") - lines[number].count("}")
                body.append((number + 1, lines[number]))
            yield body
        end = number


_DECLARED = re.compile(
    r"(?:^|[;{(])\s*(?:\[\[maybe_unused\]\]\s*)?(?:(?:static|thread_local|constexpr|const)\s+)*"
    r"(?P<type>decltype\(auto\)|[A-Za-z_][\w:]*(?:<[^;=()]*>)?)(?:\s*[&*]+\s*|\s+)\*?"
    r"(?P<name>\w+)\s*(?P<next>[;=({\[:])"
)
_READS = re.compile(r"_rw_*\.(?:before|after|inputs)\((.*)\);")
_NAME = re.compile(r"(?<![\w:.])([A-Za-z_]\w*)\b(?!\s*\(|::|<)")


class Names:
    """Which variables are visible on a line, and whether they hold anything."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, str]] = [{}]

    def __getitem__(self, name: str) -> str:
        return next((s[name] for s in reversed(self._scopes) if name in s), "not visible")

    def __setitem__(self, name: str, state: str) -> None:
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name] = state
                return

    def statement(self, line: str) -> None:
        if line.startswith("}"):
            self._scopes.pop()
            line = line[1:]
        for match in _DECLARED.finditer(line):
            empty = match["next"] == ";" and "Handle" in match["type"]
            if match["type"] not in ("return", "else", "throw", "new"):
                self._scopes[-1][match["name"]] = "empty" if empty else "there"
        gone = re.findall(r"\b(\w+)\.(?:reset|release)\(\)", line)
        if not line.lstrip().startswith("decltype(auto)"):  # it makes a reference
            gone += re.findall(r"std::move\((\w+)\)", line)
        gone += re.findall(r"RAIIAtenTensorHandle(?:\s+\w+)?\((\w+)\)", line)
        for name in gone:
            self[name] = "gone"
        filled = [name for name in re.findall(r"&(\w+)", line) if self[name] == "empty"]
        for name in filled + re.findall(r"(?:^|;)\s*(\w+) =(?!=)", line):
            self[name] = "there"
        if re.search(r"(?<![\w>])\{$", line.rstrip()):
            self._scopes.append({})


def unreadable(text: str) -> list[tuple[int, str, str]]:
    """`(line, name, state)` of what injected lines read and is not there."""
    found = []
    for body in bodies(text):
        names = Names()
        for number, line in body:
            if "//ours" not in line:
                names.statement(line.strip())
            elif match := _READS.search(line):
                found += [
                    (number, name, names[name])
                    for name in _NAME.findall(match[1])
                    if names[name] != "there"
                    and not name.startswith(("cached_torch_", "_rw"))
                    and name not in ("this", "true", "false")
                ]
    return found


def launch_lines(data: bytes) -> list[int]:
    """Lines of the file with calls that look like launches."""
    text, source = embedded.extract(Source("wrapper", data)), Source("wrapper", data)
    starts = [0, *(match.end() for match in re.finditer(b"\n", text.data))]
    return [
        source.line_of(text.position(starts[number - 1]))
        for body in bodies(text.data.decode())
        for number, line in body
        for _ in _LAUNCH.findall(line)
    ]


# --- What is found ------------------------------------------------------------------------------


def test_every_fixture_is_in_the_table() -> None:
    assert [str(fixture) for fixture in CPP_FIXTURES] == list(KINDS_OF)
    assert {fixture.folder for fixture in CPP_FIXTURES} == {
        *(f"cpu-torch{version}" for version in ("2.6", "2.8", "2.13", "2.15")),
        *(f"cuda-torch{version}" for version in ("2.6", "2.11", "2.15")),
        "mps-torch2.15",
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
    assert [launch.line for launch in launches] == launch_lines(fixture.data)


@all_fixtures
def test_nothing_stands_in_the_way_of_a_probe(fixture: Fixture) -> None:
    sites = [launch.insertion_point for launch in plain(fixture).launches]
    for site in sites:
        assert (site.obstacle, site.open_ended) == ("", "")
        assert site.start < site.end
        assert fixture.data[site.end - 1 : site.end] == b"\n"
    # The lines of one launch do not go between those of another.
    assert all(one.end <= other.start for one, other in itertools.pairwise(sites))


@all_fixtures
def test_every_launch_has_a_tensor(fixture: Fixture) -> None:
    for launch in plain(fixture).launches:
        tensors = [argument for argument in launch.args if argument.type == "tensor"]
        assert any(argument.role != "in" for argument in tensors), "it writes something"
        assert all(argument.buffer and argument.name and argument.expr for argument in tensors)


@pytest.mark.parametrize("fixture", one_in(3, CPP_FIXTURES))
def test_list_json_has_the_schema_of_the_contract(
    fixture: Fixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "--json", "--strict", str(fixture.path)]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == [
        "format", "version", "launches", "unrecognised", "wrappers", "inputs", "damaged", "races"
    ]  # fmt: skip
    launches = plain(fixture).launches
    assert [one["kernel"] for one in listed["launches"]] == [one.kernel for one in launches]
    assert {tuple(one) for one in listed["launches"]} == {
        ("index", "scope", "kernel", "kind", "line", "args", "origins", "source_nodes", "lines",
         "computes", "wrapper")
    }  # fmt: skip


ROWS = [
    (name, int(lines[0].split()[0].removeprefix("  #").removeprefix("#")), lines)
    for part in GOLDEN.strip("\n").split("\n= ")
    for name, *rest in [part.removeprefix("= ").split("\n")]
    for lines in (rest[start : start + 3] for start in range(0, len(rest), 3))
]


@pytest.mark.parametrize(
    ("name", "index", "lines"), ROWS, ids=[f"{name}#{index}" for name, index, _ in ROWS]
)
def test_golden(name: str, index: int, lines: list[str]) -> None:
    assert shown(plain(get(name)).launches[index]) == lines


# --- Beside the Python wrapper of the same model ------------------------------------------------

PYTHON = {(one.folder, one.model, one.graph): one for one in FIXTURES}
PAIRS = [one for one in CPP_FIXTURES if (one.folder, one.model, one.graph) in PYTHON]
# What the two compiles of one model do differently; kernels of C++, and of Python.
OTHER_KERNELS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    # One of them transposes a weight by itself.
    "cuda-torch2.11/gpt cpp_wrapper": ({"triton_poi_fused_mm_t_6": 1}, {}),
    "cuda-torch2.11/gpt_train cpp_wrapper 1": ({}, {"triton_poi_fused_mm_t_7": 1}),
    # Kernels are numbered otherwise.
    "cuda-torch2.15/gpt cpp_wrapper": (
        {"triton_per_fused_add_9": 1, "triton_poi_fused_add_10": 1},
        {"triton_per_fused_add_6": 1, "triton_poi_fused_add_9": 1},
    ),
    # Export lifts weights out, folds, decomposes and inlines subgraphs by itself.
    "cuda-torch2.11/cond aoti": (
        {
            "triton_poi_fused_1": 1,
            "triton_poi_fused_add_addmm_gt_relu_2": 1,
            "triton_poi_fused_gt_mul_sin_3": 1,
        },
        {"triton_poi_fused_add_addmm_gt_relu_1": 1, "triton_poi_fused_gt_mul_sin_2": 1},
    ),
    "cuda-torch2.11/conv aoti": (
        {
            "triton_poi_fused_convolution_relu_3": 1,
            "triton_poi_fused_convolution_relu_4": 1,
            "triton_per_fused_max_pool2d_with_indices_mean_relu_5": 1,
            "triton_poi_fused_6": 1,
        },
        {
            "triton_poi_fused__native_batch_norm_legit_no_training_convolution_relu_3": 1,
            "triton_poi_fused__native_batch_norm_legit_no_training_convolution_relu_4": 1,
            "triton_per_fused__native_batch_norm_legit_no_training_convolution_"
            "max_pool2d_with_indices_mean_relu_5": 1,
        },
    ),
    "cuda-torch2.11/mutate aoti": (
        {
            "triton_poi_fused_add_sum_0": 1,
            "triton_poi_fused_add_mul_1": 1,
            "triton_poi_fused_add_2": 1,
        },
        {
            "triton_poi_fused_add_copy__sum_0": 1,
            "triton_poi_fused_add_copy__mul_1": 1,
            "triton_poi_fused_add_copy__2": 1,
        },
    ),
    "cpu-torch2.13/subgraph aoti": ({"cpp_fused_add_relu_0": 2}, {}),
    # The whole body stands there twice.
    "cpu-torch2.13/dropout aoti-arrayref": (
        {"cpp_fused_add_native_dropout_rand_like_relu_0": 1},
        {},
    ),
    "cpu-torch2.13/dtypes aoti-arrayref": (
        {
            "cpp_fused__to_copy_0": 1,
            "cpp_fused__to_copy_1": 1,
            "cpp_fused__to_copy_bitwise_and_gt_mul_sum_2": 1,
        },
        {},
    ),
}
# Subgraphs stand where they are called, not above.
INLINED = ("cond", "while", "while_loop", "subgraph", "partition")


def kernels(fixture: Fixture) -> list[Launch]:
    """The launches of kernels that Inductor wrote, or somebody: these have names of their own."""
    return [
        launch
        for launch in plain(fixture).launches
        if launch.kind
        in ("triton", "triton_user", "triton_template", "combo", "multi_kernel", "cpp")
    ]


def tensors(launch: Launch) -> list[tuple[str, str]]:
    return [(one.role, one.name) for one in launch.args if one.type == "tensor"]


@pytest.mark.parametrize("fixture", PAIRS, ids=str)
def test_the_kernels_are_those_of_the_python_wrapper(fixture: Fixture) -> None:
    ours = [launch.kernel for launch in kernels(fixture)]
    theirs = [
        launch.kernel for launch in kernels(PYTHON[fixture.folder, fixture.model, fixture.graph])
    ]
    more, less = OTHER_KERNELS.get(str(fixture), ({}, {}))
    assert (Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)) == (more, less)
    if fixture.model not in INLINED and not more and not less:
        assert ours == theirs


@pytest.mark.parametrize(
    "fixture",
    [one for one in PAIRS if one.kind == "cpp_wrapper" and str(one) not in OTHER_KERNELS],
    ids=str,
)
def test_the_kernels_read_and_write_what_the_python_wrapper_says(fixture: Fixture) -> None:
    """Just in time, buffers have the same names: roles and names agree, tensor by tensor."""
    ours = {launch.kernel: [] for launch in kernels(fixture)}  # type: ignore[var-annotated]
    theirs = {name: [] for name in ours}  # type: ignore[var-annotated]
    for launch in kernels(fixture):
        ours[launch.kernel].append(tensors(launch))
    for launch in kernels(PYTHON[fixture.folder, fixture.model, fixture.graph]):
        theirs[launch.kernel].append(tensors(launch))
    if fixture.folder == "cuda-torch2.6":
        # The C++ of 2.6 says nothing of a kernel's parameters: what may be written is `inout`.
        for name, launches in ours.items():
            for mine, other in zip(launches, theirs[name], strict=True):
                assert {n for _, n in mine} == {n for _, n in other}
                written = {n for role, n in mine if role != "in"}
                assert {n for role, n in other if role != "in"} <= written
    else:
        assert ours == theirs


def test_how_many_are_compared() -> None:
    launches = sum(len(kernels(fixture)) for fixture in PAIRS)
    print(f"{len(PAIRS)} C++ wrappers beside Python ones, {launches} launches of kernels")
    assert len(PAIRS) >= 60
    assert set(OTHER_KERNELS) <= {str(fixture) for fixture in PAIRS}


# --- Probes in, and out -------------------------------------------------------------------------


def check(fixture: Fixture, selection: Selection) -> None:
    """Everything that is promised of an instrumented file."""
    result = rewriter.instrument(plain(fixture), selection)
    assert result.plan.skipped == ()
    again = opened(fixture, result.source)
    stripped = rewriter.strip(again)
    assert stripped.source == fixture.data
    assert stripped.exact
    # Lines were added and nothing else: each launch is on the line that says so.
    before, after = markers.lines(fixture.data), markers.lines(result.source)
    assert stripped.removed == len(after) - len(before)
    for now, then in zip(again.launches, plain(fixture).launches, strict=True):
        assert (now.kernel, now.kind, now.scope) == (then.kernel, then.kind, then.scope)
        assert now.args == then.args
        assert after[now.line - 1] == before[then.line - 1]
    assert unreadable(cpp(result.source)) == []


@pytest.mark.parametrize(("fixture", "selection"), sampled(CPP_FIXTURES, list(SELECTIONS)))
def test_probes_in_and_out(fixture: Fixture, selection: str) -> None:
    check(fixture, rewriter.select(**SELECTIONS[selection]))


@pytest.mark.parametrize("fixture", one_in(6, CPP_FIXTURES))
def test_a_filter_by_kernel(fixture: Fixture) -> None:
    launches = plain(fixture).launches
    selection = rewriter.select("print", kernels=[launches[-1].kernel])
    result = rewriter.instrument(plain(fixture), selection)
    assert [one.index for one in result.plan.probed] == [
        one.index for one in launches if one.kernel == launches[-1].kernel
    ]
    assert rewriter.strip(opened(fixture, result.source)).source == fixture.data


@pytest.mark.parametrize("fixture", one_in(2, CPP_FIXTURES))
def test_every_launch_is_between_its_lines(fixture: Fixture) -> None:
    result = rewriter.instrument(plain(fixture), rewriter.select("names", when="both"))
    marks = re.findall(r"_rw_*\.(before|after)\((\d+)\);  // rewriter:", result.source.decode())
    launches = plain(fixture).launches
    assert marks == [
        (phase, str(launch.index)) for launch in launches for phase in ("before", "after")
    ]


@pytest.mark.parametrize("fixture", one_in(9, CPP_FIXTURES))
def test_instrumenting_twice_refuses_or_replaces(fixture: Fixture) -> None:
    first = rewriter.instrument(plain(fixture), rewriter.select("save", when="both"))
    with pytest.raises(RewriterError) as caught:
        rewriter.instrument(opened(fixture, first.source), rewriter.select("print"))
    assert caught.value.slug == "already-instrumented"
    again = rewriter.instrument(
        opened(fixture, first.source), rewriter.select("print"), replace=True
    )
    assert again.source == rewriter.instrument(plain(fixture), rewriter.select("print")).source


@pytest.mark.parametrize("fixture", one_in(3, CPP_FIXTURES))
def test_stripping_a_plain_file_changes_nothing(fixture: Fixture) -> None:
    stripped = rewriter.strip(fixture.path)
    assert (stripped.source, stripped.removed, stripped.exact) == (fixture.data, 0, True)


def test_the_reader_of_names_sees_what_is_gone() -> None:
    """It must be able to fail, or the tests above say nothing."""
    result = rewriter.instrument(get("cpu-torch2.13/nested aoti").path, rewriter.select("print"))
    text = cpp(result.source)
    assert unreadable(text) == []
    names = set(re.findall(r"^    (\w+)\.reset\(\);$", text, re.MULTILINE))
    names -= set(re.findall(r"^ *(\w+) = std::move", text, re.MULTILINE))
    assert names
    for name in names:
        line = f"    _rw.after(0, {name});  // rewriter:0123abcd\n"
        at = text.rindex("} // AOTInductorModel::run_impl")
        assert name in {found for _, found, _ in unreadable(text[:at] + line + text[at:])}


@pytest.mark.parametrize("name", ["cuda-torch2.11/cond aoti", "cuda-torch2.11/cond cpp_wrapper"])
def test_command_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixture = get(name)
    suffix = fixture.path.suffix
    path, probed, back = (tmp_path / f"{stem}{suffix}" for stem in ("plain", "probed", "back"))
    path.write_bytes(fixture.data)
    options = ["--probe", "names,print,save", "--when", "both"]
    assert main(["instrument", str(path), *options, "-o", str(probed)]) == 0
    assert main(["list", str(probed), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["launches"]
    lines, before = probed.read_bytes().split(b"\n"), fixture.data.split(b"\n")
    for one, launch in zip(listed, rewriter.open(path).launches, strict=True):
        assert one["line"] > launch.line
        assert lines[one["line"] - 1] == before[launch.line - 1]
    assert main(["strip", str(probed), "-o", str(back)]) == 0
    assert back.read_bytes() == fixture.data
    assert main(["instrument", str(path), "--in-place"]) == 0
    assert path.read_bytes() != fixture.data
    assert main(["strip", str(path), "--in-place"]) == 0
    assert path.read_bytes() == fixture.data
    assert main(["instrument", str(path), "--diff"]) == 0
    difference = capsys.readouterr().out
    assert "+    inductor_rewriter::Call _rw(inductor_rewriter::wrapper);" in difference
    assert not re.search(r"^-(?!--)", difference, re.MULTILINE)


# --- To the compiler ----------------------------------------------------------------------------

CUDA = next(
    (
        folder
        for folder in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda")
        if folder and Path(folder, "include", "cuda.h").is_file()
    ),
    None,
)


def compiles(text: str, folder: Path, *flags: str) -> str:
    """What g++ says of C++, less warnings; nothing is generated."""
    found = importlib.util.find_spec("torch")  # it need not be among the packages of this Python
    assert found is not None
    assert found.origin is not None
    torch = Path(found.origin).parent / "include"
    source = folder / "wrapper.cpp"
    source.write_text(text)
    includes = [torch, torch / "torch/csrc/api/include", sysconfig.get_paths()["include"]]
    # Kernels just in time stand in the same text, and are written for a capability.
    command = ["g++", "-std=c++20", "-fsyntax-only", "-w", "-march=native", *flags]
    command.append("-DCPU_CAPABILITY_AVX2")
    done = subprocess.run(
        [*command, *(f"-I{include}" for include in includes), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    return "\n".join(line for line in done.stderr.split("\n") if "error" in line)


def _for_the_compiler() -> Iterator[Any]:
    """Every wrapper; the one that says most belongs to a plain run."""
    first = "cuda-torch2.11/cond aoti"
    for fixture in CPP_FIXTURES:
        marks = [] if str(fixture) == first else [pytest.mark.exhaustive]
        if fixture.folder.startswith("cuda"):
            marks.append(pytest.mark.skipif(CUDA is None, reason="no CUDA headers"))
        yield pytest.param(fixture, id=str(fixture), marks=marks)


@pytest.mark.parametrize("fixture", list(_for_the_compiler()))
def test_the_compiler_takes_it(fixture: Fixture, tmp_path: Path) -> None:
    """With the headers of the installed torch, where the plain wrapper fits them."""
    flags = ["-DUSE_CUDA", f"-I{CUDA}/include"] if fixture.folder.startswith("cuda") else []
    selection = rewriter.select("names,print,save", when="both")
    instrumented = cpp(rewriter.instrument(plain(fixture), selection).source)
    if said := compiles(instrumented, tmp_path, *flags):
        if before := compiles(cpp(fixture.data), tmp_path, *flags):
            pytest.skip(f"the installed torch does not take the plain one: {before[:200]}")
        raise AssertionError(said)


def test_an_output_that_is_returned_twice_has_the_same_buffer() -> None:
    fixture = get("cpu-torch2.13/mlp cpp_wrapper")
    data = fixture.path.read_bytes()
    (entry,) = plain(fixture).only.located.entries
    last = f"output_handles[{len(entry.outputs) - 1}]".encode()
    line = re.search(rb"^ *" + re.escape(last) + rb" = .*\n", data, re.M)
    assert line is not None
    again = b"    output_handles[%d] = %s;\n" % (len(entry.outputs), last)
    (more,) = opened(fixture, data.replace(line[0], line[0] + again)).only.located.entries
    assert more.outputs == (*entry.outputs, entry.outputs[-1])
    assert entry.outputs[-1]
