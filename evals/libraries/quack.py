"""QuACK, CuTe DSL kernels for Hopper and Blackwell; written for quack-kernels 0.6.5.

Source: https://github.com/Dao-AILab/quack. Its products compile and measure every configuration at the first call,
which takes minutes; the choice is kept in QUACK_CACHE_DIR.
"""

import torch
from quack.cross_entropy import cross_entropy_fwd
from quack.epilogue.library import lse_target_epi
from quack.gemm_interface import gemm, gemm_act
from quack.rmsnorm import _rmsnorm_fwd, rmsnorm_fwd
from quack.softmax import softmax_bwd, softmax_fwd
from quack.transform.hadamard import hadamard_transform_fwd

NEEDS = "quack"
TASKS = {
    "level1/softmax": "softmax",
    "level1/softmax_rank4": "softmax_of_rank_4",
    "level1/softmax_wide": "softmax",
    "level2/cross_entropy": "cross_entropy",
    "level2/cross_entropy_ignore": "cross_entropy",
    "level2/cross_entropy_vocabulary": "cross_entropy",
    "level2/layer_norm": "layer_norm",
    "level2/layer_norm_plain": "layer_norm",
    "level2/layer_norm_written_out": "layer_norm",
    "level2/residual_layer_norm": "residual_layer_norm",
    "level2/residual_rms_norm": "residual_rms_norm",
    "level2/rms_norm": "rms_norm",
    "level2/rms_norm_gemma": "rms_norm_gemma",
    "level2/rms_norm_llama": "rms_norm",
    "level2/softmax_backward": "softmax_backward",
    "level2/token_log_probability": "token_log_probability",
    "level2/z_loss": "z_loss",
    "level3/gated_mlp": "gated_mlp",
    "level3/gelu_mlp_biases": "gelu_mlp_biases",
    "level3/gemm_bias_gelu": "gemm_bias_gelu",
    "level3/gemm_fp8_bias": "gemm_fp8_bias",
    "level3/linear_cross_entropy": "linear_cross_entropy",
    "level4/grouped_gemm": "grouped_gemm",
    "level4/hadamard_rotation": "hadamard_rotation",
}


def softmax(x):
    return softmax_fwd(x)


def softmax_of_rank_4(x):
    return softmax_fwd(x.view(-1, x.shape[-1])).view_as(x)


def softmax_backward(gradient, probability):
    return softmax_bwd(gradient, probability)


def cross_entropy(logits, target):
    return cross_entropy_fwd(logits, target)


def token_log_probability(logits, token):
    return cross_entropy_fwd(logits, token).neg_()


def z_loss(logits, target):
    loss, partition = cross_entropy_fwd(logits, target, return_lse=True)
    return loss.addcmul_(partition, partition, value=1e-4)


def rms_norm(x, weight):
    return rmsnorm_fwd(x, weight, eps=1e-6)[0]


def rms_norm_gemma(x, weight):
    return rmsnorm_fwd(x, weight, eps=1e-6, weight_offset=1.0)[0]


def residual_rms_norm(x, residual, weight):
    return rmsnorm_fwd(x, weight, residual=residual, eps=1e-6)[:2]


def layer_norm(x, weight=None, bias=None, residual=None):
    """What `layernorm_fwd` calls, which itself takes no residual, and of parameters only those in float32.

    By QuACK's own choice of a configuration: measuring all of them, as `rmsnorm_fwd_tuned` does, gave no faster one
    (H200: 70.8 us for `level2/layer_norm`).
    """
    out = torch.empty_like(x)
    _rmsnorm_fwd(x, weight, out, bias, None, None, residual, None, 1e-5, True)
    return out


def residual_layer_norm(x, residual, weight, bias):
    return layer_norm(x, weight, bias, residual)


def gated_mlp(x, gate, up, down):
    """The first product wants rows of both weights in turn, and every row belongs to one tensor: a copy of 235 MB."""
    first = torch.stack((gate, up), dim=1).flatten(0, 1)
    inner = gemm_act(x, first.t(), activation="swiglu", store_preact=False)[1]
    return gemm(inner, down.t())


def gelu_mlp_biases(x, first, first_bias, second, second_bias):
    inner = gemm_act(x, first.t(), bias=first_bias, activation="gelu_tanh_approx", store_preact=False)[1]
    return gemm(inner, second.t(), bias=second_bias)


def gemm_bias_gelu(x, weight, bias):
    return gemm_act(x, weight.t(), bias=bias, activation="gelu_erf", store_preact=False)[1]


def gemm_fp8_bias(x, weight, x_scale, weight_scale, bias):
    return gemm(x, weight.t(), bias=bias, alpha=x_scale * weight_scale, out_dtype=bias.dtype)


def linear_cross_entropy(x, weight, target):
    """The epilogue that `quack.linear_cross_entropy` uses too, whose functions return only the mean or the sum."""
    found = lse_target_epi(x, weight.t(), store_d=False, target=target)
    return found["lse"] - found["target_logit"]


def grouped_gemm(x, weight, ends):
    borders = ends.new_zeros(len(ends) + 1, dtype=torch.int32)
    borders[1:] = ends
    return gemm(x, weight.mT, cu_seqlens_m=borders)


def hadamard_rotation(x):
    return hadamard_transform_fwd(x, scale=x.shape[-1] ** -0.5)
